//! The last answers that a key's writes got, until the caches have caught up with them.

use std::hash::Hash;

use super::{
    record::{LastAnswer, object_id},
    records::WriteRecords,
};
use crate::object::{Kind, ObjectKey};

impl<Key: Clone + Eq + Hash + Ord> WriteRecords<Key> {
    /// Returns what a key was answered last about an object.
    pub(crate) fn answer(&self, writer: &Key, kind: &Kind, key: &ObjectKey) -> Option<&LastAnswer> {
        self.by_key.get(writer)?.answers.get(&object_id(kind, key))
    }

    /// Remembers an answer, in place of an earlier one about the same object.
    pub(crate) fn keep_answer(&mut self, writer: &Key, kind: &Kind, key: &ObjectKey, answer: LastAnswer) {
        if let Some((source, version)) = answer.awaits() {
            self.by_version.insert(source, version, writer.clone());
        }
        let record = self.by_key.entry(writer.clone()).or_default();
        let before = record.answers.insert(object_id(kind, key), answer);
        if let Some((source, version)) = before.and_then(|before| before.awaits()) {
            self.await_no_more(writer, source, version);
        }
    }

    pub(crate) fn forget_answer(&mut self, writer: &Key, kind: &Kind, key: &ObjectKey) {
        let Some(record) = self.by_key.get_mut(writer) else { return };
        let forgotten = record.answers.remove(&object_id(kind, key));
        if let Some((source, version)) = forgotten.and_then(|answer| answer.awaits()) {
            self.await_no_more(writer, source, version);
        }
        self.prune(writer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        informer::{Progress, ProgressVia},
        object::{Scope, Version},
        writes::{
            expectation::CachedState,
            record::{Seen, WatchState},
            records::Caches,
            source::SourceId,
        },
    };

    type Answers = WriteRecords<ObjectKey>;

    /// No key waits for what a cache shows.
    struct Unasked;

    impl Caches for Unasked {
        fn cached(&self, _: SourceId, _: &ObjectKey) -> CachedState {
            unreachable!("nothing is waited for")
        }

        fn watch_state(&self, _: SourceId) -> WatchState {
            WatchState::Open
        }
    }

    fn progressed(answers: &mut Answers, version: u64, via: ProgressVia) {
        let progress = Progress { version: Some(Version(version)), via };
        answers.progressed(SourceId(0), progress, &Unasked);
    }

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
            answers.keep_answer(&key(writer), &pods(), &key("p"), answer(Some(0), version));
        }
        progressed(&mut answers, 6, ProgressVia::Watch);
        assert!(answers.answer(&key("b"), &pods(), &key("p")).is_none());
        assert_eq!(
            answers.answer(&key("a"), &pods(), &key("p")).unwrap().seen,
            Seen::NotYet,
            "the later one counts"
        );
        answers.begin(&key("a"));
        progressed(&mut answers, 7, ProgressVia::Watch);
        assert_eq!(answers.answer(&key("a"), &pods(), &key("p")).unwrap().seen, Seen::Yes);
        answers.end(&key("a"));
        assert!(answers.is_empty());
    }

    #[test]
    fn nothing_is_left_of_what_is_forgotten_or_of_another_epoch() {
        let mut answers = Answers::default();
        answers.keep_answer(&key("a"), &pods(), &key("p"), answer(Some(0), "5"));
        answers.keep_answer(&key("a"), &pods(), &key("q"), answer(None, "5"));
        answers.keep_answer(&key("b"), &pods(), &key("p"), answer(Some(1), "odd"));
        answers.forget_answer(&key("a"), &pods(), &key("p"));
        answers.end(&key("a"));
        answers.end(&key("b"));
        assert!(answers.is_empty(), "no cache ever shows the others");
        answers.keep_answer(&key("a"), &pods(), &key("p"), answer(Some(0), "5"));
        progressed(&mut answers, 1, ProgressVia::NewEpoch);
        assert!(answers.is_empty());
    }
}
