//! Server-side apply of a child: owned, checked, and carrying the version it was computed from.

use std::{fmt, future::IntoFuture, sync::Arc};

use futures::{FutureExt, future::BoxFuture};
use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::{
    WriteError,
    applied::{AppliedRecord, Digest, at_paths_of},
    caches::{CachedMeta, Shown},
    child::{Adoption, Child, Naming, decode, encode},
    owner::Owner,
    owner::OwnerRole,
    request::{ApiResponse, ApiVerb, Path, Request, RequestBody, Target},
    writer::{KnownTarget, Proof, Writer},
};
use crate::object::{Kind, Object, Version};

const VERB: &str = "apply";
/// Creates the child that exists at this version or not at all (any real version is above it).
const ONLY_IF_ABSENT: &str = "1";

/// A server-side apply that is sent when awaited; made by `Context::apply`.
///
/// Forced, with the controller's name as field manager, and with an owner reference to the reconciled object, which
/// controls it. The child's namespace defaults to the owner's. The result is the object as the server answered.
///
/// Nothing is written where that would change nothing: the same was applied last, and the child still shows, in the
/// fields that were applied, what that apply was answered with. The result is the cached child then. Where no cache
/// holds children of this very type (one of metadata, or of another type of the kind), the child is asked for by a GET
/// instead: it is never returned in part.
///
/// A kind that the controller does not watch is applied as well, but nothing enqueues the owner when it is edited or
/// deleted, and it is sent at every run; the log says so once.
///
/// Nothing is taken over by accident: an existing object that the reconciled one does not control is an error,
/// unless [`Apply::adopt`] says otherwise.
#[must_use = "an apply is sent when it is awaited"]
pub struct Apply<C> {
    writer: Arc<Writer>,
    child: Child<C>,
    adoption: Adoption,
}

impl<C: Object> Apply<C> {
    pub(crate) fn new(writer: Arc<Writer>, owner: Owner, kind: Kind, object: C) -> Self {
        let child = Child { owner, ownership: OwnerRole::Controls, kind, object };
        Self { writer, child, adoption: Adoption::Refuse }
    }

    /// Takes the object over if it exists already, or what others manage in it.
    ///
    /// Kubernetes allows one controller an object: adopting one that another object controls is refused by the
    /// server.
    pub fn adopt(mut self) -> Self {
        self.adoption = Adoption::TakeOver;
        self
    }

    /// Applies it without an owner: a cluster-scoped object of a namespaced one, or what is to outlive it.
    ///
    /// Nothing removes it when the reconciled object goes: delete it in `cleanup`, if it is to go too. An object that
    /// exists is taken for the one that is meant, unless somebody controls it. The apply is not forced: where others
    /// manage its fields, and say otherwise, it is [`WriteError::ManagedByOthers`], unless [`adopt`](Self::adopt) says
    /// that they are to be taken over.
    pub fn unowned(mut self) -> Self {
        self.child.ownership = OwnerRole::None;
        self
    }

    /// Applies it with the reconciled object as one of several owners without a controller.
    ///
    /// Garbage collection removes it with the last owner. In other respects it is like [`unowned`](Self::unowned). Several
    /// owners of one kind keep each other; they should apply the same fields. A change of it does not trigger
    /// [`Controller::owns`](crate::Controller::owns), which looks for the controlling owner: use
    /// [`watches`](crate::Controller::watches) with [`owners_of`](crate::controller::owners_of).
    pub fn uncontrolled(mut self) -> Self {
        self.child.ownership = OwnerRole::Shares;
        self
    }

    async fn send(self) -> Result<C, WriteError> {
        let target = self.child.target(Naming::Given)?;
        self.writer.warn_unwatched(&target, self.child.ownership);
        let sent = Sending { apply: &self, target }.run().await;
        self.writer.refetch_owner(&self.child.owner, sent.as_ref().err()).await;
        sent
    }
}

impl<C: Object> fmt::Debug for Apply<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Apply");
        shown.field("child", &self.child).field("adoption", &self.adoption).finish_non_exhaustive()
    }
}

impl<C: Object> IntoFuture for Apply<C> {
    type Output = Result<C, WriteError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.send().boxed()
    }
}

struct Sending<'a, C> {
    apply: &'a Apply<C>,
    target: Target,
}

/// What is applied, in view of what was found.
struct Intent {
    body: Value,
    meant: Digest,
}

