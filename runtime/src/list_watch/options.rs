//! The options of lists and watches: one struct for both; and how long a server may take.

use std::time::Duration;

/// What a list or a watch asks for; a field left unset is not sent.
///
/// The semantics are those of Kubernetes' `ListOptions`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// The version to read at or watch from; unset: a consistent read of the present.
    pub resource_version: Option<String>,
    /// How `resource_version` is meant; unset: the verb's own rule.
    pub version_match: Option<VersionMatch>,
    /// Most items a page may hold; unset: all.
    pub limit: Option<u32>,
    /// Where the page before ended.
    pub continue_token: Option<String>,
    /// Label selector in Kubernetes' syntax.
    pub label_selector: Option<String>,
    /// Field selector in Kubernetes' syntax.
    pub field_selector: Option<String>,
    /// How long the server keeps a watch open, in whole seconds; unset: as it likes.
    pub timeout: Option<Duration>,
    /// Whether a watch brings bookmarks: `allowWatchBookmarks=true`.
    pub bookmarks: bool,
    /// Whether a watch starts with the present objects (a streaming list): `sendInitialEvents=true`.
    pub initial_events: bool,
}

/// How the resource version of a list is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VersionMatch {
    /// Exactly that version.
    Exact,
    /// That version or a later one.
    NotOlderThan,
}

/// How long to wait for a server before what it owes counts as lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// From a request to the headers of its answer; 30 s.
    pub headers: Duration,
    /// Between two chunks of a list; 30 s.
    pub list_silence: Duration,
    /// Without a byte on an open watch, until it is opened again; 2 min (bookmarks come about every minute).
    pub watch_silence: Duration,
    /// What a watch may outlive the timeout that it asked for; 30 s.
    pub watch_slack: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            headers: Duration::from_secs(30),
            list_silence: Duration::from_secs(30),
            watch_silence: Duration::from_secs(120),
            watch_slack: Duration::from_secs(30),
        }
    }
}
