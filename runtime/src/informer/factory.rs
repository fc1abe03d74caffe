//! Hands out one informer for each query, and starts and stops them together.

use std::{
    any::TypeId,
    collections::{BTreeSet, HashMap},
    fmt,
    marker::PhantomData,
    sync::{Arc, Weak},
    time::Duration,
};

use kube::Client;
use parking_lot::Mutex;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    core::{Handle, InformerParts},
    handler::EventHandler,
    processor::start,
    query::{Function, NameRefused, Query},
    reflector_task::ReflectorTask,
    registration::Registration,
    report::InformerReport,
    shared::{AnyInformer, HandlerBuilder, SharedInformer, wait_for_sync},
    sync_state::{NotSynced, SyncState, name_of},
    watched::Watched,
};
use crate::{
    clock::WallClock,
    delta_fifo::{Extent, Transform, Transformed},
    flight_recorder::{Shown, SnapshotObject},
    list_watch::{ClientSource, ItemForm, Keeps, ListOptions, ManagedFields, OptionsHook},
    object::Scope,
    reflector::{FirstList, ReflectorConfig, Server, WatchError, WatchErrorHandler},
    store::{CachedObject, IndexDefinition, InvalidSelector, Selector},
    users_code::contained,
};

/// Shares informers: one list and one watch per query.
///
/// Clones are the same factory. Informers live as long as somebody uses them; the factory alone keeps none alive.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use watchkeeper::prelude::*;
///
/// # async fn watch(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let factory = SharedInformerFactory::new(client);
/// let pods = factory.informer::<Pod>().label_selector("app=web")?.build();
/// factory.start();
/// factory.wait_for_sync(Duration::from_secs(30)).await?;
/// println!("{} pods", pods.lister().list().len());
/// factory.shutdown().await;
/// # Ok(()) }
/// ```
///
/// The book has more: [informers and the queue alone](https://github.com/watchkeeper/watchkeeper/blob/main/book/src/how-to/alone.md).
#[derive(Clone)]
pub struct SharedInformerFactory {
    shared: Arc<SharedFactory>,
}

struct SharedFactory {
    client: Client,
    /// Its name, where it is not the manager's own.
    cluster: Option<Arc<str>>,
    config: ReflectorConfig,
    stop: CancellationToken,
    tasks: TaskTracker,
    known: Mutex<KnownInformers>,
}

#[derive(Default)]
struct KnownInformers {
    informers: Vec<SharedEntry>,
    functions: HashMap<Arc<str>, TypeId>,
}

/// A query, and its informer.
struct SharedEntry {
    query: Query,
    informer: Weak<Handle>,
}

impl SharedInformerFactory {
    /// Creates a factory of informers that ask through a client.
    ///
    /// `kube::Client` hides 429, 503 and 504 behind retries of its own by default: build it with
    /// `config.default_retry = false`, so that failures show in the sync state.
    pub fn new(client: Client) -> Self {
        Self::with_config(client, ReflectorConfig::default())
    }

    /// Creates a factory whose informers list and watch as a configuration says.
    ///
    /// Name, first list and page size are each informer's own. Here is the place of a watch error handler for all
    /// informers, and of the [`Metrics`](crate::metrics::Metrics) in which they count.
    pub fn with_config(client: Client, config: ReflectorConfig) -> Self {
        Self::of(client, config, None)
    }

    /// Creates a factory for another cluster: it shares only the configuration with this one.
    pub(crate) fn of_cluster(&self, name: Arc<str>, client: Client) -> Self {
        let (server, log) = Default::default();
        let config = ReflectorConfig { server, log, ..self.shared.config.clone() };
        Self::of(client, config, Some(name))
    }

