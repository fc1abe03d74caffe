//! Who goes first.

use super::*;
use crate::workqueue::{Outcome, RateLimit};

const BANDS: [Priority; 3] = [Priority::Low, Priority::Normal, Priority::High];

/// Takes all that is ready, and leaves it in flight.
fn order<K: QueueKey>(queue: &WorkQueue<K>) -> Vec<K> {
    let items: Vec<_> = std::iter::from_fn(|| ready(queue)).collect();
    items.iter().map(|item| item.key().clone()).collect()
}

// Q11
#[tokio::test(start_paused = true)]
async fn the_highest_goes_first_and_within_a_priority_the_first_to_come() {
    let queue = queue();
    queue.add_at("low", Priority::Low);
    queue.add("normal 1");
    queue.add_at("high 1", Priority::High);
    queue.add("normal 2");
    queue.add_at("high 2", Priority::High);
    queue.touch("touched");
    assert_eq!(queue.depth().ready_at(Priority::High), 2);
    assert_eq!(BANDS.map(|band| queue.depth().ready_at(band)).iter().sum::<usize>(), queue.len());
    assert_eq!(order(&queue), ["high 1", "high 2", "normal 1", "normal 2", "low", "touched"]);
}

// Q11
#[tokio::test(start_paused = true)]
async fn a_waiting_key_is_raised_to_the_back_of_its_new_line_and_never_lowered() {
    let queue = queue();
    for key in ["a", "b", "c"] {
        queue.add_at(key, Priority::Low);
    }
    queue.add("normal");
    queue.add("b");
    queue.add_at("b", Priority::Low);
    queue.touch("b");
    queue.touch_at("c", Priority::High);
    assert_eq!(order(&queue), ["c", "normal", "b", "a"]);
}

// Q11
#[tokio::test(start_paused = true)]
async fn what_was_asked_during_a_wait_counts_when_it_is_over() {
    let queue = queue();
    queue.add_after_at("delayed", secs(1), Priority::Low);
    queue.add_after_at("delayed", secs(2), Priority::High);
    queue.hold(&"held", secs(1));
    queue.add_at("held", Priority::Low);
    queue.add_at("held", Priority::High);
    queue.add("normal");
    tokio::time::advance(secs(1)).await;
    assert_eq!(order(&queue), ["delayed", "held", "normal"]);
}

// C12
#[tokio::test(start_paused = true)]
async fn an_outcome_keeps_the_priority_unless_it_names_another_or_something_changes() {
    let ways = [
        Outcome::PutBack,
        Outcome::RetryUncounted,
        Outcome::Retry { at_least: secs(1) },
        Outcome::RequeueAfter(secs(1)),
    ];
    for outcome in ways {
        let queue = queue();
        queue.add_at("a", Priority::Low);
        next(&queue).await.finish(outcome);
        let item = next(&queue).await;
        assert_eq!(item.priority(), Priority::Low, "{outcome:?} keeps it");
        item.with_priority(Priority::High).finish(outcome);
        let item = next(&queue).await;
        assert_eq!(item.priority(), Priority::High, "{outcome:?} overrides it");
        item.with_priority(Priority::Low).finish(outcome);
        queue.add("a");
        let item = next(&queue).await;
        assert_eq!(item.priority(), Priority::Normal, "{outcome:?}: a change raises it");
        queue.touch("a");
        item.with_priority(Priority::Low).forget();
        assert_eq!(next(&queue).await.priority(), Priority::Low, "what ended has no say");
    }
}

// C12
#[tokio::test(start_paused = true)]
async fn a_terminal_failure_leaves_no_priority_behind() {
    let queue = queue();
    queue.add_at("a", Priority::High);
    next(&queue).await.terminal();
    queue.add_at("a", Priority::Low);
    assert_eq!(next(&queue).await.priority(), Priority::Low);
}

// Q12
#[tokio::test(start_paused = true)]
async fn one_grant_in_eight_goes_to_the_key_that_has_waited_longest_in_its_line() {
    let queue = queue();
    for key in 0..20 {
        queue.add_at(key, Priority::Low);
    }
    for key in 100..200 {
        queue.add_at(key, Priority::High);
    }
    // Raised: it waits again, in its new line.
    queue.add_at(0, Priority::High);
    let order = order(&queue);
    let by_age: Vec<_> = order.iter().skip(7).step_by(8).take(12).copied().collect();
    assert_eq!(by_age, (1..13).collect::<Vec<_>>());
    let by_priority = order.iter().take(96).enumerate().filter(|(at, _)| at % 8 != 7);
    assert!(by_priority.map(|(_, key)| *key).eq(100..184));
}

// Q12 Q19
#[tokio::test(start_paused = true)]
async fn with_three_busy_bands_none_starves() {
    const KEYS: u8 = 10;
    let queue = configured(WorkQueueConfig {
        rate: Some(RateLimit::per_second(100).burst(1)),
        ..WorkQueueConfig::default()
    });
    let mut runs = [[0; KEYS as usize]; 3];
    for (band, priority) in BANDS.into_iter().enumerate() {
        (0..KEYS).for_each(|key| queue.add_at((band, key), priority));
    }
    let start = Instant::now();
    while start.elapsed() < secs(60) {
        let item = next(&queue).await;
        let (band, key) = *item.key();
        runs[band][key as usize] += 1;
        item.put_back();
    }
    let bands: Vec<u32> = runs.iter().map(|keys| keys.iter().sum()).collect();
    assert_eq!(bands.iter().sum::<u32>(), 6001);
    assert!(bands[0] >= 300 && bands[1] >= 300, "starved: {bands:?}");
    assert!(bands[2] >= 5000, "no priority: {bands:?}");
    for keys in runs {
        let (least, most) = (keys.iter().min().unwrap(), keys.iter().max().unwrap());
        assert!(most - least <= 1, "served in turn: {keys:?}");
    }
}
