//! What was last applied to each object: an apply that would change nothing is not sent.
//!
//! One record an object, of some hundred bytes whatever its size: digests of what was meant, and of what the
//! answer showed at the paths of that. A record is kept for objects of cached kinds alone, and goes when the cache
//! loses the object: all records together are a small part of that cache, idle keys included.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
};

use serde_json::Value;

use crate::{
    keys::{ObjectId, object_id},
    object::{Kind, ObjectKey, Version},
};

/// A value's digest: 128 bits, with random keys for each controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Digest(u64, u64);

/// What an apply meant and what its answer showed.
#[derive(Clone, Debug)]
pub(crate) struct AppliedRecord {
    /// The key whose run applied it.
    pub(crate) writer: ObjectKey,
    pub(crate) uid: String,
    /// A version that shows what was answered.
    pub(crate) version: Version,
    pub(crate) intent: Digest,
    /// The answer at the paths of the intent.
    pub(crate) shown: Digest,
}

/// Makes digests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Digests(RandomState, RandomState);

impl Digests {
    pub(crate) fn of(&self, value: &Value) -> Digest {
        Digest(self.0.hash_one(value), self.1.hash_one(value))
    }
}

/// The last applies of one controller, by what they were applied to.
#[derive(Debug, Default)]
pub(crate) struct AppliedMemory {
    by_object: HashMap<ObjectId, AppliedRecord>,
}

impl AppliedMemory {
    pub(crate) fn get(&self, kind: &Kind, object: &ObjectKey) -> Option<&AppliedRecord> {
        self.by_object.get(&object_id(kind, object))
    }

    pub(crate) fn keep(&mut self, kind: &Kind, object: &ObjectKey, applied: AppliedRecord) {
        self.by_object.insert(object_id(kind, object), applied);
    }

    pub(crate) fn forget(&mut self, kind: &Kind, object: &ObjectKey) {
        self.by_object.remove(&object_id(kind, object));
    }

    pub(crate) fn forget_kind(&mut self, kind: &Kind) {
        self.by_object.retain(|(group, plural, _), _| *group != kind.group || *plural != kind.plural);
    }
}

/// Cuts an object down to the paths of an intent: the fields it names, and lists whole.
///
/// Lists are not taken apart: which element is whose depends on the schema. Somebody else's element therefore counts
/// as an edit, once, and costs one request.
pub(crate) fn at_paths_of(intent: &Value, object: &Value) -> Value {
    match (intent, object) {
        (Value::Object(fields), Value::Object(found)) if !fields.is_empty() => {
            let cut = |(name, inner): (&String, &Value)| {
                (name.clone(), at_paths_of(inner, found.get(name).unwrap_or(&Value::Null)))
            };
            Value::Object(fields.iter().map(cut).collect())
        }
        _ => object.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // W2
    #[test]
    fn an_object_is_cut_down_to_what_the_intent_names() {
        let intent = json!({ "metadata": { "name": "a" }, "spec": { "n": 1, "list": [1], "empty": {} } });
        let object = json!({
            "metadata": { "name": "a", "uid": "u" },
            "spec": { "n": 2, "list": [1, 5], "empty": { "x": 1 }, "defaulted": true },
            "status": {},
        });
        let cut =
            json!({ "metadata": { "name": "a" }, "spec": { "n": 2, "list": [1, 5], "empty": { "x": 1 } } });
        assert_eq!(at_paths_of(&intent, &object), cut);
        assert_eq!(at_paths_of(&intent, &json!({ "spec": 7 })), json!({ "metadata": null, "spec": 7 }));
    }

    #[test]
    fn digests_tell_values_apart_and_depend_on_no_order() {
        let digests = Digests::default();
        let (one, same) = (json!({ "a": 1, "b": [1, 2] }), json!({ "b": [1, 2], "a": 1 }));
        assert_eq!(digests.of(&one), digests.of(&same));
        assert_ne!(digests.of(&one), digests.of(&json!({ "a": 1, "b": [2, 1] })));
    }

    #[test]
    fn a_record_goes_with_its_object_or_its_kinds_history() {
        let kind = |plural: &'static str| Kind {
            group: "".into(),
            version: "v1".into(),
            kind: plural.into(),
            plural: plural.into(),
            scope: crate::object::Scope::Namespaced,
        };
        let mut memory = AppliedMemory::default();
        let digest = Digests::default().of(&Value::Null);
        let mut keep = |plural: &'static str, name: &str| {
            let key = ObjectKey::new("shop", name);
            let applied = AppliedRecord {
                writer: key.clone(),
                uid: String::new(),
                version: Version(1),
                intent: digest,
                shown: digest,
            };
            memory.keep(&kind(plural), &key, applied);
        };
        keep("pods", "a");
        keep("pods", "b");
        keep("secrets", "a");
        memory.forget(&kind("pods"), &ObjectKey::new("shop", "a"));
        assert_eq!(memory.by_object.len(), 2);
        memory.forget_kind(&kind("pods"));
        assert!(memory.get(&kind("secrets"), &ObjectKey::new("shop", "a")).is_some());
        assert_eq!(memory.by_object.len(), 1);
    }
}
