//! Timers: never early, never late, merged by minimum.

use super::*;
use crate::workqueue::KeyState;

// Q7
#[tokio::test(start_paused = true)]
async fn hands_out_a_delayed_key_when_due_and_not_before() {
    let queue = queue();
    queue.add_after("a", millis(1500));
    assert_eq!(queue.state_of(&"a"), KeyState::Delayed { until: Instant::now() + millis(1500) });
    assert_eq!(queue.earliest(), Some(Instant::now() + millis(1500)));
    tokio::time::advance(millis(1499)).await;
    assert!(ready(&queue).is_none());
    assert_eq!(queue.len(), 0);
    let (item, took) = timed(&queue).await;
    assert_eq!((*item.key(), took), ("a", millis(1)));
}

// Q7
#[tokio::test(start_paused = true)]
async fn rearms_for_an_earlier_key_while_workers_wait() {
    let queue = queue();
    queue.add_after("late", secs(60));
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { timed(&queue).await })
        })
        .collect();
    tokio::task::yield_now().await;
    queue.add_after("soon", secs(1));
    queue.add_after("sooner", millis(10));
    let mut served = Vec::new();
    for worker in waiting {
        let (item, took) = worker.await.unwrap();
        served.push((took, *item.key()));
    }
    served.sort_unstable();
    assert_eq!(served, [(millis(10), "sooner"), (secs(1), "soon"), (secs(60), "late")]);
}

// Q8
#[tokio::test(start_paused = true)]
async fn the_earliest_deadline_wins() {
    let queue = queue();
    queue.add_after("a", secs(10));
    queue.add_after("a", secs(2));
    queue.add_after("a", secs(5));
    let (item, took) = timed(&queue).await;
    assert_eq!(took, secs(2));
    item.forget();
    assert_eq!(queue.earliest(), None, "the later ones are gone");
}

// Q8
#[tokio::test(start_paused = true)]
async fn an_add_cancels_the_delay() {
    let queue = queue();
    queue.add_after("a", secs(10));
    queue.add("a");
    ready(&queue).expect("it is ready at once").forget();
    tokio::time::advance(secs(20)).await;
    assert!(ready(&queue).is_none());
    assert_eq!(queue.depth().known, 0);
}

// Q8
#[tokio::test(start_paused = true)]
async fn a_delay_asked_for_in_flight_outlives_the_run() {
    let queue = queue();
    queue.add("a");
    let item = next(&queue).await;
    queue.add_after("a", secs(3));
    queue.add_after("a", secs(4));
    drop(item);
    let (item, took) = timed(&queue).await;
    assert_eq!(took, secs(3));
    queue.add_after("a", secs(3));
    item.requeue_after(secs(1));
    let (item, took) = timed(&queue).await;
    assert_eq!(took, secs(1), "the lesser of both");
    queue.add_after("a", secs(1));
    item.retry_at_least(secs(5));
    let (item, took) = timed(&queue).await;
    assert_eq!(took, secs(5), "but never before the back-off is over");
    queue.add_after("a", secs(2));
    item.forget();
    assert_eq!(timed(&queue).await.1, secs(2), "a success clears failures, and no timer");
}

// Q7
#[tokio::test(start_paused = true)]
async fn a_delay_of_zero_is_no_delay_and_an_endless_one_never_ends() {
    let queue = queue();
    queue.add_after("now", Duration::ZERO);
    let item = ready(&queue).unwrap();
    item.requeue_after(Duration::MAX);
    queue.add_after("never", Duration::MAX);
    queue.touch("now");
    queue.touch("never");
    tokio::time::advance(secs(1_000_000_000)).await;
    assert!(ready(&queue).is_none());
    assert_eq!((queue.earliest(), queue.depth().delayed), (None, 2));
    queue.add("now");
    queue.add_after("never", secs(1));
    assert_eq!(*next(&queue).await.key(), "now");
    assert_eq!(*next(&queue).await.key(), "never");
}

// Q14
#[tokio::test(start_paused = true)]
async fn a_touch_makes_an_idle_key_run_and_shortens_nothing() {
    let queue = failing_for(secs(30));
    queue.touch("a");
    queue.touch("a");
    next(&queue).await.requeue_after(secs(10));
    queue.touch("a");
    let (item, took) = timed(&queue).await;
    assert_eq!((took, item.attempt()), (secs(10), 1));
    item.retry();
    for _ in 0..29 {
        tokio::time::advance(secs(1)).await;
        queue.touch("a");
        assert!(ready(&queue).is_none());
    }
    let (item, took) = timed(&queue).await;
    assert_eq!((took, item.attempt(), queue.num_requeues(&"a")), (secs(1), 2, 1));
}

// Q14
#[tokio::test(start_paused = true)]
async fn a_touch_in_flight_runs_the_key_again_only_if_it_ends_well_and_without_a_timer() {
    let queue = failing_for(secs(30));
    queue.add("a");
    let item = next(&queue).await;
    queue.touch("a");
    item.forget();
    let item = ready(&queue).unwrap();
    queue.touch("a");
    item.requeue_after(secs(10));
    let (item, took) = timed(&queue).await;
    assert_eq!(took, secs(10));
    queue.touch("a");
    item.retry();
    let (item, took) = timed(&queue).await;
    assert_eq!(took, secs(30));
    queue.touch("a");
    item.terminal();
    assert_eq!(queue.state_of(&"a"), KeyState::AwaitsChange { failures: 2 });
}

// Q8
#[tokio::test(start_paused = true)]
async fn many_that_fall_due_at_once_come_in_the_order_in_which_they_did() {
    let queue = queue();
    // 7 and 1000 have no common factor: each delay once, in no order
    let delays = (0..1000u64).map(|at| at * 7 % 1000);
    delays.for_each(|delay| queue.add_after(delay, millis(delay)));
    queue.hold(&950, millis(3));
    tokio::time::advance(millis(899)).await;
    for expected in 0..900 {
        assert_eq!(*next(&queue).await.key(), expected);
    }
    assert_eq!((queue.depth().delayed, queue.depth().held), (100, 0));
    for expected in 900..1000 {
        let (item, waited) = timed(&queue).await;
        assert_eq!((*item.key(), waited), (expected, millis(1)));
    }
}
