//! What feeds a controller from another cluster.

use std::sync::Arc;

use super::{
    Controller,
    cluster::ClusterKind,
    enqueue::{EnqueueRelated, Mapping},
    predicate::Predicate,
    sources::{ForeignSource, Synced},
};
use crate::{
    informer::{Marker, Watched, name_of},
    object::ObjectKey,
};

impl<K: Marker, R> Controller<K, R> {
    /// Watches a kind of another cluster, and enqueues the keys that a function returns for each object that changes.
    ///
    /// As [`watches`](Self::watches) does, but for this:
    ///
    /// - Every change counts as somebody else's. Nothing is compared with that cache: not what the controller writes, nor
    ///   owners, nor versions. An object there that has the name of one here is another object.
    /// - The controller's [namespaces](Self::namespace) do not count there.
    /// - It starts only once that cache has synced as well. Later it goes on with what it has while that cluster is out of
    ///   reach, also as a new leader; `/readyz?verbose` says so.
    ///
    /// The cluster must be one of the manager that runs the controller: another is refused at the start.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # use watchkeeper::prelude::*;
    /// # fn copied<R: Reconciler<Secret>>(manager: Manager, hub: kube::Client, reconciler: R) -> Manager {
    /// let hub = manager.cluster("hub", hub);
    /// let settings = hub.kind::<ConfigMap>().namespace("settings");
    /// manager.controller(
    ///     Controller::<Secret, _>::new(reconciler)
    ///         .watches_from(settings, |map| vec![ObjectKey::new("shop", map.name_any())]),
    /// )
    /// # }
    /// ```
    pub fn watches_from<W: Watched>(
        self,
        kind: ClusterKind<W>,
        mapping: impl Fn(&W::Object) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Self {
        self.related_from(kind, None, mapping)
    }

    /// Watches a kind of another cluster, and maps only the changes that pass.
    pub fn watches_from_if<W: Watched>(
        self,
        kind: ClusterKind<W>,
        predicate: Predicate<W::Object>,
        mapping: impl Fn(&W::Object) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Self {
        self.related_from(kind, Some(predicate), mapping)
    }

    fn related_from<W: Watched>(
        mut self,
        kind: ClusterKind<W>,
        predicate: Option<Predicate<W::Object>>,
        mapping: impl Fn(&W::Object) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Self {
        self.definition.clusters.push(kind.cluster().clone());
        let (informer, relation) = (kind.built(), Arc::new(Mapping(mapping)));
        let kind: Arc<str> = name_of(informer.kind(), informer.cluster().as_deref()).into();
        self.definition.foreign_sources.push(ForeignSource::of(informer, move |enqueuer| {
            EnqueueRelated::new(enqueuer, None, kind.clone(), relation.clone(), predicate.clone())
        }));
        self
    }

    /// Says that the reconciler reads a kind of another cluster: it starts only after that has synced.
    ///
    /// As [`reads`](Self::reads) does for the manager's own: with either, nothing else is waited for.
    pub fn reads_from<W: Watched>(mut self, kind: ClusterKind<W>) -> Self {
        self.definition.clusters.push(kind.cluster().clone());
        let informer: Arc<dyn Synced> = Arc::new(kind.built());
        self.definition.reads.push(Box::new(move |_, _| vec![(None, informer)]));
        self
    }
}
