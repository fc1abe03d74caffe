//! A controller that is ready: it waits for its caches, works, and stops.

use std::{
    any::Any,
    fmt,
    panic::resume_unwind,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures::future::join_all;
use tokio::{
    task::{JoinError, JoinSet},
    time::{Instant, timeout},
};

use super::{
    ControllerError, Inspected, doubts,
    enqueue::Enqueuer,
    env::Election,
    sources::Connect,
    stream_source::StreamSource,
    term::{Stop, Term, TermFreshness, Terms},
    waits::Waits,
    workforce::Workforce,
};
use crate::informer::ObserverRegistration;

/// After how long a controller that waits logs for what, for the first time; later less often.
const REMINDER: Duration = Duration::from_secs(30);
/// How often it is logged at least.
const LONGEST_REMINDER: Duration = Duration::from_secs(3_600);
/// How often the budgets of keys that have become idle are forgotten.
const SWEEP: Duration = Duration::from_secs(30);

/// A controller that is ready to run.
pub(crate) struct PreparedController {
    core: Arc<dyn Workforce>,
    enqueuer: Enqueuer,
    connects: Vec<Connect>,
    sources: Vec<StreamSource>,
    sync_timeout: Option<Duration>,
    is_elected: bool,
    /// Those of the first term, if nothing is waited for before it.
    connections: Option<Connections>,
}

impl fmt::Debug for PreparedController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PreparedController({})", self.core.name())
    }
}

impl PreparedController {
    pub(super) fn new(
        core: Arc<dyn Workforce>,
        enqueuer: Enqueuer,
        connects: Vec<Connect>,
        sources: Vec<StreamSource>,
        sync_timeout: Option<Duration>,
        election: Election,
    ) -> Self {
        let is_elected = election == Election::Held;
        let mut new = Self { core, enqueuer, connects, sources, sync_timeout, is_elected, connections: None };
        // Before the informers start: what they list first comes in one go.
        new.connections = (!is_elected).then(|| new.connect());
        new
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        self.core.name()
    }

    /// Returns the caches that it waits for.
    pub(crate) fn waits(&self) -> &Arc<Waits> {
        self.core.waits()
    }

    /// Returns what debug pages ask.
    pub(crate) fn inspected(&self) -> Arc<dyn Inspected> {
        self.core.clone()
    }

    fn connect(&self) -> Connections {
        self.connects.iter().map(|connect| connect(&self.enqueuer)).collect()
    }

    /// Waits for the caches, then works in every term until stopped; ends when the last run has ended, or was dropped.
    ///
    /// # Errors
    /// Caches did not sync within the time that the controller was given for it.
    pub(crate) async fn run(mut self, stop: Stop, mut terms: Terms) -> Result<(), ControllerError> {
        let (core, own) = (self.core.clone(), stop.child());
        let kinds = core.waits().kinds().join(", ");
        tracing::info!(controller = %core.name(), "starting: waiting for the caches of {kinds}");
        let patience = report_lagging(core.name(), core.waits(), self.sync_timeout);
        let worked = async {
            while let Some(term) = terms.next(&own).await {
                let stop = term.stop.child();
                let ended = self.work(term.told_by(stop.clone()));
                tokio::pin!(ended);
                tokio::select! {
                    biased;
                    () = &mut ended => continue,
                    () = own.finish.cancelled() => stop.finish.cancel(),
                }
                ended.await;
            }
        };
        tokio::pin!(worked);
        tokio::select! {
            biased;
            () = &mut worked => Ok(()),
            late = patience => {
                own.finish.cancel();
                worked.await;
                Err(late)
            }
        }
    }

