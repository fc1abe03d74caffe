//! Every place where a user's code runs, panicking there on purpose: what is contained, what is reported, what goes on.
//!
//! One row of [`ROWS`] for each place. Every row does the same: of two objects, one
//! (`bad`) makes the place panic; a third is created meanwhile; then the panic is switched off, and `bad` is edited.
//! Metrics run no code of the user's.
//!
//! All rows run twice: what a place panics with may panic too, when it is dropped.

use std::{
    cell::Cell,
    collections::BTreeMap,
    fmt,
    io::Write,
    panic::{AssertUnwindSafe, panic_any},
    sync::{Mutex, MutexGuard},
};

use futures::{FutureExt, StreamExt, stream};
use serde::{Deserializer, Serializer};
use serde_json::json;
use watchkeeper::{
    backoff::BackoffSchedule,
    informer::{Assembly, Registration},
    list_watch::{ClientListWatch, ListOptions, ListPage, ListWatchError, ListerWatcher, WatchStream},
    prelude::*,
    reflector::{FirstList, ReflectorConfig},
    store::IndexDefinition,
};
use watchkeeper_apiserver::{ApiServer, Fault, Verb};
use watchkeeper_tests::{ask::ask, hear};

thread_local! {
    /// The place that panics for the object `bad`, of all that runs on this thread.
    static TRAP: Cell<Option<&'static str>> = const { Cell::new(None) };
    /// What it panics with.
    static PAYLOAD: Cell<Payload> = const { Cell::new(Payload::Text) };
}

/// What a place panics with.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Payload {
    Text,
    /// A value that panics when it is dropped, with another one that does.
    Brittle,
}

/// Panics this many times when it is dropped, each time with the next one.
struct BrittlePayload(u32);

impl Drop for BrittlePayload {
    fn drop(&mut self) {
        if self.0 > 0 && PAYLOAD.get() == Payload::Brittle && !std::thread::panicking() {
            panic_any(BrittlePayload(self.0 - 1));
        }
    }
}

/// Panics if this is the place, and the object the one.
fn spring(place: &str, name: &str) {
    if TRAP.get() != Some(place) || name != "bad" {
        return;
    }
    match PAYLOAD.get() {
        Payload::Text => panic!("{place} panics on purpose"),
        Payload::Brittle => panic_any(BrittlePayload(2)),
    }
}

/// Switches the trap off; payloads that still exist do not panic any more.
fn disarm() {
    TRAP.set(None);
    PAYLOAD.set(Payload::Text);
}

/// A kind that panics when it is read or written.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "glass.example.dev", version = "v1", kind = "Vase", namespaced, status = "VaseStatus")]
struct VaseSpec {
    #[serde(serialize_with = "written", deserialize_with = "read")]
    label: String,
    #[serde(default)]
    edits: u32,
}

/// How often it was looked at.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
struct VaseStatus {
    #[serde(default)]
    edits: u32,
}

fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let label = String::deserialize(deserializer)?;
    spring("decode", &label);
    Ok(label)
}

fn written<S: Serializer>(label: &str, serializer: S) -> Result<S::Ok, S::Error> {
    spring("serialize", label);
    serializer.serialize_str(label)
}

fn vase(name: &str) -> Vase {
    Vase::new(name, VaseSpec { label: name.to_owned(), edits: 0 })
}

/// An error that may panic when it is formatted.
#[derive(Debug)]
struct Brittle(String);

impl fmt::Display for Brittle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        spring("error's Display", &self.0);
        f.write_str("brittle")
    }
}

impl std::error::Error for Brittle {}

/// What the reconciler returns: it breaks when it is turned into what the controller reports.
struct Turned(Brittle);

impl From<Turned> for Box<dyn std::error::Error + Send + Sync> {
    fn from(Turned(error): Turned) -> Self {
        spring("error into Box", &error.0);
        Box::new(error)
    }
}

/// Runs that went well, by name.
type Done = Arc<Mutex<BTreeMap<String, usize>>>;

/// Notes what it did; panics wherever a reconciler has code.
#[derive(Clone)]
struct Potter {
    done: Done,
}

impl Potter {
    fn done(&self, name: String) {
        *self.done.lock().unwrap().entry(name).or_default() += 1;
    }
}

impl Reconciler<Vase> for Potter {
    type Error = Turned;

