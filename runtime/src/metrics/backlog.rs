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

/// A kind, and an informer of it.
type BacklogEntry = (String, Weak<dyn BacklogSource>);

/// The informers that report, by kind. An informer that was dropped reports no longer.
#[derive(Clone, Debug, Default)]
pub(super) struct BacklogMetrics {
    sources: Arc<Mutex<Vec<BacklogEntry>>>,
}

impl BacklogMetrics {
    /// Reports an informer of a kind from now on. Others of that kind are added up.
    pub(super) fn add(&self, kind: String, source: Weak<dyn BacklogSource>) {
        let mut sources = self.sources.lock();
        sources.retain(|(_, source)| source.strong_count() > 0);
        sources.push((kind, source));
    }
}

impl Collector for BacklogMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let sources = self.sources.lock().clone();
        let mut reports = BTreeMap::<String, BacklogReport>::new();
        for (kind, source) in sources {
            let Some(source) = source.upgrade() else { continue };
            let (all, one) = (reports.entry(kind).or_default(), source.report());
            all.handlers += one.handlers;
            all.depth += one.depth;
            all.oldest = all.oldest.max(one.oldest);
        }
        type Read = fn(&BacklogReport) -> f64;
        for (name, help, read) in [
            ("handlers", "Handlers of informers", (|report| report.handlers as f64) as Read),
            ("handler_backlog", "Notifications that wait for handlers", |report| report.depth as f64),
            ("handler_backlog_age_seconds", "How long the oldest of them has waited", |report| {
                report.oldest.as_secs_f64()
            }),
        ] {
            let name = format!("watchkeeper_informer_{name}");
            let mut family = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
            for (kind, report) in &reports {
                ConstGauge::new(read(report)).encode(family.encode_family(&[("name", kind.as_str())])?)?;
            }
        }
        Ok(())
    }
}
