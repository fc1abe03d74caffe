//! The informer as its users see it.

use std::{
    any::TypeId,
    cell::RefCell,
    marker::PhantomData,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures::future::join_all;
use tokio::time::Instant;

use super::{
    change::{AddOrigin, Deleted},
    core::{Command, Handle, InformerCore, InformerParts, ObserverEntry},
    current::{TermStart, current},
    handler::{Closures, EventHandler, Observer},
    listener::{AnyHandler, Listener, TypedHandler},
    processor::start,
    reflector_task::ReflectorTask,
    registration::{HandlerSlot, HandlerStatus, KeepAlive, Registration},
    reliability::Reliability,
    sync_state::{NotSynced, SyncState},
    watched::Watched,
};
use crate::{
    delta_fifo::Extent,
    list_watch::{ListerWatcher, TypedSource},
    object::{Kind, Object, Version},
    reflector::{ReflectorConfig, WatchError, WatchErrorHandler},
    store::{AnyLister, DuplicateIndex, IndexDefinition, ObjectIndex, Objects},
};

/// Watches one kind for any number of users: one list, one watch, one cache.
///
/// - The cache, its indexes included, shows at least what a handler is called with.
/// - Handlers get add, update and delete in order, each from a task and a backlog of its own.
/// - A handler that is added late gets what is cached as adds, then changes: no gap, no duplicate.
/// - It runs from [`start`](SharedInformer::start), or its factory's, until it is shut down or until the last of
///   its users is dropped: clones of this handle, listers and registrations. It does not start again.
///
/// It promises no intermediate states: two changes while a handler is busy may become one call.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use watchkeeper::prelude::*;
///
/// # fn follow(pods: &SharedInformer<Pod>) {
/// let registration = pods
///     .handler()
///     .on_add(|pod, _| println!("+ {}", pod.name_any()))
///     .on_update(|_, pod| println!("~ {}", pod.name_any()))
///     .on_delete(|gone| println!("- {}", gone.key()))
///     .register();
/// drop(registration); // and the handler is removed
/// # }
/// ```
///
/// The book has more: [informers and the queue alone](https://github.com/watchkeeper/watchkeeper/blob/main/book/src/how-to/alone.md).
pub struct SharedInformer<W: Watched> {
    any: AnyInformer,
    watched: PhantomData<fn() -> W>,
}

/// A [`SharedInformer`] whose type of object is forgotten.
#[derive(Clone)]
pub(crate) struct AnyInformer {
    pub(super) handle: Arc<Handle>,
    /// Error handlers that live as long as this user, or what came from it.
    hears: Option<Arc<[WatchErrorHandler]>>,
}

impl KeepAlive for AnyInformer {
    fn sweep(&self) {
        self.handle.core.send(Command::Sweep);
    }
}

impl AnyInformer {
    pub(super) fn of_parts(parts: InformerParts) -> Self {
        Self::of_handle(Arc::new(Handle { core: InformerCore::new(parts) }))
    }

    pub(super) fn of_handle(handle: Arc<Handle>) -> Self {
        Self { handle, hears: None }
    }

    /// Adds error handlers for as long as this, or what comes from it, is held.
    pub(super) fn hearing(mut self, handlers: Vec<WatchErrorHandler>) -> Self {
        if !handlers.is_empty() {
            let hears: Arc<[_]> = handlers.into();
            self.handle.core.health.add_handlers(&hears);
            self.hears = Some(hears);
        }
        self
    }

    pub(crate) fn start(&self) {
        start(&self.handle.core);
    }

    async fn shutdown(&self) {
        let core = &self.handle.core;
        core.stop();
        core.tasks.close();
        core.tasks.wait().await;
    }

    /// Returns a reader of the cache.
    pub(crate) fn lister(&self) -> AnyLister {
        self.handle.core.indexer.lister().keeping(Arc::new(self.clone()))
    }

    /// Returns whether both are clones of one informer.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.handle, &other.handle)
    }

    pub(crate) fn kind(&self) -> &Kind {
        &self.handle.core.kind
    }

    /// Lists the objects that an owner controls, by an index that is made when somebody first asks.
    pub(crate) fn owned_by<O: Object>(&self, uid: &str) -> Objects<O> {
        let lister = self.lister().cast::<O>();
        if !lister.has_index(ObjectIndex::OWNER) {
            // Somebody else may be faster.
            let _ = self.handle.core.indexer.index(ObjectIndex::owner());
        }
        lister.by_index(ObjectIndex::OWNER, &uid.into())
    }

    /// Returns the type of its objects.
    pub(crate) fn object_type(&self) -> TypeId {
        self.lister().object_type()
    }

    /// Names the cluster that it reads from; `None`: the manager's own.
    pub(crate) fn cluster(&self) -> Option<Arc<str>> {
        self.handle.core.cluster.clone()
    }

    /// Ends once the cache holds at least what the first list held; never, if the informer is stopped before.
    pub(crate) async fn synced(&self) {
        self.handle.core.synced.wait().await;
    }

    /// Returns the highest version of an object that the cache was given, if one is known.
    pub(crate) fn newest(&self) -> Option<Version> {
        let newest = self.handle.core.newest.load(Ordering::Acquire);
        (newest > 0).then_some(Version(newest))
    }

    /// Ends once the cache shows a version. Returns whether it does within some time.
    pub(crate) async fn shows(&self, version: Version, within: Duration) -> bool {
        self.synced().await;
        // Of several parts, another one may have shown it.
        let newest = self.newest().filter(|_| self.handle.core.sources.len() == 1);
        newest >= Some(version) || self.lister().wait_for_version(version, within).await.is_ok()
    }

    /// Names what it caches of this cluster as every replica does; `None`: it reads from another cluster.
    pub(crate) fn cached(&self) -> Option<String> {
        let core = &self.handle.core;
        let extents = core.sources.iter().map(|(extent, _)| match extent {
            Extent::All => "",
            Extent::Namespace(namespace) => namespace,
        });
        let extents = extents.collect::<Vec<_>>().join(",");
        core.cluster.is_none().then(|| format!("{} {extents} {}", core.kind, core.selector))
    }

    /// Returns whether it caches all objects of its kind, as the server has them.
    pub(crate) fn is_whole(&self) -> bool {
        let core = &self.handle.core;
        let is_everywhere = core.sources.iter().all(|(extent, _)| *extent == Extent::All);
        is_everywhere && core.selector.is_empty() && !core.is_part && !core.is_altered
    }

    /// Returns whether it has all indexes of another one.
    pub(crate) fn has_indexes_of(&self, other: &Self) -> bool {
        self.lister().has_indexes_of(&other.lister())
    }

    /// Returns whether it keeps this replica's part of the objects alone.
    pub(crate) fn is_part(&self) -> bool {
        self.handle.core.is_part
    }

    /// Lists again, and ends once the cache shows what that list shows.
    pub(crate) async fn listed_anew(&self) {
        self.synced().await;
        self.handle.core.reliability.listed_anew().await;
    }

    /// Ends once the cache holds at least what the server held after a term began; see [`current`](super::current).
    pub(crate) async fn current(&self, start: &TermStart) {
        self.synced().await;
        current(&self.handle.core, start).await;
    }

    fn register(&self, handler: Box<dyn AnyHandler>, resync_every: Option<Duration>) -> Registration {
        let core = &self.handle.core;
        let listener = Arc::new(Listener::new(resync_every, core.panics.clone(), core.object));
        let slot: Arc<dyn HandlerSlot> = listener.clone();
        core.note_handler(&slot);
        core.send(Command::Join(listener, handler));
        Registration::new(slot, Arc::new(self.clone()))
    }

    pub(crate) fn observe(&self, observer: Arc<dyn Observer>) -> Registration {
        let status = Arc::new(HandlerStatus::default());
        self.handle.core.send(Command::Look(ObserverEntry { observer, status: status.clone() }));
        Registration::new(status, Arc::new(self.clone()))
    }

    pub(crate) fn has_synced(&self) -> bool {
        self.handle.core.has_synced()
    }

    /// Returns whether something keeps the informer from listing or watching at present.
    pub(crate) fn is_failing(&self) -> bool {
        self.handle.core.health.failure().is_some()
    }

    /// Returns what judges whether the cache can be relied on.
    pub(crate) fn reliability(&self) -> &Reliability {
        &self.handle.core.reliability
    }

    pub(crate) fn state(&self) -> SyncState {
        self.handle.core.state()
    }
}

