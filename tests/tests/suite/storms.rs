//! Runs of one key that keep writing, and keep being woken, are paced.

use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{Patch, PatchParams},
    core::ObjectMeta,
};
use serde_json::json;
use watchkeeper::{controller::Why, prelude::*};
use watchkeeper_apiserver::{ApiServer, Fault, Verb};
use watchkeeper_tests::{Record, Website, WebsiteStatus, deployment_for, does, exposition::sum, website};

async fn shop() -> ApiServer {
    ApiServer::in_memory().crd::<Website>().namespace("shop").start().await
}

fn key() -> ObjectKey {
    ObjectKey::new("shop", "a")
}

/// Storms that nobody slows end here, so that they fail a test and do not hang it.
const AT_MOST: usize = 10_000;

/// Wants its own number in the status, whatever another one wrote there.
fn stubborn(
    name: &str,
    number: i32,
    record: &Record,
) -> Controller<Website, impl Reconciler<Website> + use<>> {
    let record = record.clone();
    let controller = Controller::from_fn(move |site: Arc<Website>, cx: Context<Website>| {
        record.start(&cx);
        let goes_on = record.len() < AT_MOST;
        async move {
            if goes_on {
                cx.patch_status(&site, WebsiteStatus { replicas: number, ready_replicas: 0 }).await?;
            }
            Ok::<_, watchkeeper::Error>(Action::await_change())
        }
    });
    controller.named(name)
}

fn paced(text: &str, controller: &str) -> u64 {
    let series = format!("watchkeeper_paced_reconciles_total{{controller=\"{controller}\"}} ");
    text.lines().find_map(|line| line.strip_prefix(&series)).unwrap().parse().unwrap()
}

// C30
#[tokio::test(start_paused = true)]
async fn two_operators_that_overwrite_each_other_are_slowed_to_one_run_a_second_each() {
    let server = shop().await;
    server.create(&website("a")).await;
    let (one, other) = (Record::default(), Record::default());
    let manager = Manager::new(server.client());
    let metrics = manager.metrics();
    let _running =
        manager.controller(stubborn("one", 1, &one)).controller(stubborn("other", 2, &other)).spawn();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let written = server.requests().count(Verb::Patch, "websites");
    assert!(one.len() > 20 && other.len() > 20, "the storm did not come: {} {}", one.len(), other.len());
    for record in [&one, &other] {
        let starts = record.starts();
        for (at, from) in starts.iter().enumerate() {
            let within = starts[at..].iter().take_while(|to| to.at - from.at <= Duration::from_secs(10));
            assert!(within.count() <= 10 + 10 + 1, "{starts:?}");
        }
    }
    assert!(written <= 2 * (10 + 60 + 2), "{written} writes");
    assert!(paced(&metrics.encode(), "one") > 10 && paced(&metrics.encode(), "other") > 10);
    let storms =
        |controller| sum(&metrics.encode(), "watchkeeper_storms_total", &[("controller", controller)]);
    assert!(storms("one") >= 1.0 && storms("other") >= 1.0, "{} {}", storms("one"), storms("other"));
}

