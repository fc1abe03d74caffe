//! A controller that is ready: it waits for its caches, works, and stops.

use std::{any::Any, fmt, sync::Arc, time::Duration};

use futures::future::{BoxFuture, join_all};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    ControllerError, Inspected, Reconciler, enqueue::Hub, external::External, feed::Synced, intake::Intake,
    worker::Engine,
};
use crate::{
    informer::Watched,
    object::ObjectKey,
    reflector::Server,
    writes::{Gate, ReadCache},
};

/// How often a controller that waits says for whom.
const REMINDER: Duration = Duration::from_secs(30);
/// How often the budgets of keys that have become idle are forgotten.
const SWEEP: Duration = Duration::from_secs(30);

/// A controller that is connected and ready to run.
pub(crate) struct Planned {
    pub(crate) name: Arc<str>,
    pub(crate) waits: Arc<Waits>,
    pub(crate) sync_timeout: Option<Duration>,
    pub(crate) inspected: Arc<dyn Inspected>,
    pub(crate) work: Box<dyn FnOnce(Stop) -> BoxFuture<'static, ()> + Send>,
}

/// How a controller is told to stop.
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    /// Nothing starts any more; what runs may end.
    pub(crate) finish: CancellationToken,
    /// What runs is dropped. Cancels `finish` too.
    pub(crate) abort: CancellationToken,
}

impl Stop {
    pub(crate) fn new() -> Self {
        let abort = CancellationToken::new();
        Self { finish: abort.child_token(), abort }
    }
}

impl fmt::Debug for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Planned({})", self.name)
    }
}

