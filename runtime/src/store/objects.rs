//! What a list returns: the objects of one moment, untouched until somebody looks.

use std::{
    fmt,
    ops::Deref,
    slice,
    sync::{Arc, OnceLock},
    vec,
};

use super::{
    cached_object::CachedObject,
    cow_map,
    selector::Selector,
    snapshot::{ObjectTable, StoreSnapshot, StoredObject},
};
use crate::{
    list_watch::LabelFilter,
    object::{Object, ObjectKey},
};

/// Holds the objects of a list, as one moment showed them; reads like a `Vec<Arc<K>>`.
///
/// A whole cache, a namespace or the look-up of an index takes one reference, however many objects there are: to count
/// them costs nothing, and to walk them by reference only what is looked at. Walking by value costs a reference an
/// object. What only slices can do (an index, `first`, `to_vec`) collects all of them when it is first done. A
/// selector's list, and any list of a compact cache, is collected from the start.
pub struct Objects<K> {
    source: ListSource<K>,
    slice: OnceLock<Box<[Arc<K>]>>,
}

/// Where the objects are.
#[derive(Clone)]
enum ListSource<K> {
    /// In a table of a snapshot; each is typed.
    Stored(ObjectTable),
    Listed(Vec<Arc<K>>),
}

/// Lists the objects of a table of a snapshot.
pub(super) fn listed<K: Object>(snapshot: &StoreSnapshot, table: &ObjectTable) -> Objects<K> {
    match snapshot.compact {
        true => readable(table.iter().map(|stored| &stored.held)),
        false => Objects::new(ListSource::Stored(table.clone())),
    }
}

/// What a selector asks of a digest: for each requirement that names values, one of these.
struct SelectorFilter(Vec<Vec<LabelFilter>>);

impl SelectorFilter {
    fn of(selector: &Selector) -> Self {
        let asked = selector.needed().filter_map(|(key, values)| {
            Some(values?.iter().map(|value| LabelFilter::of(key, value)).collect())
        });
        Self(asked.collect())
    }

    /// Returns whether labels with this digest may match.
    #[inline]
    fn passes(&self, labels: LabelFilter) -> bool {
        self.0.iter().all(|one_of| one_of.iter().any(|asked| labels.holds(*asked)))
    }
}

/// Lists those objects whose labels match.
pub(super) fn matching<'s, K: Object>(
    selector: &Selector,
    stored: impl Iterator<Item = &'s StoredObject>,
) -> Objects<K> {
    let filter = SelectorFilter::of(selector);
    let candidates = stored.filter(|stored| filter.passes(stored.labels)).map(|stored| &stored.held);
    readable(candidates.filter(|held| held.matches(selector)))
}

/// Lists those objects that can be read; walks tables in plain loops, as a scan of all wants it.
pub(super) fn readable<'h, K: Object>(held: impl Iterator<Item = &'h CachedObject>) -> Objects<K> {
    let mut objects = Vec::new();
    held.for_each(|held| objects.extend(held.object_as().ok()));
    objects.into()
}

impl<K: Object> Objects<K> {
    /// Returns the keys of the objects, as a controller's mapping does.
    pub fn keys(&self) -> Vec<ObjectKey> {
        self.iter().map(|object| ObjectKey::of(&**object)).collect()
    }

    fn new(source: ListSource<K>) -> Self {
        Self { source, slice: OnceLock::new() }
    }

    /// Counts the objects.
    pub fn len(&self) -> usize {
        match &self.source {
            ListSource::Stored(bucket) => bucket.len(),
            ListSource::Listed(objects) => objects.len(),
        }
    }

    /// Returns whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Walks the objects, without taking a reference of any.
    #[inline]
    pub fn iter(&self) -> Iter<'_, K> {
        let steps = match &self.source {
            ListSource::Stored(bucket) => IterSteps::Stored(bucket.iter()),
            ListSource::Listed(objects) => IterSteps::Listed(objects.iter()),
        };
        Iter { steps, left: self.len() }
    }

    /// Returns the objects as a slice, which is made when it is first asked for.
    pub fn as_slice(&self) -> &[Arc<K>] {
        match &self.source {
            ListSource::Listed(objects) => objects,
            _ => self.slice.get_or_init(|| self.iter().cloned().collect()),
        }
    }

    /// Returns the objects as a `Vec`.
    pub fn into_vec(self) -> Vec<Arc<K>> {
        match (self.source, self.slice.into_inner()) {
            (ListSource::Listed(objects), _) => objects,
            (_, Some(objects)) => objects.into_vec(),
            (source, None) => Self::new(source).iter().cloned().collect(),
        }
    }
}

