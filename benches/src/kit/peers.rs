//! Caches of both Rust sides, under way.

use futures::StreamExt;
use watchkeeper::{
    SharedInformer, SharedInformerFactory,
    kube::{
        Api,
        runtime::{WatchStreamExt, reflector, reflector::Store, watcher},
    },
};

use super::client;
use crate::{
    gadget::Gadget,
    job::{Job, Mode},
};

/// watchkeeper's factory on the load generator.
pub(crate) fn factory(job: &Job) -> anyhow::Result<SharedInformerFactory> {
    Ok(SharedInformerFactory::new(client(job)?))
}

/// watchkeeper's informer of gadgets, listed as the job says.
pub(crate) fn informer(job: &Job, factory: &SharedInformerFactory) -> SharedInformer<Gadget> {
    let builder = factory.informer::<Gadget>();
    match job.mode {
        Mode::Paged => builder.page_size(500),
        Mode::AnyVersion => builder.any_version(),
        _ => builder,
    }
    .build()
}

/// kube-rs's handle on gadgets.
pub(super) fn api(job: &Job) -> anyhow::Result<Api<Gadget>> {
    Ok(Api::all(client(job)?))
}

/// kube-rs's way to list, as the job says; pages unless told otherwise.
pub(super) fn kube_config(job: &Job) -> watcher::Config {
    match job.mode {
        Mode::Streaming => watcher::Config::default().streaming_lists(),
        Mode::AnyVersion => watcher::Config::default().any_semantic(),
        _ => watcher::Config::default(),
    }
}

/// kube-rs's reflector with one handler of all changes, in a task of its own.
pub(crate) struct KubeCache {
    pub(crate) store: Store<Gadget>,
}

impl KubeCache {
    /// Starts it.
    pub(crate) fn start(
        job: &Job,
        mut handler: impl FnMut(&Gadget) + Send + 'static,
    ) -> anyhow::Result<Self> {
        let (store, writer) = reflector::store();
        let events = watcher(api(job)?, kube_config(job)).default_backoff();
        let mut changes = Box::pin(reflector(writer, events).touched_objects());
        tokio::spawn(async move {
            while let Some(change) = changes.next().await {
                if let Ok(object) = change {
                    handler(&object);
                }
            }
        });
        Ok(Self { store })
    }

    /// Waits for the first list.
    pub(crate) async fn synced(&self) -> anyhow::Result<()> {
        Ok(self.store.wait_until_ready().await?)
    }

    /// Counts the objects.
    pub(crate) fn len(&self) -> usize {
        self.store.state().len()
    }
}
