//! One run: its deadline, its context, its span, its numbers; and what keeps runs from starting.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::ObjectMeta;
use serde_json::json;
use tracing::{
    Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id},
};
use tracing_subscriber::{Layer, layer::SubscriberExt, registry::LookupSpan};
use watchkeeper::{controller::Why, prelude::*, reflector::ReflectorConfig, workqueue::Priority};
use watchkeeper_apiserver::{ApiServer, Fault};
use watchkeeper_tests::{Record, hear};

async fn shop() -> ApiServer {
    ApiServer::in_memory().namespace("shop").start().await
}

fn config_map(name: &str) -> ConfigMap {
    ConfigMap { metadata: ObjectMeta { name: Some(name.into()), ..Default::default() }, ..Default::default() }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("shop", name)
}

type Behaviour = fn(u32) -> anyhow::Result<Action>;

/// Does what the test sets for each run, by its number; run zero never ends.
fn scripted(
    record: &Record,
    behaviour: Behaviour,
) -> Controller<ConfigMap, impl Reconciler<ConfigMap> + use<>> {
    let (record, runs) = (record.clone(), Arc::new(AtomicUsize::new(0)));
    let controller = Controller::from_fn(move |_: Arc<ConfigMap>, cx: Context<ConfigMap>| {
        record.start(&cx);
        let run = runs.fetch_add(1, Ordering::SeqCst) as u32 + 1;
        async move { behaviour(run) }
    });
    controller.namespace("shop")
}

// C2
#[tokio::test(start_paused = true)]
async fn a_run_past_its_deadline_is_an_error_and_its_metric_counts_only_its_own_timeouts() {
    let server = shop().await;
    server.create(&config_map("a")).await;
    let (record, runs) = (Record::default(), Arc::new(AtomicUsize::new(0)));
    let started = record.clone();
    let controller = Controller::from_fn(move |_: Arc<ConfigMap>, cx: Context<ConfigMap>| {
        started.start(&cx);
        let run = runs.fetch_add(1, Ordering::SeqCst);
        async move {
            match run {
                0 => std::future::pending().await,
                1 => {
                    // A timeout of the reconciler's own: an error like any other.
                    tokio::time::timeout(Duration::from_secs(1), std::future::pending::<()>()).await?;
                    unreachable!()
                }
                _ => anyhow::Ok(Action::await_change()),
            }
        }
    });
    let manager = Manager::new(server.client());
    let metrics = manager.metrics();
    let controller = controller.namespace("shop").deadline(Duration::from_secs(10));
    let running = manager.controller(controller).spawn();
    record.reaches(1).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(matches!(running.why::<ConfigMap>(&key("a"))[0].why, Why::InFlight { attempt: 1, .. }));
    record.reaches(3).await;
    let starts = record.starts();
    let ran = starts[1].at - starts[0].at;
    assert!((Duration::from_secs(10)..Duration::from_millis(10_100)).contains(&ran), "{ran:?}");
    assert_eq!(starts[2].attempt, 3);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(value(&metrics.encode(), "controller_runtime_reconcile_timeouts_total"), 1.0);
    assert_eq!(value(&metrics.encode(), "controller_runtime_reconcile_errors_total"), 2.0);
}

/// Returns the value of a series without further labels than the controller.
fn value(text: &str, name: &str) -> f64 {
    labelled(text, &format!("{name}{{controller=\"configmaps\"}}"))
}

fn labelled(text: &str, series: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(series));
    line.unwrap_or_else(|| panic!("no {series} in\n{text}")).trim().parse().unwrap()
}

