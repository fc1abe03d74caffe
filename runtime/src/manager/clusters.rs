//! The other clusters that a manager reads from, and whether they can be.

use parking_lot::{Mutex, MutexGuard};

use crate::{
    controller::{Cluster, Plan},
    error::Error,
};

/// The other clusters that a manager reads from.
#[derive(Default)]
pub(super) struct Clusters {
    known: Mutex<Vec<Cluster>>,
}

impl Clusters {
    pub(super) fn add(&self, cluster: &Cluster) {
        self.known().push(cluster.clone());
    }

    /// Returns them, once each has a name of its own, and controllers name no other.
    pub(super) fn checked(&self, plans: &[Plan]) -> Result<Vec<Cluster>, Error> {
        let known = self.known().clone();
        let refused = |cluster: &Cluster, problem: &str| {
            Err(Error::Cluster { name: cluster.name().to_owned(), problem: problem.to_owned() })
        };
        for (at, cluster) in known.iter().enumerate() {
            if !is_a_name(cluster.name()) {
                return refused(cluster, "its name must be 1 to 63 of a-z, 0-9, '-' and '.'");
            }
            if known[..at].iter().any(|other| other.name() == cluster.name()) {
                return refused(cluster, "another one has that name: give each its own");
            }
        }
        for cluster in plans.iter().flat_map(|plan| &plan.definition.clusters) {
            if !known.iter().any(|one| one.is(cluster)) {
                return refused(
                    cluster,
                    "it is another manager's: ask the one that runs the controller, by `manager.cluster(..)`",
                );
            }
        }
        Ok(known)
    }

    pub(super) fn known(&self) -> MutexGuard<'_, Vec<Cluster>> {
        self.known.lock()
    }
}

/// Names are shown in messages, in paths of probes, and as labels.
fn is_a_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    (1..=63).contains(&name.len()) && name.bytes().all(fits)
}
