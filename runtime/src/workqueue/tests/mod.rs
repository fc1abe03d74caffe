//! Tests of the queue as its users see it, and properties of its pure parts.

mod bad_input;
mod basics;
mod delays;
mod holds;
mod memory;
mod model;
mod metrics;
mod outcomes;
mod priorities;
mod rates;
pub(super) mod schedules;
mod shutdown;
mod snapshots;
mod tenants;
mod wakes;

use std::time::Duration;

use futures::FutureExt;
use proptest::test_runner::{Config, RngSeed};
use tokio::time::Instant;

use super::{Item, ItemExponentialFailure, Priority, QueueKey, WorkQueue, WorkQueueConfig};

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Makes this many cases, the same in every run, unless `PROPTEST_CASES` or `PROPTEST_RNG_SEED` is set.
pub(super) fn cases(cases: u32) -> Config {
    let (asked, fresh) = (Config::default(), std::env::var_os("PROPTEST_CASES").is_none());
    Config {
        cases: if fresh { cases } else { asked.cases },
        rng_seed: match asked.rng_seed {
            RngSeed::Random => RngSeed::Fixed(0x0b5e_55ed),
            fixed => fixed,
        },
        // A case that fails becomes a test with a name.
        failure_persistence: None,
        ..asked
    }
}

fn queue<K: QueueKey>() -> WorkQueue<K> {
    WorkQueue::new(ItemExponentialFailure::default())
}

fn configured<K: QueueKey>(config: WorkQueueConfig) -> WorkQueue<K> {
    WorkQueue::with_config(config).unwrap()
}

/// A queue whose every failure waits this long.
fn failing_for<K: QueueKey>(wait: Duration) -> WorkQueue<K> {
    WorkQueue::new(ItemExponentialFailure::new(wait, wait))
}

/// Waits for the next key. On paused time the test fails, instead of hanging, if there is none.
async fn next<K: QueueKey>(queue: &WorkQueue<K>) -> Item<K> {
    let item = tokio::time::timeout(secs(1_000_000_000), queue.get()).await;
    item.expect("no key comes any more").unwrap()
}

/// Returns the next item, if one is ready now.
fn ready<K: QueueKey>(queue: &WorkQueue<K>) -> Option<Item<K>> {
    queue.get().now_or_never().map(Option::unwrap)
}

/// Waits for the next key. Returns how long that took, too.
async fn timed<K: QueueKey>(queue: &WorkQueue<K>) -> (Item<K>, Duration) {
    let start = Instant::now();
    let item = next(queue).await;
    (item, start.elapsed())
}
