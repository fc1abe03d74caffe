//! One controller that panics and one that may not watch: the others do not notice.

use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube::core::ObjectMeta;
use watchkeeper::{controller::Why, prelude::*};
use watchkeeper_apiserver::{ApiServer, Fault};
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
