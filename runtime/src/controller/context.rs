//! The context of a run: the key, the attempt, and how to write.

use std::{
    any::{TypeId, type_name},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use kube::Resource as _;
use prometheus_client::metrics::counter::Counter;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    Cluster, Reason, Watch,
    reads::{OwnedCache, ReadCacheEntry, ReadCaches, ReadFeed, RunMoments},
    watch::Narrowing,
};
use crate::{
    backoff::random_seed,
    clock::WallClock,
    informer::{Marker, Watched},
    keys::{Keys, ReadKind},
    object::{AsObject, Kind, Object, ObjectKey, ObjectRef, Scope, Statused},
    store::{AnyLister, Lister, Objects},
    writes::{
        Apply, Author, Counters, Create, Delete, Event, Patched, Recorder, Rights, Sender, TypedObject,
        UniqueObject, WriteError, Writer, patch, patch_status,
    },
};

/// The context of one run of a reconciler; owned and cheap to clone.
///
/// A clone says that the run's work goes on: hand one to what you spawn, above all to what blocks. A leader that stops
/// does not release its Lease while somebody holds one; see [`leader_election`](crate::leader_election).
///
/// | You want to | Call | Which sends |
/// |---|---|---|
/// | keep a child as it should be | [`apply`](Self::apply) | nothing if it was applied before and still is so |
/// | make a child once, or let the server name it | [`create`](Self::create) | one request |
/// | read what is cached, and run again when it changes | [`lister`](Self::lister), [`owned`](Self::owned) | nothing |
/// | read what the server has now | [`get`](Self::get), [`get_opt`](Self::get_opt) | one request |
/// | set the status | [`patch_status`](Self::patch_status) | nothing if nothing would change |
/// | change the object itself | [`patch`](Self::patch) | nothing if nothing would change |
/// | delete an object | [`delete`](Self::delete) | one request |
/// | say something to people | [`event`](Self::event) | in the background |
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use watchkeeper::{WriteError, prelude::*};
///
/// async fn publish(map: &ConfigMap, cx: &Context<ConfigMap>) -> Result<(), WriteError> {
///     let mut copy = map.clone();
///     copy.metadata = Default::default();
///     copy.metadata.name = Some(format!("{}-copy", cx.key().name()));
///     cx.apply(copy).await?;
///     cx.event(Event::normal("Published", "the copy is up to date"));
///     Ok(())
/// }
/// ```
///
/// The book has more: [children](https://github.com/watchkeeper/watchkeeper/blob/main/book/src/tutorial/children.md).
pub struct Context<K: Marker> {
    run: Arc<RunContext<K>>,
}

struct RunContext<K: Marker> {
    base: Arc<ContextBase>,
    run_info: Arc<RunInfo>,
    /// What the run began with; `None` once it is gone.
    object: Option<Arc<K::Seen>>,
    uid_of: fn(&K::Seen) -> Option<String>,
    /// The caches that the run may read.
    reads: Arc<ReadCaches>,
}

/// What the contexts of all runs of a controller share.
pub(crate) struct ContextBase {
    pub(super) kind: Kind,
    pub(super) writer: Arc<Writer>,
    pub(super) recorder: Arc<Recorder>,
    pub(super) keys: Arc<Keys>,
    /// Has the events of a context without a controller sent, until it is dropped.
    pub(super) _events: Option<DropGuard>,
}

/// What is known of a run before it starts.
#[derive(Debug)]
pub(crate) struct RunInfo {
    pub(crate) key: ObjectKey,
    pub(crate) attempt: u32,
    pub(crate) reason: Reason,
    pub(crate) id: u64,
    /// The trace that the run belongs to, if somebody says.
    pub(crate) trace_id: Option<Arc<str>>,
    /// Whether the run took the client, and may write through it unknown.
    pub(crate) took_client: AtomicBool,
    /// What the run reads of caches, each at one moment.
    pub(crate) moments: RunMoments,
}

impl RunInfo {
    /// Whether the run took the client, and may have written through it.
    pub(crate) fn took_client(&self) -> bool {
        self.took_client.load(Ordering::Relaxed)
    }
}

