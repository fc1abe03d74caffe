//! Every setting at its extremes: it works, or it is refused with the remedy.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ObjectMeta;
use watchkeeper::{
    prelude::*,
    workqueue::{ItemFastSlow, MaxOf, RateLimiter, TokenBucket, WithMaxWait},
};
use watchkeeper_apiserver::{ApiServer, Fault};
use watchkeeper_tests::{Does, Record, does};

const NANO: Duration = Duration::from_nanos(1);
const YEAR: Duration = Duration::from_secs(365 * 86_400);

type Tried = Controller<ConfigMap, Does<ConfigMap>>;

/// Fails on the first attempt, and is done with the second.
fn tried() -> (Tried, Record) {
    let (reconciler, record) = does::<ConfigMap, _, _>(|_, cx| async move {
        match cx.attempt() {
            1 => anyhow::bail!("the first attempt fails"),
            _ => Ok(Action::await_change()),
        }
    });
    (Controller::new(reconciler), record)
}

async fn shop() -> ApiServer {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    let metadata = ObjectMeta { name: Some("a".into()), ..ObjectMeta::default() };
    server.create(&ConfigMap { metadata, ..ConfigMap::default() }).await;
    server
}

/// Changes one setting.
type Setting = fn(Tried) -> Tried;

#[tokio::test(start_paused = true)]
async fn what_can_not_work_is_refused_with_a_remedy() {
    let server = shop().await;
    let long = |length: usize| "x".repeat(length);
    let refused: [(Setting, &str); 18] = [
        (|it| it.workers(0), "must be at least 1"),
        (|it| it.workers(usize::MAX), "65536 may run at once"),
        (|it| it.deadline(Duration::ZERO), "deadline of zero"),
        (|it| it.sync_timeout(Duration::ZERO), "sync timeout of zero"),
        (|it| it.storm_limit(RateLimit::per_second(0)), "storm limit"),
        (|it| it.storm_limit(RateLimit::per_period(Duration::MAX)), "storm limit"),
        (|it| it.rate_limit(RateLimit::per_period(Duration::ZERO)), "rate limit"),
        (|it| it.rate_limit(RateLimit::per_second(5).burst(0)), "rate limit"),
        (|it| it.rate_limit(RateLimit::per_second(0)), "rate limit"),
        (|it| it.rate_limit(RateLimit::per_period(2 * YEAR)), "rate limit"),
        (|it| it.retry_rate(RateLimit::per_second(0)), "retry rate"),
        (|it| it.finalizer("mine"), "qualified name"),
        (|it| it.finalizer(""), "qualified name"),
        (|it| it.finalizer("example.dev/-"), "qualified name"),
        (|it| it.finalizer("Example.dev/x"), "qualified name"),
        (|it| it.named("a b"), "field manager"),
        (|it| it.named(""), "field manager"),
        (|it| it.namespace("Shop"), "can't be a namespace"),
    ];
    let too_long: [(Tried, &str); 4] = [
        (tried().0.named(long(129)), "1 to 128"),
        (tried().0.namespace(long(64)), "1 to 63"),
        (tried().0.finalizer(format!("example.dev/{}", long(64))), "qualified name"),
        (tried().0.finalizer(format!("{}/a", [1; 4].map(|_| long(63)).join(".") + "x")), "qualified name"),
    ];
    let refused = refused.map(|(set, word)| (set(tried().0), word));
    for (controller, word) in refused.into_iter().chain(too_long) {
        let running = Manager::new(server.client()).controller(controller).spawn();
        let error = format!("{:#}", anyhow::Error::from(running.stop().await.unwrap_err()));
        assert!(error.contains(word), "{error}");
    }
}

/// Waits for the given time.
struct Waits(fn() -> Duration);

