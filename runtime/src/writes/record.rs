//! What is remembered of one key's writes, until the caches have caught up with them.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::Value;
use tokio::time::Instant;

use super::{expectation::Expectation, source::SourceId};
use crate::object::{Kind, ObjectKey, Version};

/// How long a key waits for its own write while the watch is open.
pub(crate) const WHILE_OPEN: Duration = Duration::from_secs(5);
/// How long it waits in an outage.
pub(crate) const IN_OUTAGE: Duration = Duration::from_secs(300);
/// How long it waits for somebody else's change that one of its writes met.
pub(crate) const FOR_FOREIGN_CHANGE: Duration = Duration::from_secs(1);

/// What an event means for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Somebody else's change: the key must run.
    Enqueue,
    /// The key's own write.
    Own,
    /// The key is in flight: the event is judged when its run ends.
    Deferred,
}

/// What a run leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunEnd {
    /// Nobody else changed anything.
    Quiet,
    /// Somebody did: the key must run again.
    Changed,
}

/// What is known of a run that may have written, while it lasts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RunActivity {
    /// It sent nothing, and no event of its key came.
    #[default]
    Nothing,
    /// Something of its key changed meanwhile.
    Changed,
    /// It sent a write.
    Wrote,
}

/// What a run did so far, as far as is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunDone {
    pub(crate) activity: RunActivity,
    /// How many writes the server took.
    pub(crate) writes: u32,
}

/// One object as a write's target: the resource, without its version, and the key.
pub(super) type ObjectId = (String, String, ObjectKey);

pub(super) fn object_id(kind: &Kind, key: &ObjectKey) -> ObjectId {
    (kind.group.to_string(), kind.plural.to_string(), key.clone())
}

/// What is remembered of one key.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// Versions that the key's writes made.
    pub(super) own: VecDeque<OwnVersion>,
    /// What its writes were answered with, by what was written.
    pub(super) answers: HashMap<ObjectId, LastAnswer>,
    /// What caches are to show before it runs again: of each object of a source, one thing.
    pub(super) waits: Vec<Wait>,
}

impl Record {
    pub(super) fn is_empty(&self) -> bool {
        self.own.is_empty() && self.answers.is_empty() && self.waits.is_empty()
    }

    /// Whether something in the record is settled once a source has delivered a version.
    pub(super) fn awaits(&self, source: SourceId, version: Version) -> bool {
        let at = Some((source, version));
        self.own.iter().any(|own| Some((own.source, own.version)) == at)
            || self.answers.values().any(|answer| answer.awaits() == at)
            || self.waits.iter().any(|wait| wait.awaits() == at)
    }

    /// Forgets own versions of a source. Returns whether an event has shown them all.
    pub(super) fn forget_own(&mut self, source: SourceId, gone: impl Fn(Version) -> bool) -> Seen {
        let is_gone = |own: &OwnVersion| own.source == source && gone(own.version);
        let unseen = self.own.iter().any(|own| is_gone(own) && own.seen == Seen::NotYet);
        self.own.retain(|own| !is_gone(own));
        if unseen { Seen::NotYet } else { Seen::Yes }
    }

    /// Marks the answers that a source has caught up with.
    pub(super) fn deliver_answers(&mut self, source: SourceId, delivered: Version) {
        for answer in self.answers.values_mut() {
            if answer.awaits().is_some_and(|(of, version)| of == source && version <= delivered) {
                answer.seen = Seen::Yes;
            }
        }
    }

    /// Forgets the answers that only a run under way needs.
    pub(super) fn forget_shown_answers(&mut self) {
        self.answers.retain(|_, answer| answer.awaits().is_some() && answer.seen == Seen::NotYet);
    }
}

/// What is known of a run under way.
#[derive(Debug, Default)]
pub(super) struct RunRecord {
    /// Events that came before the replies that may make them the key's own.
    pub(super) deferred: Vec<(SourceId, Version)>,
    pub(super) changed: bool,
    pub(super) activity: RunActivity,
    /// How many writes the server took.
    pub(super) writes: u32,
    /// Sources whose versions started anew meanwhile: an answer may be of either side.
    pub(super) new_epochs: Vec<SourceId>,
}

