//! The settings of shards, and their validation.

use super::slot::{Slot, SlotOf};
use crate::leader_election::{ElectionError, LeaderElection};

/// The longest value of a label.
const LONGEST_NAME: usize = 63;
/// The most slots: a Lease names those that its replica works on.
const MOST_SLOTS: u16 = 1_024;

/// Shares the keys of all controllers out among the replicas that name the same shards.
///
/// A string converts to shards of this name with the defaults otherwise, a [`LeaderElection`] to shards whose Leases have
/// its name, namespace and durations. All replicas need the same settings: those that have others wait for each other.
///
/// ```
/// # use watchkeeper::{Manager, Sharding, leader_election::LeaderElection, prelude::*};
/// # fn sharded(manager: Manager) -> Manager {
/// let leases = LeaderElection::new("websites").lease_duration(Duration::from_secs(30));
/// manager.sharded(Sharding::from(leases).by_name().slots(128))
/// # }
/// ```
///
/// The book has more: [shards](https://github.com/watchkeeper/watchkeeper/blob/main/book/src/how-to/shards.md).
#[derive(Clone, Debug)]
#[must_use = "work is shared out once a manager has it"]
pub struct Sharding {
    pub(crate) election: LeaderElection,
    pub(crate) of: SlotOf,
    pub(crate) splits_caches: bool,
}

impl Sharding {
    /// Names the shards. Their Leases have names that begin so, by default in the client's namespace.
    pub fn new(name: impl Into<String>) -> Self {
        Self::from(LeaderElection::new(name))
    }

    /// Spreads the objects of a namespace over all replicas. By default one replica works on all of them.
    ///
    /// Use it if few namespaces hold most of the objects.
    pub fn by_name(mut self) -> Self {
        self.of.by_name = true;
        self
    }

    /// Sets into how many slots keys are put: 64 unless set, 1,024 at most.
    ///
    /// More slots are shared out more evenly, and fewer keys wait while one moves. Use ten for each replica, or more.
    pub fn slots(mut self, slots: u16) -> Self {
        self.of.slots = slots;
        self
    }

    /// Caches in each replica only its part: of what controllers reconcile and, unless keys are put into slots
    /// [`by_name`](Self::by_name), of what they own. By default each replica caches everything.
    ///
    /// It saves memory and time: what belongs to others is dropped before it is decoded. It costs:
    ///
    /// - A slot that comes is listed before its keys run, with all else of these kinds. With whole caches it is there.
    /// - Listers of these kinds that a run asks its [`Context`](crate::Context) for show a part. What a controller watches
    ///   otherwise or [`reads`](crate::Controller::reads), and the informers that the program asks the manager for, show all.
    ///
    /// The server still sends every change to every replica. With
    /// [`controller_in_namespaces`](crate::Manager::controller_in_namespaces) it does not: a replica runs the controllers of
    /// the namespaces in its slots, and watches no others. This does not apply to keys in slots `by_name`.
    pub fn split_caches(mut self) -> Self {
        self.splits_caches = true;
        self
    }

    /// Checks that the settings can work.
    pub(crate) fn check(&self) -> Result<(), ElectionError> {
        let name = self.election.name();
        let is_edge = |edge: Option<char>| edge.is_some_and(|edge| edge.is_ascii_alphanumeric());
        if name.len() > LONGEST_NAME || !is_edge(name.chars().next()) || !is_edge(name.chars().last()) {
            return Err(ElectionError::Shards(name.to_owned()));
        }
        match self.of.slots {
            1..=MOST_SLOTS => Ok(()),
            slots => Err(ElectionError::Slots(slots)),
        }
    }
}

impl From<LeaderElection> for Sharding {
    fn from(election: LeaderElection) -> Self {
        const SLOTS: Slot = 64;
        Self { election, of: SlotOf { by_name: false, slots: SLOTS }, splits_caches: false }
    }
}

impl From<&str> for Sharding {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

impl From<String> for Sharding {
    fn from(name: String) -> Self {
        Self::new(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // H1
    #[test]
    fn names_that_are_no_label_and_numbers_of_slots_out_of_range_are_refused() {
        assert_eq!(Sharding::new("web.example-1").slots(1_024).check(), Ok(()));
        for name in [String::new(), "-web".to_owned(), "web.".to_owned(), "w".repeat(64)] {
            let refused = Sharding::new(name.clone()).check();
            assert_eq!(refused, Err(ElectionError::Shards(name)));
        }
        for slots in [0, 1_025, u16::MAX] {
            assert_eq!(Sharding::new("web").slots(slots).check(), Err(ElectionError::Slots(slots)));
        }
    }
}
