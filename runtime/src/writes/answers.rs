//! The last answers that a key's writes got, until the caches have caught up with them.

use std::collections::HashMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::Value;

use super::own_writes::SourceId;
use crate::object::{Kind, ObjectKey, Version};

/// What a write was answered with, as far as the next write needs it.
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

/// A status that the server answered.
#[derive(Clone, Debug)]
pub(crate) struct StatusSeen {
    /// Read through the object's type.
    pub(crate) typed: Value,
    /// As the server holds it.
    pub(crate) raw: Value,
}

/// Says whether the cache shows what was answered.
///
/// A run goes on with the object that it began with, so that what it wrote is remembered until it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    NotYet,
    InCache,
}

/// One object as a write's target: the resource, without its version, and the key.
pub(super) type Place = (String, String, ObjectKey);

/// Last answers by the key whose run wrote, then by what was written.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    by_key: HashMap<ObjectKey, HashMap<Place, LastAnswer>>,
}

pub(super) fn place(kind: &Kind, key: &ObjectKey) -> Place {
    (kind.group.to_string(), kind.plural.to_string(), key.clone())
}

impl Answers {
    pub(crate) fn get(&self, writer: &ObjectKey, kind: &Kind, key: &ObjectKey) -> Option<&LastAnswer> {
        self.by_key.get(writer)?.get(&place(kind, key))
    }

    pub(crate) fn keep(&mut self, writer: &ObjectKey, kind: &Kind, key: &ObjectKey, answer: LastAnswer) {
        self.by_key.entry(writer.clone()).or_default().insert(place(kind, key), answer);
    }

    pub(crate) fn forget(&mut self, writer: &ObjectKey, kind: &Kind, key: &ObjectKey) {
        self.prune_key(writer, |at, _| *at == place(kind, key));
    }

    /// Forgets what the cache shows, and what none ever will: the run that knew it is over.
    pub(crate) fn run_ended(&mut self, writer: &ObjectKey) {
        self.prune_key(writer, |_, answer| answer.source.is_none() || answer.seen == Seen::InCache);
    }

    /// Forgets what a cache has caught up with, but for runs that are under way.
    pub(crate) fn delivered(
        &mut self,
        source: SourceId,
        version: Option<Version>,
        is_running: impl Fn(&ObjectKey) -> bool,
    ) {
        let Some(version) = version else { return };
        self.by_key.retain(|key, answers| {
            let keep = is_running(key);
            answers.retain(|_, answer| {
                if answer.source == Some(source)
                    && answer.resource_version.parse().is_ok_and(|at: Version| at <= version)
                {
                    answer.seen = Seen::InCache;
                }
                keep || answer.seen == Seen::NotYet
            });
            !answers.is_empty()
        });
    }

    /// Forgets everything of a source whose versions start anew.
    pub(crate) fn new_epoch(&mut self, source: SourceId) {
        self.by_key.retain(|_, answers| {
            answers.retain(|_, answer| answer.source != Some(source));
            !answers.is_empty()
        });
    }

    fn prune_key(&mut self, writer: &ObjectKey, gone: impl Fn(&Place, &LastAnswer) -> bool) {
        if self.by_key.is_empty() {
            return;
        }
        if let Some(answers) = self.by_key.get_mut(writer) {
            answers.retain(|at, answer| !gone(at, answer));
            if answers.is_empty() {
                self.by_key.remove(writer);
            }
        }
    }
}