impl<K: Watched> Context<K> {
    pub(crate) fn new(
        base: Arc<ContextBase>,
        run_info: Arc<RunInfo>,
        object: Option<Arc<K::Object>>,
        reads: Arc<ReadCaches>,
    ) -> Self {
        let uid_of = |object: &K::Object| object.meta().uid.clone();
        Self { run: Arc::new(RunContext { base, run_info, object, uid_of, reads }) }
    }
}

impl<K: Marker> Context<K> {
    /// Returns the key of the object that is reconciled.
    pub fn key(&self) -> &ObjectKey {
        &self.run.run_info.key
    }

    /// Counts the runs of the key since its last success: 1 on a first run.
    pub fn attempt(&self) -> u32 {
        self.run.run_info.attempt
    }

    /// Says why the run was asked for.
    pub fn reason(&self) -> &Reason {
        &self.run.run_info.reason
    }

    /// Numbers the run among those of its controller, from 1; spans carry it too.
    pub fn id(&self) -> u64 {
        self.run.run_info.id
    }

    /// Returns the id of the trace that the run belongs to, where [`Manager::trace_id`] tells it.
    ///
    /// [`Manager::trace_id`]: crate::Manager::trace_id
    pub fn trace_id(&self) -> Option<&str> {
        self.run.run_info.trace_id.as_deref()
    }

    /// Returns the client, for requests that the context has no verb for.
    ///
    /// Writes sent through it are not known as the controller's own: they enqueue the key. A run that takes it while its
    /// object changes counts as one that wrote: see [`storm_limit`](super::Controller::storm_limit).
    pub fn client(&self) -> &kube::Client {
        self.run.run_info.took_client.store(true, Ordering::Relaxed);
        self.run.base.writer.client()
    }

    /// Reads a kind from its shared cache, and has the key run again when what was read changes.
    ///
    /// The controller declares the kind by [`reads`](super::Controller::reads); informers, waiting for caches and permissions
    /// follow from that. The key then depends on what its last run read that has ended, together with what the run under way
    /// has read so far: an object by its key (also one that is not there), what an index holds under a value, what a selector
    /// matches, a namespace, everything; of [`pick`](crate::Lister::pick) what was picked. A change enqueues the key if the
    /// old or the new state of an object belongs to one of these. A write of the key's own does not.
    ///
    /// All reads of a run from one cache see one moment: that of the first. A run that reads more than 256 things of one kind
    /// depends on their namespace, or on the whole kind, which is logged once.
    ///
    /// [`Manager::lister`](crate::Manager::lister) gives listers whose reads enqueue nothing.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # use watchkeeper::prelude::*;
    /// struct Copies;
    ///
    /// impl Reconciler<ConfigMap> for Copies {
    ///     type Error = watchkeeper::Error;
    ///
    ///     async fn reconcile(&self, map: Arc<ConfigMap>, cx: &Context<ConfigMap>) -> Result<Action, Self::Error> {
    ///         let tls = cx.lister::<Secret>().get(&ObjectKey::new("shop", "tls"));
    ///         println!("{} and its secret: {}", cx.key(), tls.is_some());
    ///         // When that secret appears, changes or goes, this runs again.
    ///         Ok(Action::await_change())
    ///     }
    /// }
    ///
    /// let controller = Controller::new(Copies).reads::<Secret>();
    /// ```
    ///
    /// # Panics
    /// The controller does not declare the kind. The run fails, and the message names the line to add.
    #[track_caller]
    pub fn lister<W: Watched<DynamicType = ()>>(&self) -> W::Lister {
        let entry = self.read_entry(TypeId::of::<W>(), None);
        self.read::<W>(entry)
    }

    /// Reads what a [`Watch`](super::Watch) covers that the controller declares, where it declares several of one kind.
    ///
    /// Otherwise as [`lister`](Self::lister), panic included.
    #[track_caller]
    pub fn lister_of<W: Watched>(&self, watch: &Watch<W>) -> W::Lister {
        let entry = self.read_entry(
            TypeId::of::<W>(),
            Some(&|entry: &ReadCacheEntry| {
                let cluster = watch.cluster.as_ref().map(Cluster::name);
                entry.narrowing == *watch.narrowing()
                    && entry.elsewhere.as_deref() == cluster
                    && entry.kind == W::kind_of(watch.dynamic_type())
            }),
        );
        self.read::<W>(entry)
    }