/// Waits until informers have synced; the error names those that have not in time, or were stopped.
pub(super) async fn wait_for_sync(informers: &[Arc<Handle>], within: Duration) -> Result<(), NotSynced> {
    let started = Instant::now();
    let settled = informers.iter().map(|informer| {
        let core = &informer.core;
        core.stop.run_until_cancelled(core.synced.wait())
    });
    let _ = tokio::time::timeout(within, join_all(settled)).await;
    let states = informers.iter().map(|informer| informer.core.state());
    let laggards: Vec<SyncState> = states.filter(|state| !state.is_synced()).collect();
    match laggards.is_empty() {
        true => Ok(()),
        false => Err(NotSynced { laggards, waited: started.elapsed() }),
    }
}

impl<W: Watched> SharedInformer<W> {
    /// Builds an informer on any source; it is shared only by clones.
    ///
    /// `dynamic_type` is `()` for typed kinds. Nothing runs before [`start`](SharedInformer::start). For several
    /// sources, a transform or more indexes there is [`Assembly`](super::Assembly).
    pub fn from_source<L: ListerWatcher<W::Object>>(
        dynamic_type: &W::DynamicType,
        source: L,
        config: ReflectorConfig,
    ) -> Self {
        let kind = W::kind_of(dynamic_type);
        let config = config.named(|| kind.to_string());
        let parts = InformerParts::new::<W>(kind, &config);
        let feeds = vec![ReflectorTask::new(Extent::All, TypedSource::new(source), config)];
        Self::of_parts(InformerParts { feeds, ..parts })
    }

    pub(super) fn of_parts(parts: InformerParts) -> Self {
        Self::of(AnyInformer::of_parts(parts))
    }

