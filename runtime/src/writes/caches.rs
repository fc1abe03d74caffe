//! A controller's caches, as its writes see them.

use std::{any::Any, collections::BTreeMap, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::{DynamicObject, ObjectMeta};

use super::request::Target;
use crate::{
    keys::{CachedState, Caches, LastAnswer, SourceId},
    object::{AnyObject, Kind, Object, ObjectKey, Version},
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

impl From<CachedTarget> for CachedState {
    fn from(cached: CachedTarget) -> Self {
        match cached {
            CachedTarget::Absent | CachedTarget::Unselected => Self::Absent,
            CachedTarget::Unknown => Self::Unknown,
            CachedTarget::Present(CachedMeta { uid, resource_version, finalizers, .. }) => {
                Self::Shown { uid, version: resource_version.parse().ok(), finalizers }
            }
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
    pub(crate) fn of(meta: ObjectMeta) -> Self {
        Self {
            uid: meta.uid.unwrap_or_default(),
            resource_version: meta.resource_version.unwrap_or_default(),
            owners: meta.owner_references.unwrap_or_default(),
            finalizers: meta.finalizers.unwrap_or_default(),
        }
    }

    /// Picks the newer of two states; the other one where they can't be compared.
    fn or_newer(self, other: Self) -> Self {
        let version = |meta: &Self| meta.resource_version.parse::<Version>();
        match (version(&self), version(&other)) {
            (Ok(own), Ok(others)) if own >= others => self,
            _ => other,
        }
    }
}

impl From<LastAnswer> for CachedMeta {
    fn from(LastAnswer { uid, resource_version, owners, .. }: LastAnswer) -> Self {
        Self { uid, resource_version, owners, finalizers: Vec::new() }
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

/// An `Arc` of a cached object, whole.
pub(crate) type Shown = Arc<dyn AnyObject>;

/// Takes a cached object as the type that is applied, if that loses nothing.
pub(super) fn whole<C: Object>(shown: Shown) -> Option<C> {
    let shown: Arc<dyn Any + Send + Sync> = shown;
    match shown.downcast::<C>() {
        Ok(object) => Some((*object).clone()),
        // A type that knows the kind only at run time holds all there is.
        Err(object) => {
            let object = object.downcast::<DynamicObject>().ok()?;
            serde_json::from_value(serde_json::to_value(&*object).ok()?).ok()
        }
    }
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
    pub(crate) compare: Box<dyn Fn(&ObjectKey) -> bool + Send + Sync>,
    /// Reports to the informers of a server that it lost its history, found at a key.
    pub(crate) report_history_loss: Box<dyn Fn(&ObjectKey) + Send + Sync>,
}

impl CacheView {
    /// Returns whether the cache is of a target's kind and namespace.
    pub(super) fn covers(&self, target: &Target) -> bool {
        self.kind.group == target.kind.group
            && self.kind.plural == target.kind.plural
            && (self.namespace.is_none() || self.namespace.as_deref() == target.key.namespace())
    }

    /// Returns whether the cache shows an object, or will show it with these labels.
    ///
    /// What was created without a name is not in any cache, and may be selected by all.
    pub(super) fn will_show(&self, target: &Target, labels: &BTreeMap<String, String>) -> bool {
        let is_selected = match &self.selects {
            Selects::Everything => true,
            Selects::Labels(selector) => selector.matches(labels),
            Selects::SomeFields => false,
        };
        is_selected
            || target.key.name().is_empty()
            || !matches!((self.look_up)(&target.key), CachedTarget::Unselected)
    }
}

/// Sources are found by their number; one that feeds a controller twice is one.
impl Caches for Vec<CacheView> {
    fn cached(&self, source: SourceId, object: &ObjectKey) -> CachedState {
        let cache = self.iter().find(|cache| cache.source == source);
        cache.map_or(CachedState::Unknown, |cache| (cache.look_up)(object).into())
    }

    fn is_open(&self, source: SourceId) -> bool {
        self.iter().find(|cache| cache.source == source).is_some_and(|cache| (cache.is_open)())
    }
}
