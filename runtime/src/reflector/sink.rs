//! The trait a reflector writes to; the reflector knows nothing else of what lies below it.

use std::{fmt, marker::PhantomData, sync::Arc};

use futures::future::BoxFuture;

use super::watch_error::{FetchPart, WatchError};
use crate::{
    list_watch::{AnyItem, FetchedItem},
    object::{AnyObject, Object, ObjectKey},
};

/// Takes what a reflector reads.
///
/// Calls come from one task, in order; none may block. A change is safe once the call has returned: only then
/// does the reflector advance its version.
pub trait ReflectorStore<K: ?Sized>: Send + Sync + 'static {
    /// Takes a whole list: what it does not hold is gone.
    fn replace(&self, list: List<K>);

    /// Returns the key under which it holds exactly what an item of a list says.
    ///
    /// Asked of each object as it comes, before the list is whole: what is held already is dropped at once, and the
    /// list names its key among [`List::unchanged`]. A store returns a key only if it shows the same content, with
    /// the same UID and version, and earlier deliveries cannot change that any more. By default it returns `None`: then
    /// lists are delivered whole.
    fn unchanged(&self, _item: &FetchedItem<K>) -> Option<ObjectKey> {
        None
    }

    /// Takes changes in the order in which the source sent them.
    fn apply(&self, changes: Vec<StoreChange<K>>);

    /// Asks for every known object to be shown again.
    fn resync(&self);

    /// Takes a report of how fetching goes: failures of lists, openings and streams, and their end.
    fn report(&self, report: FetchReport);

    /// Returns where it shows something else than a list at the version that it was given last; `None` while it does not
    /// show all that it was given.
    ///
    /// Asked only where [`consistency_check`](super::ReflectorConfig::consistency_check) is set. The default finds
    /// no difference.
    fn differences(&self, _listed: &[FetchedItem<K>]) -> Option<Vec<Difference>> {
        Some(Vec::new())
    }

    /// Resolves when the store requests a relist because its contents may be wrong. Never resolves by default.
    ///
    /// Waited for again and again, and dropped meanwhile: what was asked for must not get lost.
    fn wants_list(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}

/// A store of objects whose type is forgotten.
pub(crate) type AnyStore = dyn ReflectorStore<dyn AnyObject>;

/// A store of the user's, which gets objects of its own type.
pub(super) struct TypedStore<K, S>(Arc<S>, PhantomData<fn() -> K>);

impl<K, S> TypedStore<K, S> {
    pub(super) fn new(store: Arc<S>) -> Self {
        Self(store, PhantomData)
    }
}

impl<K: Object, S: ReflectorStore<K>> ReflectorStore<dyn AnyObject> for TypedStore<K, S> {
    fn replace(&self, List { items, unchanged, resource_version, epoch }: List<dyn AnyObject>) {
        let items = items.into_iter().map(FetchedItem::typed).collect();
        self.0.replace(List { items, unchanged, resource_version, epoch });
    }

    fn unchanged(&self, item: &AnyItem) -> Option<ObjectKey> {
        self.0.unchanged(&item.clone().typed())
    }

    fn apply(&self, changes: Vec<StoreChange<dyn AnyObject>>) {
        let typed = |change| match change {
            StoreChange::Upsert(item) => StoreChange::Upsert(AnyItem::typed(item)),
            StoreChange::Delete(item) => StoreChange::Delete(item.typed()),
            StoreChange::Bookmark(version) => StoreChange::Bookmark(version),
        };
        self.0.apply(changes.into_iter().map(typed).collect());
    }

    fn resync(&self) {
        self.0.resync();
    }

    fn report(&self, report: FetchReport) {
        self.0.report(report);
    }

    fn differences(&self, listed: &[AnyItem]) -> Option<Vec<Difference>> {
        let listed: Vec<_> = listed.iter().map(|item| item.clone().typed()).collect();
        self.0.differences(&listed)
    }

    fn wants_list(&self) -> BoxFuture<'_, ()> {
        self.0.wants_list()
    }
}

/// All there was at one version.
#[derive(Debug)]
pub struct List<K: ?Sized> {
    /// What the list brought.
    pub items: Vec<FetchedItem<K>>,
    /// What the list showed as the store [held](ReflectorStore::unchanged) it, by key.
    pub unchanged: Vec<ObjectKey>,
    /// The list's version.
    pub resource_version: String,
    /// Whether versions go on from those seen before; where they don't, they may be lower.
    pub epoch: Epoch,
}

impl<K: ?Sized> List<K> {
    /// Makes a list that brings all that it shows.
    pub fn new(items: Vec<FetchedItem<K>>, resource_version: impl Into<String>, epoch: Epoch) -> Self {
        Self { items, unchanged: Vec::new(), resource_version: resource_version.into(), epoch }
    }
}

/// One change, as a watch brought it.
#[derive(Debug)]
pub enum StoreChange<K: ?Sized> {
    /// Added or modified.
    Upsert(FetchedItem<K>),
    /// Deleted; the last state, at the version of the deletion.
    Delete(FetchedItem<K>),
    /// Nothing changed up to this version.
    Bookmark(String),
}

/// Whether a list continues the history that the store has followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Epoch {
    /// Versions go on growing.
    Same,
    /// The server was restored to an older state, or emptied.
    New,
}

/// How fetching goes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum FetchReport {
    /// A list was taken, or a watch delivered or stayed open for 10 s: what failed of this part is over.
    Healthy(FetchPart),
    /// A watch brought something that is not an event of this kind; it was skipped and the watch goes on.
    Skipped(WatchError),
    /// A list, an opening or a stream failed; it will be tried again.
    Failed(WatchError),
    /// The connection failed, and the watch is lost.
    WatchLost,
    /// After that, a watch is open again, or a list was taken.
    WatchBack,
    /// The store shows at least what the server held after this number of losses of its history.
    Current {
        /// How many.
        losses: u64,
    },
}

/// An object that a store shows differently from its source at the same version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The object.
    pub key: ObjectKey,
    /// What the source held: the object's version; `None` if there was no such object.
    pub listed: Option<String>,
    /// What the store shows: the object's version; `None` if it shows none.
    pub shown: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (listed, shown) = (self.listed.as_deref(), self.shown.as_deref());
        let (listed, shown) = (listed.unwrap_or("nothing"), shown.unwrap_or("nothing"));
        write!(f, "{} (shown: {shown}, listed: {listed})", self.key)
    }
}
