//! Why an object does not reconcile: what a debug page shows, and what tests ask.

use std::{
    any::TypeId,
    fmt,
    sync::{Arc, atomic::Ordering},
};

use tokio::time::Instant;

use super::{Reason, Reconciler, worker::Engine};
use crate::{informer::Watched, object::ObjectKey, store::Lookup, workqueue::KeyState};

/// Most keys in flight that are named in one line.
const NAMED_IN_FLIGHT: usize = 5;

/// Tells how one controller stands to one key, at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KeyReport {
    /// The controller's name.
    pub controller: Arc<str>,
    /// What the key waits for.
    pub why: Why,
    /// What asked for the run that is to come, where a change did.
    pub reason: Option<Reason>,
    /// How the last run failed, if it did.
    pub last_error: Option<LastError>,
}

/// Says why an object is not being reconciled, or that it is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// The controller does not know the key: no such object in its caches, and nothing asked for a run.
    NotKnown,
    /// The controller is not working yet, or not in that namespace: these caches have not synced, and why.
    BlockedOnSync(Vec<String>),
    /// The controller has stopped.
    Stopped,
    /// Another replica leads, or is to: this one stands by.
    StandsBy,
    /// The object can't be read, and so is not reconciled; this is what is wrong with it.
    Unreadable(String),
    /// All is done: it waits for a change.
    AwaitsChange,
    /// Its last run failed for good: it waits for a change.
    AwaitsChangeAfterFailure {
        /// Failures in a row.
        failures: u32,
    },
    /// In line for a worker, or for a token of the rate limit.
    Queued,
    /// Waits for the time that its last run asked for.
    WaitsUntil(Instant),
    /// Waits after failures.
    BackingOff {
        /// When it is ready.
        until: Instant,
        /// Failures in a row.
        failures: u32,
    },
    /// Its back-off is over; it waits for a token that the retries of all keys share.
    AwaitsRetryToken {
        /// Failures in a row.
        failures: u32,
    },
    /// Waits until caches show what its last run wrote.
    AwaitsOwnWrites {
        /// When it goes on whatever the caches show.
        at_most_until: Instant,
    },
    /// Waits for caches that can't be relied on for now: the server lost its history, or a watch is lost.
    AwaitsCaches {
        /// What they hold.
        kinds: Vec<String>,
        /// When it goes on whatever comes of them.
        at_most_until: Instant,
    },
    /// Writes more often than [`storm_limit`](super::Controller::storm_limit) allows.
    Paced {
        /// When it goes on.
        until: Instant,
    },
    /// Runs now.
    InFlight {
        /// When the run started; known of every controller's runs.
        since: Option<Instant>,
        /// Which run in a row this is without a success before it; the first is 1.
        attempt: u32,
    },
}

/// Tells how a run failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LastError {
    /// The error and its causes, in one line.
    pub error: String,
    /// When the run ended.
    pub at: Instant,
    /// Which run in a row it was without a success before it.
    pub attempt: u32,
}

/// A controller as it is looked into, whatever its types.
pub(crate) trait Inspected: Send + Sync {
    /// The marker type that it reconciles.
    fn reconciles(&self) -> TypeId;
    /// Tells how it stands to a key.
    fn report(&self, key: &ObjectKey) -> KeyReport;
    /// Names what runs, in one line; `None` if nothing does.
    fn in_flight(&self) -> Option<String>;
}

