//! Who an object is, and word of one that could not be read.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::object::ObjectKey;

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
