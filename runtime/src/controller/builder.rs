//! The builder of a controller: what it reconciles, what feeds it, and its settings.

use std::{error::Error, future::Future, marker::PhantomData, sync::Arc, time::Duration};

use futures::Stream;

use super::{
    Action, Context, FromFn, Panics, Reconciler,
    kube_rs::KubeRs,
    plan::{Definition, Plan, Prepare, prepare},
    predicate::Predicate,
    settings::Terminating,
    sources::source,
    stream_source::StreamSource,
    watch::{Enqueues, Watch},
};
use crate::{
    informer::{Marker, Watched},
    object::{Kind, ObjectKey},
    store::{FieldSelector, InvalidSelector, Selector},
    workqueue::{RateLimit, RateLimiter},
    writes::Use,
};

/// Runs a [`Reconciler`] for every object of a kind, whenever something may have changed.
///
/// Built here, run by a [`Manager`](crate::manager::Manager).
///
/// | Setting | Default |
/// |---|---|
/// | [`workers`](Self::workers) | 1 |
/// | [`rate_limit`](Self::rate_limit) | none |
/// | [`backoff`](Self::backoff) | 5 ms, doubled with each failure up to 1,000 s, with a pause of ten failures at 5 s |
/// | [`retry_rate`](Self::retry_rate) | the rate limit, or 10 retries a second, burst 100 |
/// | [`storm_limit`](Self::storm_limit) | 10 runs that write, then one a second, for each key |
/// | [`floor`](Self::floor) | 1 s |
/// | [`deadline`](Self::deadline), [`sync_timeout`](Self::sync_timeout) | none |
/// | [`panics`](Self::panics) | [`Panics::Contain`] |
///
/// ```
/// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// use watchkeeper::prelude::*;
///
/// # fn controller<R: Reconciler<ConfigMap>>(reconciler: R) -> Result<Controller<ConfigMap, R>, Box<dyn std::error::Error>> {
/// Ok(Controller::new(reconciler)
///     .namespace("shop")
///     .label_selector("tier=gold")?
///     .reads::<Secret>()
///     .workers(8)
///     .rate_limit(RateLimit::per_second(50).burst(100))
///     .deadline(Duration::from_secs(60)))
/// # }
/// ```
///
/// The book has more: [the queue](https://github.com/watchkeeper/watchkeeper/blob/main/book/src/explain/queue.md).
#[must_use = "a controller runs once a manager has it"]
pub struct Controller<K: Marker, R> {
    definition: Definition,
    /// Made where the kind is known to be watched.
    prepare: Prepare,
    types: PhantomData<fn(K) -> R>,
}

impl<K: Watched<DynamicType = ()>, R: Reconciler<K>> Controller<K, R> {
    /// Reconciles every object of a kind that its type names.
    pub fn new(reconciler: R) -> Self {
        Self::of((), reconciler)
    }
}

impl<K: Watched<DynamicType = ()>, F> Controller<K, FromFn<F>> {
    /// Reconciles with a function, for small jobs: it gets neither cleanups nor deletions.
    ///
    /// Each run has a clone of it, and of what it captures.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use watchkeeper::prelude::*;
    ///
    /// let greeting = Arc::new("hello".to_owned());
    /// let controller = Controller::from_fn(async move |map: Arc<ConfigMap>, cx: Context<ConfigMap>| {
    ///     println!("{greeting} {} because {}", map.name_any(), cx.reason());
    ///     Ok::<_, watchkeeper::Error>(Action::await_change())
    /// });
    /// # let _ = controller;
    /// ```
    pub fn from_fn<Running, E>(reconcile: F) -> Self
    where
        F: FnOnce(Arc<K::Object>, Context<K>) -> Running + Clone + Send + Sync + 'static,
        Running: Future<Output = Result<Action, E>> + Send,
        E: Into<Box<dyn Error + Send + Sync>> + Send,
    {
        Self::of((), FromFn(reconcile))
    }
}

