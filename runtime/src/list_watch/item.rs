//! What goes from the source to the cache: an object, its bytes, or a report that it could not be read.

use std::sync::Arc;

use super::{error::Unreadable, raw::RawObject};
use crate::object::{Object, ObjectKey, Version};

/// One object on its way to the cache.
#[derive(Debug)]
pub enum FetchedItem<K> {
    /// Decoded; unshared until it is queued, so that a transform may change it in place.
    Object(Arc<K>),
    /// Kept as bytes, decoded when it is read (compact informers).
    Raw(Box<RawObject>),
    /// It exists, but could not be read.
    Unreadable(Box<Unreadable>),
}

impl<K> FetchedItem<K> {
    /// Copies a readable item; the copy shares the object.
    pub(crate) fn copy(&self) -> Option<Self> {
        match self {
            Self::Object(object) => Some(Self::Object(object.clone())),
            Self::Raw(raw) => Some(Self::Raw(raw.clone())),
            Self::Unreadable(_) => None,
        }
    }
}

impl<K: Object> FetchedItem<K> {
    /// Returns whether its key can be read.
    pub(crate) fn is_named(&self) -> bool {
        match self {
            Self::Object(object) => object.meta().name.as_ref().is_some_and(|name| !name.is_empty()),
            Self::Raw(_) => true,
            Self::Unreadable(unreadable) => unreadable.identity.key.is_some(),
        }
    }

    /// Returns the key; `None` for an item whose identity can't be read.
    pub fn key(&self) -> Option<ObjectKey> {
        match self {
            Self::Object(object) => ObjectKey::of_meta(object.meta()),
            Self::Raw(raw) => Some(raw.key.clone()),
            Self::Unreadable(unreadable) => unreadable.identity.key.clone(),
        }
    }

    /// Returns the UID, where there is one.
    pub fn uid(&self) -> Option<&str> {
        match self {
            Self::Object(object) => object.meta().uid.as_deref(),
            Self::Raw(raw) => raw.text.uid(),
            Self::Unreadable(unreadable) => unreadable.identity.uid.as_deref(),
        }
    }

    /// Returns the resource version, where there is one.
    pub fn resource_version(&self) -> Option<&str> {
        match self {
            Self::Object(object) => object.meta().resource_version.as_deref(),
            Self::Raw(raw) => raw.text.resource_version(),
            Self::Unreadable(unreadable) => unreadable.identity.resource_version.as_deref(),
        }
    }

    /// Returns the resource version, where it can be compared.
    pub(crate) fn version(&self) -> Option<Version> {
        self.resource_version()?.parse().ok()
    }
}
