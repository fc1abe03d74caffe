//! The backlogs of handlers. They are read at each scrape, since the age of a backlog grows by itself.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, gauge::ConstGauge},
    registry::Registry,
};

/// An informer, as a scrape sees it.
pub(crate) trait BacklogSource: Send + Sync {
    /// Returns the state of its handlers.
    fn report(&self) -> BacklogReport;
}

/// The state of the handlers of an informer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BacklogReport {
    /// How many handlers there are.
    pub(crate) handlers: usize,
    /// How many notifications wait for them.
    pub(crate) depth: usize,
    /// How long the oldest notification has waited.
    pub(crate) oldest: Duration,
}

/// An informer, and its kind.
type NamedSource = (String, Weak<dyn BacklogSource>);

/// The informers that report, by kind. An informer that was dropped reports no longer.
#[derive(Clone, Default)]
pub(super) struct BacklogMetrics {
    sources: Arc<Mutex<Vec<NamedSource>>>,
}

impl BacklogMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.clone()));
    }

    /// Reports an informer of a kind from now on. Others of that kind are added up.
    pub(super) fn add(&self, kind: String, source: Weak<dyn BacklogSource>) {
        let mut sources = self.sources.lock();
        sources.retain(|(_, source)| source.strong_count() > 0);
        sources.push((kind, source));
    }

    fn reports(&self) -> BTreeMap<String, BacklogReport> {
        let sources = self.sources.lock().clone();
        let mut reports = BTreeMap::<String, BacklogReport>::new();
        for (kind, source) in sources {
            let Some(source) = source.upgrade() else { continue };
            let (all, one) = (reports.entry(kind).or_default(), source.report());
            all.handlers += one.handlers;
            all.depth += one.depth;
            all.oldest = all.oldest.max(one.oldest);
        }
        reports
    }
}

impl fmt::Debug for BacklogMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BacklogMetrics")
    }
}

impl Collector for BacklogMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let reports = self.reports();
        for (name, help, value) in [
            ("handlers", "Handlers of informers", handlers as fn(&BacklogReport) -> f64),
            ("handler_backlog", "Notifications that wait for handlers", depth),
            ("handler_backlog_age_seconds", "How long the oldest of them has waited", age),
        ] {
            let name = format!("watchkeeper_informer_{name}");
            let mut family = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
            for (kind, report) in &reports {
                let labels = [("name", kind.as_str())];
                ConstGauge::new(value(report)).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

fn handlers(report: &BacklogReport) -> f64 {
    report.handlers as f64
}

fn depth(report: &BacklogReport) -> f64 {
    report.depth as f64
}

fn age(report: &BacklogReport) -> f64 {
    report.oldest.as_secs_f64()
}
