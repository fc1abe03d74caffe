//! What work queues report, under the names of client-go.
//!
//! Queues count for themselves, under the lock they hold anyway; the numbers are read when somebody scrapes.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};

use super::durations::Durations;

/// A queue, as a scrape sees it.
pub(crate) trait QueueSource: Send + Sync {
    /// Returns how it stands at this moment.
    fn report(&self) -> QueueReport;
}

/// How a queue stands.
#[derive(Clone, Debug)]
pub(crate) struct QueueReport {
    /// Keys that are ready, by the name of their priority.
    pub(crate) depth: [(&'static str, usize); 3],
    /// Keys that are not ready, by the name of what they wait for.
    pub(crate) waiting: [(&'static str, usize); 4],
    /// Keys with a worker.
    pub(crate) in_flight: usize,
    /// Keys lined up so far.
    pub(crate) adds: u64,
    /// Retries so far.
    pub(crate) retries: u64,
    /// How long keys that were handed out had been ready.
    pub(crate) waits: Durations,
    /// How long runs took that have ended.
    pub(crate) runs: Durations,
    /// How long runs that have not ended take, together.
    pub(crate) unfinished: Duration,
    /// How long the longest of them takes.
    pub(crate) longest: Duration,
}

/// The queues that report, by name; one that is gone reports no more.
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

    /// Reports a queue under a name from now on, in place of another of that name.
    pub(crate) fn report(&self, name: String, source: Weak<dyn QueueSource>) {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        sources.retain(|_, source| source.strong_count() > 0);
        sources.insert(name, source);
    }

    fn reports(&self) -> Vec<(String, QueueReport)> {
        let sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner).clone();
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
        let mut page = Page { encoder, reports: self.reports() };
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

/// A scrape that is being written.
struct Page<'a> {
    encoder: DescriptorEncoder<'a>,
    reports: Vec<(String, QueueReport)>,
}

impl Page<'_> {
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

/// Names a queue as controller-runtime does: it has its controller's name.
fn named(queue: &str) -> [(&str, &str); 2] {
    [("name", queue), ("controller", queue)]
}
