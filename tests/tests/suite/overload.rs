//! What a server that says it is overloaded gets: nothing, until the time that it named.

use std::sync::Mutex;

use http::{Method, Request};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{client::Body, core::ObjectMeta};
use serde_json::json;
use tokio::time::Instant;
use watchkeeper::{WriteError, controller::Why, prelude::*};
use watchkeeper_apiserver::{ApiServer, Fault, Verb};
use watchkeeper_tests::{Website, backend::Log, does, website};

async fn shop() -> ApiServer {
    ApiServer::in_memory().crd::<Website>().namespace("shop").start().await
}

fn config_map(name: &str) -> ConfigMap {
    ConfigMap { metadata: ObjectMeta { name: Some(name.into()), ..Default::default() }, ..Default::default() }
}

/// The times of requests that are not reads.
#[derive(Clone, Default)]
struct Sent(Arc<Mutex<Vec<(Instant, String)>>>);

impl Sent {
    /// Looks at the requests of a client.
    fn by(client: kube::Client) -> (Self, kube::Client) {
        let (sent, namespace) = (Self::default(), client.default_namespace().to_owned());
        let kept = sent.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            if request.method() != Method::GET {
                let path = request.uri().path().to_owned();
                sent.0.lock().unwrap().push((Instant::now(), path));
            }
            let client = client.clone();
            async move { client.send(request).await }
        });
        (kept, kube::Client::new(service, namespace))
    }

    /// Says after how many seconds the requests with this in their path were sent.
    fn seconds(&self, since: Instant, part: &str) -> Vec<u64> {
        let sent = self.0.lock().unwrap();
        sent.iter().filter(|(_, path)| path.contains(part)).map(|(at, _)| (*at - since).as_secs()).collect()
    }
}

// W11
#[tokio::test(start_paused = true)]
async fn a_write_is_not_sent_again_before_the_server_wants_it() {
    let server = shop().await;
    server.faults().on(Verb::Patch, "configmaps").times(3).then(Fault::Status(429).retry_after(10));
    let (reconciler, record) = does(|_: Arc<Website>, cx: Context<Website>| async move {
        cx.apply(config_map("child")).await?;
        Ok(Action::await_change())
    });
    let (sent, client) = Sent::by(server.client());
    let began = Instant::now();
    let controller = Controller::new(reconciler).owns::<ConfigMap>();
    let _running = Manager::new(client).controller(controller).spawn();
    server.create(&website("a")).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(sent.seconds(began, "configmaps"), [0, 10, 20, 30]);
    let attempts: Vec<_> = record.starts().iter().map(|start| start.attempt).collect();
    assert_eq!(attempts, [1, 2, 3, 4], "each was a failure");
}

// W11
#[tokio::test(start_paused = true)]
async fn a_change_does_not_send_a_write_before_the_server_wants_it() {
    let server = shop().await;
    server.faults().on(Verb::Patch, "configmaps").times(1).then(Fault::Status(429).retry_after(30));
    let (reconciler, _record) = does(|_: Arc<Website>, cx: Context<Website>| async move {
        cx.apply(config_map("child")).await?;
        Ok(Action::await_change())
    });
    let (sent, client) = Sent::by(server.client());
    let began = Instant::now();
    let controller = Controller::new(reconciler).owns::<ConfigMap>();
    let running = Manager::new(client).controller(controller).spawn();
    server.create(&website("a")).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    server.patch_merge::<Website>("shop/a", json!({"spec": {"replicas": 3}})).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let why = running.why::<Website>(&ObjectKey::new("shop", "a")).remove(0).why;
    assert!(matches!(why, Why::BackingOff { failures: 1, .. }), "{why:?}");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(sent.seconds(began, "configmaps"), [0, 30]);
}

