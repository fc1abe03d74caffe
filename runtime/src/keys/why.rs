//! Why a key is not being reconciled.

use std::fmt;

use serde::Serialize;

use crate::clock::{Moment, readable};

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
    /// Replicas [share the work](crate::Sharding), and another one works on the key's slot.
    InAnotherShard {
        /// The slot.
        slot: u16,
        /// The Lease of the replica that works on it, as far as is known.
        holder: Option<String>,
    },
    /// This replica works on the key's slot, and waits until its caches show what was written before.
    SlotArrives {
        /// The slot.
        slot: u16,
        /// Since when.
        since: Moment,
    },
    /// Another replica is to work on the key's slot. It moves once what runs here has ended.
    SlotLeaves {
        /// The slot.
        slot: u16,
        /// Since when.
        since: Moment,
    },
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
    /// Writes more often than [`storm_limit`](crate::Controller::storm_limit) allows.
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

/// How a run failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct LastError {
    /// The error and its causes, in one line.
    pub error: String,
    /// When the run ended.
    pub at: Moment,
    /// Which run in a row it was without a success before it.
    pub attempt: u32,
}

impl fmt::Display for LastError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { error, at, attempt } = self;
        write!(f, "attempt {attempt} failed {} ago, at {at}: {error}", readable(at.elapsed()))
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
            Self::InAnotherShard { slot, holder: Some(holder) } => {
                write!(f, "another replica works on its slot {slot}: {holder}")
            }
            Self::InAnotherShard { slot, holder: None } => {
                write!(
                    f,
                    "no replica is known to work on its slot {slot}; one that is gone keeps it for a lease duration"
                )
            }
            Self::SlotArrives { slot, since } => {
                let since = readable(since.elapsed());
                write!(
                    f,
                    "its slot {slot} came to this replica {since} ago: waits until caches show what was written before"
                )
            }
            Self::SlotLeaves { slot, since } => {
                let since = readable(since.elapsed());
                write!(
                    f,
                    "its slot {slot} has been leaving this replica for {since}: it moves once its runs have ended"
                )
            }
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
