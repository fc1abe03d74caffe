//! The last runs of a controller, for debug pages.

use std::{collections::VecDeque, fmt, time::Duration};

use parking_lot::Mutex;
use serde::{Serialize, Serializer};
use tokio::time::Instant;

use super::{Reason, context::RunInfo};
use crate::{
    clock::Moment,
    flight_recorder::Recording,
    metrics::Ended,
    object::{ObjectKey, cut_to},
};

/// How many runs are kept.
const KEPT: usize = 20;
/// Most of an error that is kept, in bytes.
const LONGEST_ERROR: usize = 1_000;

/// The last runs that ended; bounded, so that it costs a controller the same whatever it does.
#[derive(Debug, Default)]
pub(crate) struct RecentRuns {
    runs: Mutex<VecDeque<RunReport>>,
    recorder: Option<Recording>,
}

/// A run that ended, as debug pages show it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunReport {
    /// The object.
    #[serde(serialize_with = "as_text")]
    pub(crate) key: ObjectKey,
    /// Which run of its controller it was; spans and logs have the same id.
    pub(crate) id: u64,
    /// When it began.
    pub(crate) began: Moment,
    /// How long it took, in seconds.
    pub(crate) seconds: f64,
    /// What asked for it.
    #[serde(serialize_with = "as_text")]
    pub(crate) reason: Reason,
    /// Which run in a row it was without a success before it; the first is 1.
    pub(crate) attempt: u32,
    /// How it ended, in a word, as the metric `controller_runtime_reconcile_total` says it.
    pub(crate) result: &'static str,
    /// How many writes of it the server took.
    pub(crate) writes: u32,
    /// The error and its causes, in one line.
    pub(crate) error: Option<String>,
}

/// A run that ended, as a recording has it. It is written at each run, so it holds no text that has to be formatted.
#[derive(Serialize)]
struct RecordedRun<'a> {
    key: &'a str,
    id: u64,
    seconds: f64,
    reason: &'a str,
    attempt: u32,
    result: &'static str,
    writes: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

impl RecentRuns {
    pub(crate) fn new(recorder: Option<Recording>) -> Self {
        Self { runs: Mutex::default(), recorder }
    }

    /// Keeps a run that ended.
    pub(crate) fn note(
        &self,
        controller: &str,
        run_info: &RunInfo,
        (began, took): (Instant, Duration),
        (ended, error): (Option<Ended>, Option<&str>),
        writes: u32,
    ) {
        let RunInfo { key, id, reason, attempt, .. } = run_info;
        let seconds = took.as_secs_f64();
        let error = error.map(|error| cut_to(error.to_owned(), LONGEST_ERROR));
        if let Some(recorder) = &self.recorder {
            let (result, reason, attempt) = (result(ended), &*reason.text(), *attempt);
            let key = &*[key.namespace().unwrap_or_default(), key.name()].join("/");
            let key = key.trim_start_matches('/');
            let (id, error) = (*id, error.as_deref());
            recorder
                .run(controller, &RecordedRun { key, id, seconds, reason, attempt, result, writes, error });
        }
        let run = RunReport {
            key: key.clone(),
            id: *id,
            began: began.into(),
            seconds,
            reason: reason.clone(),
            attempt: *attempt,
            result: result(ended),
            writes,
            error,
        };
        let mut runs = self.runs.lock();
        if runs.len() == KEPT {
            runs.pop_back();
        }
        runs.push_front(run);
    }

    /// Shows the runs, the last first.
    pub(crate) fn report(&self) -> Vec<RunReport> {
        self.runs.lock().iter().cloned().collect()
    }
}

fn as_text<S: Serializer>(shown: &impl fmt::Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(shown)
}

fn result(ended: Option<Ended>) -> &'static str {
    match ended {
        None => "not_reconciled",
        Some(Ended::Success) => "success",
        Some(Ended::Requeue) => "requeue",
        Some(Ended::RequeueAfter) => "requeue_after",
        Some(Ended::Error) => "error",
        Some(Ended::TerminalError) => "terminal_error",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::{
        controller::{Reason, reads::RunMoments},
        object::ObjectKey,
    };

    // P4
    #[tokio::test(start_paused = true)]
    async fn only_the_last_runs_are_kept_and_no_error_is_kept_whole_that_is_too_long() {
        let recent = RecentRuns::default();
        let long = "ü".repeat(LONGEST_ERROR);
        for id in 1..=KEPT as u64 + 7 {
            let key = ObjectKey::new("shop", format!("map-{id}"));
            let (attempt, reason) = (1, Reason::Changed);
            let (took_client, moments) = (AtomicBool::default(), RunMoments::default());
            let run_info = RunInfo { key, attempt, reason, id, trace_id: None, took_client, moments };
            let took = Duration::from_millis(id);
            recent.note("maps", &run_info, (Instant::now(), took), (Some(Ended::Error), Some(&long)), 2);
        }
        let runs = recent.report();
        assert_eq!((runs.len(), runs[0].id, runs[KEPT - 1].id), (KEPT, KEPT as u64 + 7, 8));
        assert_eq!((&*runs[0].key.to_string(), runs[0].result, runs[0].writes), ("shop/map-27", "error", 2));
        assert!(runs[0].error.as_ref().unwrap().len() <= LONGEST_ERROR);
    }
}
