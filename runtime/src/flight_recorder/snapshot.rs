//! What a part of the file begins with: the cached objects that the part before it does not show.
//!
//! So an object that never changes is written into every second part, and one that changes all the time is never encoded for
//! this.

use std::{
    collections::{HashMap, HashSet, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    mem,
};

use crate::{
    api_request::ResourcePath,
    object::{Kind, ObjectKey, Version},
};

/// A version of each kind that is cached.
pub(crate) type KindVersions = HashMap<Kind, Version>;

/// An object that is cached.
pub(crate) struct SnapshotObject<'a> {
    pub(crate) kind: &'a Kind,
    pub(crate) key: &'a ObjectKey,
    pub(crate) version: Option<&'a str>,
    /// Encodes it as JSON, if that is possible.
    pub(crate) encode: &'a dyn Fn() -> Option<Vec<u8>>,
}

impl SnapshotObject<'_> {
    pub(super) fn path(&self) -> String {
        let mut path = ResourcePath::of(self.kind, self.key.namespace());
        path.name = Some(self.key.name().to_owned());
        path.url()
    }
}

/// What a recorder asks its manager.
pub(crate) trait RecordingSource: Send + Sync {
    /// Gives the cached objects to a function, without those whose version is higher than that of their kind here. A kind
    /// that is not here had no object then.
    fn objects(&self, earlier: Option<&KindVersions>, take: &mut dyn FnMut(SnapshotObject<'_>));

    /// Returns a version of each kind that no cached object exceeds; `None` while something waits to be cached.
    fn versions(&self) -> Option<KindVersions>;

    /// Shows how it is set up.
    fn settings(&self) -> serde_json::Value;

    /// Says whether the replica leads.
    fn state(&self) -> Option<&'static str>;
}

/// What the lines of a part show.
#[derive(Default)]
pub(super) struct PartContent {
    /// Each object with a higher version than its kind has here is in a line of this part; `None`: that is not known yet.
    earlier: Option<KindVersions>,
    /// The objects with which it begins, as hashes of their paths and versions.
    written: HashSet<u64>,
    /// Something that is cached may be shown by no line.
    is_incomplete: bool,
}

impl PartContent {
    /// Something was left out.
    pub(super) fn lost(&mut self) {
        self.is_incomplete = true;
    }

    /// Notes up to which versions earlier parts may show objects. To be called some time after the part began: what was read
    /// before must be cached by then.
    pub(super) fn look(&mut self, manager: &dyn RecordingSource) {
        if self.earlier.is_none() {
            self.earlier = manager.versions();
        }
    }

    /// Begins another part: gives to a function what is cached and not shown by this one. The function returns whether it has
    /// written the object.
    pub(super) fn next(
        &mut self,
        manager: &dyn RecordingSource,
        mut write: impl FnMut(&SnapshotObject<'_>, &str) -> bool,
    ) {
        let before = mem::take(self);
        let earlier = before.earlier.as_ref().filter(|_| !before.is_incomplete);
        manager.objects(earlier, &mut |object| {
            let path = object.path();
            let mut hasher = DefaultHasher::new();
            (&path, object.version).hash(&mut hasher);
            let hash = hasher.finish();
            if !before.written.contains(&hash) && write(&object, &path) {
                self.written.insert(hash);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use parking_lot::Mutex;

    use super::*;

    /// Caches objects of one kind, by name.
    #[derive(Default)]
    struct Cached {
        objects: Vec<(&'static str, u64)>,
        waits: bool,
    }

    struct Shared(Mutex<Cached>);

    fn kind() -> Kind {
        Kind::of::<k8s_openapi::api::core::v1::ConfigMap>()
    }

    impl RecordingSource for Shared {
        fn objects(&self, earlier: Option<&KindVersions>, take: &mut dyn FnMut(SnapshotObject<'_>)) {
            let earlier = earlier.map(|earlier| earlier.get(&kind()).map_or(0, |version| version.0));
            for (name, version) in &self.0.lock().objects {
                if earlier.is_some_and(|earlier| *version > earlier) {
                    continue;
                }
                let (kind, key, version) = (kind(), ObjectKey::new("shop", *name), version.to_string());
                let encode = || Some(Vec::new());
                take(SnapshotObject { kind: &kind, key: &key, version: Some(&version), encode: &encode });
            }
        }

        fn versions(&self) -> Option<KindVersions> {
            let cached = self.0.lock();
            let highest = cached.objects.iter().map(|(_, version)| *version).max();
            (!cached.waits).then(|| highest.map(|highest| (kind(), Version(highest))).into_iter().collect())
        }

        fn settings(&self) -> serde_json::Value {
            serde_json::Value::Null
        }

        fn state(&self) -> Option<&'static str> {
            None
        }
    }

    // P26
    #[test]
    fn a_part_begins_with_what_the_part_before_does_not_show() {
        let cached = Shared(Mutex::new(Cached::default()));
        let (mut content, written) = (PartContent::default(), RefCell::new(Vec::new()));
        let next = |content: &mut PartContent| {
            content.next(&cached, |object, _| {
                written.borrow_mut().push(object.key.name().to_owned());
                true
            });
            written.take()
        };
        let set = |objects: &[(&'static str, u64)]| cached.0.lock().objects = objects.to_vec();
        // The first part shows all that was read since the process began.
        content.look(&cached);
        set(&[("a", 1), ("b", 2)]);
        assert_eq!(next(&mut content), [""; 0]);
        // Nothing has changed since: the second part shows nothing of it.
        content.look(&cached);
        assert_eq!(next(&mut content), ["a", "b"]);
        // The third part begins with all, and the fourth need not.
        content.look(&cached);
        assert_eq!(next(&mut content), [""; 0]);
        // What changes after the look is in a line of the part; what had changed before may be in an earlier one.
        set(&[("a", 1), ("b", 3)]);
        content.look(&cached);
        set(&[("a", 4), ("b", 3)]);
        content.look(&cached);
        assert_eq!(next(&mut content), ["b"]);
        // It is another version than the one that was written.
        set(&[("a", 4), ("b", 5)]);
        content.look(&cached);
        assert_eq!(next(&mut content), ["a", "b"]);
        // Nothing is known of what waits to be cached.
        cached.0.lock().waits = true;
        content.look(&cached);
        set(&[("a", 6), ("b", 5)]);
        assert_eq!(next(&mut content), ["a"]);
        // A line of what changed was left out.
        cached.0.lock().waits = false;
        content.look(&cached);
        set(&[("a", 6), ("b", 7)]);
        content.lost();
        assert_eq!(next(&mut content), ["b"]);
    }
}
