//! What probes are answered: each check by name, why it fails and since when.

use std::{fmt, sync::Arc};

use parking_lot::Mutex;
use serde::Serialize;
use tower::BoxError;

use super::process::ManagerProcess;
use crate::{
    chain::one_line,
    clock::{Moment, readable},
    controller::{ControllerCore, ControllerPhase},
    informer::{FailureCause, SyncPhase, SyncState},
    leader_election::{LeaderState, Leadership},
    plain::plain,
    shards::Slots,
    users_code::contained,
};

/// What those read who may not see why a check fails.
const WITHHELD: &str = "reason withheld (see the log, or ask from this machine)";

/// The checks of a probe, and how they went.
///
/// Shown as Kubernetes shows its own: a line a check, then whether all passed.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HealthReport {
    /// The probe: `healthz` or `readyz`.
    pub(super) probe: &'static str,
    /// Its checks.
    pub(super) checks: Vec<HealthCheck>,
}

/// One check of a probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HealthCheck {
    /// What is checked, such as `cache/deployments.apps`.
    pub(super) name: String,
    /// Why it fails, in one line; `None` where it passes.
    pub(super) failure: Option<String>,
    /// Since when it fails, where that is known.
    pub(super) since: Option<Moment>,
    /// What there is to say although it passes.
    pub(super) note: Option<String>,
}

impl HealthCheck {
    pub(super) fn passed(name: impl Into<String>) -> Self {
        Self { name: name.into(), failure: None, since: None, note: None }
    }

    pub(super) fn failed(name: impl Into<String>, since: Option<Moment>, why: impl Into<String>) -> Self {
        // Whatever is said stays in its line.
        let why = plain(&why.into()).to_string();
        Self { name: name.into(), failure: Some(why), since, note: None }
    }

    fn noting(self, note: impl Into<String>) -> Self {
        Self { note: Some(plain(&note.into()).to_string()), ..self }
    }

    /// Returns whether it passes.
    pub(super) fn is_ok(&self) -> bool {
        self.failure.is_none()
    }
}

impl HealthReport {
    /// Returns whether every check passes.
    pub fn is_ok(&self) -> bool {
        self.checks.iter().all(HealthCheck::is_ok)
    }

    /// Leaves out why checks fail, since when, and what else there is to say of them: what is left names checks only.
    pub fn without_reasons(mut self) -> Self {
        for check in &mut self.checks {
            (check.since, check.note) = (None, None);
            check.failure = check.failure.take().map(|_| WITHHELD.to_owned());
        }
        self
    }

    /// Leaves out the checks of some names.
    pub fn without<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        let names: Vec<_> = names.into_iter().collect();
        self.checks.retain(|check| !names.contains(&&*check.name));
        self
    }

    /// Keeps the one check of a name; `None` where there is none.
    pub fn only(mut self, name: &str) -> Option<Self> {
        self.checks.retain(|check| check.name == name);
        (!self.checks.is_empty()).then_some(self)
    }
}

impl fmt::Display for HealthReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.checks.iter().try_for_each(|check| writeln!(f, "{check}"))?;
        let verdict = if self.is_ok() { "passed" } else { "failed" };
        writeln!(f, "{} check {verdict}", self.probe)
    }
}

impl fmt::Display for HealthCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, failure, since, note } = self;
        let name = plain(name);
        match (failure, since) {
            (None, _) => write!(f, "[+]{name} ok")?,
            (Some(why), None) => write!(f, "[-]{name} failed: {why}")?,
            (Some(why), Some(since)) => {
                write!(f, "[-]{name} failed since {since} ({}): {why}", readable(since.elapsed()))?;
            }
        }
        note.as_ref().map_or(Ok(()), |note| write!(f, ": {note}"))
    }
}

/// The checks that a program added to one probe.
#[derive(Default)]
pub(super) struct ProgramChecks(Mutex<Vec<Arc<RunCheck>>>);

type RunCheck = dyn Fn() -> HealthCheck + Send + Sync;

impl ProgramChecks {
    /// Adds a check; one that panics fails.
    pub(super) fn add<E: Into<BoxError>>(
        &self,
        name: String,
        check: impl Fn() -> Result<(), E> + Send + Sync + 'static,
    ) {
        let run = move || match contained(|| check().map_err(|error| one_line(&*error.into()))) {
            Some(Ok(())) => HealthCheck::passed(&*name),
            Some(Err(error)) => HealthCheck::failed(&*name, None, error),
            None => HealthCheck::failed(&*name, None, "the check panicked"),
        };
        self.0.lock().push(Arc::new(run));
    }

    pub(super) fn run(&self) -> Vec<HealthCheck> {
        let added = self.0.lock().clone();
        added.iter().map(|run| run()).collect()
    }
}

/// The name of a controller that was started, and the controller until it has ended and nobody holds it.
pub(super) type ControllerStatus = (Arc<str>, Option<Arc<ControllerCore>>);

/// Checks what only a new process could mend.
pub(super) fn of_process(process: Option<&ManagerProcess>) -> Vec<HealthCheck> {
    let mut checks = vec![HealthCheck::passed("ping")];
    let Some(process) = process else { return checks };
    checks.extend(process.leadership.as_ref().map(leads_by_a_lease));
    checks.extend(process.clusters.sync_states().iter().filter(|state| is_lost(state)).map(lost));
    checks
}

