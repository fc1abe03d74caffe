//! An object that the reconciled one is to own: where it goes, what it says, and whose it is already.

use k8s_openapi::{api::core::v1::ObjectReference, apimachinery::pkg::apis::meta::v1::OwnerReference};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{WriteError, caches::CachedMeta, request::Target};
use crate::object::{Kind, Object, ObjectKey, Scope};

/// An object by its UID: the reconciled one, as its children's owner and as what events are about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct UniqueObject {
    pub(crate) kind: Kind,
    pub(crate) key: ObjectKey,
    /// Empty once the object is gone.
    pub(crate) uid: String,
}

impl UniqueObject {
    /// Names the object in an error.
    pub(super) fn named(&self) -> Box<Target> {
        Box::new(Target { kind: self.kind.clone(), key: self.key.clone() })
    }

    /// Refers to the object in an event.
    pub(super) fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some(self.kind.api_version()),
            kind: Some(self.kind.kind.to_string()),
            name: Some(self.key.name().to_owned()),
            namespace: self.key.namespace().map(str::to_owned),
            uid: Some(self.uid.clone()).filter(|uid| !uid.is_empty()),
            ..ObjectReference::default()
        }
    }
}

/// How the reconciled object is to own what is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnerRole {
    /// It alone controls it.
    Controls,
    /// It is one of its owners.
    Shares,
    /// It does not own it.
    None,
}

/// What is written on behalf of the reconciled object, which owns it or not.
#[derive(Clone)]
pub(super) struct Child<C> {
    pub(super) owner: UniqueObject,
    pub(super) ownership: OwnerRole,
    /// Whether an object that exists and that is not the owner's is taken over.
    pub(super) adopt: bool,
    pub(super) kind: Kind,
    pub(super) object: C,
}

impl<C: Object> Child<C> {
    pub(super) fn new(owner: UniqueObject, kind: Kind, object: C) -> Self {
        Self { owner, ownership: OwnerRole::Controls, adopt: false, kind, object }
    }

    /// Says what is written, and refuses what Kubernetes forbids. The server may choose a name from `generateName`.
    pub(super) fn target(&self, may_be_generated: bool) -> Result<Target, WriteError> {
        let kind = self.kind.clone();
        let meta = self.object.meta();
        let name = meta.name.clone().unwrap_or_default();
        let given = meta.namespace.as_deref().unwrap_or_default();
        let namespace = match kind.scope {
            Scope::Cluster => "",
            Scope::Namespaced if given.is_empty() => self.owner.key.namespace().unwrap_or_default(),
            Scope::Namespaced => given,
        };
        let generated = may_be_generated && meta.generate_name.is_some();
        let (scope, owner_scope) = (kind.scope, self.owner.kind.scope);
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
            Scope::Cluster if owner_scope == Scope::Namespaced => {
                forbidden("a namespaced object can't own a cluster-scoped one; apply it `.unowned()`")
            }
            Scope::Namespaced
                if owner_scope == Scope::Namespaced && self.owner.key.namespace() != Some(namespace) =>
            {
                forbidden("an owner and what it owns live in one namespace; apply it `.unowned()`")
            }
            _ => Ok(target),
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
        let reference = OwnerReference {
            api_version: self.owner.kind.api_version(),
            kind: self.owner.kind.kind.to_string(),
            name: self.owner.key.name().to_owned(),
            uid: self.owner.uid.clone(),
            controller: Some(self.ownership == OwnerRole::Controls),
            block_owner_deletion: Some(true),
        };
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
    ///
    /// # Errors
    /// The object that was found is not this owner's to write.
    pub(super) fn intent(
        &self,
        verb: &'static str,
        target: &Target,
        found: Option<&CachedMeta>,
    ) -> Result<Value, WriteError> {
        found.map_or(Ok(()), |found| self.check(target, found))?;
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
    pub(super) fn check(&self, target: &Target, found: &CachedMeta) -> Result<(), WriteError> {
        let owner = &self.owner;
        let (object, named) = (Box::new(target.clone()), owner.named());
        let controller = found.owners.iter().find(|reference| reference.controller == Some(true));
        match controller {
            Some(reference) if reference.uid == owner.uid => Ok(()),
            None if self.ownership != OwnerRole::Controls => Ok(()),
            Some(reference)
                if owner.kind.is_named_by(&reference.api_version, &reference.kind)
                    && reference.name == owner.key.name()
                    && (owner.kind.scope == Scope::Cluster
                        || target.key.namespace() == owner.key.namespace()) =>
            {
                Err(WriteError::EarlierOwner { object, owner: named })
            }
            _ if self.adopt => Ok(()),
            other => {
                let controller = other.map(|reference| Box::new(reference.clone()));
                Err(WriteError::NotControlled { object, owner: named, controller })
            }
        }
    }
}

pub(super) fn encode(
    verb: &'static str,
    target: &Target,
    object: &impl Serialize,
) -> Result<Value, WriteError> {
    serde_json::to_value(object).map_err(|error| WriteError::Codec {
        verb,
        object: Box::new(target.clone()),
        problem: format!("can't be written as JSON: {error}"),
    })
}

/// Decodes an answer; what does not fit is said without the content it was met in.
pub(super) fn decode<C: DeserializeOwned>(
    verb: &'static str,
    target: &Target,
    answer: Value,
) -> Result<C, WriteError> {
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
