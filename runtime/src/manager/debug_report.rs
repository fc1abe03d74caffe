//! How a manager stands at one moment: what `/debug` shows, as a page and as JSON.
//!
//! Names, numbers, times and errors; never an object's content.

use serde::Serialize;

use super::health::HealthReport;
use crate::{
    clock::Moment,
    controller::ControllerReport,
    informer::InformerReport,
    leader_election::{LeaderState, Leadership},
    shards::Slots,
};

/// Shows how a manager stands at one moment; made by [`Inspector::debug_report`](super::Inspector::debug_report).
///
/// It serializes as the JSON that `/debug?format=json` answers: program, server, leadership, health, readiness, the
/// answers about one key, controllers and informers. Later versions may add fields.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DebugReport {
    /// When this was found.
    pub(super) at: Moment,
    /// What runs.
    pub(super) program: ProgramReport,
    /// What it works for.
    pub(super) server: ServerReport,
    /// The state of its election, if it takes part in one.
    pub(super) leadership: Option<LeaderReport>,
    /// Whether the process is fit to go on.
    pub(super) health: HealthReport,
    /// Whether the manager does its work.
    pub(super) readiness: HealthReport,
    /// How each controller stands to the key that was asked about.
    pub(super) search: Option<SearchReport>,
    /// Its controllers.
    pub(super) controllers: Vec<ControllerReport>,
    /// Its informers, those of other clusters included.
    pub(super) informers: Vec<InformerReport>,
}

/// What runs.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProgramReport {
    /// The name of the program's file.
    pub(super) name: String,
    /// The version of this library.
    pub(super) watchkeeper: &'static str,
    /// The number of the process.
    pub(super) process: u32,
    /// When the manager was started.
    pub(super) started: Option<Moment>,
}

/// What a manager works for.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ServerReport {
    /// Its address; known where [`Manager::infer`](crate::Manager::infer) built the client.
    pub(super) url: Option<String>,
    /// Its version; `None` where it did not say.
    pub(super) version: Option<String>,
    /// The namespace that the client uses unless told otherwise.
    pub(super) namespace: Option<String>,
}

/// The state of a replica in its election.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LeaderReport {
    /// The Lease.
    pub(super) lease: String,
    /// The name under which this replica holds it.
    pub(super) identity: String,
    /// `leads`, `stands by`, `ends` or `idle`.
    pub(super) state: &'static str,
    /// Since when.
    pub(super) since: Moment,
    /// Who leads, as far as is known.
    pub(super) leader: Option<String>,
    /// This replica's part of the work, if replicas share it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) shards: Option<String>,
}

/// How each controller stands to a key.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SearchReport {
    /// What was asked for.
    pub(super) key: String,
    /// A sentence for each controller, and each object found.
    pub(super) answers: Vec<String>,
}

impl ProgramReport {
    pub(super) fn new(started: Option<Moment>) -> Self {
        let file = std::env::current_exe().ok();
        let name =
            file.as_ref().and_then(|file| file.file_name()).map(|name| name.to_string_lossy().into_owned());
        Self {
            name: name.unwrap_or_else(|| "not known".to_owned()),
            watchkeeper: env!("CARGO_PKG_VERSION"),
            process: std::process::id(),
            started,
        }
    }
}

impl LeaderReport {
    pub(super) fn new(leadership: &Leadership, slots: Option<&Slots>) -> Self {
        let identity = leadership.identity().to_owned();
        let (state, leader) = match leadership.state() {
            LeaderState::Leads => ("leads", Some(identity.clone())),
            LeaderState::StandsBy { holder } => ("stands by", holder),
            LeaderState::Ends => ("ends", None),
            LeaderState::Idle => ("idle", None),
        };
        let (lease, since) = (leadership.lease().to_string(), leadership.since().into());
        let shards = slots.map(Slots::summary);
        Self { lease, identity, state, since, leader, shards }
    }
}
