//! A resync under way: what was cached when it began, shown again unless it has changed since.

use std::{collections::HashSet, sync::Arc};

use foldhash::fast::FixedState;
use tokio::time::Instant;

use crate::{
    object::{Object, ObjectKey},
    store::{Held, Lister},
};

/// What a resync shows; shared by all who are shown it, each at its own pace.
pub(super) struct Review<K> {
    objects: Vec<Held<K>>,
    cache: Lister<K>,
}

impl<K: Object> Review<K> {
    /// Fixes what is shown.
    pub(super) fn of(objects: Vec<Held<K>>, cache: Lister<K>) -> Arc<Self> {
        Arc::new(Self { objects, cache })
    }

    /// Finds an object as it is cached; `None` once it has changed, of which a delta tells, or is gone.
    fn current(&self, at: usize) -> Option<Held<K>> {
        let shown = self.objects.get(at)?;
        let held = self.cache.held(shown.key())?;
        let version = held.resource_version().filter(|version| !version.is_empty());
        let same = held.uid() == shown.uid() && version.is_some() && version == shown.resource_version();
        (same || held.is_same(shown)).then_some(held)
    }
}

/// How far somebody has been shown a resync.
pub(super) struct Reading<K> {
    review: Arc<Review<K>>,
    at: usize,
    /// What is told otherwise.
    except: HashSet<ObjectKey, FixedState>,
    pub(super) since: Instant,
}

impl<K: Object> Reading<K> {
    pub(super) fn of(review: Arc<Review<K>>, since: Instant) -> Self {
        Self { review, at: 0, except: HashSet::default(), since }
    }

    /// Leaves out what is told otherwise.
    pub(super) fn except(self, keys: impl Iterator<Item = ObjectKey>) -> Self {
        Self { except: keys.collect(), ..self }
    }

    /// Goes on by one object, which may have nothing to show any more.
    pub(super) fn step(&mut self) -> Option<Held<K>> {
        self.at += 1;
        let object = self.review.current(self.at - 1)?;
        let shown = self.except.is_empty() || !self.except.contains(object.key());
        shown.then_some(object)
    }

    /// Tells whether nothing of it was shown yet.
    pub(super) fn is_untouched(&self) -> bool {
        self.at == 0
    }

    /// Counts what is left.
    pub(super) fn left(&self) -> usize {
        self.review.objects.len().saturating_sub(self.at)
    }
}
