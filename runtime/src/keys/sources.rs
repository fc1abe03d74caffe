//! What the table holds of one source: how far its cache has come, and how long its watch has been open.

use std::time::Duration;

use foldhash::HashSet;
use tokio::time::Instant;

use crate::object::{ObjectKey, Version};

/// Names one informer among those that feed a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SourceId(pub(crate) usize);

/// How far a source has come.
#[derive(Debug, Default)]
pub(super) struct SourceRecord {
    /// The cache shows at least this version.
    pub(super) delivered: Option<Version>,
    /// The version of the last list that replaced the cache.
    pub(super) replaced: Option<Version>,
    /// Objects that keys wait for and that changed since the last progress.
    pub(super) changed: HashSet<ObjectKey>,
    /// Runs while any key waits.
    pub(super) clock: Option<WatchClock>,
    /// The last event, and the keys that it reached; only of a source that feeds the controller more than once.
    pub(super) event: Option<(Version, HashSet<ObjectKey>)>,
}

impl SourceRecord {
    /// Returns whether the event with this version has not reached a key yet.
    pub(super) fn is_first(&mut self, version: Version, key: &ObjectKey) -> bool {
        match &mut self.event {
            Some((of, reached)) if *of == version => reached.insert(key.clone()),
            event => {
                *event = Some((version, HashSet::from_iter([key.clone()])));
                true
            }
        }
    }
}

/// Measures for how long a watch is open and closed.
#[derive(Debug)]
pub(super) struct WatchClock {
    pub(super) is_open: bool,
    since: Instant,
    before: WatchTimes,
}

/// For how long a watch has been open and closed in all.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WatchTimes {
    pub(super) open: Duration,
    pub(super) closed: Duration,
}

impl WatchClock {
    pub(super) fn start(is_open: bool, now: Instant) -> Self {
        Self { is_open, since: now, before: WatchTimes::default() }
    }

    pub(super) fn elapsed(&self, now: Instant) -> WatchTimes {
        let (WatchTimes { open, closed }, more) = (self.before, now - self.since);
        match self.is_open {
            true => WatchTimes { open: open + more, closed },
            false => WatchTimes { open, closed: closed + more },
        }
    }

    /// Goes on with a watch that is open or closed from now on.
    pub(super) fn set(&mut self, is_open: bool, now: Instant) {
        *self = Self { is_open, since: now, before: self.elapsed(now) };
    }
}
