//! Events: what the server gets, and what happens if it does not answer.

use k8s_openapi::api::{core::v1::Namespace, events::v1::Event as Told};
use kube::core::ObjectMeta;
use serde_json::json;
use tokio::time::Instant;
use watchkeeper::{Running, prelude::*};
use watchkeeper_apiserver::{ApiServer, Fault, Verb};
use watchkeeper_tests::{Record, Website, deployment_for, does, website};

async fn shop() -> ApiServer {
    ApiServer::in_memory().crd::<Website>().namespace("shop").start().await
}

/// Runs an operator that tells the same of each site at every run, one a second.
fn complainer(server: &ApiServer) -> (Running, Record) {
    let (reconciler, record) = does(|site: Arc<Website>, cx: Context<Website>| async move {
        let related = deployment_for(&site);
        cx.event(Event::warning("Refused", "the backend refused: quota").related(&related));
        Ok(Action::requeue_after(Duration::from_secs(1)))
    });
    (Manager::new(server.client()).controller(Controller::new(reconciler)).spawn(), record)
}

async fn told(server: &ApiServer) -> Vec<Told> {
    server.list::<Told>("shop").await
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

// W8
#[tokio::test(start_paused = true)]
async fn an_event_says_what_happened_to_which_object_and_who_says_so() {
    let server = shop().await;
    let (_running, record) = complainer(&server);
    let site = server.create(&website("a")).await;
    record.reaches(1).await;
    seconds(1).await;
    let told = told(&server).await;
    assert_eq!(told.len(), 1);
    let event = &told[0];
    let regarding = event.regarding.as_ref().unwrap();
    assert_eq!(
        (regarding.kind.as_deref(), regarding.name.as_deref(), regarding.uid.as_ref()),
        (Some("Website"), Some("a"), site.metadata.uid.as_ref())
    );
    assert_eq!(event.related.as_ref().unwrap().kind.as_deref(), Some("Deployment"));
    let texts = [&event.type_, &event.reason, &event.note, &event.action, &event.reporting_controller];
    let texts = texts.map(|text| text.as_deref().unwrap());
    let said = ["Warning", "Refused", "the backend refused: quota", "Reconcile", "websites.web.example.dev"];
    assert_eq!(texts, said);
    assert!(event.name_any().starts_with("a.") && event.series.is_none());
}

// W8
#[tokio::test(start_paused = true)]
async fn identical_events_fold_into_one_series_that_says_how_many() {
    let server = shop().await;
    let (running, record) = complainer(&server);
    server.create(&website("a")).await;
    record.reaches(100).await;
    let told_by_then = told(&server).await;
    assert_eq!(told_by_then.len(), 1);
    let writes =
        server.requests().count(Verb::Create, "events") + server.requests().count(Verb::Patch, "events");
    assert!(writes <= 5, "a hundred events took {writes} requests");
    let runs = record.len();
    running.stop().await.unwrap();
    let told = told(&server).await;
    let series = told[0].series.as_ref().unwrap();
    assert_eq!(usize::try_from(series.count).unwrap(), runs, "what was not sent yet is sent at the end");
    assert!(series.last_observed_time.0 > told[0].event_time.as_ref().unwrap().0);
}

// W8
#[tokio::test(start_paused = true)]
async fn an_event_that_the_server_has_forgotten_is_told_anew() {
    let server = shop().await;
    let (_running, record) = complainer(&server);
    server.create(&website("a")).await;
    record.reaches(3).await;
    seconds(1).await;
    let name = told(&server).await[0].name_any();
    server.delete::<Told>(&format!("shop/{name}")).await;
    seconds(60).await;
    let told = told(&server).await;
    assert_eq!(told.len(), 1);
    assert!(told[0].series.as_ref().unwrap().count > 3, "and says how many there were");
}

// W8
#[tokio::test(start_paused = true)]
async fn an_event_sink_that_hangs_delays_no_reconcile() {
    let pace = async |hangs: bool| {
        let server = shop().await;
        if hangs {
            for verb in [Verb::Create, Verb::Patch] {
                server.faults().on(verb, "events").always().then(Fault::Silence);
            }
        }
        let (running, record) = complainer(&server);
        for number in 0..20 {
            server.create(&website(&format!("site-{number}"))).await;
        }
        record.reaches(20).await;
        let from = (record.len(), Instant::now());
        seconds(600).await;
        let runs = record.len() - from.0;
        let began = Instant::now();
        running.stop().await.unwrap();
        (runs, began.elapsed())
    };
    let ((healthy, _), (hanging, stop)) = (pace(false).await, pace(true).await);
    assert_eq!(healthy, hanging, "runs within ten minutes");
    assert!(stop <= Duration::from_secs(1), "the stop took {stop:?}");
}

// W8 W11
#[tokio::test(start_paused = true)]
async fn a_sink_that_fails_is_asked_ever_more_seldom_and_told_once_it_listens() {
    let server = shop().await;
    let fails = server.faults().on(Verb::Create, "events").always().then(Fault::Status(503));
    let (_running, record) = complainer(&server);
    server.create(&website("a")).await;
    record.reaches(1).await;
    seconds(600).await;
    let asked = server.requests().count(Verb::Create, "events");
    assert!((8..=30).contains(&asked), "{asked} requests within ten minutes");
    assert!(record.len() > 500, "no run waits for it");
    fails.disarm();
    seconds(130).await;
    assert_eq!(told(&server).await.len(), 1);
}

// W8 W11
#[tokio::test(start_paused = true)]
async fn a_sink_that_is_overloaded_holds_back_no_write() {
    let server = shop().await;
    let busy = Fault::Status(429).retry_after(60);
    server.faults().on(Verb::Create, "events").always().then(busy);
    let (reconciler, record) = does(|site: Arc<Website>, cx: Context<Website>| async move {
        cx.event(Event::normal("Seen", "it is there"));
        seconds(5).await;
        cx.apply(deployment_for(&site)).await?;
        Ok(Action::await_change())
    });
    let _running = Manager::new(server.client()).controller(Controller::new(reconciler)).spawn();
    server.create(&website("a")).await;
    record.reaches(1).await;
    seconds(6).await;
    assert_eq!(server.requests().count(Verb::Patch, "deployments"), 1);
    let attempts: Vec<_> = record.starts().iter().map(|start| start.attempt).collect();
    assert_eq!(attempts, [1], "no run failed");
}

// W8
#[tokio::test(start_paused = true)]
async fn an_event_that_is_forbidden_is_dropped_counted_and_fails_nobody() {
    let server = shop().await;
    for verb in [Verb::List, Verb::Watch] {
        server.allow("viewer", verb, "websites");
    }
    let (reconciler, record) = does(|_: Arc<Website>, cx: Context<Website>| async move {
        cx.event(Event::normal("Seen", "it is there"));
        Ok(Action::await_change())
    });
    let manager = Manager::new(server.client_as("viewer")).controller(Controller::new(reconciler));
    let metrics = manager.metrics();
    let _running = manager.spawn();
    server.create(&website("a")).await;
    record.reaches(1).await;
    seconds(300).await;
    assert_eq!((record.len(), server.requests().count(Verb::Create, "events")), (1, 1));
    let dropped = r#"watchkeeper_events_dropped_total{controller="websites.web.example.dev"} 1"#;
    assert!(metrics.encode().contains(dropped), "{}", metrics.encode());
}

// W8
#[tokio::test(start_paused = true)]
async fn a_reply_that_is_lost_makes_no_second_event() {
    let server = shop().await;
    server.faults().on(Verb::Create, "events").once().then(Fault::CommitThenDrop);
    let (_running, record) = complainer(&server);
    server.create(&website("a")).await;
    record.reaches(60).await;
    let told = told(&server).await;
    assert_eq!(told.len(), 1);
    assert!(told[0].series.as_ref().unwrap().count > 1, "and the series goes on");
}

// W8
#[tokio::test(start_paused = true)]
async fn events_of_one_object_are_bounded_whatever_they_say() {
    let server = shop().await;
    let (reconciler, record) = does(|_: Arc<Website>, cx: Context<Website>| async move {
        cx.event(Event::warning("Failed", format!("attempt {}", cx.id())));
        Ok(Action::requeue_after(Duration::from_secs(1)))
    });
    let _running = Manager::new(server.client()).controller(Controller::new(reconciler)).spawn();
    server.create(&website("a")).await;
    record.reaches(600).await;
    let told = told(&server).await.len();
    assert!((25..=28).contains(&told), "{told} events of 600");
}

// W8
#[tokio::test(start_paused = true)]
async fn an_event_of_a_cluster_scoped_object_is_in_the_default_namespace_and_long_ones_are_cut() {
    let server = ApiServer::in_memory().namespace("default").start().await;
    let (reconciler, record) = does(|_: Arc<Namespace>, cx: Context<Namespace>| async move {
        if cx.key().name() == "farm" {
            cx.event(Event::normal("R".repeat(500), "é".repeat(1_000)).action(""));
        }
        Ok(Action::await_change())
    });
    let _running = Manager::new(server.client()).controller(Controller::new(reconciler)).spawn();
    let metadata = ObjectMeta { name: Some("farm".into()), ..ObjectMeta::default() };
    server.create(&Namespace { metadata, ..Namespace::default() }).await;
    record.reaches(2).await;
    seconds(5).await;
    let told = server.list::<Told>("default").await;
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].regarding.as_ref().unwrap().namespace, None);
    assert!(told[0].note.as_ref().unwrap().len() <= 1_024 && told[0].reason.as_ref().unwrap().len() <= 128);
}