    /// Has all reads of the run see the present moment, in caches from which it has read nothing yet.
    ///
    /// They are then about equally old. Each shows at least what woke the run. Returns the context.
    pub fn snapshot(&self) -> &Self {
        for entry in self.run.reads.reads.iter().filter(|entry| self.is_for(entry)) {
            self.moment_of(entry);
        }
        self
    }

    /// Lists the objects of a kind that the reconciled object controls, by the UID of their owner.
    ///
    /// The controller [`owns`](super::Controller::owns) the kind, so every change of these objects enqueues the key anyway. The
    /// cache gets an index of owners when somebody first asks. It shows the present moment.
    ///
    /// ```
    /// # use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
    /// # use watchkeeper::prelude::*;
    /// # fn surplus(cx: &Context<ConfigMap>) -> Vec<ObjectKey> {
    /// cx.owned::<Deployment>().iter().filter(|child| child.name() != cx.key().name()).map(|child| ObjectKey::of(&**child)).collect()
    /// # }
    /// ```
    ///
    /// # Panics
    /// The controller does not declare that it owns the kind. The run fails, and the message names the line to add.
    #[track_caller]
    pub fn owned<C: Watched<DynamicType = ()>>(&self) -> Objects<C::Object> {
        let namespace = self.key().shared_namespace();
        let fits = |cache: &&OwnedCache| {
            cache.marker == TypeId::of::<C>() && (cache.place.is_none() || cache.place.as_ref() == namespace)
        };
        let (mut caches, uid) = (self.run.reads.owned.iter().filter(fits), self.owner().uid);
        let Some(first) = caches.next() else { undeclared::<C>("owns") };
        if uid.is_empty() {
            return Objects::default();
        }
        caches.fold(first.informer.owned_by(&uid), |mut all: Objects<C::Object>, more| {
            let known = all.keys();
            let more = more.informer.owned_by::<C::Object>(&uid).into_iter();
            let more: Vec<_> = more.filter(|object| !known.contains(&ObjectKey::of(&**object))).collect();
            if !more.is_empty() {
                all = all.into_iter().chain(more).collect::<Vec<_>>().into();
            }
            all
        })
    }

    fn moment_of(&self, entry: &ReadCacheEntry) -> AnyLister {
        self.run.run_info.moments.lister(entry, &self.run.base.keys, (self.key(), self.id()))
    }

    fn is_for(&self, entry: &ReadCacheEntry) -> bool {
        entry.place.is_none() || entry.place.as_ref() == self.key().shared_namespace()
    }

    fn read_entry(
        &self,
        marker: TypeId,
        fits: Option<&dyn Fn(&ReadCacheEntry) -> bool>,
    ) -> Option<&ReadCacheEntry> {
        let fits = |entry: &&ReadCacheEntry| {
            entry.marker == marker && self.is_for(entry) && fits.is_none_or(|fits| fits(entry))
        };
        self.run.reads.reads.iter().find(fits)
    }

    #[track_caller]
    fn read<W: Watched>(&self, entry: Option<&ReadCacheEntry>) -> W::Lister {
        let Some(entry) = entry else { undeclared::<W>("reads") };
        self.moment_of(entry).cast::<W::Object>().into()
    }

    /// Applies a child of the reconciled object, server-side, when awaited.
    ///
    /// See [`Apply`] for what it sends and what it refuses. The write's version is known as the key's own, so
    /// that it does not enqueue it.
    pub fn apply<C: TypedObject>(&self, child: C) -> Apply<C> {
        Apply::new(self.run.base.writer.clone(), self.owner(), Kind::of::<C>(), child)
    }

