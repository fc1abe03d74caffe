//! A resync under way: what was cached when it began, shown again unless it has changed since.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
};

use tokio::time::Instant;

use crate::{
    object::{Object, ObjectKey},
    store::{CachedObject, Lister},
};

/// What a resync shows; shared by all who are shown it, each at its own pace.
pub(super) struct ResyncSnapshot<K> {
    moment: Vec<CachedObject<K>>,
    /// Keys that are shown otherwise.
    except: HashSet<ObjectKey>,
    cache: Lister<K>,
}

impl<K: Object> ResyncSnapshot<K> {
    /// Fixes what is shown: what is cached now, except some.
    pub(super) fn of(cache: Lister<K>, except: HashSet<ObjectKey>) -> Arc<Self> {
        Arc::new(Self { moment: cache.list_cached(), except, cache })
    }

    /// Finds a cached object; `None` once it has changed (a delta shows that) or is gone.
    fn current(&self, shown: &CachedObject<K>) -> Option<CachedObject<K>> {
        let held = self.cache.cached(shown.key())?;
        let version = held.resource_version().filter(|version| !version.is_empty());
        let same = held.uid() == shown.uid() && version.is_some() && version == shown.resource_version();
        (same || held.is_same(shown)).then_some(held)
    }
}

/// How far somebody has been shown a resync.
pub(super) struct ResyncCursor<K> {
    snapshot: Arc<ResyncSnapshot<K>>,
    passed: usize,
    /// Keys that this one is shown otherwise.
    except: HashSet<ObjectKey>,
    pub(super) since: Instant,
}

impl<K: Object> ResyncCursor<K> {
    pub(super) fn of(snapshot: Arc<ResyncSnapshot<K>>, since: Instant) -> Self {
        Self { snapshot, passed: 0, except: HashSet::new(), since }
    }

    /// Leaves out a key that is shown otherwise.
    pub(super) fn except(self, keys: impl Iterator<Item = ObjectKey>) -> Self {
        Self { except: keys.collect(), ..self }
    }

    /// Goes on by one object, which may have nothing to show any more.
    pub(super) fn step(&mut self) -> Option<CachedObject<K>> {
        #[cfg(test)]
        crate::counted::count(1);
        let snapshot = &*self.snapshot;
        let shown = snapshot.moment.get(self.passed);
        self.passed += 1;
        let shown = shown?;
        let excepted = |keys: &HashSet<ObjectKey>| !keys.is_empty() && keys.contains(shown.key());
        if excepted(&snapshot.except) || excepted(&self.except) {
            return None;
        }
        snapshot.current(shown)
    }

    /// Lines up behind others, in the place of the last if that has not begun.
    pub(super) fn line_up(self, readings: &mut VecDeque<Self>) {
        match readings.back_mut().filter(|last| last.passed == 0) {
            Some(last) => *last = Self { since: last.since, ..self },
            None => readings.push_back(self),
        }
    }

    /// Counts what is left.
    pub(super) fn left(&self) -> usize {
        self.snapshot.moment.len().saturating_sub(self.passed)
    }
}
