//! The last states that runs could read, of objects that a cache keeps as bytes alone.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    list_watch::ItemForm,
    object::{Object, ObjectKey},
    store::CachedObject,
};

/// Remembers what runs last read, for cleanups: a compact cache keeps no earlier state of what it can't read.
///
/// Of an object that was not changed since, this is the very state that the cache holds, and costs a reference. A typed
/// cache keeps earlier states itself: nothing is remembered.
#[derive(Debug)]
pub(crate) enum LastRead<K> {
    /// Nobody cleans up.
    Off,
    On(Mutex<HashMap<ObjectKey, CachedObject<K>>>),
}

impl<K: Object> LastRead<K> {
    /// Begins without any, for a controller with or without a finalizer.
    pub(crate) fn with(finalizer: Option<&String>) -> Self {
        finalizer.map_or(Self::Off, |_| Self::On(Mutex::default()))
    }

    /// Remembers what a cache holds of a key, which could be read just now.
    pub(crate) fn keep(&self, key: &ObjectKey, cached: impl FnOnce() -> Option<CachedObject<K>>) {
        if matches!(self, Self::Off) {
            return;
        }
        // It may have been replaced since it was read.
        let readable = |cached: &CachedObject<K>| cached.form() == ItemForm::Bytes && cached.object().is_ok();
        if let Some((cached, mut known)) = cached().filter(readable).zip(self.known()) {
            known.insert(key.clone(), cached);
        }
    }

    /// Returns the last state of a key that could be read.
    pub(crate) fn of(&self, key: &ObjectKey) -> Option<Arc<K>> {
        let cached = self.known()?.get(key).cloned();
        cached?.object().ok()
    }

    pub(crate) fn forget(&self, key: &ObjectKey) {
        if let Some(mut known) = self.known() {
            known.remove(key);
        }
    }

    /// Forgets the keys of which there is nothing any more.
    pub(crate) fn sweep(&self, is_there: impl Fn(&ObjectKey) -> bool) {
        if let Some(mut known) = self.known() {
            known.retain(|key, _| is_there(key));
            if known.len() * 4 < known.capacity() {
                known.shrink_to_fit();
            }
        }
    }

    fn known(&self) -> Option<MutexGuard<'_, HashMap<ObjectKey, CachedObject<K>>>> {
        match self {
            Self::Off => None,
            Self::On(known) => Some(known.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }
}
