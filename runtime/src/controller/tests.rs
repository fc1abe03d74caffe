//! A controller with nothing behind it, for tests, and what many keys cost it.

use std::{
    any::TypeId,
    convert::Infallible,
    marker::PhantomData,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::FutureExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ObjectMeta;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use rand::{SeedableRng, rngs::SmallRng};
use tokio::{task::coop::unconstrained, time::Instant};

use super::{
    Action, Context, LastError, Reason, Reconciler,
    context::ContextBase,
    core::ControllerCore,
    enqueue::{EnqueueRelated, Enqueuer},
    recent::RecentRuns,
    settings::Settings,
    sources::ReconciledObjects,
    waits::Waits,
    watch::Enqueues,
    worker::Worker,
};
use crate::{
    clock::{Moment, WallClock},
    counted::{self, assert_grows_linearly, steps_of},
    informer::{AnyInformer, CacheChange, Gone, Observer, Progress, ProgressVia, SharedInformer, Via},
    keys::{Gate, HoldReason, Keys, ReadCache, SourceId, StormLimit},
    list_watch::{ListOptions, ListPage, ListWatchError, ListerWatcher, WatchStream},
    metrics::Metrics,
    object::{Kind, ObjectKey},
    reflector::{Doubt, DoubtCause, ReflectorConfig, Server},
    store::{CachedObject, Indexer},
    workqueue::{Item, ItemExponentialFailure, RateLimit, WorkQueue},
    writes::{Author, Counters, Recorder, Rights, Sender, Writer},
};

pub(super) struct Idle;

impl Reconciler<ConfigMap> for Idle {
    type Error = Infallible;

    async fn reconcile(&self, _: Arc<ConfigMap>, _: &Context<ConfigMap>) -> Result<Action, Infallible> {
        Ok(Action::await_change())
    }
}

/// A source that never answers.
struct Silent;

impl ListerWatcher<ConfigMap> for Silent {
    async fn list(&self, _: &ListOptions) -> Result<ListPage<ConfigMap>, ListWatchError> {
        std::future::pending().await
    }

    async fn watch(&self, _: &ListOptions) -> Result<WatchStream<ConfigMap>, ListWatchError> {
        std::future::pending().await
    }
}

/// A cache that never syncs.
pub(super) fn never() -> AnyInformer {
    SharedInformer::<ConfigMap>::from_source(&(), Silent, ReflectorConfig::default()).any().clone()
}

pub(super) fn core(waits: Waits) -> Arc<ControllerCore> {
    core_fed_twice_by(waits, Vec::new(), Vec::new())
}

fn core_fed_twice_by(waits: Waits, caches: Vec<ReadCache>, shared: Vec<SourceId>) -> Arc<ControllerCore> {
    let nobody = tower::service_fn(|_: http::Request<kube::client::Body>| {
        std::future::pending::<Result<http::Response<kube::client::Body>, Infallible>>()
    });
    let client = kube::Client::new(nobody, "default");
    let metrics = Metrics::default().shared.reconcile.of(&"test".into());
    let queue = WorkQueue::new(ItemExponentialFailure::default());
    let namespaces = waits.namespaces.iter().cloned();
    let (gate, dropped) = (Gate::new(Server::default(), caches), metrics.counts.deletions_dropped.clone());
    let limit = StormLimit::new(RateLimit::per_second(1).burst(10));
    let keys = Keys::new(queue, gate, namespaces, shared, limit, dropped);
    let counts = &metrics.counts;
    let counters = Counters { overdue: counts.overdue.clone(), contradicted: counts.contradicted.clone() };
    let author =
        Author { controller: "test".into(), field_manager: "test".into(), declared: Rights::default() };
    let recorder =
        Recorder::new(Sender::new(client.clone()), &author, WallClock::system(), 7, Counter::default());
    let (sender, wait) = (Sender::new(client), false);
    let writer = Writer::new(sender, author, Vec::new(), keys.clone(), wait, counters);
    Arc::new(ControllerCore {
        settings: Settings::new("test".into()),
        base: Arc::new(ContextBase {
            kind: Kind::of::<ConfigMap>(),
            writer,
            recorder,
            keys: keys.clone(),
            _events: None,
        }),
        reads: Arc::default(),
        reconciles: TypeId::of::<ConfigMap>(),
        objects: no_objects(),
        waits: Arc::new(waits),
        keys,
        metrics,
        recent: RecentRuns::default(),
        runs: 0.into(),
        jitter: Mutex::new(SmallRng::seed_from_u64(7)),
        trace_id: None,
        leftovers: None,
        stands_by: false.into(),
    })
}

fn no_objects() -> Arc<ReconciledObjects> {
    Arc::new(ReconciledObjects { caches: Vec::new() })
}

pub(super) fn worker(core: Arc<ControllerCore>) -> Arc<Worker<ConfigMap, Idle>> {
    Arc::new(Worker {
        core,
        reconciler: Idle,
        objects: no_objects(),
        selects_some: false,
        reconciled: PhantomData,
    })
}

/// A controller of one namespace whose cache has synced, and whether that cache's watch is cut.
fn open_core() -> (Arc<ControllerCore>, Arc<AtomicBool>) {
    open_core_fed_twice_by(Vec::new())
}

fn open_core_fed_twice_by(shared: Vec<SourceId>) -> (Arc<ControllerCore>, Arc<AtomicBool>) {
    let is_cut = Arc::new(AtomicBool::new(false));
    let cut = is_cut.clone();
    // Counts how often it is asked.
    let doubt = move || {
        counted::count(1);
        let until = Instant::now() + Duration::from_secs(60);
        cut.load(Ordering::SeqCst).then_some(Doubt { cause: DoubtCause::WatchCut, until })
    };
    let kind = Kind::of::<ConfigMap>();
    let cache = ReadCache { kind, of: Some("shop".into()), doubt: Box::new(doubt) };
    let waits = Waits { namespaces: vec!["shop".into()], ..Waits::default() };
    let core = core_fed_twice_by(waits, vec![cache], shared);
    core.keys.table().open(None, Vec::new);
    core.keys.table().open(Some(&"shop".into()), Vec::new);
    (core, is_cut)
}

fn key(at: usize) -> ObjectKey {
    ObjectKey::new("shop", format!("o-{at}"))
}

fn next(core: &ControllerCore) -> Option<Item<ObjectKey>> {
    let item = unconstrained(core.keys.queue.get()).now_or_never()??;
    let mut table = core.keys.table();
    table.begin(item.key(), item.attempt());
    table.end(item.key());
    drop(table);
    Some(item)
}

/// Runs all keys that are ready; returns how many these are.
fn run_all(core: &ControllerCore) -> usize {
    std::iter::from_fn(|| next(core)).map(Item::forget).count()
}

/// A ConfigMap that concerns a range of keys.
fn concerns(version: u64, first: usize, keys: usize) -> CachedObject {
    let data = [("first", first), ("keys", keys)].map(|(name, value)| (name.to_owned(), value.to_string()));
    let metadata = ObjectMeta {
        namespace: Some("shop".into()),
        name: Some("settings".into()),
        resource_version: Some(version.to_string()),
        ..ObjectMeta::default()
    };
    let map = ConfigMap { metadata, data: Some(data.into()), ..ConfigMap::default() };
    let indexer = Indexer::new();
    indexer.upsert(Arc::new(map));
    indexer.write(|batch| batch.get(&ObjectKey::new("shop", "settings")).cloned()).unwrap()
}

fn concerned(map: &ConfigMap) -> Vec<ObjectKey> {
    let number = |name: &str| map.data.as_ref().unwrap()[name].parse::<usize>().unwrap();
    (number("first")..number("first") + number("keys")).map(key).collect()
}

fn maps_to_keys(
    core: &ControllerCore,
    mapping: impl Fn(&ConfigMap) -> Vec<ObjectKey> + Send + Sync + 'static,
) -> EnqueueRelated {
    let ContextBase { kind, writer, .. } = &*core.base;
    let enqueues = Enqueues::mapped(mapping);
    let enqueuer = Enqueuer { keys: core.keys.clone(), writer: writer.clone(), kind: kind.clone() };
    EnqueueRelated::new(&enqueuer, Some(SourceId(0)), "configmaps".into(), enqueues, None)
}

// C48
#[tokio::test(start_paused = true)]
async fn one_event_that_concerns_many_keys_costs_in_proportion_to_them() {
    assert_grows_linearly("both states of an update, from an informer that feeds twice", |keys| {
        let (core, _) = open_core_fed_twice_by(vec![SourceId(0)]);
        let feed = maps_to_keys(&core, concerned);
        let (old, new) = (concerns(1, 0, keys), concerns(2, keys / 2, keys));
        let update = CacheChange::Updated { old, new, via: Via::Watch };
        (0..2).for_each(|_| feed.changed(&update));
        let progress = Progress { version: Some(crate::object::Version(2)), via: ProgressVia::Watch };
        feed.progressed(progress);
        assert_eq!(run_all(&core), keys + keys / 2);
    });
    assert_grows_linearly("an event that changed nothing, and a deletion", |keys| {
        let (core, _) = open_core();
        let feed = maps_to_keys(&core, concerned);
        feed.changed(&CacheChange::Unchanged { object: concerns(1, 0, keys) });
        let gone = Box::new(Gone::Final(concerns(1, 0, keys)));
        feed.changed(&CacheChange::Deleted { gone, version: None, via: Via::Watch });
        assert_eq!(run_all(&core), keys);
    });
    assert_grows_linearly("an object that could not be read, and can be again", |keys| {
        let (core, _) = open_core();
        let mut table = core.keys.table();
        let feed = table.feeds.add_feed();
        table.feeds.keep_related(feed, &key(0), concerned(&concerns(1, 0, keys).object_as().unwrap()));
        table.feeds.keep_related(feed, &key(0), concerned(&concerns(1, keys / 2, keys).object_as().unwrap()));
        let related = table.feeds.take_related(feed, &key(0));
        related.into_iter().for_each(|key| table.add(key, Reason::Changed));
        drop(table);
        assert_eq!(run_all(&core), keys + keys / 2);
    });
    assert_grows_linearly("a first list, before and after the caches have synced", |keys| {
        let awaited = vec![(Some("shop".into()), never())];
        let waits = Waits { namespaces: vec!["shop".into()], awaited, ..Waits::default() };
        let core = core(waits);
        let mut table = core.keys.table();
        (0..keys).for_each(|at| table.add(key(at), Reason::InitialList));
        (0..keys).for_each(|at| table.add(key(at), Reason::Changed));
        table.open(Some(&"shop".into()), Vec::new);
        (0..keys).for_each(|at| table.add(key(at), Reason::InitialList));
        drop(table);
        assert_eq!(run_all(&core), keys);
    });
}

// C48
#[tokio::test(start_paused = true)]
async fn many_keys_whose_watch_was_cut_wait_and_go_on_in_proportion_to_their_number() {
    assert_grows_linearly("keys of a namespace whose watch was cut", |keys| {
        let (core, is_cut) = open_core();
        is_cut.store(true, Ordering::SeqCst);
        (0..keys).for_each(|at| core.keys.table().add(key(at), Reason::Changed));
        while let Some(item) = unconstrained(core.keys.queue.get()).now_or_never().flatten() {
            let doubt = core.keys.gate.doubt(Some(item.key())).expect("its watch is cut");
            core.keys.put_off(item, doubt);
        }
        // Something changes elsewhere: each key is looked at, and each namespace asked for once.
        let looked = steps_of(|| core.keys.release_stale());
        assert_eq!(looked, keys + 1);
        assert_eq!(run_all(&core), 0);
        is_cut.store(false, Ordering::SeqCst);
        core.keys.release_stale();
        assert_eq!((run_all(&core), core.keys.table().remembered()), (keys, 0));
    });
}

// C48
#[tokio::test(start_paused = true)]
async fn what_is_remembered_of_many_keys_is_kept_shown_and_swept_in_proportion_to_their_number() {
    assert_grows_linearly("deletions, failures, holds and reports", |keys| {
        let (core, _) = open_core();
        let now = Instant::now();
        for at in 0..keys {
            let (key, mut table) = (key(at), core.keys.table());
            table.add_deletion(&key, Arc::new(()));
            table.failed(&key, LastError { error: "fails".to_owned(), at: Moment::now(), attempt: 1 });
            table.hold(&key, HoldReason::Pace, now + Duration::from_secs(1), now);
            table.add(key, Reason::Deleted);
        }
        core.sweep();
        (0..keys).for_each(|at| drop(core.report(&key(at))));
        drop(core.overview(100));
        for at in 0..keys {
            let (key, mut table) = (key(at), core.keys.table());
            let deletion = table.deletion(&key).unwrap();
            table.fail_deletion(&key, &deletion, now);
            table.close_deletion(&key, &deletion);
            table.release(&key, HoldReason::Pace, now);
        }
        assert_eq!(run_all(&core), keys);
        core.sweep();
        assert_eq!(core.keys.table().remembered(), 0);
    });
}

// C49
#[tokio::test(start_paused = true)]
async fn a_mapping_that_panics_on_one_state_of_an_object_loses_no_key_of_the_other() {
    let mapping = |map: &ConfigMap| {
        assert_ne!(map.data.as_ref().unwrap()["first"], "13", "planned");
        concerned(map)
    };
    let updated = |feed: &EnqueueRelated, old, new| {
        let update = CacheChange::Updated { old, new, via: Via::Watch };
        let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| feed.changed(&update)));
        assert!(panics.is_err(), "the informer counts it");
    };
    let ran = |core: &ControllerCore| -> Vec<String> {
        std::iter::from_fn(|| next(core)).map(|item| item.key().name().to_owned()).collect()
    };
    let (core, _) = open_core();
    let feed = maps_to_keys(&core, mapping);
    updated(&feed, concerns(1, 1, 2), concerns(2, 13, 1));
    assert_eq!(ran(&core), ["o-1", "o-2"], "those of the earlier state");
    updated(&feed, concerns(2, 13, 1), concerns(3, 5, 1));
    assert_eq!(ran(&core), ["o-5", "o-1", "o-2"], "and of the last that could be mapped");
    updated(&feed, concerns(3, 6, 1), concerns(4, 13, 1));
    assert_eq!(ran(&core), ["o-6"]);
    let gone = Box::new(Gone::Final(concerns(4, 13, 1)));
    let deletion = CacheChange::Deleted { gone, version: None, via: Via::Watch };
    let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| feed.changed(&deletion)));
    assert!(panics.is_err());
    assert_eq!(ran(&core), ["o-6"], "its deletion concerns the same");
}