// C13
#[tokio::test(start_paused = true)]
async fn totals_by_result_errors_and_times_are_exact() {
    let server = shop().await;
    let manager = Manager::new(server.client());
    let (metrics, record) = (manager.metrics(), Record::default());
    let controller = scripted(&record, |run| match run {
        1 => anyhow::bail!("fails"),
        2 => Ok(Action::backoff()),
        3 => panic!("as told"),
        4 => Ok(Action::requeue_after(Duration::from_secs(60))),
        5 => Err(Terminal::new("no use").into()),
        _ => Ok(Action::await_change()),
    });
    let _running = manager.controller(controller.workers(3)).spawn();
    let result = |result: &str| {
        let text = metrics.encode();
        labelled(
            &text,
            &format!("controller_runtime_reconcile_total{{controller=\"configmaps\",result=\"{result}\"}}"),
        )
    };
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(result("success"), 0.0, "there before the first run");
    server.create(&config_map("a")).await;
    record.reaches(5).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    server.patch_merge::<ConfigMap>("shop/a", json!({ "data": { "k": "v" } })).await;
    record.reaches(6).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let results = ["success", "error", "requeue", "requeue_after"].map(result);
    assert_eq!(results, [1.0, 3.0, 1.0, 1.0]);
    let text = metrics.encode();
    for (name, wanted) in [
        ("controller_runtime_reconcile_errors_total", 3.0),
        ("controller_runtime_terminal_reconcile_errors_total", 1.0),
        ("controller_runtime_reconcile_panics_total", 1.0),
        ("controller_runtime_reconcile_timeouts_total", 0.0),
        ("controller_runtime_reconcile_time_seconds_count", 6.0),
        ("controller_runtime_reconcile_time_seconds_sum", 0.0),
        ("controller_runtime_max_concurrent_reconciles", 3.0),
        ("controller_runtime_active_workers", 0.0),
    ] {
        assert_eq!(value(&text, name), wanted, "{name}");
    }
    assert!(text.contains(
        r#"controller_runtime_reconcile_time_seconds_bucket{le="0.005",controller="configmaps"} 6"#
    ));
}

// C13
#[tokio::test(start_paused = true)]
async fn a_busy_worker_is_active_and_the_time_of_a_run_is_seen() {
    let server = shop().await;
    server.create(&config_map("a")).await;
    let manager = Manager::new(server.client());
    let metrics = manager.metrics();
    let controller = Controller::from_fn(async |_: Arc<ConfigMap>, _: Context<ConfigMap>| {
        tokio::time::sleep(Duration::from_secs(7)).await;
        Ok::<_, watchkeeper::Error>(Action::await_change())
    });
    let _running = manager.controller(controller.namespace("shop")).spawn();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(value(&metrics.encode(), "controller_runtime_active_workers"), 1.0);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let text = metrics.encode();
    assert_eq!(value(&text, "controller_runtime_active_workers"), 0.0);
    let took = value(&text, "controller_runtime_reconcile_time_seconds_sum");
    assert!((7.0..7.01).contains(&took), "{took}");
}

/// Collects the fields of the spans in which reconcilers log.
#[derive(Clone, Default)]
struct Spans {
    seen: Arc<Mutex<Vec<BTreeMap<String, String>>>>,
}

struct Fields<'a>(&'a mut BTreeMap<String, String>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, span: &Attributes<'_>, _: &Id, _: tracing_subscriber::layer::Context<'_, S>) {
        if span.metadata().name() == "reconcile" {
            let mut fields = BTreeMap::new();
            span.record(&mut Fields(&mut fields));
            self.seen.lock().unwrap().push(fields);
        }
    }
}

