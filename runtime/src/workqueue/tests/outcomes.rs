//! How runs end, and what failures cost.

use super::*;
use crate::workqueue::{KeyState, Outcome, RateLimit};

// Q9
#[tokio::test(start_paused = true)]
async fn backs_off_twice_as_long_each_time_until_forgotten() {
    let queue = queue();
    queue.add("a");
    let mut waits = Vec::new();
    for attempt in 1..=6 {
        let (item, took) = timed(&queue).await;
        assert_eq!(item.attempt(), attempt);
        waits.push(took.as_millis());
        item.retry();
    }
    assert_eq!(waits, [0, 5, 10, 20, 40, 80]);
    assert_eq!(queue.num_requeues(&"a"), 6);
    next(&queue).await.forget();
    assert_eq!(queue.num_requeues(&"a"), 0);
    queue.add_rate_limited("a");
    assert_eq!(timed(&queue).await.1, millis(5));
}

// Q9
#[tokio::test(start_paused = true)]
async fn forgetting_from_outside_clears_failures_and_keeps_the_schedule() {
    let queue = queue();
    queue.add_rate_limited("a");
    queue.add_rate_limited("a");
    assert_eq!(queue.num_requeues(&"a"), 2);
    queue.forget(&"a");
    assert_eq!(queue.num_requeues(&"a"), 0);
    assert_eq!(timed(&queue).await.1, millis(10));
}

// C9
#[tokio::test(start_paused = true)]
async fn requeue_after_is_a_success() {
    let queue = queue();
    queue.add_rate_limited("a");
    let item = next(&queue).await;
    assert_eq!(item.attempt(), 2);
    item.requeue_after(secs(5));
    let (item, took) = timed(&queue).await;
    assert_eq!((took, item.attempt()), (secs(5), 1));
    item.requeue_after(secs(5));
    queue.add("a");
    assert_eq!(timed(&queue).await.1, Duration::ZERO, "something really changed");
}

// Q15
#[tokio::test(start_paused = true)]
async fn a_change_brings_a_failed_key_forward_to_the_floor_and_not_below() {
    let queue = failing_for(secs(30));
    queue.add("a");
    next(&queue).await.retry();
    tokio::time::advance(millis(100)).await;
    queue.add("a");
    queue.add("a");
    let (item, took) = timed(&queue).await;
    assert_eq!((took, item.attempt()), (millis(900), 2));
    item.retry();
    tokio::time::advance(secs(10)).await;
    queue.add("a");
    assert!(ready(&queue).is_some(), "the floor is long over: at once");
}

// Q15
#[tokio::test(start_paused = true)]
async fn the_floor_is_the_back_off_where_that_is_shorter() {
    let queue = queue();
    queue.add("a");
    next(&queue).await.retry();
    queue.add("a");
    assert_eq!(timed(&queue).await.1, millis(5));
}

// Q15
#[tokio::test(start_paused = true)]
async fn a_change_in_flight_waits_for_the_floor_if_the_run_fails() {
    for outcome in [Outcome::Retry { at_least: Duration::ZERO }, Outcome::Terminal] {
        let queue = failing_for(secs(30));
        queue.add("a");
        let item = next(&queue).await;
        queue.add("a");
        item.finish(outcome);
        let (item, took) = timed(&queue).await;
        assert_eq!(took, secs(1), "{outcome:?}");
        queue.add("a");
        item.forget();
        assert_eq!(timed(&queue).await.1, Duration::ZERO);
    }
}

// Q15
#[tokio::test(start_paused = true)]
async fn attempts_grow_only_with_runs_while_events_rain_on_a_failing_key() {
    let queue = failing_for(secs(30));
    queue.add("a");
    let start = Instant::now();
    let raining = async {
        loop {
            queue.add("a");
            tokio::time::sleep(millis(100)).await;
        }
    };
    let failing = async {
        for attempt in 1..=60 {
            let item = next(&queue).await;
            assert_eq!(item.attempt(), attempt);
            item.retry();
        }
    };
    tokio::select! {
        () = raining => {}
        () = failing => {}
    }
    assert!(start.elapsed() >= secs(59), "one run a second at most");
    assert!(start.elapsed() <= secs(66), "a change is picked up within a tenth of a second after the floor");
}

