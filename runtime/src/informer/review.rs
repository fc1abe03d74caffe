//! A resync under way: what was cached when it began, shown again unless it has changed since.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
};

use tokio::time::Instant;

use crate::{
    object::{Object, ObjectKey},
    store::{Held, Lister, Moment, Steps},
};

/// What a resync shows; shared by all who are shown it, each at its own pace.
pub(super) struct Review<K> {
    moment: Moment<K>,
    /// What is told otherwise.
    except: HashSet<ObjectKey>,
    cache: Lister<K>,
}

impl<K: Object> Review<K> {
    /// Fixes what is shown: what is cached now, except some.
    pub(super) fn of(cache: Lister<K>, except: HashSet<ObjectKey>) -> Arc<Self> {
        Arc::new(Self { moment: cache.moment(), except, cache })
    }

    /// Finds an object as it is cached; `None` once it has changed, of which a delta tells, or is gone.
    fn current(&self, shown: &Held<K>) -> Option<Held<K>> {
        let held = self.cache.held(shown.key())?;
        let version = held.resource_version().filter(|version| !version.is_empty());
        let same = held.uid() == shown.uid() && version.is_some() && version == shown.resource_version();
        (same || held.is_same(shown)).then_some(held)
    }
}

/// How far somebody has been shown a resync.
pub(super) struct Reading<K> {
    review: Arc<Review<K>>,
    steps: Steps,
    passed: usize,
    /// What this one is told otherwise.
    except: HashSet<ObjectKey>,
    pub(super) since: Instant,
}

impl<K: Object> Reading<K> {
    pub(super) fn of(review: Arc<Review<K>>, since: Instant) -> Self {
        Self { review, steps: Steps::default(), passed: 0, except: HashSet::new(), since }
    }

    /// Leaves out what is told otherwise.
    pub(super) fn except(self, keys: impl Iterator<Item = ObjectKey>) -> Self {
        Self { except: keys.collect(), ..self }
    }

    /// Goes on by one object, which may have nothing to show any more.
    pub(super) fn step(&mut self) -> Option<Held<K>> {
        self.passed += 1;
        let review = &*self.review;
        let shown = review.moment.next(&mut self.steps)?;
        let excepted = |keys: &HashSet<ObjectKey>| !keys.is_empty() && keys.contains(shown.key());
        if excepted(&review.except) || excepted(&self.except) {
            return None;
        }
        review.current(shown)
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
        self.review.moment.len().saturating_sub(self.passed)
    }
}
