//! The last answers that a key's writes got, until the caches have caught up with them.

use std::collections::HashMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::Value;

use super::{awaited::Awaited, own_writes::SourceId};
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
    /// What no cache shows yet, by the key that wrote it.
    awaited: Awaited<(ObjectKey, Place)>,
}

pub(super) fn place(kind: &Kind, key: &ObjectKey) -> Place {
    (kind.group.to_string(), kind.plural.to_string(), key.clone())
}

impl Answers {
    pub(crate) fn get(&self, writer: &ObjectKey, kind: &Kind, key: &ObjectKey) -> Option<&LastAnswer> {
        self.by_key.get(writer)?.get(&place(kind, key))
    }

    pub(crate) fn keep(&mut self, writer: &ObjectKey, kind: &Kind, key: &ObjectKey, answer: LastAnswer) {
        let place = place(kind, key);
        if let Some((source, version)) = answer.awaits() {
            self.awaited.insert(source, version, (writer.clone(), place.clone()));
        }
        let before = self.by_key.entry(writer.clone()).or_default().insert(place.clone(), answer.clone());
        if let Some(before) = before.filter(|before| before.awaits() != answer.awaits()) {
            self.await_no_more(writer, &place, &before);
        }
    }

    pub(crate) fn forget(&mut self, writer: &ObjectKey, kind: &Kind, key: &ObjectKey) {
        let place = place(kind, key);
        self.prune_key(writer, |at, _| *at == place);
    }

    /// Forgets what the cache shows, and what none ever will: the run that knew it is over.
    pub(crate) fn run_ended(&mut self, writer: &ObjectKey) {
        self.prune_key(writer, |_, answer| answer.awaits().is_none() || answer.seen == Seen::InCache);
    }

    /// Forgets what a cache has caught up with, but for runs that are under way.
    pub(crate) fn delivered(
        &mut self,
        source: SourceId,
        version: Option<Version>,
        is_running: impl Fn(&ObjectKey) -> bool,
    ) {
        let Some(version) = version else { return };
        for (key, place) in self.awaited.take_up_to(source, version) {
            let Some(answers) = self.by_key.get_mut(&key) else { continue };
            match answers.get_mut(&place) {
                Some(answer) if is_running(&key) => answer.seen = Seen::InCache,
                _ => drop(answers.remove(&place)),
            }
            if answers.is_empty() {
                self.by_key.remove(&key);
            }
        }
    }

    /// Forgets everything of a source whose versions start anew.
    pub(crate) fn new_epoch(&mut self, source: SourceId) {
        drop(self.awaited.take(source));
        self.by_key.retain(|_, answers| {
            answers.retain(|_, answer| answer.source != Some(source));
            !answers.is_empty()
        });
    }

    fn prune_key(&mut self, writer: &ObjectKey, gone: impl Fn(&Place, &LastAnswer) -> bool) {
        let Some(answers) = self.by_key.get_mut(writer) else { return };
        let (pruned, kept) = std::mem::take(answers).into_iter().partition(|(at, answer)| gone(at, answer));
        *answers = kept;
        if answers.is_empty() {
            self.by_key.remove(writer);
        }
        let pruned: HashMap<Place, LastAnswer> = pruned;
        pruned.iter().for_each(|(at, answer)| self.await_no_more(writer, at, answer));
    }

    fn await_no_more(&mut self, writer: &ObjectKey, at: &Place, answer: &LastAnswer) {
        if let Some((source, version)) = answer.awaits() {
            self.awaited.remove(source, version, &(writer.clone(), at.clone()));
        }
    }
}

impl LastAnswer {
    /// Says what a cache must have been brought to that shows the answer; `None` where none will.
    fn awaits(&self) -> Option<(SourceId, Version)> {
        Some((self.source?, self.resource_version.parse().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Scope;

    fn pods() -> Kind {
        Kind {
            group: "".into(),
            version: "v1".into(),
            kind: "Pod".into(),
            plural: "pods".into(),
            scope: Scope::Namespaced,
        }
    }

    fn answer(source: Option<usize>, version: &str) -> LastAnswer {
        LastAnswer {
            uid: String::new(),
            resource_version: version.into(),
            owners: Vec::new(),
            status: None,
            source: source.map(SourceId),
            seen: Seen::NotYet,
        }
    }

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("shop", name)
    }

    // W9
    #[test]
    fn an_answer_goes_once_its_cache_shows_it_and_its_run_has_ended() {
        let mut answers = Answers::default();
        for (writer, version) in [("a", "5"), ("b", "6"), ("a", "7")] {
            answers.keep(&key(writer), &pods(), &key("p"), answer(Some(0), version));
        }
        answers.delivered(SourceId(0), Some(Version(6)), |_| false);
        assert!(answers.get(&key("b"), &pods(), &key("p")).is_none());
        assert_eq!(
            answers.get(&key("a"), &pods(), &key("p")).unwrap().seen,
            Seen::NotYet,
            "the later one counts"
        );
        answers.delivered(SourceId(0), Some(Version(7)), |_| true);
        assert_eq!(answers.get(&key("a"), &pods(), &key("p")).unwrap().seen, Seen::InCache);
        answers.run_ended(&key("a"));
        assert!(answers.by_key.is_empty() && answers.awaited.is_empty());
    }

    #[test]
    fn nothing_is_left_of_what_is_forgotten_or_of_another_epoch() {
        let mut answers = Answers::default();
        answers.keep(&key("a"), &pods(), &key("p"), answer(Some(0), "5"));
        answers.keep(&key("a"), &pods(), &key("q"), answer(None, "5"));
        answers.keep(&key("b"), &pods(), &key("p"), answer(Some(1), "odd"));
        answers.forget(&key("a"), &pods(), &key("p"));
        answers.run_ended(&key("a"));
        answers.run_ended(&key("b"));
        assert!(answers.by_key.is_empty() && answers.awaited.is_empty(), "no cache ever shows the others");
        answers.keep(&key("a"), &pods(), &key("p"), answer(Some(0), "5"));
        answers.new_epoch(SourceId(0));
        assert!(answers.by_key.is_empty() && answers.awaited.is_empty());
    }
}