    fn of(client: Client, config: ReflectorConfig, cluster: Option<Arc<str>>) -> Self {
        let shared = SharedFactory {
            client,
            cluster,
            config,
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            known: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Asks for an informer of a typed kind.
    pub fn informer<W: Watched<DynamicType = ()>>(&self) -> InformerBuilder<W> {
        InformerBuilder::new(self.clone(), ())
    }

    /// Asks for an informer of the kind that a marker names: `informer_of(Dynamic::new(kind))`.
    pub fn informer_of<W: Watched>(&self, marker: W) -> InformerBuilder<W> {
        InformerBuilder::new(self.clone(), marker.dynamic_type())
    }

    /// Starts every informer that was not started before.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(&self) {
        self.informers().iter().for_each(|informer| start(&informer.core));
    }

    /// Waits until every informer that is in use has synced.
    ///
    /// # Errors
    /// Some have not within the time given, or were stopped: the error names them, why, and what to do.
    pub async fn wait_for_sync(&self, within: Duration) -> Result<(), NotSynced> {
        wait_for_sync(&self.informers(), within).await
    }

    /// Returns the state of every informer that is in use.
    pub fn sync_states(&self) -> Vec<SyncState> {
        self.informers().iter().map(|informer| informer.core.state()).collect()
    }

    /// Shows every informer that is in use, as debug pages do.
    pub(crate) fn reports(&self) -> Vec<InformerReport> {
        let known = self.shared.known.lock();
        let used = known
            .informers
            .iter()
            .filter_map(|entry| Some((entry.informer.upgrade()?, entry.query.selector())));
        // Not under the lock: the last user of one may be gone by now.
        let used: Vec<_> = used.collect();
        drop(known);
        used.iter().map(|(informer, selector)| informer.core.report().selecting(selector)).collect()
    }

    /// Gives the cached objects that are not shown to a function.
    pub(crate) fn cached(&self, shown: &Shown, take: &mut dyn FnMut(SnapshotObject)) {
        // What an informer still shows that was stopped alone may be long gone.
        let all = self.shared.stop.is_cancelled();
        let mut informers = self.informers();
        informers.retain(|one| all || !one.core.stop.is_cancelled());
        for (number, informer) in informers.iter().enumerate() {
            let kind = &informer.core.kind;
            let of_kind = informers.iter().filter(|one| one.core.kind == *kind);
            let is_shown = shown.of(kind, of_kind.map(|one| one.core.sources.len()).sum());
            let is_wanted = |cached: &CachedObject| !is_shown(cached.key().namespace(), cached.version());
            // Few as a rule: those that are held here may be replaced meanwhile.
            let waiting = informer.core.indexer.lister().cached_if(is_wanted);
            for cached in waiting {
                // How a type is written is its user's code.
                let encode = || contained(|| cached.any().ok()?.to_json().ok()).flatten();
                let (key, version) = (cached.key(), cached.resource_version());
                take(SnapshotObject { kind, key, informer: number, version, encode: &encode });
            }
        }
    }

    /// Stops every informer for good, and waits until no task is left.
    ///
    /// A handler that blocks is waited for. Informers asked for afterwards never start.
    pub async fn shutdown(&self) {
        self.stop();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }

    /// Stops every informer for good, without waiting for its tasks to end.
    pub fn stop(&self) {
        self.shared.stop.cancel();
        self.informers().iter().for_each(|informer| informer.core.stop());
    }

    /// Counts the tasks that run for informers of this factory.
    pub fn tasks(&self) -> usize {
        self.shared.tasks.len()
    }

    /// Returns what the informers read from.
    pub(crate) fn server(&self) -> Server {
        self.shared.config.server.clone()
    }

    /// Returns the clock for the time of day.
    pub(crate) fn clock(&self) -> WallClock {
        self.shared.config.clock.clone()
    }

    /// Returns the name of the cluster, where it is not the manager's own.
    pub(crate) fn cluster(&self) -> Option<Arc<str>> {
        self.shared.cluster.clone()
    }

    fn find_or_build(&self, query: &Query, parts: InformerParts) -> AnyInformer {
        let mut known = self.shared.known.lock();
        let live = |entry: &SharedEntry| {
            entry
                .informer
                .upgrade()
                .filter(|informer| entry.query != *query || !informer.core.stop.is_cancelled())
        };
        // One that a sharer shut down makes room for another.
        known.informers.retain(|entry| live(entry).is_some());
        if let Some(handle) = known.informers.iter().filter(|entry| entry.query == *query).find_map(live) {
            return AnyInformer::of_handle(handle);
        }
        let informer = AnyInformer::of_parts(parts);
        known
            .informers
            .push(SharedEntry { query: query.clone(), informer: Arc::downgrade(&informer.handle) });
        informer
    }

    /// Gives a function a name, once and for all.
    ///
    /// One that captures values is refused: two of one type may differ in what they captured.
    fn name_function<F: 'static>(&self, name: &str) -> Result<Arc<str>, NameRefused> {
        if size_of::<F>() != 0 {
            return Err(NameRefused::Captures(name.to_owned()));
        }
        let function = TypeId::of::<F>();
        let mut known = self.shared.known.lock();
        let name: Arc<str> = name.into();
        match *known.functions.entry(name.clone()).or_insert(function) == function {
            true => Ok(name),
            false => Err(NameRefused::Taken(name.to_string())),
        }
    }