    /// Works for a term: the controller is connected, and its workers run.
    async fn work(&mut self, term: Term) {
        let connections = self.connections.take().unwrap_or_else(|| {
            self.core.begin_term();
            self.connect()
        });
        let (core, sources) = (self.core.clone(), (self.enqueuer.clone(), self.sources.clone()));
        // Its events are part of the term, which is held until they are sent.
        let held = term.clone();
        core.stands_by().store(false, Ordering::Relaxed);
        tokio::select! {
            biased;
            () = run_workers(core.clone(), connections, sources, term) => {}
            never = core.writer().follow_up() => match never {},
            never = core.recorder().run() => match never {},
            never = doubts::follow(core.name(), core.keys()) => match never {},
        }
        // An abort does not wait for that either.
        let _ = held.stop.abort.run_until_cancelled(core.recorder().flush()).await;
        core.stands_by().store(self.is_elected, Ordering::Relaxed);
    }
}

/// Logs now and then what a controller waits for; ends only where its time is over.
///
/// One line after [`REMINDER`], then each time after twice as long, and one when the wait is over. Failures are the
/// informers' own to log: where each that lags has logged one, the line is for those who debug.
async fn report_lagging(name: &Arc<str>, waits: &Waits, within: Option<Duration>) -> ControllerError {
    let (started, all, mut pause) = (Instant::now(), waits.all_synced(), REMINDER);
    tokio::pin!(all);
    loop {
        let left = within.map(|within| within.saturating_sub(started.elapsed()));
        let synced = timeout(left.map_or(pause, |left| left.min(pause)), &mut all).await.is_ok();
        let waited = rounded(started.elapsed());
        if synced {
            // Otherwise the line that says that it works says it.
            if pause > REMINDER && !waits.by_namespace.is_empty() {
                tracing::info!(controller = %name, ?waited, "all caches have synced");
            }
            return std::future::pending().await;
        }
        let lagging = waits.lagging().join("; ");
        if within.is_some_and(|within| started.elapsed() >= within) {
            tracing::error!(controller = %name, ?waited, lagging, "giving up: caches have not synced in time");
            let lagging =
                waits.all().filter(|informer| !informer.has_synced()).map(|informer| informer.state());
            return ControllerError::NotSynced { name: name.to_string(), lagging: lagging.collect(), waited };
        }
        match waits.all_lagging_have_failed() {
            true => tracing::debug!(controller = %name, ?waited, lagging, "still waiting for caches"),
            false => tracing::warn!(controller = %name, ?waited, lagging, "still waiting for caches"),
        }
        pause = (pause * 2).min(LONGEST_REMINDER);
    }
}

/// As people read it: whole seconds.
fn rounded(duration: Duration) -> Duration {
    Duration::from_secs(duration.as_secs())
}

/// What a controller keeps connected while it works.
type Connections = Vec<ObserverRegistration>;

/// Ends when the controller has seen all that the caches held when it was connected.
async fn connected(connections: &Connections) {
    join_all(connections.iter().map(ObserverRegistration::synced)).await;
}

/// Waits for caches, then runs workers until stopped; ends when the last run has ended, or was dropped.
///
/// # Panics
/// With the panic of a run that is to propagate.
async fn run_workers(
    core: Arc<dyn Workforce>,
    connections: Connections,
    sources: (Enqueuer, Vec<StreamSource>),
    term: Term,
) {
    let (Term { stop, freshness, .. }, workers) = (&term, core.workers());
    let (mut running, mut listening) = (JoinSet::new(), JoinSet::new());
    let panic = {
        let sweeping = sweep_periodically(&*core);
        tokio::pin!(sweeping);
        let begins = tokio::select! {
            biased;
            () = stop.finish.cancelled() => false,
            () = async {
                core.waits().common_ready(freshness).await;
                if matches!(freshness, TermFreshness::Current(_)) {
                    connected(&connections).await;
                }
            } => true,
            () = &mut sweeping => false,
        };
        if begins {
            tracing::info!(controller = %core.name(), workers, "caches have synced: reconciling");
            core.metrics().max_concurrent.set(i64::try_from(workers).unwrap_or(i64::MAX));
            core.open(None);
            (0..workers).for_each(|_| drop(running.spawn(core.clone().worker(stop.finish.clone()))));
            let (enqueuer, sources) = sources;
            for source in sources {
                listening.spawn(source.listen(core.name().clone(), enqueuer.clone()));
            }
        }
        tokio::select! {
            biased;
            () = stop.finish.cancelled() => None,
            panic = panicked(&mut running) => Some(panic),
            () = release_ready(&*core, freshness) => None,
            () = sweeping => None,
        }
    };
    // Nothing more is handed out, also where a panic ends all: callers learn that it has stopped.
    core.keys().table().discard();
    drop((connections, listening));
    if let Some(panic) = panic {
        resume_unwind(panic);
    }
    let ended = async {
        while let Some(ended) = running.join_next().await {
            if let Some(panic) = panic_in(ended) {
                resume_unwind(panic);
            }
        }
    };
    if stop.abort.run_until_cancelled(ended).await.is_none() {
        running.shutdown().await;
    }
}

