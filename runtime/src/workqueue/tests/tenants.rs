//! Grants shared out between tenants.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use super::*;
use crate::workqueue::RateLimit;

/// A queue whose tenants are the first letters of its keys.
fn shared(config: WorkQueueConfig) -> WorkQueue<String> {
    WorkQueue::with_tenants(config, |key: &String| Arc::from(&key[..1])).unwrap()
}

fn add(queue: &WorkQueue<String>, tenant: &str, keys: usize) {
    (0..keys).for_each(|key| queue.add(format!("{tenant}{key}")));
}

/// Runs the next keys one after another, and names their tenants.
fn served(queue: &WorkQueue<String>, runs: usize) -> String {
    let run = |_| ready(queue).map(|item| item.key()[..1].to_owned());
    (0..runs).filter_map(run).collect()
}

// Q22
#[tokio::test(start_paused = true)]
async fn a_tenant_with_many_keys_does_not_delay_the_others() {
    let queue = shared(WorkQueueConfig::default());
    add(&queue, "a", 50);
    add(&queue, "b", 3);
    add(&queue, "c", 1);
    assert_eq!(served(&queue, 10), "abcababaaa");
    assert_eq!(queue.len(), 44);
    // Without tenants the others wait for all of them.
    let together = super::queue();
    add(&together, "a", 50);
    add(&together, "b", 1);
    assert_eq!(served(&together, 51).find('b'), Some(50));
}

// Q22
#[tokio::test(start_paused = true)]
async fn who_has_the_fewest_keys_in_flight_comes_first() {
    let queue = shared(WorkQueueConfig::default());
    add(&queue, "a", 30);
    let mut running: Vec<_> = (0..4).map(|_| ready(&queue).unwrap()).collect();
    add(&queue, "b", 30);
    let mut shares = Vec::new();
    for _ in 0..20 {
        running.remove(0).done();
        running.push(ready(&queue).unwrap());
        shares.push(running.iter().filter(|item| item.key().starts_with('b')).count());
    }
    // As soon as runs end, two of the four workers are for each.
    assert_eq!((shares[0], &shares[1..]), (1, &[2; 19][..]));
}

// Q22
#[tokio::test(start_paused = true)]
async fn a_tenant_that_comes_and_goes_has_its_turn_and_no_more() {
    let queue = shared(WorkQueueConfig::default());
    add(&queue, "a", 3);
    add(&queue, "b", 3);
    let mut order = String::new();
    for _ in 0..9 {
        // Its only key is forgotten after each run, and comes back at once.
        queue.add("c0".to_owned());
        order += &served(&queue, 1);
    }
    assert_eq!(order, "abcabcabc");
}

// Q22
#[tokio::test(start_paused = true)]
async fn the_rate_is_shared_out_too() {
    let rate = Some(RateLimit::per_second(10).burst(1));
    let queue = shared(WorkQueueConfig { rate, ..WorkQueueConfig::default() });
    add(&queue, "a", 1_000);
    add(&queue, "b", 5);
    let began = Instant::now();
    let mut left = 5;
    while left > 0 {
        left -= usize::from(next(&queue).await.key().starts_with('b'));
    }
    assert!(began.elapsed() <= millis(1_000), "{:?}", began.elapsed());
}

/// Lets four workers run the keys of two tenants for a while, ten a second at most; how long each runs depends on how many of its
/// tenant ran before. Returns how many of each have ended.
async fn worked(took: impl Fn(&str, usize) -> u64 + Send + Sync + 'static) -> [usize; 2] {
    let rate = Some(RateLimit::per_second(10).burst(1));
    let queue = shared(WorkQueueConfig { rate, ..WorkQueueConfig::default() });
    for tenant in ["a", "b"] {
        add(&queue, tenant, 1_000);
    }
    let (took, begun, ended) = (Arc::new(took), Arc::new(Counts::default()), Arc::new(Counts::default()));
    let worker = || {
        let (queue, took, begun, ended) = (queue.clone(), took.clone(), begun.clone(), ended.clone());
        tokio::spawn(async move {
            loop {
                let item = next(&queue).await;
                let tenant = item.key()[..1].to_owned();
                let of = usize::from(tenant == "b");
                let before = begun[of].fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(millis(took(&tenant, before))).await;
                ended[of].fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    let workers: Vec<_> = (0..4).map(|_| worker()).collect();
    tokio::time::sleep(millis(20_000)).await;
    workers.iter().for_each(tokio::task::JoinHandle::abort);
    [0, 1].map(|of| ended[of].load(Ordering::Relaxed))
}

type Counts = [AtomicUsize; 2];

// Q22
#[tokio::test(start_paused = true)]
async fn a_run_that_takes_long_costs_its_tenant_nothing_of_the_rate() {
    let [a, b] = worked(|tenant, before| if tenant == "a" && before == 0 { 3_600_000 } else { 1 }).await;
    assert!(a.abs_diff(b) <= 2 && a > 90, "{a} and {b}");
}

// Q22
#[tokio::test(start_paused = true)]
async fn runs_that_take_long_hold_no_more_than_a_part_of_the_workers() {
    let [a, b] = worked(|tenant, _| if tenant == "a" { 30_000 } else { 1 }).await;
    assert!(a == 0 && b > 150, "{a} and {b}");
}

// Q22 Q11
#[tokio::test(start_paused = true)]
async fn priorities_order_the_keys_of_one_tenant() {
    let queue = shared(WorkQueueConfig::default());
    queue.add_at("a-low".to_owned(), Priority::Low);
    queue.add_at("a-high".to_owned(), Priority::High);
    queue.add_at("b-low".to_owned(), Priority::Low);
    queue.add_at("b-normal".to_owned(), Priority::Normal);
    assert_eq!(Priority::ALL.map(|priority| queue.depth().ready_at(priority)), [1, 1, 2]);
    let order: Vec<_> = (0..4).map(|_| ready(&queue).unwrap().key().clone()).collect();
    assert_eq!(order, ["a-high", "b-normal", "a-low", "b-low"]);
}

// Q22 Q18
#[tokio::test(start_paused = true)]
async fn a_function_that_panics_loses_no_key() {
    let queue = WorkQueue::with_tenants(WorkQueueConfig::default(), |key: &u32| {
        assert!(key.is_multiple_of(2), "odd");
        key.to_string().into()
    });
    let queue = queue.unwrap();
    (0..10).for_each(|key| queue.add(key));
    let mut all: Vec<_> = std::iter::from_fn(|| ready(&queue).map(|item| *item.key())).collect();
    all.sort_unstable();
    assert_eq!(all, (0..10).collect::<Vec<_>>());
    assert_eq!(queue.depth().known, 0);
}
