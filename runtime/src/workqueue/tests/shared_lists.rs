//! Keys that stand on a list: ready like others, and next to free.

use super::*;
use crate::key_list::KeyList;
use crate::metrics::Metrics;
use crate::workqueue::clock::At;
use crate::workqueue::state::{Next, State};
use crate::workqueue::{Depth, Drained, KeyState, Outcome};

fn list<K: QueueKey>(keys: impl IntoIterator<Item = K>) -> std::sync::Arc<KeyList<K>> {
    std::sync::Arc::new(KeyList::new(keys))
}

/// Takes all that is ready, and ends each run.
fn order<K: QueueKey>(queue: &WorkQueue<K>) -> Vec<K> {
    std::iter::from_fn(|| ready(queue).map(|item| item.key().clone())).collect()
}

// Q11 Q12
#[tokio::test(start_paused = true)]
async fn a_roll_stands_in_the_low_line_where_it_came_and_yields_to_what_is_urgent() {
    let queue = queue();
    queue.add_at("before", Priority::Low);
    queue.add_list(&list(["a", "b", "c", "d", "e", "f", "g", "h"]));
    queue.add_at("behind", Priority::Low);
    queue.add_at("high", Priority::High);
    queue.add("f");
    queue.touch("c");
    queue.add_at("d", Priority::Low);
    queue.add_after_at("e", secs(1), Priority::Low);
    assert_eq!((queue.len(), queue.depth().ready_at(Priority::Low)), (11, 9));
    assert_eq!(order(&queue), ["high", "f", "before", "a", "b", "c", "d", "e", "g", "h", "behind"]);
    assert_eq!(queue.depth(), Depth::default());
}

// Q12 Q19
#[tokio::test(start_paused = true)]
async fn a_roll_does_not_starve_behind_what_is_always_urgent() {
    let queue = queue();
    queue.add_list(&list(1..=4));
    queue.add_at(0, Priority::High);
    let mut served = Vec::new();
    for _ in 0..32 {
        let item = next(&queue).await;
        served.push(*item.key());
        if *item.key() == 0 {
            queue.add_at(0, Priority::High);
        }
    }
    let listed: Vec<_> = served.iter().filter(|key| **key != 0).copied().collect();
    assert_eq!(listed, [1, 2, 3, 4], "one grant in eight");
}

// Q2 Q3
#[tokio::test(start_paused = true)]
async fn a_key_that_is_known_already_or_listed_twice_is_queued_once() {
    let queue = queue();
    queue.add("queued");
    queue.add("runs");
    queue.add_at("runs", Priority::High);
    let runs = next(&queue).await;
    queue.add_after("delayed", secs(9));
    queue.add_list(&list(["a", "queued", "runs", "delayed"]));
    queue.add_list(&list(["b", "a"]));
    assert_eq!(queue.len(), 4);
    runs.forget();
    assert_eq!(order(&queue), ["queued", "delayed", "a", "b", "runs"]);
    for at in 0..6 {
        queue.add_list(&list([at, 10 + at].map(|at| if at < 10 { "same" } else { "other" })));
    }
    assert_eq!(order(&queue), ["same", "other"]);
}

// Q14 Q15
#[tokio::test(start_paused = true)]
async fn whatever_is_said_of_a_listed_key_counts_as_of_any_that_is_ready() {
    let queue = failing_for(secs(5));
    queue.add_list(&list(["held", "fails", "plain"]));
    queue.hold(&"held", secs(1));
    queue.add_rate_limited("fails");
    queue.forget(&"plain");
    queue.release(&"plain");
    assert_eq!((queue.num_requeues(&"fails"), queue.depth().held), (1, 1));
    assert_eq!(order(&queue), ["fails", "plain"]);
    assert_eq!(timed(&queue).await.1, secs(1));
}

// Q4 Q5
#[tokio::test(start_paused = true)]
async fn a_drain_serves_a_roll_and_a_discard_drops_it() {
    let queue = queue();
    queue.add_list(&list([1, 2]));
    let drain = queue.drain();
    tokio::pin!(drain);
    assert!((&mut drain).now_or_never().is_none());
    queue.add_list(&list([3]));
    assert_eq!([1, 2].map(|_| *ready(&queue).unwrap().key()), [1, 2]);
    assert!(queue.get().await.is_none());
    assert_eq!(drain.await, Drained::Clean);
    let queue = super::queue();
    queue.add_list(&list([1, 2]));
    queue.discard();
    assert!(queue.is_empty() && queue.get().await.is_none());
}

// Q13
#[tokio::test(start_paused = true)]
async fn times_and_states_of_listed_keys_count_from_the_list() {
    let (metrics, queue) = (Metrics::new(), queue());
    queue.report_to(&metrics, "q");
    let since = Some(Instant::now());
    queue.add_list(&list(["a", "b", "c"]));
    tokio::time::advance(secs(2)).await;
    queue.add_at("later", Priority::Low);
    queue.add("c");
    let state = |priority, since| KeyState::Queued { priority, since };
    let low = state(Priority::Low, since);
    assert_eq!(queue.state_of(&"a"), low);
    assert_eq!(queue.state_of(&"c"), state(Priority::Normal, since), "raised, and counted once");
    let expected = [
        ("c", state(Priority::Normal, since)),
        ("a", low),
        ("b", low),
        ("later", state(Priority::Low, Some(Instant::now()))),
    ];
    assert_eq!(queue.snapshot(9).keys, expected);
    assert_eq!(queue.snapshot(2).left_out(), 2);
    assert_eq!(order(&queue), ["c", "a", "b", "later"]);
    let page = metrics.encode();
    for line in [
        r#"workqueue_adds_total{name="q",controller="q"} 4"#,
        r#"workqueue_queue_duration_seconds_sum{name="q",controller="q"} 6.0"#,
        r#"workqueue_queue_duration_seconds_count{name="q",controller="q"} 4"#,
    ] {
        assert!(page.contains(line), "{line} in {page}");
    }
}

// Q18
#[test]
fn a_key_on_a_roll_costs_a_queue_next_to_nothing_at_any_time() {
    let list = list(0..100_000u32);
    let mut state = State::unlimited(std::sync::Arc::new(ItemExponentialFailure::default()));
    state.add_list(&list, &At::START);
    assert_eq!((state.known(), state.ready()), (100_000, 100_000));
    for key in 0..100_000 {
        let Next::Run(turn) = state.take(&At::START) else { panic!("all are ready") };
        let grant = state.grant(turn);
        assert_eq!(grant.key, key);
        state.finish(grant.id, Outcome::Forget, grant.priority, &At::START);
        assert!(state.capacity() < 16, "{}", state.capacity());
    }
    assert_eq!((state.known(), state.lists()), (0, 0));
    assert_eq!(std::sync::Arc::strong_count(&list), 1, "and lets go of it in the end");
}