    pub(super) fn of(any: AnyInformer) -> Self {
        Self { any, watched: PhantomData }
    }

    /// Forgets the type of the objects.
    pub(crate) fn any(&self) -> &AnyInformer {
        &self.any
    }

    pub(super) fn handle(&self) -> &Arc<Handle> {
        &self.any.handle
    }

    /// Starts listing and watching, unless that was done before.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(&self) {
        self.any.start();
    }

    /// Stops for good, and waits until none of its tasks is left.
    ///
    /// A handler that blocks is waited for.
    pub async fn shutdown(&self) {
        self.any.shutdown().await;
    }

    /// Returns a reader of the cache; it is empty until the first list is through.
    pub fn lister(&self) -> W::Lister {
        self.any.lister().cast().into()
    }

    /// Adds an index, filled with what is cached.
    ///
    /// # Errors
    /// There is one of that name.
    pub fn add_index(&self, definition: IndexDefinition<W::Object>) -> Result<(), DuplicateIndex> {
        let core = &self.handle().core;
        core.users_indexes.set();
        core.indexer.index(definition.erased())
    }

    /// Begins a handler made of closures.
    pub fn handler(&self) -> HandlerBuilder<W> {
        HandlerBuilder { informer: self.clone(), closures: Closures::none(), resync_every: None }
    }

    /// Registers a handler; a stopped informer refuses it (`synced` of the registration then fails).
    pub fn add_handler(&self, handler: impl EventHandler<W::Object>) -> Registration {
        self.register(Box::new(handler), None)
    }

    fn register(
        &self,
        handler: Box<dyn EventHandler<W::Object>>,
        resync_every: Option<Duration>,
    ) -> Registration {
        self.any.register(Box::new(TypedHandler(handler)), resync_every)
    }

    /// Shows an observer every change, inline, beginning with a replay of what is cached.
    pub fn observe(&self, observer: Arc<dyn Observer>) -> Registration {
        self.any.observe(observer)
    }

    /// Calls a function at every failure to list or watch, besides the configuration's handler or the log.
    ///
    /// It does so for as long as the informer lives.
    pub fn on_watch_error(&self, handler: impl Fn(&WatchError) + Send + Sync + 'static) {
        self.handle().core.health.add_handler(Arc::new(handler));
    }

    /// Returns whether the cache holds at least what the first list held.
    pub fn has_synced(&self) -> bool {
        self.any.has_synced()
    }

    /// Returns the state of the informer.
    pub fn sync_state(&self) -> SyncState {
        self.any.state()
    }

    /// Waits until the cache holds at least what the first list held.
    ///
    /// # Errors
    /// It does not within the time given, or the informer is stopped; the error says why.
    pub async fn wait_for_sync(&self, within: Duration) -> Result<(), NotSynced> {
        wait_for_sync(std::slice::from_ref(self.handle()), within).await
    }

    /// Returns what is watched.
    pub fn kind(&self) -> &Kind {
        self.any.kind()
    }

    /// Counts the calls of observers that panicked.
    pub fn observer_panics(&self) -> u64 {
        self.handle().core.health.panics()
    }
}

/// Makes a handler of closures; what is not given does nothing.
#[must_use = "a handler is not called until it is registered"]
pub struct HandlerBuilder<W: Watched> {
    informer: SharedInformer<W>,
    closures: Closures<W::Object>,
    resync_every: Option<Duration>,
}

impl<W: Watched> HandlerBuilder<W> {
    /// Calls this when an object is there that was not, or was there already.
    pub fn on_add(mut self, add: impl FnMut(Arc<W::Object>, AddOrigin) + Send + 'static) -> Self {
        self.closures.add = Some(RefCell::new(Box::new(add)));
        self
    }

    /// Calls this with the old and the new state when an object changed; on a resync they are the same.
    pub fn on_update(mut self, update: impl FnMut(Arc<W::Object>, Arc<W::Object>) + Send + 'static) -> Self {
        self.closures.update = Some(RefCell::new(Box::new(update)));
        self
    }

    /// Calls this when an object is gone, or gone from the selection.
    pub fn on_delete(mut self, delete: impl FnMut(Deleted<W::Object>) + Send + 'static) -> Self {
        self.closures.delete = Some(RefCell::new(Box::new(delete)));
        self
    }

    /// Shows every cached object again, as an update, once in each period; zero means never.
    ///
    /// It costs a call an object, and holds up changes by one call at most. A handler that is not through with one when
    /// the next is due is shown the next after it.
    pub fn resync_every(mut self, period: Duration) -> Self {
        self.resync_every = Some(period).filter(|period| !period.is_zero());
        self
    }

    /// Registers the handler.
    pub fn register(self) -> Registration {
        self.informer.register(Box::new(self.closures), self.resync_every)
    }
}

impl_clone!([W: Watched] SharedInformer<W>, any, watched);

impl_debug!([W: Watched] SharedInformer<W>, this =>
    kind: this.sync_state().kind, phase: this.sync_state().phase
);

impl_debug!([W: Watched] HandlerBuilder<W>, this => informer: this.informer);
