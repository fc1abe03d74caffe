//! Over any window, no more runs start than the rate allows: whatever asks for them, and however they end.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ObjectMeta;
use proptest::{prelude::*, test_runner::TestCaseError};
use serde_json::json;
use tokio::{task::JoinSet, time::Instant};
use watchkeeper::{
    Manager,
    prelude::{Action, Cleanup, Context, Controller, Deleted, ObjectKey, Reconciler},
    workqueue::{
        ItemExponentialFailure, Outcome, Priority, RateLimit, RateLimiter, TokenBucket, WorkQueue,
        WorkQueueConfig,
    },
};
use watchkeeper_apiserver::{ApiServer, Fault, Verb};
use watchkeeper_tests::{Record, assert_rate_holds};

const KEYS: u8 = 12;
const PER_SECOND: u32 = 20;
const BURST: u32 = 5;

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// What asks for runs.
#[derive(Clone, Debug)]
enum Cause {
    /// All keys at once, at low priority.
    InitialList,
    Event(u8, Priority),
    Resync,
    Timer(u8, u64),
    Failure(u8),
    Hold(u8, u64),
    Release(u8),
    Nothing(u64),
}

fn causes() -> impl Strategy<Value = Vec<Cause>> {
    let priority = prop_oneof![Just(Priority::Low), Just(Priority::Normal), Just(Priority::High)];
    let cause = prop_oneof![
        1 => Just(Cause::InitialList),
        10 => (0..KEYS, priority).prop_map(|(key, at)| Cause::Event(key, at)),
        1 => Just(Cause::Resync),
        3 => (0..KEYS, 0..300u64).prop_map(|(key, delay)| Cause::Timer(key, delay)),
        2 => (0..KEYS).prop_map(Cause::Failure),
        2 => (0..KEYS, 0..300u64).prop_map(|(key, at_most)| Cause::Hold(key, at_most)),
        1 => (0..KEYS).prop_map(Cause::Release),
        6 => (0..150u64).prop_map(Cause::Nothing),
    ];
    prop::collection::vec(cause, 1..40)
}

/// How runs end, one after the other, and how long they take.
fn endings() -> impl Strategy<Value = Vec<(Outcome, u64)>> {
    let outcome = prop_oneof![
        3 => Just(Outcome::Forget),
        1 => Just(Outcome::Done),
        2 => Just(Outcome::Retry { at_least: Duration::ZERO }),
        1 => Just(Outcome::RetryUncounted),
        3 => (0..100u64).prop_map(|delay| Outcome::RequeueAfter(millis(delay))),
        1 => Just(Outcome::Terminal),
        1 => Just(Outcome::PutBack),
    ];
    prop::collection::vec((outcome, 0..40u64), 1..12)
}

/// Where the limit is paid.
trait Limited: Send + Sync + 'static {
    fn queue(&self) -> &WorkQueue<u8>;
    fn event(&self, key: u8, priority: Priority);
    fn touch(&self, key: u8);
    fn failure(&self, key: u8);
}

/// When a run starts: what the queue does.
struct PaidByStart(WorkQueue<u8>);

impl Limited for PaidByStart {
    fn queue(&self) -> &WorkQueue<u8> {
        &self.0
    }

    fn event(&self, key: u8, priority: Priority) {
        self.0.add_at(key, priority);
    }

    fn touch(&self, key: u8) {
        self.0.touch(key);
    }

    fn failure(&self, key: u8) {
        self.0.add_rate_limited(key);
    }
}

/// When a key is added, as elsewhere: a timer that a run asks for is not an add.
struct PaidByAdd {
    queue: WorkQueue<u8>,
    bucket: TokenBucket,
}

impl Limited for PaidByAdd {
    fn queue(&self) -> &WorkQueue<u8> {
        &self.queue
    }

    fn event(&self, key: u8, priority: Priority) {
        self.queue.add_after_at(key, self.bucket.delay(1), priority);
    }

    fn touch(&self, key: u8) {
        self.event(key, Priority::Low);
    }

    fn failure(&self, key: u8) {
        self.event(key, Priority::Normal);
    }
}

