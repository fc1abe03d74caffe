//! An operator that is started before its server is ready: it waits, says so, and starts.

use std::{
    fmt::{Debug, Write},
    sync::Mutex,
};

use http::{Request, Response};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Secret, Service, ServiceAccount},
};
use kube::{Client, client::Body, core::ObjectMeta};
use tokio::time::{Instant, sleep};
use tracing::{Event, Level, Subscriber, field::Visit};
use tracing_subscriber::{Layer, layer::SubscriberExt};
use watchkeeper::{error::Error, prelude::*};
use watchkeeper_apiserver::{ApiServer, Fault, Verb};
use watchkeeper_tests::{Keeper, Website, hear, website};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The lines of the log from warnings upwards, and "again" ones, each with the second in which it was written.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<(u64, String)>>>, Option<Instant>);

impl Lines {
    fn beginning_now() -> Self {
        Self(Arc::default(), Some(Instant::now()))
    }

    fn take(&self) -> Vec<(u64, String)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn Debug) {
        if field.name() == "message" {
            write!(self.0, "{value:?}").unwrap();
        }
    }
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        let mut text = Text::default();
        event.record(&mut text);
        let ends = text.0.contains("again") && *event.metadata().level() == Level::INFO;
        if *event.metadata().level() <= Level::WARN || ends {
            let at = self.1.map_or(0, |begun| begun.elapsed().as_secs());
            self.0.lock().unwrap().push((at, text.0));
        }
    }
}

/// A client whose server refuses, resets, answers 429 and 500 by turns until a time.
fn unready_until(server: Client, ready: Instant) -> Client {
    let turns = Arc::new(Mutex::new(0_usize));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (server, turns) = (server.clone(), turns.clone());
        async move {
            if Instant::now() >= ready {
                return Ok(server.send(request).await?);
            }
            let turn = {
                let mut turns = turns.lock().unwrap();
                *turns += 1;
                *turns % 4
            };
            let refuse =
                |kind: std::io::ErrorKind| Err::<Response<Body>, BoxError>(std::io::Error::from(kind).into());
            match turn {
                0 => Ok(answer(500, "InternalError", "etcd is not ready")),
                1 => refuse(std::io::ErrorKind::ConnectionRefused),
                2 => refuse(std::io::ErrorKind::ConnectionReset),
                _ => Ok(answer(429, "TooManyRequests", "storage is (re)initializing")),
            }
        }
    });
    Client::new(service, "shop")
}

fn answer(code: u16, reason: &str, message: &str) -> Response<Body> {
    let status = format!(
        r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","code":{code},"reason":"{reason}","message":"{message}"}}"#
    );
    Response::builder().status(code).body(Body::from(status.into_bytes())).unwrap()
}

// R47
#[tokio::test(start_paused = true)]
async fn an_operator_waits_for_a_server_that_is_not_ready_and_says_so_ever_more_seldom() {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    let lines = Lines::beginning_now();
    let _heard = hear(tracing_subscriber::registry().with(lines.clone()));
    let manager = Manager::new(unready_until(server.client(), Instant::now() + Duration::from_secs(200)))
        .controller(Controller::new(Keeper::default()).owns::<Deployment>());
    let begun = Instant::now();
    manager.install_crd::<Website>().await.unwrap();
    let took = begun.elapsed().as_secs();
    assert!((200..206).contains(&took), "{took}");
    let told = lines.take();
    // When it begins, after 30 s, then each time after twice as long, and when it ends.
    for (line, after) in told.iter().zip([0, 30, 60, 120, 200]) {
        assert!((after..after + 16).contains(&line.0), "{told:#?}");
    }
    assert_eq!(told.len(), 5, "{told:#?}");
    assert!(
        told[0].1.contains("websites.web.example.dev can't be installed yet: the server is unreachable"),
        "{told:#?}"
    );
    assert!(told.last().unwrap().1.starts_with("the server answers again after 3m"), "{told:#?}");

    let running = manager.spawn();
    server.create(&website("a")).await;
    server.eventually::<Deployment>("shop/a", |deployment| deployment.is_some()).await;
    running.stop().await.unwrap();
    assert!(lines.take().is_empty());
}

// R30
#[tokio::test(start_paused = true)]
async fn a_right_that_is_missing_ends_the_start_and_is_named() {
    let server = ApiServer::in_memory().start().await;
    server.faults().on(Verb::Patch, "customresourcedefinitions").always().then(Fault::Status(403));
    let begun = Instant::now();
    let error = Manager::new(server.client()).install_crd::<Website>().await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(1));
    let Error::Definition { name, why, .. } = error else { panic!("{error}") };
    assert_eq!(name, "websites.web.example.dev");
    assert!(
        why.contains("a permission is missing")
            && why.contains("`patch` customresourcedefinitions.apiextensions.k8s.io")
    );
}

// R30 R40
#[tokio::test(start_paused = true)]
async fn an_outage_of_several_kinds_is_told_in_few_lines_and_its_end_in_one() {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    let ready = Instant::now() + Duration::from_secs(100);
    let lines = Lines::beginning_now();
    let _heard = hear(tracing_subscriber::registry().with(lines.clone()));
    let manager = Manager::new(unready_until(server.client(), ready));
    let _listers = (
        manager.lister::<ConfigMap>(),
        manager.lister::<Secret>(),
        manager.lister::<Service>(),
        manager.lister::<ServiceAccount>(),
        manager.lister::<Deployment>(),
    );
    let running = manager.spawn();
    sleep(Duration::from_secs(200)).await;
    let told = lines.take();
    assert!((4..=5).contains(&told.len()), "{told:#?}");
    assert!(told[1].1.contains("5 kinds can't be read (configmaps, deployments.apps, secrets,"), "{told:#?}");
    assert!(told.last().unwrap().1.starts_with("all 5 kinds can be read again, after "), "{told:#?}");
    running.stop().await.unwrap();
}

// R31
#[tokio::test(start_paused = true)]
async fn a_forbidden_kind_is_told_of_when_it_begins_and_ever_more_seldom() {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    server.faults().on_any("secrets").always().then(Fault::Status(403));
    let lines = Lines::beginning_now();
    let _heard = hear(tracing_subscriber::registry().with(lines.clone()));
    let manager = Manager::new(server.client());
    let (_secrets, maps) = (manager.lister::<Secret>(), manager.lister::<ConfigMap>());
    let metadata = ObjectMeta { name: Some("a".into()), ..ObjectMeta::default() };
    server.create(&ConfigMap { metadata, ..ConfigMap::default() }).await;
    let running = manager.spawn();
    sleep(Duration::from_secs(600)).await;
    assert_eq!(maps.len(), 1);
    let told = lines.take();
    assert!((3..=6).contains(&told.len()), "{told:#?}");
    assert!(
        told[0].0 == 0
            && told[0]
                .1
                .starts_with("secrets can't be read, a permission is missing: allow `list` and `watch`"),
        "{told:#?}"
    );
    assert!(told.iter().skip(1).all(|(_, line)| line.starts_with("still after ")), "{told:#?}");
    running.stop().await.unwrap();
}