/// A version that a key made, until its source has delivered past it.
#[derive(Debug)]
pub(super) struct OwnVersion {
    pub(super) source: SourceId,
    pub(super) version: Version,
    /// Whether an event has shown it; more may come, where a source feeds a controller several times.
    pub(super) seen: Seen,
}

/// Whether a cache has shown something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    NotYet,
    Yes,
}

/// What a write was answered with, as far as the next write needs it.
///
/// A run goes on with the object that it began with, so that what it wrote is remembered until it ends.
#[derive(Clone, Debug)]
pub(crate) struct LastAnswer {
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    pub(crate) owners: Vec<OwnerReference>,
    /// The status, where the write was one of status.
    pub(crate) status: Option<StatusSeen>,
    /// The cache that will show it; `None` for kinds that are not cached.
    pub(crate) source: Option<SourceId>,
    pub(crate) seen: Seen,
}

impl LastAnswer {
    /// Returns what a cache must have delivered that shows the answer; `None` where none will.
    pub(super) fn awaits(&self) -> Option<(SourceId, Version)> {
        Some((self.source?, self.resource_version.parse().ok()?))
    }
}

/// A status that the server answered.
#[derive(Clone, Debug)]
pub(crate) struct StatusSeen {
    /// Read through the object's type.
    pub(crate) typed: Value,
    /// As the server holds it.
    pub(crate) raw: Value,
}

/// What a cache is to show of one object.
#[derive(Debug)]
pub(super) struct Wait {
    pub(super) source: SourceId,
    pub(super) object: ObjectKey,
    pub(super) expectation: Expectation,
    pub(super) since: Instant,
    /// The source's clock when the wait began.
    pub(super) began: Elapsed,
}

impl Wait {
    pub(super) fn awaits(&self) -> Option<(SourceId, Version)> {
        Some((self.source, self.expectation.version()?))
    }

    /// Returns until when it may last if the watch stays as it is.
    pub(super) fn due(&self, clock: &Clock, now: Instant) -> Instant {
        let elapsed = clock.elapsed(now);
        let left = match (&self.expectation, clock.watch_state) {
            (Expectation::NewerThan(_), _) => return self.since + FOR_FOREIGN_CHANGE,
            _ if elapsed.closed - self.began.closed >= IN_OUTAGE => Duration::ZERO,
            (_, WatchState::Open) => WHILE_OPEN.saturating_sub(elapsed.open - self.began.open),
            _ if elapsed.open - self.began.open >= WHILE_OPEN => Duration::ZERO,
            (_, WatchState::Closed) => IN_OUTAGE.saturating_sub(elapsed.closed - self.began.closed),
        };
        now + left
    }
}

/// Whether a kind's watch is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchState {
    Open,
    Closed,
}

/// How long a watch has been open and closed, in all.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Elapsed {
    open: Duration,
    closed: Duration,
}

/// Measures how long a watch is open and closed.
#[derive(Debug)]
pub(super) struct Clock {
    watch_state: WatchState,
    since: Instant,
    before: Elapsed,
}

impl Clock {
    pub(super) fn start(watch_state: WatchState, now: Instant) -> Self {
        Self { watch_state, since: now, before: Elapsed::default() }
    }

    pub(super) fn elapsed(&self, now: Instant) -> Elapsed {
        let (Elapsed { open, closed }, more) = (self.before, now - self.since);
        match self.watch_state {
            WatchState::Open => Elapsed { open: open + more, closed },
            WatchState::Closed => Elapsed { open, closed: closed + more },
        }
    }

    pub(super) fn notice(&mut self, watch_state: WatchState, now: Instant) {
        *self = Self { watch_state, since: now, before: self.elapsed(now) };
    }
}
