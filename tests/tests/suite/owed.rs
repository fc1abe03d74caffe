//! Objects that can't be read for a while: what their keys are owed is done once they can be again.

use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
    core::{ApiResource, DynamicObject, ObjectMeta},
};
use serde_json::{Value, json};
use watchkeeper::{controller::Why, prelude::*};
use watchkeeper_apiserver::ApiServer;
use watchkeeper_tests::{Record, Website, does, website};

/// Kept as bytes.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "post.example.dev", version = "v1", kind = "Letter", namespaced)]
#[informer(compact)]
struct LetterSpec {
    to: String,
    grams: u32,
}

fn loose(definition: impl Serialize) -> Value {
    let mut loose = serde_json::to_value(definition).unwrap();
    loose["spec"]["versions"][0]["schema"]["openAPIV3Schema"] =
        json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    loose
}

/// A server that takes what the types can't read.
async fn loose_shop() -> ApiServer {
    let server = ApiServer::in_memory().crd_object(loose(Website::crd())).crd_object(loose(Letter::crd()));
    server.namespace("shop").start().await
}

struct Letters(Api<DynamicObject>);

impl Letters {
    fn of(server: &ApiServer) -> Self {
        Self(Api::namespaced_with(server.client(), "shop", &ApiResource::erase::<Letter>(&())))
    }

    async fn send(&self, name: &str, grams: impl Into<Value>) {
        let mut letter = DynamicObject::new(name, &ApiResource::erase::<Letter>(&()));
        letter.data = json!({ "spec": { "to": "there", "grams": grams.into() } });
        self.0.create(&Default::default(), &letter).await.unwrap();
    }

    async fn reweigh(&self, name: &str, grams: impl Into<Value>) {
        let patch = Patch::Merge(json!({ "spec": { "grams": grams.into() } }));
        self.0.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }
}

fn config_map(name: &str) -> ConfigMap {
    ConfigMap { metadata: ObjectMeta { name: Some(name.into()), ..Default::default() }, ..Default::default() }
}

/// Writes a status that no program reads, and a readable one.
async fn break_status(server: &ApiServer) {
    write_status(server, json!({ "replicas": 1, "readyReplicas": "many" })).await;
}

async fn mend_status(server: &ApiServer) {
    write_status(server, json!({ "replicas": 1, "readyReplicas": 0 })).await;
}

