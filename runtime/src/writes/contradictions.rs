//! Answers that contradict a cache: a pure state machine.
//!
//! A cache that lags soon shows what an answer said. A cache may never do so if its server lost its history, and once new
//! writes have caught up, versions no longer reveal that. So a contradicted cache has a short time to change, with its
//! watch open, and is listed again if it does not.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    keys::{CachedState, Caches, SourceId},
    object::{ObjectKey, Version},
};

/// How long a cache that was contradicted has, with its watch open.
const PATIENCE: Duration = Duration::from_secs(5);

/// How soon it is checked again where its watch is down, or where it may not list yet.
const AGAIN: Duration = Duration::from_secs(1);

/// How many contradictions are remembered; one is enough to have a cache list.
const REMEMBERED: usize = 64;

/// What a cache must show no longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Contradicted {
    /// The object is absent, unless the cache reaches this version, which was not delivered then.
    Absence { unless_at: Option<Version> },
    /// The object with this UID.
    Uid(String),
    /// This version of it: the server has an older one.
    Version { uid: String, version: Version },
}

/// Compares what a cache showed, when it had been brought to a version, with what the server answered afterwards.
pub(super) fn contradiction(
    before: &CachedState,
    delivered: Option<Version>,
    answered: &CachedState,
) -> Option<Contradicted> {
    match (before, answered) {
        (CachedState::Absent, CachedState::Shown { version, .. }) => {
            let unless_at = version.filter(|version| delivered < Some(*version));
            Some(Contradicted::Absence { unless_at })
        }
        (
            CachedState::Shown { uid, version: Some(version), .. },
            CachedState::Shown { uid: found, version: Some(at), .. },
        ) if uid == found && at < version => {
            Some(Contradicted::Version { uid: uid.clone(), version: *version })
        }
        (CachedState::Shown { uid, .. }, CachedState::Shown { uid: found, .. }) if uid == found => None,
        (CachedState::Shown { uid, .. }, CachedState::Absent | CachedState::Shown { .. }) => {
            Some(Contradicted::Uid(uid.clone()))
        }
        _ => None,
    }
}

impl Contradicted {
    /// Returns whether a cache shows it still.
    fn is_shown(&self, cached: &CachedState, delivered: Option<Version>) -> bool {
        match (self, cached) {
            (_, CachedState::Unknown) => false,
            (Self::Absence { unless_at: Some(version) }, CachedState::Absent) => delivered < Some(*version),
            (Self::Absence { unless_at: None }, CachedState::Absent) => true,
            (Self::Uid(uid), CachedState::Shown { uid: shown, .. }) => uid == shown,
            (Self::Version { uid, version }, CachedState::Shown { uid: shown, version: at, .. }) => {
                uid == shown && *at == Some(*version)
            }
            _ => false,
        }
    }
}

/// A contradiction that the cache has not resolved yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OpenContradiction {
    pub(super) source: SourceId,
    pub(super) object: ObjectKey,
    pub(super) what: Contradicted,
    due: Instant,
}

/// All contradictions that are open.
#[derive(Debug, Default)]
pub(super) struct Contradictions {
    open: Vec<OpenContradiction>,
}

impl Contradictions {
    /// Notes a contradiction; one of the same object is followed already.
    pub(super) fn note(&mut self, source: SourceId, object: &ObjectKey, what: Contradicted, now: Instant) {
        let known = self.open.iter().any(|open| open.source == source && open.object == *object);
        if !known && self.open.len() < REMEMBERED {
            self.open.push(OpenContradiction { source, object: object.clone(), what, due: now + PATIENCE });
        }
    }

    /// Returns, of each source that has had its time, a contradiction that it shows still.
    pub(super) fn tick(
        &mut self,
        now: Instant,
        caches: &impl Caches,
        delivered: impl Fn(SourceId) -> Option<Version>,
    ) -> Vec<OpenContradiction> {
        self.open.retain(|open| {
            let cached = caches.cached(open.source, &open.object);
            open.what.is_shown(&cached, delivered(open.source))
        });
        let mut due: Vec<OpenContradiction> = Vec::new();
        for open in &mut self.open {
            if !caches.is_open(open.source) {
                open.due = open.due.max(now + PATIENCE);
            }
            if open.due <= now && due.iter().all(|other| other.source != open.source) {
                due.push(open.clone());
            }
        }
        due
    }

    /// Records that a source is listed again, which resolves all of it.
    pub(super) fn resolved_by_list(&mut self, source: SourceId) {
        self.open.retain(|open| open.source != source);
    }

