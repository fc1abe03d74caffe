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
    registry::Registry,
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
#[derive(Clone, Default)]
pub(crate) struct QueueMetrics {
    sources: Arc<Mutex<BTreeMap<String, Weak<dyn QueueSource>>>>,
}

impl QueueMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register_collector(Box::new(metrics.clone()));
        metrics
    }

    /// Reports a queue under a name from now on, in place of another queue with that name.
    pub(crate) fn report(&self, name: String, source: Weak<dyn QueueSource>) {
        let mut sources = self.sources.lock();
        sources.retain(|_, source| source.strong_count() > 0);
        sources.insert(name, source);
    }

    fn reports(&self) -> Vec<(String, QueueReport)> {
        let sources = self.sources.lock().clone();
        let report =
            |(name, source): (String, Weak<dyn QueueSource>)| Some((name, source.upgrade()?.report()));
        sources.into_iter().filter_map(report).collect()
    }
}

impl fmt::Debug for QueueMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QueueMetrics")
    }
}

impl Collector for QueueMetrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = QueuePage { encoder, reports: self.reports() };
        page.depth()?;
        page.series("adds", "Keys lined up for a worker", MetricType::Counter, |report, encoder| {
            ConstCounter::new(report.adds).encode(encoder)
        })?;
        page.series("retries", "Retries asked for", MetricType::Counter, |report, encoder| {
            ConstCounter::new(report.retries).encode(encoder)
        })?;
        let help = "How long keys are ready before they are handed out";
        page.series("queue_duration_seconds", help, MetricType::Histogram, |report, encoder| {
            report.waits.encode(encoder)
        })?;
        let help = "How long keys are in flight";
        page.series("work_duration_seconds", help, MetricType::Histogram, |report, encoder| {
            report.runs.encode(encoder)
        })?;
        let help = "How long all runs that have not ended take, together";
        page.series("unfinished_work_seconds", help, MetricType::Gauge, |report, encoder| {
            ConstGauge::new(report.unfinished.as_secs_f64()).encode(encoder)
        })?;
        let help = "How long the longest run that has not ended takes";
        page.series("longest_running_processor_seconds", help, MetricType::Gauge, |report, encoder| {
            ConstGauge::new(report.longest.as_secs_f64()).encode(encoder)
        })?;
        page.waiting()
    }
}

/// A scrape of the queues that is being written.
struct QueuePage<'a> {
    encoder: DescriptorEncoder<'a>,
    reports: Vec<(String, QueueReport)>,
}

impl QueuePage<'_> {
    /// Writes one metric of every queue.
    fn series(
        &mut self,
        name: &str,
        help: &str,
        metric_type: MetricType,
        write: impl Fn(&QueueReport, MetricEncoder<'_>) -> fmt::Result,
    ) -> fmt::Result {
        let name = format!("workqueue_{name}");
        let mut family = self.encoder.encode_descriptor(&name, help, None, metric_type)?;
        for (queue, report) in &self.reports {
            write(report, family.encode_family(&named(queue))?)?;
        }
        Ok(())
    }

    fn depth(&mut self) -> fmt::Result {
        let help = "Keys that are ready";
        let mut family = self.encoder.encode_descriptor("workqueue_depth", help, None, MetricType::Gauge)?;
        for (queue, report) in &self.reports {
            for (priority, depth) in report.depth {
                let [name, controller] = named(queue);
                let labels = [name, controller, ("priority", priority)];
                ConstGauge::new(depth as u64).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    fn waiting(&mut self) -> fmt::Result {
        let (name, help) = ("watchkeeper_workqueue_keys", "Keys that are not ready, by where they stand");
        let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (queue, report) in &self.reports {
            for (state, keys) in report.waiting.into_iter().chain([("in_flight", report.in_flight)]) {
                let [name, controller] = named(queue);
                let labels = [name, controller, ("state", state)];
                ConstGauge::new(keys as u64).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

/// Returns the labels of a queue. Like in controller-runtime, it has the name of its controller.
fn named(queue: &str) -> [(&str, &str); 2] {
    [("name", queue), ("controller", queue)]
}
