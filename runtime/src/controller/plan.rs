//! From a built controller to a running one: ask for informers, connect them, wait for them, work.

use std::{any::Any, fmt, sync::Arc, time::Duration};

use futures::future::{BoxFuture, join_all};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{
    Controller, Reconciler, Settings, enqueue,
    enqueue::{Graves, Hub},
    feed::{self, OpenFeed, Synced},
    worker::Engine,
};
use crate::{
    informer::{SharedInformerFactory, Watched},
    object::Kind,
    workqueue::{ConfigError, RateLimit, WorkQueue, WorkQueueConfig},
    writes::{WaitForOwn, Writer, own_writes::SourceId},
};

/// What retries of failures share in a controller without a rate limit, as in client-go.
const RETRY_RATE: RateLimit = RateLimit::per_second(10).burst(100);
/// How often a controller that waits says for whom.
const REMINDER: Duration = Duration::from_secs(30);

/// Says why a controller can't be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// No worker would ever run.
    #[error("controller {name}: zero workers run nothing; `workers` must be at least 1")]
    NoWorkers {
        /// The controller.
        name: String,
    },
    /// The rate limit lets nothing pass, or is none.
    #[error("controller {name}: the rate limit is refused")]
    RateLimit {
        /// The controller.
        name: String,
        /// What is wrong with it.
        #[source]
        source: ConfigError,
    },
    /// Kubernetes would refuse the finalizer on every object.
    #[error("controller {name}: {finalizer:?} is no qualified name; write it like `example.dev/volume`")]
    Finalizer {
        /// The controller.
        name: String,
        /// The finalizer.
        finalizer: String,
    },
    /// The API server would refuse the field manager on every write.
    #[error(
        "controller name {name:?} can't be a field manager: use 1 to 128 of a-z, A-Z, 0-9, '.', '-', '_', '/'"
    )]
    Name {
        /// The name.
        name: String,
    },
}

/// Finds the informers of a kind that the program reads, asking for one if there is none.
pub(crate) type Read =
    Box<dyn FnOnce(&SharedInformerFactory, Option<&str>, &[Arc<dyn Synced>]) -> Vec<Arc<dyn Synced>> + Send>;

pub(crate) fn read<W: Watched<Question = ()>>() -> Read {
    Box::new(|factory, namespace, asked| {
        let kind = W::kind(&());
        let mut read: Vec<_> = asked.iter().filter(|informer| informer.kind() == kind).cloned().collect();
        if read.is_empty() {
            read.push(Arc::new(feed::informer_of::<W>(factory, (), namespace)));
        }
        read
    })
}

/// A controller whose types are forgotten: what a manager holds.
pub(crate) struct Plan {
    pub(crate) name: String,
    prepare: Prepare,
}

type Prepare = Box<
    dyn FnOnce(&kube::Client, &SharedInformerFactory, &[Arc<dyn Synced>]) -> Result<Planned, ControllerError>
        + Send,
>;

impl Plan {
    /// Asks for the informers and connects them; nothing runs yet.
    pub(crate) fn prepare(
        self,
        client: &kube::Client,
        factory: &SharedInformerFactory,
        asked: &[Arc<dyn Synced>],
    ) -> Result<Planned, ControllerError> {
        (self.prepare)(client, factory, asked)
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plan({})", self.name)
    }
}

/// A controller that is connected and ready to run.
pub(crate) struct Planned {
    pub(crate) name: String,
    /// Whom it waits for before it starts.
    pub(crate) awaited: Vec<Arc<dyn Synced>>,
    work: Box<dyn FnOnce(Stop) -> BoxFuture<'static, ()> + Send>,
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
    pub(crate) async fn run(self, stop: Stop) {
        let synced = stop.finish.run_until_cancelled(wait_for(&self.name, &self.awaited)).await;
        if synced.is_some() {
            tracing::info!(controller = %self.name, "caches have synced: working");
        }
        (self.work)(stop).await;
    }
}

async fn wait_for(name: &str, awaited: &[Arc<dyn Synced>]) {
    let all = join_all(awaited.iter().map(|informer| informer.synced()));
    tokio::pin!(all);
    while tokio::time::timeout(REMINDER, &mut all).await.is_err() {
        tracing::warn!(controller = name, "still waiting for {}", lagging(awaited));
    }
}

/// Names who has not synced, and why.
fn lagging(informers: &[Arc<dyn Synced>]) -> String {
    let lag = informers.iter().filter(|informer| !informer.has_synced());
    lag.map(|informer| format!("{} ({})", informer.kind(), informer.why())).collect::<Vec<_>>().join(", ")
}

pub(super) fn plan<K: Watched, R: Reconciler<K>>(controller: Controller<K, R>) -> Plan {
    let kind = K::kind(&controller.question);
    let name = controller.settings.name.clone().unwrap_or_else(|| kind.to_string());
    Plan {
        name: name.clone(),
        prepare: Box::new(move |client, factory, asked| {
            prepare(controller, kind, name, client, factory, asked)
        }),
    }
}

