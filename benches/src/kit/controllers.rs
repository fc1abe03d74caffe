//! Controllers of both Rust sides that do the same work.

use std::{convert::Infallible, future::Future, sync::Arc, time::Duration};

use futures::StreamExt;
use tokio::task::JoinSet;
use watchkeeper::{
    Action, Context, Controller, Manager, Reconciler, Running,
    kube::runtime::{
        Controller as KubeController, WatchStreamExt,
        controller::{Action as KubeAction, Config},
        reflector, watcher,
    },
};

use super::{
    api, client, kube_config,
    recording::{RecordingFile, recorded},
};
use crate::{
    gadget::Gadget,
    job::{Job, Mode},
};

/// The work of a reconcile, on any side.
pub(crate) trait Work: Send + Sync + 'static {
    /// Reconciles an object.
    fn run(&self, gadget: &Gadget) -> impl Future<Output = Next> + Send;
}

/// The result of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    AwaitChange,
    AtOnce,
}

struct Ours<W>(Arc<W>);

impl<W: Work> Reconciler<Gadget> for Ours<W> {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, gadget: Arc<Gadget>, _: &Context<Gadget>) -> Result<Action, Self::Error> {
        Ok(match self.0.run(&gadget).await {
            Next::AwaitChange => Action::await_change(),
            Next::AtOnce => Action::requeue_after(Duration::ZERO),
        })
    }
}

/// Controllers that run, and what they record into.
pub(crate) struct Operator {
    _running: Running,
    _file: RecordingFile,
}

/// Starts a number of watchkeeper's controllers with a number of workers each.
pub(crate) fn controllers<W: Work>(
    job: &Job,
    count: usize,
    workers: usize,
    work: &Arc<W>,
) -> anyhow::Result<Operator> {
    let manager = (0..count).fold(Manager::new(client(job)?), |manager, number| {
        let controller =
            Controller::new(Ours(work.clone())).named(format!("bench-{number}")).workers(workers);
        manager.controller(controller)
    });
    let (manager, file) = recorded(job, manager)?;
    Ok(Operator { _running: manager.spawn(), _file: file })
}

/// Starts a number of kube-rs's controllers with a number of concurrent reconciles each; 0 is unbounded.
pub(crate) fn kube_controllers<W: Work>(
    job: &Job,
    count: usize,
    concurrency: u16,
    work: &Arc<W>,
) -> anyhow::Result<JoinSet<()>> {
    let controllers: Vec<KubeController<Gadget>> = match job.mode {
        Mode::Shared => shared(job, count)?,
        _ => (0..count)
            .map(|_| Ok(KubeController::new(api(job)?, kube_config(job))))
            .collect::<anyhow::Result<_>>()?,
    };
    let mut tasks = JoinSet::new();
    for controller in controllers {
        let running = controller.with_config(Config::default().concurrency(concurrency)).run(
            reconcile::<W>,
            |_, error: &Infallible, _| match *error {},
            work.clone(),
        );
        tasks.spawn(running.for_each(|_| std::future::ready(())));
    }
    Ok(tasks)
}

async fn reconcile<W: Work>(gadget: Arc<Gadget>, work: Arc<W>) -> Result<KubeAction, Infallible> {
    Ok(match work.run(&gadget).await {
        Next::AwaitChange => KubeAction::await_change(),
        Next::AtOnce => KubeAction::requeue(Duration::ZERO),
    })
}

/// Controllers that subscribe to one shared reflector, as kube-rs's documentation advises for many of one kind.
fn shared(job: &Job, count: usize) -> anyhow::Result<Vec<KubeController<Gadget>>> {
    let (reader, writer) = reflector::store_shared(1_024);
    let subscribe = |_| writer.subscribe().ok_or_else(|| anyhow::anyhow!("the store is not shared"));
    let streams = (0..count).map(subscribe).collect::<anyhow::Result<Vec<_>>>()?;
    let events = watcher(api(job)?, kube_config(job)).default_backoff().reflect_shared(writer);
    tokio::spawn(events.for_each(|_| std::future::ready(())));
    Ok(streams.into_iter().map(|stream| KubeController::for_shared_stream(stream, reader.clone())).collect())
}