/// Lets in the keys of each namespace once its caches have synced; never ends.
async fn release_ready(core: &dyn Workforce, freshness: &TermFreshness) {
    core.waits().by_namespace_ready(freshness, |namespace| core.open(Some(namespace))).await;
    std::future::pending().await
}

/// Removes idle entries while the controller runs; never ends.
async fn sweep_periodically(core: &dyn Workforce) {
    loop {
        tokio::time::sleep(SWEEP).await;
        core.sweep();
    }
}

/// Ends when a worker has ended of itself, which only a propagated panic makes it do.
async fn panicked(running: &mut JoinSet<()>) -> WorkerPanic {
    while let Some(ended) = running.join_next().await {
        if let Some(panic) = panic_in(ended) {
            return panic;
        }
    }
    std::future::pending().await
}

type WorkerPanic = Box<dyn Any + Send>;

fn panic_in(ended: Result<(), JoinError>) -> Option<WorkerPanic> {
    ended.err().filter(JoinError::is_panic).map(JoinError::into_panic)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::{
        clock::Moment,
        controller::{
            LastError, Reason,
            tests::{core, never},
        },
        keys::{HoldReason, RunCost},
        object::{Kind, ObjectKey, Scope},
    };

    /// A storm of keys has as many workers in flight as are allowed: what is rare takes memory when it comes.
    #[tokio::test]
    async fn a_worker_takes_little_memory() {
        let core = core(Waits { common: Vec::new(), by_namespace: Vec::new() });
        let work = core.work(tokio_util::sync::CancellationToken::new());
        assert!(size_of_val(&work) <= 1_500, "{}", size_of_val(&work));
    }

    // C30 C38
    #[tokio::test(start_paused = true)]
    async fn idle_keys_hold_no_state_whoever_is_waited_for() {
        let nowhere = || Waits { common: Vec::new(), by_namespace: Vec::new() };
        let one_namespace = Waits { by_namespace: vec![("closed".into(), never())], ..nowhere() };
        let all = Waits { common: never(), ..nowhere() };
        for waits in [nowhere(), one_namespace, all] {
            let core = core(waits);
            let kind = Kind::of::<ConfigMap>();
            assert_eq!(kind.scope, Scope::Namespaced);
            let (keys, writer) = (core.keys.clone(), core.base.writer.clone());
            let enqueuer = Enqueuer { keys, writer, kind };
            let (key, stop, now) = (ObjectKey::new("shop", "a"), Stop::new(), Instant::now());
            {
                let mut table = core.keys.table();
                table.charge(&key, RunCost::Whole, now);
                table.failed(&key, LastError { error: "fails".to_owned(), at: Moment::now(), attempt: 1 });
                table.hold(&key, HoldReason::Pace, now + Duration::from_secs(1), now);
                table.add(ObjectKey::new("closed", "b"), Reason::Changed);
                assert_eq!(table.remembered(), 2);
            }
            let run = run_workers(core.clone(), Vec::new(), (enqueuer, Vec::new()), Term::endless(&stop));
            let run = tokio::spawn(run);
            tokio::time::sleep(3 * SWEEP).await;
            assert_eq!(core.keys.table().remembered(), 0, "there is no such object");
            stop.finish.cancel();
            run.await.unwrap();
        }
    }
}