impl Planned {
    /// Waits for the caches, then works until stopped; ends when the last run has ended, or was dropped.
    ///
    /// # Errors
    /// Caches did not sync within the time that the controller was given for it.
    pub(crate) async fn run(self, stop: Stop) -> Result<(), ControllerError> {
        let Self { name, waits, sync_timeout, work, .. } = self;
        let own = Stop { finish: stop.finish.child_token(), abort: stop.abort };
        let patience = watch_over(&name, &waits, sync_timeout);
        let worked = async {
            let synced = own.finish.run_until_cancelled(join_all(waits.common.iter().map(|of| of.synced())));
            if synced.await.is_some() {
                tracing::info!(controller = %name, "caches have synced: working");
            }
            work(own.clone()).await;
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

/// Says now and then for whom a controller waits; ends only where its time is over.
async fn watch_over(name: &Arc<str>, waits: &Waits, within: Option<Duration>) -> ControllerError {
    let (started, all) = (Instant::now(), waits.all_synced());
    tokio::pin!(all);
    loop {
        let left = within.map(|within| within.saturating_sub(started.elapsed()));
        if timeout(left.map_or(REMINDER, |left| left.min(REMINDER)), &mut all).await.is_ok() {
            return std::future::pending().await;
        }
        let lagging = waits.lagging().join(", ");
        if within.is_some_and(|within| started.elapsed() >= within) {
            let waited = started.elapsed();
            tracing::error!(controller = %name, "gives up waiting for {lagging}");
            return ControllerError::NotSynced { name: name.to_string(), lagging, waited };
        }
        tracing::warn!(controller = %name, "still waiting for {lagging}");
    }
}

/// Whom a controller waits for before it runs keys.
#[derive(Debug)]
pub(crate) struct Waits {
    /// Every key waits for these.
    pub(crate) common: Vec<Arc<dyn Synced>>,
    /// The keys of a namespace wait for its own besides; empty with one cache for all.
    pub(crate) by_namespace: Vec<OfNamespace>,
}

/// Makes the gate that keeps keys from running while a cache is in doubt.
pub(crate) fn gate(waits: &Waits, server: Server) -> Gate {
    let read = |of: Option<&Arc<str>>, informer: &Arc<dyn Synced>| {
        let (kind, of, informer) = (informer.kind(), of.cloned(), informer.clone());
        ReadCache { kind, of, doubt: Box::new(move || informer.doubt()) }
    };
    let own = waits.by_namespace.iter().flat_map(|(of, own)| own.iter().map(move |cache| (Some(of), cache)));
    let caches = waits.common.iter().map(|cache| (None, cache)).chain(own);
    Gate::new(server, caches.map(|(of, cache)| read(of, cache)).collect())
}

/// A namespace, and whom its keys wait for.
type OfNamespace = (Arc<str>, Vec<Arc<dyn Synced>>);

impl Waits {
    fn all(&self) -> impl Iterator<Item = &Arc<dyn Synced>> {
        self.common.iter().chain(self.by_namespace.iter().flat_map(|(_, own)| own))
    }

    async fn all_synced(&self) {
        join_all(self.all().map(|informer| informer.synced())).await;
    }

    /// Names who has not synced, and why.
    fn lagging(&self) -> Vec<String> {
        lagging(self.all())
    }

    /// Names whom a key waits for, and why.
    pub(crate) fn lagging_for(&self, key: &ObjectKey) -> Vec<String> {
        let own = self.by_namespace.iter().filter(|(namespace, _)| Some(&**namespace) == key.namespace());
        lagging(self.common.iter().chain(own.flat_map(|(_, own)| own)))
    }

    /// Lets in the keys of each namespace once its caches have synced.
    async fn open_doors(&self, intake: &Intake) {
        join_all(self.by_namespace.iter().map(async |(namespace, own)| {
            join_all(own.iter().map(|informer| informer.synced())).await;
            intake.open(namespace);
        }))
        .await;
    }
}

fn lagging<'a>(informers: impl Iterator<Item = &'a Arc<dyn Synced>>) -> Vec<String> {
    let lag = informers.filter(|informer| !informer.has_synced());
    let mut names: Vec<_> = lag.map(|informer| format!("{} ({})", informer.kind(), informer.why())).collect();
    names.dedup();
    names
}

/// What a controller keeps connected while it works.
pub(crate) type Connections = Vec<Box<dyn Any + Send + Sync>>;

pub(crate) async fn run_workers<K: Watched, R: Reconciler<K>>(
    engine: Arc<Engine<K, R>>,
    workers: usize,
    connections: Connections,
    sources: (Hub, Vec<External>),
    stop: Stop,
) {
    let (mut running, mut listening) = (JoinSet::new(), JoinSet::new());
    if !stop.finish.is_cancelled() {
        engine.metrics.max_concurrent.set(i64::try_from(workers).unwrap_or(i64::MAX));
        for _ in 0..workers {
            running.spawn(engine.clone().work(stop.finish.clone()));
        }
        let (hub, sources) = sources;
        for source in sources {
            listening.spawn(source.listen(engine.name.clone(), hub.clone()));
        }
    }
    tokio::select! {
        biased;
        () = stop.finish.cancelled() => {}
        () = panicked(&mut running) => {}
        () = keep_house(&engine) => {}
    }
    engine.intake.discard();
    drop((connections, listening));
    let ended = async {
        while let Some(ended) = running.join_next().await {
            propagate(ended);
        }
    };
    if stop.abort.run_until_cancelled(ended).await.is_none() {
        running.shutdown().await;
    }
}

/// Opens doors, then forgets what has become idle, for ever.
async fn keep_house<K: Watched, R: Reconciler<K>>(engine: &Engine<K, R>) {
    engine.waits.open_doors(&engine.intake).await;
    loop {
        tokio::time::sleep(SWEEP).await;
        engine.budgets().sweep(Instant::now());
        engine.intake.sweep(Instant::now());
    }
}

/// Ends when a worker has ended of itself, which only a propagated panic makes it do.
async fn panicked(running: &mut JoinSet<()>) {
    match running.join_next().await {
        Some(ended) => propagate(ended),
        None => std::future::pending().await,
    }
}

fn propagate(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        std::panic::resume_unwind(error.into_panic());
    }
}