fn prepare<K: Watched, R: Reconciler<K>>(
    controller: Controller<K, R>,
    kind: Kind,
    name: String,
    client: &kube::Client,
    factory: &SharedInformerFactory,
    asked: &[Arc<dyn Synced>],
) -> Result<Planned, ControllerError> {
    let Controller { question, reconciler, settings, owned, reads, .. } = controller;
    let queue = checked_queue(&name, &settings)?;
    let namespace = settings.namespace.as_deref();
    let graves = Arc::new(Graves::default());
    let itself = feed::informer_of::<K>(factory, question.clone(), namespace);
    let objects = itself.cache();
    let buried = graves.clone();
    let mut feeds = vec![feed::open(itself, namespace, SourceId(0), move |hub| enqueue::Itself {
        hub: hub.clone(),
        source: SourceId(0),
        graves: buried,
    })];
    // One informer is one source, also where it feeds the controller twice: a kind that owns its own kind.
    let mut sources = vec![feed::Asked::of::<K>(&question)];
    for feed in owned {
        let known = sources.iter().position(|source| *source == feed.asked);
        let source = SourceId(known.unwrap_or(sources.len()));
        feeds.push((feed.open)(factory, namespace, source));
        if known.is_none() {
            sources.push(feed.asked);
        }
    }
    let mut awaited: Vec<_> = feeds.iter().map(|feed| feed.informer.clone()).collect();
    match reads.is_empty() {
        true => awaited.extend(asked.iter().cloned()),
        false => reads.into_iter().for_each(|read| awaited.extend(read(factory, namespace, asked))),
    }
    let (writer, connections) = connect(client, &name, kind, queue.clone(), settings.wait_for_own, feeds);
    let engine = Arc::new(Engine {
        name: name.clone(),
        question,
        reconciler: Arc::new(reconciler),
        objects,
        graves,
        queue,
        writer,
        finalizer: settings.finalizer,
        panics: settings.panics,
    });
    let work = Box::new(move |stop| -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let writer = engine.writer.clone();
            tokio::select! {
                biased;
                () = run_workers(engine, settings.workers, connections, stop) => {}
                never = writer.attend() => match never {},
            }
        })
    });
    Ok(Planned { name, awaited, work })
}

type Connections = Vec<Box<dyn Any + Send + Sync>>;

fn connect(
    client: &kube::Client,
    name: &str,
    kind: Kind,
    queue: WorkQueue<crate::object::ObjectKey>,
    wait_for_own: WaitForOwn,
    feeds: Vec<OpenFeed>,
) -> (Arc<Writer>, Connections) {
    let (views, connects): (Vec<_>, Vec<_>) = feeds.into_iter().map(|feed| (feed.view, feed.connect)).unzip();
    let writer = Writer::new(client.clone(), name.to_owned(), views, queue.clone(), wait_for_own);
    let hub = Hub { queue, writer: writer.clone(), kind };
    let connections = connects.into_iter().map(|connect| connect(&hub)).collect();
    (writer, connections)
}

async fn run_workers<K: Watched, R: Reconciler<K>>(
    engine: Arc<Engine<K, R>>,
    workers: usize,
    connections: Connections,
    stop: Stop,
) {
    let queue = engine.queue.clone();
    let mut running = JoinSet::new();
    if !stop.finish.is_cancelled() {
        for _ in 0..workers {
            running.spawn(engine.clone().work());
        }
    }
    tokio::select! {
        () = stop.finish.cancelled() => {}
        () = panicked(&mut running) => {}
    }
    queue.discard();
    drop(connections);
    let ended = async {
        while let Some(ended) = running.join_next().await {
            propagate(ended);
        }
    };
    if stop.abort.run_until_cancelled(ended).await.is_none() {
        running.shutdown().await;
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

fn checked_queue(
    name: &str,
    settings: &Settings,
) -> Result<WorkQueue<crate::object::ObjectKey>, ControllerError> {
    let named = || name.to_owned();
    if settings.workers == 0 {
        return Err(ControllerError::NoWorkers { name: named() });
    }
    if !is_field_manager(name) {
        return Err(ControllerError::Name { name: named() });
    }
    if let Some(finalizer) = settings.finalizer.as_ref().filter(|finalizer| !is_qualified(finalizer)) {
        return Err(ControllerError::Finalizer { name: named(), finalizer: finalizer.clone() });
    }
    let config = WorkQueueConfig {
        rate: settings.rate_limit,
        retry_rate: settings.rate_limit.is_none().then_some(RETRY_RATE),
        floor: settings.floor,
        ..WorkQueueConfig::default()
    };
    WorkQueue::with_config(config).map_err(|source| ControllerError::RateLimit { name: named(), source })
}

fn is_field_manager(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_/".contains(&byte);
    (1..=128).contains(&name.len()) && name.bytes().all(plain)
}

fn is_qualified(finalizer: &str) -> bool {
    let plain = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
    };
    finalizer.split_once('/').is_some_and(|(domain, name)| plain(domain) && plain(name))
}
