//! How long a server may take.

use std::time::Duration;

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