impl<K: Watched<DynamicType = (), Object = K>> Controller<K, ()> {
    /// Runs a `reconcile` and an `error_policy` that were written for kube-rs, as the first step of a migration.
    ///
    /// Both stay as they are, except for one line: `use kube::runtime::controller::Action` becomes
    /// `use watchkeeper::Action`, which has `requeue` and `await_change` as well. As in kube-rs, objects that are being
    /// deleted are reconciled too, and what the function writes with its own client triggers it again.
    ///
    /// After an error, the policy decides:
    ///
    /// | The policy returns | The key runs again |
    /// |---|---|
    /// | `Action::requeue(d)` | not before `d` and its back-off have passed, unless something changes |
    /// | `Action::await_change()` | when something changes |
    ///
    /// Jitter and priority of what the policy returns are ignored. The back-off grows with each failure in a row, up to
    /// 1,000 s. `.backoff(ItemExponentialFailure::new(d, d))` keeps it constant. Not promised: the concurrency of kube-rs. One
    /// run is under way at a time unless [`workers`](Self::workers) allows more.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use watchkeeper::prelude::*;
    ///
    /// struct Ctx;
    ///
    /// async fn reconcile(map: Arc<ConfigMap>, _: Arc<Ctx>) -> Result<Action, kube::Error> {
    ///     println!("{}", map.name_any());
    ///     Ok(Action::requeue(Duration::from_secs(300)))
    /// }
    ///
    /// fn error_policy(_: Arc<ConfigMap>, _: &kube::Error, _: Arc<Ctx>) -> Action {
    ///     Action::requeue(Duration::from_secs(5))
    /// }
    ///
    /// let controller = Controller::from_kube_rs(reconcile, error_policy, Arc::new(Ctx));
    /// # let _ = controller;
    /// ```
    ///
    /// The book has more: [from kube-rs](https://github.com/watchkeeper/watchkeeper/blob/main/book/src/coming-from/kube-rs.md).
    pub fn from_kube_rs<Running, E, C>(
        reconcile: impl Fn(Arc<K>, Arc<C>) -> Running + Send + Sync + 'static,
        error_policy: impl Fn(Arc<K>, &E, Arc<C>) -> Action + Send + Sync + 'static,
        context: Arc<C>,
    ) -> Controller<K, impl Reconciler<K>>
    where
        Running: Future<Output = Result<Action, E>> + Send,
        E: Error + Send + Sync + 'static,
        C: Send + Sync + 'static,
    {
        let mut controller = Controller::new(KubeRs { reconcile, error_policy, context });
        controller.definition.settings.terminating = Terminating::Reconcile;
        controller
    }
}

impl<K: Watched, R: Reconciler<K>> Controller<K, R> {
    /// Reconciles every object of what a marker asks for: `Controller::for_kind(Dynamic::new(kind), ..)`.
    pub fn for_kind(marker: K, reconciler: R) -> Self {
        Self::of(marker.dynamic_type(), reconciler)
    }

    fn of(dynamic_type: K::DynamicType, reconciler: R) -> Self {
        let kind = K::kind_of(&dynamic_type);
        let mut definition = Definition::new(kind.clone());
        definition.rights.watch(&kind);
        if K::has_status() {
            definition.rights.allow(&kind, Use::PatchStatus);
        }
        let prepare: Prepare =
            Box::new(move |definition, env| prepare::<K, R>(reconciler, dynamic_type, definition, env));
        Self { definition, prepare, types: PhantomData }
    }
}

