//! Caches of both Rust sides, under way.

use std::fmt;

use futures::StreamExt;
use serde::de::DeserializeOwned;
use watchkeeper::{
    SharedInformer, SharedInformerFactory, Watched,
    kube::{
        Api, Resource,
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
    informer_of(job, factory)
}

/// watchkeeper's informer of a kind, listed and kept as the job says.
pub(crate) fn informer_of<W: Watched<DynamicType = ()>>(
    job: &Job,
    factory: &SharedInformerFactory,
) -> SharedInformer<W> {
    let builder = factory.informer::<W>();
    match job.mode {
        Mode::Compact => builder.compact(),
        Mode::Paged => builder.page_size(500),
        Mode::AnyVersion => builder.any_version(),
        _ => builder,
    }
    .build()
}

/// kube-rs's handle on a kind.
pub(super) fn api<K: Peer>(job: &Job) -> anyhow::Result<Api<K>> {
    Ok(Api::all(client(job)?))
}

/// How kube-rs lists, by the job; in pages by default.
pub(super) fn kube_config(job: &Job) -> watcher::Config {
    match job.mode {
        Mode::Streaming => watcher::Config::default().streaming_lists(),
        Mode::AnyVersion => watcher::Config::default().any_semantic(),
        _ => watcher::Config::default(),
    }
}

/// kube-rs's reflector with one handler of all changes, in its own task.
pub(crate) struct KubeCache<K: Peer = Gadget> {
    pub(crate) store: Store<K>,
}

/// The kinds that kube-rs can watch.
pub(crate) trait Peer:
    Resource<DynamicType = ()> + Clone + DeserializeOwned + fmt::Debug + Send + Sync + 'static
{
}

impl<K> Peer for K where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + fmt::Debug + Send + Sync + 'static
{
}

impl<K: Peer> KubeCache<K> {
    /// Starts it.
    pub(crate) fn start(job: &Job, mut handler: impl FnMut(&K) + Send + 'static) -> anyhow::Result<Self> {
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
