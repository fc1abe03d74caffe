//! Why an object does not reconcile: what a debug page shows, and what tests ask.

use std::{
    any::TypeId,
    fmt,
    ops::{Deref, DerefMut},
    slice,
    sync::Arc,
    vec,
};

use super::{
    Reason,
    overview::{ControllerPhase, ControllerReport, Lagging, LastError},
};
use crate::{
    clock::{Moment, readable},
    object::ObjectKey,
};

/// How the controllers of a kind stand to one key: one report each, in the order of their start.
///
/// It is a list that shows itself to people: a sentence for each controller. Where it is empty, none reconciles the kind.
#[derive(Clone, Debug)]
pub struct KeyReports(Vec<KeyReport>);

/// How one controller stands to one key, at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KeyReport {
    /// The object that was asked about.
    pub key: ObjectKey,
    /// The controller's name.
    pub controller: Arc<str>,
    /// What the key waits for.
    pub why: Why,
    /// What asked for the run that is to come, where a change did.
    pub reason: Option<Reason>,
    /// How the last run failed, if it did.
    pub last_error: Option<LastError>,
}

/// Why an object is not being reconciled, or that it is.
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
    WaitsUntil(Moment),
    /// Waits after failures.
    BackingOff {
        /// When it is ready.
        until: Moment,
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
        at_most_until: Moment,
    },
    /// Waits for caches that can't be relied on for now: the server lost its history, or a watch is lost.
    AwaitsCaches {
        /// What they hold.
        kinds: Vec<String>,
        /// When it goes on whatever comes of them.
        at_most_until: Moment,
    },
    /// Writes more often than [`storm_limit`](super::Controller::storm_limit) allows.
    Paced {
        /// When it goes on.
        until: Moment,
    },
    /// Runs now.
    InFlight {
        /// When the run started; known of every controller's runs.
        since: Option<Moment>,
        /// Which run in a row this is without a success before it; the first is 1.
        attempt: u32,
    },
}

impl KeyReports {
    pub(crate) fn new(reports: Vec<KeyReport>) -> Self {
        Self(reports)
    }
}

impl Deref for KeyReports {
    type Target = Vec<KeyReport>;

    fn deref(&self) -> &Vec<KeyReport> {
        &self.0
    }
}

impl DerefMut for KeyReports {
    fn deref_mut(&mut self) -> &mut Vec<KeyReport> {
        &mut self.0
    }
}

impl IntoIterator for KeyReports {
    type Item = KeyReport;
    type IntoIter = vec::IntoIter<KeyReport>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a KeyReports {
    type Item = &'a KeyReport;
    type IntoIter = slice::Iter<'a, KeyReport>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl fmt::Display for KeyReports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("no controller of this manager reconciles the kind");
        }
        for (at, report) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            fmt::Display::fmt(report, f)?;
        }
        Ok(())
    }
}

impl fmt::Display for KeyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, controller, why, reason, last_error } = self;
        match why {
            Why::InFlight { .. } => write!(f, "{controller} is reconciling {key}: {why}")?,
            _ => write!(f, "{controller} is not reconciling {key}: {why}")?,
        }
        if let Some(reason) = reason {
            write!(f, " (asked for: {reason})")?;
        }
        match last_error {
            Some(error) => write!(f, "; {error}"),
            None => Ok(()),
        }
    }
}

/// A controller as it is looked into, whatever its types.
pub(crate) trait Inspected: Send + Sync {
    /// The marker type that it reconciles.
    fn reconciles(&self) -> TypeId;
    /// Returns how it stands to a key.
    fn report(&self, key: &ObjectKey) -> KeyReport;
    /// Names what runs, in one line; `None` if nothing does.
    fn in_flight(&self) -> Option<String>;
    /// Finds objects by name alone, in whatever namespace; a bounded number.
    fn find(&self, name: &str) -> Vec<ObjectKey>;
    /// Says which caches it waits for, and why.
    fn lagging(&self) -> Vec<Lagging>;
    /// Says how far it has come.
    fn phase(&self) -> ControllerPhase;
    /// Shows how it stands, with at most so many keys of each sort.
    fn overview(&self, each: usize) -> ControllerReport;
}

impl fmt::Debug for dyn Inspected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inspected")
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wait = |until: &Moment| readable(until.left());
        match self {
            Self::NotKnown => f.write_str("no object of that name is in its cache"),
            Self::BlockedOnSync(whom) => write!(f, "caches have not synced: {}", whom.join(", ")),
            Self::Stopped => f.write_str("the controller has stopped"),
            Self::StandsBy => f.write_str("this replica stands by: it does not lead"),
            Self::Unreadable(error) => write!(f, "the object can't be read: {error}"),
            Self::AwaitsChange => f.write_str("nothing to do until it changes"),
            Self::AwaitsChangeAfterFailure { failures } => {
                write!(f, "failed for good after {failures} in a row: nothing more until it changes")
            }
            Self::Queued => f.write_str("it is queued for a worker"),
            Self::WaitsUntil(until) => write!(f, "its next run is due in {}", wait(until)),
            Self::BackingOff { until, failures } => {
                write!(f, "backs off for {} more after {}", wait(until), in_a_row(*failures))
            }
            Self::AwaitsRetryToken { failures } => {
                write!(f, "waits for its turn among all retries after {}", in_a_row(*failures))
            }
            Self::AwaitsOwnWrites { at_most_until } => {
                write!(f, "waits until caches show its own writes, for {} at most", wait(at_most_until))
            }
            Self::AwaitsCaches { kinds, at_most_until } => {
                let (kinds, wait) = (kinds.join(", "), wait(at_most_until));
                write!(f, "waits until the cache of {kinds} can be relied on again, for {wait} at most")
            }
            Self::Paced { until } => write!(f, "wrote too often: held for {}", wait(until)),
            Self::InFlight { since: Some(since), attempt } => {
                write!(f, "running for {} (attempt {attempt})", readable(since.elapsed()))
            }
            Self::InFlight { since: None, attempt } => write!(f, "running (attempt {attempt})"),
        }
    }
}

fn in_a_row(failures: u32) -> String {
    if failures == 1 { "1 failure".to_owned() } else { format!("{failures} failures in a row") }
}
