//! Code of the user's that blocks its thread, on runtimes of several threads: what waits for it, and what goes on.

use std::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use tokio::{sync::mpsc, task::yield_now, time::timeout};

use super::testing::{broken, item};
use crate::{
    informer::{Assembly, CacheChange, EventHandler, Observer, SharedInformer, change::AddOrigin},
    list_watch::{ListOptions, ListPage, ListWatchError, ListerWatcher, WatchEvent, WatchStream},
    object::Version,
    reflector::{FirstList, ReflectorConfig},
    store::IndexDefinition,
};

/// How long anything that goes on may take on a busy machine; somebody blocks for twice as long at most.
const PATIENCE: Duration = Duration::from_secs(10);

/// Blocks who passes it until it is opened.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<Passage>, Condvar)>);

#[derive(Default, PartialEq)]
enum Passage {
    #[default]
    Shut,
    Waited,
    Open,
    /// It was not opened in time, because its opener was held up.
    GaveUp,
}

impl Gate {
    fn pass(&self) {
        let (passage, changed) = &*self.0;
        let mut passage = passage.lock().unwrap();
        if *passage == Passage::Shut {
            *passage = Passage::Waited;
        }
        changed.notify_all();
        let still = |passage: &mut Passage| *passage == Passage::Waited;
        let (mut passage, waited) = changed.wait_timeout_while(passage, 2 * PATIENCE, still).unwrap();
        if waited.timed_out() {
            *passage = Passage::GaveUp;
        }
    }

    /// Waits until somebody is blocked.
    fn blocks(&self) {
        let (passage, changed) = &*self.0;
        let waited = changed
            .wait_timeout_while(passage.lock().unwrap(), PATIENCE, |passage| *passage == Passage::Shut);
        assert!(*waited.unwrap().0 == Passage::Waited, "nobody is blocked");
    }

    /// Opens it. While the only worker is blocked no timer fires, so that a deadline alone would notice nothing.
    fn open(&self) {
        let before = std::mem::replace(&mut *self.0.0.lock().unwrap(), Passage::Open);
        assert!(before == Passage::Waited, "what should have gone on waited for what blocks");
        self.0.1.notify_all();
    }
}

/// Brings what a test sends.
struct Sent(Mutex<Option<mpsc::UnboundedReceiver<WatchEvent<ConfigMap>>>>);

impl ListerWatcher<ConfigMap> for Sent {
    async fn list(&self, _: &ListOptions) -> Result<ListPage<ConfigMap>, ListWatchError> {
        Ok(ListPage { items: Vec::new(), resource_version: "1".to_owned(), continue_token: None })
    }

    async fn watch(&self, _: &ListOptions) -> Result<WatchStream<ConfigMap>, ListWatchError> {
        let Some(events) = self.0.lock().unwrap().take() else { return Ok(stream::pending().boxed()) };
        let next =
            |mut events: mpsc::UnboundedReceiver<_>| async { Some((Ok(events.recv().await?), events)) };
        Ok(stream::unfold(events, next).boxed())
    }
}

/// An informer at work, and how far its users are.
struct Followed {
    informer: SharedInformer<ConfigMap>,
    send: mpsc::UnboundedSender<WatchEvent<ConfigMap>>,
    /// The calls of a handler that does not block.
    told: mpsc::UnboundedReceiver<u64>,
    /// How often the code that blocks was called.
    calls: Arc<AtomicUsize>,
    _keep: Vec<Box<dyn Send>>,
}

/// Passes on each version that it sees.
struct Teller(mpsc::UnboundedSender<u64>);

fn version_of(object: &ConfigMap) -> u64 {
    object.metadata.resource_version.as_deref().unwrap().parse().unwrap()
}

impl EventHandler<ConfigMap> for Teller {
    fn on_add(&self, object: Arc<ConfigMap>, _: AddOrigin) {
        self.0.send(version_of(&object)).ok();
    }

