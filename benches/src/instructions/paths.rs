//! The hot paths; each one runs a number of rounds in one thread.

use std::{convert::Infallible, future::pending, sync::Arc};

use clap::ValueEnum;
use futures::StreamExt;
use tokio::sync::Semaphore;
use watchkeeper::{
    Action, Context, Controller, Manager, ObjectKey, Reconciler, WorkQueue,
    kube::{Client, client::Body},
    list_watch::{ClientListWatch, ItemForm, ListOptions, ListerWatcher, WatchEvent},
    object::Kind,
    store::Indexer,
    workqueue::ItemExponentialFailure,
};

use super::server;
use crate::gadget::{self, Gadget, LISTED};

/// How many objects the paths have that need some.
const OBJECTS: usize = 1_000;
/// How many objects are applied together.
const A_BATCH: usize = 100;

/// A hot path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Path {
    /// One event of a watch into a typed object.
    DecodeTyped,
    /// One event of a watch into an object that is kept as bytes.
    DecodeCompact,
    /// A hundred changed objects into the store, with one index, and out to readers.
    ApplyBatch,
    /// One key into the queue.
    Enqueue,
    /// One key out of the queue, done, and in again.
    Grant,
    /// One run of a reconciler that does nothing, from its grant to the next enqueue.
    NoOpReconcile,
    /// One object read from the embedded API server, in memory, client included.
    ServerGet,
    /// One event of the embedded API server to one of a hundred watchers, with a hundredth of the write.
    ServerEvent,
}

impl Path {
    pub(super) const ALL: [Self; 8] = [
        Self::DecodeTyped,
        Self::DecodeCompact,
        Self::ApplyBatch,
        Self::Enqueue,
        Self::Grant,
        Self::NoOpReconcile,
        Self::ServerGet,
        Self::ServerEvent,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::DecodeTyped => "decode-typed",
            Self::DecodeCompact => "decode-compact",
            Self::ApplyBatch => "apply-batch",
            Self::Enqueue => "enqueue",
            Self::Grant => "grant",
            Self::NoOpReconcile => "no-op-reconcile",
            Self::ServerGet => "server-get",
            Self::ServerEvent => "server-event",
        }
    }

    /// How many rounds are few.
    pub(super) fn rounds(self) -> u64 {
        match self {
            Self::DecodeTyped | Self::DecodeCompact | Self::NoOpReconcile | Self::ServerGet => 2_000,
            Self::ApplyBatch => 100,
            Self::Enqueue | Self::Grant | Self::ServerEvent => 20_000,
        }
    }
}

/// Runs this many rounds of a path.
///
/// # Errors
/// The path ended before its rounds were done.
pub(crate) fn run(path: Path, rounds: u64) -> anyhow::Result<()> {
    let rounds = usize::try_from(rounds)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match path {
            Path::DecodeTyped => decode(ItemForm::Typed, rounds).await,
            Path::DecodeCompact => decode(ItemForm::Bytes, rounds).await,
            Path::ApplyBatch => apply_batches(rounds),
            Path::Enqueue => enqueue(rounds),
            Path::Grant => grant(rounds).await,
            Path::NoOpReconcile => reconcile(rounds).await,
            Path::ServerGet => server::get(rounds).await,
            Path::ServerEvent => server::deliver(rounds).await,
        }
    })
}

async fn decode(form: ItemForm, rounds: usize) -> anyhow::Result<()> {
    let line = format!("{{\"type\":\"MODIFIED\",\"object\":{}}}\n", gadget::json(7, LISTED + 1, 0));
    let body = line.repeat(rounds);
    let client = answering(move |_| Body::from(body.clone().into_bytes()));
    let source = ClientListWatch::<Gadget>::new(client, Kind::of::<Gadget>()).item_form(form);
    let events = source.watch(&ListOptions::default()).await?;
    let modified = events.filter(|event| std::future::ready(matches!(event, Ok(WatchEvent::Modified(_)))));
    let decoded = modified.count().await;
    anyhow::ensure!(decoded == rounds, "{decoded} of {rounds} events were decoded");
    Ok(())
}

fn apply_batches(rounds: usize) -> anyhow::Result<()> {
    let objects: Vec<_> = (0..OBJECTS).map(|at| Arc::new(gadget::small(at))).collect();
    let indexer = Indexer::new();
    indexer.replace(objects.iter().cloned());
    let lister = indexer.lister();
    for round in 0..rounds {
        let changed = objects.iter().cycle().skip(round * A_BATCH % OBJECTS).take(A_BATCH);
        indexer.write(|batch| changed.for_each(|object| drop(batch.upsert(Arc::new(Gadget::clone(object))))));
        anyhow::ensure!(lister.list().len() == OBJECTS, "objects are missing");
    }
    Ok(())
}

fn filled(keys: usize) -> WorkQueue<ObjectKey> {
    let queue = WorkQueue::new(ItemExponentialFailure::default());
    (0..keys).for_each(|at| queue.add(ObjectKey::new("shop", at.to_string())));
    queue
}

fn enqueue(rounds: usize) -> anyhow::Result<()> {
    anyhow::ensure!(filled(rounds).len() == rounds, "keys are missing");
    Ok(())
}

async fn grant(rounds: usize) -> anyhow::Result<()> {
    let queue = filled(OBJECTS);
    for _ in 0..rounds {
        let item = queue.get().await.ok_or_else(|| anyhow::anyhow!("the queue was shut down"))?;
        let key = item.key().clone();
        item.forget();
        queue.add(key);
    }
    Ok(())
}

/// Counts the runs, and requests another at once.
struct Counts(Arc<Semaphore>);

impl Reconciler<Gadget> for Counts {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, _: Arc<Gadget>, _: &Context<Gadget>) -> Result<Action, Self::Error> {
        self.0.add_permits(1);
        Ok(Action::requeue_after(std::time::Duration::ZERO))
    }
}

async fn reconcile(rounds: usize) -> anyhow::Result<()> {
    let items: Vec<_> = (0..OBJECTS).map(|at| gadget::json(at, LISTED, 0)).collect();
    let list = format!(
        r#"{{"kind":"GadgetList","apiVersion":"bench.example.dev/v1","metadata":{{"resourceVersion":"{LISTED}"}},"items":[{}]}}"#,
        items.join(",")
    );
    let client = answering(move |query| match query.contains("watch=") {
        true => Body::empty(),
        false => Body::from(list.clone().into_bytes()),
    });
    let runs = Arc::new(Semaphore::new(0));
    let controller = Controller::new(Counts(runs.clone())).workers(8);
    let running = Manager::new(client).controller(controller).spawn();
    let _all = runs.acquire_many(u32::try_from(rounds)?).await?;
    drop(running);
    Ok(())
}

/// A client with answers from within the process; an empty answer never arrives.
fn answering(body: impl Fn(&str) -> Body + Clone + Send + 'static) -> Client {
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (body, query) = (body.clone(), request.uri().query().unwrap_or_default().to_owned());
        async move {
            let body = body(&query);
            if http_body::Body::is_end_stream(&body) {
                pending::<()>().await;
            }
            Ok::<_, Infallible>(http::Response::new(body))
        }
    });
    Client::new(service, "default")
}
