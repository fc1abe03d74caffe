//! Finds the keys that wait for a cache to reach a version, at a cost that does not grow with those that wait longer.

use std::collections::{BTreeMap, BTreeSet};

use super::sources::SourceId;
use crate::object::Version;

/// Keys by the versions of sources that settle something of them.
#[derive(Debug)]
pub(super) struct VersionIndex<T> {
    by_version: BTreeMap<(SourceId, Version), BTreeSet<T>>,
}

impl<T> Default for VersionIndex<T> {
    fn default() -> Self {
        Self { by_version: BTreeMap::new() }
    }
}

impl<T: Ord> VersionIndex<T> {
    pub(super) fn insert(&mut self, source: SourceId, version: Version, who: T) {
        self.by_version.entry((source, version)).or_default().insert(who);
    }

    pub(super) fn remove(&mut self, source: SourceId, version: Version, who: &T) {
        let at = (source, version);
        if let Some(all) = self.by_version.get_mut(&at) {
            all.remove(who);
            if all.is_empty() {
                self.by_version.remove(&at);
            }
        }
    }

    /// Removes and returns the keys that wait for this version of a source, or for an earlier one.
    pub(super) fn take_up_to(&mut self, source: SourceId, version: Version) -> Vec<T> {
        let mut taken = Vec::new();
        let first = (source, Version(0));
        while let Some((at, _)) = self.by_version.range(first..=(source, version)).next() {
            let at = *at;
            taken.extend(self.by_version.remove(&at).into_iter().flatten());
        }
        taken
    }

    /// Removes and returns the keys that wait for any version of a source.
    pub(super) fn take(&mut self, source: SourceId) -> Vec<T> {
        self.take_up_to(source, Version(u64::MAX))
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_version.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_taken_by_source_in_the_order_of_versions() {
        let (one, other) = (SourceId(1), SourceId(2));
        let mut awaited = VersionIndex::default();
        for (source, version, who) in
            [(one, 7, "c"), (one, 5, "b"), (one, 5, "a"), (one, 9, "d"), (other, 1, "e")]
        {
            awaited.insert(source, Version(version), who);
        }
        awaited.remove(one, Version(9), &"d");
        awaited.remove(one, Version(9), &"d");
        awaited.insert(one, Version(u64::MAX), "last");
        assert_eq!(awaited.take_up_to(one, Version(6)), ["a", "b"]);
        assert_eq!(awaited.take_up_to(one, Version(6)), Vec::<&str>::new());
        assert_eq!(awaited.take(one), ["c", "last"]);
        assert_eq!(awaited.take(other), ["e"]);
        assert!(awaited.is_empty());
    }
}
