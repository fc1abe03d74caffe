//! Builds an informer on sources of any sort, without a factory.

use std::sync::Arc;

use super::{core::InformerParts, reflector_task::ReflectorTask, shared::SharedInformer, watched::Watched};
use crate::{
    delta_fifo::{Extent, Transform, Transformed},
    list_watch::{ListerWatcher, TypedSource},
    object::{AnyObject, Kind, Scope},
    reflector::{ReflectorConfig, WatchError, WatchErrorHandler},
    store::{DuplicateIndex, IndexDefinition},
};

type SourceFn = Box<dyn FnOnce(ReflectorConfig) -> ReflectorTask + Send>;

/// Puts an informer together from sources: the user's own, or `ClientListWatch` without a factory.
///
/// It offers everything a factory-built informer does, and is shared only through clones.
///
/// ```
/// # use watchkeeper::{informer::Assembly, list_watch::ListerWatcher, reflector::{FirstList, ReflectorConfig}};
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # fn assembled(shop: impl ListerWatcher<ConfigMap>, farm: impl ListerWatcher<ConfigMap>) {
/// let informer = Assembly::<ConfigMap>::new(&())
///     .namespace("shop", shop)
///     .namespace("farm", farm)
///     .config(ReflectorConfig { first_list: FirstList::Paged, ..ReflectorConfig::default() })
///     .transform(|map: &mut ConfigMap| map.binary_data = None)
///     .build()
///     .expect("two sources, two namespaces");
/// # }
/// ```
#[must_use = "nothing is watched until the informer is built and started"]
pub struct Assembly<W: Watched> {
    kind: Kind,
    sources: Vec<(Extent, SourceFn)>,
    config: ReflectorConfig,
    transform: Option<Transform<dyn AnyObject>>,
    indexes: Vec<IndexDefinition<W::Object>>,
    on_error: Vec<WatchErrorHandler>,
}

/// Why the parts make no informer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AssemblyError {
    /// The informer has no source.
    #[error("an informer of {0} needs a source: one for everything, or one a namespace")]
    NoSource(Kind),
    /// Two sources would fill one part of the cache.
    #[error("two sources fill what there is of {kind} {extent}: one source a part")]
    Overlap {
        /// What is watched.
        kind: Kind,
        /// The part that both fill.
        extent: Extent,
    },
    /// A namespace of a cluster-scoped kind.
    #[error(
        "{kind} is cluster-scoped, so that no object of it is in namespace {namespace}: say `everywhere`"
    )]
    ClusterScoped {
        /// What is watched.
        kind: Kind,
        /// The namespace that was asked for.
        namespace: Arc<str>,
    },
    /// Two indexes bear one name.
    #[error(transparent)]
    Index(#[from] DuplicateIndex),
}

impl<W: Watched> Assembly<W> {
    /// Begins with the indexes that come with the type; `dynamic_type` is `()` for typed kinds.
    pub fn new(dynamic_type: &W::DynamicType) -> Self {
        Self {
            kind: W::kind_of(dynamic_type),
            sources: Vec::new(),
            config: ReflectorConfig::default(),
            transform: None,
            indexes: Vec::new(),
            on_error: Vec::new(),
        }
    }

    /// Fills the whole cache from one source.
    pub fn everywhere(self, source: impl ListerWatcher<W::Object>) -> Self {
        self.extent(Extent::All, source)
    }

    /// Fills a namespace of the cache from a source that holds nothing else; several are merged into one cache.
    pub fn namespace(self, namespace: impl Into<Arc<str>>, source: impl ListerWatcher<W::Object>) -> Self {
        self.extent(Extent::Namespace(namespace.into()), source)
    }

    /// Says how the sources are listed and watched; by default as any server is.
    ///
    /// A source that can't stream its first list wants [`FirstList::Paged`](crate::reflector::FirstList).
    pub fn config(mut self, config: ReflectorConfig) -> Self {
        self.config = config;
        self
    }