// C14
#[tokio::test(start_paused = true)]
async fn every_run_has_a_span_and_a_context_with_key_attempt_reason_and_id() {
    let spans = Spans::default();
    let _heard = hear(tracing_subscriber::registry().with(spans.clone()));
    let server = shop().await;
    server.create(&config_map("a")).await;
    let contexts = Arc::new(Mutex::new(Vec::new()));
    let (seen, record) = (contexts.clone(), Record::default());
    let started = record.clone();
    let controller = Controller::from_fn(move |_: Arc<ConfigMap>, cx: Context<ConfigMap>| {
        started.start(&cx);
        seen.lock().unwrap().push((cx.key().to_string(), cx.attempt(), cx.reason().to_string(), cx.id()));
        async move {
            match cx.id() {
                1 => anyhow::bail!("fails"),
                2 => Ok(Action::requeue_after(Duration::from_secs(60))),
                _ => Ok(Action::await_change()),
            }
        }
    });
    let _running = Manager::new(server.client()).controller(controller.namespace("shop")).spawn();
    record.reaches(3).await;
    server.patch_merge::<ConfigMap>("shop/a", json!({ "data": { "k": "v" } })).await;
    record.reaches(4).await;
    server.create(&config_map("b")).await;
    record.reaches(5).await;
    let text = |value: &str| value.to_owned();
    let wanted = [
        (text("shop/a"), 1, text("initial_list"), 1),
        (text("shop/a"), 2, text("retry"), 2),
        (text("shop/a"), 1, text("due"), 3),
        (text("shop/a"), 1, text("changed"), 4),
        (text("shop/b"), 1, text("changed"), 5),
    ];
    assert_eq!(*contexts.lock().unwrap(), wanted);
    let spans = spans.seen.lock().unwrap();
    assert_eq!(spans.len(), wanted.len());
    for (span, (key, attempt, reason, id)) in spans.iter().zip(&wanted) {
        let all = [
            ("controller", "configmaps"),
            ("kind", "configmaps"),
            ("key", key),
            ("attempt", &attempt.to_string()),
            // A text, which shows in quotes: it may hold blanks.
            ("reason", &format!("{reason:?}")),
            ("id", &id.to_string()),
        ];
        let all = all.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(*span, BTreeMap::from(all));
    }
}

/// Starts on a shop of a hundred maps with one worker that takes a second a run; `then` is what each run asks for.
async fn restart(
    server: &ApiServer,
    record: &Record,
    then: fn() -> Action,
) -> (watchkeeper::Running, tokio::time::Instant) {
    for at in 0..100 {
        server.create(&config_map(&format!("map-{at:02}"))).await;
    }
    let started = record.clone();
    let controller = Controller::from_fn(move |_: Arc<ConfigMap>, cx: Context<ConfigMap>| {
        started.start(&cx);
        async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            anyhow::Ok(then())
        }
    });
    let running = Manager::new(server.client()).controller(controller.namespace("shop")).spawn();
    record.reaches(10).await;
    (running, tokio::time::Instant::now())
}

// C12
#[tokio::test(start_paused = true)]
async fn a_first_list_of_a_restart_does_not_hide_what_changes() {
    let server = shop().await;
    let record = Record::default();
    let (_running, began) = restart(&server, &record, Action::await_change).await;
    server.create(&config_map("new")).await;
    server.patch_merge::<ConfigMap>("shop/map-99", json!({ "data": { "k": "v" } })).await;
    record.reaches(14).await;
    let names = record.names();
    assert!(
        names[10..].contains(&"new".to_owned()) && names[10..].contains(&"map-99".to_owned()),
        "{names:?}"
    );
    assert!(began.elapsed() < Duration::from_secs(5));
    record.reaches(101).await;
    assert_eq!(record.last_reason(), "initial_list", "and nobody starves");
}

// C12
#[tokio::test(start_paused = true)]
async fn a_run_keeps_its_priority_unless_it_says_otherwise() {
    for (then, place) in [(never as fn() -> Action, 90), (first, 4)] {
        let server = shop().await;
        let record = Record::default();
        let _running = restart(&server, &record, then).await;
        record.reaches(180).await;
        let names = record.names();
        let again = names[1..].iter().position(|name| *name == names[0]).unwrap() + 1;
        assert!(again.abs_diff(place) <= 12, "again as run {again}, not about {place}");
    }

    fn never() -> Action {
        Action::requeue_after(Duration::from_millis(1))
    }

    fn first() -> Action {
        Action::requeue_after(Duration::from_millis(1)).with_priority(Priority::High)
    }
}

