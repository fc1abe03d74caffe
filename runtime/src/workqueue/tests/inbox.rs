//! Keys that are left behind a line count as keys that are added. In tests each line is long enough, while nobody waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};

use super::*;
use crate::workqueue::KeyState;
use crate::workqueue::shared::Shared;
use crate::workqueue::state::State;

// Q13
#[tokio::test(start_paused = true)]
async fn a_key_that_was_left_is_ready_since_then() {
    let (queue, start) = (queue(), Instant::now());
    queue.keep_times();
    queue.add("a");
    tokio::time::advance(secs(3)).await;
    assert_eq!(queue.state_of(&"a"), KeyState::Queued { priority: Priority::Normal, since: Some(start) });
}

// Q7 Q11 Q19
#[tokio::test(start_paused = true)]
async fn a_key_that_was_left_stands_before_what_falls_due_later() {
    let queue = queue();
    queue.add_after("later", millis(5));
    queue.add("a");
    queue.add("b");
    tokio::time::advance(millis(9)).await;
    queue.add("c");
    let order: Vec<_> = std::iter::from_fn(|| ready(&queue).map(|item| *item.key())).collect();
    assert_eq!(order, ["a", "b", "later", "c"]);
}

// Q3 Q11 Q19
#[tokio::test(start_paused = true)]
async fn keys_are_left_in_their_order_however_many_they_are() {
    let queue = queue();
    for key in (0..20).chain(0..20) {
        queue.add(key);
    }
    queue.add_at(99, Priority::High);
    assert_eq!(queue.len(), 21);
    let order: Vec<_> = std::iter::from_fn(|| ready(&queue).map(|item| *item.key())).collect();
    assert_eq!((order[0], order[1..].to_vec()), (99, (0..20).collect()));
}

// Q4
#[tokio::test(start_paused = true)]
async fn what_was_left_before_the_shutdown_is_drained_and_what_came_later_refused() {
    let queue = queue();
    queue.touch("first");
    queue.add("left");
    queue.shut_down();
    queue.add("late");
    let order = [(); 2].map(|()| ready(&queue).map(|item| *item.key()));
    assert_eq!(order, [Some("left"), Some("first")]);
    queue.add("late");
    assert_eq!(queue.depth().known, 0);
}

// Q8 Q2
#[tokio::test(start_paused = true)]
async fn what_was_left_is_known_to_whoever_asks_or_says_anything_else() {
    let queue = queue();
    queue.add_after("a", secs(9));
    queue.add("a");
    assert_eq!(queue.earliest().map(|at| at <= Instant::now()), Some(true));
    let run = ready(&queue).unwrap();
    queue.add("a");
    run.terminal();
    assert_eq!(queue.num_requeues(&"a"), 1);
    assert!(!matches!(queue.state_of(&"a"), KeyState::AwaitsChange { .. }), "it changed meanwhile");
    queue.add("b");
    queue.hold(&"b", secs(1));
    assert!(matches!(queue.state_of(&"b"), KeyState::Held { .. }));
}

/// Counts how often it is called.
#[derive(Default)]
struct Calls(AtomicUsize);

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

// Q17
#[test]
fn a_key_that_is_left_while_a_worker_begins_to_wait_wakes_it() {
    let shared = Shared::new(State::unlimited(Arc::new(ItemExponentialFailure::default())));
    let calls = Arc::new(Calls::default());
    let (waker, mut ticket) = (Waker::from(calls.clone()), None);
    // the inbox learns that it is open
    shared.read(|_| ());
    shared.with(|dispatcher, clock| {
        let turn = dispatcher.take(&mut ticket, &waker, clock);
        // and does not know yet that somebody waits
        shared.add("a", Priority::Normal);
        turn
    });
    assert!(ticket.is_some());
    assert_eq!(calls.0.load(Ordering::Relaxed), 1);
    assert_eq!(shared.read(State::ready), 1);
}