async fn write_status(server: &ApiServer, status: Value) {
    let sites: Api<DynamicObject> =
        Api::namespaced_with(server.client(), "shop", &ApiResource::erase::<Website>(&()));
    let patch = Patch::Merge(json!({ "status": status }));
    sites.patch_status("a", &PatchParams::default(), &patch).await.unwrap();
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

// C34
#[tokio::test(start_paused = true)]
async fn an_edit_whose_run_met_an_unreadable_status_is_applied_once_that_is_mended() {
    let server = loose_shop().await;
    server.create(&website("a")).await;
    server.create(&website("busy")).await;
    let (reconciler, record) = does::<Website, _, _>(|site, _| async move {
        if site.name_any() == "busy" && site.spec.replicas > 2 {
            seconds(10).await;
        }
        Ok(Action::await_change())
    });
    let running = Manager::new(server.client())
        .controller(Controller::new(reconciler).predicate(Predicate::generation()))
        .spawn();
    record.reaches(2).await;
    server.patch_merge::<Website>("shop/busy", json!({ "spec": { "replicas": 3 } })).await;
    record.reaches(3).await;
    server.patch_merge::<Website>("shop/a", json!({ "spec": { "replicas": 9 } })).await;
    seconds(1).await;
    break_status(&server).await;
    seconds(60).await;
    assert_eq!(record.names()[2..], ["busy"], "it can't be read");
    let report = running.why::<Website>(&ObjectKey::new("shop", "a")).remove(0);
    assert!(matches!(report.why, Why::Unreadable(_)), "{report:?}");
    mend_status(&server).await;
    record.reaches(4).await;
    assert_eq!(record.names()[3..], ["a"]);
}

// C34
#[tokio::test(start_paused = true)]
async fn attempts_count_on_over_an_unreadable_status() {
    let server = loose_shop().await;
    server.create(&website("a")).await;
    let (reconciler, record) = does::<Website, _, _>(|_, cx| async move {
        match cx.attempt() {
            1..3 => Ok(Action::backoff_at_least(Duration::from_secs(10))),
            _ => Ok(Action::await_change()),
        }
    });
    let _running = Manager::new(server.client())
        .controller(Controller::new(reconciler).predicate(Predicate::generation()))
        .spawn();
    record.reaches(2).await;
    break_status(&server).await;
    seconds(60).await;
    assert_eq!(record.len(), 2);
    mend_status(&server).await;
    record.reaches(3).await;
    assert_eq!(record.starts()[2].attempt, 3);
}

// C34
#[tokio::test(start_paused = true)]
async fn a_timer_that_ran_out_over_an_unreadable_status_runs_the_key_once_that_is_mended() {
    let server = loose_shop().await;
    server.create(&website("a")).await;
    let (reconciler, record) =
        does::<Website, _, _>(|_, _| async { Ok(Action::requeue_after(Duration::from_secs(60))) });
    let _running = Manager::new(server.client())
        .controller(Controller::new(reconciler).predicate(Predicate::generation()))
        .spawn();
    record.reaches(1).await;
    break_status(&server).await;
    seconds(90).await;
    assert_eq!(record.len(), 1);
    mend_status(&server).await;
    seconds(1).await;
    assert_eq!(record.len(), 2);
    record.reaches(3).await;
    let starts = record.starts();
    assert_eq!((starts[2].at - starts[1].at).as_secs(), 60, "and the timer goes on");
}

// C34
#[tokio::test(start_paused = true)]
async fn a_compact_object_that_begins_unreadable_runs_once_mended_whatever_the_predicate() {
    let server = loose_shop().await;
    let letters = Letters::of(&server);
    letters.send("a", "heavy").await;
    let (reconciler, record) = does::<Letter, _, _>(|_, _| async { Ok(Action::await_change()) });
    let only_labels = Controller::new(reconciler).predicate(Predicate::labels());
    let _running = Manager::new(server.client()).controller(only_labels).spawn();
    seconds(10).await;
    assert!(record.is_empty());
    letters.reweigh("a", "too heavy").await;
    seconds(10).await;
    assert!(record.is_empty());
    letters.reweigh("a", 20).await;
    record.reaches(1).await;
    letters.reweigh("a", 21).await;
    seconds(10).await;
    assert_eq!(record.len(), 1, "no label has changed");
}

/// Releases at once, and keeps what it released.
struct Releases(Record, Arc<AtomicUsize>);

impl Reconciler<Letter> for Releases {
    type Error = anyhow::Error;

    async fn reconcile(&self, _: Arc<Letter>, cx: &Context<Letter>) -> Result<Action, Self::Error> {
        self.0.start(cx);
        Ok(Action::await_change())
    }

    async fn cleanup(&self, letter: Arc<Letter>, _: &Context<Letter>) -> Result<Cleanup, Self::Error> {
        assert!(letter.metadata.deletion_timestamp.is_some());
        self.1.store(letter.spec.grams as usize, Ordering::SeqCst);
        Ok(Cleanup::Done)
    }
}

// C32 C34
#[tokio::test(start_paused = true)]
async fn a_compact_object_that_turned_unreadable_is_cleaned_up_as_it_was_last_read() {
    let server = loose_shop().await;
    let (letters, record, released) =
        (Letters::of(&server), Record::default(), Arc::new(AtomicUsize::new(0)));
    letters.send("a", 20).await;
    let controller =
        Controller::new(Releases(record.clone(), released.clone())).finalizer("example.dev/post");
    let _running = Manager::new(server.client()).controller(controller).spawn();
    record.reaches(1).await;
    letters.reweigh("a", 30).await;
    record.reaches(2).await;
    letters.reweigh("a", "heavy").await;
    seconds(10).await;
    letters.0.delete("a", &DeleteParams::default()).await.unwrap();
    seconds(10).await;
    assert!(letters.0.get_opt("a").await.unwrap().is_none(), "its finalizer is released");
    assert_eq!(released.load(Ordering::SeqCst), 30);
}

// C34
#[tokio::test(start_paused = true)]
async fn a_mended_object_passes_the_predicates_of_those_who_watch_it_too() {
    let server = loose_shop().await;
    server.create(&website("a")).await;
    server.create(&config_map("a")).await;
    let (reconciler, record) = does::<ConfigMap, _, _>(|_, _| async { Ok(Action::await_change()) });
    let controller = Controller::new(reconciler).watch(
        Watch::<Website>::new()
            .mapped(|site| vec![ObjectKey::new("shop", site.name_any())])
            .only_if(Predicate::generation()),
    );
    let _running = Manager::new(server.client()).controller(controller).spawn();
    record.reaches(1).await;
    seconds(1).await;
    let ran = record.len();
    mend_status(&server).await;
    seconds(1).await;
    assert_eq!(record.len(), ran, "a status alone does not pass");
    break_status(&server).await;
    seconds(1).await;
    assert_eq!(record.len(), ran + 1);
    mend_status(&server).await;
    seconds(1).await;
    assert_eq!(record.len(), ran + 2);
}

// C16 C34
#[tokio::test(start_paused = true)]
async fn a_compact_object_that_turned_unreadable_wakes_by_its_deletion_whom_it_concerned() {
    let server = loose_shop().await;
    let letters = Letters::of(&server);
    server.create(&config_map("there")).await;
    server.create(&config_map("elsewhere")).await;
    letters.send("a", 20).await;
    let (reconciler, record) = does::<ConfigMap, _, _>(|_, _| async { Ok(Action::await_change()) });
    let controller = Controller::new(reconciler)
        .watches::<Letter>(|letter| vec![ObjectKey::new("shop", letter.spec.to.as_str())]);
    let _running = Manager::new(server.client()).controller(controller).spawn();
    record.reaches(2).await;
    seconds(1).await;
    let ran = record.len();
    for grams in ["heavy", "too heavy"] {
        letters.reweigh("a", grams).await;
        seconds(1).await;
    }
    let ran_by_now = record.len();
    letters.0.delete("a", &DeleteParams::default()).await.unwrap();
    seconds(1).await;
    assert_eq!(record.names()[ran_by_now..], ["there"]);
    assert_eq!(record.names()[ran..ran_by_now], ["there", "there"], "each unreadable state wakes it");
}

// C16 C34
#[tokio::test(start_paused = true)]
async fn what_turned_unreadable_passes_a_predicate_so_that_its_deletion_finds_whom_it_concerned() {
    let server = loose_shop().await;
    let letters = Letters::of(&server);
    server.create(&config_map("there")).await;
    letters.send("a", 20).await;
    let (reconciler, record) = does::<ConfigMap, _, _>(|_, _| async { Ok(Action::await_change()) });
    let controller = Controller::new(reconciler).watch(
        Watch::<Letter>::new()
            .mapped(|letter| vec![ObjectKey::new("shop", letter.spec.to.as_str())])
            .only_if(Predicate::labels()),
    );
    let _running = Manager::new(server.client()).controller(controller).spawn();
    record.reaches(1).await;
    seconds(1).await;
    let ran = record.len();
    letters.reweigh("a", 21).await;
    seconds(1).await;
    assert_eq!(record.len(), ran, "its labels are as they were");
    letters.reweigh("a", "heavy").await;
    seconds(1).await;
    assert_eq!(record.len(), ran + 1, "what can't be read does");
    letters.0.delete("a", &DeleteParams::default()).await.unwrap();
    seconds(1).await;
    assert_eq!(record.len(), ran + 2);
}

// C8 C17
#[tokio::test(start_paused = true)]
async fn a_failed_key_is_forgotten_though_a_predicate_hides_that_its_object_is_gone() {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    server.create(&config_map("a")).await;
    let (reconciler, record) = does::<ConfigMap, _, _>(|_, _| async { Err(Terminal::new("no use").into()) });
    let no_deletions = Predicate::new(|_, new: Option<&ConfigMap>| new.is_some());
    let running =
        Manager::new(server.client()).controller(Controller::new(reconciler).predicate(no_deletions)).spawn();
    record.reaches(1).await;
    seconds(60).await;
    let report =
        |running: &watchkeeper::Running| running.why::<ConfigMap>(&ObjectKey::new("shop", "a")).remove(0);
    assert_eq!(report(&running).why, Why::AwaitsChangeAfterFailure { failures: 1 });
    server.delete::<ConfigMap>("shop/a").await;
    seconds(60).await;
    let gone = report(&running);
    assert_eq!((gone.why, gone.last_error), (Why::NotKnown, None));
}