const LIMIT: RateLimit = RateLimit::per_second(PER_SECOND).burst(BURST);

fn paid_by_start() -> PaidByStart {
    let config = WorkQueueConfig { rate: Some(LIMIT), ..WorkQueueConfig::default() };
    PaidByStart(WorkQueue::with_config(config).unwrap())
}

fn paid_by_add() -> PaidByAdd {
    let queue = WorkQueue::new(ItemExponentialFailure::default());
    PaidByAdd { queue, bucket: TokenBucket::new(LIMIT).unwrap() }
}

fn tell(limited: &impl Limited, cause: &Cause) {
    match *cause {
        Cause::InitialList => (0..KEYS).for_each(|key| limited.event(key, Priority::Low)),
        Cause::Event(key, priority) => limited.event(key, priority),
        Cause::Resync => (0..KEYS).for_each(|key| limited.touch(key)),
        Cause::Timer(key, delay) => limited.queue().add_after(key, millis(delay)),
        Cause::Failure(key) => limited.failure(key),
        Cause::Hold(key, at_most) => limited.queue().hold(&key, millis(at_most)),
        Cause::Release(key) => limited.queue().release(&key),
        Cause::Nothing(_) => {}
    }
}

/// Plays all that with three workers; answers when runs started.
async fn play(limited: impl Limited, causes: &[Cause], endings: &[(Outcome, u64)]) -> Vec<Instant> {
    let limited = Arc::new(limited);
    let starts = Arc::new(Mutex::new(Vec::new()));
    let mut workers = JoinSet::new();
    for _ in 0..3 {
        let (limited, starts, endings) = (limited.clone(), starts.clone(), endings.to_vec());
        workers.spawn(async move {
            while let Some(item) = limited.queue().get().await {
                let run = {
                    let mut starts = starts.lock().unwrap();
                    starts.push(Instant::now());
                    starts.len()
                };
                let (outcome, took) = endings[run % endings.len()];
                tokio::time::sleep(millis(took)).await;
                item.finish(outcome);
            }
        });
    }
    for cause in causes {
        tell(&*limited, cause);
        if let Cause::Nothing(pause) = cause {
            tokio::time::sleep(millis(*pause)).await;
        }
    }
    tokio::time::sleep(millis(1500)).await;
    limited.queue().discard();
    while workers.join_next().await.is_some() {}
    std::mem::take(&mut *starts.lock().unwrap())
}

/// Plays it under paused time, and looks at every window.
fn window_holds<L: Limited>(
    limited: fn() -> L,
    causes: &[Cause],
    endings: &[(Outcome, u64)],
) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let starts = runtime.unwrap().block_on(async { play(limited(), causes, endings).await });
    let period = Duration::from_secs(1) / PER_SECOND;
    for (first, from) in starts.iter().enumerate() {
        // more than a burst apart, and the window must be long enough for what it holds beyond it
        for (more, to) in starts.iter().skip(first + BURST as usize).enumerate() {
            let window = to.duration_since(*from);
            if window < period * (more as u32 + 1) {
                return Err(format!("{} runs started within {window:?}", more + BURST as usize + 1));
            }
        }
    }
    Ok(())
}

fn config(cases: u32) -> ProptestConfig {
    let seed = proptest::test_runner::RngSeed::Fixed(0x0b5e_55ed);
    ProptestConfig { cases, rng_seed: seed, failure_persistence: None, ..ProptestConfig::default() }
}

// C11
#[test]
fn over_any_window_starts_stay_within_the_limit_whatever_asks_for_them() {
    let cases = std::env::var("PROPTEST_CASES").map_or(2_000, |cases| cases.parse().unwrap());
    proptest!(config(cases), |(causes in causes(), endings in endings())| {
        window_holds(paid_by_start, &causes, &endings).map_err(TestCaseError::fail)?;
    });
}

