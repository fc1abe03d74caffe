//! Queued once, in flight once, in turn.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use super::*;
use crate::workqueue::KeyState;

// Q1
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn processes_every_key_and_none_concurrently() {
    const KEYS: usize = 50;
    let queue = queue::<usize>();
    let busy: Arc<Vec<AtomicU32>> = Arc::new((0..KEYS).map(|_| AtomicU32::new(0)).collect());
    let runs = Arc::new(Mutex::new(HashMap::<usize, u32>::new()));
    let workers: Vec<_> = (0..8)
        .map(|_| {
            let (queue, busy, runs) = (queue.clone(), Arc::clone(&busy), Arc::clone(&runs));
            tokio::spawn(async move {
                while let Some(item) = queue.get().await {
                    assert_eq!(busy[*item.key()].fetch_add(1, Ordering::SeqCst), 0, "two runs of one key");
                    tokio::task::yield_now().await;
                    *runs.lock().unwrap().entry(*item.key()).or_default() += 1;
                    busy[*item.key()].fetch_sub(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    for round in 0..200 {
        (0..KEYS).for_each(|key| queue.add(key));
        if round % 10 == 0 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(queue.drain().await, crate::workqueue::Drained::Clean);
    for worker in workers {
        worker.await.unwrap();
    }
    assert_eq!(runs.lock().unwrap().len(), KEYS);
    assert_eq!(queue.depth().known, 0);
}

// Q2
#[tokio::test(start_paused = true)]
async fn runs_again_once_when_added_in_flight() {
    let queue = queue();
    queue.add("a");
    let item = next(&queue).await;
    queue.add("a");
    queue.add("a");
    assert!(ready(&queue).is_none(), "in flight, not handed out again");
    item.forget();
    next(&queue).await.forget();
    assert!(ready(&queue).is_none());
    assert_eq!(queue.state_of(&"a"), KeyState::Idle);
}

// Q3
#[tokio::test(start_paused = true)]
async fn counts_a_key_once() {
    let queue = queue();
    for key in ["a", "b", "a", "a", "b"] {
        queue.add(key);
    }
    assert_eq!(queue.len(), 2);
    let item = next(&queue).await;
    queue.add("a");
    assert_eq!((queue.len(), queue.is_empty()), (1, false), "one in flight, one queued");
    drop(item);
    assert_eq!(queue.len(), 2);
}

// Q16
#[tokio::test(start_paused = true)]
async fn is_done_when_a_panic_or_a_cancellation_drops_the_guard() {
    let queue = queue();
    queue.add("panics");
    queue.add("hangs");
    let workers = [
        tokio::spawn({
            let queue = queue.clone();
            async move {
                let _item = next(&queue).await;
                panic!("on purpose");
            }
        }),
        tokio::spawn({
            let queue = queue.clone();
            async move {
                let _item = next(&queue).await;
                std::future::pending::<()>().await;
            }
        }),
    ];
    tokio::task::yield_now().await;
    assert_eq!(queue.depth().in_flight, 1);
    workers[1].abort();
    for worker in workers {
        assert!(worker.await.is_err());
    }
    assert_eq!(queue.depth(), Default::default());
    queue.add("hangs");
    assert_eq!(*next(&queue).await.key(), "hangs");
}

// Q19
#[tokio::test(start_paused = true)]
async fn always_ready_keys_share_the_worker_evenly() {
    let queue = queue();
    let mut runs = vec![0u32; 200];
    (0..200usize).for_each(|key| queue.add(key));
    for _ in 0..4000 {
        let item = next(&queue).await;
        runs[*item.key()] += 1;
        queue.add(*item.key());
        item.forget();
    }
    assert!(runs.iter().all(|runs| *runs == 20), "{runs:?}");
}

// Q19
#[tokio::test(start_paused = true)]
async fn serves_in_the_order_of_arrival_whatever_brought_the_key() {
    let queue = queue();
    queue.add_after("timer", millis(10));
    queue.add("first");
    tokio::time::advance(millis(10)).await;
    queue.add("change");
    queue.touch("touch");
    let mut order = Vec::new();
    while let Some(item) = ready(&queue) {
        order.push(*item.key());
    }
    assert_eq!(order, ["first", "timer", "change", "touch"]);
}

#[tokio::test(start_paused = true)]
async fn yields_to_other_tasks_though_never_empty() {
    let queue = queue();
    queue.add("spins");
    let spinning = async {
        loop {
            let item = next(&queue).await;
            queue.add(*item.key());
        }
    };
    tokio::select! {
        () = spinning => {}
        () = tokio::task::yield_now() => {}
    }
}