    fn on_update(&self, _: Arc<ConfigMap>, object: Arc<ConfigMap>) {
        self.0.send(version_of(&object)).ok();
    }
}

/// Blocks at an object, where the user's code runs.
#[derive(Clone)]
struct Blocks {
    gate: Gate,
    calls: Arc<AtomicUsize>,
}

impl Blocks {
    fn at(&self, object: &ConfigMap) {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if object.metadata.name.as_deref() == Some("bad") {
            self.gate.pass();
        }
    }
}

impl EventHandler<ConfigMap> for Blocks {
    fn on_add(&self, object: Arc<ConfigMap>, _: AddOrigin) {
        self.at(&object);
    }
}

impl Observer for Blocks {
    fn changed(&self, change: &CacheChange) {
        if let CacheChange::Added { object, .. } = change {
            self.at(&object.object_as().unwrap());
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Nowhere,
    Handler,
    Observer,
    Index,
    Transform,
    /// A handler of errors: of those of fetching, and of an object that can't be read.
    FetchError,
    Unreadable,
}

impl Followed {
    async fn start(place: Place, gate: &Gate) -> Self {
        let (send, receive) = mpsc::unbounded_channel();
        let (teller, told) = mpsc::unbounded_channel();
        let config = ReflectorConfig { first_list: FirstList::Paged, ..ReflectorConfig::default() };
        let mut assembly =
            Assembly::<ConfigMap>::new(&()).config(config).everywhere(Sent(Mutex::new(Some(receive))));
        let calls = Arc::new(AtomicUsize::new(0));
        let blocks = Blocks { gate: gate.clone(), calls: calls.clone() };
        if place == Place::Transform {
            let blocks = blocks.clone();
            assembly = assembly.transform(move |object: &mut ConfigMap| blocks.at(object));
        }
        let informer = assembly.build().unwrap();
        let mut keep: Vec<Box<dyn Send>> = Vec::new();
        match place {
            Place::Nowhere | Place::Transform => {}
            Place::FetchError | Place::Unreadable => informer.on_watch_error(move |_| blocks.gate.pass()),
            Place::Handler => keep.push(Box::new(informer.add_handler(blocks))),
            Place::Observer => keep.push(Box::new(informer.observe(Arc::new(blocks)))),
            Place::Index => {
                let values = move |object: &ConfigMap| {
                    blocks.at(object);
                    ["all"]
                };
                informer.add_index(IndexDefinition::new("blocks", values)).unwrap();
            }
        }
        keep.push(Box::new(informer.add_handler(Teller(teller))));
        informer.start();
        informer.wait_for_sync(PATIENCE).await.unwrap();
        Self { informer, send, told, calls, _keep: keep }
    }

    fn send(&self, text: &str) {
        self.send.send(WatchEvent::Added(item(text))).unwrap();
    }

    /// Returns once cache and handler are at a version; fails if that takes long.
    async fn reaches(&mut self, version: u64) {
        self.informer.lister().wait_for_version(Version(version), PATIENCE).await.expect("the cache goes on");
        while timeout(PATIENCE, self.told.recv()).await.expect("the other handler goes on").unwrap() < version
        {
        }
    }

    /// Returns once the code that blocked is called again; fails if that takes long.
    async fn is_called_again(&self, calls: usize) {
        let again = async {
            while self.calls.load(Ordering::SeqCst) == calls {
                yield_now().await;
            }
        };
        timeout(PATIENCE, again).await.expect("the next calls come");
    }

    /// Returns whether the handler that does not block was shown a version, or a later one.
    fn was_told(&mut self, version: u64) -> bool {
        std::iter::from_fn(|| self.told.try_recv().ok()).any(|told| told >= version)
    }

    fn version(&self) -> Option<u64> {
        self.informer.lister().resource_version().map(|version| version.0)
    }
}

fn on_workers(workers: usize, test: impl Future) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_time().build();
    runtime.unwrap().block_on(test);
}

// I24
#[test]
fn a_handler_that_does_not_return_holds_up_neither_the_cache_nor_another_handler() {
    for workers in [1, 2, 4] {
        on_workers(workers, async {
            let gate = Gate::default();
            let mut followed = Followed::start(Place::Handler, &gate).await;
            // It has seen many changes in one batch before.
            (2..100).for_each(|version| followed.send(&format!("o{version}@{version}")));
            followed.send("bad@100");
            gate.blocks();
            let calls = followed.calls.load(Ordering::SeqCst);
            for version in 101..300 {
                followed.send(&format!("o{}@{version}", version % 50));
                followed.reaches(version).await;
            }
            let meanwhile = followed.calls.load(Ordering::SeqCst);
            gate.open();
            assert_eq!(meanwhile, calls, "its own next calls wait");
            followed.is_called_again(calls).await;
            followed.informer.shutdown().await;
        });
    }
}

/// The event at which the user's code blocks.
fn bad(place: Place) -> WatchEvent<ConfigMap> {
    match place {
        Place::FetchError => WatchEvent::Unexpected("a joke".to_owned()),
        Place::Unreadable => WatchEvent::Added(broken("bad@2")),
        _ => WatchEvent::Added(item("bad@2")),
    }
}

// I27
#[test]
fn what_blocks_where_changes_are_applied_holds_up_its_own_informer_alone() {
    for place in [Place::Observer, Place::Index, Place::Transform, Place::FetchError, Place::Unreadable] {
        on_workers(1, async {
            let gate = Gate::default();
            let mut other = Followed::start(Place::Nowhere, &gate).await;
            let mut own = Followed::start(place, &gate).await;
            own.send.send(bad(place)).unwrap();
            gate.blocks();
            own.send("fine@3");
            for version in 2..50 {
                other.send(&format!("o@{version}"));
                other.reaches(version).await;
            }
            assert!(own.version() < Some(3), "{place:?}: the user's code has not returned");
            assert!(!own.was_told(3), "{place:?}: nor do handlers of this kind see what came later");
            gate.open();
            own.reaches(3).await;
            own.informer.shutdown().await;
        });
    }
}

// I27
#[tokio::test]
async fn on_a_runtime_of_one_thread_everything_waits_for_whatever_blocks() {
    for place in [
        Place::Handler,
        Place::Observer,
        Place::Index,
        Place::Transform,
        Place::FetchError,
        Place::Unreadable,
    ] {
        let gate = Gate::default();
        let mut own = Followed::start(place, &gate).await;
        let turns = Arc::new(AtomicUsize::new(0));
        let counted = turns.clone();
        let other_task = tokio::spawn(async move {
            loop {
                counted.fetch_add(1, Ordering::SeqCst);
                yield_now().await;
            }
        });
        own.send.send(bad(place)).unwrap();
        own.send("fine@3");
        let opener = thread::spawn(move || {
            gate.blocks();
            let before = turns.load(Ordering::SeqCst);
            thread::park_timeout(Duration::from_millis(20));
            let meanwhile = turns.load(Ordering::SeqCst) - before;
            gate.open();
            meanwhile
        });
        own.reaches(3).await;
        assert_eq!(opener.join().unwrap(), 0, "{place:?}: turns of another task meanwhile");
        other_task.abort();
        own.informer.shutdown().await;
    }
}

// I13
#[test]
fn the_end_of_an_informer_waits_for_a_handler_that_blocks_and_for_nobody_else() {
    on_workers(1, async {
        let gate = Gate::default();
        let followed = Followed::start(Place::Handler, &gate).await;
        followed.send("bad@2");
        gate.blocks();
        let informer = followed.informer.clone();
        let mut end = tokio::spawn(async move { informer.shutdown().await });
        assert!(timeout(Duration::from_millis(50), &mut end).await.is_err(), "a call is under way");
        gate.open();
        timeout(PATIENCE, end).await.expect("it ends").unwrap();
    });
}