// C11
#[test]
fn a_limit_that_is_paid_when_keys_are_added_does_not_hold() {
    let mut runner = proptest::test_runner::TestRunner::new(config(1_000));
    let found = runner.run(&(causes(), endings()), |(causes, endings)| {
        window_holds(paid_by_add, &causes, &endings).map_err(TestCaseError::fail)
    });
    let found = found.expect_err("the window property would notice nothing");
    assert!(found.to_string().contains("runs started within"), "{found}");
}

/// Ends its runs in all ways there are, one after the other.
struct Moody {
    record: Record,
    endings: Vec<(Outcome, u64)>,
}

impl Reconciler<ConfigMap> for Moody {
    type Error = anyhow::Error;

    async fn reconcile(&self, _: Arc<ConfigMap>, cx: &Context<ConfigMap>) -> anyhow::Result<Action> {
        self.record.start(cx);
        let (outcome, took) = self.endings[self.record.len() % self.endings.len()];
        tokio::time::sleep(millis(took)).await;
        match outcome {
            Outcome::Done | Outcome::Forget => Ok(Action::await_change()),
            Outcome::RequeueAfter(delay) => Ok(Action::requeue_after(delay)),
            Outcome::RetryUncounted => Ok(Action::backoff()),
            Outcome::Retry { .. } => anyhow::bail!("fails"),
            Outcome::Terminal | Outcome::PutBack => panic!("fails badly"),
        }
    }

    async fn cleanup(&self, _: Arc<ConfigMap>, cx: &Context<ConfigMap>) -> anyhow::Result<Cleanup> {
        self.record.start(cx);
        Ok(Cleanup::Done)
    }

    async fn deleted(&self, _: Deleted<ConfigMap>, cx: &Context<ConfigMap>) -> anyhow::Result<()> {
        self.record.start(cx);
        let (outcome, _) = self.endings[self.record.len() % self.endings.len()];
        anyhow::ensure!(!matches!(outcome, Outcome::Retry { .. }), "fails");
        Ok(())
    }
}

fn map(key: u8) -> ConfigMap {
    let name = Some(format!("map-{key}"));
    ConfigMap { metadata: ObjectMeta { name, ..ObjectMeta::default() }, ..ConfigMap::default() }
}

/// Whether a controller has a finalizer; writes of it are slow now and then.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Holds {
    Nothing,
    Finalizer,
}

/// Lets writes of the controller take long before the user's code starts, or not.
fn slow_down(server: &ApiServer, by: u64) {
    server.faults().clear();
    server.faults().on(Verb::Patch, "configmaps").always().then(Fault::CommitThenHold.lasting(millis(by)));
}

/// Plays events on a server, before and under a whole controller; counts every start of the user's code.
async fn controlled(causes: Vec<Cause>, endings: Vec<(Outcome, u64)>, holds: Holds) {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    for key in 0..KEYS {
        server.create(&map(key)).await;
    }
    let record = Record::default();
    let controller = Controller::new(Moody { record: record.clone(), endings });
    let mut controller = controller.namespace("shop").workers(3).rate_limit(LIMIT);
    if holds == Holds::Finalizer {
        controller = controller.finalizer("example.dev/kept");
    }
    let running = Manager::new(server.client()).controller(controller).spawn();
    for (number, cause) in causes.into_iter().enumerate() {
        match cause {
            Cause::Event(key, _) | Cause::Timer(key, _) | Cause::Hold(key, _) => {
                let patch = json!({ "data": { "number": number.to_string() } });
                server.patch_merge::<ConfigMap>(&format!("shop/map-{key}"), patch).await;
            }
            Cause::Failure(key) | Cause::Release(key) if holds == Holds::Finalizer => {
                let taken_off = json!({ "metadata": { "finalizers": null } });
                server.patch_merge::<ConfigMap>(&format!("shop/map-{key}"), taken_off).await;
            }
            Cause::Failure(key) | Cause::Release(key) => {
                server.delete::<ConfigMap>(&format!("shop/map-{key}")).await;
                server.create(&map(key)).await;
            }
            Cause::Nothing(pause) => tokio::time::sleep(millis(pause)).await,
            Cause::InitialList => slow_down(&server, 900),
            Cause::Resync => server.faults().clear(),
        }
    }
    server.faults().clear();
    tokio::time::sleep(millis(4000)).await;
    assert!(record.len() >= usize::from(KEYS), "all ran");
    assert_rate_holds(&record.starts(), PER_SECOND.into(), BURST.into());
    running.stop().await.unwrap();
}

