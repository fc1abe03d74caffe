//! Stale reads: which replica answers, and how far it lags.

use super::text::duration;
use crate::store::{Consistency, Lag, View};

/// Reads served from replicas that lag behind.
///
/// Reads that ask for the newest state (a `GET`, list or watch without a version) are answered from it all the
/// same, as real servers do, unless [`even_consistent`](Staleness::even_consistent) is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Staleness {
    lags: Vec<Lag>,
    consistency: Consistency,
}

impl Staleness {
    pub(super) fn new(lags: Vec<Lag>) -> Self {
        Self { lags, consistency: Consistency::Kept }
    }

    /// Serves even those reads stale that ask for the newest state.
    ///
    /// No healthy server does so; one that is cut off from its storage may.
    #[must_use]
    pub fn even_consistent(mut self) -> Self {
        self.consistency = Consistency::Broken;
        self
    }

    /// Returns the view of the `n`-th request served, counted from 1.
    pub(super) fn view(&self, n: u64) -> Option<View> {
        let place = n.saturating_sub(1).checked_rem(self.lags.len() as u64)?;
        let lag = *self.lags.get(usize::try_from(place).ok()?)?;
        Some(View { lag, consistency: self.consistency })
    }

    pub(super) fn script(&self) -> String {
        let mut out = match self.lags.as_slice() {
            [one] => format!("Fault::Stale({})", lag(*one)),
            many => {
                let many: Vec<String> = many.iter().map(|one| lag(*one)).collect();
                format!("Fault::Replicas([{}])", many.join(", "))
            }
        };
        if self.consistency == Consistency::Broken {
            out += ".even_consistent()";
        }
        out
    }

    /// Writes what one firing did: the replica of that request alone.
    pub(super) fn script_of(view: View) -> String {
        Self { lags: vec![view.lag], consistency: view.consistency }.script()
    }
}

fn lag(lag: Lag) -> String {
    match lag {
        Lag::Versions(n) => format!("Lag::Versions({n})"),
        Lag::Time(time) => format!("Lag::Time({})", duration(time)),
        Lag::Frozen(version) => format!("Lag::Frozen({version})"),
    }
}