impl<C: Object> Sending<'_, C> {
    async fn run(&self) -> Result<C, WriteError> {
        let (writer, key) = (&self.apply.writer, &self.apply.child.owner.key);
        let known = match writer.known(key, &self.target) {
            Some(known) => known,
            None => self.ask().await?,
        };
        let intent = self.check(&known)?;
        if let Some(unchanged) = self.unchanged(&intent).await {
            tracing::debug!(object = %self.target, "nothing would change: not applied");
            return Ok(unchanged);
        }
        // Whatever comes of it, what was applied before is not what was applied last.
        writer.forget_applied(&self.target);
        let refused = match self.attempt(&intent, &known, Carry::UidAndVersion).await {
            Err(error) if is_stale(&error) => error,
            done => return self.finish(&intent, done?),
        };
        tracing::debug!(object = %self.target, %refused, "refused as stale: looking again");
        writer.forget_answer(key, &self.target);
        let found = self.ask().await?;
        let intent = self.check(&found)?;
        let answer = self.attempt(&intent, &found, Carry::Uid).await?;
        self.finish(&intent, answer)
    }

    async fn ask(&self) -> Result<KnownTarget, WriteError> {
        Ok(match self.apply.writer.fetch(&self.target).await? {
            None => KnownTarget::Absent,
            Some(object) => KnownTarget::Present(CachedMeta::of(
                &serde_json::from_value(object["metadata"].clone()).unwrap_or_default(),
            )),
        })
    }

    /// Refuses what is not ours, and says what is meant of what is.
    fn check(&self, known: &KnownTarget) -> Result<Intent, WriteError> {
        let Apply { writer, child, adoption } = self.apply;
        let found = match known {
            KnownTarget::Absent => None,
            KnownTarget::Present(found) => Some(found),
        };
        found.map_or(Ok(()), |found| child.check(&self.target, found, *adoption))?;
        let body = child.intent(VERB, &self.target, found)?;
        Ok(Intent { meant: writer.digest(&body), body })
    }

    /// Returns the child if the same was applied last and it still shows what that was answered with.
    async fn unchanged(&self, intent: &Intent) -> Option<C> {
        let Apply { writer, child, .. } = self.apply;
        let last = writer.applied(&self.target)?;
        // What nobody controls may be applied on behalf of several, who mean the same.
        let own = last.writer == child.owner.key || child.ownership != OwnerRole::Controls;
        if !own || last.intent != intent.meant {
            return None;
        }
        let mut held = writer.shown(&self.target).filter_map(whole::<C>).peekable();
        if held.peek().is_some() {
            return held.find(|child| self.still_shows(intent, &last, child));
        }
        drop(held);
        // No cache holds the child as it is to be returned; if it can't be had, it is sent.
        let found = writer.fetch(&self.target).await.ok()??;
        let child = decode(VERB, &self.target, found).ok()?;
        self.still_shows(intent, &last, &child).then_some(child)
    }

    /// Only a child that has seen the last answer tells; one that is behind never does.
    fn still_shows(&self, intent: &Intent, last: &AppliedRecord, child: &C) -> bool {
        let meta = child.meta();
        let Some(version) = Version::of_meta(meta) else { return false };
        if meta.uid.as_deref() != Some(last.uid.as_str()) || version < last.version {
            return false;
        }
        if version > last.version {
            if self.shown_by(intent, child).ok() != Some(last.shown) {
                return false;
            }
            self.apply.writer.keep_applied(&self.target, AppliedRecord { version, ..last.clone() });
        }
        true
    }

    fn shown_by(&self, intent: &Intent, object: &C) -> Result<Digest, WriteError> {
        let object = encode(VERB, &self.target, object)?;
        Ok(self.apply.writer.digest(&at_paths_of(&intent.body, &object)))
    }

    /// Remembers what was applied and answered.
    fn finish(&self, intent: &Intent, answer: ApiResponse) -> Result<C, WriteError> {
        let answered: C = decode(VERB, &self.target, answer.object)?;
        let meta = answered.meta();
        if let (Some(uid), Some(version)) = (meta.uid.clone(), Version::of_meta(meta)) {
            let writer = self.apply.child.owner.key.clone();
            let shown = self.shown_by(intent, &answered)?;
            let applied = AppliedRecord { writer, uid, version, intent: intent.meant, shown };
            self.apply.writer.keep_applied(&self.target, applied);
        }
        Ok(answered)
    }

    async fn attempt(
        &self,
        intent: &Intent,
        known: &KnownTarget,
        carry: Carry,
    ) -> Result<ApiResponse, WriteError> {
        let mut body = intent.body.clone();
        let proof = match known {
            KnownTarget::Absent => {
                body["metadata"]["resourceVersion"] = json!(ONLY_IF_ABSENT);
                Proof::None
            }
            KnownTarget::Present(found) => {
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
        let Apply { writer, child, adoption } = self.apply;
        let forced = child.ownership == OwnerRole::Controls || *adoption == Adoption::TakeOver;
        let request = Request {
            operation: VERB,
            verb: ApiVerb::Patch,
            target: &self.target,
            path: Path::Object,
            query: format!("{}&force={forced}", writer.query()),
            content: RequestBody::Apply(body),
        };
        let answer = writer.write(&child.owner.key, request).await?;
        writer.learn(&child.owner.key, &self.target, &answer, &proof, None);
        Ok(answer)
    }
}

/// What an apply to a present object carries.
#[derive(Clone, Copy, Debug)]
enum Carry {
    UidAndVersion,
    Uid,
}

/// Returns whether the server refused because the object is another one, or another version, than we knew.
fn is_stale(error: &WriteError) -> bool {
    match error {
        error if error.is_conflict() => true,
        WriteError::Invalid { status, .. } => status.message.contains("metadata.uid"),
        _ => false,
    }
}

/// Takes a cached object as the type that is applied, if that loses nothing.
fn whole<C: Object>(shown: Shown) -> Option<C> {
    match shown.object.downcast::<C>() {
        Ok(object) => Some((*object).clone()),
        // A type that knows the kind only at run time holds all there is.
        Err(object) if object.is::<DynamicObject>() => serde_json::from_value((shown.encode)(&*object)?).ok(),
        Err(_) => None,
    }
}
