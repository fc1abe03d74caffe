//! The backlogs of handlers: read at each scrape, since a backlog ages by itself.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, gauge::ConstGauge},
    registry::Registry,
};

/// An informer, as a scrape sees it.
pub(crate) trait BacklogSource: Send + Sync {
    /// Returns how its handlers stand at this moment.
    fn report(&self) -> BacklogReport;
}

/// How the handlers of an informer stand.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BacklogReport {
    /// How many there are.
    pub(crate) handlers: usize,
    /// How many notifications wait for them.
    pub(crate) depth: usize,
    /// How long the oldest has waited.
    pub(crate) oldest: Duration,
}

/// An informer, and its kind.
type Source = (String, Weak<dyn BacklogSource>);

/// The informers that report, by kind; one that is gone reports no more.
#[derive(Clone, Default)]
pub(super) struct BacklogMetrics {
    sources: Arc<Mutex<Vec<Source>>>,
}

impl BacklogMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.clone()));
    }

    /// Reports an informer of a kind from now on, beside others of that kind.
    pub(super) fn add(&self, kind: String, source: Weak<dyn BacklogSource>) {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        sources.retain(|(_, source)| source.strong_count() > 0);
        sources.push((kind, source));
    }

    fn reports(&self) -> BTreeMap<String, BacklogReport> {
        let sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner).clone();
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
