//! A controller's caches, as its writes see them.

use std::{any::Any, collections::BTreeMap, fmt, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;
use serde_json::Value;

use super::request::Target;
use crate::{
    informer::Comparison,
    keys::{CachedState, Caches, SourceId},
    object::{Kind, ObjectKey, Version},
    store::Selector,
};

/// What the caches say of an object that is about to be written.
#[derive(Debug)]
pub(crate) enum CachedTarget {
    /// The cache is synced and holds no such object.
    Absent,
    /// The same, but there may be one that is not selected.
    Unselected,
    /// The cache can't say: not synced, or the object is unreadable.
    Unknown,
    /// The cached state.
    Present(CachedMeta),
}

impl CachedTarget {
    /// Sums up two caches: what either shows, then that it is absent from one that would show it.
    pub(super) fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Present(one), Self::Present(other)) => Self::Present(one.or_newer(other)),
            (present @ Self::Present(_), _) | (_, present @ Self::Present(_)) => present,
            (Self::Absent, _) | (_, Self::Absent) => Self::Absent,
            (Self::Unselected, Self::Unselected) => Self::Unselected,
            _ => Self::Unknown,
        }
    }
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

    /// Picks the newer of two states; the other one where they can't be compared.
    pub(super) fn or_newer(self, other: Self) -> Self {
        let version = |meta: &Self| meta.resource_version.parse::<Version>();
        match (version(&self), version(&other)) {
            (Ok(own), Ok(others)) if own >= others => self,
            _ => other,
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
    pub(super) fn is_everything(&self) -> bool {
        matches!(self, Self::Everything)
    }

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

type LookUp = Box<dyn Fn(&ObjectKey) -> CachedTarget + Send + Sync>;
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
    /// Returns whether its watch is open.
    pub(crate) is_open: Box<dyn Fn() -> bool + Send + Sync>,
    /// Relists the part that holds a key, to compare.
    pub(crate) compare: Box<dyn Fn(&ObjectKey) -> Comparison + Send + Sync>,
    /// Reports to the informers of a server that it lost its history, found at a key.
    pub(crate) report_history_loss: Box<dyn Fn(&ObjectKey) + Send + Sync>,
}

impl CacheView {
    pub(crate) fn covers(&self, target: &Target) -> bool {
        self.is_of(&target.kind)
            && (self.namespace.is_none() || self.namespace.as_deref() == target.key.namespace())
    }

    /// Returns whether the cache shows an object, or will show it with these labels.
    pub(super) fn will_show(&self, target: &Target, labels: &BTreeMap<String, String>) -> bool {
        !matches!((self.look_up)(&target.key), CachedTarget::Unselected) || self.selects.shows(labels)
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
    fn cached(&self, source: SourceId, object: &ObjectKey) -> CachedState {
        let Some(cache) = self.iter().find(|cache| cache.source == source) else {
            return CachedState::Unknown;
        };
        match (cache.look_up)(object) {
            CachedTarget::Absent | CachedTarget::Unselected => CachedState::Absent,
            CachedTarget::Unknown => CachedState::Unknown,
            CachedTarget::Present(CachedMeta { uid, resource_version, finalizers, .. }) => {
                CachedState::Shown { uid, version: resource_version.parse::<Version>().ok(), finalizers }
            }
        }
    }

    fn is_open(&self, source: SourceId) -> bool {
        self.iter().find(|cache| cache.source == source).is_some_and(|cache| (cache.is_open)())
    }
}