// C8
#[tokio::test(start_paused = true)]
async fn a_terminal_key_waits_for_a_change() {
    let queue = queue();
    queue.add("a");
    next(&queue).await.terminal();
    assert_eq!(queue.state_of(&"a"), KeyState::AwaitsChange { failures: 1 });
    queue.touch("a");
    tokio::time::advance(secs(100_000)).await;
    assert!(ready(&queue).is_none());
    queue.add("a");
    let item = ready(&queue).unwrap();
    assert_eq!(item.attempt(), 2);
    item.terminal();
    queue.add("a");
    let (item, took) = timed(&queue).await;
    assert_eq!(took, millis(10), "its own changes don't make it spin");
    item.terminal();
    queue.forget(&"a");
    assert_eq!(queue.depth().known, 0);
}

// C25
#[tokio::test(start_paused = true)]
async fn a_run_put_back_is_queued_at_once_and_counts_nothing() {
    let queue = queue();
    queue.add_rate_limited("a");
    let item = next(&queue).await;
    queue.add("b");
    assert_eq!(item.attempt(), 2);
    item.put_back();
    assert_eq!(*next(&queue).await.key(), "b");
    let item = ready(&queue).unwrap();
    assert_eq!((*item.key(), item.attempt()), ("a", 2));
}

#[tokio::test(start_paused = true)]
async fn an_uncounted_retry_waits_for_the_first_step() {
    let queue = queue();
    queue.add("a");
    for _ in 0..3 {
        let item = next(&queue).await;
        assert_eq!(item.attempt(), 1);
        item.retry_uncounted();
        queue.add("a");
        assert_eq!(queue.earliest(), Some(Instant::now() + millis(5)));
    }
    let item = next(&queue).await;
    item.retry();
    next(&queue).await.retry_uncounted();
    assert_eq!(queue.num_requeues(&"a"), 1);
}

#[tokio::test(start_paused = true)]
async fn uncounted_retries_in_a_row_take_longer_steps_up_to_the_floor() {
    let queue = queue();
    queue.add("a");
    let mut steps = Vec::new();
    next(&queue).await.retry_uncounted();
    for _ in 0..9 {
        let (item, took) = timed(&queue).await;
        steps.push(took.as_millis());
        item.retry_uncounted();
    }
    assert_eq!(steps, [5, 10, 20, 40, 80, 160, 320, 640, 1_000]);
    next(&queue).await.forget();
    queue.add("a");
    next(&queue).await.retry_uncounted();
    assert_eq!(timed(&queue).await.1, millis(5));
}

// Q9
#[tokio::test(start_paused = true)]
async fn a_minimum_wait_lengthens_a_back_off_but_never_shortens_it() {
    let queue = failing_for(secs(3));
    queue.add("a");
    next(&queue).await.retry_at_least(secs(7));
    let (item, took) = timed(&queue).await;
    assert_eq!(took, secs(7));
    item.retry_at_least(secs(1));
    assert_eq!(timed(&queue).await.1, secs(3));
}

// Q15
#[tokio::test(start_paused = true)]
async fn an_uncounted_retry_comes_by_the_floor_whatever_a_shared_limiter_asked_for_first() {
    let queue = failing_for(secs(40));
    queue.add("a");
    next(&queue).await.retry_uncounted();
    assert!(timed(&queue).await.1 <= secs(1));
}

// Q20
#[tokio::test(start_paused = true)]
async fn a_retry_without_a_token_holds_up_nobody() {
    let queue = configured(WorkQueueConfig {
        retry_rate: Some(RateLimit::per_second(1).burst(1)),
        ..WorkQueueConfig::default()
    });
    for key in ["b", "a", "c"] {
        queue.add(key);
    }
    next(&queue).await.retry_at_least(millis(20));
    next(&queue).await.retry_at_least(millis(10));
    next(&queue).await.retry_at_least(millis(30));
    tokio::time::advance(millis(50)).await;
    let item = ready(&queue).unwrap();
    assert_eq!(*item.key(), "a", "longest due first");
    item.forget();
    assert!(ready(&queue).is_none());
    assert_eq!(queue.state_of(&"b"), KeyState::AwaitsRetryToken { failures: 1 });
    queue.add("fresh");
    ready(&queue).unwrap().forget();
    queue.add("c");
    let item = ready(&queue).unwrap();
    assert_eq!(*item.key(), "c", "a change takes it out");
    item.forget();
    let (item, took) = timed(&queue).await;
    assert_eq!((*item.key(), took), ("b", millis(1000)));
}
