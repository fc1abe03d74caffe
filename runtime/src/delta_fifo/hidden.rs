//! Objects that a transform hid: kept as they came, to be tried again at the next resync.

use std::collections::HashMap;

use parking_lot::{Mutex, MutexGuard};

use super::{Delta, Transform};
use crate::{
    list_watch::FetchedItem,
    object::{AnyObject, ObjectKey},
};

/// Most originals that an extent keeps; what is hidden beyond that waits for its next event or list.
const MOST: usize = 10_000;

/// The transform of an extent, and the objects that it failed on, untouched.
///
/// The lock is held while changes of the extent are queued: a retry never overtakes what is newer.
pub(super) struct Hidden<K: ?Sized> {
    pub(super) transform: Transform<K>,
    pub(super) originals: Mutex<HashMap<ObjectKey, FetchedItem<K>>>,
}

pub(super) type Originals<'a, K> = MutexGuard<'a, HashMap<ObjectKey, FetchedItem<K>>>;

impl<K: AnyObject + ?Sized> Hidden<K> {
    pub(super) fn new(transform: Transform<K>) -> Self {
        Self { transform, originals: Mutex::default() }
    }

    /// Transforms what comes, and keeps the original if that fails.
    pub(super) fn transformed(
        &self,
        originals: &mut Originals<'_, K>,
        item: FetchedItem<K>,
    ) -> FetchedItem<K> {
        let (item, original) = self.transform.attempt(item);
        if let Some(key) = item.key() {
            match original {
                Some(original) if originals.len() < MOST || originals.contains_key(&key) => {
                    originals.insert(key, original);
                }
                _ => drop(originals.remove(&key)),
            }
        }
        item
    }

    /// Transforms the last state of what goes.
    pub(super) fn transformed_last(
        &self,
        originals: &mut Originals<'_, K>,
        item: FetchedItem<K>,
    ) -> FetchedItem<K> {
        if let Some(key) = item.key() {
            originals.remove(&key);
        }
        self.transform.apply(item)
    }

    /// Tries the transform again; returns what it no longer fails on.
    pub(super) fn retry(&self, originals: &mut Originals<'_, K>) -> Vec<Delta<K>> {
        let tried = std::mem::take(&mut **originals).into_values();
        let items = tried.map(|original| self.transformed(originals, original));
        items.filter(|item| !matches!(item, FetchedItem::Unreadable(_))).map(Delta::Upserted).collect()
    }
}