    fn reconcile(
        &self,
        vase: Arc<Vase>,
        cx: &Context<Vase>,
    ) -> impl Future<Output = Result<Action, Turned>> + Send {
        let name = vase.name_any();
        spring("reconcile, before its future", &name);
        let (cx, potter) = (cx.clone(), self.clone());
        async move {
            spring("reconcile", &name);
            if TRAP.get() == Some("serialize") {
                let status = VaseStatus { edits: vase.spec.edits };
                cx.patch_status(&vase, status).await.map_err(|_| Turned(Brittle(name.clone())))?;
            }
            let fails = ["is_terminal", "error into Box", "error's Display"];
            if name == "bad" && TRAP.get().is_some_and(|place| fails.contains(&place)) {
                return Err(Turned(Brittle(name)));
            }
            potter.done(name);
            Ok(Action::await_change())
        }
    }

    async fn cleanup(&self, vase: Arc<Vase>, _: &Context<Vase>) -> Result<Cleanup, Turned> {
        spring("cleanup", &vase.name_any());
        self.done(format!("cleanup of {}", vase.name_any()));
        Ok(Cleanup::Done)
    }

    async fn deleted(&self, last: Deleted<Vase>, _: &Context<Vase>) -> Result<(), Turned> {
        spring("deleted", last.key().name());
        Ok(())
    }

    fn is_terminal(error: &Turned) -> bool {
        spring("is_terminal", &error.0.0);
        false
    }
}

/// What a row runs on.
struct Shop {
    server: ApiServer,
    potter: Potter,
    /// What handlers heard, by name.
    heard: Done,
    registrations: Mutex<Vec<Registration>>,
}

impl Shop {
    fn controller(&self) -> Controller<Vase, Potter> {
        Controller::new(self.potter.clone()).namespace("shop")
    }

    fn manager(&self) -> Manager {
        Manager::new(self.server.client())
    }

    fn hear(&self, name: String) {
        *self.heard.lock().unwrap().entry(name).or_default() += 1;
    }
}

/// Who does without while a place panics.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Hurt {
    /// The object that makes it panic is not reconciled.
    Itself,
    /// Even that is.
    Nobody,
}

/// A place where a user's code runs.
struct Row {
    place: &'static str,
    hurt: Hurt,
    /// What the log says.
    reported: &'static str,
    start: fn(&Arc<Shop>) -> watchkeeper::Running,
    meanwhile: Event,
}

/// What happens while a place panics, in addition to the new object.
#[derive(Clone, Copy, PartialEq)]
enum Event {
    Nothing,
    /// The object that makes it panic is edited.
    Edited,
    /// It is deleted.
    Deleted,
    /// The watch of its kind fails.
    CutShort,
}

impl Row {
    const fn of(
        place: &'static str,
        hurt: Hurt,
        reported: &'static str,
        start: fn(&Arc<Shop>) -> watchkeeper::Running,
    ) -> Self {
        Self { place, hurt, reported, start, meanwhile: Event::Nothing }
    }

    const fn meanwhile(self, meanwhile: Event) -> Self {
        Self { meanwhile, ..self }
    }
}

fn plain(shop: &Arc<Shop>) -> watchkeeper::Running {
    shop.manager().controller(shop.controller()).spawn()
}

/// Adds handlers to the controller's own informer.
fn with_handlers(shop: &Arc<Shop>) -> watchkeeper::Running {
    let manager = shop.manager();
    let informer = manager.informer::<Vase>().namespace("shop").build();
    let [adds, updates, deletes] = [(); 3].map(|()| shop.clone());
    let registration = informer
        .handler()
        .on_add(move |vase, _| {
            spring("handler's on_add", &vase.name_any());
            adds.hear(vase.name_any());
        })
        .on_update(move |_, vase| {
            spring("handler's on_update", &vase.name_any());
            updates.hear(format!("update of {}", vase.name_any()));
        })
        .on_delete(move |last| {
            spring("handler's on_delete", last.key().name());
            deletes.hear(format!("end of {}", last.key().name()));
        })
        .register();
    shop.registrations.lock().unwrap().push(registration);
    manager.controller(shop.controller()).spawn()
}

const PANICKED: &str = "the reconciler panicked: ";
const HANDLER: &str = "a handler panicked; the next call comes";
const OBSERVER: &str = "a controller's mapping or predicate panicked; the next change comes";