// W8 W2 W14
#[tokio::test(start_paused = true)]
async fn a_run_that_changes_nothing_writes_nothing_with_events_and_conditions_in_use() {
    const SITES: usize = 1_000;
    let server = ApiServer::in_memory().crd::<Shown>().namespace("shop").start().await;
    let (reconciler, record) = does(|site: Arc<Shown>, cx: Context<Shown>| async move {
        let map = k8s_openapi::api::core::v1::ConfigMap {
            metadata: ObjectMeta { name: site.metadata.name.clone(), ..ObjectMeta::default() },
            data: Some([("domain".to_owned(), site.spec.domain.clone())].into()),
            ..Default::default()
        };
        cx.apply(map).await?;
        let mut status = site.status.clone().unwrap_or_default();
        if !status.conditions.is_true("Ready") {
            cx.event(Event::normal("Published", "the site is served"));
        }
        status.conditions.set(Condition::ready("Published", "the site is served").of(&site));
        cx.patch_status(&site, status).await?;
        Ok(Action::requeue_after(Duration::from_secs(60)))
    });
    let controller = Controller::new(reconciler).owns::<k8s_openapi::api::core::v1::ConfigMap>().workers(8);
    let _running = Manager::new(server.client()).controller(controller).spawn();
    for number in 0..SITES {
        let spec = ShownSpec { domain: format!("{number}.example") };
        server.create(&Shown::new(&format!("site-{number}"), spec)).await;
    }
    record.reaches(SITES).await;
    seconds(30).await;
    let writes = || {
        let counts = server.requests().counts();
        let writes = [Verb::Create, Verb::Update, Verb::Patch, Verb::Delete];
        counts.iter().filter(|((verb, _), _)| writes.contains(verb)).map(|(_, count)| count).sum::<u64>()
    };
    assert_eq!(server.requests().count(Verb::Create, "events"), SITES as u64);
    assert_eq!(writes(), 3 * SITES as u64, "a child, a status and an event each");
    let (runs, before) = (record.len(), writes());
    seconds(10 * 60 + 30).await;
    assert!(record.len() >= runs + 10 * SITES, "each ran ten times more: {}", record.len() - runs);
    assert_eq!(writes(), before, "nothing changed, and nothing was written");
    server.patch_merge::<Shown>("shop/site-7", json!({ "spec": { "domain": "other.example" } })).await;
    seconds(5).await;
    assert_eq!(writes(), before + 2, "an edit: its child, and the generation that its condition is of");
}

