//! The last runs of a controller, for debug pages.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde::Serialize;
use tokio::time::Instant;

use super::{Reason, context::RunInfo};
use crate::{clock::Moment, metrics::Ended, object::ObjectKey};

/// How many runs are kept.
const KEPT: usize = 20;
/// Most of an error that is kept, in bytes.
const LONGEST_ERROR: usize = 1_000;

/// The last runs that ended; bounded, so that it costs a controller the same whatever it does.
#[derive(Debug, Default)]
pub(crate) struct RecentRuns {
    ring: Mutex<Ring>,
}

/// As many runs as are kept, and where the next one goes: where the oldest is.
#[derive(Clone, Debug, Default)]
struct Ring {
    runs: Vec<Run>,
    next: usize,
}

/// A run that ended: by value and few, since a run pays for the memory that it finds cold.
#[derive(Clone, Debug)]
struct Run {
    /// As text, in the place of an older one: to let go of a shared key means to fetch it.
    key: String,
    id: u64,
    reason: Reason,
    attempt: u32,
    began: Instant,
    took: Duration,
    ended: Option<Ended>,
    error: Option<Box<str>>,
    writes: u32,
}

/// A run that ended, as debug pages show it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunReport {
    /// The object.
    pub(crate) key: String,
    /// Which run of its controller it was; spans and logs have the same id.
    pub(crate) id: u64,
    /// When it began.
    pub(crate) began: Moment,
    /// How long it took, in seconds.
    pub(crate) seconds: f64,
    /// What asked for it.
    pub(crate) reason: String,
    /// Which run in a row it was without a success before it; the first is 1.
    pub(crate) attempt: u32,
    /// How it ended, in a word, as the metric `controller_runtime_reconcile_total` says it.
    pub(crate) result: &'static str,
    /// How many writes of it the server took.
    pub(crate) writes: u32,
    /// The error and its causes, in one line.
    pub(crate) error: Option<String>,
}

impl RecentRuns {
    /// Takes note of a run that ended.
    pub(crate) fn note(
        &self,
        run_info: &RunInfo,
        (began, took): (Instant, Duration),
        (ended, error): (Option<Ended>, Option<&str>),
        writes: u32,
    ) {
        let error = error.map(|error| shortened(error).into());
        let RunInfo { key, id, reason, attempt, .. } = run_info;
        let (id, attempt, reason) = (*id, *attempt, reason.clone());
        let run = |key| Run { key, id, reason, attempt, began, took, ended, error, writes };
        self.ring().put(key, run);
    }

    /// Shows the runs, the last first.
    pub(crate) fn report(&self) -> Vec<RunReport> {
        let Ring { runs, next } = self.ring().clone();
        let (newer, older) = runs.split_at(next);
        let latest_first = newer.iter().rev().chain(older.iter().rev());
        latest_first.cloned().map(Run::report).collect()
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ring {
    /// Keeps a run, in place of the oldest.
    fn put(&mut self, key: &ObjectKey, run: impl FnOnce(String) -> Run) {
        let at = self.next;
        self.next = (at + 1) % KEPT;
        match self.runs.get_mut(at) {
            Some(oldest) => *oldest = run(written(key, std::mem::take(&mut oldest.key))),
            None => self.runs.push(run(written(key, String::new()))),
        }
    }
}

/// Writes a key into the memory of another's text.
fn written(key: &ObjectKey, mut text: String) -> String {
    text.clear();
    if let Some(namespace) = key.namespace() {
        text.push_str(namespace);
        text.push('/');
    }
    text.push_str(key.name());
    text
}

impl Run {
    fn report(self) -> RunReport {
        RunReport {
            key: self.key,
            id: self.id,
            began: self.began.into(),
            seconds: self.took.as_secs_f64(),
            reason: self.reason.to_string(),
            attempt: self.attempt,
            result: result(self.ended),
            writes: self.writes,
            error: self.error.map(String::from),
        }
    }
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

/// Cuts a text that is too long to be kept.
fn shortened(text: &str) -> &str {
    let mut end = text.len().min(LONGEST_ERROR);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::{controller::Reason, object::ObjectKey};

    // P4
    #[tokio::test(start_paused = true)]
    async fn only_the_last_runs_are_kept_and_no_error_is_kept_whole_that_is_too_long() {
        let recent = RecentRuns::default();
        let long = "ü".repeat(LONGEST_ERROR);
        for id in 1..=KEPT as u64 + 7 {
            let key = ObjectKey::new("shop", format!("map-{id}"));
            let (attempt, reason) = (1, Reason::Changed);
            let run_info =
                RunInfo { key, attempt, reason, id, trace_id: None, took_client: AtomicBool::default() };
            let took = Duration::from_millis(id);
            recent.note(&run_info, (Instant::now(), took), (Some(Ended::Error), Some(&long)), 2);
        }
        let runs = recent.report();
        assert_eq!((runs.len(), runs[0].id, runs[KEPT - 1].id), (KEPT, KEPT as u64 + 7, 8));
        assert_eq!((&*runs[0].key, runs[0].result, runs[0].writes), ("shop/map-27", "error", 2));
        assert_eq!(runs[0].error.as_ref().unwrap().len(), LONGEST_ERROR);
    }
}
