//! A program that serves the conversions of the kind which its own cache holds: no deadlock at a cold start.

use kube::{Api, api::PostParams};
use tokio::time::{Instant, sleep};
use watchkeeper::{Running, manager::Http, prelude::*, webhook::Webhooks};
use watchkeeper_tests::{
    Record,
    backend::Stage,
    does,
    raw::{code, get},
};

use crate::harness::tests;

tests! {
    Own: a_cache_that_needs_its_own_conversion_fills_from_a_cold_start;
}

/// A ferry, as the program reads it.
#[derive(CustomResource, Informer, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(group = "owned.example.dev", version = "v2", kind = "Ferry", plural = "ferries", namespaced)]
#[informer(versions(v1::Ferry))]
struct FerrySpec {
    seats: Seats,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Seats {
    inside: i32,
    #[serde(default)]
    outside: i32,
}

mod v1 {
    use super::*;

    #[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "owned.example.dev", version = "v1", kind = "Ferry", plural = "ferries", namespaced)]
    pub(crate) struct FerrySpec {
        pub(crate) seats: i32,
    }

    impl From<Ferry> for super::Ferry {
        fn from(Ferry { metadata, spec }: Ferry) -> Self {
            let seats = Seats { inside: spec.seats, outside: 0 };
            Self { metadata, spec: super::FerrySpec { seats } }
        }
    }

    impl From<super::Ferry> for Ferry {
        fn from(super::Ferry { metadata, spec }: super::Ferry) -> Self {
            Self { metadata, spec: FerrySpec { seats: spec.seats.inside } }
        }
    }
}

/// Starts the program at a port; what it reconciles is recorded.
fn start(stage: &Stage, port: u16) -> (Running, Record) {
    let (reconciler, record) = does::<Ferry, _, _>(async |ferry, _| {
        assert_eq!(ferry.spec.seats, Seats { inside: 7, outside: 0 });
        Ok(Action::await_change())
    });
    let webhooks = Webhooks::new(format!("127.0.0.1:{port}")).url(format!("https://127.0.0.1:{port}"));
    let controller = Controller::new(reconciler).namespace(&*stage.namespace);
    let manager = stage.manager().kind::<Ferry>().webhooks(webhooks);
    (manager.http(Http::on("127.0.0.1:0")).controller(controller).spawn(), record)
}

/// Waits until a replica says that it is ready.
async fn is_ready(running: &Running) {
    let (address, begun) = (running.http_address().unwrap(), Instant::now());
    loop {
        let readiness = get(address, "localhost", "/readyz?verbose", "").await.unwrap();
        if code(&readiness) == 200 {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{readiness}");
        sleep(Duration::from_millis(100)).await;
    }
}

// P24
async fn a_cache_that_needs_its_own_conversion_fills_from_a_cold_start(stage: Stage) {
    // What is stored before the program exists needs a conversion.
    stage.install::<v1::Ferry>().await;
    let old = Api::<v1::Ferry>::namespaced(stage.client.clone(), &stage.namespace);
    let ferry = |name: &str| v1::Ferry::new(name, v1::FerrySpec { seats: 7 });
    for name in ["a", "b"] {
        old.create(&PostParams::default(), &ferry(name)).await.unwrap();
    }
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (running, record) = start(&stage, port);
    is_ready(&running).await;
    record.reaches(2).await;
    running.stop().await.unwrap();

    // A server that restarts has converted nothing, and can't until the program is back.
    stage.server.restart().await;
    let (running, record) = start(&stage, port);
    is_ready(&running).await;
    record.reaches(2).await;
    old.create(&PostParams::default(), &ferry("c")).await.unwrap();
    record.reaches(3).await;
    running.stop().await.unwrap();
}
