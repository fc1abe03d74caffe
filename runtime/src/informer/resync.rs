//! A resync under way: what was cached when it was asked for, shown again unless it has changed since.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    object::ObjectKey,
    store::{AnyLister, CachedObject},
};

/// What a resync shows; shared by all who are shown it, each at its own pace.
pub(super) struct ResyncSnapshot {
    moment: Vec<CachedObject>,
    cache: AnyLister,
}

impl ResyncSnapshot {
    /// Fixes what is shown: what is cached now.
    pub(super) fn of(cache: AnyLister) -> Arc<Self> {
        Arc::new(Self { moment: cache.list_cached(), cache })
    }

    /// Finds a cached object; `None` once it has changed (a delta shows that) or is gone.
    fn current(&self, shown: &CachedObject) -> Option<CachedObject> {
        let held = self.cache.cached(shown.key())?;
        let version = held.resource_version().filter(|version| !version.is_empty());
        let same = held.uid() == shown.uid() && version.is_some() && version == shown.resource_version();
        (same || held.is_same(shown)).then_some(held)
    }
}

/// A resync that was asked for, and begins once the queue has reached it.
#[derive(Default)]
pub(super) struct ResyncRequest(Mutex<Option<(Arc<ResyncSnapshot>, bool)>>);

impl ResyncRequest {
    /// Asks for a resync of what is cached now, of everybody or of the handlers that are due; two that wait are one.
    pub(super) fn ask(&self, cache: &AnyLister, everybody: bool) {
        let mut request = self.0.lock();
        request.get_or_insert_with(|| (ResyncSnapshot::of(cache.clone()), false)).1 |= everybody;
    }

    /// Takes what was asked for, and whether everybody is shown it.
    pub(super) fn take(&self) -> Option<(Arc<ResyncSnapshot>, bool)> {
        self.0.lock().take()
    }
}

/// How far somebody has been shown a resync.
pub(super) struct ResyncCursor {
    snapshot: Arc<ResyncSnapshot>,
    passed: usize,
    /// Keys that this one is shown otherwise.
    except: HashSet<ObjectKey>,
    pub(super) since: Instant,
}

impl ResyncCursor {
    /// Begins to show a resync, except some keys that are shown otherwise.
    pub(super) fn of(
        snapshot: Arc<ResyncSnapshot>,
        except: impl Iterator<Item = ObjectKey>,
        since: Instant,
    ) -> Self {
        Self { snapshot, passed: 0, except: except.collect(), since }
    }

    /// Goes on by one object, which may have nothing to show any more; `None` if no resync is under way.
    pub(super) fn step(resyncs: &mut VecDeque<Self>) -> Option<Option<CachedObject>> {
        #[cfg(test)]
        crate::counted::count(1);
        let cursor = resyncs.front_mut()?;
        let shown = cursor.snapshot.moment.get(cursor.passed);
        let shown = shown.filter(|shown| cursor.except.is_empty() || !cursor.except.contains(shown.key()));
        let shown = shown.and_then(|shown| cursor.snapshot.current(shown));
        cursor.passed += 1;
        if cursor.left() == 0 {
            resyncs.pop_front();
        }
        Some(shown)
    }

    /// Lines up behind others, in the place of the last if that has not begun.
    pub(super) fn line_up(self, resyncs: &mut VecDeque<Self>) {
        match resyncs.back_mut().filter(|last| last.passed == 0) {
            Some(last) => *last = Self { since: last.since, ..self },
            None => resyncs.push_back(self),
        }
    }

    /// Counts what is left.
    pub(super) fn left(&self) -> usize {
        self.snapshot.moment.len().saturating_sub(self.passed)
    }
}
