//! Keys that are kept from workers for a while.

use super::*;
use crate::workqueue::{KeyState, Outcome, RateLimit};

// W3
#[tokio::test(start_paused = true)]
async fn a_held_key_runs_after_its_release_whatever_was_said_of_it() {
    let say: [fn(&WorkQueue<&'static str>); 4] = [
        |queue| queue.add("a"),
        |queue| queue.touch("a"),
        |queue| queue.add_after("a", millis(3)),
        |queue| queue.add_rate_limited("a"),
    ];
    for (number, say) in say.into_iter().enumerate() {
        let queue = queue();
        queue.hold(&"a", secs(60));
        say(&queue);
        tokio::time::advance(secs(30)).await;
        assert!(ready(&queue).is_none(), "{number}: held");
        queue.release(&"a");
        ready(&queue).unwrap_or_else(|| panic!("{number}: let go")).forget();
        assert_eq!(queue.depth().known, 0);
    }
}

// W3
#[tokio::test(start_paused = true)]
async fn a_hold_ends_by_itself_when_its_time_is_over() {
    let queue = queue();
    queue.add("a");
    queue.hold(&"a", secs(5));
    assert_eq!(queue.state_of(&"a"), KeyState::Held { until: Instant::now() + secs(5) });
    queue.hold(&"a", secs(2));
    let (item, took) = timed(&queue).await;
    assert_eq!((*item.key(), took), ("a", secs(2)), "the new time counts");
}

// W3
#[tokio::test(start_paused = true)]
async fn a_key_held_in_flight_is_kept_from_when_its_run_ends() {
    for outcome in [Outcome::Done, Outcome::Retry { at_least: Duration::ZERO }, Outcome::PutBack] {
        let queue = queue();
        queue.add("a");
        let item = next(&queue).await;
        queue.hold(&"a", secs(5));
        assert!(matches!(queue.state_of(&"a"), KeyState::InFlight { .. }));
        queue.add("a");
        item.finish(outcome);
        assert!(matches!(queue.state_of(&"a"), KeyState::Held { .. }), "{outcome:?}");
        assert_eq!(timed(&queue).await.1, secs(5), "{outcome:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_is_over_before_the_run_changes_nothing() {
    let queue = queue();
    queue.add("a");
    let item = next(&queue).await;
    queue.hold(&"a", secs(5));
    tokio::time::advance(secs(6)).await;
    item.requeue_after(secs(1));
    assert_eq!(timed(&queue).await.1, secs(1));
}

// W3
#[tokio::test(start_paused = true)]
async fn held_keys_without_anything_to_run_leave_nothing_behind() {
    let queue = queue();
    for key in 0..100 {
        queue.hold(&key, secs(5));
    }
    assert_eq!((queue.depth().held, queue.depth().delayed, queue.depth().known), (100, 0, 100));
    (0..50).for_each(|key| queue.release(&key));
    assert_eq!((queue.depth().held, queue.depth().known), (50, 50));
    tokio::time::advance(secs(5)).await;
    assert_eq!((queue.depth().held, queue.depth().known), (0, 0));
    assert!(ready(&queue).is_none());
}

// W3
#[tokio::test(start_paused = true)]
async fn a_held_key_takes_no_token_and_holds_up_nobody() {
    let queue = configured(WorkQueueConfig {
        rate: Some(RateLimit::per_period(secs(10)).burst(1)),
        retry_rate: Some(RateLimit::per_period(secs(10)).burst(1)),
        ..WorkQueueConfig::default()
    });
    queue.hold(&"held", secs(60));
    queue.add_rate_limited("held");
    queue.add_rate_limited("other");
    assert_eq!(timed(&queue).await.1, millis(5), "one token of each kind is there, and is not taken");
}

// W3
#[tokio::test(start_paused = true)]
async fn a_retry_that_has_its_token_pays_no_second_one_for_a_hold() {
    let queue = configured(WorkQueueConfig {
        retry_rate: Some(RateLimit::per_period(secs(10)).burst(1)),
        ..WorkQueueConfig::default()
    });
    queue.add_rate_limited("a");
    tokio::time::advance(millis(5)).await;
    assert_eq!(queue.len(), 1);
    queue.hold(&"a", secs(60));
    queue.release(&"a");
    assert!(ready(&queue).is_some());
}

// W3 Q15
#[tokio::test(start_paused = true)]
async fn a_back_off_goes_on_under_a_hold_and_beyond_it() {
    let queue = failing_for(secs(30));
    queue.add("a");
    next(&queue).await.retry();
    queue.hold(&"a", secs(10));
    tokio::time::advance(secs(1)).await;
    queue.release(&"a");
    assert!(matches!(queue.state_of(&"a"), KeyState::BackingOff { failures: 1, .. }));
    queue.hold(&"a", secs(10));
    queue.release(&"a");
    assert_eq!(timed(&queue).await.1, secs(29));
}

// W3
#[tokio::test(start_paused = true)]
async fn a_terminal_failure_stays_one_under_a_hold() {
    let queue = queue();
    queue.add("a");
    next(&queue).await.terminal();
    queue.hold(&"a", secs(10));
    queue.touch("a");
    queue.release(&"a");
    assert_eq!(queue.state_of(&"a"), KeyState::AwaitsChange { failures: 1 });
    queue.hold(&"a", secs(10));
    queue.forget(&"a");
    queue.release(&"a");
    assert_eq!(queue.depth().known, 0);
}

// W3
#[tokio::test(start_paused = true)]
async fn a_released_key_joins_the_back_of_the_line() {
    let queue = queue();
    for key in ["a", "b", "c"] {
        queue.add(key);
    }
    queue.hold(&"a", secs(1));
    queue.release(&"a");
    let order: Vec<_> = std::iter::from_fn(|| ready(&queue).map(|item| *item.key())).collect();
    assert_eq!(order, ["b", "c", "a"]);
}

// W3 Q4 C18
#[tokio::test(start_paused = true)]
async fn what_is_held_is_never_handed_out_not_even_by_a_shutdown() {
    let queue = queue();
    for key in ["held before", "held after", "runs", "free"] {
        queue.add(key);
    }
    queue.hold(&"held before", secs(1));
    queue.hold(&"runs", Duration::ZERO);
    tokio::time::advance(millis(1)).await;
    queue.shut_down();
    queue.hold(&"held after", secs(1));
    queue.hold(&"unknown", secs(1));
    let free = next(&queue).await;
    assert_eq!(*free.key(), "free");
    let runs = next(&queue).await;
    queue.hold(runs.key(), secs(1));
    runs.put_back();
    free.forget();
    tokio::time::advance(secs(2)).await;
    assert!(queue.get().await.is_none());
    assert_eq!(queue.depth().known, 0);
}
