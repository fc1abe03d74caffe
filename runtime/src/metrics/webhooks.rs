//! The metrics of webhooks, under the names of controller-runtime, and of storage migrations.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
};

use tokio::time::Instant;

use super::{Metrics, registered::added};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WebhookLabels {
    webhook: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabels {
    webhook: String,
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DecisionLabels {
    webhook: String,
    decision: &'static str,
}

/// What a webhook made of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decided {
    /// Allowed, or converted.
    Allowed,
    Refused,
    /// No handler decided, so the failure policy did.
    Failed,
}

/// The metrics of webhooks, by their paths.
#[derive(Clone, Debug)]
pub(crate) struct WebhookMetrics {
    requests: Family<CodeLabels, Counter>,
    in_flight: Family<WebhookLabels, Gauge>,
    latency: Family<WebhookLabels, Histogram, fn() -> Histogram>,
    decisions: Family<DecisionLabels, Counter>,
}

impl WebhookMetrics {
    /// Adds them to the metrics of a program that has webhooks.
    pub(crate) fn of(metrics: &Metrics) -> Self {
        // Powers of ten from ten nanoseconds to a thousand seconds, as in controller-runtime.
        let latency: fn() -> Histogram = || Histogram::new((0..12).map(|power| 1e-8 * 10f64.powi(power)));
        let latency = Family::new_with_constructor(latency);
        let mut made = None;
        metrics.register(|registry| {
            let name = "controller_runtime_webhook_requests";
            let requests = added(registry, name, "Reviews by webhook and HTTP status");
            let name = "controller_runtime_webhook_requests_in_flight";
            let in_flight = added(registry, name, "Reviews that are answered now");
            let name = "controller_runtime_webhook_latency_seconds";
            registry.register(name, "How long answers took", latency.clone());
            let name = "watchkeeper_webhook_decisions";
            let decisions = added(registry, name, "Reviews that were allowed, refused, or failed");
            made = Some(Self { requests, in_flight, latency: latency.clone(), decisions });
        });
        made.expect("it is registered at once")
    }

    /// Counts a call as in flight until what is returned is dropped.
    pub(crate) fn begin(&self, webhook: &str) -> WebhookCall {
        let of = WebhookLabels { webhook: webhook.to_owned() };
        self.in_flight.get_or_create(&of).inc();
        WebhookCall { metrics: self.clone(), of, began: Instant::now() }
    }

    pub(crate) fn decided(&self, webhook: &str, decided: Decided) {
        let decision = match decided {
            Decided::Allowed => "allowed",
            Decided::Refused => "refused",
            Decided::Failed => "failed",
        };
        self.decisions.get_or_create(&DecisionLabels { webhook: webhook.to_owned(), decision }).inc();
    }
}

/// A call in flight. An API server that hangs up drops it without an answer.
pub(crate) struct WebhookCall {
    metrics: WebhookMetrics,
    of: WebhookLabels,
    began: Instant,
}

impl WebhookCall {
    pub(crate) fn answered(&self, code: u16) {
        let Self { metrics, of, began } = self;
        metrics.latency.get_or_create(of).observe(began.elapsed().as_secs_f64());
        metrics.requests.get_or_create(&CodeLabels { webhook: of.webhook.clone(), code }).inc();
    }
}

impl Drop for WebhookCall {
    fn drop(&mut self) {
        self.metrics.in_flight.get_or_create(&self.of).dec();
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DefinitionLabels {
    crd: String,
}

/// The metrics of storage migrations.
#[derive(Clone, Debug)]
pub(crate) struct MigrationMetrics {
    pending: Family<DefinitionLabels, Gauge>,
    rewritten: Family<DefinitionLabels, Counter>,
    failures: Family<DefinitionLabels, Counter>,
}

/// The metrics of one kind's migrations.
#[derive(Clone, Debug)]
pub(crate) struct MigrationMeter {
    /// 1 while objects may be stored in older versions.
    pub(crate) pending: Gauge,
    pub(crate) rewritten: Counter,
    pub(crate) failures: Counter,
}

impl MigrationMetrics {
    /// Adds them to the metrics of a program that migrates objects.
    pub(crate) fn of(metrics: &Metrics) -> Self {
        let mut made = None;
        metrics.register(|r| {
            let help = "Whether objects may be stored in older versions (1) or not (0)";
            let pending = added(r, "watchkeeper_storage_migration_pending", help);
            let help = "Objects that this replica wrote in the storage version";
            let rewritten = added(r, "watchkeeper_storage_migration_objects", help);
            let help = "Storage migrations that failed, and are tried again";
            let failures = added(r, "watchkeeper_storage_migration_failures", help);
            made = Some(Self { pending, rewritten, failures });
        });
        made.expect("it is registered at once")
    }

    /// Returns the metrics of one kind. From then on they are in each scrape.
    pub(crate) fn kind(&self, crd: &str) -> MigrationMeter {
        let of = DefinitionLabels { crd: crd.to_owned() };
        MigrationMeter {
            pending: self.pending.get_or_create_owned(&of),
            rewritten: self.rewritten.get_or_create_owned(&of),
            failures: self.failures.get_or_create_owned(&of),
        }
    }
}