// W11
#[tokio::test(start_paused = true)]
async fn while_the_server_is_overloaded_no_controller_writes_and_none_fails_for_it() {
    let server = shop().await;
    server.faults().on(Verb::Patch, "configmaps").times(2).then(Fault::Status(503).retry_after(20));
    let (first, _) = does(|_: Arc<Website>, cx: Context<Website>| async move {
        cx.apply(config_map("child")).await?;
        Ok(Action::await_change())
    });
    let said = Arc::new(Mutex::new(Vec::new()));
    let seen = said.clone();
    let (second, record) = does(move |site: Arc<Website>, cx: Context<Website>| {
        let seen = seen.clone();
        async move {
            if site.name_any() == "b" {
                return Ok(Action::await_change());
            }
            // It comes late, and tries several writes.
            tokio::time::sleep(Duration::from_secs(3)).await;
            let began = Instant::now();
            let status = watchkeeper_tests::WebsiteStatus { replicas: 1, ready_replicas: 0 };
            let mut gone = config_map("gone");
            gone.metadata.namespace = Some("shop".into());
            gone.metadata.uid = Some("some-uid".into());
            let done = [
                cx.patch_status(&site, status).await.map(drop),
                cx.apply(config_map("other")).await.map(drop),
                cx.create(config_map("third")).await.map(drop),
                cx.delete(&gone).await,
            ];
            assert_eq!(began.elapsed(), Duration::ZERO, "a run that can't write holds no worker");
            let mut failed: Vec<_> = done.into_iter().filter_map(Result::err).collect();
            let last = failed.pop();
            seen.lock().unwrap().extend(failed);
            last.map_or(Ok(()), Err)?;
            Ok(Action::await_change())
        }
    });
    let (sent, client) = Sent::by(server.client());
    let log = Log::default();
    let _taken = log.take();
    let began = Instant::now();
    let _running = Manager::new(client)
        .controller(Controller::new(first).owns::<ConfigMap>())
        .controller(Controller::new(second).named("second").owns::<ConfigMap>())
        .spawn();
    server.create(&website("a")).await;
    server.create(&website("b")).await;
    tokio::time::sleep(Duration::from_secs(19)).await;
    assert_eq!(sent.seconds(began, ""), [0, 0], "two requests, and then quiet");
    {
        let said = said.lock().unwrap();
        assert_eq!(said.len(), 3);
        for failed in said.iter() {
            let WriteError::Overloaded { retry_after, .. } = failed else { panic!("{failed:?}") };
            assert_eq!(retry_after.asked(), Duration::from_secs(20));
        }
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(server.get::<ConfigMap>("shop/child").await.is_some());
    assert!(sent.seconds(began, "").len() > 4, "everybody writes again");
    let starts = record.starts();
    assert!(starts.iter().all(|start| start.attempt == 1), "nothing was sent, nothing failed: {starts:?}");
    // The two that were refused did fail.
    assert_eq!(log.lines_with(&["reconciled again", "controller=second"]), Vec::<String>::new());
}

// W11
#[tokio::test(start_paused = true)]
async fn a_refusal_among_writes_that_are_taken_holds_up_the_refused_key_alone() {
    let server = shop().await;
    server
        .faults()
        .on(Verb::Patch, "configmaps")
        .name("refused")
        .once()
        .then(Fault::Status(429).retry_after(20));
    let (reconciler, record) = does(|site: Arc<Website>, cx: Context<Website>| async move {
        cx.apply(config_map(&site.name_any())).await?;
        Ok(Action::requeue_after(Duration::from_secs(1)))
    });
    let (sent, client) = Sent::by(server.client());
    // Nobody watches the children, so that each run sends.
    let _running = Manager::new(client).controller(Controller::new(reconciler)).spawn();
    server.create(&website("taken")).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let began = Instant::now();
    server.create(&website("refused")).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let refused = sent.seconds(began, "configmaps/refused");
    assert_eq!(refused[..2], [0, 20], "the key that was refused waits as long as the server asked");
    let taken = sent.seconds(began, "configmaps/taken").len();
    assert!(taken >= 25, "{taken} writes of the other key in 30 s");
    assert!(record.len() >= 27);
}

// W11
#[tokio::test(start_paused = true)]
async fn a_refused_read_of_a_run_holds_up_nobody_else() {
    let server = shop().await;
    server.faults().on(Verb::Get, "secrets").always().then(Fault::Status(429).retry_after(20));
    let (reads, record) = does(|_: Arc<Website>, cx: Context<Website>| async move {
        // Several in a row, as nothing less pauses writes.
        for _ in 0..4 {
            let _refused = cx.get::<Secret>(&ObjectKey::new("shop", "a")).await;
        }
        let _: Secret = cx.get(&ObjectKey::new("shop", "a")).await?;
        Ok(Action::await_change())
    });
    let (writes, _) = does(|site: Arc<Website>, cx: Context<Website>| async move {
        cx.apply(config_map(&site.name_any())).await?;
        Ok(Action::requeue_after(Duration::from_secs(1)))
    });
    let (sent, client) = Sent::by(server.client());
    // Nobody watches the child, so that each run sends.
    let _running = Manager::new(client)
        .controller(Controller::new(reads).named("reads"))
        .controller(Controller::new(writes).named("writes"))
        .spawn();
    server.create(&website("a")).await;
    server.create(&website("b")).await;
    let began = Instant::now();
    tokio::time::sleep(Duration::from_secs(30)).await;
    let sent = sent.seconds(began, "configmaps").len();
    assert!(sent >= 50, "two keys write each second: {sent}");
    assert!(record.len() <= 4, "and the reads wait as long as the server asked");
}

// W11
#[tokio::test(start_paused = true)]
async fn a_hostile_time_is_bounded_and_an_error_of_one_request_holds_up_nobody_else() {
    let server = shop().await;
    let hostile = Fault::Status(500).retry_after(1_000_000_000);
    server.faults().on(Verb::Patch, "configmaps").name("child").once().then(hostile);
    let apply = |name: &'static str| {
        does(move |_: Arc<Website>, cx: Context<Website>| async move {
            cx.apply(config_map(name)).await?;
            Ok(Action::requeue_after(Duration::from_secs(40)))
        })
    };
    let ((first, _), (second, _)) = (apply("child"), apply("other"));
    let (sent, client) = Sent::by(server.client());
    let began = Instant::now();
    // Nobody owns the children, so that each run sends.
    let _running = Manager::new(client)
        .controller(Controller::new(first))
        .controller(Controller::new(second).named("second"))
        .spawn();
    server.create(&website("a")).await;
    tokio::time::sleep(Duration::from_secs(330)).await;
    assert_eq!(sent.seconds(began, "configmaps/child"), [0, 300], "not before five minutes");
    assert_eq!(sent.seconds(began, "configmaps/other").len(), 9, "a 500 speaks of one request");
}

// W11
#[tokio::test(start_paused = true)]
async fn an_overload_without_end_costs_one_request_at_a_time() {
    let server = shop().await;
    server.faults().on(Verb::Patch, "configmaps").always().then(Fault::Status(429).retry_after(5));
    let (reconciler, record) = does(|site: Arc<Website>, cx: Context<Website>| async move {
        cx.apply(config_map(&site.name_any())).await?;
        Ok(Action::await_change())
    });
    let (sent, client) = Sent::by(server.client());
    let controller = Controller::new(reconciler).owns::<ConfigMap>();
    let running = Manager::new(client).controller(controller).spawn();
    for n in 0..50 {
        server.create(&website(&format!("site-{n}"))).await;
    }
    let began = Instant::now();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let sent = sent.seconds(began, "configmaps");
    assert!(sent.len() <= 14, "fifty keys, one question each five seconds: {sent:?}");
    assert!(record.len() <= 13 * 50, "{}", record.len());
    running.stop().await.unwrap();
}