    /// Changes each object before it is cached; one that fails hides the object: see [`Transform`].
    pub fn transform<T: Transformed>(
        mut self,
        change: impl Fn(&mut W::Object) -> T + Send + Sync + 'static,
    ) -> Self {
        self.transform = Some(Transform::new(change).erased());
        self
    }

    /// Adds an index to those that come with the type.
    pub fn index(mut self, definition: IndexDefinition<W::Object>) -> Self {
        self.indexes.push(definition);
        self
    }

    /// Calls a function at every failure to list or watch, besides the configuration's handler or the log.
    pub fn on_watch_error(mut self, handler: impl Fn(&WatchError) + Send + Sync + 'static) -> Self {
        self.on_error.push(Arc::new(handler));
        self
    }

    /// Builds the informer; nothing runs before its [`start`](SharedInformer::start).
    ///
    /// # Errors
    /// No source is given, two sources fill one part of the cache, a source fills a namespace of a cluster-scoped kind, or
    /// two indexes bear one name.
    pub fn build(self) -> Result<SharedInformer<W>, AssemblyError> {
        self.check()?;
        let config = self.config.named(|| self.kind.to_string());
        let parts = InformerParts::new::<W>(self.kind, &config);
        // One resync shows all of the cache again.
        let resync = config.resync;
        let config = |at: usize| ReflectorConfig { resync: resync.filter(|_| at == 0), ..config.clone() };
        let feeds =
            self.sources.into_iter().enumerate().map(|(at, (_, source))| source(config(at))).collect();
        let informer = SharedInformer::of_parts(InformerParts { feeds, transform: self.transform, ..parts });
        for definition in self.indexes {
            informer.add_index(definition)?;
        }
        self.on_error.into_iter().for_each(|handler| informer.handle().core.health.add_handler(handler));
        Ok(informer)
    }

    fn extent(mut self, extent: Extent, source: impl ListerWatcher<W::Object>) -> Self {
        let fed = extent.clone();
        self.sources.push((
            extent,
            Box::new(move |config| ReflectorTask::new(fed, TypedSource::new(source), config)),
        ));
        self
    }

    fn check(&self) -> Result<(), AssemblyError> {
        let Some((first, _)) = self.sources.first() else {
            return Err(AssemblyError::NoSource(self.kind.clone()));
        };
        let mut namespaces = self.sources.iter().filter_map(|(extent, _)| match extent {
            Extent::Namespace(namespace) if self.kind.scope == Scope::Cluster => Some(namespace),
            _ => None,
        });
        if let Some(namespace) = namespaces.next().cloned() {
            return Err(AssemblyError::ClusterScoped { kind: self.kind.clone(), namespace });
        }
        for (at, (extent, _)) in self.sources.iter().enumerate().skip(1) {
            let taken = self.sources[..at].iter().any(|(other, _)| other == extent);
            if taken || *extent == Extent::All || *first == Extent::All {
                return Err(AssemblyError::Overlap { kind: self.kind.clone(), extent: extent.clone() });
            }
        }
        Ok(())
    }
}

impl_debug!([W: Watched] Assembly<W>, this =>
    kind: this.kind, extents: this.sources.iter().map(|(extent, _)| extent).collect::<Vec<_>>()
);

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Namespace;

    use super::*;
    use crate::list_watch::{ListOptions, ListPage, ListWatchError, WatchStream};

    struct Nothing;

    impl ListerWatcher<Namespace> for Nothing {
        async fn list(&self, _: &ListOptions) -> Result<ListPage<Namespace>, ListWatchError> {
            Err(ListWatchError::CutShort)
        }

        async fn watch(&self, _: &ListOptions) -> Result<WatchStream<Namespace>, ListWatchError> {
            Err(ListWatchError::CutShort)
        }
    }

    // I28
    #[test]
    fn a_namespace_of_a_cluster_scoped_kind_is_refused() {
        let assembled = Assembly::<Namespace>::new(&()).namespace("shop", Nothing).build();
        let refused = assembled.err().map(|error| error.to_string());
        let rule =
            "namespaces is cluster-scoped, so that no object of it is in namespace shop: say `everywhere`";
        assert_eq!(refused.as_deref(), Some(rule));
    }
}
