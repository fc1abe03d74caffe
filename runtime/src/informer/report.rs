//! How an informer stands at one moment: what debug pages show, as text and as JSON.

use serde::Serialize;

use super::sync_state::{FetchFailure, SyncPhase};
use crate::{clock::Moment, delta_fifo::Extent, list_watch::Unreadable};

/// Most objects that can't be read that are named.
pub(super) const UNREADABLE_SHOWN: usize = 20;

/// How an informer stands at one moment.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InformerReport {
    /// What is watched, such as `deployments.apps`.
    pub(crate) kind: String,
    /// The cluster that it is read from, by name; `None`: the manager's own.
    pub(crate) cluster: Option<String>,
    /// The version of the API in which it is read.
    pub(crate) version: String,
    /// The namespaces that it is watched in; none: all.
    pub(crate) namespaces: Vec<String>,
    /// Which objects are asked for; empty: all.
    pub(crate) selector: String,
    /// How far it has come.
    pub(crate) phase: SyncPhase,
    /// How many objects the cache holds.
    pub(crate) objects: usize,
    /// The size of their texts, where they are cached as such.
    pub(crate) bytes: Option<usize>,
    /// The version that the cache shows at least.
    pub(crate) resource_version: Option<u64>,
    /// When something last came from the server.
    pub(crate) last_event: Option<Moment>,
    /// What keeps it from listing or watching at present.
    pub(crate) failure: Option<FailureReport>,
    /// How many objects can't be read.
    pub(crate) unreadable: usize,
    /// Some of them, each with what is wrong with it.
    pub(crate) unreadable_objects: Vec<String>,
    /// How many event handlers it has.
    pub(crate) handlers: usize,
    /// How many notifications wait for them.
    pub(crate) handler_backlog: usize,
}

impl InformerReport {
    pub(super) fn selecting(self, selector: &str) -> Self {
        Self { selector: selector.to_owned(), ..self }
    }
}

/// What keeps an informer from listing or watching.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FailureReport {
    /// What fails, and why, in one line.
    pub(crate) message: String,
    /// The namespace that it concerns; `None`: all that is watched.
    pub(crate) namespace: Option<String>,
    /// When it began to fail.
    pub(crate) since: Moment,
    /// How often in a row it failed.
    pub(crate) attempts: u32,
    /// When it is tried again.
    pub(crate) retry_at: Moment,
}

impl From<FetchFailure> for FailureReport {
    fn from(failure: FetchFailure) -> Self {
        let namespace = match &failure.extent {
            Extent::All => None,
            Extent::Namespace(namespace) => Some(namespace.to_string()),
        };
        let FetchFailure { since, attempts, retry_at, .. } = failure;
        Self { message: failure.to_string(), namespace, since, attempts, retry_at }
    }
}

/// Names an object that can't be read, and says why.
pub(super) fn named(unreadable: &Unreadable) -> String {
    match &unreadable.identity.key {
        Some(key) => format!("{key}: {}", unreadable.error),
        None => format!("one without a name: {}", unreadable.error),
    }
}
