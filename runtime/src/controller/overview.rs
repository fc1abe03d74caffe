//! How a controller stands at one moment: what debug pages show, as text and as JSON.
//!
//! Names and times, never an object's content.

use serde::Serialize;

use super::recent::RunReport;
use crate::{clock::Moment, keys::LastError};

/// A cache that a controller waits for.
#[derive(Clone, Debug)]
pub(crate) struct Lagging {
    /// The kind.
    pub(crate) kind: String,
    /// Since when it fails, if it does.
    pub(crate) since: Option<Moment>,
    /// Why it has not synced, in one line.
    pub(crate) why: String,
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
    pub(crate) workers: Workers,
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
pub(crate) struct Workers {
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
