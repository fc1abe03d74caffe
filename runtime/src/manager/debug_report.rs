//! How a manager stands at one moment: what `/debug` shows, as a page and as JSON.
//!
//! Names, numbers, times and errors; never an object's content.

use serde::Serialize;

use super::{health::HealthReport, process::ManagerProcess};
use crate::{
    clock::Moment,
    controller::{ControllerReport, KeyReports},
    informer::InformerReport,
    leader_election::{LeaderState, Leadership},
};

/// How a manager stands at one moment; made by [`Inspector::debug_report`](super::Inspector::debug_report).
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct DebugReport {
    /// When this was found.
    pub at: Moment,
    /// What runs.
    pub program: ProgramReport,
    /// What it works for.
    pub server: ServerReport,
    /// The state of its election, if it takes part in one.
    pub leadership: Option<LeaderReport>,
    /// Whether the process is fit to go on.
    pub health: HealthReport,
    /// Whether the manager does its work.
    pub readiness: HealthReport,
    /// How each controller stands to the key that was asked about.
    pub search: Option<SearchReport>,
    /// Its controllers.
    pub controllers: Vec<ControllerReport>,
    /// Its informers, those of other clusters included.
    pub informers: Vec<InformerReport>,
}

/// What runs.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ProgramReport {
    /// The name of the program's file.
    pub name: String,
    /// The version of this library.
    pub watchkeeper: &'static str,
    /// The number of the process.
    pub process: u32,
    /// When the manager was started.
    pub started: Option<Moment>,
}

/// What a manager works for.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ServerReport {
    /// Its address; known where [`Manager::infer`](crate::Manager::infer) built the client.
    pub url: Option<String>,
    /// Its version; `None` where it did not say.
    pub version: Option<String>,
    /// The namespace that the client uses unless told otherwise.
    pub namespace: Option<String>,
}

/// The state of a replica in its election.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct LeaderReport {
    /// The Lease.
    pub lease: String,
    /// The name under which this replica holds it.
    pub identity: String,
    /// `leads`, `stands by`, `ends` or `idle`.
    pub state: &'static str,
    /// Since when.
    pub since: Moment,
    /// Who leads, as far as is known.
    pub leader: Option<String>,
}

/// How each controller stands to a key.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SearchReport {
    /// What was asked for.
    pub key: String,
    /// A sentence for each controller, and each object found.
    pub answers: Vec<String>,
}

impl SearchReport {
    pub(super) fn new(key: &str, reports: &KeyReports) -> Self {
        let answers = match reports.is_empty() {
            true => vec!["this manager runs no controller".to_owned()],
            false => reports.iter().map(ToString::to_string).collect(),
        };
        Self { key: key.to_owned(), answers }
    }
}

impl DebugReport {
    pub(super) async fn new(
        process: Option<&ManagerProcess>,
        (health, readiness): (HealthReport, HealthReport),
        search: Option<SearchReport>,
        controllers: Vec<ControllerReport>,
    ) -> Self {
        let version = match process {
            Some(process) => process.server_version().await,
            None => None,
        };
        Self {
            at: Moment::now(),
            program: program(process),
            server: ServerReport {
                url: process.and_then(|process| process.cluster.url.clone()),
                version,
                namespace: process.map(|process| process.client.default_namespace().to_owned()),
            },
            leadership: process.and_then(|process| process.leadership.as_ref()).map(leadership),
            health,
            readiness,
            search,
            controllers,
            informers: process.map(|process| process.factories.reports()).unwrap_or_default(),
        }
    }
}

fn program(process: Option<&ManagerProcess>) -> ProgramReport {
    let file = std::env::current_exe().ok();
    let name =
        file.as_ref().and_then(|file| file.file_name()).map(|name| name.to_string_lossy().into_owned());
    ProgramReport {
        name: name.unwrap_or_else(|| "not known".to_owned()),
        watchkeeper: env!("CARGO_PKG_VERSION"),
        process: std::process::id(),
        started: process.map(|process| process.started),
    }
}

fn leadership(leadership: &Leadership) -> LeaderReport {
    let identity = leadership.identity().to_owned();
    let (state, leader) = match leadership.state() {
        LeaderState::Leads => ("leads", Some(identity.clone())),
        LeaderState::StandsBy { holder } => ("stands by", holder),
        LeaderState::Ends => ("ends", None),
        LeaderState::Idle => ("idle", None),
    };
    LeaderReport {
        lease: leadership.lease().to_string(),
        identity,
        state,
        since: leadership.since().into(),
        leader,
    }
}