    /// Applies an object of what a marker asks for: `cx.apply_for(Dynamic::new(kind), object)`.
    pub fn apply_for<C: Watched>(&self, marker: C, child: C::Object) -> Apply<C::Object> {
        Apply::new(self.run.base.writer.clone(), self.owner(), kind_of(&marker), child)
    }

    /// Creates a child of the reconciled object, when awaited; the server may choose its name.
    ///
    /// See [`Create`]. Children that have a name and are kept right are better [applied](Self::apply).
    pub fn create<C: TypedObject>(&self, child: C) -> Create<C> {
        Create::new(self.run.base.writer.clone(), self.owner(), Kind::of::<C>(), child)
    }

    /// Creates an object of what a marker asks for.
    pub fn create_for<C: Watched>(&self, marker: C, child: C::Object) -> Create<C::Object> {
        Create::new(self.run.base.writer.clone(), self.owner(), kind_of(&marker), child)
    }

    /// Reads an object from the server, whatever is cached.
    ///
    /// For objects that are read rarely and need not be watched; a kind that is read often, or whose changes are to enqueue keys, is
    /// better [watched](super::Controller::watches). A key without a namespace names an object in the reconciled one's.
    ///
    /// # Errors
    /// [`WriteError::NotFound`] where there is none (see [`get_opt`](Self::get_opt)), [`WriteError::Forbidden`], which
    /// names the object and the right, and whatever else the server answers.
    pub async fn get<C: TypedObject>(&self, key: &ObjectKey) -> Result<C, WriteError> {
        self.run.base.writer.get_as(&self.target(Kind::of::<C>(), key)).await
    }

