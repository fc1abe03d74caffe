//! Requests: the part of a write that webhooks see.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::identity::User;
use crate::kinds::{Reach, Resource, Served};
use crate::object;

/// The group of configurations and policies.
pub(super) const GROUP: &str = "admissionregistration.k8s.io";

/// The operation on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// It is made.
    Create,
    /// It is changed.
    Update,
    /// It goes.
    Delete,
}

impl Operation {
    /// Returns the word of the API.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }

    fn options(self) -> &'static str {
        match self {
            Self::Create => "CreateOptions",
            Self::Update => "UpdateOptions",
            Self::Delete => "DeleteOptions",
        }
    }
}

/// Whether a write is only tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trial {
    /// It is kept.
    Real,
    /// `dryRun=All`.
    DryRun,
}

/// The write that webhooks are called for.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// The resource.
    pub(crate) resource: Arc<Resource>,
    /// The version of the request; objects are in it.
    pub(crate) served: Arc<Served>,
    /// The subresource; empty for the object itself.
    pub(crate) subresource: String,
    /// Group, version and kind of the objects, if they differ from the resource's own.
    pub(crate) kind: Option<[&'static str; 3]>,
    /// The namespace; empty if there isn't any.
    pub(crate) namespace: String,
    /// The name; empty if the server generates it.
    pub(crate) name: String,
    /// The operation.
    pub(crate) operation: Operation,
    /// The user.
    pub(crate) user: User,
    /// Whether it is only tried.
    pub(crate) trial: Trial,
    /// The field manager, if the request names one.
    pub(crate) manager: Option<String>,
    /// The object as it was.
    pub(crate) old: Option<Value>,
}

impl Asked {
    fn is_subresource(&self) -> bool {
        self.kind.is_some()
    }

    /// Returns whether objects of it live in namespaces.
    pub(super) fn is_namespaced(&self) -> bool {
        self.resource.reach == Reach::Namespaced
    }

    /// Returns whether it is a namespace itself.
    pub(super) fn is_namespace(&self) -> bool {
        self.resource.built_in().is_some_and(|row| row.kind == "Namespace")
    }

    /// Returns the versions that a rule may name: the request's first, then those an object can be shown in.
    pub(super) fn versions(&self) -> Vec<Arc<Served>> {
        let others = self.resource.versions.iter().filter(|served| served.served);
        let others = others.filter(|served| served.version != self.served.version && !self.is_subresource());
        std::iter::once(&self.served).chain(others).cloned().collect()
    }

    /// Returns whether a webhook turns the objects into another version.
    pub(super) fn is_converted(&self, version: &Served) -> bool {
        !self.is_subresource() && version.version != self.served.version && version.conversion.is_some()
    }

    /// Shows an object in another version.
    pub(super) fn shown(&self, object: &Value, in_version: &Served) -> Value {
        if in_version.version == self.served.version {
            return object.clone();
        }
        let stored = self.served.unshow(object.clone(), self.resource.storage_version());
        in_version.show(&stored).into_owned()
    }

    /// Takes an object back from another version.
    pub(super) fn taken_back(&self, object: Value, from: &Served) -> Value {
        if from.version == self.served.version {
            return object;
        }
        let stored = from.unshow(object, self.resource.storage_version());
        self.served.show(&stored).into_owned()
    }

    /// Writes the `request` of a review but for its uid.
    pub(super) fn request(&self, in_version: &Served, object: Option<&Value>) -> Value {
        let show = |value: &Value| {
            if self.is_subresource() { value.clone() } else { self.shown(value, in_version) }
        };
        self.request_of(in_version, object.map(show), self.old.as_ref().map(show))
    }

    /// Writes the `request` of a review for objects that are in its version.
    pub(super) fn request_of(&self, in_version: &Served, object: Option<Value>, old: Option<Value>) -> Value {
        let kind = |served: &Served| match self.kind {
            Some([group, version, kind]) => json!({"group": group, "version": version, "kind": kind}),
            None => json!({"group": served.group, "version": served.version, "kind": served.kind}),
        };
        let resource = |served: &Served| json!({"group": self.resource.group(), "version": served.version, "resource": self.resource.plural()});
        let mut options = json!({"kind": self.operation.options(), "apiVersion": "meta.k8s.io/v1"});
        if self.trial == Trial::DryRun {
            options["dryRun"] = json!(["All"]);
        }
        if let Some(manager) = self.manager.as_ref().filter(|_| self.operation != Operation::Delete) {
            options["fieldManager"] = manager.as_str().into();
        }
        let mut user = json!({"username": self.user.name(), "groups": self.user.groups()});
        if !self.user.uid().is_empty() {
            user["uid"] = self.user.uid().into();
        }
        if let Some(extra) = self.user.extra() {
            user["extra"] = json!(extra);
        }
        let mut request = json!({
            "kind": kind(in_version), "resource": resource(in_version), "requestKind": kind(&self.served),
            "requestResource": resource(&self.served), "operation": self.operation.as_str(), "userInfo": user,
            "object": object, "oldObject": old,
            "dryRun": self.trial == Trial::DryRun, "options": options,
        });
        if !self.subresource.is_empty() {
            request["subResource"] = self.subresource.as_str().into();
            request["requestSubResource"] = self.subresource.as_str().into();
        }
        for (key, text) in [("name", &self.name), ("namespace", &self.namespace)] {
            if !text.is_empty() {
                request[key] = text.as_str().into();
            }
        }
        request
    }

    /// Returns whether an object kept its namespace and name; a created one may get another name.
    pub(super) fn may_become(&self, before: &Value, after: &Value) -> bool {
        let named = self.operation == Operation::Create || object::name(before) == object::name(after);
        named && object::namespace(before) == object::namespace(after)
    }
}
