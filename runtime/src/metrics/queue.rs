//! What work queues report, under the names of client-go.
//!
//! Each queue counts under its own lock. The numbers are read at each scrape.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};

use super::durations::Durations;

/// A queue, as a scrape sees it.
pub(crate) trait QueueSource: Send + Sync {
    /// Returns its state.
    fn report(&self) -> QueueReport;
}

/// The state of a queue.
#[derive(Clone, Debug)]
pub(crate) struct QueueReport {
    /// Keys that are ready, by the name of their priority.
    pub(crate) depth: [(&'static str, usize); 3],
    /// Keys that are not ready, by the name of their state.
    pub(crate) waiting: [(&'static str, usize); 4],
    /// Keys with a worker.
    pub(crate) in_flight: usize,
    /// Keys that became ready so far.
    pub(crate) adds: u64,
    /// Retries so far.
    pub(crate) retries: u64,
    /// How long keys were ready before they were handed out.
    pub(crate) waits: Durations,
    /// How long the runs took that have ended.
    pub(crate) runs: Durations,
    /// How long the runs have taken that have not ended, added up.
    pub(crate) unfinished: Duration,
    /// How long the longest of them has taken.
    pub(crate) longest: Duration,
}

/// The queues that report, by name. A queue that was dropped reports no longer.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueueMetrics {
    sources: Arc<Mutex<BTreeMap<String, Weak<dyn QueueSource>>>>,
}

impl QueueMetrics {
    /// Reports a queue under a name from now on, in place of another queue with that name.
    pub(crate) fn report(&self, name: String, source: Weak<dyn QueueSource>) {
        let mut sources = self.sources.lock();
        sources.retain(|_, source| source.strong_count() > 0);
        sources.insert(name, source);
    }
}

/// Writes one metric of a queue.
type WriteMetric = fn(&QueueReport, MetricEncoder<'_>) -> fmt::Result;

/// The metrics that each queue has one of.
const SINGLE: [(&str, &str, MetricType, WriteMetric); 6] = [
    ("adds", "Keys lined up for a worker", MetricType::Counter, |report, encoder| {
        ConstCounter::new(report.adds).encode(encoder)
    }),
    ("retries", "Retries asked for", MetricType::Counter, |report, encoder| {
        ConstCounter::new(report.retries).encode(encoder)
    }),
    (
        "queue_duration_seconds",
        "How long keys are ready before they are handed out",
        MetricType::Histogram,
        |report, encoder| report.waits.encode(encoder),
    ),
    ("work_duration_seconds", "How long keys are in flight", MetricType::Histogram, |report, encoder| {
        report.runs.encode(encoder)
    }),
    (
        "unfinished_work_seconds",
        "How long all runs that have not ended take, together",
        MetricType::Gauge,
        |report, encoder| ConstGauge::new(report.unfinished.as_secs_f64()).encode(encoder),
    ),
    (
        "longest_running_processor_seconds",
        "How long the longest run that has not ended takes",
        MetricType::Gauge,
        |report, encoder| ConstGauge::new(report.longest.as_secs_f64()).encode(encoder),
    ),
];

impl Collector for QueueMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let sources = self.sources.lock().clone();
        let live = sources.into_iter().filter_map(|(name, source)| Some((name, source.upgrade()?)));
        let reports: Vec<_> = live.map(|(name, source)| (name, source.report())).collect();
        let (name, help) = ("workqueue_depth", "Keys that are ready");
        counts(&mut encoder, &reports, (name, help, "priority"), |report| report.depth.to_vec())?;
        for (name, help, metric_type, write) in SINGLE {
            let name = format!("workqueue_{name}");
            let mut family = encoder.encode_descriptor(&name, help, None, metric_type)?;
            for (queue, report) in &reports {
                // Like in controller-runtime, a queue has the name of its controller.
                let labels = [("name", queue.as_str()), ("controller", queue)];
                write(report, family.encode_family(&labels)?)?;
            }
        }
        let (name, help) = ("watchkeeper_workqueue_keys", "Keys that are not ready, by where they stand");
        counts(&mut encoder, &reports, (name, help, "state"), |report| {
            [&report.waiting[..], &[("in_flight", report.in_flight)]].concat()
        })
    }
}

/// Writes a gauge with a label of its own.
fn counts(
    encoder: &mut DescriptorEncoder<'_>,
    reports: &[(String, QueueReport)],
    (name, help, label): (&str, &str, &str),
    read: fn(&QueueReport) -> Vec<(&'static str, usize)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (queue, report) in reports {
        for (value, keys) in read(report) {
            let labels = [("name", queue.as_str()), ("controller", queue), (label, value)];
            ConstGauge::new(keys as u64).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}
