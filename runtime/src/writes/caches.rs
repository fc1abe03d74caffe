//! A controller's caches, as its writes see them.

use std::{any::Any, collections::BTreeMap, fmt, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;
use serde_json::Value;

use super::{
    own_writes::SourceId,
    parking::{Caches, Sight, Watching},
    request::Target,
};
use crate::{
    informer::Comparison,
    object::{Kind, ObjectKey, Version},
    store::Selector,
};

/// What the caches say of an object that is about to be written.
#[derive(Debug)]
pub(crate) enum Cached {
    /// The cache is synced and holds no such object.
    Absent,
    /// The same, but there may be one that is not selected.
    Unselected,
    /// The cache can't say: not synced, or the object is unreadable.
    Unknown,
    /// The cached state.
    Present(CachedMeta),
}

/// As much of an object as a write must know beforehand.
#[derive(Clone, Debug)]
pub(crate) struct CachedMeta {
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    pub(crate) owners: Vec<OwnerReference>,
    pub(crate) finalizers: Vec<String>,
}

impl CachedMeta {
    pub(crate) fn of(meta: &ObjectMeta) -> Self {
        Self {
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            owners: meta.owner_references.clone().unwrap_or_default(),
            finalizers: meta.finalizers.clone().unwrap_or_default(),
        }
    }
}

/// Which objects of its scope a cache shows.
#[derive(Clone, Debug)]
pub(crate) enum Selects {
    Everything,
    /// Those whose labels match.
    Labels(Selector),
    /// Some; which, only the server can tell.
    SomeFields,
}

impl Selects {
    fn shows(&self, labels: &BTreeMap<String, String>) -> bool {
        match self {
            Self::Everything => true,
            Self::Labels(selector) => selector.matches(labels),
            Self::SomeFields => false,
        }
    }
}

/// A cached object, whole.
pub(crate) struct Shown {
    /// An `Arc` of the object.
    pub(crate) object: Arc<dyn Any + Send + Sync>,
    pub(crate) encode: fn(&dyn Any) -> Option<Value>,
}

type LookUp = Box<dyn Fn(&ObjectKey) -> Cached + Send + Sync>;
type Show = Box<dyn Fn(&ObjectKey) -> Option<Shown> + Send + Sync>;

/// One cache of the controller.
pub(crate) struct CacheView {
    pub(crate) source: SourceId,
    pub(crate) kind: Kind,
    /// The one namespace that it covers; `None`: all.
    pub(crate) namespace: Option<String>,
    pub(crate) selects: Selects,
    pub(crate) look_up: LookUp,
    /// Shows whole objects as they are now; `None` for caches of metadata.
    pub(crate) show: Option<Show>,
    pub(crate) watching: Box<dyn Fn() -> Watching + Send + Sync>,
    /// Lists what holds a key anew, to compare.
    pub(crate) compare: Box<dyn Fn(&ObjectKey) -> Comparison + Send + Sync>,
    /// Tells the informers of the server that it lost its history, found at a key.
    pub(crate) tell_of_loss: Box<dyn Fn(&ObjectKey) + Send + Sync>,
}

impl CacheView {
    pub(crate) fn covers(&self, target: &Target) -> bool {
        self.is_of(&target.kind)
            && (self.namespace.is_none() || self.namespace.as_deref() == target.key.namespace())
    }

    /// Tells whether the cache shows an object, or will show it with these labels.
    pub(super) fn will_show(&self, target: &Target, labels: &BTreeMap<String, String>) -> bool {
        !matches!((self.look_up)(&target.key), Cached::Unselected) || self.selects.shows(labels)
    }

    fn is_of(&self, kind: &Kind) -> bool {
        self.kind.group == kind.group && self.kind.plural == kind.plural
    }
}

impl fmt::Debug for CacheView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CacheView({})", self.kind)
    }
}

/// Sources are found by their number; one that feeds a controller twice is one.
impl Caches for Vec<CacheView> {
    fn sight(&self, source: SourceId, object: &ObjectKey) -> Sight {
        let Some(cache) = self.iter().find(|cache| cache.source == source) else { return Sight::Unknown };
        match (cache.look_up)(object) {
            Cached::Absent | Cached::Unselected => Sight::Absent,
            Cached::Unknown => Sight::Unknown,
            Cached::Present(CachedMeta { uid, resource_version, finalizers, .. }) => {
                Sight::Shown { uid, version: resource_version.parse::<Version>().ok(), finalizers }
            }
        }
    }

    fn watching(&self, source: SourceId) -> Watching {
        let cache = self.iter().find(|cache| cache.source == source);
        cache.map_or(Watching::Shut, |cache| (cache.watching)())
    }
}