    /// Reads an object from the server, as [`get`](Self::get) does; `None` where there is none.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub async fn get_opt<C: TypedObject>(&self, key: &ObjectKey) -> Result<Option<C>, WriteError> {
        or_none(self.get(key).await)
    }

    /// Reads an object of what a marker asks for from the server; `None` where there is none.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub async fn get_for<C: Watched>(
        &self,
        marker: C,
        key: &ObjectKey,
    ) -> Result<Option<C::Object>, WriteError> {
        or_none(self.run.base.writer.get_as(&self.target(kind_of(&marker), key)).await)
    }

    /// Deletes an object, when awaited, if it is still the one that was read: its UID must match.
    ///
    /// See [`Delete`] for what else can be asked for: `cx.delete(&pod).propagation(Propagation::Foreground).await?`.
    pub fn delete<Form, C: TypedObject>(&self, object: &impl AsObject<Form, Object = C>) -> Delete {
        let object = object.as_object();
        Delete::new(self.run.base.writer.clone(), self.key().clone(), Kind::of::<C>(), object)
    }

    /// Deletes an object of what a marker asks for.
    pub fn delete_for<C: Watched>(&self, marker: C, object: &C::Object) -> Delete {
        Delete::new(self.run.base.writer.clone(), self.key().clone(), kind_of(&marker), object)
    }

    /// Changes the reconciled object itself by a JSON merge patch; sends nothing if it reads like that already.
    ///
    /// For labels, annotations and the like; a status takes [`patch_status`](Self::patch_status). What the patch does
    /// not name stays; null removes a field that the object's type knows, a list is replaced whole. It carries the version of
    /// `object`, or of this key's later answer for it, so that it is known as the key's own write and enqueues no key. A
    /// field that the object's type does not know is sent at every run. Returns the object as the server answered.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use watchkeeper::prelude::*;
    /// # async fn mark(map: Arc<ConfigMap>, cx: Context<ConfigMap>) -> Result<(), watchkeeper::WriteError> {
    /// use serde_json::json;
    ///
    /// cx.patch(&map, json!({ "metadata": { "labels": { "checked": "true" } } })).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`WriteError::Conflict`] when what the patch replaces was changed by somebody else: no failure, return
    /// it (with `?`), and the key runs again soon, uncounted. [`WriteError::Unversioned`] and
    /// [`WriteError::Unidentified`] for an object that was never read.
    pub async fn patch(&self, object: &K::Seen, change: Value) -> Result<K::Seen, WriteError>
    where
        K::Seen: Object,
    {
        patch(self.patched(object), change).await
    }

    /// Brings the status of `object` to `status`; sends nothing if it reads like that already.
    ///
    /// Takes the kind's own status type, the one that `#[kube(status = "..")]` names. Built-in kinds and kinds that
    /// are known only at run time do not say theirs: see [`patch_status_as`](Self::patch_status_as).
    ///
    /// Sends a merge patch of the difference to `object`, or to this key's later answer for it, to the status
    /// subresource, carrying that version. Where `object` is the reconciled one, at the version that the run began
    /// with, the difference is to what the run began with: the new status may be written into a copy and passed with
    /// it. What `status` leaves out is removed if its type knows it, and stays if not, in the elements of lists too:
    /// another writer's fields stay untouched. A patch replaces lists whole, so one that changes a list of objects
    /// is preceded by a GET, unless an answer to this key has just shown that list.
    ///
    /// # Errors
    /// [`WriteError::Conflict`] when what the patch replaces was changed by somebody else: no failure, return
    /// it (with `?`), and the key runs again soon, uncounted. [`WriteError::NotStored`] where the server dropped
    /// fields, since its CRD does not have them. [`WriteError::Unversioned`] for an object that was never
    /// read. [`WriteError::NoStatusSubresource`] where the kind has none, [`WriteError::NotFound`] where the object
    /// is gone.
    pub async fn patch_status<S>(&self, object: &K::Seen, status: S) -> Result<(), WriteError>
    where
        K::Seen: Object + Statused<Status = S>,
        S: Serialize + DeserializeOwned,
    {
        self.patch_status_as(object, status).await
    }

    /// Brings the status of `object` to `status`, of whatever type that is.
    ///
    /// For built-in kinds, for kinds that are known only at run time, and for types that know a part of the status.
    /// A `serde_json::Value` knows everything: what it leaves out is removed. Otherwise, and in its errors, like
    /// [`patch_status`](Self::patch_status); a type that has nothing to do with the kind is
    /// [`WriteError::NotStored`].
    pub async fn patch_status_as<S>(&self, object: &K::Seen, status: S) -> Result<(), WriteError>
    where
        K::Seen: Object,
        S: Serialize + DeserializeOwned,
    {
        patch_status(self.patched(object), status).await
    }

    fn patched<'a>(&'a self, object: &'a K::Seen) -> Patched<'a, K::Seen> {
        let RunContext { base, run_info, object: own, .. } = &*self.run;
        Patched {
            writer: &base.writer,
            key: &run_info.key,
            kind: base.kind.clone(),
            object,
            own: own.as_deref(),
        }
    }

    /// Records an event about the reconciled object: `kubectl describe` shows it.
    ///
    /// Never waits and never fails: the event is sent in the background, and its result does not affect the run.
    /// Identical ones fold into a series, which is sent at once and then less and less often (after 10 s at
    /// first, every half hour at last); each object can send 25 different ones at once, and then one every five
    /// minutes. An event past this limit, or one that the server refuses, is dropped, and counted as
    /// `watchkeeper_events_dropped_total`. One that did not get through is sent again.
    ///
    /// If the run has a [trace id](Self::trace_id), the event has it in the annotation
    /// [`TRACE_ID_ANNOTATION`](crate::writes::TRACE_ID_ANNOTATION); a series has that of its latest event.
    ///
    /// It is an object of `events.k8s.io/v1` in the object's namespace, or in `default` for one that is in none.
    pub fn event(&self, event: Event) {
        self.run.base.recorder.record(self.owner(), event, self.run.run_info.trace_id.as_ref());
    }

    /// Names an object; a key without a namespace means the reconciled object's.
    fn target(&self, kind: Kind, key: &ObjectKey) -> ObjectRef {
        let namespace = match kind.scope {
            Scope::Cluster => None,
            Scope::Namespaced => key.shared_namespace().or(self.key().shared_namespace()),
        };
        let key = ObjectKey::from_parts(namespace.cloned(), key.shared_name().clone());
        ObjectRef { kind, key }
    }

    /// Returns the reconciled object, as an owner; its UID is empty if it is missing.
    fn owner(&self) -> UniqueObject {
        let RunContext { base, run_info, object, uid_of, .. } = &*self.run;
        let uid = object.as_deref().and_then(*uid_of).unwrap_or_default();
        UniqueObject { kind: base.kind.clone(), key: run_info.key.clone(), uid }
    }
}

