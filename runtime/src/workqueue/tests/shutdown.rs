//! The ways a queue ends.

use futures::FutureExt;

use super::*;
use crate::workqueue::{Drained, Outcome};

// Q4
#[tokio::test(start_paused = true)]
async fn a_shutdown_refuses_keys_and_drains_what_is_ready() {
    let queue = queue();
    queue.add("a");
    queue.add("b");
    queue.add_after("later", secs(1));
    queue.add_rate_limited("retry");
    queue.shut_down();
    for key in ["c", "later"] {
        queue.add(key);
        queue.touch(key);
        queue.add_after(key, secs(1));
        queue.add_rate_limited(key);
    }
    assert!(queue.is_shut_down());
    assert_eq!(queue.len(), 2);
    next(&queue).await.retry();
    let last = next(&queue).await;
    assert!(queue.get().await.is_none(), "nothing will come");
    last.requeue_after(secs(1));
    assert!(queue.get().await.is_none());
    assert_eq!(queue.depth().delayed, 0);
}

// Q4
#[tokio::test(start_paused = true)]
async fn a_shutdown_wakes_all_who_wait() {
    let queue = queue::<u8>();
    let workers: Vec<_> = (0..5)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.get().await.is_none() })
        })
        .collect();
    tokio::task::yield_now().await;
    queue.shut_down();
    for worker in workers {
        assert!(worker.await.unwrap());
    }
}

// Q4
#[tokio::test(start_paused = true)]
async fn a_key_added_in_flight_before_the_shutdown_still_runs_again() {
    let queue = queue();
    queue.add("a");
    let item = next(&queue).await;
    queue.add("a");
    queue.shut_down();
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { queue.get().await.map(|item| *item.key()) }
    });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    item.forget();
    assert_eq!(waiting.await.unwrap(), Some("a"));
    assert!(queue.get().await.is_none());
}

// Q5
#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_queued_and_in_flight() {
    let queue = queue();
    queue.add("a");
    queue.add("b");
    let mut drain = Box::pin(queue.drain());
    assert!((&mut drain).now_or_never().is_none(), "queued, though nothing is in flight yet");
    let a = next(&queue).await;
    let b = next(&queue).await;
    a.forget();
    assert!((&mut drain).now_or_never().is_none(), "one is in flight");
    let drain = async { (drain.await, Instant::now()) };
    let finish = async {
        tokio::time::sleep(secs(3)).await;
        let end = Instant::now();
        b.forget();
        end
    };
    let ((drained, at), end) = tokio::join!(drain, finish);
    assert_eq!((drained, at), (Drained::Clean, end));
}

// Q5
#[tokio::test(start_paused = true)]
async fn a_drain_of_an_empty_queue_is_over_at_once() {
    assert_eq!(queue::<u8>().drain().now_or_never(), Some(Drained::Clean));
}

// Q6
#[tokio::test(start_paused = true)]
async fn a_second_shutdown_aborts_a_drain() {
    let queue = queue();
    queue.add("a");
    let _item = next(&queue).await;
    let drain = tokio::spawn({
        let queue = queue.clone();
        async move { queue.drain().await }
    });
    tokio::task::yield_now().await;
    assert!(!drain.is_finished());
    queue.shut_down();
    assert_eq!(drain.await.unwrap(), Drained::Aborted);
}

// C18
#[tokio::test(start_paused = true)]
async fn discarding_drops_all_but_what_runs() {
    let queue = queue();
    for key in ["running", "ready", "delayed"] {
        queue.add(key);
    }
    let item = next(&queue).await;
    queue.add("running");
    queue.add_after("later", secs(1));
    queue.discard();
    assert!(queue.get().await.is_none());
    assert_eq!((queue.depth().known, queue.depth().in_flight), (1, 1));
    item.put_back();
    assert!(queue.get().await.is_none());
    assert_eq!(queue.depth().known, 0);
    assert_eq!(queue.drain().await, Drained::Clean);
}

// Q4 Q21
#[tokio::test(start_paused = true)]
async fn a_drain_ends_with_a_run_that_is_put_back_by_a_worker_that_leaves() {
    let queue = queue();
    queue.add("a");
    let item = next(&queue).await;
    let drain = tokio::spawn({
        let queue = queue.clone();
        async move { queue.drain().await }
    });
    tokio::task::yield_now().await;
    assert!(queue.get().await.is_none(), "the other worker ends: nothing will come");
    assert!(!drain.is_finished(), "one is in flight");
    item.put_back();
    let drained = tokio::time::timeout(secs(1), drain).await;
    assert_eq!(drained.expect("the drain hangs").unwrap(), Drained::Clean);
    assert_eq!(queue.depth().known, 0);
}

// Q21
#[tokio::test(start_paused = true)]
async fn what_changed_in_flight_keeps_the_others_at_work_though_its_worker_leaves() {
    for outcome in [Outcome::PutBack, Outcome::Done, Outcome::Forget, Outcome::RequeueAfter(secs(9))] {
        let queue = queue();
        queue.add("a");
        let item = next(&queue).await;
        queue.add("a");
        let drain = tokio::spawn({
            let queue = queue.clone();
            async move { queue.drain().await }
        });
        let stays = tokio::spawn({
            let queue = queue.clone();
            async move { queue.get().await.map(|item| item.attempt()) }
        });
        tokio::task::yield_now().await;
        item.finish(outcome);
        assert_eq!(stays.await.unwrap(), Some(1), "{outcome:?}");
        assert_eq!(drain.await.unwrap(), Drained::Clean);
    }
}
