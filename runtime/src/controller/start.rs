//! A controller that is ready: it waits for its caches, works, and stops.

use std::{any::Any, fmt, panic::resume_unwind, sync::Arc, time::Duration};

use futures::future::{BoxFuture, join_all};
use tokio::{
    task::{JoinError, JoinSet},
    time::{Instant, timeout},
};

use super::{
    ControllerError, Inspected,
    enqueue::Enqueuer,
    stream_source::StreamSource,
    term::{Freshness, Stop, Term, Terms},
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

/// What a controller does in each term.
pub(crate) type Work = Box<dyn FnMut(Term) -> BoxFuture<'static, ()> + Send>;

/// A controller that is connected and ready to run.
pub(crate) struct PreparedController {
    pub(crate) name: Arc<str>,
    pub(crate) waits: Arc<Waits>,
    pub(crate) sync_timeout: Option<Duration>,
    pub(crate) inspected: Arc<dyn Inspected>,
    /// Works for a term.
    pub(crate) work: Work,
}

impl fmt::Debug for PreparedController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PreparedController({})", self.name)
    }
}

impl PreparedController {
    /// Waits for the caches, then works in every term until stopped; ends when the last run has ended, or was dropped.
    ///
    /// # Errors
    /// Caches did not sync within the time that the controller was given for it.
    pub(crate) async fn run(self, stop: Stop, mut terms: Terms) -> Result<(), ControllerError> {
        let Self { name, waits, sync_timeout, mut work, .. } = self;
        let own = stop.child();
        let kinds = waits.kinds().join(", ");
        tracing::info!(controller = %name, "starting: waiting for the caches of {kinds}");
        let patience = report_lagging(&name, &waits, sync_timeout);
        let worked = async {
            while let Some(term) = terms.next(&own).await {
                let stop = term.stop.child();
                let ended = work(term.told_by(stop.clone()));
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
pub(crate) type Connections = Vec<ObserverRegistration>;

/// Ends when the controller has seen all that the caches held when it was connected.
async fn connected(connections: &Connections) {
    join_all(connections.iter().map(ObserverRegistration::synced)).await;
}

/// Waits for caches, then runs workers until stopped; ends when the last run has ended, or was dropped.
///
/// # Panics
/// With the panic of a run that is to propagate.
pub(crate) async fn run_workers(
    core: Arc<dyn Workforce>,
    workers: usize,
    connections: Connections,
    sources: (Enqueuer, Vec<StreamSource>),
    term: Term,
) {
    let Term { stop, freshness, .. } = &term;
    let (mut running, mut listening) = (JoinSet::new(), JoinSet::new());
    let panic = {
        let sweeping = sweep_periodically(&*core);
        tokio::pin!(sweeping);
        let begins = tokio::select! {
            biased;
            () = stop.finish.cancelled() => false,
            () = async {
                core.waits().common_ready(freshness).await;
                if matches!(freshness, Freshness::Current(_)) {
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
    core.queue().discard();
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
async fn release_ready(core: &dyn Workforce, freshness: &Freshness) {
    core.waits().by_namespace_ready(freshness, |namespace| core.open(Some(namespace))).await;
    std::future::pending().await
}

/// Forgets what has become idle, whoever is waited for; never ends.
async fn sweep_periodically(core: &dyn Workforce) {
    loop {
        tokio::time::sleep(SWEEP).await;
        core.sweep();
    }
}

/// Ends when a worker has ended of itself, which only a propagated panic makes it do.
async fn panicked(running: &mut JoinSet<()>) -> Panic {
    while let Some(ended) = running.join_next().await {
        if let Some(panic) = panic_in(ended) {
            return panic;
        }
    }
    std::future::pending().await
}

type Panic = Box<dyn Any + Send>;

fn panic_in(ended: Result<(), JoinError>) -> Option<Panic> {
    ended.err().filter(JoinError::is_panic).map(JoinError::into_panic)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::{
        clock::Moment,
        controller::{
            LastError,
            budget::Cost,
            tests::{core, never},
        },
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
            let (queue, writer) = (core.queue.clone(), core.base.writer.clone());
            let enqueuer = Enqueuer { queue, writer, kind, dedup: Arc::default() };
            let (key, stop) = (ObjectKey::new("shop", "a"), Stop::new());
            core.history().budgets.charge(&key, Cost::Whole, Instant::now());
            let error = LastError { error: "fails".to_owned(), at: Moment::now(), attempt: 1 };
            core.history().failures.insert(key.clone(), error);
            core.queue.pace(&key, Duration::from_secs(1));
            core.queue.add(ObjectKey::new("closed", "b"), crate::controller::Reason::Changed);
            let run = run_workers(core.clone(), 1, Vec::new(), (enqueuer, Vec::new()), Term::endless(&stop));
            let run = tokio::spawn(run);
            tokio::time::sleep(3 * SWEEP).await;
            assert!(core.history().budgets.are_full());
            assert!(core.history().failures.is_empty());
            assert_eq!(core.queue.remembered(), 0, "there is no such object");
            stop.finish.cancel();
            run.await.unwrap();
        }
    }
}
