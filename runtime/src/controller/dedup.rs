//! An informer that feeds a controller twice reaches each key once with an event.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use foldhash::HashSet;

use crate::{
    informer::ProgressVia,
    object::{ObjectKey, Version},
    writes::source::SourceId,
};

/// The keys that the event at hand reached, by informer: one that feeds a controller twice reaches each key once.
///
/// Otherwise the second event of a key's own write would count as a foreign change.
#[derive(Debug, Default)]
pub(crate) struct EventDedup {
    by_source: HashMap<SourceId, Mutex<SeenEvent>>,
}

/// The keys that the event with a version reached.
#[derive(Debug, Default)]
struct SeenEvent {
    version: Option<Version>,
    keys: HashSet<ObjectKey>,
}

impl EventDedup {
    /// Follows the sources that feed a controller more than once.
    pub(crate) fn of(shared: impl IntoIterator<Item = SourceId>) -> Self {
        Self { by_source: shared.into_iter().map(|source| (source, Mutex::default())).collect() }
    }

    /// Whether the event with this version has not reached the key yet.
    pub(super) fn is_first(&self, source: SourceId, version: Version, key: &ObjectKey) -> bool {
        let Some(seen) = self.by_source.get(&source) else { return true };
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.version != Some(version) {
            *seen = SeenEvent { version: Some(version), keys: HashSet::default() };
        }
        seen.keys.insert(key.clone())
    }

    /// After a list, versions may start again from a lower one.
    pub(super) fn progressed(&self, source: SourceId, via: ProgressVia) {
        if via != ProgressVia::Watch
            && let Some(seen) = self.by_source.get(&source)
        {
            *seen.lock().unwrap_or_else(PoisonError::into_inner) = SeenEvent::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // C51
    #[test]
    fn an_event_reaches_a_key_once_and_after_a_list_its_version_is_another_event() {
        let (twice, once, version) = (SourceId(0), SourceId(1), Version(7));
        let (dedup, a, b) =
            (EventDedup::of([twice]), ObjectKey::new("shop", "a"), ObjectKey::new("shop", "b"));
        let first = |source, version, key| dedup.is_first(source, version, key);
        assert!([first(once, version, &a), first(once, version, &a)].iter().all(|first| *first));
        assert_eq!([first(twice, version, &a), first(twice, version, &a)], [true, false]);
        assert_eq!([first(twice, version, &b), first(twice, version, &b)], [true, false]);
        dedup.progressed(twice, ProgressVia::Watch);
        assert!(!first(twice, version, &a), "the watch goes on");
        for via in [ProgressVia::Replace, ProgressVia::NewEpoch] {
            dedup.progressed(twice, via);
            assert_eq!([first(twice, version, &a), first(twice, version, &a)], [true, false], "{via:?}");
        }
        assert!(first(twice, Version(8), &a), "another event");
    }
}
