//! What a part of the file begins with: the cached objects that the part before it does not show.
//!
//! So an object that never changes is written into every second part, and one that changes all the time is never encoded for
//! this.

use std::{
    collections::{HashSet, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    mem,
};

use super::watches::ShownVersions;
use crate::{
    api_request::ResourcePath,
    object::{Kind, ObjectKey, Version},
};

/// Which objects the lines of a part show.
pub(crate) enum Shown {
    /// Perhaps none.
    Nothing,
    All,
    Since(ShownVersions),
}

impl Shown {
    /// Returns a function that says of an object of a kind whether it is shown: its namespace and version. So many parts of
    /// caches are kept of the kind.
    pub(crate) fn of<'s>(
        &'s self,
        kind: &Kind,
        parts: usize,
    ) -> impl Fn(Option<&str>, Option<Version>) -> bool + use<'s> {
        let since = match self {
            Self::Since(since) => Some(since.of(kind, parts)),
            Self::Nothing | Self::All => None,
        };
        let all = matches!(self, Self::All);
        move |namespace, version| since.as_ref().map_or(all, |since| since(namespace, version))
    }
}

/// An object that is cached.
pub(crate) struct SnapshotObject<'a> {
    pub(crate) kind: &'a Kind,
    pub(crate) key: &'a ObjectKey,
    /// Which informer caches it: another one of the kind may hold another form of it.
    pub(crate) informer: usize,
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
    /// Gives the cached objects that are not shown to a function.
    fn objects(&self, shown: &Shown, take: &mut dyn FnMut(SnapshotObject<'_>));

    /// Shows how it is set up.
    fn settings(&self) -> serde_json::Value;

    /// Says whether the replica leads.
    fn state(&self) -> Option<&'static str>;
}

/// What the lines of a part show.
#[derive(Default)]
pub(super) struct PartContent {
    /// It is the first of the process, which has read nothing before.
    is_first: bool,
    /// The objects with which it begins, as hashes of their informers, paths and versions.
    written: HashSet<u64>,
    /// Something that is cached may be shown by no line.
    is_incomplete: bool,
}

impl PartContent {
    pub(super) fn first() -> Self {
        Self { is_first: true, ..Self::default() }
    }

    /// Something was left out.
    pub(super) fn lost(&mut self) {
        self.is_incomplete = true;
    }

    /// Begins another part: gives to a function what is cached and not shown by this one. The function returns whether it has
    /// written the object.
    pub(super) fn next(
        &mut self,
        manager: &dyn RecordingSource,
        since: ShownVersions,
        mut write: impl FnMut(&SnapshotObject<'_>, &str) -> bool,
    ) {
        let before = mem::take(self);
        let shown = match (before.is_incomplete, before.is_first) {
            (true, _) => Shown::Nothing,
            (false, true) => Shown::All,
            (false, false) => Shown::Since(since),
        };
        manager.objects(&shown, &mut |object| {
            let path = object.path();
            let mut hasher = DefaultHasher::new();
            (object.informer, &path, object.version).hash(&mut hasher);
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

    use super::{super::watches::OpenWatches, *};

    /// Objects of one kind, by name.
    #[derive(Default)]
    struct Cached(Mutex<Vec<(&'static str, u64)>>);

    fn kind() -> Kind {
        Kind::of::<k8s_openapi::api::core::v1::ConfigMap>()
    }

    impl RecordingSource for Cached {
        fn objects(&self, shown: &Shown, take: &mut dyn FnMut(SnapshotObject<'_>)) {
            let is_shown = shown.of(&kind(), 1);
            for (name, version) in &*self.0.lock() {
                if is_shown(Some("shop"), Some(Version(*version))) {
                    continue;
                }
                let (kind, key, version) = (kind(), ObjectKey::new("shop", *name), version.to_string());
                let encode = || Some(Vec::new());
                let version = Some(&*version);
                take(SnapshotObject { kind: &kind, key: &key, informer: 0, version, encode: &encode });
            }
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
        let (cached, mut content) = (Cached::default(), PartContent::first());
        let (mut watches, written) = (OpenWatches::default(), RefCell::new(Vec::new()));
        watches.open(1, &ResourcePath::of(&kind(), None));
        let next = |content: &mut PartContent, watches: &mut OpenWatches| {
            content.next(&cached, watches.turn(), |object, _| {
                written.borrow_mut().push(object.key.name().to_owned());
                true
            });
            written.take()
        };
        let set = |objects: &[(&'static str, u64)]| *cached.0.lock() = objects.to_vec();
        // The first part shows all that was read since the process began.
        set(&[("a", 1), ("b", 2)]);
        assert_eq!(next(&mut content, &mut watches), [""; 0]);
        // Nothing has changed since: the second part shows nothing of it.
        assert_eq!(next(&mut content, &mut watches), ["a", "b"]);
        // The third part begins with all, and the fourth need not.
        assert_eq!(next(&mut content, &mut watches), [""; 0]);
        // What changes is in a line of the part.
        watches.note(1, Version(3));
        set(&[("a", 1), ("b", 4)]);
        assert_eq!(next(&mut content, &mut watches), ["a"]);
        // It is another version than the one that was written.
        watches.note(1, Version(5));
        set(&[("a", 3), ("b", 4)]);
        assert_eq!(next(&mut content, &mut watches), ["a", "b"]);
        // A line of what changed was left out.
        watches.note(1, Version(6));
        set(&[("a", 3), ("b", 7)]);
        content.lost();
        assert_eq!(next(&mut content, &mut watches), ["b"]);
    }
}