    fn informers(&self) -> Vec<Arc<Handle>> {
        self.shared.known.lock().informers.iter().filter_map(|answer| answer.informer.upgrade()).collect()
    }
}

/// Asks a factory for an informer.
///
/// Equal queries get the same informer; everything that decides what is cached is part of the query.
#[must_use = "nothing is watched until the informer is built"]
pub struct InformerBuilder<W: Watched> {
    request: InformerRequest,
    watched: PhantomData<fn() -> W>,
}

/// What is asked of a factory, whatever the type of the objects.
pub(crate) struct InformerRequest {
    factory: SharedInformerFactory,
    query: Query,
    /// All but where the objects come from.
    parts: InformerParts,
    /// Labels to index, which changes no answer.
    labels: BTreeSet<Arc<str>>,
    hook: Option<OptionsHook>,
    keeps: Option<Keeps>,
    on_error: Vec<WatchErrorHandler>,
    /// The only object that is read, if there is only one.
    object_name: Option<String>,
    on_build: Option<OnBuild>,
}

/// Called with the informer that is built, its namespaces (empty: all), and the name of the only object that it reads.
type OnBuild = Box<dyn FnOnce(&AnyInformer, Vec<Arc<str>>, Option<String>) + Send + Sync>;

impl<W: Watched> InformerBuilder<W> {
    pub(crate) fn new(factory: SharedInformerFactory, dynamic_type: W::DynamicType) -> Self {
        let query = Query {
            marker: TypeId::of::<W>(),
            kind: W::kind_of(&dynamic_type),
            representation: W::form(),
            namespaces: BTreeSet::new(),
            labels: Selector::default(),
            fields: Default::default(),
            first_list: FirstList::default(),
            page_size: None,
            poll: None,
            item_form: W::item_form(),
            managed_fields: ManagedFields::default(),
            largest_object: None,
            is_part: false,
            transform: Function::None,
            hook: Function::None,
        };
        let parts = InformerParts::new::<W>(query.kind.clone(), &factory.shared.config);
        let (labels, on_error) = (BTreeSet::new(), Vec::new());
        let (hook, keeps, object_name, on_build) = Default::default();
        let request =
            InformerRequest { factory, query, parts, labels, hook, keeps, on_error, object_name, on_build };
        Self { request, watched: PhantomData }
    }

    /// Sets the name that the field selector asks for, if it asks for one name only.
    pub(crate) fn object_name(mut self, name: Option<String>) -> Self {
        self.request.object_name = name;
        self
    }

    /// Keeps only this replica's part of the objects.
    pub(crate) fn keeping(mut self, keeps: Option<Keeps>) -> Self {
        self.request.query.is_part = keeps.is_some();
        self.request.keeps = keeps;
        self
    }

    /// Sets what is called once the informer is built.
    pub(crate) fn on_build(mut self, call: OnBuild) -> Self {
        self.request.on_build = Some(call);
        self
    }

    /// Keeps to a namespace; called again, to several, merged into one cache.
    ///
    /// An empty one means all, whatever else is named: a namespace that is not configured then narrows nothing.
    /// A cluster-scoped kind ignores it, which is logged.
    pub fn namespace(mut self, namespace: impl Into<Arc<str>>) -> Self {
        let namespace = namespace.into();
        match self.request.query.kind.scope {
            Scope::Cluster if namespace.is_empty() => {}
            Scope::Namespaced => drop(self.request.query.namespaces.insert(namespace)),
            Scope::Cluster => {
                tracing::warn!(kind = %self.request.query.kind, "cluster-scoped: namespace left out")
            }
        }
        self
    }

