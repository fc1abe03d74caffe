//! An object that the reconciled one is to own: where it goes, what it says, and whose it is already.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};

use super::{
    WriteError,
    caches::CachedMeta,
    owner::{Owner, OwnerRole},
    request::Target,
};
use crate::object::{Kind, Object, ObjectKey, Scope};

/// What to do with an object that exists and that is not the owner's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Adoption {
    Refuse,
    TakeOver,
}

/// Who chooses the child's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Naming {
    /// The caller.
    Given,
    /// The caller, or the server from `generateName`.
    Generated,
}

/// What is written on behalf of the reconciled object, which owns it or not.
#[derive(Clone)]
pub(super) struct Child<C> {
    pub(super) owner: Owner,
    pub(super) ownership: OwnerRole,
    pub(super) kind: Kind,
    pub(super) object: C,
}

impl<C: Object> Child<C> {
    /// Says what is written, and refuses what Kubernetes forbids.
    pub(super) fn target(&self, naming: Naming) -> Result<Target, WriteError> {
        let kind = self.kind.clone();
        let meta = self.object.meta();
        let name = meta.name.clone().unwrap_or_default();
        let given = meta.namespace.as_deref().unwrap_or_default();
        let namespace = match kind.scope {
            Scope::Cluster => "",
            Scope::Namespaced if given.is_empty() => self.owner.key.namespace().unwrap_or_default(),
            Scope::Namespaced => given,
        };
        let generated = naming == Naming::Generated && meta.generate_name.is_some();
        let scope = kind.scope;
        let target = Target { kind, key: ObjectKey::new(namespace, name) };
        let object = Box::new(target.clone());
        let forbidden = |rule| {
            Err(WriteError::ForbiddenOwner { object: object.clone(), owner: self.owner.named(), rule })
        };
        match scope {
            _ if self.owner.uid.is_empty() && self.ownership != OwnerRole::None => {
                Err(WriteError::OwnerGone { object, owner: self.owner.named() })
            }
            _ if target.key.name().is_empty() && !generated => {
                Err(WriteError::Unnamed { object, missing: "metadata.name" })
            }
            Scope::Namespaced if namespace.is_empty() => {
                Err(WriteError::Unnamed { object, missing: "metadata.namespace" })
            }
            _ if self.ownership == OwnerRole::None => Ok(target),
            Scope::Cluster if !self.owner.is_cluster_scoped() => {
                forbidden("a namespaced object can't own a cluster-scoped one; apply it `.unowned()`")
            }
            Scope::Namespaced
                if !self.owner.is_cluster_scoped() && self.owner.key.namespace() != Some(namespace) =>
            {
                forbidden("an owner and what it owns live in one namespace; apply it `.unowned()`")
            }
            _ => Ok(target),
        }
    }

    fn owner_reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: self.owner.kind.api_version(),
            kind: self.owner.kind.kind.to_string(),
            name: self.owner.key.name().to_owned(),
            uid: self.owner.uid.clone(),
            controller: Some(self.ownership == OwnerRole::Controls),
            block_owner_deletion: Some(true),
        }
    }

    /// Adds the reference to the owner, where there is to be one.
    ///
    /// One of several owners keeps the others of its kind: all are applied by the same field manager, which loses what
    /// it leaves out.
    fn add_owner(&self, owners: &mut Vec<OwnerReference>, found: Option<&CachedMeta>) {
        if self.ownership == OwnerRole::None {
            return;
        }
        let reference = self.owner_reference();
        let others = |other: &&OwnerReference| {
            self.ownership == OwnerRole::Shares
                && other.controller != Some(true)
                && self.owner.kind.is_named_by(&other.api_version, &other.kind)
        };
        owners.extend(found.into_iter().flat_map(|found| &found.owners).filter(others).cloned());
        owners.retain(|owner| owner.uid != reference.uid);
        owners.push(reference);
        if self.ownership == OwnerRole::Shares {
            owners.sort_by(|one, other| one.uid.cmp(&other.uid));
            owners.dedup_by(|one, other| one.uid == other.uid);
        }
    }

    /// Builds the object as it is sent to where one was found or not, without UID and version.
    pub(super) fn intent(
        &self,
        verb: &'static str,
        target: &Target,
        found: Option<&CachedMeta>,
    ) -> Result<Value, WriteError> {
        let mut child = self.object.clone();
        let meta = child.meta_mut();
        meta.namespace = target.key.namespace().map(str::to_owned);
        meta.managed_fields = None;
        meta.uid = None;
        meta.resource_version = None;
        let mut owners = meta.owner_references.take().unwrap_or_default();
        self.add_owner(&mut owners, found);
        meta.owner_references = Some(owners).filter(|owners| !owners.is_empty());
        let mut intent = encode(verb, target, &child)?;
        intent["apiVersion"] = json!(target.kind.api_version());
        intent["kind"] = json!(target.kind.kind);
        Ok(intent)
    }

    /// Refuses to touch what this owner does not control, or what another one does.
    pub(super) fn check(
        &self,
        target: &Target,
        found: &CachedMeta,
        adoption: Adoption,
    ) -> Result<(), WriteError> {
        let owner = &self.owner;
        let (object, named) = (Box::new(target.clone()), owner.named());
        let controller = found.owners.iter().find(|reference| reference.controller == Some(true));
        match controller {
            Some(reference) if reference.uid == owner.uid => Ok(()),
            None if self.ownership != OwnerRole::Controls => Ok(()),
            Some(reference)
                if owner.kind.is_named_by(&reference.api_version, &reference.kind)
                    && reference.name == owner.key.name() =>
            {
                Err(WriteError::EarlierOwner { object, owner: named })
            }
            _ if adoption == Adoption::TakeOver => Ok(()),
            other => {
                let controller = other.map(|reference| Box::new(reference.clone()));
                Err(WriteError::NotControlled { object, owner: named, controller })
            }
        }
    }
}

/// Names the child, and shows nothing of its content.
impl<C: Object> fmt::Debug for Child<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Child")
            .field("owner", &self.owner)
            .field("kind", &self.kind)
            .field("name", &self.object.meta().name)
            .finish_non_exhaustive()
    }
}

pub(super) fn encode(
    verb: &'static str,
    target: &Target,
    object: &impl serde::Serialize,
) -> Result<Value, WriteError> {
    serde_json::to_value(object).map_err(|error| WriteError::Codec {
        verb,
        object: Box::new(target.clone()),
        problem: format!("can't be written as JSON: {error}"),
    })
}

/// Decodes an answer; what does not fit is said without the content it was met in.
pub(super) fn decode<C: Object>(verb: &'static str, target: &Target, answer: Value) -> Result<C, WriteError> {
    serde_json::from_value(answer).map_err(|error| WriteError::Codec {
        verb,
        object: Box::new(target.clone()),
        problem: format!(
            "the answer does not decode: {:?} at line {}, column {}",
            error.classify(),
            error.line(),
            error.column()
        ),
    })
}
