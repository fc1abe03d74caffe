//! Server-side apply of a child: owned, checked, and carrying the version it was computed from.

use std::{fmt, future::IntoFuture, sync::Arc};

use futures::{FutureExt, future::BoxFuture};
use http::Method;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};

use super::{
    TypedObject, WriteError,
    request::{Answer, Content, Request, Target},
    writer::{CachedMeta, Known, Owner, Proof, Writer},
};
use crate::{
    informer::typed_kind,
    object::{ObjectKey, Scope},
};

/// Creates the child that exists at this version or not at all (any real version is above it).
const ONLY_IF_ABSENT: &str = "1";

/// A server-side apply that is sent when awaited; made by `Context::apply`.
///
/// Forced, with the controller's name as field manager, and with an owner reference to the reconciled object.
/// The child's namespace defaults to the owner's. The result is the object as the server answered.
///
/// Nothing is taken over by accident: an existing object that the reconciled one does not control is an error,
/// unless [`Apply::adopt`] says otherwise.
#[must_use = "an apply is sent when it is awaited"]
pub struct Apply<C> {
    writer: Arc<Writer>,
    owner: Owner,
    child: C,
    adoption: Adoption,
}

/// Says what to do with an object that exists and that nobody controls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Adoption {
    Refuse,
    TakeOver,
}

impl<C: TypedObject> Apply<C> {
    pub(crate) fn new(writer: Arc<Writer>, owner: Owner, child: C) -> Self {
        Self { writer, owner, child, adoption: Adoption::Refuse }
    }

    /// Takes the object over if it exists already.
    ///
    /// Kubernetes allows one controller an object: adopting one that another object controls is refused by the
    /// server.
    pub fn adopt(mut self) -> Self {
        self.adoption = Adoption::TakeOver;
        self
    }

    async fn send(self) -> Result<C, WriteError> {
        let target = self.target()?;
        let reference = self.owner_reference();
        let intent = self.intent(&target, &reference)?;
        let sending = Sending { apply: &self, target, intent };
        let answer = sending.run().await?;
        serde_json::from_value(answer.object).map_err(|error| WriteError::Codec {
            verb: "apply",
            object: sending.target.to_string(),
            problem: format!("the answer does not decode: {}", error.classify_text()),
        })
    }

    /// Says what is written, and refuses what Kubernetes forbids.
    fn target(&self) -> Result<Target, WriteError> {
        let kind = typed_kind::<C>();
        let meta = self.child.meta();
        let name = meta.name.clone().unwrap_or_default();
        let given = meta.namespace.as_deref().unwrap_or_default();
        let namespace = match kind.scope {
            Scope::Cluster => "",
            Scope::Namespaced if given.is_empty() => self.owner.key.namespace().unwrap_or_default(),
            Scope::Namespaced => given,
        };
        let scope = kind.scope;
        let target = Target { kind, key: ObjectKey::new(namespace, name) };
        let object = target.to_string();
        let forbidden = |rule| {
            Err(WriteError::ForbiddenOwner { object: object.clone(), owner: self.owner.to_string(), rule })
        };
        match scope {
            _ if self.owner.uid.is_empty() => {
                Err(WriteError::OwnerGone { object, owner: self.owner.to_string() })
            }
            _ if target.key.name().is_empty() => {
                Err(WriteError::Unnamed { object, missing: "metadata.name" })
            }
            Scope::Namespaced if namespace.is_empty() => {
                Err(WriteError::Unnamed { object, missing: "metadata.namespace" })
            }
            Scope::Cluster if !self.owner.is_cluster_scoped() => {
                forbidden("a namespaced object can't own a cluster-scoped one")
            }
            Scope::Namespaced
                if !self.owner.is_cluster_scoped() && self.owner.key.namespace() != Some(namespace) =>
            {
                forbidden("an owner and what it owns live in one namespace")
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
            controller: Some(true),
            block_owner_deletion: Some(true),
        }
    }

    /// Builds the applied object, without UID and version.
    fn intent(&self, target: &Target, reference: &OwnerReference) -> Result<Value, WriteError> {
        let mut child = self.child.clone();
        let meta = child.meta_mut();
        meta.namespace = target.key.namespace().map(str::to_owned);
        meta.managed_fields = None;
        meta.uid = None;
        meta.resource_version = None;
        let owners = meta.owner_references.get_or_insert_default();
        owners.retain(|owner| owner.uid != reference.uid);
        owners.push(reference.clone());
        let mut intent = serde_json::to_value(&child).map_err(|error| WriteError::Codec {
            verb: "apply",
            object: target.to_string(),
            problem: format!("can't be written as JSON: {error}"),
        })?;
        intent["apiVersion"] = json!(target.kind.api_version());
        intent["kind"] = json!(target.kind.kind);
        Ok(intent)
    }
}

/// Names the child, and shows nothing of its content.
impl<C: TypedObject> fmt::Debug for Apply<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Apply")
            .field("owner", &self.owner)
            .field("kind", &typed_kind::<C>())
            .field("name", &self.child.meta().name)
            .field("adoption", &self.adoption)
            .finish_non_exhaustive()
    }
}