/// Ends the run: it reads what its controller does not declare.
#[track_caller]
fn undeclared<W>(how: &str) -> ! {
    let marker = type_name::<W>();
    let marker = marker.rsplit("::").next().unwrap_or(marker);
    panic!(
        "the run reads {marker}, which its controller does not declare: add `.{how}::<{marker}>()` to the controller"
    );
}

fn kind_of<C: Watched>(marker: &C) -> Kind {
    C::kind_of(&marker.dynamic_type())
}

fn or_none<C>(found: Result<C, WriteError>) -> Result<Option<C>, WriteError> {
    match found {
        Err(error) if error.is_not_found() => Ok(None),
        found => found.map(Some),
    }
}

impl_clone!([K: Marker] Context<K>, run);

impl_debug!([K: Marker] Context<K>, this => key: this.run.run_info.key, attempt: this.run.run_info.attempt);

impl<K: Watched<DynamicType = ()>> Context<K> {
    /// Makes a context by hand, to call a reconciler from a unit test without a manager.
    ///
    /// It is that of a first run: attempt 1, reason [`Reason::Changed`], id 1. Reads and writes go through `client`,
    /// which may be the embedded API server's or a mock's. Children are owned by `object`: without the UID that a
    /// server gives it, an apply is [`OwnerGone`](crate::WriteError::OwnerGone). A status is patched only where
    /// the object has a resource version.
    ///
    /// No cache is known. An apply asks for the object with a GET and is sent, also where nothing would change. Nobody
    /// tells own writes from those of others, and no key waits for them: the next call may come at once. What a
    /// controller does around its reconciler is not done either: finalizers, deadlines, retries, containing of panics,
    /// and the limits of rates and storms. To test these, run a [`Manager`](crate::Manager).
    ///
    /// The field manager is the kind's name, as for a controller without a name. Events are sent too, in the background,
    /// and for a second at most once the last clone of the context is dropped.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    ///
    /// ```
    /// use std::convert::Infallible;
    ///
    /// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// use kube::client::Body;
    /// use watchkeeper::prelude::*;
    ///
    /// struct WaitsForSecret;
    ///
    /// impl Reconciler<ConfigMap> for WaitsForSecret {
    ///     type Error = watchkeeper::Error;
    ///
    ///     async fn reconcile(&self, map: Arc<ConfigMap>, cx: &Context<ConfigMap>) -> Result<Action, Self::Error> {
    ///         let key = ObjectKey::new("shop", map.name_any());
    ///         Ok(match cx.get_opt::<Secret>(&key).await? {
    ///             Some(_) => Action::await_change(),
    ///             None => Action::requeue_after(Duration::from_secs(60)),
    ///         })
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), watchkeeper::Error> {
    /// let nothing_found = tower::service_fn(|_: http::Request<Body>| async {
    ///     let status = r#"{"kind":"Status","status":"Failure","reason":"NotFound","message":"not found","code":404}"#;
    ///     let mut answer = http::Response::new(Body::from(status.as_bytes().to_vec()));
    ///     *answer.status_mut() = http::StatusCode::NOT_FOUND;
    ///     Ok::<_, Infallible>(answer)
    /// });
    /// let client = kube::Client::new(nothing_found, "shop");
    /// let mut map = ConfigMap::default();
    /// map.metadata.name = Some("a".into());
    ///
    /// let cx = Context::without_manager(client, &map);
    /// let action = WaitsForSecret.reconcile(map.into(), &cx).await?;
    /// assert_eq!(action, Action::requeue_after(Duration::from_secs(60)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn without_manager<Form>(
        client: kube::Client,
        object: &impl AsObject<Form, Object = K::Object>,
    ) -> Self {
        let object = object.as_object();
        made(client, K::kind_of(&()), ObjectKey::of(object), Some(object))
    }

    /// Makes the context of an object that is gone, for [`Reconciler::deleted`](super::Reconciler::deleted).
    ///
    /// Otherwise as [`without_manager`](Self::without_manager), panic included. No object is there that could own children.
    pub fn without_manager_deleted(client: kube::Client, key: &ObjectKey) -> Self {
        made(client, K::kind_of(&()), key.clone(), None)
    }
}

