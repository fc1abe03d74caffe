//! The informers that feed a controller, whatever their type.

use std::{
    any::{Any, TypeId},
    fmt,
    sync::Arc,
};

use futures::{FutureExt, future::BoxFuture};

use crate::{
    informer::{Observer, SharedInformer, SharedInformerFactory, Watched},
    object::{Kind, ObjectKey, Scope},
    store::Lister,
    writes::{CacheView, Cached, CachedMeta, own_writes::SourceId},
};

/// An informer that somebody waits for.
pub(crate) trait Synced: Send + Sync {
    /// Which kind it watches, for messages.
    fn kind(&self) -> Kind;
    /// Whether its cache holds what the server held at some moment since the start.
    fn has_synced(&self) -> bool;
    /// Ends when it has synced.
    fn synced(&self) -> BoxFuture<'_, ()>;
    /// Says why it has not synced, in one line.
    fn why(&self) -> String;
}

impl<W: Watched> Synced for SharedInformer<W> {
    fn kind(&self) -> Kind {
        SharedInformer::kind(self).clone()
    }

    fn has_synced(&self) -> bool {
        SharedInformer::has_synced(self)
    }

    fn synced(&self) -> BoxFuture<'_, ()> {
        SharedInformer::synced(self).boxed()
    }

    fn why(&self) -> String {
        self.sync_state().to_string()
    }
}

impl fmt::Debug for dyn Synced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Synced({})", self.kind())
    }
}

/// Asks a factory for the informer of one question.
pub(crate) fn informer_of<W: Watched>(
    factory: &SharedInformerFactory,
    question: W::Question,
    namespace: Option<&str>,
) -> SharedInformer<W> {
    let builder = factory.informer_of::<W>(question);
    match namespace {
        Some(namespace) => builder.namespace(namespace).build(),
        None => builder.build(),
    }
}

/// Shows a cache to writes.
pub(crate) fn cache_view<W: Watched>(
    informer: &SharedInformer<W>,
    source: SourceId,
    namespace: Option<&str>,
) -> CacheView {
    let (lister, watched) = (informer.cache(), informer.clone());
    let kind = SharedInformer::kind(informer).clone();
    // An informer of a cluster-scoped kind has no namespace to keep to.
    let namespace = namespace.filter(|_| kind.scope == Scope::Namespaced).map(str::to_owned);
    CacheView { source, kind, namespace, look_up: Box::new(move |key| look_up(&watched, &lister, key)) }
}

fn look_up<W: Watched>(informer: &SharedInformer<W>, lister: &Lister<W::Object>, key: &ObjectKey) -> Cached {
    match lister.current(key) {
        Ok(Some(object)) => Cached::Present(CachedMeta {
            uid: object.uid().unwrap_or_default().to_owned(),
            resource_version: object.resource_version().unwrap_or_default().to_owned(),
            owners: object.owners().into_owned(),
        }),
        Ok(None) if SharedInformer::has_synced(informer) => Cached::Absent,
        Ok(None) | Err(_) => Cached::Unknown,
    }
}

/// What is asked for before the start, and connected once the writer is there.
pub(crate) struct OpenFeed {
    pub(crate) informer: Arc<dyn Synced>,
    pub(crate) view: CacheView,
    pub(crate) connect: Connect,
}

/// Connects an informer to the controller; the feed lasts as long as what is returned.
pub(crate) type Connect = Box<dyn FnOnce(&super::enqueue::Hub) -> Box<dyn Any + Send + Sync> + Send>;

/// A kind that feeds a controller, not yet asked for.
pub(crate) struct Feed {
    pub(crate) asked: Asked,
    pub(crate) open: Open,
}

/// What an informer is asked for by marker and question: equal ones get one informer.
#[derive(Clone)]
pub(crate) struct Asked {
    marker: TypeId,
    question: Arc<dyn Any + Send + Sync>,
    same: fn(&dyn Any, &dyn Any) -> bool,
}

impl Asked {
    pub(crate) fn of<W: Watched>(question: &W::Question) -> Self {
        let same = |one: &dyn Any, other: &dyn Any| {
            let (one, other) = (one.downcast_ref::<W::Question>(), other.downcast_ref::<W::Question>());
            one.is_some() && one == other
        };
        Self { marker: TypeId::of::<W>(), question: Arc::new(question.clone()), same }
    }
}

impl PartialEq for Asked {
    fn eq(&self, other: &Self) -> bool {
        self.marker == other.marker && (self.same)(&*self.question, &*other.question)
    }
}

type Open = Box<dyn FnOnce(&SharedInformerFactory, Option<&str>, SourceId) -> OpenFeed + Send + Sync>;

/// Opens a feed whose changes an observer maps to keys.
pub(crate) fn open<W: Watched, O: Observer<W::Object>>(
    informer: SharedInformer<W>,
    namespace: Option<&str>,
    source: SourceId,
    observer: impl FnOnce(&super::enqueue::Hub) -> O + Send + 'static,
) -> OpenFeed {
    let view = cache_view(&informer, source, namespace);
    let observed = informer.clone();
    let connect: Connect = Box::new(move |hub| Box::new(observed.observe(Arc::new(observer(hub)))));
    OpenFeed { informer: Arc::new(informer), view, connect }
}