fn leads_by_a_lease(leadership: &Leadership) -> HealthCheck {
    match leadership.check() {
        Ok(()) => HealthCheck::passed("leader-election"),
        Err(stale) => HealthCheck::failed("leader-election", None, stale.to_string()),
    }
}

/// Whether an informer is over by a defect: nothing brings it back.
fn is_lost(state: &SyncState) -> bool {
    let cause = state.failure.as_ref().map(|failure| failure.cause);
    state.phase == SyncPhase::Stopped && cause == Some(FailureCause::Panicked)
}

fn lost(state: &SyncState) -> HealthCheck {
    let (since, why) = state.failure.as_ref().map(|failure| (failure.since, &*failure.message)).unzip();
    let why = format!("its informer is over: {}", why.unwrap_or_default());
    HealthCheck::failed(format!("cache/{}", state.name()), since, why)
}

/// Checks whether controllers could work.
pub(super) fn readiness_of(
    process: Option<&ManagerProcess>,
    controllers: &[ControllerStatus],
) -> Vec<HealthCheck> {
    let Some(process) = process else {
        return vec![HealthCheck::failed("manager", None, "it has not started")];
    };
    if process.stop.is_cancelled() {
        return vec![HealthCheck::failed("manager", None, "it stops, or has stopped")];
    }
    let mut checks = vec![HealthCheck::passed("manager")];
    checks.extend(match (&process.slots, &process.leadership) {
        (Some(slots), Some(_)) => Some(shares(slots)),
        (_, leadership) => leadership.as_ref().map(stands),
    });
    checks.extend(controllers.iter().map(|status| could_work(status, process)));
    let states = process.clusters.sync_states();
    checks.extend(states.iter().filter_map(|state| synced(state, process)));
    checks
}

/// Returns whether the server may need this program's webhook to list what a cache holds.
///
/// Such a cache holds up nobody: the server would wait for the program to be ready, and the program for the server.
fn needs_own_conversion(state: &SyncState, process: &ManagerProcess) -> bool {
    state.cluster.is_none() && process.converted.contains(&state.kind.to_string())
}

fn stands(leadership: &Leadership) -> HealthCheck {
    let check = HealthCheck::passed("leader-election");
    let since = Moment::from(leadership.since());
    check.noting(match leadership.state() {
        LeaderState::Leads => format!("leads since {since}"),
        LeaderState::StandsBy { holder: Some(holder) } => format!("stands by: {holder} leads"),
        LeaderState::StandsBy { holder: None } => "stands by: nobody is known to lead".to_owned(),
        LeaderState::Ends => format!("its term is over since {since}: the last runs end"),
        LeaderState::Idle => "does not campaign yet".to_owned(),
    })
}

fn shares(slots: &Slots) -> HealthCheck {
    HealthCheck::passed("shards").noting(slots.summary())
}

fn could_work((name, controller): &ControllerStatus, process: &ManagerProcess) -> HealthCheck {
    let name = format!("controller/{name}");
    let stopped = |name| HealthCheck::failed(name, None, "it has stopped");
    let Some(controller) = controller else { return stopped(name) };
    match controller.phase() {
        ControllerPhase::Stopped => stopped(name),
        ControllerPhase::WaitsForCaches => {
            let lagging = controller.lagging();
            let since = lagging.iter().filter_map(|cache| Some(cache.failure.as_ref()?.since)).min();
            let since = since.unwrap_or(process.started);
            let mut kinds: Vec<_> = lagging.iter().map(SyncState::name).collect();
            kinds.dedup();
            let why = format!("waits for the caches of {}", kinds.join(", "));
            match lagging.iter().all(|cache| needs_own_conversion(cache, process)) {
                true => HealthCheck::passed(name).noting(format!("{why}, which the program converts")),
                false => HealthCheck::failed(name, Some(since), why),
            }
        }
        ControllerPhase::StandsBy | ControllerPhase::Works => HealthCheck::passed(name),
    }
}

/// Checks a cache; one that was never started, or that its users stopped, is nobody's.
fn synced(state: &SyncState, process: &ManagerProcess) -> Option<HealthCheck> {
    let name = format!("cache/{}", state.name());
    let failure = state.failure.as_ref();
    match state.phase {
        SyncPhase::Stopped if is_lost(state) => Some(lost(state)),
        SyncPhase::NotStarted | SyncPhase::Stopped => None,
        SyncPhase::Synced => Some(match failure {
            None => HealthCheck::passed(name),
            Some(failure) => HealthCheck::passed(name).noting(failure.to_string()),
        }),
        SyncPhase::Syncing => {
            let since = failure.map_or(process.started, |failure| failure.since);
            let why = failure.map_or_else(|| "its first list is not through".to_owned(), ToString::to_string);
            Some(match needs_own_conversion(state, process) {
                true => HealthCheck::passed(name).noting(format!("{why}; the program converts it")),
                false => HealthCheck::failed(name, Some(since), format!("{why}; {}", state.remedy())),
            })
        }
    }
}