// C14
#[tokio::test(start_paused = true)]
async fn a_resync_runs_idle_keys_and_is_named_as_the_reason() {
    let server = shop().await;
    server.create(&config_map("a")).await;
    let record = Record::default();
    let controller = scripted(&record, |_| Ok(Action::await_change()));
    let config = ReflectorConfig { resync: Some(Duration::from_secs(60)), ..ReflectorConfig::default() };
    let _running = Manager::with_config(server.client(), config).controller(controller).spawn();
    record.reaches(3).await;
    let reasons: Vec<_> = record.starts().iter().map(|start| start.reason.clone().unwrap()).collect();
    assert_eq!(reasons, [Reason::InitialList, Reason::Resync, Reason::Resync]);
}

// C3
#[tokio::test(start_paused = true)]
async fn a_sync_timeout_ends_in_an_error_that_says_for_whom_it_waited() {
    let server = shop().await;
    server.create(&config_map("a")).await;
    server.faults().on_any("secrets").always().then(Fault::Status(403));
    let record = Record::default();
    let waiting = scripted(&record, |_| Ok(Action::await_change())).watches::<Secret>(|_| Vec::new());
    let healthy = Record::default();
    let other = scripted(&healthy, |_| Ok(Action::await_change())).named("other");
    let began = tokio::time::Instant::now();
    let mut running = Manager::new(server.client())
        .controller(waiting.sync_timeout(Duration::from_secs(90)))
        .controller(other)
        .spawn();
    let error = running.ended().await.unwrap_err().to_string();
    assert!((89..=91).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    let begins = "controller configmaps: not synced within 90s: secrets has not listed yet: permission to list it is missing";
    assert!(error.starts_with(begins) && error.contains("403"), "{error}");
    assert!(record.is_empty());
    server.patch_merge::<ConfigMap>("shop/a", json!({ "data": { "k": "v" } })).await;
    healthy.reaches(2).await;
    running.stop().await.unwrap();
}

// C3
#[tokio::test(start_paused = true)]
async fn a_stop_during_the_sync_is_clean_and_at_once() {
    let server = shop().await;
    server.create(&config_map("a")).await;
    server.faults().on_any("secrets").always().then(Fault::Silence);
    let record = Record::default();
    let controller = scripted(&record, |_| Ok(Action::await_change())).watches::<Secret>(|_| Vec::new());
    let running = Manager::new(server.client()).controller(controller).spawn();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let began = tokio::time::Instant::now();
    running.stop().await.unwrap();
    assert!(began.elapsed() < Duration::from_millis(10), "{:?}", began.elapsed());
    assert!(record.is_empty());
}

// Q1 C38
#[tokio::test(start_paused = true)]
async fn a_run_that_does_not_end_holds_up_its_key_and_one_worker_alone() {
    let server = shop().await;
    let record = Record::default();
    let started = record.clone();
    let controller = Controller::from_fn(move |map: Arc<ConfigMap>, cx: Context<ConfigMap>| {
        started.start(&cx);
        async move {
            match map.name() {
                "stuck" => std::future::pending().await,
                _ => Ok::<_, anyhow::Error>(Action::await_change()),
            }
        }
    });
    let manager = Manager::new(server.client()).grace_period(Duration::ZERO);
    let running = manager.controller(controller.namespace("shop").workers(2)).spawn();
    server.create(&config_map("stuck")).await;
    record.reaches(1).await;
    for edit in 0..20 {
        let (name, patch) = (format!("free-{edit}"), json!({ "data": { "edit": edit.to_string() } }));
        server.create(&config_map(&name)).await;
        server.patch_merge::<ConfigMap>("shop/stuck", patch.clone()).await;
        server.patch_merge::<ConfigMap>(&format!("shop/{name}"), patch).await;
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    let names = record.names();
    assert_eq!(names.iter().filter(|name| *name == "stuck").count(), 1, "its key waits: {names:?}");
    for edit in 0..20 {
        assert!(names.contains(&format!("free-{edit}")), "free-{edit} waits for another key");
    }
    assert!(running.stop().await.is_err(), "it was dropped");
}

// C18 C2
#[tokio::test(start_paused = true)]
async fn a_reconciler_that_never_returns_keeps_its_worker_until_the_grace_period_ends_it() {
    let server = shop().await;
    server.create(&config_map("a")).await;
    server.create(&config_map("b")).await;
    let record = Record::default();
    let started = record.clone();
    let controller = Controller::from_fn(move |_: Arc<ConfigMap>, cx: Context<ConfigMap>| {
        started.start(&cx);
        std::future::pending::<anyhow::Result<Action>>()
    });
    let manager = Manager::new(server.client()).grace_period(Duration::from_secs(20));
    let running = manager.controller(controller.namespace("shop")).spawn();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(record.len(), 1);
    let (first, second) = if record.names()[0] == "a" { ("a", "b") } else { ("b", "a") };
    assert!(matches!(running.why::<ConfigMap>(&key(first))[0].why, Why::InFlight { .. }));
    assert_eq!(running.why::<ConfigMap>(&key(second))[0].why, Why::Queued);
    let (began, inspector) = (tokio::time::Instant::now(), running.inspector());
    let error = running.stop().await.unwrap_err();
    let watchkeeper::Error::PastGracePeriod { period, .. } = &error else { panic!("{error}") };
    assert_eq!(*period, Duration::from_secs(20));
    assert!((20..=22).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    assert_eq!(inspector.why::<ConfigMap>(&key(second))[0].why, Why::Stopped);
    assert_eq!(record.len(), 1);
}

// C7
#[tokio::test(start_paused = true)]
async fn a_task_that_a_run_spawned_and_forgot_may_panic_or_go_on_and_concerns_nobody() {
    let server = shop().await;
    server.create(&config_map("a")).await;
    let record = Record::default();
    let started = record.clone();
    let controller = Controller::from_fn(move |_: Arc<ConfigMap>, cx: Context<ConfigMap>| {
        started.start(&cx);
        async move {
            tokio::spawn(async { panic!("nobody hears it") });
            let held = cx.clone();
            tokio::spawn(async move {
                std::future::pending::<Context<ConfigMap>>().await.key().clone() == *held.key()
            });
            anyhow::Ok(Action::await_change())
        }
    });
    let running = Manager::new(server.client()).controller(controller.namespace("shop")).spawn();
    record.reaches(1).await;
    server.patch_merge::<ConfigMap>("shop/a", json!({ "data": { "k": "v" } })).await;
    record.reaches(2).await;
    assert_eq!(record.starts()[1].attempt, 1);
    running.stop().await.unwrap();
}

// C9
#[tokio::test(start_paused = true)]
async fn a_delay_without_end_means_until_something_changes() {
    let server = shop().await;
    server.create(&config_map("a")).await;
    let record = Record::default();
    let controller = scripted(&record, |run| match run {
        1 => Ok(Action::requeue_after(Duration::MAX)),
        2 => Ok(Action::requeue_after_with_jitter(Duration::MAX, Duration::MAX)),
        3 => Ok(Action::backoff_at_least(Duration::MAX)),
        _ => Ok(Action::await_change()),
    });
    let _running = Manager::new(server.client()).controller(controller).spawn();
    for run in 1..=3 {
        record.reaches(run).await;
        tokio::time::sleep(Duration::from_secs(86_400)).await;
        assert_eq!(record.len(), run);
        server.patch_merge::<ConfigMap>("shop/a", json!({ "data": { "k": run.to_string() } })).await;
    }
    record.reaches(4).await;
}
