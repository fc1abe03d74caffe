//! What a user may write for "never", "at once" and "no name": it works, or is refused with a remedy.
//!
//! The longest duration there is, none, and one nanosecond; no text, and texts at the limits that Kubernetes sets. Queues
//! and limiters of their own have the same in the runtime's unit tests (`bad_input`, `refuses_what_limits_nothing..`).

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ObjectMeta;
use serde_json::json;
use watchkeeper::{WorkQueue, backoff::BackoffSchedule, prelude::*, reflector::ReflectorConfig};
use watchkeeper_apiserver::{ApiServer, Fault, Verb};
use watchkeeper_tests::Record;

const NEVER: Duration = Duration::MAX;
const AT_ONCE: Duration = Duration::ZERO;
const SHORTEST: Duration = Duration::from_nanos(1);
const EXTREMES: [Duration; 3] = [NEVER, AT_ONCE, SHORTEST];

async fn shop() -> ApiServer {
    ApiServer::in_memory().namespace("shop").start().await
}

fn config_map(name: &str) -> ConfigMap {
    ConfigMap { metadata: ObjectMeta { name: Some(name.into()), ..Default::default() }, ..Default::default() }
}

/// Records its runs, and ends each as the test says; after a hundred it waits for changes.
fn ending(
    record: &Record,
    action: fn() -> Action,
) -> Controller<ConfigMap, impl Reconciler<ConfigMap> + use<>> {
    let record = record.clone();
    let controller = Controller::from_fn(move |_: Arc<ConfigMap>, cx: Context<ConfigMap>| {
        record.start(&cx);
        let runs = record.len();
        async move {
            tokio::task::yield_now().await;
            Ok::<_, watchkeeper::Error>(if runs < 100 { action() } else { Action::await_change() })
        }
    });
    controller.namespace("shop")
}

fn quiet(record: &Record) -> Controller<ConfigMap, impl Reconciler<ConfigMap> + use<>> {
    ending(record, Action::await_change)
}

/// Says what a manager answers to a controller: an error where it refuses it.
async fn answer_to(
    server: &ApiServer,
    controller: Controller<ConfigMap, impl Reconciler<ConfigMap>>,
) -> Result<(), String> {
    let running = Manager::new(server.client()).controller(controller).spawn();
    tokio::time::sleep(Duration::from_secs(5)).await;
    running.stop().await.map_err(|error| chain(&error))
}

fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

// ---- informers ----

