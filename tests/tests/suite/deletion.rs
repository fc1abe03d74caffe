//! The end of an object's life: cleanup, finalizers, and the call to `deleted`.

use std::sync::Mutex;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ObjectMeta;
use serde_json::json;
use tokio::sync::Semaphore;
use watchkeeper::{WriteError, prelude::*};
use watchkeeper_apiserver::{ApiServer, Fault, Verb};

const FINALIZER: &str = "example.dev/release";

/// Keeps a diary: a line a call.
#[derive(Clone)]
struct Diary {
    lines: Arc<Mutex<Vec<String>>>,
    may_release: Arc<Semaphore>,
    failures_of_deleted: Arc<Mutex<u32>>,
}

impl Diary {
    fn new() -> Self {
        let (lines, failures_of_deleted) = (Arc::default(), Arc::default());
        Self { lines, may_release: Arc::new(Semaphore::new(100)), failures_of_deleted }
    }

    fn write(&self, line: String) {
        self.lines.lock().unwrap().push(line);
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    async fn comes_to(&self, wanted: &[&str]) {
        for _ in 0..600 {
            if self.lines() == wanted {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(self.lines(), wanted);
    }
}

impl Reconciler<ConfigMap> for Diary {
    type Error = anyhow::Error;

    async fn reconcile(&self, map: Arc<ConfigMap>, _: &Context<ConfigMap>) -> Result<Action, Self::Error> {
        let held = map.finalizers().iter().any(|finalizer| finalizer == FINALIZER);
        self.write(format!("reconcile {}{}", map.name_any(), if held { " held" } else { "" }));
        Ok(Action::await_change())
    }

    async fn cleanup(&self, map: Arc<ConfigMap>, _: &Context<ConfigMap>) -> Result<Cleanup, Self::Error> {
        self.write(format!("cleanup {}", map.name_any()));
        match self.may_release.try_acquire() {
            Ok(permit) => {
                permit.forget();
                Ok(Cleanup::Done)
            }
            Err(_) => Ok(Cleanup::Pending(Action::requeue_after(Duration::from_secs(10)))),
        }
    }

    async fn deleted(&self, last: Deleted<ConfigMap>, _: &Context<ConfigMap>) -> Result<(), Self::Error> {
        let state = last.last_state().and_then(|map| map.data.clone()).unwrap_or_default();
        self.write(format!("deleted {} {:?}", last.key(), state.values().collect::<Vec<_>>()));
        let mut failures = self.failures_of_deleted.lock().unwrap();
        if *failures > 0 {
            *failures -= 1;
            anyhow::bail!("not now");
        }
        Ok(())
    }
}

fn config_map(value: &str) -> ConfigMap {
    let metadata = ObjectMeta { name: Some("a".into()), ..ObjectMeta::default() };
    ConfigMap { metadata, data: Some([("k".to_owned(), value.to_owned())].into()), ..ConfigMap::default() }
}

async fn shop() -> ApiServer {
    ApiServer::in_memory().namespace("shop").start().await
}

fn run(server: &ApiServer, diary: &Diary, finalizer: Option<&str>) -> watchkeeper::Running {
    let mut controller = Controller::new(diary.clone()).namespace("shop");
    if let Some(finalizer) = finalizer {
        controller = controller.finalizer(finalizer);
    }
    Manager::new(server.client()).controller(controller).spawn()
}

// C22 C15
#[tokio::test(start_paused = true)]
async fn the_deletion_of_the_object_itself_wakes_the_reconciler_with_the_last_state() {
    let server = shop().await;
    let diary = Diary::new();
    let _running = run(&server, &diary, None);
    server.create(&config_map("one")).await;
    diary.comes_to(&["reconcile a"]).await;
    server.delete::<ConfigMap>("shop/a").await;
    diary.comes_to(&["reconcile a", "deleted shop/a [\"one\"]"]).await;
}

// C15
#[tokio::test(start_paused = true)]
async fn an_object_that_took_the_place_of_a_deleted_one_is_reconciled_after_the_deletion_was_told() {
    let server = shop().await;
    let diary = Diary::new();
    let _running = run(&server, &diary, None);
    server.create(&config_map("one")).await;
    diary.comes_to(&["reconcile a"]).await;
    server.delete::<ConfigMap>("shop/a").await;
    server.create(&config_map("two")).await;
    diary.comes_to(&["reconcile a", "deleted shop/a [\"one\"]", "reconcile a"]).await;
}

// C15 C47
#[tokio::test(start_paused = true)]
async fn a_deletion_that_fails_for_five_minutes_is_given_up_and_holds_up_nothing_for_good() {
    let server = shop().await;
    let diary = Diary::new();
    *diary.failures_of_deleted.lock().unwrap() = 50;
    let _running = run(&server, &diary, None);
    server.create(&config_map("one")).await;
    diary.comes_to(&["reconcile a"]).await;
    server.delete::<ConfigMap>("shop/a").await;
    tokio::time::sleep(Duration::from_secs(240)).await;
    let failed = diary.lines().len() - 1;
    assert!(failed > 5, "{failed} failures in four minutes");
    server.create(&config_map("two")).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(!diary.lines().last().unwrap().starts_with("reconcile"), "it is not given up yet");
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(diary.lines().last().unwrap(), "reconcile a");
}

// C47
#[tokio::test(start_paused = true)]
async fn a_deletion_outlives_a_server_that_does_not_say_whether_the_object_is_gone() {
    let server = shop().await;
    let diary = Diary::new();
    let controller = Controller::new(diary.clone()).namespace("shop").label_selector("kept=yes").unwrap();
    let mut map = config_map("one");
    map.metadata.labels = Some([("kept".to_owned(), "yes".to_owned())].into());
    server.create(&map).await;
    let _running = Manager::new(server.client()).controller(controller).spawn();
    diary.comes_to(&["reconcile a"]).await;
    let _outage = server.faults().on(Verb::Get, "configmaps").always().then(Fault::Status(500));
    server.delete::<ConfigMap>("shop/a").await;
    tokio::time::sleep(Duration::from_secs(1_800)).await;
    server.faults().clear();
    tokio::time::sleep(Duration::from_secs(1_100)).await;
    assert_eq!(diary.lines(), ["reconcile a", "deleted shop/a [\"one\"]"]);
}

// C47
#[tokio::test(start_paused = true)]
async fn a_deletion_that_may_not_be_checked_is_given_up_for_the_next_object() {
    let server = shop().await;
    let diary = Diary::new();
    let controller = Controller::new(diary.clone()).namespace("shop").label_selector("kept=yes").unwrap();
    let kept = |content: &str| {
        let mut map = config_map(content);
        map.metadata.labels = Some([("kept".to_owned(), "yes".to_owned())].into());
        map
    };
    server.create(&kept("one")).await;
    let _running = Manager::new(server.client()).controller(controller).spawn();
    diary.comes_to(&["reconcile a"]).await;
    server.faults().on(Verb::Get, "configmaps").always().then(Fault::Status(403));
    server.delete::<ConfigMap>("shop/a").await;
    server.create(&kept("two")).await;
    tokio::time::sleep(Duration::from_secs(240)).await;
    assert_eq!(diary.lines(), ["reconcile a"], "it is not given up yet");
    tokio::time::sleep(Duration::from_secs(1_200)).await;
    assert_eq!(diary.lines(), ["reconcile a", "reconcile a"]);
}

/// Fails at deletions without a failure of its own: what it writes was computed from an old version, or is not sent.
#[derive(Clone)]
struct NotSent {
    why: fn(&WriteError) -> bool,
    tried: Arc<Mutex<u32>>,
    handled: Arc<Semaphore>,
}

impl Reconciler<ConfigMap> for NotSent {
    type Error = WriteError;

    async fn reconcile(&self, _: Arc<ConfigMap>, _: &Context<ConfigMap>) -> Result<Action, Self::Error> {
        Ok(Action::await_change())
    }

    async fn deleted(&self, _: Deleted<ConfigMap>, cx: &Context<ConfigMap>) -> Result<(), Self::Error> {
        *self.tried.lock().unwrap() += 1;
        let mut named = config_map("written");
        named.metadata.name = Some("other".to_owned());
        let mut last = Ok(());
        // The server asks for quiet by two refusals in a row.
        for _ in 0..3 {
            last = cx.apply(named.clone()).unowned().await.map(drop);
        }
        if let Err(error) = &last {
            assert!((self.why)(error), "{error:?}");
        }
        last.inspect(|()| self.handled.add_permits(1))
    }
}

// C47
#[tokio::test(start_paused = true)]
async fn neither_conflicts_nor_an_overloaded_server_give_a_deletion_up() {
    let conflict: fn(&WriteError) -> bool = |error| matches!(error, WriteError::Conflict { .. });
    let overload: fn(&WriteError) -> bool = |error| matches!(error, WriteError::Overloaded { .. });
    for (fault, why) in [(Fault::Status(409), conflict), (Fault::Status(429).retry_after(20), overload)] {
        let server = shop().await;
        let reconciler = NotSent { why, tried: Arc::default(), handled: Arc::new(Semaphore::new(0)) };
        let controller = Controller::new(reconciler.clone()).namespace("shop");
        let _running = Manager::new(server.client()).controller(controller).spawn();
        server.create(&config_map("one")).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.faults().on(Verb::Patch, "configmaps").always().then(fault);
        server.delete::<ConfigMap>("shop/a").await;
        tokio::time::sleep(Duration::from_secs(1_200)).await;
        let tried = *reconciler.tried.lock().unwrap();
        assert!(tried > 5, "{tried} attempts in twenty minutes");
        server.faults().clear();
        let handled = tokio::time::timeout(Duration::from_secs(600), reconciler.handled.acquire()).await;
        assert!(handled.is_ok(), "it was given up after {tried} attempts");
    }
}

// C45
#[tokio::test(start_paused = true)]
async fn a_finalizer_that_somebody_takes_off_comes_back_whatever_predicates_say() {
    let nothing = || Predicate::on_update(|_: &ConfigMap, _: &ConfigMap| false);
    let panics = Predicate::on_update(|_: &ConfigMap, new: &ConfigMap| {
        assert!(!new.finalizers().is_empty(), "planned");
        false
    });
    for predicate in [Predicate::labels(), nothing(), panics] {
        let server = shop().await;
        let diary = Diary::new();
        let controller = Controller::new(diary.clone()).namespace("shop").finalizer(FINALIZER);
        let controller = controller.predicate(predicate);
        let _running = Manager::new(server.client()).controller(controller).spawn();
        server.create(&config_map("one")).await;
        let held = |map: Option<&ConfigMap>| map.is_some_and(|map| map.finalizers() == [FINALIZER]);
        server.eventually::<ConfigMap>("shop/a", held).await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        diary.lines.lock().unwrap().clear();
        for times in 1..=2 {
            let taken_off = json!({ "metadata": { "finalizers": null } });
            server.patch_merge::<ConfigMap>("shop/a", taken_off).await;
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert_eq!(diary.lines(), vec!["reconcile a held"; times], "once each time");
        }
        server.delete::<ConfigMap>("shop/a").await;
        server.eventually::<ConfigMap>("shop/a", |map| map.is_none()).await;
        assert!(diary.lines().contains(&"cleanup a".to_owned()), "{:?}", diary.lines());
    }
}

// C45 C17
#[tokio::test(start_paused = true)]
async fn an_object_that_a_predicate_keeps_out_gets_no_finalizer_however_often_it_changes() {
    let server = shop().await;
    let diary = Diary::new();
    let ours = |_: Option<&ConfigMap>, new: Option<&ConfigMap>| {
        new.is_none_or(|object| object.labels().contains_key("ours"))
    };
    let controller = Controller::new(diary.clone()).namespace("shop").finalizer(FINALIZER);
    let controller = controller.predicate(Predicate::new(ours));
    let _running = Manager::new(server.client()).controller(controller).spawn();
    server.create(&config_map("one")).await;
    for change in 0..5 {
        let patch = json!({ "data": { "k": change.to_string() } });
        server.patch_merge::<ConfigMap>("shop/a", patch).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    assert_eq!(diary.lines(), Vec::<String>::new());
    assert!(server.get::<ConfigMap>("shop/a").await.unwrap().finalizers().is_empty());
}

// C23 W7
#[tokio::test(start_paused = true)]
async fn a_terminating_object_is_cleaned_up_until_done_and_never_reconciled() {
    let server = shop().await;
    let mut diary = Diary::new();
    diary.may_release = Arc::new(Semaphore::new(0));
    let _running = run(&server, &diary, Some(FINALIZER));
    server.create(&config_map("one")).await;
    let held = |map: Option<&ConfigMap>| map.is_some_and(|map| map.finalizers() == [FINALIZER]);
    server.eventually::<ConfigMap>("shop/a", held).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(diary.lines().iter().all(|line| line == "reconcile a held"), "{:?}", diary.lines());
    diary.lines.lock().unwrap().clear();
    server.delete::<ConfigMap>("shop/a").await;
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert_eq!(diary.lines(), ["cleanup a", "cleanup a", "cleanup a"], "every ten seconds, not done yet");
    diary.may_release.add_permits(1);
    server.eventually::<ConfigMap>("shop/a", |map| map.is_none()).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let lines = diary.lines();
    assert_eq!(lines[3..], ["cleanup a", "deleted shop/a [\"one\"]"], "{lines:?}");
}

// C23
#[tokio::test(start_paused = true)]
async fn a_terminating_object_without_our_finalizer_is_left_alone() {
    let server = shop().await;
    let diary = Diary::new();
    let mut map = config_map("one");
    map.metadata.finalizers = Some(vec!["example.dev/theirs".into()]);
    server.create(&map).await;
    server.delete::<ConfigMap>("shop/a").await;
    let _running = run(&server, &diary, Some(FINALIZER));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(diary.lines(), Vec::<String>::new());
    let found = server.get::<ConfigMap>("shop/a").await.unwrap();
    assert_eq!(found.finalizers(), ["example.dev/theirs"], "no new finalizer on a dying object");
}

// W7
#[tokio::test(start_paused = true)]
async fn foreign_finalizers_stay_untouched() {
    let server = shop().await;
    let diary = Diary::new();
    let mut map = config_map("one");
    map.metadata.finalizers = Some(vec!["example.dev/theirs".into()]);
    server.create(&map).await;
    let _running = run(&server, &diary, Some(FINALIZER));
    let both = |map: Option<&ConfigMap>| {
        map.is_some_and(|map| map.finalizers() == ["example.dev/theirs", FINALIZER])
    };
    server.eventually::<ConfigMap>("shop/a", both).await;
    server.delete::<ConfigMap>("shop/a").await;
    let theirs = |map: Option<&ConfigMap>| map.is_some_and(|map| map.finalizers() == ["example.dev/theirs"]);
    server.eventually::<ConfigMap>("shop/a", theirs).await;
    server.patch_merge::<ConfigMap>("shop/a", json!({ "metadata": { "finalizers": null } })).await;
    server.eventually::<ConfigMap>("shop/a", |map| map.is_none()).await;
}

/// Cleans up while somebody else takes their finalizer off, unseen by the cache.
struct Overtaken(Arc<ApiServer>);

impl Reconciler<ConfigMap> for Overtaken {
    type Error = anyhow::Error;

    async fn reconcile(&self, _: Arc<ConfigMap>, _: &Context<ConfigMap>) -> Result<Action, Self::Error> {
        Ok(Action::await_change())
    }

    async fn cleanup(&self, _: Arc<ConfigMap>, _: &Context<ConfigMap>) -> Result<Cleanup, Self::Error> {
        let left = json!({ "metadata": { "finalizers": [FINALIZER, "example.dev/last"] } });
        self.0.patch_merge::<ConfigMap>("shop/a", left).await;
        Ok(Cleanup::Done)
    }
}

// C23 W7
#[tokio::test(start_paused = true)]
async fn a_finalizer_that_moved_to_the_place_of_ours_stays() {
    let server = Arc::new(shop().await);
    let mut map = config_map("one");
    map.metadata.finalizers =
        Some(["example.dev/first", FINALIZER, "example.dev/last"].map(str::to_owned).to_vec());
    server.create(&map).await;
    let controller = Controller::new(Overtaken(server.clone())).finalizer(FINALIZER);
    let _running = Manager::new(server.client()).controller(controller).spawn();
    server.delete::<ConfigMap>("shop/a").await;
    let last = |map: Option<&ConfigMap>| map.is_some_and(|map| map.finalizers() == ["example.dev/last"]);
    server.eventually::<ConfigMap>("shop/a", last).await;
}

// C23
#[tokio::test(start_paused = true)]
async fn a_not_found_of_an_object_that_is_there_leaves_no_finalizer_to_others() {
    let server = shop().await;
    let diary = Diary::new();
    let not_found = || server.faults().on(Verb::Patch, "configmaps").once().then(Fault::Status(404));
    not_found();
    let _running = run(&server, &diary, Some(FINALIZER));
    server.create(&config_map("one")).await;
    let held = |map: Option<&ConfigMap>| map.is_some_and(|map| map.finalizers() == [FINALIZER]);
    server.eventually::<ConfigMap>("shop/a", held).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(diary.lines().first().map(String::as_str), Some("reconcile a held"));
    diary.lines.lock().unwrap().clear();
    not_found();
    server.delete::<ConfigMap>("shop/a").await;
    server.eventually::<ConfigMap>("shop/a", |map| map.is_none()).await;
    diary.comes_to(&["cleanup a", "cleanup a", "deleted shop/a [\"one\"]"]).await;
}