impl fmt::Debug for dyn Inspected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inspected")
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wait = |until: &Instant| until.saturating_duration_since(Instant::now());
        match self {
            Self::NotKnown => f.write_str("not known"),
            Self::BlockedOnSync(whom) => write!(f, "blocked on the sync of {}", whom.join(", ")),
            Self::Stopped => f.write_str("the controller has stopped"),
            Self::StandsBy => f.write_str("this replica stands by: it does not lead"),
            Self::Unreadable(error) => write!(f, "unreadable: {error}"),
            Self::AwaitsChange => f.write_str("waits for a change"),
            Self::AwaitsChangeAfterFailure { failures } => {
                write!(f, "failed for good ({failures} in a row): waits for a change")
            }
            Self::Queued => f.write_str("queued"),
            Self::WaitsUntil(until) => write!(f, "due in {:?}", wait(until)),
            Self::BackingOff { until, failures } => {
                write!(f, "backs off for {:?} after {failures} failures", wait(until))
            }
            Self::AwaitsRetryToken { failures } => {
                write!(f, "waits for a retry token after {failures} failures")
            }
            Self::AwaitsOwnWrites { at_most_until } => {
                write!(f, "waits for its own writes, for {:?} at most", wait(at_most_until))
            }
            Self::AwaitsCaches { kinds, at_most_until } => {
                let (kinds, wait) = (kinds.join(", "), wait(at_most_until));
                write!(f, "waits for the cache of {kinds} to be relied on again, for {wait:?} at most")
            }
            Self::Paced { until } => write!(f, "writes too often: paced for {:?}", wait(until)),
            Self::InFlight { since: Some(since), attempt } => {
                write!(f, "runs since {:?} (attempt {attempt})", since.elapsed())
            }
            Self::InFlight { since: None, attempt } => write!(f, "runs (attempt {attempt})"),
        }
    }
}

impl<K: Watched, R: Reconciler<K>> Inspected for Engine<K, R> {
    fn reconciles(&self) -> TypeId {
        TypeId::of::<K>()
    }

    fn report(&self, key: &ObjectKey) -> KeyReport {
        KeyReport {
            controller: self.name.clone(),
            why: self.why(key),
            reason: self.intake.reason(key),
            last_error: self.failures().get(key).cloned(),
        }
    }

    fn in_flight(&self) -> Option<String> {
        let keys = self.intake.queue.in_flight(NAMED_IN_FLIGHT);
        let more = self.intake.queue.depth().in_flight.saturating_sub(keys.len());
        let mut named: Vec<_> = keys
            .iter()
            .map(|(key, since)| match since {
                Some(since) => format!("{key} for {:?}", since.elapsed()),
                None => key.to_string(),
            })
            .collect();
        if more > 0 {
            named.push(format!("{more} more"));
        }
        (!named.is_empty()).then(|| format!("{} ({})", self.name, named.join(", ")))
    }
}

impl<K: Watched, R: Reconciler<K>> Engine<K, R> {
    fn why(&self, key: &ObjectKey) -> Why {
        let stands_by = self.stands_by.load(Ordering::Relaxed);
        if !stands_by && self.intake.queue.is_shut_down() {
            return Why::Stopped;
        }
        let lagging = self.waits.lagging_for(key);
        if !lagging.is_empty() {
            return Why::BlockedOnSync(lagging);
        }
        if stands_by {
            return Why::StandsBy;
        }
        let state = self.intake.queue.state_of(key);
        if matches!(state, KeyState::Queued { .. } | KeyState::Held { .. })
            && let Some(doubt) = self.gate.doubt(key)
        {
            let kinds = self.gate.doubts().iter().map(|(kind, _)| kind.to_string()).collect();
            return Why::AwaitsCaches { kinds, at_most_until: doubt.until };
        }
        match state {
            KeyState::Queued { .. } => Why::Queued,
            KeyState::Delayed { until } => Why::WaitsUntil(until),
            KeyState::BackingOff { until, failures } => Why::BackingOff { until, failures },
            KeyState::AwaitsRetryToken { failures } => Why::AwaitsRetryToken { failures },
            KeyState::AwaitsChange { failures } => Why::AwaitsChangeAfterFailure { failures },
            KeyState::InFlight { since, attempt } => Why::InFlight { since, attempt },
            KeyState::Held { until } => match self.intake.is_parked(key) {
                true => Why::AwaitsOwnWrites { at_most_until: until },
                false => Why::Paced { until },
            },
            KeyState::Idle => match self.objects.lookup(key) {
                Lookup::Absent => Why::NotKnown,
                Lookup::Found(_) => Why::AwaitsChange,
                Lookup::Outdated { unreadable, .. } | Lookup::Unreadable(unreadable) => {
                    Why::Unreadable(unreadable.error.clone())
                }
            },
        }
    }
}