    /// Returns when to [`tick`](Self::tick) next; `None` while nothing is open.
    pub(super) fn next_tick(&self, now: Instant) -> Option<Instant> {
        let due = self.open.iter().map(|open| open.due).min()?;
        Some(due.max(now + AGAIN))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    const SITES: SourceId = SourceId(0);

    /// What an answer contradicts in a cache that was brought to version 7.
    fn contradicted(before: &CachedState, answered: &CachedState) -> Option<Contradicted> {
        contradiction(before, Some(Version(7)), answered)
    }

    fn shown(uid: &str, version: u64) -> CachedState {
        CachedState::Shown { uid: uid.to_owned(), version: Some(Version(version)), finalizers: Vec::new() }
    }

    /// A cache of one object.
    struct Cache {
        cached: RefCell<CachedState>,
        is_open: bool,
    }

    impl Caches for Cache {
        fn cached(&self, _: SourceId, _: &ObjectKey) -> CachedState {
            self.cached.borrow().clone()
        }

        fn is_open(&self, _: SourceId) -> bool {
            self.is_open
        }
    }

    fn key() -> ObjectKey {
        ObjectKey::new("shop", "a")
    }

    // R50
    #[test]
    fn an_answer_contradicts_a_cache_in_four_ways_and_agrees_in_the_others() {
        let uid = || Contradicted::Uid("u".to_owned());
        let older = Contradicted::Version { uid: "u".to_owned(), version: Version(7) };
        for (before, answered, expected) in [
            (shown("u", 7), CachedState::Absent, Some(uid())),
            (shown("u", 7), shown("v", 9), Some(uid())),
            (shown("u", 7), shown("u", 6), Some(older)),
            (CachedState::Absent, shown("u", 6), Some(Contradicted::Absence { unless_at: None })),
            (CachedState::Absent, shown("u", 9), Some(Contradicted::Absence { unless_at: Some(Version(9)) })),
            (shown("u", 7), shown("u", 7), None),
            (shown("u", 7), shown("u", 9), None),
            (CachedState::Absent, CachedState::Absent, None),
            (CachedState::Unknown, shown("u", 9), None),
        ] {
            assert_eq!(contradicted(&before, &answered), expected, "{before:?} {answered:?}");
        }
    }

    // R50
    #[test]
    fn a_cache_that_shows_it_in_time_does_not_list() {
        let start = Instant::now();
        for (before, answered, later) in [
            (shown("u", 7), CachedState::Absent, CachedState::Absent),
            (shown("u", 7), shown("v", 9), shown("v", 9)),
            (shown("u", 7), shown("u", 6), shown("u", 6)),
            (CachedState::Absent, shown("u", 9), shown("u", 9)),
        ] {
            let cache = Cache { cached: RefCell::new(before.clone()), is_open: true };
            let delivered = |_: SourceId| Some(Version(8));
            let mut all = Contradictions::default();
            all.note(SITES, &key(), contradicted(&before, &answered).unwrap(), start);
            assert!(all.tick(start + PATIENCE - AGAIN, &cache, delivered).is_empty(), "it has time left");
            let late = all.tick(start + PATIENCE, &cache, delivered);
            assert_eq!(late.len(), 1, "{before:?} is shown still");
            *cache.cached.borrow_mut() = later;
            assert!(all.tick(start + PATIENCE, &cache, delivered).is_empty());
            assert_eq!(all.next_tick(start), None, "nothing is left of {before:?}");
        }
    }

    // R50
    #[test]
    fn an_object_that_came_and_went_contradicts_nothing_once_the_cache_is_past_it() {
        let start = Instant::now();
        let cache = Cache { cached: RefCell::new(CachedState::Absent), is_open: true };
        let mut all = Contradictions::default();
        all.note(SITES, &key(), contradicted(&CachedState::Absent, &shown("u", 9)).unwrap(), start);
        assert!(all.tick(start + PATIENCE, &cache, |_| Some(Version(9))).is_empty());
        assert_eq!(all.next_tick(start), None);
    }

    // R50
    #[test]
    fn time_counts_only_while_the_watch_is_open() {
        let start = Instant::now();
        let mut cache = Cache { cached: RefCell::new(shown("u", 7)), is_open: false };
        let mut all = Contradictions::default();
        all.note(SITES, &key(), Contradicted::Uid("u".to_owned()), start);
        let later = start + Duration::from_secs(100);
        assert!(all.tick(later, &cache, |_| None).is_empty());
        cache.is_open = true;
        assert!(all.tick(later + PATIENCE - AGAIN, &cache, |_| None).is_empty());
        assert_eq!(all.tick(later + PATIENCE, &cache, |_| None).len(), 1);
        all.resolved_by_list(SITES);
        assert_eq!(all.next_tick(later), None);
    }

    // R50
    #[test]
    fn a_cache_lists_once_for_all_that_contradicts_it() {
        let (start, cache) = (Instant::now(), Cache { cached: RefCell::new(shown("u", 7)), is_open: true });
        let mut all = Contradictions::default();
        for name in 0..1_000 {
            let key = ObjectKey::new("shop", format!("site-{name}"));
            all.note(SITES, &key, Contradicted::Uid("u".to_owned()), start);
        }
        assert_eq!(all.open.len(), REMEMBERED);
        assert_eq!(all.tick(start + PATIENCE, &cache, |_| None).len(), 1);
    }
}
