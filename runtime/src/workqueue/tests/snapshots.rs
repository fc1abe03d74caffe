//! What a debug page reads.

use super::*;
use crate::workqueue::{KeyState, RateLimit};

#[tokio::test(start_paused = true)]
async fn a_snapshot_tells_where_every_key_stands_and_since_when() {
    let queue = configured(WorkQueueConfig {
        retry_rate: Some(RateLimit::per_period(secs(60)).burst(1)),
        ..WorkQueueConfig::default()
    });
    queue.keep_times();
    let start = Instant::now();
    for key in ["terminal", "runs", "first retry", "second retry", "backs off"] {
        queue.add(key);
    }
    next(&queue).await.terminal();
    let runs = next(&queue).await;
    next(&queue).await.retry();
    next(&queue).await.retry();
    next(&queue).await.retry_at_least(secs(9));
    queue.add_after("later", secs(2));
    queue.hold(&"held", secs(5));
    tokio::time::advance(secs(1)).await;
    queue.add_at("ready", Priority::High);
    let at = |seconds| start + secs(seconds);
    let snapshot = queue.snapshot(100);
    let expected = [
        ("runs", KeyState::InFlight { since: Some(start), attempt: 1 }),
        ("ready", KeyState::Queued { priority: Priority::High, since: Some(at(1)) }),
        ("first retry", KeyState::Queued { priority: Priority::Normal, since: Some(at(1)) }),
        ("second retry", KeyState::AwaitsRetryToken { failures: 1 }),
        ("later", KeyState::Delayed { until: at(2) }),
        ("held", KeyState::Held { until: at(5) }),
        ("backs off", KeyState::BackingOff { until: at(9), failures: 1 }),
        ("terminal", KeyState::AwaitsChange { failures: 1 }),
    ];
    let sorted = |mut keys: Vec<(&'static str, KeyState)>| {
        keys.sort_by_key(|(key, _)| *key);
        keys
    };
    assert_eq!(sorted(snapshot.keys.clone()), sorted(expected.to_vec()));
    let head: Vec<_> = snapshot.keys.iter().take(5).map(|(key, _)| *key).collect();
    assert_eq!(head, ["runs", "ready", "first retry", "second retry", "later"]);
    assert_eq!((snapshot.left_out(), snapshot.depth.awaiting_change), (0, 1));
    for (key, state) in expected {
        assert_eq!(queue.state_of(&key), state, "{key}");
    }
    drop(runs);
}

#[test]
fn a_snapshot_shows_no_more_than_asked_for() {
    let queue = queue();
    (0..1000).for_each(|key| queue.add(key));
    let snapshot = queue.snapshot(10);
    assert!(snapshot.keys.iter().map(|(key, _)| *key).eq(0..10));
    assert_eq!(snapshot.left_out(), 990);
    assert!(queue.snapshot(0).keys.is_empty());
}

#[tokio::test(start_paused = true)]
async fn without_times_kept_a_key_stands_without_since_when() {
    let queue = queue();
    queue.add("runs");
    queue.add("waits");
    let _runs = next(&queue).await;
    let since = || match (queue.state_of(&"runs"), queue.state_of(&"waits")) {
        (KeyState::InFlight { since: runs, .. }, KeyState::Queued { since: waits, .. }) => (runs, waits),
        other => panic!("{other:?}"),
    };
    assert_eq!(since(), (None, None));
    queue.keep_times();
    assert_eq!(since(), (None, None), "what began before has no time");
    queue.add("later");
    let later = queue.state_of(&"later");
    assert!(matches!(later, KeyState::Queued { since: Some(since), .. } if since == Instant::now()));
}
