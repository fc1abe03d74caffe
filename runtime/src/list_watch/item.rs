//! What goes from the source to the cache: an object, its bytes, or a report that it could not be read.

use std::sync::Arc;

use super::{error::Unreadable, raw::RawObject};
use crate::object::{AnyObject, Object, ObjectKey, Version, downcast};

/// One object on its way to the cache.
#[derive(Debug)]
pub enum FetchedItem<K: ?Sized> {
    /// Decoded; unshared until it is queued, so that a transform may change it in place.
    Object(Arc<K>),
    /// Kept as bytes, decoded when it is read (compact informers).
    Raw(Box<RawObject>),
    /// It exists, but could not be read.
    Unreadable(Box<Unreadable>),
}

/// An item whose type is forgotten.
pub(crate) type AnyItem = FetchedItem<dyn AnyObject>;

impl<K: Object> FetchedItem<K> {
    /// Forgets the type.
    pub(crate) fn erased(self) -> AnyItem {
        self.map(|object| object as Arc<dyn AnyObject>)
    }
}

impl AnyItem {
    /// Takes an item as what it is.
    pub(crate) fn typed<K: Object>(self) -> FetchedItem<K> {
        self.map(downcast)
    }
}

impl<K: ?Sized> FetchedItem<K> {
    fn map<J: ?Sized>(self, object: impl FnOnce(Arc<K>) -> Arc<J>) -> FetchedItem<J> {
        match self {
            Self::Object(known) => FetchedItem::Object(object(known)),
            Self::Raw(raw) => FetchedItem::Raw(raw),
            Self::Unreadable(unreadable) => FetchedItem::Unreadable(unreadable),
        }
    }

    /// Copies a readable item; the copy shares the object.
    pub(crate) fn copy(&self) -> Option<Self> {
        (!matches!(self, Self::Unreadable(_))).then(|| self.clone())
    }
}

impl<K: AnyObject + ?Sized> FetchedItem<K> {
    /// Returns whether its key can be read.
    pub(crate) fn is_named(&self) -> bool {
        match self {
            Self::Object(object) => object.metadata().name.as_ref().is_some_and(|name| !name.is_empty()),
            Self::Raw(_) => true,
            Self::Unreadable(unreadable) => unreadable.identity.key.is_some(),
        }
    }

    /// Returns the key; `None` for an item whose identity can't be read.
    pub fn key(&self) -> Option<ObjectKey> {
        match self {
            Self::Object(object) => ObjectKey::of_meta(object.metadata()),
            Self::Raw(raw) => Some(raw.key.clone()),
            Self::Unreadable(unreadable) => unreadable.identity.key.clone(),
        }
    }

    /// Returns the UID, where there is one.
    pub fn uid(&self) -> Option<&str> {
        match self {
            Self::Object(object) => object.metadata().uid.as_deref(),
            Self::Raw(raw) => raw.text.uid(),
            Self::Unreadable(unreadable) => unreadable.identity.uid.as_deref(),
        }
    }

    /// Returns the resource version, where there is one.
    pub fn resource_version(&self) -> Option<&str> {
        match self {
            Self::Object(object) => object.metadata().resource_version.as_deref(),
            Self::Raw(raw) => raw.text.resource_version(),
            Self::Unreadable(unreadable) => unreadable.identity.resource_version.as_deref(),
        }
    }

    /// Returns the resource version, where it can be compared.
    pub(crate) fn version(&self) -> Option<Version> {
        self.resource_version()?.parse().ok()
    }
}

/// The copy shares the object.
impl<K: ?Sized> Clone for FetchedItem<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Object(object) => Self::Object(object.clone()),
            Self::Raw(raw) => Self::Raw(raw.clone()),
            Self::Unreadable(unreadable) => Self::Unreadable(unreadable.clone()),
        }
    }
}
