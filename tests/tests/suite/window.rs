//! Over any window, no more runs start than the rate allows: whatever asks for them, and however they end.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use proptest::{prelude::*, test_runner::TestCaseError};
use tokio::{task::JoinSet, time::Instant};
use watchkeeper::workqueue::{
    ItemExponentialFailure, Outcome, Priority, RateLimit, RateLimiter, TokenBucket, WorkQueue,
    WorkQueueConfig,
};

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
    let cases = std::env::var("PROPTEST_CASES").map_or(1_000, |cases| cases.parse().unwrap());
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
