//! What was last applied to each object: an apply that would change nothing is not sent.
//!
//! One record for each object, of some hundred bytes whatever its size: digests of what was meant, and of what the
//! answer showed at the paths of that. A record is kept for objects of cached kinds alone, and goes when the cache
//! loses the object: all records together are a small part of that cache, idle keys included.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher, RandomState},
};

use parking_lot::Mutex;
use serde_json::Value;

use super::{
    child::{OwnerRole, encode},
    request::Target,
};
use crate::{
    keys::{ObjectId, object_id},
    object::{Kind, Object, ObjectKey, Version},
};

/// What an apply meant and what its answer showed.
#[derive(Clone, Debug)]
pub(super) struct AppliedRecord {
    uid: String,
    /// A version that shows what was answered.
    version: Version,
    /// The digest of what was meant, the owner included.
    intent: u64,
    /// The digest of the answer at the paths of that.
    shown: u64,
}

/// The last applies of one controller, by what they were applied to.
#[derive(Debug, Default)]
pub(super) struct AppliedMemory {
    /// With keys of its own for each controller, so that nobody can choose two values with one digest.
    hasher: RandomState,
    by_object: Mutex<HashMap<ObjectId, AppliedRecord>>,
    /// Kinds that are applied although no cache shows them.
    unwatched: Mutex<HashSet<Kind>>,
}

impl AppliedMemory {
    /// Returns what was applied last to a target, if that was the same.
    pub(super) fn last(&self, target: &Target, intent: &Value) -> Option<AppliedRecord> {
        let intent = self.hasher.hash_one(intent);
        let by_object = self.by_object.lock();
        by_object.get(&object_id(&target.kind, &target.key)).filter(|last| last.intent == intent).cloned()
    }

    /// Returns whether an object shows what the last apply was answered with; one that is behind that does not count.
    pub(super) fn is_shown(
        &self,
        last: &AppliedRecord,
        target: &Target,
        intent: &Value,
        found: &impl Object,
    ) -> bool {
        match Version::of_meta(found.meta()) {
            _ if found.meta().uid.as_ref() != Some(&last.uid) => false,
            None => false,
            Some(version) if version > last.version => {
                let is_shown = self.shown_by(target, intent, found) == Some(last.shown);
                if is_shown {
                    let last = AppliedRecord { version, ..last.clone() };
                    self.by_object.lock().insert(object_id(&target.kind, &target.key), last);
                }
                is_shown
            }
            Some(version) => version == last.version,
        }
    }

    /// Remembers what was applied to a target, and how that was answered.
    pub(super) fn keep(&self, target: &Target, intent: &Value, answered: &impl Object) {
        let meta = answered.meta();
        let (uid, version) = (meta.uid.clone(), Version::of_meta(meta));
        if let (Some(uid), Some(version), Some(shown)) =
            (uid, version, self.shown_by(target, intent, answered))
        {
            let intent = self.hasher.hash_one(intent);
            let applied = AppliedRecord { uid, version, intent, shown };
            self.by_object.lock().insert(object_id(&target.kind, &target.key), applied);
        }
    }

    fn shown_by(&self, target: &Target, intent: &Value, object: &impl Object) -> Option<u64> {
        let object = encode("apply", target, object).ok()?;
        Some(self.hasher.hash_one(at_paths_of(intent, &object)))
    }

    pub(super) fn forget(&self, kind: &Kind, object: &ObjectKey) {
        self.by_object.lock().remove(&object_id(kind, object));
    }

    pub(super) fn forget_kind(&self, kind: &Kind) {
        self.by_object.lock().retain(|(group, plural, _), _| *group != kind.group || *plural != kind.plural);
    }

    pub(super) fn forget_all(&self) {
        self.by_object.lock().clear();
    }

    /// Logs once what will not happen to objects of a kind that no cache shows.
    pub(super) fn warn_unwatched(&self, target: &Target, ownership: OwnerRole) {
        if !self.unwatched.lock().insert(target.kind.clone()) {
            return;
        }
        let kind = &target.kind.kind;
        let controls = ownership == OwnerRole::Controls;
        let advice = match controls {
            true => format!("add `.owns::<{kind}>()`"),
            false => format!("add `.watches::<{kind}>(..)` if it is to be kept right"),
        };
        let text = format!(
            "the controller applies a {kind} that it does not watch: edits and deletions by others stay unnoticed, and \
             every reconcile sends the {kind} again; {advice}"
        );
        match controls {
            true => tracing::warn!(object = %target, "{text}"),
            false => tracing::info!(object = %target, "{text}"),
        }
    }
}

/// Cuts an object down to the paths of an intent: the fields it names, and lists whole.
///
/// Lists are not taken apart: which element is whose depends on the schema. Somebody else's element therefore counts
/// as an edit, once, and costs one request.
fn at_paths_of(intent: &Value, object: &Value) -> Value {
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
    use k8s_openapi::api::core::v1::Pod;
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

    fn pod(version: &str, image: &str) -> Pod {
        let meta = json!({ "name": "a", "uid": "u", "resourceVersion": version });
        let spec = json!({ "containers": [{ "name": "web", "image": image }] });
        serde_json::from_value(json!({ "metadata": meta, "spec": spec })).unwrap()
    }

    fn target(plural: &'static str) -> Target {
        let (kind, scope) = ("Pod".into(), crate::object::Scope::Namespaced);
        let kind = Kind { group: "".into(), version: "v1".into(), kind, plural: plural.into(), scope };
        Target { kind, key: ObjectKey::new("shop", "a") }
    }

    // W2
    #[test]
    fn what_was_applied_is_known_again_and_an_edit_of_it_is_seen() {
        let (memory, target) = (AppliedMemory::default(), target("pods"));
        let intent = json!({ "spec": { "containers": [{ "name": "web", "image": "a" }] } });
        let same = json!({ "spec": { "containers": [{ "image": "a", "name": "web" }] } });
        memory.keep(&target, &intent, &pod("7", "a"));
        let last = memory.last(&target, &same).expect("the order of fields does not count");
        assert!(memory.last(&target, &json!({ "spec": {} })).is_none());
        for (version, image, shown) in
            [("6", "a", false), ("7", "a", true), ("8", "b", false), ("9", "a", true), ("x", "a", false)]
        {
            assert_eq!(memory.is_shown(&last, &target, &intent, &pod(version, image)), shown, "{version}");
        }
        let later = memory.last(&target, &intent).expect("version 9 shows it too");
        assert!(!memory.is_shown(&later, &target, &intent, &pod("8", "a")), "that is behind by now");
    }

    #[test]
    fn a_record_goes_with_its_object_or_its_kinds_history() {
        let (memory, intent) = (AppliedMemory::default(), json!({}));
        let has = |plural| memory.last(&target(plural), &intent).is_some();
        ["pods", "nodes", "secrets"]
            .into_iter()
            .for_each(|of| memory.keep(&target(of), &intent, &pod("1", "a")));
        memory.forget(&target("pods").kind, &target("pods").key);
        assert_eq!(["pods", "nodes", "secrets"].map(has), [false, true, true]);
        memory.forget_kind(&target("nodes").kind);
        assert_eq!(["pods", "nodes", "secrets"].map(has), [false, false, true]);
    }
}
