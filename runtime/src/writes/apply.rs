//! Server-side apply of a child: owned, checked, and carrying the version it was computed from.

use std::{future::IntoFuture, sync::Arc};

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::{
    WriteError,
    caches::{CachedMeta, CachedTarget, whole},
    child::{Child, OwnerRole, UniqueObject, decode},
    request::{ApiVerb, MediaType, ObjectRequest, Target},
    writer::Writer,
};
use crate::object::{Kind, Object};

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
///
/// # Errors
/// [`WriteError::NotControlled`] for an object that the reconciled one does not control, [`WriteError::ForbiddenOwner`] where
/// Kubernetes does not allow the owner, and what the server refuses.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use watchkeeper::{WriteError, prelude::*};
///
/// async fn keep(child: ConfigMap, cx: &Context<ConfigMap>) -> Result<ConfigMap, WriteError> {
///     cx.apply(child).adopt().await // also if it exists, and nobody controls it
/// }
/// ```
///
/// The book has more: [children and ownership](https://github.com/watchkeeper/watchkeeper/blob/main/book/src/explain/ownership.md).
#[must_use = "an apply is sent when it is awaited"]
pub struct Apply<C> {
    writer: Arc<Writer>,
    child: Child<C>,
}

impl<C: Object> Apply<C> {
    pub(crate) fn new(writer: Arc<Writer>, owner: UniqueObject, kind: Kind, object: C) -> Self {
        Self { writer, child: Child::new(owner, kind, object) }
    }

    /// Takes the object over if it exists already, or what others manage in it.
    ///
    /// Kubernetes allows one controller an object: adopting one that another object controls is refused by the
    /// server.
    pub fn adopt(mut self) -> Self {
        self.child.adopt = true;
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

    /// Applies it to what is known, and once more to what the server has if that was not the present state.
    async fn send(&self, target: &Target) -> Result<C, WriteError> {
        let (writer, child, key) = (&self.writer, &self.child, &self.child.owner.key);
        let known = match writer.known(key, target) {
            CachedTarget::Present(found) => Some(found),
            CachedTarget::Absent => None,
            CachedTarget::Unselected | CachedTarget::Unknown => writer.fetch_meta(target).await?,
        };
        let intent = child.intent(VERB, target, known.as_ref())?;
        if let Some(unchanged) = self.unchanged(target, &intent).await {
            tracing::debug!(object = %target, "nothing would change: not applied");
            return Ok(unchanged);
        }
        // Whatever comes of it, what was applied before is not what was applied last.
        writer.applied.forget(&target.kind, &target.key);
        let version = known.as_ref().map(|known| &*known.resource_version);
        let refused = match self.attempt(target, &intent, known.as_ref(), version).await {
            Err(error) if is_stale(&error) => error,
            done => return done,
        };
        tracing::debug!(object = %target, %refused, "refused as stale: looking again");
        writer.forget_answer(key, target);
        let found = writer.fetch_meta(target).await?;
        let intent = child.intent(VERB, target, found.as_ref())?;
        // It names all owners: another owner's apply that came meanwhile must not be undone.
        let shared = found.as_ref().filter(|_| child.ownership == OwnerRole::Shares);
        let version = shared.map(|found| &*found.resource_version);
        self.attempt(target, &intent, found.as_ref(), version).await
    }

    /// Returns the child if the same was applied last and it still shows what that was answered with.
    async fn unchanged(&self, target: &Target, intent: &Value) -> Option<C> {
        let writer = &self.writer;
        let last = writer.applied.last(target, intent)?;
        let is_shown = |child: &C| writer.applied.is_shown(&last, target, intent, child);
        let mut held = writer.shown(target).filter_map(whole::<C>).peekable();
        if held.peek().is_some() {
            return held.find(is_shown);
        }
        drop(held);
        // No cache holds the child as it is to be returned; if it can't be had, it is sent.
        let found = writer.fetch(target).await.ok()??;
        decode(VERB, target, found).ok().filter(is_shown)
    }

    /// Sends it, and remembers what was applied and answered.
    ///
    /// An object that is known is written if it still has this UID and, where one is given, this version.
    async fn attempt(
        &self,
        target: &Target,
        intent: &Value,
        known: Option<&CachedMeta>,
        version: Option<&str>,
    ) -> Result<C, WriteError> {
        let (writer, child) = (&self.writer, &self.child);
        let mut body = intent.clone();
        match known {
            None => body["metadata"]["resourceVersion"] = json!(ONLY_IF_ABSENT),
            Some(found) => body["metadata"]["uid"] = json!(found.uid),
        }
        if let Some(version) = version {
            body["metadata"]["resourceVersion"] = json!(version);
        }
        let forced = child.ownership == OwnerRole::Controls || child.adopt;
        let mut request = ObjectRequest::new(VERB, ApiVerb::Patch, target, MediaType::Apply, body);
        request.query = format!("&force={forced}");
        let answer = writer.write(&child.owner.key, request).await?;
        writer.learn(&child.owner.key, target, &answer, version, None);
        let answered: C = decode(VERB, target, answer.object)?;
        // The cache says when the object is gone. A context that was made by hand has no caches.
        let labels = answered.meta().labels.clone().unwrap_or_default();
        if writer.will_show(target, &labels) {
            writer.applied.keep(target, intent, &answered);
        } else if !writer.caches.is_empty() {
            writer.applied.warn_unwatched(target, child.ownership);
        }
        Ok(answered)
    }
}

impl_debug!([C: Object] Apply<C>, this => kind: this.child.kind);

impl<C: Object> IntoFuture for Apply<C> {
    type Output = Result<C, WriteError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let target = self.child.target(false)?;
            let sent = self.send(&target).await;
            if let Err(WriteError::EarlierOwner { .. }) = &sent {
                self.writer.refetch_owner(&self.child.owner).await;
            }
            sent
        })
    }
}

/// Returns whether the server refused because the object is another one, or another version, than we knew.
fn is_stale(error: &WriteError) -> bool {
    match error {
        WriteError::Invalid { status, .. } => status.message.contains("metadata.uid"),
        error => error.is_conflict(),
    }
}