const ROWS: &[Row] = &[
    // what a reconciler has
    Row::of("reconcile, before its future", Hurt::Itself, PANICKED, plain),
    Row::of("reconcile", Hurt::Itself, PANICKED, plain),
    Row::of("cleanup", Hurt::Itself, PANICKED, |shop| {
        let controller = shop.controller().finalizer("example.dev/vase");
        shop.manager().controller(controller).spawn()
    })
    .meanwhile(Event::Deleted),
    Row::of("deleted", Hurt::Itself, PANICKED, plain).meanwhile(Event::Deleted),
    Row::of("is_terminal", Hurt::Itself, PANICKED, plain),
    Row::of("error into Box", Hurt::Itself, PANICKED, plain),
    Row::of("error's Display", Hurt::Itself, PANICKED, plain),
    Row::of("serialize", Hurt::Itself, PANICKED, plain),
    // what wakes it
    Row::of("predicate", Hurt::Itself, OBSERVER, |shop| {
        let predicate =
            Predicate::on_update(|_: &Vase, _: &Vase| true).and(Predicate::new(|old, new: Option<&Vase>| {
                if let (None, Some(object)) = (old, new) {
                    spring("predicate", &object.name_any());
                }
                true
            }));
        shop.manager().controller(shop.controller().predicate(predicate)).spawn()
    }),
    Row::of("mapping", Hurt::Nobody, OBSERVER, |shop| {
        let controller = shop.controller().watches::<Vase>(|vase| {
            spring("mapping", &vase.name_any());
            Vec::new()
        });
        shop.manager().controller(controller).spawn()
    }),
    Row::of("external source", Hurt::Nobody, "an external source panicked", |shop| {
        let broken = stream::iter(["good", "bad"]).map(|name| {
            spring("external source", name);
            ObjectKey::new("shop", name)
        });
        shop.manager().controller(shop.controller().source(broken)).spawn()
    }),
    // what the cache calls
    Row::of("index function", Hurt::Nobody, "the index function panicked", |shop| {
        let manager = shop.manager();
        let informer = manager.informer::<Vase>().namespace("shop").build();
        let by_name = IndexDefinition::new("name", |vase: &Vase| {
            spring("index function", &vase.name_any());
            [vase.name_any()]
        });
        informer.add_index(by_name).unwrap();
        manager.controller(shop.controller()).spawn()
    }),
    Row::of("handler's on_add", Hurt::Nobody, HANDLER, with_handlers),
    Row::of("handler's on_update", Hurt::Nobody, HANDLER, with_handlers).meanwhile(Event::Edited),
    Row::of("handler's on_delete", Hurt::Itself, HANDLER, with_handlers).meanwhile(Event::Deleted),
    // what fetching calls
    Row::of("decode", Hurt::Itself, "can't be read", plain),
    Row::of(
        "watch error handler",
        Hurt::Nobody,
        "the watch error handler panicked; fetching goes on",
        |shop| {
            let on_error = Arc::new(|_: &_| spring("watch error handler", "bad"));
            let config = ReflectorConfig { on_error, ..ReflectorConfig::default() };
            let manager = Manager::with_config(shop.server.client(), config);
            manager.controller(shop.controller()).spawn()
        },
    )
    .meanwhile(Event::CutShort),
];

/// What this thread logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn held(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap()
    }
}

