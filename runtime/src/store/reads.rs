//! What a reader looks at in a cache, for those who want to know when that changes.
//!
//! A tracked lister reads one snapshot. It tells of each read before it is done. What has changed since the snapshot was
//! taken, it tells as well: those who note changes did not know of the read then.

use std::{collections::HashMap, fmt, sync::Arc};

use arc_swap::ArcSwap;

use super::{
    cached_object::CachedObject,
    index::IndexValue,
    selector::Selector,
    snapshot::{ObjectTable, StoreSnapshot},
};
use crate::{
    object::{AnyObject, ObjectKey, Version},
    plain::plain,
};

/// A part of a cache that can be read at once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ReadSet {
    Everything,
    Namespace(Arc<str>),
    /// What an index holds under a value, in a namespace or in all.
    Index {
        index: Arc<str>,
        value: IndexValue,
        namespace: Option<Arc<str>>,
    },
    Selector {
        selector: Selector,
        namespace: Option<Arc<str>>,
    },
}

/// What is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReadPart {
    /// One object, whether it is there or not.
    Object(ObjectKey),
    Set(ReadSet),
}

/// Which changes concern a reader.
#[derive(Clone)]
pub(crate) enum ReadAspect {
    /// Every change.
    Content,
    /// That an object comes or goes.
    Members,
    /// Whether this says that an object, or its absence, now reads differently.
    Picked(PickCheck),
}

/// Says whether what was picked of an object has changed; `None` is an absent object.
pub(crate) type PickCheck = Arc<dyn Fn(Option<&dyn AnyObject>) -> bool + Send + Sync>;

/// Hears of reads.
pub(crate) trait ReadTracker: Send + Sync {
    /// Takes a read that is about to be done. Returns whether those who note changes know of it now; if not, it is asked for
    /// what changed later.
    fn note(&self, part: &ReadPart, aspect: &ReadAspect) -> bool;

    /// Takes the versions of what has changed of a read since its snapshot; `None` where that is not known.
    fn changed(&self, versions: Vec<Option<Version>>);
}

/// One moment of a cache. A tracker hears of its reads.
pub(crate) struct TrackedSnapshot {
    pub(super) snapshot: Arc<StoreSnapshot>,
    tracker: Arc<dyn ReadTracker>,
}

impl TrackedSnapshot {
    pub(super) fn new(snapshot: Arc<StoreSnapshot>, tracker: Arc<dyn ReadTracker>) -> Self {
        Self { snapshot, tracker }
    }

    /// Tells of a read, and of what has changed of it since the snapshot.
    pub(super) fn note(&self, part: &ReadPart, aspect: &ReadAspect, published: &ArcSwap<StoreSnapshot>) {
        if self.tracker.note(part, aspect) {
            let changed = self.changes(part, aspect, published);
            if !changed.is_empty() {
                self.tracker.changed(changed);
            }
        }
    }

    /// Returns the versions of what has changed of a read since the snapshot. Those who note changes must know of the read:
    /// they tell of what changes from now on.
    pub(super) fn changes(
        &self,
        part: &ReadPart,
        aspect: &ReadAspect,
        published: &ArcSwap<StoreSnapshot>,
    ) -> Vec<Option<Version>> {
        let now = published.load();
        match Arc::ptr_eq(&now, &self.snapshot) {
            true => Vec::new(),
            false => part.changes(aspect, &self.snapshot, &now),
        }
    }
}

impl ReadPart {
    /// Compares what two snapshots show; returns the later versions of what differs for a reader.
    fn changes(
        &self,
        aspect: &ReadAspect,
        before: &StoreSnapshot,
        now: &StoreSnapshot,
    ) -> Vec<Option<Version>> {
        match self {
            Self::Object(key) => changes_of(key, aspect, before, now).into_iter().collect(),
            Self::Set(set) => set.changes(aspect, before, now),
        }
    }
}

/// Compares an object in two snapshots. Returns its later version if it differs for a reader.
fn changes_of(
    key: &ObjectKey,
    aspect: &ReadAspect,
    before: &StoreSnapshot,
    now: &StoreSnapshot,
) -> Option<Option<Version>> {
    let [was, is] = [before, now].map(|snapshot| snapshot.get(key.namespace(), key.name()));
    let differs = match (aspect, was, is) {
        (ReadAspect::Picked(check), _, Some(is)) => is.with_object(|is| check(Some(is))).unwrap_or(true),
        (ReadAspect::Picked(check), _, None) => check(None),
        (ReadAspect::Content, Some(was), Some(is)) => !was.is_same(is),
        (ReadAspect::Content | ReadAspect::Members, was, is) => was.is_some() != is.is_some(),
    };
    let is_marked = before.mark(key).is_some() != now.mark(key).is_some();
    if is_marked && matches!(aspect, ReadAspect::Content) {
        return Some(None);
    }
    differs.then(|| is.and_then(CachedObject::version))
}

impl ReadSet {
    fn changes(
        &self,
        aspect: &ReadAspect,
        before: &StoreSnapshot,
        now: &StoreSnapshot,
    ) -> Vec<Option<Version>> {
        let held = |snapshot: &StoreSnapshot| {
            let mut all = HashMap::new();
            self.visit(snapshot, |held| drop(all.insert(held.key().clone(), held.clone())));
            all
        };
        let (mut was, is) = (held(before), held(now));
        let is_of_content = matches!(aspect, ReadAspect::Content);
        let mut changed = Vec::new();
        for (key, now) in is {
            if was.remove(&key).is_none_or(|before| is_of_content && !before.is_same(&now)) {
                changed.push(now.version());
            }
        }
        changed.extend(was.into_iter().map(|_| None));
        changed
    }

    fn visit(&self, snapshot: &StoreSnapshot, mut visit: impl FnMut(&CachedObject)) {
        let in_namespace = |held: &CachedObject, namespace: &Option<Arc<str>>| {
            namespace
                .as_deref()
                .is_none_or(|namespace| held.key().namespace().unwrap_or_default() == namespace)
        };
        let mut all = |table: &ObjectTable, keep: &dyn Fn(&CachedObject) -> bool| {
            table.iter().map(|stored| &stored.held).filter(|held| keep(held)).for_each(&mut visit);
        };
        match self {
            Self::Everything => all(&snapshot.objects, &|_| true),
            Self::Namespace(namespace) => {
                snapshot.namespace(namespace).into_iter().for_each(|table| all(table, &|_| true));
            }
            Self::Index { index, value, namespace } => {
                let table = snapshot.indexed(index, value).flatten();
                table.into_iter().for_each(|table| all(table, &|held| in_namespace(held, namespace)));
            }
            Self::Selector { selector, namespace } => {
                all(&snapshot.objects, &|held| in_namespace(held, namespace) && held.matches(selector));
            }
        }
    }
}

/// Shown in reports, after the kind.
impl fmt::Display for ReadSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = match self {
            Self::Everything => return f.write_str("all"),
            Self::Namespace(namespace) => return write!(f, "all of namespace {}", plain(namespace)),
            Self::Index { index, value, namespace } => {
                // Reconcilers take both from objects.
                write!(f, "{index}={}", plain(&value.to_string()))?;
                namespace
            }
            Self::Selector { selector, namespace } => {
                write!(f, "{selector}")?;
                namespace
            }
        };
        match namespace {
            Some(namespace) => write!(f, " in namespace {}", plain(namespace)),
            None => Ok(()),
        }
    }
}