#[tokio::test(start_paused = true)]
async fn every_duration_of_a_reflector_is_taken() {
    type Set = fn(&mut ReflectorConfig, Duration);
    let settings: [Set; 5] = [
        |config, time| config.backoff = BackoffSchedule::custom(move |_| time),
        |config, time| config.backoff = BackoffSchedule::doubling(time, time),
        |config, time| config.watch_timeout = time..=time,
        |config, time| config.resync = Some(time),
        |config, time| config.consistency_check = Some(time),
    ];
    for (at, set) in settings.iter().enumerate() {
        for time in EXTREMES {
            let server = shop().await;
            server.create(&config_map("a")).await;
            let mut config = ReflectorConfig::default();
            set(&mut config, time);
            let record = Record::default();
            let running = Manager::with_config(server.client(), config).controller(quiet(&record)).spawn();
            record.reaches(1).await;
            server.faults().on(Verb::Watch, "configmaps").once().then(Fault::Cut);
            tokio::time::sleep(Duration::from_secs(2)).await;
            server.create(&config_map("b")).await;
            tokio::time::sleep(Duration::from_secs(2)).await;
            // Who never tries again does not hear of it.
            let hears = at >= 2 || time != NEVER;
            assert_eq!(record.names().contains(&"b".to_owned()), hears, "setting {at}, {time:?}");
            running.stop().await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn odd_growth_of_a_back_off_is_taken() {
    for factor in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 0.0, f64::MIN_POSITIVE] {
        let server = shop().await;
        server.create(&config_map("a")).await;
        server.faults().on(Verb::List, "configmaps").times(3).then(Fault::Status(500));
        server.faults().on(Verb::Watch, "configmaps").times(3).then(Fault::Status(500));
        let (initial, cap) = (Duration::from_secs(1), Duration::from_secs(10));
        let backoff = BackoffSchedule::Exponential { initial, factor, cap };
        let config = ReflectorConfig { backoff, ..ReflectorConfig::default() };
        let record = Record::default();
        let running = Manager::with_config(server.client(), config).controller(quiet(&record)).spawn();
        record.reaches(1).await;
        running.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_asks_for_a_time_that_a_server_takes() {
    for (time, seconds) in [(AT_ONCE, 1), (SHORTEST, 1), (NEVER, u64::from(u32::MAX >> 1))] {
        let asked = Arc::new(std::sync::Mutex::new(Vec::new()));
        let seen = asked.clone();
        let server = shop().await;
        let config = ReflectorConfig { watch_timeout: time..=time, ..ReflectorConfig::default() };
        let factory = SharedInformerFactory::with_config(server.client(), config);
        let informer = factory
            .informer::<ConfigMap>()
            .options_hook(move |options| seen.lock().unwrap().extend(options.timeout))
            .build();
        factory.start();
        informer.wait_for_sync(Duration::from_secs(10)).await.unwrap();
        assert_eq!(asked.lock().unwrap()[0], Duration::from_secs(seconds), "{time:?}");
        factory.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn every_period_of_a_handlers_resync_is_taken() {
    for period in EXTREMES {
        let server = shop().await;
        server.create(&config_map("a")).await;
        let factory = SharedInformerFactory::new(server.client());
        let informer = factory.informer::<ConfigMap>().namespace("shop").build();
        let heard = Arc::new(AtomicUsize::new(0));
        let counted = heard.clone();
        let add = move |_, _| {
            counted.fetch_add(1, Ordering::SeqCst);
        };
        let registration = informer.handler().on_add(add).resync_every(period).register();
        factory.start();
        informer.wait_for_sync(Duration::from_secs(10)).await.unwrap();
        registration.synced().await.unwrap();
        let before = heard.load(Ordering::SeqCst);
        server.create(&config_map("b")).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(heard.load(Ordering::SeqCst), before + 1, "{period:?}");
        factory.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn every_wait_ends_or_says_that_it_was_over() {
    let server = shop().await;
    let factory = SharedInformerFactory::new(server.client());
    let informer = factory.informer::<ConfigMap>().build();
    for none in [AT_ONCE, SHORTEST] {
        let late = informer.wait_for_sync(none).await.unwrap_err();
        assert!(late.to_string().starts_with("not synced after"), "{late}");
    }
    factory.start();
    informer.wait_for_sync(NEVER).await.unwrap();
    factory.wait_for_sync(NEVER).await.unwrap();
    let lister = informer.lister();
    let reached = lister.resource_version().unwrap();
    for time in EXTREMES {
        lister.wait_for_version(reached, time).await.unwrap();
    }
    for none in [AT_ONCE, SHORTEST] {
        let later = watchkeeper::object::Version(reached.0 + 1_000);
        assert!(lister.wait_for_version(later, none).await.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn every_size_of_a_page_and_of_an_object_is_taken_or_told() {
    for size in [0, 1, u32::MAX] {
        let server = shop().await;
        let factory = SharedInformerFactory::new(server.client());
        let informer = factory.informer::<ConfigMap>().page_size(size).build();
        factory.start();
        informer.wait_for_sync(Duration::from_secs(10)).await.unwrap();
    }
    for bytes in [0, 1, usize::MAX] {
        let server = shop().await;
        server.create(&config_map("a")).await;
        let factory = SharedInformerFactory::new(server.client());
        let informer = factory.informer::<ConfigMap>().largest_object(bytes).build();
        factory.start();
        let synced = informer.wait_for_sync(Duration::from_secs(10)).await;
        match bytes {
            usize::MAX => synced.unwrap(),
            _ => {
                let told = synced.unwrap_err().to_string();
                assert!(told.contains("raise `largest_object`"), "{told}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_no_namespace_is_refused_and_nothing_is_asked_of_the_server() {
    let longest = "a".repeat(63);
    for (namespace, is_one) in [
        ("", true),
        ("shop", true),
        (&*longest, true),
        (&*format!("{longest}a"), false),
        ("..", false),
        ("shop/configmaps/a", false),
        ("shop%2f..", false),
        ("shop?limit=1", false),
        ("Shop", false),
        ("-shop", false),
        ("shop-", false),
        ("ü", false),
    ] {
        let server = shop().await;
        let factory = SharedInformerFactory::new(server.client());
        let informer = factory.informer::<ConfigMap>().namespace(namespace).build();
        factory.start();
        let synced = informer.wait_for_sync(Duration::from_secs(10)).await;
        let refused = answer_to(&server, quiet(&Record::default()).namespace(namespace)).await;
        if is_one {
            synced.unwrap();
            refused.unwrap();
        } else {
            let (told, refused) = (synced.unwrap_err().to_string(), refused.unwrap_err());
            for said in [told, refused] {
                assert!(said.contains(&format!("{namespace:?}")) && said.contains("1 to 63"), "{said}");
            }
            assert_eq!(server.requests().list().len(), 0, "{namespace:?}");
        }
        factory.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn any_name_may_stand_in_metrics() {
    let server = shop().await;
    for name in ["", "two\nlines", "a \"quoted\" name", "back\\slash", "ü"] {
        let metrics = watchkeeper::metrics::Metrics::new();
        let queue = WorkQueue::<String>::new(watchkeeper::workqueue::ItemExponentialFailure::default());
        queue.report_to(&metrics, name);
        queue.add("a".to_owned());
        let text = metrics.encode();
        let depth: Vec<_> = text.lines().filter(|line| line.starts_with("workqueue_depth{")).collect();
        assert!(!depth.is_empty() && depth.iter().all(|line| line.contains("name=\"")), "{name:?}: {text}");
        assert!(text.ends_with("# EOF\n"));
    }
    drop(server);
}

// ---- controllers ----

#[tokio::test(start_paused = true)]
async fn every_duration_of_a_controller_is_taken_or_refused() {
    type Set<C> = fn(C, Duration) -> C;
    fn settings<R: Reconciler<ConfigMap>>() -> [(&'static str, Set<Controller<ConfigMap, R>>); 3] {
        [
            ("floor", |controller, time| controller.floor(time)),
            ("deadline", |controller, time| controller.deadline(time)),
            ("sync timeout", |controller, time| controller.sync_timeout(time)),
        ]
    }
    let server = shop().await;
    server.create(&config_map("a")).await;
    for (name, set) in settings() {
        for time in EXTREMES {
            let said = answer_to(&server, set(quiet(&Record::default()), time)).await;
            match (name, time) {
                ("deadline", AT_ONCE) => {
                    assert!(said.unwrap_err().contains("a deadline of zero ends every run"))
                }
                ("sync timeout", AT_ONCE) => {
                    assert!(said.unwrap_err().contains("a sync timeout of zero gives up at once"))
                }
                ("sync timeout", SHORTEST) => {
                    assert!(said.err().is_none_or(|said| said.contains("not synced within")));
                }
                _ => assert_eq!(said, Ok(()), "{name} {time:?}"),
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_grace_period_is_taken() {
    for time in EXTREMES {
        let server = shop().await;
        server.create(&config_map("a")).await;
        let record = Record::default();
        let manager = Manager::new(server.client()).controller(quiet(&record)).grace_period(time);
        let running = manager.spawn();
        record.reaches(1).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let stopped = tokio::time::timeout(Duration::from_secs(60), running.stop()).await;
        assert!(stopped.is_ok(), "it ends: {time:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_number_of_workers_is_taken_or_refused() {
    let server = shop().await;
    for (workers, refused) in [(0, true), (1, false), (100, false), (usize::MAX, true)] {
        let said = answer_to(&server, quiet(&Record::default()).workers(workers)).await;
        assert_eq!(said.is_err(), refused, "{workers}: {said:?}");
        assert!(said.err().is_none_or(|said| said.contains("workers")));
    }
}

#[tokio::test(start_paused = true)]
async fn every_rate_is_taken_or_refused() {
    let year = Duration::from_secs(366 * 86_400);
    let server = shop().await;
    for (rate, works) in [
        (RateLimit::per_second(u32::MAX), true),
        (RateLimit::per_second(1).burst(u32::MAX), true),
        (RateLimit::per_period(SHORTEST), true),
        (RateLimit::per_period(SHORTEST).burst(u32::MAX), true),
        (RateLimit::per_period(year).burst(u32::MAX), true),
        (RateLimit::per_period(AT_ONCE), false),
        (RateLimit::per_period(NEVER), false),
        (RateLimit::per_second(0), false),
        (RateLimit::per_second(1).burst(0), false),
    ] {
        for limited in
            [quiet(&Record::default()).rate_limit(rate), quiet(&Record::default()).storm_limit(rate)]
        {
            let said = answer_to(&server, limited).await;
            assert_eq!(said.is_ok(), works, "{rate:?}: {said:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_action_is_taken() {
    let endless: [fn() -> Action; 3] = [
        || Action::requeue_after(NEVER),
        || Action::requeue_after_with_jitter(NEVER, NEVER),
        || Action::backoff_at_least(NEVER),
    ];
    let soon: [fn() -> Action; 6] = [
        || Action::requeue_after(AT_ONCE),
        || Action::requeue_after(SHORTEST),
        || Action::requeue_after_with_jitter(AT_ONCE, AT_ONCE),
        || Action::requeue_after_with_jitter(SHORTEST, SHORTEST),
        || Action::backoff_at_least(AT_ONCE),
        || Action::backoff_at_least(SHORTEST),
    ];
    for (actions, runs) in [(&endless[..], 1..=1), (&soon[..], 10..=100)] {
        for (at, action) in actions.iter().enumerate() {
            let server = shop().await;
            server.create(&config_map("a")).await;
            let record = Record::default();
            let running = Manager::new(server.client()).controller(ending(&record, *action)).spawn();
            tokio::time::sleep(Duration::from_secs(30)).await;
            assert!(runs.contains(&record.len()), "action {at} of {}: {} runs", actions.len(), record.len());
            server.create(&config_map("b")).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert!(record.names().contains(&"b".to_owned()), "a key that runs on and on holds up another");
            server.patch_merge::<ConfigMap>("shop/a", json!({ "data": { "k": "v" } })).await;
            let before = record.len();
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert!(record.len() > before || record.len() >= 100, "a change is still heard: action {at}");
            running.stop().await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_name_of_a_controller_is_taken_or_refused() {
    let server = shop().await;
    for (name, works) in [
        (String::new(), false),
        ("a".repeat(128), true),
        ("a".repeat(129), false),
        ("a\nb".to_owned(), false),
        ("ü".to_owned(), false),
    ] {
        let said = answer_to(&server, quiet(&Record::default()).named(&*name)).await;
        assert_eq!(said.is_ok(), works, "{name:?}");
        assert!(said.err().is_none_or(|said| said.contains("1 to 128")));
    }
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_that_every_object_could_not_bear_is_refused() {
    let (name, domain) = ("n".repeat(63), format!("{0}.{0}.{0}.{1}", "d".repeat(63), "d".repeat(61)));
    assert_eq!(domain.len(), 253);
    for (finalizer, works) in [
        (format!("{domain}/{name}"), true),
        ("example.dev/A_b.c-d".to_owned(), true),
        (format!("example.dev/{name}n"), false),
        (format!("{domain}d/n"), false),
        (String::new(), false),
        ("/n".to_owned(), false),
        ("example.dev/".to_owned(), false),
        ("example.dev/a/b".to_owned(), false),
        ("Example.dev/n".to_owned(), false),
        ("example..dev/n".to_owned(), false),
        ("example.dev/-n".to_owned(), false),
        ("example.dev/n.".to_owned(), false),
    ] {
        let server = shop().await;
        server.create(&config_map("a")).await;
        let record = Record::default();
        let said = answer_to(&server, quiet(&record).finalizer(&*finalizer)).await;
        assert_eq!(said.is_ok(), works, "{finalizer:?}: {said:?}");
        match said {
            Ok(()) => assert!(!record.is_empty(), "the server takes it: {finalizer}"),
            Err(said) => assert!(said.contains("write it like `example.dev/volume`"), "{said}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_may_name_what_is_no_object() {
    let server = shop().await;
    server.create(&config_map("a")).await;
    let odd = [
        ObjectKey::new("", ""),
        ObjectKey::new("shop", ""),
        ObjectKey::new("../shop", "a/b"),
        ObjectKey::cluster("a"),
    ];
    let record = Record::default();
    let source = futures::stream::iter(odd).chain(futures::stream::pending());
    let running = Manager::new(server.client()).controller(quiet(&record).source(source)).spawn();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(record.names(), ["a"]);
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn selectors_at_the_limits_of_labels_are_taken_or_refused() {
    let server = shop().await;
    let (longest, domain) = ("k".repeat(63), format!("{0}.{0}.{0}.{1}", "d".repeat(63), "d".repeat(61)));
    for (selector, works) in [
        (String::new(), true),
        (" , ".to_owned(), false),
        (format!("{domain}/{longest}={longest}"), true),
        (format!("{longest}k=v"), false),
        (format!("{domain}d/k=v"), false),
        (format!("k={longest}v"), false),
        (format!("k in (v,{longest}v)"), false),
        ("k>9223372036854775807".to_owned(), true),
        ("k>9223372036854775808".to_owned(), false),
    ] {
        let controller = quiet(&Record::default()).label_selector(&selector);
        assert_eq!(controller.is_ok(), works, "{selector:?}");
        if let Ok(controller) = controller {
            answer_to(&server, controller).await.unwrap();
        }
    }
}