impl Write for Log {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        self.held().extend(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

async fn settle() {
    tokio::time::sleep(Duration::from_secs(60)).await;
}

/// Lives through a row; says what is not as it should be.
async fn live_through(row: &Row, log: &Log) -> Vec<String> {
    let server = ApiServer::in_memory().crd::<Vase>().namespace("shop").start().await;
    for name in ["bad", "good"] {
        server.create(&vase(name)).await;
    }
    let potter = Potter { done: Done::default() };
    let (heard, registrations) = (Done::default(), Mutex::default());
    let shop = Arc::new(Shop { server, potter, heard, registrations });
    let runs = |name: &str| shop.potter.done.lock().unwrap().get(name).copied().unwrap_or_default();
    let mut wrongs = Vec::new();
    let mut expect = |holds: bool, what: &str| {
        if !holds {
            wrongs.push(format!("{}: {what}", row.place));
        }
    };

    TRAP.set(Some(row.place));
    let running = (row.start)(&shop);
    settle().await;
    match row.meanwhile {
        Event::Nothing => {}
        Event::Edited => {
            shop.server.patch_merge::<Vase>("shop/bad", json!({ "spec": { "edits": 1 } })).await;
        }
        Event::Deleted => drop(shop.server.delete::<Vase>("shop/bad").await),
        Event::CutShort => {
            shop.server.faults().on(Verb::Watch, "vases").once().then(Fault::Cut);
        }
    }
    settle().await;
    let is_deleted = row.meanwhile == Event::Deleted;
    expect(runs("good") > 0, "contained: the other object is reconciled");
    if !is_deleted {
        expect((runs("bad") > 0) == (row.hurt == Hurt::Nobody), "contained: it hurts whom the row names");
    }
    shop.server.create(&vase("fresh")).await;
    settle().await;
    expect(runs("fresh") > 0, "contained: a new object is reconciled");
    expect(String::from_utf8_lossy(&log.held()).contains(row.reported), "reported: the log says it");

    disarm();
    let before = runs("bad");
    if shop.server.get::<Vase>("shop/bad").await.is_none() {
        shop.server.create(&vase("bad")).await;
    } else if !is_deleted {
        shop.server.patch_merge::<Vase>("shop/bad", json!({ "spec": { "edits": 2 } })).await;
    }
    tokio::time::sleep(Duration::from_secs(1_100)).await;
    match row.place {
        "cleanup" => expect(runs("cleanup of bad") == 1, "goes on: it is cleaned up"),
        _ => expect(runs("bad") > before, "goes on: the object that made it panic is reconciled"),
    }
    let stopped = AssertUnwindSafe(running.stop()).catch_unwind().await;
    expect(matches!(stopped, Ok(Ok(()))), "goes on: the manager stops as asked");
    wrongs
}

/// Runs a row on a clock of its own; returns what it answers.
fn on_its_own<T>(payload: Payload, row: impl AsyncFnOnce(&Log) -> T) -> T {
    PAYLOAD.set(payload);
    let log = Log::default();
    let into = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || into.clone()).finish();
    let _heard = hear(subscriber);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let answer = runtime.unwrap().block_on(row(&log));
    disarm();
    answer
}

fn live_through_all(payload: Payload) {
    let wrongs = ROWS.iter().flat_map(|row| on_its_own(payload, async |log| live_through(row, log).await));
    let wrongs: Vec<_> = wrongs.collect();
    assert!(wrongs.is_empty(), "{}", wrongs.join("\n"));
}

// C1 I10 S6 D11
#[test]
fn a_panic_of_the_users_code_is_contained_and_reported_and_the_rest_goes_on() {
    live_through_all(Payload::Text);
}

// C1 I29
#[test]
fn a_panic_with_something_that_panics_when_it_is_dropped_is_contained_like_any_other() {
    live_through_all(Payload::Brittle);
}

// C49 I29
#[test]
fn a_mapping_that_panics_on_both_states_loses_no_key_whatever_it_panics_with() {
    on_its_own(Payload::Brittle, async |_| {
        TRAP.set(Some("mapping"));
        let server = ApiServer::in_memory().crd::<Vase>().namespace("shop").start().await;
        for name in ["bad", "target"] {
            server.create(&vase(name)).await;
        }
        let potter = Potter { done: Done::default() };
        let controller = Controller::new(potter.clone()).namespace("shop").watches::<Vase>(|vase| {
            // The first edit panics on its new state alone, the second one on both.
            if vase.spec.edits > 0 {
                spring("mapping", &vase.name_any());
            }
            vec![ObjectKey::new("shop", "target")]
        });
        let running = Manager::new(server.client()).controller(controller).spawn();
        settle().await;
        let mut runs = Vec::new();
        for edits in 1..=2 {
            server.patch_merge::<Vase>("shop/bad", json!({ "spec": { "edits": edits } })).await;
            settle().await;
            runs.push(potter.done.lock().unwrap()["target"]);
        }
        disarm();
        assert!(runs[1] > runs[0], "the second edit woke nobody: {runs:?}");
        running.stop().await.unwrap();
    });
}

// P6 I29
#[test]
fn a_task_or_check_that_panics_with_something_that_panics_when_it_is_dropped_fails_alone() {
    on_its_own(Payload::Brittle, async |_| {
        TRAP.set(Some("manager"));
        let server = ApiServer::in_memory().crd::<Vase>().namespace("shop").start().await;
        let potter = Potter { done: Done::default() };
        let mut running = Manager::new(server.client())
            .controller(Controller::new(potter.clone()))
            .readiness_check("disk", || -> Result<(), String> {
                spring("manager", "bad");
                Ok(())
            })
            .task("sweeper", |_| async {
                spring("manager", "bad");
                Ok::<_, watchkeeper::Error>(())
            })
            .spawn();
        settle().await;
        let ready = ask(&running.http_service().unwrap(), "/readyz?verbose").await.body;
        let ended = AssertUnwindSafe(running.ended()).catch_unwind().await.map_err(std::mem::forget);
        server.create(&vase("good")).await;
        settle().await;
        let good = potter.done.lock().unwrap().get("good").copied();
        disarm();
        assert!(ready.contains("[-]disk failed: the check panicked"), "{ready}");
        let error = ended.expect("the task's panic is an error").unwrap_err();
        assert_eq!(format!("{error:?}"), "task sweeper: it panicked");
        assert_eq!(good, Some(1), "the controller goes on");
        running.stop().await.unwrap();
    });
}

// ---- what the fetch stage calls ----

/// A source that panics before it asks the server.
struct Source(ClientListWatch<Vase>);

impl ListerWatcher<Vase> for Source {
    async fn list(&self, options: &ListOptions) -> Result<ListPage<Vase>, ListWatchError> {
        spring("ListerWatcher's list", "bad");
        self.0.list(options).await
    }