    /// Keeps to the objects whose labels match, in Kubernetes' syntax.
    ///
    /// # Errors
    /// The selector can't be read.
    pub fn label_selector(mut self, selector: &str) -> Result<Self, InvalidSelector> {
        self.request.query.labels = selector.parse()?;
        Ok(self)
    }

    /// Keeps to the objects whose fields match, in Kubernetes' syntax; the server knows only some fields.
    ///
    /// # Errors
    /// The selector can't be read.
    pub fn field_selector(mut self, selector: &str) -> Result<Self, InvalidSelector> {
        self.request.query.fields = selector.parse()?;
        self.request.object_name = None;
        Ok(self)
    }

    /// Lists in pages of this size, instead of as a stream.
    pub fn page_size(mut self, size: u32) -> Self {
        self.request.query.page_size = Some(size);
        if self.request.query.first_list == FirstList::Streaming {
            self.request.query.first_list = FirstList::Paged;
        }
        self
    }

    /// Takes the first list at whatever version the server has at hand: cheap, and possibly stale.
    pub fn any_version(mut self) -> Self {
        self.request.query.first_list = FirstList::AnyVersion;
        self
    }

    /// Lists so often and opens no watch: for kinds that can be listed and not watched, as those of `metrics.k8s.io`.
    ///
    /// A second at least. The cache shows what the last list showed; a controller's own write is shown by the next.
    pub fn poll_every(mut self, period: Duration) -> Self {
        self.request.query.poll = Some(period);
        self
    }

    /// Decodes and keeps managedFields, which are dropped otherwise.
    pub fn keep_managed_fields(mut self) -> Self {
        self.request.query.managed_fields = ManagedFields::Keep;
        self
    }

    /// Keeps the objects as bytes, and decodes each when somebody reads it. This takes much less memory.
    ///
    /// The listers, handlers and indexes are the same. A read costs the decoding, unless
    /// somebody still holds the object; a controller's own enqueuing costs none. An object that does not decode is noticed
    /// when it is read: it is unreadable from then on, and no earlier state of it is kept.
    ///
    /// An index by a function of the whole object decodes every object on arrival, and a
    /// [transform](Self::transform) decodes and encodes it.
    pub fn compact(mut self) -> Self {
        self.request.query.item_form = ItemForm::Bytes;
        self
    }

    /// Indexes a label, so that selectors that ask for it need not look at every object.
    ///
    /// It is not part of the query: all users of the informer share the index.
    pub fn index_label(mut self, key: impl Into<Arc<str>>) -> Self {
        self.request.labels.insert(key.into());
        self
    }

    /// Bounds the JSON of one object: 32 MiB unless set; a larger one fails the list or watch that holds it.
    pub fn largest_object(mut self, bytes: usize) -> Self {
        self.request.query.largest_object = Some(bytes);
        self
    }

    /// Changes each object before it is cached; such an informer is not shared.
    ///
    /// Typically it drops what nobody reads, to save memory. It must leave the name, namespace, UID and resource version
    /// alone. A failure or a panic makes the object unreadable; an earlier state that is cached stays, and is marked. The
    /// object is tried again when it comes again, and at every resync if the function may fail.
    pub fn transform<T: Transformed>(
        mut self,
        change: impl Fn(&mut W::Object) -> T + Send + Sync + 'static,
    ) -> Self {
        self.request.parts.transform = Some(Transform::new(change).erased());
        self.request.query.transform = Function::Unnamed;
        self
    }

    /// Changes each object before it is cached; the name makes the informer one that can be shared.
    ///
    /// # Errors
    /// The name stands for another function in this factory, or the function captures values.
    pub fn named_transform<T, F>(mut self, name: &str, change: F) -> Result<Self, NameRefused>
    where
        T: Transformed,
        F: Fn(&mut W::Object) -> T + Send + Sync + 'static,
    {
        let name = self.request.factory.name_function::<F>(name)?;
        self.request.parts.transform = Some(Transform::new(change).erased());
        self.request.query.transform = Function::Named(name);
        Ok(self)
    }

    /// Changes the options of every list and watch; such an informer is not shared.
    pub fn options_hook(mut self, hook: impl Fn(&mut ListOptions) + Send + Sync + 'static) -> Self {
        self.request.hook = Some(Arc::new(hook));
        self.request.query.hook = Function::Unnamed;
        self
    }

