//! How a controller is doing at one moment, and why an object does not reconcile: for debug pages and tests.
//!
//! Names and times, never an object's content.

use std::{
    fmt,
    ops::{Deref, DerefMut},
    sync::Arc,
};

use serde::Serialize;

use super::recent::RunReport;
use crate::{
    clock::Moment,
    keys::{LastError, Reason, Why},
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
    /// What the key depends on, since its runs read it by [`Context::lister`](crate::Context::lister); the first twenty.
    ///
    /// What a run under way reads by name is added when it ends.
    pub reads: Vec<String>,
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
        let Self { key, controller, why, reason, last_error, reads } = self;
        match why {
            Why::InFlight { .. } => write!(f, "{controller} is reconciling {key}: {why}")?,
            _ => write!(f, "{controller} is not reconciling {key}: {why}")?,
        }
        if let Some(reason) = reason {
            write!(f, " (asked for: {reason})")?;
        }
        if let Some(error) = last_error {
            write!(f, "; {error}")?;
        }
        match reads.is_empty() {
            true => Ok(()),
            false => write!(f, "; it depends on {}", reads.join(", ")),
        }
    }
}

/// How a controller stands at one moment.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ControllerReport {
    /// Its name.
    pub(crate) name: String,
    /// The kind that it reconciles.
    pub(crate) kind: String,
    /// How far it has come.
    pub(crate) phase: ControllerPhase,
    /// The caches that it waits for, and why, each in one line.
    pub(crate) waits_for: Vec<String>,
    /// Its workers.
    pub(crate) workers: WorkerCounts,
    /// How many keys stand where.
    pub(crate) queue: QueueDepths,
    /// Keys that stand somewhere, by where they stand; where there is none, its place is left out.
    pub(crate) keys: Vec<KeyGroup>,
    /// The last runs, the last first.
    pub(crate) recent_runs: Vec<RunReport>,
}

/// How far a controller has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ControllerPhase {
    /// Its caches have not synced.
    WaitsForCaches,
    /// Another replica leads, or is to.
    StandsBy,
    /// It works.
    Works,
    /// It has stopped.
    Stopped,
}

/// The workers of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WorkerCounts {
    /// How many reconcile now.
    pub(crate) busy: usize,
    /// How many there are.
    pub(crate) total: usize,
}

/// How many keys stand where in a controller's queue.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct QueueDepths {
    /// In line for a worker.
    pub(crate) ready: usize,
    /// For how many seconds the oldest of these has been.
    pub(crate) oldest_seconds: Option<f64>,
    /// Waiting for a timer or a back-off.
    pub(crate) waiting: usize,
    /// Held, for their own writes, for caches in doubt, or since they wrote too often.
    pub(crate) held: usize,
    /// Retries that wait for a token that all share.
    pub(crate) awaiting_retry_token: usize,
    /// With a worker.
    pub(crate) in_flight: usize,
    /// Failed for good.
    pub(crate) failed_for_good: usize,
}

/// Where keys stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum KeyPlace {
    /// Failed for good: waits for a change.
    FailedForGood,
    /// Waits after failures.
    BackingOff,
    /// Held, for its own writes, for caches in doubt, or since it wrote too often.
    Held,
    /// With a worker.
    InFlight,
    /// In line for a worker.
    Queued,
    /// Waits for the time that its last run asked for.
    Waiting,
}

/// Keys that stand in one place.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct KeyGroup {
    /// Where they stand.
    pub(crate) place: KeyPlace,
    /// The number of keys. Only 20,000 keys with a timer are examined: others count as waiting.
    pub(crate) total: usize,
    /// Some of them, the soonest first.
    pub(crate) keys: Vec<KeyLine>,
}

/// One key, and how it stands.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct KeyLine {
    /// The object.
    pub(crate) key: String,
    /// What it waits for, as people read it.
    pub(crate) why: String,
    /// What asked for the run that is to come, where a change did.
    pub(crate) reason: Option<String>,
    /// When it is ready, or is let go at the latest.
    pub(crate) due: Option<Moment>,
    /// Which run in a row the one under way, or the next, is without a success before it.
    pub(crate) attempt: Option<u32>,
    /// How the last run failed, if it did.
    pub(crate) last_error: Option<LastError>,
}

impl From<KeyReport> for KeyLine {
    fn from(report: KeyReport) -> Self {
        let (due, attempt) = match report.why {
            Why::WaitsUntil(until) | Why::Paced { until } => (Some(until), None),
            Why::AwaitsOwnWrites { at_most_until } | Why::AwaitsCaches { at_most_until, .. } => {
                (Some(at_most_until), None)
            }
            Why::BackingOff { until, failures } => (Some(until), Some(failures.saturating_add(1))),
            Why::AwaitsRetryToken { failures } | Why::AwaitsChangeAfterFailure { failures } => {
                (None, Some(failures.saturating_add(1)))
            }
            Why::InFlight { attempt, .. } => (None, Some(attempt)),
            _ => (None, None),
        };
        Self {
            key: report.key.to_string(),
            why: report.why.to_string(),
            reason: report.reason.map(|reason| reason.to_string()),
            due,
            attempt,
            last_error: report.last_error,
        }
    }
}