    async fn watch(&self, options: &ListOptions) -> Result<WatchStream<Vase>, ListWatchError> {
        spring("ListerWatcher's watch", "bad");
        let events = self.0.watch(options).await?;
        Ok(events.inspect(|_| spring("ListerWatcher's stream", "bad")).boxed())
    }
}

/// Builds an informer that panics in a place of the fetch stage.
type Fetching = (&'static str, fn(&ApiServer) -> SharedInformer<Vase>);

fn sourced(server: &ApiServer) -> SharedInformer<Vase> {
    let source = Source(ClientListWatch::new(server.client(), <Vase as Watched>::kind_of(&())));
    let config = ReflectorConfig { first_list: FirstList::Paged, ..ReflectorConfig::default() };
    Assembly::new(&()).config(config).everywhere(source).build().unwrap()
}

const FETCHING: &[Fetching] = &[
    ("ListerWatcher's list", sourced),
    ("ListerWatcher's watch", sourced),
    ("ListerWatcher's stream", sourced),
    ("options hook", |server| {
        let factory = SharedInformerFactory::new(server.client());
        factory.informer::<Vase>().options_hook(|_| spring("options hook", "bad")).build()
    }),
    ("back-off schedule", |server| {
        server.faults().on_reads("vases").times(3).then(Fault::Status(500));
        let backoff = BackoffSchedule::custom(|_| {
            spring("back-off schedule", "bad");
            Duration::from_secs(1)
        });
        let config = ReflectorConfig { backoff, ..ReflectorConfig::default() };
        SharedInformerFactory::with_config(server.client(), config).informer::<Vase>().build()
    }),
];

async fn fetch_through(&(place, build): &Fetching, log: &Log) -> Vec<String> {
    let server = ApiServer::in_memory().crd::<Vase>().namespace("shop").start().await;
    server.create(&vase("bad")).await;
    let mut wrongs = Vec::new();
    let mut expect = |holds: bool, what: &str| {
        if !holds {
            wrongs.push(format!("{place}: {what}"));
        }
    };
    TRAP.set(Some(place));
    let informer = build(&server);
    informer.start();
    tokio::time::sleep(Duration::from_secs(1)).await;
    server.create(&vase("good")).await;
    settle().await;
    let state = informer.sync_state();
    let lasts = ["ListerWatcher's list", "ListerWatcher's watch", "options hook"].contains(&place);
    expect(!lasts || state.failure.is_some(), "reported: the state says it");
    expect(String::from_utf8_lossy(&log.held()).contains("panick"), "reported: the log says it");
    disarm();
    tokio::time::sleep(Duration::from_secs(200)).await;
    server.create(&vase("fresh")).await;
    settle().await;
    let state = informer.sync_state();
    expect(state.is_synced() && state.failure.is_none(), "goes on: it has synced, and nothing fails");
    expect(informer.lister().len() == 3, "goes on: it shows what there is");
    wrongs
}

// R47
#[test]
fn a_panic_of_what_fetches_is_a_failure_like_others_and_is_tried_again() {
    for payload in [Payload::Text, Payload::Brittle] {
        let through = |row| on_its_own(payload, async |log| fetch_through(row, log).await);
        let wrongs: Vec<_> = FETCHING.iter().flat_map(through).collect();
        assert!(wrongs.is_empty(), "{payload:?}: {}", wrongs.join("\n"));
    }
}
