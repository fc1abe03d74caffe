//! The last answers of writes are kept until the caches have caught up with them.

use super::*;
use crate::object::{Kind, Scope};

impl Bench {
    fn keep(&self, writer: &str, object: &str, answer: LastAnswer) {
        self.table().keep_answer(&key(writer), object_id(&pods(), &key(object)), answer);
    }

    /// Returns whether a cache has shown what a key was answered about the object `p`; `None` if it is not kept.
    fn seen(&self, writer: &str) -> Option<bool> {
        self.table().answer(&key(writer), &object_id(&pods(), &key("p"))).map(|answer| answer.seen)
    }
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
        seen: false,
    }
}

// W9
#[test]
fn an_answer_goes_once_its_cache_shows_it_and_its_run_has_ended() {
    let answers = Bench::new();
    for (writer, version) in [("a", "5"), ("b", "6"), ("a", "7")] {
        answers.keep(writer, "p", answer(Some(0), version));
    }
    answers.brought(SITES, 6, ProgressVia::Watch);
    assert_eq!(answers.seen("b"), None);
    assert_eq!(answers.seen("a"), Some(false), "the later one counts");
    answers.table().begin(&key("a"), 1);
    answers.brought(SITES, 7, ProgressVia::Watch);
    assert_eq!(answers.seen("a"), Some(true));
    answers.table().end(&key("a"));
    assert_eq!(answers.table().remembered(), 0);
}

#[test]
fn nothing_is_left_of_what_is_forgotten_or_of_another_epoch() {
    let answers = Bench::new();
    answers.keep("a", "p", answer(Some(0), "5"));
    answers.keep("a", "q", answer(None, "5"));
    answers.keep("b", "p", answer(Some(1), "odd"));
    answers.table().forget_answer(&key("a"), &object_id(&pods(), &key("p")));
    answers.table().end(&key("a"));
    answers.table().end(&key("b"));
    answers.table().sweep(answers.now, |_| false);
    assert_eq!(answers.table().remembered(), 0, "no cache ever shows the others");
    answers.keep("a", "p", answer(Some(0), "5"));
    answers.brought(SITES, 1, ProgressVia::NewEpoch);
    assert_eq!(answers.table().remembered(), 0);
}

#[test]
fn a_table_in_which_all_keys_waited_at_once_gives_the_memory_back() {
    let bench = Bench::new();
    let keys: Vec<_> = (0..20_000).map(|n| key(&n.to_string())).collect();
    keys.iter().for_each(|key| bench.table().add(key.clone(), Reason::Changed));
    assert!(bench.table().room() >= 20_000);
    for key in &keys {
        bench.table().begin(key, 1);
        bench.table().end(key);
    }
    assert!(bench.table().room() <= 2_048, "{}", bench.table().room());
}