// C30
#[tokio::test(start_paused = true)]
async fn runs_that_write_nothing_are_never_paced_however_often_their_object_changes() {
    let server = shop().await;
    server.create(&website("a")).await;
    let record = Record::default();
    let started = record.clone();
    let controller = Controller::from_fn(move |_: Arc<Website>, cx: Context<Website>| {
        started.start(&cx);
        async { Ok::<_, watchkeeper::Error>(Action::await_change()) }
    });
    let manager = Manager::new(server.client());
    let metrics = manager.metrics();
    let _running = manager.controller(controller).spawn();
    record.reaches(1).await;
    for change in 1..=50 {
        server.patch_status::<Website>("shop/a", json!({ "replicas": change })).await;
        record.reaches(change + 1).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(paced(&metrics.encode(), "websites.web.example.dev"), 0);
}

// C30
#[tokio::test(start_paused = true)]
async fn runs_that_take_time_and_write_nothing_are_not_paced_though_others_write_meanwhile() {
    let server = shop().await;
    server.create(&website("a")).await;
    let (reconciler, record) = does::<Website, _, _>(|_, _| async {
        tokio::time::sleep(Duration::from_millis(110)).await;
        Ok(Action::await_change())
    });
    let limit = RateLimit::per_period(Duration::from_secs(20)).burst(2);
    let manager = Manager::new(server.client());
    let metrics = manager.metrics();
    let _running = manager
        .controller(Controller::<Website, _>::new(reconciler).named("usual"))
        .controller(looking_for(Duration::from_millis(110)).named("strict").storm_limit(limit))
        .spawn();
    record.reaches(1).await;
    for change in 1..=1_200 {
        server.patch_status::<Website>("shop/a", json!({ "replicas": change })).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(record.len() > 450, "{} runs in a minute", record.len());
    assert_eq!((paced(&metrics.encode(), "usual"), paced(&metrics.encode(), "strict")), (0, 0));
}

fn looking_for(time: Duration) -> Controller<Website, impl Reconciler<Website> + use<>> {
    let (reconciler, _) = does::<Website, _, _>(move |_, _| async move {
        tokio::time::sleep(time).await;
        Ok(Action::await_change())
    });
    Controller::new(reconciler)
}

// C36
#[tokio::test(start_paused = true)]
async fn runs_that_end_in_conflicts_are_paced_like_others() {
    let server = shop().await;
    server.create(&website("a")).await;
    server.faults().on(Verb::Patch, "deployments").always().then(Fault::Status(409));
    let (reconciler, record) = does(|site: Arc<Website>, cx: Context<Website>| async move {
        cx.apply(deployment_for(&site)).await?;
        Ok(Action::await_change())
    });
    let manager = Manager::new(server.client());
    let metrics = manager.metrics();
    let _running = manager.controller(Controller::new(reconciler).named("refused")).spawn();
    record.reaches(1).await;
    for change in 1..=6_000 {
        server.patch_status::<Website>("shop/a", json!({ "replicas": change })).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!((40..=75).contains(&record.len()), "{} runs in a minute", record.len());
    assert!(paced(&metrics.encode(), "refused") > 30);
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Counts in the status, through a client that it has of its own, or takes from the context.
fn counts_by_itself(
    record: &Record,
    captured: Option<kube::Client>,
    goes_on_for: Duration,
) -> Controller<Website, impl Reconciler<Website> + use<>> {
    let (started, counter) = (record.clone(), Arc::new(AtomicUsize::new(0)));
    Controller::from_fn(move |site: Arc<Website>, cx: Context<Website>| {
        started.start(&cx);
        let client = captured.clone().unwrap_or_else(|| cx.client().clone());
        let sites: Api<Website> = Api::namespaced(client, "shop");
        let count = counter.fetch_add(1, Ordering::SeqCst);
        async move {
            if count >= AT_MOST {
                return Ok(Action::await_change());
            }
            let patch = json!({ "status": { "replicas": count } });
            sites.patch_status(&site.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
            // Where it goes on, the event comes while it does something else.
            if !goes_on_for.is_zero() {
                tokio::time::sleep(goes_on_for).await;
            }
            Ok::<_, watchkeeper::Error>(Action::await_change())
        }
    })
}

// C30
#[tokio::test(start_paused = true)]
async fn writes_through_a_client_that_nobody_knows_of_are_slowed_to_ten_a_second() {
    let server = shop().await;
    server.create(&website("a")).await;
    let record = Record::default();
    let controller = counts_by_itself(&record, Some(server.client()), ms(5));
    let _running = Manager::new(server.client()).controller(controller).spawn();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!((300..=400).contains(&record.len()), "{} runs in 30 s", record.len());
}

// C30
#[tokio::test(start_paused = true)]
async fn writes_through_the_contexts_client_are_a_storm_too() {
    let server = shop().await;
    server.create(&website("a")).await;
    let record = Record::default();
    let running = Manager::new(server.client()).controller(counts_by_itself(&record, None, ms(5))).spawn();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!((30..=42).contains(&record.len()), "{} runs in 30 s", record.len());
    let report = running.why::<Website>(&key()).remove(0);
    assert!(matches!(report.why, Why::Paced { .. }), "{report:?}");
    assert_eq!(report.reason.unwrap().to_string(), "changed");
}

// C30
#[tokio::test(start_paused = true)]
async fn writes_through_the_contexts_client_that_show_after_the_run_are_slowed_to_ten_a_second() {
    let server = shop().await;
    server.create(&website("a")).await;
    let record = Record::default();
    let controller = counts_by_itself(&record, None, Duration::ZERO);
    let _running = Manager::new(server.client()).controller(controller).spawn();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!((30..=500).contains(&record.len()), "{} runs in 30 s", record.len());
}

// C30
#[tokio::test(start_paused = true)]
async fn the_budget_is_a_setting() {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    let metadata = ObjectMeta { name: Some("a".into()), ..ObjectMeta::default() };
    server.create(&ConfigMap { metadata, ..ConfigMap::default() }).await;
    let record = Record::default();
    let started = record.clone();
    let controller = Controller::from_fn(move |_: Arc<ConfigMap>, cx: Context<ConfigMap>| {
        started.start(&cx);
        let maps: Api<ConfigMap> = Api::namespaced(cx.client().clone(), "shop");
        async move {
            let patch = json!({ "data": { "run": cx.id().to_string() } });
            maps.patch("a", &PatchParams::default(), &Patch::Merge(patch)).await?;
            tokio::time::sleep(Duration::from_millis(1)).await;
            match cx.id() {
                1..=5 => anyhow::bail!("fails, and writes"),
                _ => anyhow::Ok(Action::await_change()),
            }
        }
    });
    let limit = RateLimit::per_period(Duration::from_secs(20)).burst(2);
    let controller = controller.namespace("shop").storm_limit(limit);
    let _running = Manager::new(server.client()).controller(controller).spawn();
    record.reaches(9).await;
    let starts = record.starts();
    let gap = |run: usize| (starts[run].at - starts[run - 1].at).as_secs();
    assert!((1..=5).all(|run| gap(run) <= 1), "{starts:?}");
    assert!((19..=21).contains(&gap(8)), "{starts:?}");
}

// C30
#[tokio::test(start_paused = true)]
async fn retries_are_not_charged_whatever_they_write() {
    let server = shop().await;
    server.create(&website("a")).await;
    let (reconciler, record) = does(|site: Arc<Website>, cx: Context<Website>| async move {
        let replicas = i32::try_from(cx.id())?;
        cx.patch_status(&site, WebsiteStatus { replicas, ready_replicas: 0 }).await?;
        anyhow::ensure!(cx.id() > 5, "fails, and writes");
        Ok(Action::await_change())
    });
    let limit = RateLimit::per_period(Duration::from_secs(20)).burst(2);
    let _running =
        Manager::new(server.client()).controller(Controller::new(reconciler).storm_limit(limit)).spawn();
    record.reaches(6).await;
    let reasons: Vec<_> =
        record.starts().iter().map(|start| start.reason.clone().unwrap().to_string()).collect();
    assert_eq!(reasons[1..], ["retry"; 5]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let changed = tokio::time::Instant::now();
    server.patch_merge::<Website>("shop/a", json!({ "metadata": { "labels": { "edited": "yes" } } })).await;
    record.reaches(7).await;
    let took = record.starts()[6].at - changed;
    assert!(took < Duration::from_secs(1), "only the first run was charged: {took:?}");
}