// C11
#[test]
fn a_whole_controller_stays_within_its_limit_whatever_happens_to_its_objects() {
    let holds = prop_oneof![Just(Holds::Nothing), Just(Holds::Finalizer)];
    proptest!(config(60), |(causes in causes(), endings in endings(), holds in holds)| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.unwrap().block_on(controlled(causes, endings, holds));
    });
}

const ONE_A_SECOND: RateLimit = RateLimit::per_second(1).burst(1);

fn content(record: &Record) -> Moody {
    Moody { record: record.clone(), endings: vec![(Outcome::Forget, 0)] }
}

// C46 C11
#[tokio::test(start_paused = true)]
async fn runs_whose_slow_writes_end_at_once_start_the_users_code_no_faster_than_the_limit() {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    for key in 0..26 {
        server.create(&map(key)).await;
    }
    let slow = server.faults().on(Verb::Patch, "configmaps").always().then(Fault::CommitThenHold);
    let record = Record::default();
    let controller = Controller::new(content(&record)).namespace("shop").finalizer("example.dev/kept");
    let controller = controller.workers(30).rate_limit(ONE_A_SECOND);
    let running = Manager::new(server.client()).controller(controller).spawn();
    tokio::time::sleep(Duration::from_secs(26)).await;
    assert!(record.is_empty());
    slow.disarm();
    server.faults().clear();
    record.reaches(26).await;
    let starts = record.starts();
    assert_rate_holds(&starts, 1.0, 1.0);
    let took = starts[25].at.duration_since(starts[0].at).as_secs_f64();
    assert!(took < 25.5, "the limit was not used up: {took} s");
    running.stop().await.unwrap();
}

// C46 C11
#[tokio::test(start_paused = true)]
async fn each_deletion_of_a_key_and_what_follows_it_pays_for_a_start_of_its_own() {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    server.create(&map(0)).await;
    let record = Record::default();
    let controller = Controller::new(content(&record)).namespace("shop").rate_limit(ONE_A_SECOND);
    let running = Manager::new(server.client()).controller(controller).spawn();
    record.reaches(1).await;
    for _ in 0..4 {
        server.delete::<ConfigMap>("shop/map-0").await;
        server.create(&map(0)).await;
    }
    record.reaches(6).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(record.len(), 6, "two of the object, four of what it took the place of");
    assert_rate_holds(&record.starts(), 1.0, 1.0);
    running.stop().await.unwrap();
}

// C46
#[tokio::test(start_paused = true)]
async fn runs_that_do_not_start_the_users_code_spend_no_token_of_it() {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    let nobody = (0..50).map(|at| ObjectKey::new("shop", format!("nobody-{at}")));
    let record = Record::default();
    let controller =
        Controller::new(content(&record)).namespace("shop").source(futures::stream::iter(nobody));
    let controller = controller.rate_limit(RateLimit::per_period(Duration::from_secs(3_600)));
    let running = Manager::new(server.client()).controller(controller).spawn();
    tokio::time::sleep(Duration::from_secs(10)).await;
    server.create(&map(0)).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(record.len(), 1, "the token is there yet");
    running.stop().await.unwrap();
}

// C46 C18
#[tokio::test(start_paused = true)]
async fn a_run_that_waits_for_its_token_holds_up_no_stop_and_starts_nothing_after_it() {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    for key in 0..4 {
        server.create(&map(key)).await;
    }
    let record = Record::default();
    let controller = Controller::new(content(&record)).namespace("shop").finalizer("example.dev/kept");
    let controller = controller.workers(4).rate_limit(RateLimit::per_period(Duration::from_secs(3_600)));
    let running = Manager::new(server.client()).controller(controller).spawn();
    record.reaches(1).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let began = Instant::now();
    running.stop().await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert_eq!(record.len(), 1);
}
