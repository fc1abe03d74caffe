//! One controller that panics and one that may not watch: the others do not notice.

use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube::core::ObjectMeta;
use watchkeeper::{controller::Why, prelude::*};
use watchkeeper_apiserver::{ApiServer, Fault, Verb};
use watchkeeper_tests::{Record, assert_rate_holds};

const OBJECTS: usize = 200;
const MINUTES: u64 = 10;

fn config_map(at: usize) -> ConfigMap {
    let metadata = ObjectMeta { name: Some(format!("map-{at}")), ..ObjectMeta::default() };
    ConfigMap { metadata, ..ConfigMap::default() }
}

/// Comes back every ten seconds, at most five times a second; panics on every so manieth run.
fn patrol(
    name: &str,
    record: &Record,
    panics_every: Option<usize>,
) -> Controller<ConfigMap, impl Reconciler<ConfigMap> + use<>> {
    let (record, runs) = (record.clone(), Arc::new(AtomicUsize::new(0)));
    let controller = Controller::from_fn(move |_: Arc<ConfigMap>, cx: Context<ConfigMap>| {
        record.start(&cx);
        let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
        async move {
            assert!(panics_every.is_none_or(|every| run % every != 0), "run {run} panics");
            Ok::<_, watchkeeper::Error>(Action::requeue_after(Duration::from_secs(10)))
        }
    });
    let rate = RateLimit::per_second(5).burst(5);
    controller.namespace("shop").named(name).workers(2).rate_limit(rate)
}

// I13 C3
#[tokio::test(start_paused = true)]
async fn a_controller_that_gave_up_asks_for_nothing_any_more() {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    server.faults().on_any("secrets").always().then(Fault::Status(403));
    let record = Record::default();
    let giving_up = patrol("giving-up", &record, None).owns::<Secret>();
    let mut running = Manager::new(server.client())
        .controller(giving_up.sync_timeout(Duration::from_secs(60)))
        .controller(patrol("staying", &record, None))
        .spawn();
    let inspector = running.inspector();
    assert!(running.ended().await.is_err());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let asked = || {
        let requests = server.requests();
        requests.count(Verb::List, "secrets") + requests.count(Verb::Watch, "secrets")
    };
    let before = asked();
    assert!(before > 0);
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(asked(), before);
    let reports = inspector.why::<ConfigMap>(&ObjectKey::new("shop", "map-0"));
    let whys: Vec<_> = reports.iter().map(|report| (&*report.controller, report.why.clone())).collect();
    assert_eq!(whys, [("giving-up", Why::Stopped), ("staying", Why::NotKnown)]);
    running.stop().await.unwrap();
}

// C1 C11 P5
#[tokio::test(start_paused = true)]
async fn two_controllers_keep_their_rates_beside_one_that_panics_and_one_that_says_why_it_waits() {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    for at in 0..OBJECTS {
        server.create(&config_map(at)).await;
    }
    server.faults().on_any("secrets").always().then(Fault::Status(403));
    let (healthy, panicking, waiting) = (Record::default(), Record::default(), Record::default());
    let running = Manager::new(server.client())
        .controller(patrol("healthy", &healthy, None))
        .controller(patrol("panicking", &panicking, Some(10)))
        .controller(patrol("waiting", &waiting, None).owns::<Secret>().watches::<Service>(|_| Vec::new()))
        .spawn();
    tokio::time::sleep(Duration::from_secs(60 * MINUTES)).await;
    for record in [&healthy, &panicking] {
        let starts = record.starts();
        assert_rate_holds(&starts, 5.0, 5.0);
        let full = 5 * 60 * MINUTES as usize;
        assert!((full - 5..=full + 5).contains(&starts.len()), "{} of {full} runs", starts.len());
    }
    let again = panicking.starts().iter().filter(|start| start.attempt > 1).count();
    assert!(again >= panicking.len() / 11, "{again} of {} runs were retries", panicking.len());
    assert!(waiting.is_empty());
    let reports = running.why::<ConfigMap>(&ObjectKey::new("shop", "map-0"));
    let of = |name: &str| reports.iter().find(|report| &*report.controller == name).unwrap();
    let Why::BlockedOnSync(whom) = &of("waiting").why else { panic!("{reports:?}") };
    assert_eq!(whom.len(), 1);
    assert!(whom[0].starts_with("secrets (") && whom[0].contains("403"), "{whom:?}");
    assert!(!matches!(of("healthy").why, Why::BlockedOnSync(_)));
    running.stop().await.unwrap();
}
