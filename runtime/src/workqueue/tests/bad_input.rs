//! What makes no sense has an outcome, too.

use std::sync::Arc;

use super::*;
use crate::workqueue::{Drained, KeyState, RateLimit, RateLimiter, TokenBucket};

/// A limiter with fixed answers.
struct Answers(fn(u32) -> Duration);

impl RateLimiter for Answers {
    fn delay(&self, failures: u32) -> Duration {
        (self.0)(failures)
    }
}

#[tokio::test(start_paused = true)]
async fn a_back_off_without_end_lasts_until_something_changes() {
    let queue = WorkQueue::new(Answers(|_| Duration::MAX));
    queue.add("a");
    next(&queue).await.retry();
    assert!(matches!(queue.state_of(&"a"), KeyState::BackingOff { failures: 1, .. }));
    assert_eq!(queue.earliest(), None);
    tokio::time::advance(secs(30 * 365 * 86_400)).await;
    assert!(ready(&queue).is_none());
    queue.add("a");
    assert_eq!(ready(&queue).unwrap().attempt(), 2);
}

#[tokio::test(start_paused = true)]
async fn waits_that_shrink_are_waited() {
    let queue = WorkQueue::new(Answers(|failures| millis(100 / u64::from(failures))));
    queue.add("a");
    let mut waits = Vec::new();
    for _ in 0..4 {
        let (item, took) = timed(&queue).await;
        waits.push(took.as_millis());
        item.retry();
    }
    assert_eq!(waits, [0, 100, 50, 33]);
}

#[tokio::test(start_paused = true)]
async fn a_limiter_that_panics_asked_for_the_floor() {
    let queue = WorkQueue::new(Answers(|_| panic!("on purpose")));
    queue.add("a");
    next(&queue).await.retry();
    assert_eq!(timed(&queue).await.1, secs(1));
    queue.add("b");
    assert!(ready(&queue).is_some(), "others do not suffer");
}

// Q10
#[tokio::test(start_paused = true)]
async fn a_limiter_is_asked_once_for_a_failure_and_once_for_all_first_steps() {
    let bucket = TokenBucket::new(RateLimit::per_period(secs(1)).burst(1)).unwrap();
    let queue = WorkQueue::new(bucket);
    for (key, wait) in [("a", 0), ("b", 1), ("c", 2)] {
        queue.add(key);
        next(&queue).await.retry();
        let KeyState::BackingOff { until, .. } = queue.state_of(&key) else {
            assert_eq!(wait, 0);
            ready(&queue).unwrap().forget();
            continue;
        };
        assert_eq!(until, Instant::now() + secs(wait));
    }
    let queue = WorkQueue::new(TokenBucket::new(RateLimit::per_period(secs(1)).burst(1)).unwrap());
    for key in 0..10 {
        queue.add(key);
        next(&queue).await.retry_uncounted();
        ready(&queue).unwrap().forget();
    }
}

#[tokio::test(start_paused = true)]
async fn a_delay_without_end_lasts_until_something_changes() {
    let queue = queue();
    queue.add_after("a", Duration::MAX);
    queue.add("b");
    next(&queue).await.requeue_after(Duration::MAX);
    assert_eq!((queue.depth().delayed, queue.earliest()), (2, None));
    tokio::time::advance(secs(30 * 365 * 86_400)).await;
    assert!(ready(&queue).is_none());
    queue.add_after("b", Duration::ZERO);
    queue.add("a");
    assert_eq!(ready(&queue).map(|item| *item.key()), Some("b"));
    assert_eq!(ready(&queue).map(|item| *item.key()), Some("a"));
}

// W3
#[tokio::test(start_paused = true)]
async fn a_hold_without_end_lasts_until_the_release() {
    let queue = queue();
    queue.hold(&"a", Duration::MAX);
    queue.add("a");
    tokio::time::advance(secs(30 * 365 * 86_400)).await;
    assert!(ready(&queue).is_none());
    queue.release(&"a");
    assert!(ready(&queue).is_some());
}

// Q16
#[tokio::test(start_paused = true)]
async fn a_guard_that_is_forgotten_keeps_its_key_and_nobody_elses() {
    let queue = queue();
    queue.add("a");
    std::mem::forget(next(&queue).await);
    queue.add("a");
    queue.add("b");
    next(&queue).await.forget();
    tokio::time::advance(secs(86_400)).await;
    assert!(ready(&queue).is_none());
    assert!(matches!(queue.state_of(&"a"), KeyState::InFlight { .. }));
    let drain = tokio::spawn({
        let queue = queue.clone();
        async move { queue.drain().await }
    });
    tokio::task::yield_now().await;
    assert!(!drain.is_finished());
    queue.shut_down();
    assert_eq!(drain.await.unwrap(), Drained::Aborted);
}

// Q16
#[test]
fn a_guard_may_be_dropped_on_another_thread_and_after_its_queue() {
    let queue = queue();
    queue.add("a");
    let item = ready(&queue).unwrap();
    let gone = Arc::new(queue);
    drop(gone);
    std::thread::spawn(move || drop(item)).join().unwrap();
}