/// Walks the objects of a list by reference.
pub struct Iter<'o, K> {
    steps: IterSteps<'o, K>,
    left: usize,
}

enum IterSteps<'o, K> {
    Stored(cow_map::CowIter<'o, StoredObject>),
    Listed(slice::Iter<'o, Arc<K>>),
}

impl<'o, K: Object> Iterator for Iter<'o, K> {
    type Item = &'o Arc<K>;

    #[inline]
    fn next(&mut self) -> Option<&'o Arc<K>> {
        self.left = self.left.saturating_sub(1);
        match &mut self.steps {
            IterSteps::Stored(stored) => stored.next()?.held.at_hand(),
            IterSteps::Listed(objects) => objects.next(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }

    #[inline]
    fn fold<B, F: FnMut(B, &'o Arc<K>) -> B>(self, init: B, f: F) -> B {
        match self.steps {
            IterSteps::Stored(stored) => stored.filter_map(|stored| stored.held.at_hand()).fold(init, f),
            IterSteps::Listed(objects) => objects.fold(init, f),
        }
    }
}

impl<K: Object> ExactSizeIterator for Iter<'_, K> {}

impl<'o, K: Object> IntoIterator for &'o Objects<K> {
    type Item = &'o Arc<K>;
    type IntoIter = Iter<'o, K>;

    fn into_iter(self) -> Iter<'o, K> {
        self.iter()
    }
}

impl<K: Object> IntoIterator for Objects<K> {
    type Item = Arc<K>;
    type IntoIter = vec::IntoIter<Arc<K>>;

    fn into_iter(self) -> vec::IntoIter<Arc<K>> {
        self.into_vec().into_iter()
    }
}

impl<K: Object> Deref for Objects<K> {
    type Target = [Arc<K>];

    fn deref(&self) -> &[Arc<K>] {
        self.as_slice()
    }
}

impl<K: Object> From<Vec<Arc<K>>> for Objects<K> {
    fn from(objects: Vec<Arc<K>>) -> Self {
        Self::new(ListSource::Listed(objects))
    }
}

impl<K: Object> From<Objects<K>> for Vec<Arc<K>> {
    fn from(objects: Objects<K>) -> Self {
        objects.into_vec()
    }
}

impl<K: Object> FromIterator<Arc<K>> for Objects<K> {
    fn from_iter<I: IntoIterator<Item = Arc<K>>>(objects: I) -> Self {
        Vec::from_iter(objects).into()
    }
}

/// Holds nothing.
impl<K: Object> Default for Objects<K> {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl<K: Object> Clone for Objects<K> {
    fn clone(&self) -> Self {
        Self::new(self.source.clone())
    }
}

impl<K: Object> fmt::Debug for Objects<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}

impl_debug!([K] Iter<'_, K>, this => left: this.left);

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn what_matches_passes_and_most_of_the_rest_does_not() {
        let labels = |n: usize| {
            let labels =
                [("app", "web".to_owned()), ("shard", format!("s{n}")), ("tier", format!("t{}", n % 5))];
            BTreeMap::from(labels.map(|(key, value)| (key.to_owned(), value)))
        };
        let objects: Vec<_> = (0..1_000).map(labels).collect();
        for (selector, most) in
            [("shard=s7", 10), ("app=web,shard in (s1,s2)", 20), ("shard", 1_000), ("", 1_000)]
        {
            let selector: Selector = selector.parse().unwrap();
            let filter = SelectorFilter::of(&selector);
            let passed: Vec<_> =
                objects.iter().filter(|labels| filter.passes(labels.iter().collect())).collect();
            let matching = objects.iter().filter(|labels| selector.matches(labels)).count();
            assert_eq!(passed.iter().filter(|labels| selector.matches(labels)).count(), matching);
            assert!(passed.len() <= most, "{} passed {selector}", passed.len());
        }
    }
}
