//! What an API server asks about: one operation of one user.

use std::fmt;

use k8s_openapi::api::authentication::v1::UserInfo;
use serde::Deserialize;
use serde_json::Value;

/// An operation on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    /// The object is created.
    Create,
    /// The object is changed.
    Update,
    /// The object is deleted.
    Delete,
    /// A connection to the object is opened, such as `kubectl exec`.
    Connect,
}

impl Operation {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The request that an API server asks about: operation, user, and whether it is a dry run.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    pub(super) kind: NamedKind,
    pub(super) operation: Operation,
    #[serde(default)]
    sub_resource: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    user_info: UserInfo,
    #[serde(default)]
    dry_run: Option<bool>,
    #[serde(default)]
    pub(super) object: Option<Value>,
    #[serde(default)]
    pub(super) old_object: Option<Value>,
}

/// What changes in an object's metadata when finalizers are taken off.
const CHANGES_WITH_FINALIZERS: [&str; 4] = ["finalizers", "generation", "managedFields", "resourceVersion"];

/// The kind of a request's objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct NamedKind {
    #[serde(default)]
    pub(super) group: String,
    #[serde(default)]
    pub(super) version: String,
    #[serde(default)]
    pub(super) kind: String,
}

impl fmt::Display for NamedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, version, kind } = self;
        if group.is_empty() { write!(f, "{version} {kind}") } else { write!(f, "{group}/{version} {kind}") }
    }
}

impl Request {
    /// Returns whether an object is being deleted, and all that happens is that finalizers are taken off.
    pub(super) fn only_takes_finalizers_off(&self) -> bool {
        let (Some(new), Some(old)) = (&self.object, &self.old_object) else { return false };
        let finalizers =
            |object: &Value| object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        let (left, had) = (finalizers(new), finalizers(old));
        let the_rest = |object: &Value| {
            let mut object = object.clone();
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.retain(|name, _| !CHANGES_WITH_FINALIZERS.contains(&name.as_str()));
            }
            object
        };
        self.operation == Operation::Update
            && old["metadata"]["deletionTimestamp"].is_string()
            && left.len() < had.len()
            && left.iter().all(|finalizer| had.contains(finalizer))
            && the_rest(new) == the_rest(old)
    }

    /// Returns the operation.
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// Returns who does it.
    pub fn user(&self) -> &UserInfo {
        &self.user_info
    }

    /// Returns whether the request is a dry run: nothing is stored, so nothing may be changed elsewhere.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run.unwrap_or_default()
    }

    /// Returns the subresource, such as `status` or `scale`.
    pub fn subresource(&self) -> Option<&str> {
        self.sub_resource.as_deref().filter(|name| !name.is_empty())
    }

    /// Returns the namespace of the object, if it has one.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref().filter(|namespace| !namespace.is_empty())
    }

    /// Returns the name of the object; it may be empty if the server chooses one.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }
}

/// A validated operation, with the object as it is and as it will be.
#[derive(Debug)]
pub enum Change<'a, K> {
    /// An object is created.
    Create {
        /// The object.
        new: &'a K,
    },
    /// An object is changed.
    Update {
        /// The object as it is.
        old: &'a K,
        /// The object as it will be.
        new: &'a K,
    },
    /// An object is deleted.
    Delete {
        /// The object as it is.
        old: &'a K,
    },
}

impl<K> Clone for Change<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Change<'_, K> {}

impl<'a, K> Change<'a, K> {
    /// Returns the object as it will be; for a deletion, as it is.
    pub fn object(&self) -> &'a K {
        match self {
            Self::Create { new } | Self::Update { new, .. } => new,
            Self::Delete { old } => old,
        }
    }

    /// Returns the object as it is; `None` for a creation.
    pub fn old(&self) -> Option<&'a K> {
        match self {
            Self::Create { .. } => None,
            Self::Update { old, .. } | Self::Delete { old } => Some(old),
        }
    }
}
