//! The metrics of controllers, under the names of controller-runtime.

use std::{sync::Arc, time::Duration};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use super::registered::added;

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

/// The metrics of controllers.
#[derive(Clone, Debug)]
pub(crate) struct ReconcileMetrics {
    total: Family<ResultLabels, Counter>,
    errors: Family<ControllerLabels, Counter>,
    terminal_errors: Family<ControllerLabels, Counter>,
    panics: Family<ControllerLabels, Counter>,
    timeouts: Family<ControllerLabels, Counter>,
    paced: Family<ControllerLabels, Counter>,
    storms: Family<ControllerLabels, Counter>,
    deletions_dropped: Family<ControllerLabels, Counter>,
    overdue: Family<ControllerLabels, Counter>,
    contradicted: Family<ControllerLabels, Counter>,
    events_dropped: Family<ControllerLabels, Counter>,
    time: Family<ControllerLabels, Histogram, fn() -> Histogram>,
    max_concurrent: Family<ControllerLabels, Gauge>,
    active_workers: Family<ControllerLabels, Gauge>,
}

/// The metrics of one controller.
#[derive(Clone, Debug)]
pub(crate) struct ControllerMetrics {
    success: Counter,
    requeue: Counter,
    requeue_after: Counter,
    error: Counter,
    errors: Counter,
    terminal_errors: Counter,
    pub(crate) panics: Counter,
    pub(crate) timeouts: Counter,
    pub(crate) paced: Counter,
    pub(crate) storms: Counter,
    pub(crate) deletions_dropped: Counter,
    pub(crate) overdue: Counter,
    pub(crate) contradicted: Counter,
    pub(crate) events_dropped: Counter,
    time: Histogram,
    pub(crate) max_concurrent: Gauge,
    pub(crate) active_workers: Gauge,
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

impl ReconcileMetrics {
    pub(super) fn register(r: &mut Registry) -> Self {
        let time: fn() -> Histogram = || Histogram::new(BUCKETS);
        let metrics = Self {
            total: added(r, "controller_runtime_reconcile", "Reconciles by controller and result"),
            errors: added(r, "controller_runtime_reconcile_errors", "Reconciles that failed"),
            terminal_errors: added(
                r,
                "controller_runtime_terminal_reconcile_errors",
                "Reconciles that failed for good",
            ),
            panics: added(r, "controller_runtime_reconcile_panics", "Reconciles that panicked"),
            timeouts: added(
                r,
                "controller_runtime_reconcile_timeouts",
                "Reconciles ended by the controller's deadline",
            ),
            paced: added(
                r,
                "watchkeeper_paced_reconciles",
                "Runs that waited because their key writes too often",
            ),
            storms: added(
                r,
                "watchkeeper_storms",
                "Keys that began to write, or to change, in run after run",
            ),
            deletions_dropped: added(
                r,
                "watchkeeper_deletions_dropped",
                "Deletions that the reconciler never got, or failed on for good",
            ),
            overdue: added(
                r,
                "watchkeeper_own_writes_overdue",
                "Keys that ran on before their caches showed what they wrote",
            ),
            contradicted: added(
                r,
                "watchkeeper_caches_contradicted",
                "Caches that were listed again because an answer contradicted them",
            ),
            events_dropped: added(
                r,
                "watchkeeper_events_dropped",
                "Events that were not sent: the server refused them, or there were too many",
            ),
            time: Family::new_with_constructor(time),
            max_concurrent: added(
                r,
                "controller_runtime_max_concurrent_reconciles",
                "Most reconciles at once",
            ),
            active_workers: added(r, "controller_runtime_active_workers", "Workers that reconcile now"),
        };
        let name = "controller_runtime_reconcile_time_seconds";
        r.register(name, "How long reconciles took", metrics.time.clone());
        metrics
    }

    /// Returns the metrics of one controller. From then on all of them are in each scrape.
    pub(crate) fn of(&self, controller: &Arc<str>) -> ControllerMetrics {
        let of = ControllerLabels { controller: controller.clone() };
        let by_result =
            |result| self.total.get_or_create_owned(&ResultLabels { controller: controller.clone(), result });
        ControllerMetrics {
            success: by_result("success"),
            requeue: by_result("requeue"),
            requeue_after: by_result("requeue_after"),
            error: by_result("error"),
            errors: self.errors.get_or_create_owned(&of),
            terminal_errors: self.terminal_errors.get_or_create_owned(&of),
            panics: self.panics.get_or_create_owned(&of),
            timeouts: self.timeouts.get_or_create_owned(&of),
            paced: self.paced.get_or_create_owned(&of),
            storms: self.storms.get_or_create_owned(&of),
            deletions_dropped: self.deletions_dropped.get_or_create_owned(&of),
            overdue: self.overdue.get_or_create_owned(&of),
            contradicted: self.contradicted.get_or_create_owned(&of),
            events_dropped: self.events_dropped.get_or_create_owned(&of),
            time: self.time.get_or_create_owned(&of),
            max_concurrent: self.max_concurrent.get_or_create_owned(&of),
            active_workers: self.active_workers.get_or_create_owned(&of),
        }
    }
}

impl ControllerMetrics {
    /// Counts a run that ended.
    pub(crate) fn ended(&self, how: Ended, took: Duration) {
        self.time.observe(took.as_secs_f64());
        match how {
            Ended::Success => &self.success,
            Ended::Requeue => &self.requeue,
            Ended::RequeueAfter => &self.requeue_after,
            Ended::Error | Ended::TerminalError => &self.error,
        }
        .inc();
        if matches!(how, Ended::Error | Ended::TerminalError) {
            self.errors.inc();
        }
        if how == Ended::TerminalError {
            self.terminal_errors.inc();
        }
    }
}
