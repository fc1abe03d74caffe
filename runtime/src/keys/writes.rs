//! What the table holds of one key's writes until the caches have caught up with them.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::Value;
use tokio::time::Instant;

use super::{expectation::Expectation, sources::SourceId};
use crate::object::{Kind, ObjectKey, Version};

/// How long a key waits for its own write while the watch is open. It begins again when the watch opens.
pub(crate) const WHILE_OPEN: Duration = Duration::from_secs(5);
/// How long it waits in an outage.
pub(crate) const IN_OUTAGE: Duration = Duration::from_secs(300);
/// How long it waits for somebody else's change that one of its writes met.
pub(crate) const FOR_FOREIGN_CHANGE: Duration = Duration::from_secs(1);
/// Later than every deadline of a key that waits: the queue lets it go then in any case.
pub(crate) const AT_MOST: Duration =
    IN_OUTAGE.saturating_add(WHILE_OPEN).saturating_add(Duration::from_secs(5));

/// One object as a write's target: the resource without its version, and the key.
pub(crate) type ObjectId = (String, String, ObjectKey);

pub(crate) fn object_id(kind: &Kind, key: &ObjectKey) -> ObjectId {
    (kind.group.to_string(), kind.plural.to_string(), key.clone())
}

/// The writes of one key.
#[derive(Debug, Default)]
pub(super) struct WriteRecord {
    /// Versions that the key's writes made.
    pub(super) own: VecDeque<OwnVersion>,
    /// The last answer about each object that it wrote.
    pub(super) answers: HashMap<ObjectId, LastAnswer>,
    /// What caches are to show before it runs again: one thing for each object of a source.
    pub(super) waits: Vec<PendingWrite>,
}

impl WriteRecord {
    pub(super) fn is_empty(&self) -> bool {
        self.own.is_empty() && self.answers.is_empty() && self.waits.is_empty()
    }

    /// Returns whether something is settled once a source has delivered a version.
    pub(super) fn awaits(&self, source: SourceId, version: Version) -> bool {
        let at = Some((source, version));
        self.own.iter().any(|own| Some((own.source, own.version)) == at)
            || self.answers.values().any(|answer| answer.awaits() == at)
            || self.waits.iter().any(|wait| wait.awaits() == at)
    }

    /// Forgets own versions of a source. Returns whether an event has shown them all.
    pub(super) fn forget_own(&mut self, source: SourceId, gone: impl Fn(Version) -> bool) -> bool {
        let is_gone = |own: &OwnVersion| own.source == source && gone(own.version);
        let all_seen = self.own.iter().all(|own| !is_gone(own) || own.seen);
        self.own.retain(|own| !is_gone(own));
        all_seen
    }

    /// Marks the answers that a source has caught up with.
    pub(super) fn deliver_answers(&mut self, source: SourceId, delivered: Version) {
        for answer in self.answers.values_mut() {
            if answer.awaits().is_some_and(|(of, version)| of == source && version <= delivered) {
                answer.seen = true;
            }
        }
    }

    /// Forgets the answers that only a run under way needs.
    pub(super) fn forget_shown_answers(&mut self) {
        self.answers.retain(|_, answer| answer.awaits().is_some() && !answer.seen);
    }
}

/// A version that a key made, until its source has delivered past it.
#[derive(Debug)]
pub(super) struct OwnVersion {
    pub(super) source: SourceId,
    pub(super) version: Version,
    /// Whether an event has shown it. More may come if a source feeds a controller several times.
    pub(super) seen: bool,
}

/// What a write was answered with, as far as the next write needs it.
///
/// A run goes on with the object that it began with. So what it wrote is remembered until it ends.
#[derive(Clone, Debug)]
pub(crate) struct LastAnswer {
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    pub(crate) owners: Vec<OwnerReference>,
    /// The status, if the write was one of status.
    pub(crate) status: Option<StatusSeen>,
    /// The cache that will show it; `None` for kinds that are not cached.
    pub(crate) source: Option<SourceId>,
    /// Whether that cache has shown it.
    pub(crate) seen: bool,
}

impl LastAnswer {
    /// Returns what a cache must have delivered to show the answer; `None` if no cache will.
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
pub(super) struct PendingWrite {
    pub(super) source: SourceId,
    pub(super) object: ObjectKey,
    pub(super) expectation: Expectation,
    pub(super) since: Instant,
}

impl PendingWrite {
    pub(super) fn awaits(&self) -> Option<(SourceId, Version)> {
        Some((self.source, self.expectation.version()?))
    }

    /// Returns until when it may last if the watch stays as it is: open since a moment, or not open.
    pub(super) fn due(&self, open_since: Option<Instant>) -> Instant {
        match (&self.expectation, open_since) {
            (Expectation::NewerThan(_), _) => self.since + FOR_FOREIGN_CHANGE,
            (_, Some(open_since)) => self.since.max(open_since) + WHILE_OPEN,
            (_, None) => self.since + IN_OUTAGE,
        }
    }
}

/// A wait that ended without what it waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OverdueWrite {
    pub(crate) key: ObjectKey,
    pub(crate) object: ObjectKey,
    pub(crate) expectation: Expectation,
    pub(crate) waited: Duration,
}