impl<K: Watched> Context<K> {
    /// Gives a context that was made by hand a cache to read, as the lister of a test's own
    /// [`Indexer`](crate::store::Indexer) or informer shows it.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # use watchkeeper::{prelude::*, store::Indexer};
    /// # fn test(client: kube::Client, map: &ConfigMap, tls: Secret) {
    /// let secrets = Indexer::<Secret>::new();
    /// secrets.upsert(Arc::new(tls));
    /// let cx = Context::<ConfigMap>::without_manager(client, map).with_lister::<Secret>(secrets.lister());
    /// assert_eq!(cx.lister::<Secret>().len(), 1);
    /// # }
    /// ```
    ///
    /// # Panics
    /// If the context, or what it returned, was cloned before, or if it belongs to a run.
    #[must_use]
    pub fn with_lister<W: Watched<DynamicType = ()>>(self, lister: Lister<W::Object>) -> Self {
        let kind = W::kind_of(&());
        let run = Arc::into_inner(self.run).expect("a context is given listers before it is cloned");
        let mut reads = Arc::into_inner(run.reads).expect("a context is given listers before it is used");
        let number = ReadKind(u16::try_from(reads.reads.len()).expect("a test has fewer listers"));
        reads.reads.push(ReadCacheEntry {
            marker: TypeId::of::<W>(),
            narrowing: Narrowing::default(),
            elsewhere: None,
            place: None,
            lister: lister.cast(),
            shared: Arc::new(ReadFeed::new(number, None, kind.to_string().into())),
            kind,
        });
        Self { run: Arc::new(RunContext { reads: Arc::new(reads), ..run }) }
    }

    /// Makes a context by hand for what a marker asks for: `Context::without_manager_for(Dynamic::new(kind), ..)`.
    ///
    /// Otherwise as [`without_manager`](Self::without_manager), panic included.
    pub fn without_manager_for<Form>(
        marker: K,
        client: kube::Client,
        object: &impl AsObject<Form, Object = K::Object>,
    ) -> Self {
        let object = object.as_object();
        made(client, K::kind_of(&marker.dynamic_type()), ObjectKey::of(object), Some(object))
    }
}

fn made<K: Watched>(
    client: kube::Client,
    kind: Kind,
    key: ObjectKey,
    object: Option<&K::Object>,
) -> Context<K> {
    let name: Arc<str> = kind.to_string().into();
    let author = Author { controller: name.clone(), field_manager: name, declared: Rights::default() };
    let sender = Sender::new(client);
    let recorder =
        Recorder::new(sender.clone(), &author, WallClock::system(), random_seed(), Counter::default());
    let events = send_events(recorder.clone());
    let keys = Keys::alone();
    keys.table().begin(&key, 1);
    let counters = Counters { overdue: Counter::default(), contradicted: Counter::default() };
    let writer = Writer::new(sender, author, Vec::new(), keys.clone(), false, counters);
    let run_info = RunInfo {
        key,
        attempt: 1,
        reason: Reason::Changed,
        id: 1,
        trace_id: None,
        took_client: AtomicBool::default(),
        moments: RunMoments::default(),
    };
    let base = ContextBase { kind, writer, recorder, keys, _events: Some(events) };
    Context::new(Arc::new(base), Arc::new(run_info), object.cloned().map(Arc::new), Arc::default())
}

/// Sends events until the guard is dropped, and then what waits, as a controller that ends.
fn send_events(recorder: Arc<Recorder>) -> DropGuard {
    let over = CancellationToken::new();
    let guard = over.clone().drop_guard();
    tokio::spawn(async move {
        tokio::select! {
            biased;
            () = over.cancelled() => {}
            never = recorder.run() => match never {},
        }
        recorder.flush().await;
    });
    guard
}
