//! Deletion of the object that was read, and of no other of its name.

use std::{future::IntoFuture, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use kube::core::params::{DeleteParams, Preconditions, PropagationPolicy};
use serde_json::Value;

use super::{
    WriteError,
    child::encode,
    request::{ApiVerb, MediaType, ObjectRequest, Target},
    writer::{Writer, version_of},
};
use crate::{
    keys::Expectation,
    object::{Kind, Object, ObjectKey},
};

/// What becomes of what a deleted object owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// It goes afterwards.
    Background,
    /// It goes first: the object stays, marked as deleted, until all that blocks its deletion is gone.
    Foreground,
    /// It stays, without this owner.
    Orphan,
}

/// A deletion that is sent when awaited; made by `Context::delete`.
///
/// It deletes the object that was read: the UID must match. A missing object, or another object with its name, is not an
/// error. What it owns is deleted in the background, unless [`propagation`](Self::propagation) says otherwise. The key
/// runs again only once its cache shows the deletion, which enqueues the owner.
///
/// # Errors
/// [`WriteError::Unidentified`] for an object that was never read, and what the server refuses.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use watchkeeper::{WriteError, prelude::*};
///
/// async fn drop_all(cx: &Context<ConfigMap>) -> Result<(), WriteError> {
///     for child in cx.owned::<ConfigMap>() {
///         cx.delete(&child).propagation(Propagation::Background).if_unchanged().await?;
///     }
///     Ok(())
/// }
/// ```
///
/// The book has more: [children and ownership](https://github.com/watchkeeper/watchkeeper/blob/main/book/src/explain/ownership.md).
#[derive(Debug)]
#[must_use = "a deletion is sent when it is awaited"]
pub struct Delete {
    writer: Arc<Writer>,
    key: ObjectKey,
    target: Target,
    uid: Option<String>,
    version: Option<String>,
    only_unchanged: bool,
    params: DeleteParams,
}

impl Delete {
    pub(crate) fn new(writer: Arc<Writer>, key: ObjectKey, kind: Kind, object: &impl Object) -> Self {
        let meta = object.meta();
        Self {
            writer,
            key,
            target: Target { kind, key: ObjectKey::of(object) },
            uid: meta.uid.clone().filter(|uid| !uid.is_empty()),
            version: meta.resource_version.clone().filter(|version| !version.is_empty()),
            only_unchanged: false,
            params: DeleteParams::default(),
        }
    }

    /// Deletes it only as it was read: if it has changed since, that is a [`WriteError::Conflict`].
    pub fn if_unchanged(mut self) -> Self {
        self.only_unchanged = true;
        self
    }

    /// Says what becomes of what it owns.
    pub fn propagation(mut self, propagation: Propagation) -> Self {
        self.params.propagation_policy = Some(match propagation {
            Propagation::Background => PropagationPolicy::Background,
            Propagation::Foreground => PropagationPolicy::Foreground,
            Propagation::Orphan => PropagationPolicy::Orphan,
        });
        self
    }

    /// Gives it so long to end, where its kind knows of that: Pods do. In whole seconds.
    pub fn grace_period(mut self, grace_period: Duration) -> Self {
        self.params.grace_period_seconds = Some(u32::try_from(grace_period.as_secs()).unwrap_or(u32::MAX));
        self
    }

    async fn send(mut self) -> Result<(), WriteError> {
        // For old clients, the server would leave the pods of these to nobody.
        let kind = &self.target.kind;
        if matches!((&*kind.group, &*kind.kind), ("batch", "Job") | ("", "ReplicationController")) {
            self.params.propagation_policy.get_or_insert(PropagationPolicy::Background);
        }
        let object = || Box::new(self.target.clone());
        let uid = self.uid.clone().ok_or_else(|| WriteError::Unidentified { object: object() })?;
        let resource_version = self.version.clone().filter(|_| self.only_unchanged);
        if self.only_unchanged && resource_version.is_none() {
            return Err(WriteError::Unversioned { object: object() });
        }
        self.params.preconditions = Some(Preconditions { uid: Some(uid.clone()), resource_version });
        let Self { writer, key, target, .. } = &self;
        let body = encode("delete", target, &self.params)?;
        let request = ObjectRequest::new("delete", ApiVerb::Delete, target, MediaType::Json, body);
        let expectation = match writer.write(key, request).await {
            Ok(answer) => left(&answer.object, &uid),
            // Gone, or another object has the name by now.
            Err(error) if error.is_not_found() => Expectation::Gone { uid },
            Err(error) if error.is_conflict() => {
                self.check_gone(&uid, error).await?;
                writer.note_gone(target, &uid);
                Expectation::Gone { uid }
            }
            Err(error) => return Err(error),
        };
        writer.applied.forget(&target.kind, &target.key);
        writer.forget_answer(key, target);
        writer.wait_for(key, target, &expectation);
        Ok(())
    }

    /// Distinguishes an object that is still there from one that is gone: the server answers both alike.
    async fn check_gone(&self, uid: &str, conflict: WriteError) -> Result<(), WriteError> {
        match self.writer.fetch(&self.target).await? {
            Some(found) if found["metadata"]["uid"] == uid => {
                let version = self.version.as_deref().filter(|_| self.only_unchanged);
                if let Some(version) = version.and_then(|version| version.parse().ok()) {
                    self.writer.wait_for(&self.key, &self.target, &Expectation::NewerThan(version));
                }
                Err(conflict)
            }
            _ => Ok(()),
        }
    }
}

impl IntoFuture for Delete {
    type Output = Result<(), WriteError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

/// Returns whether the object is there still, marked as deleted: the server shows it then.
fn left(answer: &Value, uid: &str) -> Expectation {
    let (is_marked, uid) = (answer["metadata"]["deletionTimestamp"].is_string(), uid.to_owned());
    match version_of(answer).filter(|_| is_marked) {
        Some(version) => Expectation::Marked { uid, version },
        None => Expectation::Gone { uid },
    }
}