    /// Changes the options of every list and watch; the name makes the informer one that can be shared.
    ///
    /// # Errors
    /// The name stands for another function in this factory, or the function captures values.
    pub fn named_options_hook<F>(mut self, name: &str, hook: F) -> Result<Self, NameRefused>
    where
        F: Fn(&mut ListOptions) + Send + Sync + 'static,
    {
        let name = self.request.factory.name_function::<F>(name)?;
        self.request.hook = Some(Arc::new(hook));
        self.request.query.hook = Function::Named(name);
        Ok(self)
    }

    /// Calls a function at every failure to list or watch, in addition to the factory's handler or the log.
    ///
    /// It is not part of the query: a shared informer calls the handlers of all who asked for it, for as
    /// long as something of theirs is held: the informer that [`build`](Self::build) returned, a lister, a registration.
    pub fn on_watch_error(mut self, handler: impl Fn(&WatchError) + Send + Sync + 'static) -> Self {
        self.request.on_error.push(Arc::new(handler));
        self
    }

    /// Finds the informer of this query, or builds it.
    ///
    /// It starts with its factory, manager or cluster. If that already runs as a manager or a cluster, it starts at once.
    pub fn build(self) -> SharedInformer<W> {
        SharedInformer::of(self.request.build())
    }

    /// Builds the informer and returns its reader.
    pub fn lister(self) -> W::Lister {
        self.build().lister()
    }

    /// Builds the informer and begins a handler.
    pub fn handler(self) -> HandlerBuilder<W> {
        self.build().handler()
    }

    /// Builds the informer and registers a handler.
    pub fn add_handler(self, handler: impl EventHandler<W::Object>) -> Registration {
        self.build().add_handler(handler)
    }
}

impl InformerRequest {
    fn build(mut self) -> AnyInformer {
        self.query.normalise();
        let (factory, shared) = (self.factory.clone(), &*self.factory.shared);
        let parts = InformerParts {
            cluster: factory.cluster(),
            feeds: self
                .query
                .extents()
                .into_iter()
                .enumerate()
                .map(|(at, extent)| self.feed(at, extent))
                .collect(),
            stop: shared.stop.child_token(),
            fleet: shared.tasks.clone(),
            is_part: self.keeps.is_some(),
            is_altered: self.hook.is_some(),
            selector: self.query.selector(),
            ..self.parts
        };
        let informer = factory.find_or_build(&self.query, parts).hearing(self.on_error);
        for key in self.labels {
            // There is one already where somebody else asked for it.
            informer.handle.core.indexer.index(IndexDefinition::label(key)).ok();
        }
        if let Some(call) = self.on_build {
            call(&informer, self.query.namespaces.into_iter().collect(), self.object_name);
        }
        informer
    }

    fn feed(&self, at: usize, extent: Extent) -> ReflectorTask {
        let (query, shared) = (&self.query, &*self.factory.shared);
        let selector =
            |is_everything: bool, selector: &dyn fmt::Display| (!is_everything).then(|| selector.to_string());
        let namespace = match &extent {
            Extent::All => None,
            Extent::Namespace(namespace) => Some(namespace.to_string()),
        };
        let source = ClientSource::new(shared.client.clone(), self.parts.object.object, query.kind.clone());
        let source = ClientSource {
            namespace,
            representation: query.representation,
            managed_fields: query.managed_fields,
            item_form: query.item_form,
            label_selector: selector(query.labels.is_everything(), &query.labels),
            field_selector: selector(query.fields.is_everything(), &query.fields),
            hook: self.hook.clone(),
            keeps: self.keeps.clone(),
            largest_object: query.largest_object.unwrap_or(source.largest_object).min(u32::MAX as usize),
            ..source
        };
        let config = ReflectorConfig {
            name: name_of(&query.kind, shared.cluster.as_deref()).into(),
            first_list: query.first_list,
            page_size: query.page_size,
            poll: query.poll.or(shared.config.poll),
            // One shows all of the cache again.
            resync: shared.config.resync.filter(|_| at == 0),
            ..shared.config.clone()
        };
        ReflectorTask::new(extent, source, config)
    }
}

impl_debug!([W: Watched] InformerBuilder<W>, this => query: this.request.query);

impl_debug!(SharedInformerFactory, this => informers: this.sync_states());
