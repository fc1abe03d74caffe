//! What the queue reports.

use super::*;
use crate::metrics::Metrics;

/// The value of a series, named as it is written.
fn value(metrics: &Metrics, series: &str) -> Option<f64> {
    let page = metrics.encode();
    let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map(|value| value.parse().unwrap())
}

/// Depth by priority (high, normal, low), adds, retries, waits, ended runs.
fn counts(metrics: &Metrics) -> [u64; 7] {
    let value = |series: &str| value(metrics, &format!("workqueue_{series}")).unwrap() as u64;
    [
        value(r#"depth{name="q",controller="q",priority="high"}"#),
        value(r#"depth{name="q",controller="q",priority="normal"}"#),
        value(r#"depth{name="q",controller="q",priority="low"}"#),
        value(r#"adds_total{name="q",controller="q"}"#),
        value(r#"retries_total{name="q",controller="q"}"#),
        value(r#"queue_duration_seconds_count{name="q",controller="q"}"#),
        value(r#"work_duration_seconds_count{name="q",controller="q"}"#),
    ]
}

fn seconds(metrics: &Metrics, series: &str) -> f64 {
    value(metrics, &format!(r#"workqueue_{series}{{name="q",controller="q"}}"#)).unwrap()
}

// Q13
#[tokio::test(start_paused = true)]
async fn every_series_is_exact_over_a_lifecycle() {
    let (metrics, queue) = (Metrics::new(), queue());
    queue.report_to(&metrics, "q");
    assert_eq!(counts(&metrics), [0; 7]);
    queue.add("a");
    queue.add("a");
    queue.touch("a");
    queue.touch("b");
    queue.add_at("c", Priority::High);
    assert_eq!(counts(&metrics), [1, 1, 1, 3, 0, 0, 0], "what is queued is not queued twice");
    queue.add("b");
    assert_eq!(counts(&metrics), [1, 2, 0, 3, 0, 0, 0], "raised");
    tokio::time::advance(secs(2)).await;
    let c = next(&queue).await;
    assert_eq!(counts(&metrics), [0, 2, 0, 3, 0, 1, 0]);
    assert_eq!(seconds(&metrics, "queue_duration_seconds_sum"), 2.0);
    let a = next(&queue).await;
    tokio::time::advance(secs(3)).await;
    let b = next(&queue).await;
    tokio::time::advance(secs(1)).await;
    assert_eq!(seconds(&metrics, "unfinished_work_seconds"), 4.0 + 4.0 + 1.0);
    assert_eq!(seconds(&metrics, "longest_running_processor_seconds"), 4.0);
    c.forget();
    queue.add("a");
    assert_eq!(counts(&metrics), [0, 0, 0, 3, 0, 3, 1], "runs again, and is queued when that is over");
    a.forget();
    b.retry();
    assert_eq!(counts(&metrics), [0, 1, 0, 4, 1, 3, 3], "a retry is queued when its back-off is over");
    assert_eq!(seconds(&metrics, "unfinished_work_seconds"), 0.0);
    assert_eq!(seconds(&metrics, "work_duration_seconds_sum"), 4.0 + 4.0 + 1.0);
    tokio::time::advance(millis(5)).await;
    assert_eq!(counts(&metrics), [0, 2, 0, 5, 1, 3, 3]);
    queue.hold(&"a", secs(1));
    assert_eq!(counts(&metrics), [0, 1, 0, 5, 1, 3, 3]);
    queue.release(&"a");
    assert_eq!(counts(&metrics), [0, 2, 0, 6, 1, 3, 3], "a key that was held waits again");
    queue.discard();
    assert_eq!(counts(&metrics), [0, 0, 0, 6, 1, 3, 3]);
}

// Q13
#[tokio::test(start_paused = true)]
async fn durations_fall_into_the_buckets_of_controller_runtime() {
    let (metrics, queue) = (Metrics::new(), queue());
    queue.report_to(&metrics, "q");
    for took in [0, 10, 11, 1_000_000_000, 2_000_000_000_000] {
        queue.add("a");
        tokio::time::advance(Duration::from_nanos(took)).await;
        next(&queue).await.forget();
    }
    let page = metrics.encode();
    let buckets: Vec<_> = page
        .lines()
        .filter_map(|line| line.strip_prefix("workqueue_queue_duration_seconds_bucket{"))
        .collect();
    let named = |at: usize| buckets[at].replace(r#",name="q""#, "").replace(r#"name="q","#, "");
    assert_eq!(buckets.len(), 13, "{page}");
    assert!(named(12).contains("+Inf") && named(12).ends_with(" 5"), "{page}");
    let counts: Vec<u64> =
        buckets.iter().map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
    assert_eq!(counts.last(), Some(&5));
    assert!(counts.is_sorted(), "buckets include what is below them");
}

// Q13
#[tokio::test(start_paused = true)]
async fn a_name_belongs_to_the_queue_that_took_it_last_and_goes_with_it() {
    let metrics = Metrics::new();
    let (former, later) = (queue::<u8>(), queue::<u8>());
    former.report_to(&metrics, "q");
    later.report_to(&metrics, "q");
    former.add(1);
    later.add(1);
    later.add(2);
    let adds = || metrics.encode().lines().filter(|line| line.starts_with("workqueue_adds_total{")).count();
    assert_eq!((counts(&metrics)[3], adds()), (2, 1));
    drop(later);
    assert_eq!(adds(), 0);
    drop(former);
}
