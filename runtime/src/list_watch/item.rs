//! What travels from the source to the cache: an object, its bytes, or word that it could not be read.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::raw::RawObject;
use crate::object::{Object, ObjectKey};

/// One object on its way to the cache; two words, since it is handed on several times.
#[derive(Debug)]
pub enum Item<K> {
    /// Decoded; unshared until it is queued, so that a transform may change it in place.
    Object(Arc<K>),
    /// Kept as bytes, decoded when somebody reads it (compact informers).
    Raw(Box<RawObject>),
    /// There, but could not be read.
    Unreadable(Box<Unreadable>),
}

/// Who an object is, as far as that could be read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Identity {
    /// Name and namespace; `None` where not even these could be read.
    ///
    /// A list with such an item infers no deletions, and an event with one asks for a list.
    pub key: Option<ObjectKey>,
    /// The UID.
    pub uid: Option<String>,
    /// The resource version.
    pub resource_version: Option<String>,
    /// When deletion was asked for, as RFC 3339 text.
    pub deletion_timestamp: Option<String>,
    /// The finalizers that hold it.
    pub finalizers: Vec<String>,
    /// The owners.
    pub owners: Vec<OwnerReference>,
}

/// An object that is there but could not be read: a decode error, or a transform that failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Unreadable {
    /// Who it is, as far as that could be read.
    pub identity: Identity,
    /// Why, with the path inside the object where that is known; never the object's content.
    pub error: String,
}

impl<K: Object> Item<K> {
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
}