// Not bound by `Watched`: a kind that can't be watched has its one error where its controller is made.
impl<K: Marker, R> Controller<K, R> {
    /// Names the controller; `<plural>.<group>` unless it is named.
    ///
    /// Two controllers of one manager can't have the same name. It is the field manager of what the controller writes,
    /// unless [`field_manager`](Self::field_manager) sets another.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.definition.settings.name = name.into().into();
        self
    }

    /// Sets the field manager of the controller's writes: its name unless set.
    ///
    /// The API server keeps by this name which fields an apply owns, and removes those that the next apply leaves out.
    /// Under another field manager than before, what was applied earlier stays, with its old owner, although it is
    /// applied no more: when a controller is renamed, keep its field manager by setting the old name here. 1 to 128 of
    /// a-z, A-Z, 0-9, '.', '-', '_' and '/'; anything else is refused at the start.
    pub fn field_manager(mut self, field_manager: impl Into<String>) -> Self {
        self.definition.settings.field_manager = Some(field_manager.into());
        self
    }

    /// Restricts the controller to a namespace: the reconciled kind and all that feed it. Each call adds a namespace.
    ///
    /// Each namespace has caches of its own, and its objects run as soon as these have synced: one that the
    /// program may not read delays no other. An empty name means all. Kinds without namespaces ignore it.
    pub fn namespace(mut self, namespace: impl Into<Arc<str>>) -> Self {
        let (namespace, namespaces) = (namespace.into(), &mut self.definition.settings.namespaces);
        match namespace.is_empty() {
            true => namespaces.clear(),
            false if namespaces.contains(&namespace) => {}
            false => namespaces.push(namespace),
        }
        self
    }

    /// Reconciles only objects whose labels match, in Kubernetes' syntax.
    ///
    /// Kinds that feed the controller are watched without it. An object that leaves the selection is not `deleted`: that
    /// runs only once the server says that it is gone, which costs a GET. It keeps the controller's finalizer, for
    /// the next controller that selects it.
    ///
    /// # Errors
    /// The selector can't be read.
    pub fn label_selector(mut self, selector: &str) -> Result<Self, InvalidSelector> {
        selector.parse::<Selector>()?;
        self.definition.selection.labels = selector.to_owned();
        Ok(self.checking_deletions())
    }

    /// Reconciles only objects whose fields match; the server knows only some fields of each kind.
    ///
    /// As for [`label_selector`](Self::label_selector) otherwise.
    ///
    /// # Errors
    /// The selector can't be read.
    pub fn field_selector(mut self, selector: &str) -> Result<Self, InvalidSelector> {
        selector.parse::<FieldSelector>()?;
        self.definition.selection.fields = selector.to_owned();
        Ok(self.checking_deletions())
    }

    /// Allows the GET that distinguishes what left the selection from what is gone.
    fn checking_deletions(mut self) -> Self {
        self.definition.rights.allow(&self.definition.kind, Use::Get);
        self
    }

    /// Runs only for changes of the reconciled objects that pass. The beginning of a deletion always does, and so does a
    /// change that takes the controller's finalizer off an object.
    ///
    /// It does not apply to the kinds that feed the controller.
    pub fn predicate(mut self, predicate: Predicate<K::Seen>) -> Self {
        self.definition.predicate = Some(Box::new(predicate));
        self
    }

    /// Watches a kind whose objects the reconciled ones control, and enqueues the owner of each that changes.
    ///
    /// Short for `.watch(Watch::<C>::new().owned())`: see [`Watch::owned`].
    pub fn owns<C: Watched<DynamicType = ()>>(self) -> Self {
        self.watch(Watch::<C>::new().owned())
    }

    /// Watches another kind, and enqueues the keys that a function returns for each object that changes.
    ///
    /// Short for `.watch(Watch::<W>::new().mapped(..))`: see [`Watch::mapped`]. To enqueue the objects that an index finds,
    /// as with `#[informer(index = "by_secret", path = name)]` on a field that refers to secrets:
    /// `.watches::<Secret>(move |secret| databases.by_secret(secret.name()).keys())`.
    pub fn watches<W: Watched<DynamicType = ()>>(
        self,
        mapping: impl Fn(&W::Object) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Self {
        self.watch(Watch::<W>::new().mapped(mapping))
    }

    /// Declares that the reconciler reads a kind: it starts only after every informer of `W` has synced.
    ///
    /// Runs read it by [`Context::lister`](super::Context::lister), and repeat when what they read changes. Short for `.watch(Watch::<W>::new())`.
    pub fn reads<W: Watched<DynamicType = ()>>(self) -> Self {
        self.watch(Watch::<W>::new())
    }

    /// Watches a kind as a [`Watch`] says: which objects, in which cluster, and which keys their changes enqueue.
    ///
    /// - [`owned`](Watch::owned): the controller also gets the permission to apply these objects.
    /// - [`mapped`](Watch::mapped): the keys that a function returns.
    /// - Neither: the reconciler reads these objects, and starts only after their cache has synced. If the program asked
    ///   the manager for informers of the kind, and the watch is not narrowed, the controller waits for those. Otherwise
    ///   it gets an informer of its own, in the controller's namespaces.
    ///
    /// A controller without such reads waits for everything that the program asked the manager for before the start. It
    /// never waits for a kind that only another controller watches.
    ///
    /// ```
    /// # use k8s_openapi::api::{apps::v1::Deployment, core::v1::{ConfigMap, Secret}};
    /// # use watchkeeper::{controller::{Predicate, Watch}, informer::Metadata, prelude::*};
    /// # fn watching<R: Reconciler<ConfigMap>>(controller: Controller<ConfigMap, R>) -> Controller<ConfigMap, R> {
    /// controller
    ///     .watch(Watch::<Deployment>::new().owned().only_if(Predicate::generation()))
    ///     .watch(Watch::<Metadata<Secret>>::new().mapped(|secret| vec![ObjectKey::new("shop", secret.name_any())]))
    ///     .watch(Watch::<ConfigMap>::new().namespace("ops").named("defaults"))
    /// # }
    /// ```
    pub fn watch<W: Watched>(mut self, watch: Watch<W>) -> Self {
        let (kind, definition) = (W::kind_of(watch.dynamic_type()), &mut self.definition);
        let is_owned = matches!(watch.enqueues, Enqueues::Owner);
        match &watch.cluster {
            Some(cluster) => {
                definition.clusters.push(cluster.clone());
                if is_owned {
                    definition.owned_elsewhere = Some(format!("{}/{kind}", cluster.name()));
                }
            }
            None => definition.allow_watch(&kind, watch.narrowing()),
        }
        if is_owned {
            definition.rights.allow(&kind, Use::Apply);
            // A child may belong to an earlier owner of the same name: then the present owner is read.
            definition.rights.allow(&definition.kind, Use::Get);
        }
        definition.sources.push(source(watch));
        self
    }

    /// Runs the keys that a stream names: a webhook, a timer, another system.
    ///
    /// The stream is read once the caches have synced. While 256 of its keys wait for a run, the stream is not polled. So a
    /// bounded channel holds up its senders (wrap its receiver:
    /// `tokio_stream`'s `ReceiverStream`, or `futures::channel::mpsc`). A key that waits already merges with it. A
    /// key without an object runs nothing. When the stream ends, or panics, the controller goes on without it.
    pub fn source(mut self, keys: impl Stream<Item = ObjectKey> + Send + 'static) -> Self {
        self.definition.streams.push(StreamSource::new(keys));
        self
    }

    /// Declares what the reconciler does with a kind, in addition to what follows from the rest.
    ///
    /// Only [`Manager::rules`](crate::Manager::rules) is made of it: it neither allows nor forbids anything here. These
    /// are declared already:
    ///
    /// - the status of the reconciled kind, if its type has one, and what the [`finalizer`](Self::finalizer) needs;
    /// - [`Use::Apply`] of what it [`owns`](Self::owns);
    /// - lists and watches of what it owns, [`watches`](Self::watches) and [`reads`](Self::reads).
    ///
    /// What a run does beyond that is logged once, at debug. For kinds without namespaces, and for writes to namespaces that
    /// are not the controller's own, see [`Rules`](crate::manager::Rules).
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
    /// # use watchkeeper::{prelude::*, writes::Use};
    /// # fn declared<R: Reconciler<ConfigMap>>(controller: Controller<ConfigMap, R>) -> Controller<ConfigMap, R> {
    /// controller.uses::<Secret>(Use::Get).uses::<Namespace>(Use::Apply).records_events()
    /// # }
    /// ```
    pub fn uses<C: Watched<DynamicType = ()>>(self, what: Use) -> Self {
        self.uses_kind(&C::kind_of(&()), what)
    }

    /// Declares what the reconciler does with a kind that is known only at run time, as [`uses`](Self::uses) does.
    pub fn uses_kind(mut self, kind: &Kind, what: Use) -> Self {
        self.definition.rights.allow(kind, what);
        self
    }

    /// Declares that the reconciler records [events](crate::Context::event).
    pub fn records_events(mut self) -> Self {
        self.definition.rights.record_events(&Kind::of::<k8s_openapi::api::events::v1::Event>());
        self
    }

    /// Adds this finalizer to every object, and runs `cleanup` before the object may go.
    ///
    /// The finalizer is added before an object is first reconciled, and removed once cleanup says done. If somebody takes
    /// it off before, it is added again. It must be a qualified name, such as `example.dev/volume`.
    pub fn finalizer(mut self, finalizer: impl Into<String>) -> Self {
        self.definition.settings.finalizer = Some(finalizer.into());
        self.definition.rights.allow(&self.definition.kind, Use::Patch);
        self
    }

    /// Sets how many reconciles run at once: 1 unless set. Zero is refused at the start.
    pub fn workers(mut self, workers: usize) -> Self {
        self.definition.settings.workers = workers;
        self
    }

    /// Shares workers and rate out between namespaces: one with many objects does not delay the others.
    ///
    /// Not so unless set. See [`fair_by`](Self::fair_by).
    pub fn fair_by_namespace(self) -> Self {
        self.fair_by(|key| Arc::<str>::from(key.namespace().unwrap_or_default()))
    }

    /// Shares workers and rate out between tenants, which a function names by the key.
    ///
    /// The next key is one of the tenant with the fewest runs in progress; among those, of the tenant that was served
    /// longest ago. A start that had to wait for the rate goes to the one that was served longest ago, unless that has its
    /// part of the workers. So each has an equal part of the [workers](Self::workers) and of the [rate](Self::rate_limit) as long
    /// as it has keys. A tenant that comes new waits for a worker, and at most for one turn of each of the others.
    /// [Priorities](crate::workqueue::Priority) order the keys of one tenant. [Retries](Self::retry_rate) wait for their
    /// tokens together.
    ///
    /// The function is called once when a key is queued that was not known, while the queue is locked: it must return at
    /// once. If it panics, the tenant is `""`. Not fair unless set: keys are then served as they come, and a namespace
    /// that queues 100,000 of them comes before all that come later.
    ///
    /// ```
    /// # use watchkeeper::prelude::*;
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # fn fair<R: Reconciler<ConfigMap>>(controller: Controller<ConfigMap, R>) -> Controller<ConfigMap, R> {
    /// // Namespaces `shop-web` and `shop-api` are one tenant.
    /// let tenant = |key: &ObjectKey| key.namespace().and_then(|all| all.split('-').next()).unwrap_or_default().to_owned();
    /// controller.workers(8).fair_by(tenant)
    /// # }
    /// ```
    pub fn fair_by<T: Into<Arc<str>>>(
        mut self,
        tenant: impl Fn(&ObjectKey) -> T + Send + Sync + 'static,
    ) -> Self {
        self.definition.settings.tenant = Some(Arc::new(move |key| tenant(key).into()));
        self
    }

    /// Says how long failed keys wait: 5 ms, doubled with each failure up to 1,000 s with a pause at 5 s, unless set.
    ///
    /// The wait stays at 5 s for ten failures, so that a key that fails by chance gets twenty attempts in the first minute.
    ///
    /// ```
    /// # use watchkeeper::prelude::*;
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # fn slower<R: Reconciler<ConfigMap>>(controller: Controller<ConfigMap, R>) -> Controller<ConfigMap, R> {
    /// let (fast, slow) = (Duration::from_millis(100), Duration::from_secs(60));
    /// controller.backoff(ItemExponentialFailure::new(fast, slow))
    /// # }
    /// ```
    ///
    /// Any [`RateLimiter`] does: [`ItemFastSlow`](crate::workqueue::ItemFastSlow), the slower of two
    /// ([`MaxOf`](crate::workqueue::MaxOf)), one with a cap ([`WithMaxWait`](crate::workqueue::WithMaxWait)), one's
    /// own. One that panics counts as if it had asked for the [floor](Self::floor).
    pub fn backoff(mut self, backoff: impl RateLimiter) -> Self {
        self.definition.settings.backoff = Arc::new(backoff);
        self
    }

    /// Bounds the retries of failures, all keys together: [`rate_limit`](Self::rate_limit) or 10 a second, burst 100, unless set.
    ///
    /// `None` removes the bound.
    pub fn retry_rate(mut self, rate: impl Into<Option<RateLimit>>) -> Self {
        self.definition.settings.retry_rate = Some(rate.into());
        self
    }

    /// Bounds how often the reconciler's code starts, whatever causes it; not bounded unless set.
    ///
    /// Over any window, `reconcile`, `cleanup` and each `deleted` together start at most burst + rate × window times. A run
    /// that has to wait for its turn after a slow request (a finalizer that is added) comes before those that wait in line.
    /// Without it, retries of failures share the [`retry_rate`](Self::retry_rate), and first runs are not slowed.
    pub fn rate_limit(mut self, rate: RateLimit) -> Self {
        self.definition.settings.rate_limit = Some(rate);
        self
    }

    /// Bounds how often one key runs if its runs write: 10 at once, then one a second, unless set.
    ///
    /// A run is charged if it was not a retry and either sent a write or used [`Context::client`] while the object's
    /// version changed. A run that ends in a conflict is always charged. A run that did neither while the object
    /// moved may have written through an unknown client: it costs a tenth, or a tenth of a second, whichever
    /// is less; so does a run for a change that took the context's client, since what it wrote may show only after
    /// its end. A key past its budget waits; that is logged and counted. It bounds what two operators that overwrite
    /// each other do to the API server.
    pub fn storm_limit(mut self, limit: RateLimit) -> Self {
        self.definition.settings.storm_limit = limit;
        self
    }

    /// Sets how soon a real change brings a failed key forward: 1 s unless set.
    ///
    /// A key that backs off runs, once something changed, after the lesser of its back-off and this.
    pub fn floor(mut self, floor: Duration) -> Self {
        self.definition.settings.floor = floor;
        self
    }

    /// Bounds how long one call of the reconciler may take; not bounded unless set.
    ///
    /// A call that takes longer is dropped where it waits, and counts as an error of its run. Without it, a call
    /// that never ends keeps its worker, and its key, for good. Zero is refused at the start.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.definition.settings.deadline = Some(deadline);
        self
    }

    /// Makes the controller give up if its caches have not synced within this time; it waits for ever unless set.
    ///
    /// [`Manager::run`](crate::Manager::run) then stops with the error. Zero is refused at the start. A controller of a
    /// [`Fleet`](crate::manager::Fleet) waits for ever in any case, because its cluster may be away. While it waits, it
    /// logs for which caches, and why: after 30 s, then less and less often.
    pub fn sync_timeout(mut self, within: Duration) -> Self {
        self.definition.settings.sync_timeout = Some(within);
        self
    }

    /// Says what a panic does: [`Panics::Contain`] unless set.
    pub fn panics(mut self, panics: Panics) -> Self {
        self.definition.settings.panics = panics;
        self
    }

    /// Runs keys again before their caches show what they wrote: what tests compare with.
    #[doc(hidden)]
    pub fn never_wait_for_own_writes(mut self) -> Self {
        self.definition.settings.waits_for_own = false;
        self
    }

    /// Forgets the types.
    pub(crate) fn plan(self) -> Plan {
        Plan { definition: self.definition, prepare: self.prepare }
    }
}

impl_debug!([K: Marker, R] Controller<K, R>, this => name: this.definition.settings.name);
