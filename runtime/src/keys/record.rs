//! What the table holds of one key. A key that nothing is known of has no record.

use std::collections::BTreeMap;

use tokio::{sync::OwnedSemaphorePermit, time::Instant};

use super::{
    Reason,
    budget::SpentBudget,
    sources::SourceId,
    tombstones::{StoredState, Tombstones},
    why::{LastError, Why},
    writes::WriteRecord,
};
use crate::{clock::Moment, object::Version};

/// One key. What most keys do not have is boxed: after a start, many keys wait at once.
#[derive(Debug, Default)]
pub(super) struct KeyRecord {
    /// Why the run that has not started was asked for.
    pub(super) asked: Option<Reason>,
    /// The last readable state that a run began with, if its cache does not keep that.
    pub(super) last_read: Option<StoredState>,
    /// The run under way.
    pub(super) run: Option<Box<RunRecord>>,
    pub(super) details: Option<Box<KeyDetails>>,
}

/// What few keys have.
#[derive(Debug, Default)]
pub(super) struct KeyDetails {
    /// Holds up the source that named the key until its run starts.
    pub(super) permit: Option<OwnedSemaphorePermit>,
    /// The reasons that hold it back, and until when at most. The longest one counts.
    pub(super) holds: BTreeMap<HoldReason, Instant>,
    pub(super) writes: WriteRecord,
    pub(super) spent: Option<SpentBudget>,
    /// How the last run failed, if no run has succeeded since.
    pub(super) last_error: Option<LastError>,
    pub(super) tombstones: Tombstones,
}

impl KeyRecord {
    /// Returns the details, if there are any.
    pub(super) fn known(&mut self) -> Option<&mut KeyDetails> {
        self.details.as_deref_mut()
    }

    /// Returns whether a cache does not show yet what its last run wrote.
    pub(super) fn awaits_writes(&self) -> bool {
        self.details.as_ref().is_some_and(|details| !details.writes.waits.is_empty())
    }

    pub(super) fn is_empty(&self) -> bool {
        let Self { asked, last_read, run, details } = self;
        asked.is_none()
            && last_read.is_none()
            && run.is_none()
            && details.as_ref().is_none_or(|details| details.is_empty())
    }

    /// Forgets what a term knew, but not what the key wrote and spent.
    pub(super) fn end_term(&mut self) {
        self.asked = None;
        if let Some(details) = self.known() {
            let KeyDetails { writes, spent, .. } = std::mem::take(details);
            *details = KeyDetails { writes, spent, ..KeyDetails::default() };
        }
    }

    /// Forgets what only runs of the key need, but not what it waits for: it is to run in another replica.
    pub(super) fn leave(&mut self) {
        // The queue goes on to hold the key until somebody says that a hold is over, or its time is.
        let holds = self.known().map(|details| std::mem::take(&mut details.holds));
        self.end_term();
        self.last_read = None;
        if let (Some(details), Some(holds)) = (self.known(), holds) {
            details.holds = holds;
        }
    }

    /// Forgets what is over, and what belongs to an object that is gone.
    pub(super) fn sweep(&mut self, now: Instant, is_gone: impl Fn() -> bool) {
        if self.last_read.is_some() && is_gone() {
            self.last_read = None;
        }
        let Some(details) = &mut self.details else { return };
        details.holds.retain(|_, until| *until > now);
        details.spent = details.spent.filter(|spent| !spent.is_over(now));
        // A predicate may have kept its deletion from running it.
        if details.last_error.is_some() && details.tombstones.is_empty() && is_gone() {
            details.last_error = None;
        }
        if details.is_empty() {
            self.details = None;
        }
    }
}

impl KeyDetails {
    fn is_empty(&self) -> bool {
        let Self { permit, holds, writes, spent, last_error, tombstones } = self;
        permit.is_none()
            && holds.is_empty()
            && writes.is_empty()
            && spent.is_none()
            && last_error.is_none()
            && tombstones.is_empty()
    }
}

/// Why a key is held back although something asks for a run of it; the first counts most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HoldReason {
    /// A cache that it reads can't be relied on.
    StaleCache,
    /// Caches do not show its own writes yet.
    OwnWrites,
    /// The server asked for a wait before it runs again, whatever changes.
    RetryAfter,
    /// Its runs write too often.
    Pace,
}

impl HoldReason {
    /// Says why a key is held back; `None`: for a cache that can be relied on again.
    pub(super) fn why(self, until: Moment, failures: u32) -> Option<Why> {
        match self {
            Self::StaleCache => None,
            Self::OwnWrites => Some(Why::AwaitsOwnWrites { at_most_until: until }),
            Self::RetryAfter => Some(Why::BackingOff { until, failures }),
            Self::Pace => Some(Why::Paced { until }),
        }
    }
}

/// A run under way.
#[derive(Debug, Default)]
pub(super) struct RunRecord {
    /// Events that came before the replies that may make them the key's own.
    pub(super) deferred: Vec<(SourceId, Version)>,
    /// Sources whose versions started again meanwhile: an answer may be of either side.
    pub(super) new_epochs: Vec<SourceId>,
    pub(super) done: RunDone,
}

/// What a run did so far, and what happened meanwhile, as far as is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunDone {
    pub(crate) activity: RunActivity,
    /// How many writes the server took.
    pub(crate) writes: u32,
    /// Whether something else changed, so that the key must run again.
    pub(crate) changed: bool,
}

/// What is known of a run that may have written, while it lasts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RunActivity {
    /// It sent nothing, and no event of its key came.
    #[default]
    Nothing,
    /// Something of its key changed meanwhile.
    Changed,
    /// It sent a write.
    Wrote,
}

impl RunRecord {
    /// Adds what the run did, or what happened meanwhile; the most counts.
    pub(super) fn note(&mut self, activity: RunActivity) {
        self.done.activity = self.done.activity.max(activity);
        self.done.writes = self.done.writes.saturating_add((activity == RunActivity::Wrote).into());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    // H3
    #[test]
    fn a_key_that_leaves_keeps_its_holds_as_the_queue_does() {
        let mut record = KeyRecord { asked: Some(Reason::Changed), ..KeyRecord::default() };
        let until = Instant::now() + Duration::from_secs(310);
        record.details = Some(Box::default());
        record.known().unwrap().holds.insert(HoldReason::OwnWrites, until);
        record.leave();
        assert_eq!(record.known().unwrap().holds.get(&HoldReason::OwnWrites), Some(&until));
        assert_eq!(record.asked, None);
    }
}