impl<C: TypedObject> IntoFuture for Apply<C> {
    type Output = Result<C, WriteError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.send().boxed()
    }
}

struct Sending<'a, C> {
    apply: &'a Apply<C>,
    target: Target,
    intent: Value,
}

impl<C: TypedObject> Sending<'_, C> {
    async fn run(&self) -> Result<Answer<Value>, WriteError> {
        let (writer, key) = (&self.apply.writer, &self.apply.owner.key);
        let known = match writer.known(key, &self.target) {
            Some(known) => known,
            None => self.ask().await?,
        };
        self.check(&known)?;
        let refused = match self.attempt(&known, Carry::UidAndVersion).await {
            Err(error) if is_stale(&error) => error,
            done => return done,
        };
        tracing::debug!(object = %self.target, %refused, "refused as stale: looking again");
        writer.forget_answer(key, &self.target);
        let found = self.ask().await?;
        self.check(&found)?;
        self.attempt(&found, Carry::Uid).await
    }

    async fn ask(&self) -> Result<Known, WriteError> {
        let found = self.apply.writer.fetch(&self.target).await?;
        Ok(match found {
            None => Known::Absent,
            Some(object) => Known::Present(CachedMeta::of(
                &serde_json::from_value(object["metadata"].clone()).unwrap_or_default(),
            )),
        })
    }

    /// Refuses to touch what this owner does not control.
    fn check(&self, known: &Known) -> Result<(), WriteError> {
        let Known::Present(found) = known else { return Ok(()) };
        let owner = &self.apply.owner;
        let (object, named) = (self.target.to_string(), owner.to_string());
        let controller = found.owners.iter().find(|reference| reference.controller == Some(true));
        match controller {
            Some(reference) if reference.uid == owner.uid => Ok(()),
            Some(reference)
                if owner.kind.is_named_by(&reference.api_version, &reference.kind)
                    && reference.name == owner.key.name() =>
            {
                Err(WriteError::EarlierOwner { object, owner: named })
            }
            _ if self.apply.adoption == Adoption::TakeOver => Ok(()),
            Some(reference) => Err(WriteError::NotControlled {
                object,
                owner: named,
                controller: format!("{} {}", reference.kind, reference.name),
            }),
            None => Err(WriteError::NotControlled { object, owner: named, controller: "nobody".to_owned() }),
        }
    }

    async fn attempt(&self, known: &Known, carry: Carry) -> Result<Answer<Value>, WriteError> {
        let mut body = self.intent.clone();
        let proof = match known {
            Known::Absent => {
                body["metadata"]["resourceVersion"] = json!(ONLY_IF_ABSENT);
                Proof::None
            }
            Known::Present(found) => {
                body["metadata"]["uid"] = json!(found.uid);
                match carry {
                    Carry::Uid => Proof::None,
                    Carry::UidAndVersion => {
                        body["metadata"]["resourceVersion"] = json!(found.resource_version);
                        Proof::Carried(found.resource_version.clone())
                    }
                }
            }
        };
        let writer = &self.apply.writer;
        let request = Request {
            verb: "apply",
            method: Method::PATCH,
            target: &self.target,
            subresource: "",
            query: format!("{}&force=true", writer.query()),
            content: Content::Apply(body),
        };
        let answer = request.send::<Value>(writer.client()).await?;
        writer.learn(&self.apply.owner.key, &self.target, &answer, &proof, None);
        Ok(answer)
    }
}

/// What an apply to a present object carries.
#[derive(Clone, Copy, Debug)]
enum Carry {
    UidAndVersion,
    Uid,
}

/// Tells whether the server refused because the object is another one, or another version, than we knew.
fn is_stale(error: &WriteError) -> bool {
    match error {
        WriteError::Conflict { .. } => true,
        WriteError::Refused { status, .. } => status.code == 422 && status.message.contains("metadata.uid"),
        _ => false,
    }
}

/// Says what kind of error a decoder met, without the content it met it in.
trait ClassifyText {
    fn classify_text(&self) -> String;
}

impl ClassifyText for serde_json::Error {
    fn classify_text(&self) -> String {
        format!("{:?} at line {}, column {}", self.classify(), self.line(), self.column())
    }
}