impl RateLimiter for Waits {
    fn delay(&self, _: u32) -> Duration {
        (self.0)()
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_else_is_set_to_extremes_works() {
    let server = shop().await;
    let bucket = |burst| TokenBucket::new(RateLimit::per_period(YEAR).burst(burst)).unwrap();
    let long = |length: usize| "x".repeat(length);
    let tries = |set: Setting| {
        let (controller, record) = tried();
        (set(controller), record)
    };
    let mut all: Vec<(Tried, Record)> = [
        (|it| it.workers(1_000)) as Setting,
        |it| it.deadline(Duration::MAX),
        |it| it.sync_timeout(Duration::MAX),
        |it| it.floor(Duration::ZERO),
        |it| it.floor(Duration::MAX),
        |it| it.storm_limit(RateLimit::per_period(NANO).burst(u32::MAX)),
        |it| it.storm_limit(RateLimit::per_period(YEAR).burst(u32::MAX)),
        |it| it.rate_limit(RateLimit::per_period(NANO)),
        |it| it.rate_limit(RateLimit::per_second(u32::MAX)),
        |it| it.rate_limit(RateLimit::per_period(YEAR).burst(u32::MAX)),
        |it| it.retry_rate(None),
        |it| it.retry_rate(RateLimit::per_period(YEAR)),
        |it| it.backoff(ItemExponentialFailure::new(Duration::ZERO, Duration::ZERO)),
        |it| it.backoff(ItemExponentialFailure::new(NANO, Duration::MAX)),
        |it| it.backoff(WithMaxWait::new(ItemFastSlow::new(Duration::MAX, Duration::MAX, 0), NANO)),
        |it| it.backoff(MaxOf(ItemFastSlow::new(Duration::ZERO, Duration::MAX, 1), Waits(|| NANO))),
        |it| it.backoff(Waits(|| panic!("a limiter that panics"))),
        |it| it.namespace("").namespace("shop"),
    ]
    .map(tries)
    .into();
    all.extend([u32::MAX, 1].map(|burst| {
        let (controller, record) = tried();
        (controller.backoff(bucket(burst)), record)
    }));
    all.push({
        let (controller, record) = tried();
        let finalizer = format!("{}/{}", [long(63), long(63), long(63), long(61)].join("."), long(63));
        (controller.finalizer(finalizer).namespace("shop"), record)
    });
    for (at, (controller, record)) in all.into_iter().enumerate() {
        for grace_period in [Duration::ZERO, NANO, Duration::MAX] {
            if grace_period > NANO {
                let controller = controller.named(long(128));
                let running =
                    Manager::new(server.client()).controller(controller).grace_period(grace_period).spawn();
                record.reaches(2).await;
                assert_eq!(record.starts()[1].attempt, 2, "case {at}");
                running.stop().await.unwrap();
                break;
            }
            let idle = Manager::new(server.client()).controller(tried().0).grace_period(grace_period).spawn();
            tokio::time::sleep(Duration::from_secs(1)).await;
            idle.stop().await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_shortest_times_end_what_they_bound() {
    let server = shop().await;
    let (reconciler, record) = does::<ConfigMap, _, _>(|_, _| std::future::pending());
    let manager = Manager::new(server.client());
    let metrics = manager.metrics();
    let running = manager.controller(Controller::new(reconciler).deadline(NANO)).spawn();
    record.reaches(3).await;
    running.stop().await.unwrap();
    assert!(metrics.encode().contains("timeouts"));
    server.faults().on_any("configmaps").always().then(Fault::Status(403));
    let slow = Manager::new(server.client()).controller(tried().0.sync_timeout(NANO)).spawn().ended().await;
    assert!(slow.unwrap_err().to_string().contains("not synced within"));
}

#[tokio::test(start_paused = true)]
async fn actions_at_their_extremes_do_what_they_say() {
    let server = shop().await;
    for (action, more) in [
        (Action::requeue_after(Duration::ZERO), true),
        (Action::requeue_after(NANO), true),
        (Action::requeue_after(Duration::MAX), false),
        (Action::requeue_after_with_jitter(Duration::MAX, Duration::MAX), false),
        (Action::requeue_after_with_jitter(Duration::ZERO, NANO), true),
        (Action::backoff_at_least(Duration::ZERO), true),
        (Action::backoff_at_least(NANO), true),
        (Action::backoff_at_least(Duration::MAX), false),
    ] {
        let (reconciler, record) = does::<ConfigMap, _, _>(move |_, cx| async move {
            Ok(if cx.id() < 5 { action } else { Action::await_change() })
        });
        let running = Manager::new(server.client()).controller(Controller::new(reconciler)).spawn();
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(record.len(), if more { 5 } else { 1 }, "{action:?}");
        running.stop().await.unwrap();
    }
}

// C37
#[tokio::test(start_paused = true)]
async fn the_back_off_and_the_rate_of_retries_are_the_users() {
    let server = shop().await;
    for at in 0..20 {
        let metadata = ObjectMeta { name: Some(format!("map-{at}")), ..ObjectMeta::default() };
        server.create(&ConfigMap { metadata, ..ConfigMap::default() }).await;
    }
    let failing = || does::<ConfigMap, _, _>(|_, _| async { anyhow::bail!("fails") });
    let gaps = |record: &Record| {
        let starts: Vec<_> = record.starts().into_iter().filter(|start| start.key.name() == "a").collect();
        starts.windows(2).map(|pair| (pair[1].at - pair[0].at).as_secs()).collect::<Vec<_>>()
    };
    let (reconciler, record) = failing();
    let worst = MaxOf(
        ItemFastSlow::new(Duration::from_secs(1), Duration::from_secs(10), 2),
        ItemExponentialFailure::new(Duration::from_secs(2), Duration::from_secs(20)),
    );
    let controller = Controller::new(reconciler).backoff(WithMaxWait::new(worst, Duration::from_secs(15)));
    let running = Manager::new(server.client()).controller(controller.retry_rate(None)).spawn();
    tokio::time::sleep(Duration::from_secs(70)).await;
    assert_eq!(gaps(&record), [2, 4, 10, 15, 15, 15]);
    running.stop().await.unwrap();
    let (reconciler, record) = failing();
    let controller = Controller::new(reconciler)
        .backoff(ItemExponentialFailure::new(NANO, NANO))
        .rate_limit(RateLimit::per_second(1_000))
        .retry_rate(RateLimit::per_second(2).burst(1));
    let running = Manager::new(server.client()).controller(controller).spawn();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let retries = record.starts().iter().filter(|start| start.attempt > 1).count();
    assert!((115..=121).contains(&retries), "{retries} retries in a minute");
    running.stop().await.unwrap();
}
