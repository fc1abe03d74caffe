//! The metrics of controllers, under the names of controller-runtime.

use std::{sync::Arc, time::Duration};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use super::registered::{added, family, labelled_metrics};

/// The buckets of controller-runtime, in seconds.
const BUCKETS: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25,
    1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0,
    50.0, 60.0,
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ControllerLabels {
    controller: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    controller: Arc<str>,
    result: &'static str,
}

labelled_metrics! {
    /// What differs by the controller alone.
    ControllerFamilies by ControllerLabels;
    /// What is counted of one controller.
    ControllerCounts {
        errors: Counter = "controller_runtime_reconcile_errors", "Reconciles that failed";
        terminal_errors: Counter = "controller_runtime_terminal_reconcile_errors", "Reconciles that failed for good";
        panics: Counter = "controller_runtime_reconcile_panics", "Reconciles that panicked";
        timeouts: Counter = "controller_runtime_reconcile_timeouts", "Reconciles ended by the controller's deadline";
        paced: Counter = "watchkeeper_paced_reconciles", "Runs that waited because their key writes too often";
        storms: Counter = "watchkeeper_storms", "Keys that began to write, or to change, in run after run";
        deletions_dropped: Counter = "watchkeeper_deletions_dropped",
            "Deletions that the reconciler never got, or failed on for good";
        overdue: Counter = "watchkeeper_own_writes_overdue",
            "Keys that ran on before their caches showed what they wrote";
        contradicted: Counter = "watchkeeper_caches_contradicted",
            "Caches that were listed again because an answer contradicted them";
        events_dropped: Counter = "watchkeeper_events_dropped",
            "Events that were not sent: the server refused them, or there were too many";
        max_concurrent: Gauge = "controller_runtime_max_concurrent_reconciles", "Most reconciles at once";
        active_workers: Gauge = "controller_runtime_active_workers", "Workers that reconcile now";
        time: Histogram = "controller_runtime_reconcile_time_seconds", "How long reconciles took",
            || Histogram::new(BUCKETS);
    }
}

/// The metrics of controllers.
#[derive(Clone, Debug)]
pub(crate) struct ReconcileMetrics {
    total: Family<ResultLabels, Counter>,
    by_controller: ControllerFamilies,
}

/// The metrics of one controller.
#[derive(Clone, Debug)]
pub(crate) struct ControllerMetrics {
    success: Counter,
    requeue: Counter,
    requeue_after: Counter,
    error: Counter,
    pub(crate) counts: ControllerCounts,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Success,
    Requeue,
    RequeueAfter,
    Error,
    TerminalError,
}

/// How runs end, as a label says it.
const RESULTS: [&str; 4] = ["success", "requeue", "requeue_after", "error"];

impl ReconcileMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let help = "Reconciles by controller and result";
        let total = added(registry, "controller_runtime_reconcile", help);
        Self { total, by_controller: ControllerFamilies::register(registry) }
    }

    /// Returns the metrics of one controller. From then on all of them are in each scrape.
    pub(crate) fn of(&self, controller: &Arc<str>) -> ControllerMetrics {
        let by_result =
            |result| self.total.get_or_create_owned(&ResultLabels { controller: controller.clone(), result });
        let [success, requeue, requeue_after, error] = RESULTS.map(by_result);
        ControllerMetrics {
            success,
            requeue,
            requeue_after,
            error,
            counts: self.by_controller.labelled(&ControllerLabels { controller: controller.clone() }),
        }
    }

    /// Takes the metrics of a controller out of scrapes: it is one of many that come and go.
    pub(crate) fn forget(&self, controller: &Arc<str>) {
        for result in RESULTS {
            self.total.remove(&ResultLabels { controller: controller.clone(), result });
        }
        self.by_controller.forget(&ControllerLabels { controller: controller.clone() });
    }
}

impl ControllerMetrics {
    /// Counts a run that ended.
    pub(crate) fn ended(&self, how: Ended, took: Duration) {
        self.counts.time.observe(took.as_secs_f64());
        match how {
            Ended::Success => &self.success,
            Ended::Requeue => &self.requeue,
            Ended::RequeueAfter => &self.requeue_after,
            Ended::Error | Ended::TerminalError => &self.error,
        }
        .inc();
        if matches!(how, Ended::Error | Ended::TerminalError) {
            self.counts.errors.inc();
        }
        if how == Ended::TerminalError {
            self.counts.terminal_errors.inc();
        }
    }
}