/// A site that says of itself whether it is ready.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "shown.example.dev", version = "v1", kind = "Shown", namespaced, status = "ShownStatus")]
struct ShownSpec {
    domain: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct ShownStatus {
    #[serde(default)]
    conditions: Conditions,
}

// W14 W9
#[tokio::test(start_paused = true)]
async fn a_condition_that_somebody_else_sets_meanwhile_survives() {
    let server = ApiServer::in_memory().crd::<Shown>().namespace("shop").start().await;
    let kit = server.kit().clone();
    let (reconciler, record) = does(move |site: Arc<Shown>, cx: Context<Shown>| {
        let kit = kit.clone();
        async move {
            if cx.id() == 1 {
                let theirs = json!({
                    "type": "Audited", "status": "True", "reason": "Ok", "message": "",
                    "lastTransitionTime": "2026-01-02T03:04:05Z",
                });
                kit.patch_status::<Shown>("shop/a", json!({ "conditions": [theirs] })).await;
            }
            let mut status = site.status.clone().unwrap_or_default();
            status.conditions.set(Condition::not_ready("Waiting", "1 of 3 pods are ready").of(&site));
            cx.patch_status(&site, status).await?;
            Ok(Action::await_change())
        }
    });
    let _running = Manager::new(server.client()).controller(Controller::new(reconciler)).spawn();
    server.create(&Shown::new("a", ShownSpec { domain: "a.example".into() })).await;
    seconds(30).await;
    let status = server.get::<Shown>("shop/a").await.unwrap().status.unwrap();
    assert!(status.conditions.is_true("Audited") && status.conditions.is_false("Ready"));
    let theirs = serde_json::to_value(status.conditions.get("Audited")).unwrap();
    assert_eq!(theirs["lastTransitionTime"], "2026-01-02T03:04:05Z");
    assert_eq!(status.conditions.get("Ready").unwrap().observed_generation, Some(1));
    assert!(record.starts().iter().all(|start| start.attempt == 1), "a conflict is not a failure");
}
