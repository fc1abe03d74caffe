//! A controller that runs: it waits for its caches, works, and stops.

use std::{
    any::Any,
    convert::Infallible,
    future::pending,
    panic::resume_unwind,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures::future::{BoxFuture, join_all};
use tokio::{
    task::{JoinError, JoinSet},
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    ControllerError, Reconciler,
    context::ContextBase,
    core::ControllerCore,
    doubts,
    enqueue::Enqueuer,
    share,
    sources::Connect,
    stream_source::StreamSource,
    term::{Stop, Term, Terms},
    waits::{Waits, explained},
    watch::Place,
    worker::Worker,
};
use crate::{
    informer::{ObserverRegistration, TermStart, Watched},
    keys::AdmittedSlots,
};

/// After how long a controller that waits logs for what, for the first time; later less often.
const REMINDER: Duration = Duration::from_secs(30);
/// How often it is logged at least.
const LONGEST_REMINDER: Duration = Duration::from_secs(3_600);
/// How often the budgets of keys that have become idle are forgotten.
const SWEEP: Duration = Duration::from_secs(30);

/// A controller that is ready to run, whatever it reconciles.
pub(crate) struct RunningController {
    core: Arc<ControllerCore>,
    enqueuer: Enqueuer,
    /// Starts a worker.
    work: Box<dyn Fn(CancellationToken) -> BoxFuture<'static, ()> + Send + Sync>,
    connects: Vec<(Place, Connect)>,
    streams: Vec<StreamSource>,
    /// Those of the first term, if nothing is waited for before it.
    connections: Option<Connections>,
    /// How the last term began.
    start: Option<Arc<TermStart>>,
    /// What caches are asked in the first term, if a controller of the same name may have written before.
    added: Option<TermStart>,
}

/// What a controller keeps connected while it works, and whose keys wait for it.
type Connections = Vec<(Place, ObserverRegistration)>;

impl RunningController {
    pub(super) fn new<K: Watched, R: Reconciler<K>>(
        core: Arc<ControllerCore>,
        worker: Arc<Worker<K, R>>,
        connects: Vec<(Place, Connect)>,
        streams: Vec<StreamSource>,
    ) -> Self {
        let ContextBase { kind, writer, .. } = &*core.base;
        let enqueuer = Enqueuer { keys: core.keys.clone(), writer: writer.clone(), kind: kind.clone() };
        let work = Box::new(move |stop| -> BoxFuture<'static, ()> { Box::pin(worker.clone().work(stop)) });
        let mut new =
            Self { core, enqueuer, work, connects, streams, connections: None, start: None, added: None };
        // Before the informers start: what they list first comes in one go.
        new.connections = new.core.leftovers.is_none().then(|| new.connect());
        new
    }

    /// Has it wait for caches that show what the server holds: one of its name may have written until it was removed.
    pub(crate) fn after_another(self) -> Self {
        Self { added: Some(TermStart::default()), ..self }
    }

    /// Returns what its workers share.
    pub(crate) fn core(&self) -> &Arc<ControllerCore> {
        &self.core
    }

    fn connect(&self) -> Connections {
        self.connects.iter().map(|(place, connect)| (place.clone(), connect(&self.enqueuer))).collect()
    }

    /// Waits for the caches, then works in every term until stopped; ends when the last run has ended, or was dropped.
    ///
    /// # Errors
    /// Caches did not sync within the time that the controller was given for it.
    pub(crate) async fn run(mut self, stop: Stop, mut terms: Terms) -> Result<(), ControllerError> {
        let (core, own) = (self.core.clone(), stop.child());
        let (name, kinds) = (&core.settings.name, core.waits.names());
        tracing::info!(controller = %name, "starting: waiting for the caches of {kinds}");
        let patience = report_lagging(name, &core.waits, core.settings.sync_timeout);
        let worked = async {
            while let Some(term) = terms.next(&own).await {
                let (stop, over) = (term.stop.child(), term.stop.finish.clone());
                let ended = self.work(Term { stop: stop.clone(), ..term });
                tokio::pin!(ended);
                tokio::select! {
                    biased;
                    never = stands_by_after(&core, &over, &own) => match never {},
                    () = &mut ended => continue,
                    () = own.finish.cancelled() => stop.finish.cancel(),
                }
                if own.abort.run_until_cancelled(&mut ended).await.is_none() {
                    stop.abort.cancel();
                    ended.await;
                }
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
        let core = self.core.clone();
        core.keys.table().slots =
            AdmittedSlots::new(term.slots.clone(), share::own_slots(&core, term.slots.as_ref()));
        let goes_on =
            term.start.as_ref().zip(self.start.as_ref()).is_some_and(|(new, last)| Arc::ptr_eq(new, last));
        self.start = term.start.clone();
        let connections = self.connections.take().unwrap_or_else(|| {
            core.base.writer.begin_term(goes_on);
            self.connect()
        });
        core.stands_by.store(false, Ordering::Relaxed);
        let added = self.added.take();
        tokio::select! {
            biased;
            () = self.run_workers(connections, &term, added.as_ref().or(term.start.as_deref())) => {}
            never = share::follow(&core, term.slots.as_ref()) => match never {},
            never = core.base.writer.follow_up() => match never {},
            never = core.base.recorder.run() => match never {},
            never = doubts::follow(&core.settings.name, &core.keys) => match never {},
        }
        // Its events are part of the term, which is held until they are sent. An abort does not wait for that either.
        let _ = term.stop.abort.run_until_cancelled(core.base.recorder.flush()).await;
        core.stands_by.store(core.leftovers.is_some(), Ordering::Relaxed);
    }

    /// Waits for caches, then runs workers until stopped; ends when the last run has ended, or was dropped.
    ///
    /// # Panics
    /// With the panic of a run that is to propagate.
    async fn run_workers(&self, connections: Connections, term: &Term, start: Option<&TermStart>) {
        let (core, Term { stop, held, .. }) = (&*self.core, term);
        let (mut running, mut listening) = (JoinSet::new(), JoinSet::new());
        let panicking = async {
            ready(core, &connections, None, start).await;
            let (name, workers) = (&core.settings.name, core.settings.workers);
            tracing::info!(controller = %name, workers, "caches have synced: reconciling");
            core.metrics.counts.max_concurrent.set(i64::try_from(workers).unwrap_or(i64::MAX));
            core.open(None);
            for _ in 0..workers {
                let (work, held) = ((self.work)(stop.finish.clone()), held.clone());
                running.spawn(async move {
                    // One that blocks its thread goes on, also if the controller is dropped.
                    let _held = held;
                    work.await;
                });
            }
            for stream in &self.streams {
                listening.spawn(stream.clone().listen(name.clone(), self.enqueuer.clone()));
            }
            tokio::select! {
                biased;
                panic = panicked(&mut running) => panic,
                never = open_each_namespace(core, &connections, start) => match never {},
            }
        };
        let panic = tokio::select! {
            biased;
            () = stop.finish.cancelled() => None,
            panic = panicking => Some(panic),
            never = sweep_periodically(core) => match never {},
        };
        // Nothing more is handed out, also if a panic ends all: callers learn that it has stopped.
        core.keys.table().discard();
        drop((connections, listening));
        let panic = match panic {
            Some(panic) => Some(panic),
            None => stop.abort.run_until_cancelled(first_panic(&mut running)).await.flatten(),
        };
        // A panic ends the term as well: first all runs must be over, so that no other replica works at the same time.
        if panic.is_none() || term.start.is_some() {
            running.shutdown().await;
        }
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

/// Shows that a controller stands by once its term is over, while its last runs end; not if it was stopped itself.
async fn stands_by_after(core: &ControllerCore, over: &CancellationToken, own: &Stop) -> Infallible {
    over.cancelled().await;
    if !own.finish.is_cancelled() {
        core.stands_by.store(core.leftovers.is_some(), Ordering::Relaxed);
    }
    pending().await
}

/// Logs now and then what a controller waits for; ends only if its time is over.
///
/// One line after [`REMINDER`], then each time after twice as long, and one when the wait is over. Failures are the
/// informers' own to log: if each that lags has logged one, the line is for those who debug.
async fn report_lagging(name: &Arc<str>, waits: &Waits, within: Option<Duration>) -> ControllerError {
    let (started, all, mut pause) = (Instant::now(), waits.all_synced(), REMINDER);
    tokio::pin!(all);
    loop {
        let left = within.map(|within| within.saturating_sub(started.elapsed()));
        let synced = timeout(left.map_or(pause, |left| left.min(pause)), &mut all).await.is_ok();
        let waited = rounded(started.elapsed());
        if synced {
            // Otherwise the line that says that it works says it.
            if pause > REMINDER && !waits.namespaces.is_empty() {
                tracing::info!(controller = %name, ?waited, "all caches have synced");
            }
            return pending().await;
        }
        let states = waits.lagging();
        let lagging = explained(&states).join("; ");
        if within.is_some_and(|within| started.elapsed() >= within) {
            tracing::error!(controller = %name, ?waited, lagging, "giving up: caches have not synced in time");
            return ControllerError::NotSynced { name: name.to_string(), lagging: states, waited };
        }
        match states.iter().all(|state| state.failure.is_some()) {
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

/// Lets in the keys of each namespace once its caches have synced, or are as fresh as a term needs them.
async fn open_each_namespace(
    core: &ControllerCore,
    connections: &Connections,
    start: Option<&TermStart>,
) -> Infallible {
    join_all(core.waits.namespaces.iter().map(async |namespace| {
        ready(core, connections, Some(namespace), start).await;
        core.open(Some(namespace));
    }))
    .await;
    pending().await
}

/// Waits for the caches of a namespace, or for those that every key waits for, until the controller has seen all that they held
/// when it was connected.
async fn ready(
    core: &ControllerCore,
    connections: &Connections,
    place: Option<&str>,
    start: Option<&TermStart>,
) {
    core.waits.ready(place, start).await;
    let of_place = connections.iter().filter(|(of, _)| of.as_deref() == place);
    join_all(of_place.map(|(_, connection)| connection.synced())).await;
}

/// Removes idle entries while the controller runs.
async fn sweep_periodically(core: &ControllerCore) -> Infallible {
    loop {
        tokio::time::sleep(SWEEP).await;
        core.sweep();
    }
}

/// Ends when a worker has ended of itself, which only a propagated panic makes it do.
async fn panicked(running: &mut JoinSet<()>) -> WorkerPanic {
    match first_panic(running).await {
        Some(panic) => panic,
        None => pending().await,
    }
}

/// Ends when all workers have ended, or one has panicked.
async fn first_panic(running: &mut JoinSet<()>) -> Option<WorkerPanic> {
    while let Some(ended) = running.join_next().await {
        if let Some(panic) = panic_in(ended) {
            return Some(panic);
        }
    }
    None
}

type WorkerPanic = Box<dyn Any + Send>;

fn panic_in(ended: Result<(), JoinError>) -> Option<WorkerPanic> {
    ended.err().filter(JoinError::is_panic).map(JoinError::into_panic)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::Moment,
        controller::{
            LastError, Reason,
            tests::{core, never, worker},
        },
        keys::{HoldReason, RunCost},
        object::ObjectKey,
    };

    /// A storm of keys has as many workers in flight as are allowed: what is rare takes memory when it comes.
    #[tokio::test]
    async fn a_worker_takes_little_memory() {
        let work = worker(core(Waits::default())).work(CancellationToken::new());
        assert!(size_of_val(&work) <= 1_500, "{}", size_of_val(&work));
    }

    // C30 C38
    #[tokio::test(start_paused = true)]
    async fn idle_keys_hold_no_state_whoever_is_waited_for() {
        let one_namespace =
            Waits::new(None, vec!["closed".into()], vec![(Some("closed".into()), never())], &[]);
        let all = Waits { awaited: vec![(None, never())], ..Waits::default() };
        for waits in [Waits::default(), one_namespace, all] {
            let core = core(waits);
            let running = RunningController::new(core.clone(), worker(core.clone()), Vec::new(), Vec::new());
            let (key, stop, now) = (ObjectKey::new("shop", "a"), Stop::new(), Instant::now());
            {
                let mut table = core.keys.table();
                table.charge(&key, RunCost::Whole, now);
                table.failed(&key, LastError { error: "fails".to_owned(), at: Moment::now(), attempt: 1 });
                table.hold(&key, HoldReason::Pace, now + Duration::from_secs(1), now);
                table.add(ObjectKey::new("closed", "b"), Reason::Changed);
                assert_eq!(table.remembered(), 2);
            }
            let term = Term::endless(&stop);
            let run = tokio::spawn(async move { running.run_workers(Vec::new(), &term, None).await });
            tokio::time::sleep(3 * SWEEP).await;
            assert_eq!(core.keys.table().remembered(), 0, "there is no such object");
            stop.finish.cancel();
            run.await.unwrap();
        }
    }
}
