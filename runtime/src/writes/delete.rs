//! Deletion of the object that was read, and of no other of its name.

use std::{fmt, future::IntoFuture, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use serde_json::{Value, json};

use super::{
    WriteError,
    request::{ApiVerb, Path, Request, RequestBody, Target},
    writer::Writer,
};
use crate::{
    keys::Expectation,
    object::{Kind, Object, ObjectKey, Version},
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

impl Propagation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Background => "Background",
            Self::Foreground => "Foreground",
            Self::Orphan => "Orphan",
        }
    }
}

/// A deletion that is sent when awaited; made by `Context::delete`.
///
/// It deletes the object that was read: the UID must match. A missing object, or another object with its name, is not an
/// error. Owned objects are deleted in the server's default way: in the background, for all but a few old kinds. The key
/// runs again only once its cache shows the deletion, which enqueues the owner.
///
/// # Errors
/// [`WriteError::Unidentified`] for an object that was never read, and what the server refuses.
#[must_use = "a deletion is sent when it is awaited"]
pub struct Delete {
    writer: Arc<Writer>,
    key: ObjectKey,
    target: Target,
    uid: Option<String>,
    version: Option<String>,
    only_unchanged: bool,
    propagation: Option<Propagation>,
    grace_period: Option<Duration>,
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
            propagation: None,
            grace_period: None,
        }
    }

    /// Deletes it only as it was read: if it has changed since, that is a [`WriteError::Conflict`].
    pub fn if_unchanged(mut self) -> Self {
        self.only_unchanged = true;
        self
    }

    /// Says what becomes of what it owns.
    pub fn propagation(mut self, propagation: Propagation) -> Self {
        self.propagation = Some(propagation);
        self
    }

    /// Gives it so long to end, where its kind knows of that: Pods do. In whole seconds.
    pub fn grace_period(mut self, grace_period: Duration) -> Self {
        self.grace_period = Some(grace_period);
        self
    }

    async fn send(self) -> Result<(), WriteError> {
        let Self { writer, key, target, .. } = &self;
        let object = || Box::new(target.clone());
        let uid = self.uid.clone().ok_or_else(|| WriteError::Unidentified { object: object() })?;
        let request = Request {
            operation: "delete",
            verb: ApiVerb::Delete,
            target,
            path: Path::Object,
            query: String::new(),
            content: RequestBody::Json(self.options(&uid)?),
        };
        let expectation = match writer.write(key, request).await {
            Ok(answer) => left(&answer.object, &uid),
            // Gone, or another object has the name by now.
            Err(error) if error.is_not_found() => Expectation::Gone { uid },
            Err(error) if error.is_conflict() => {
                self.check_unchanged(&uid, error).await?;
                writer.note_gone(target, &uid);
                Expectation::Gone { uid }
            }
            Err(error) => return Err(error),
        };
        writer.forget_applied(target);
        writer.forget_answer(key, target);
        writer.wait_for(key, target, &expectation);
        Ok(())
    }

    fn options(&self, uid: &str) -> Result<Value, WriteError> {
        let mut options = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": { "uid": uid },
        });
        if self.only_unchanged {
            let version = self.version.as_ref();
            let unversioned = || WriteError::Unversioned { object: Box::new(self.target.clone()) };
            options["preconditions"]["resourceVersion"] = json!(version.ok_or_else(unversioned)?);
        }
        if let Some(propagation) = self.propagation {
            options["propagationPolicy"] = json!(propagation.as_str());
        }
        if let Some(grace_period) = self.grace_period {
            options["gracePeriodSeconds"] = json!(grace_period.as_secs());
        }
        Ok(options)
    }

    /// Distinguishes an object that changed from one that is gone: the server answers both alike.
    async fn check_unchanged(&self, uid: &str, conflict: WriteError) -> Result<(), WriteError> {
        if !self.only_unchanged {
            return Ok(());
        }
        match self.writer.fetch(&self.target).await? {
            Some(found) if found["metadata"]["uid"] == uid => {
                if let Some(version) = self.version.as_deref().and_then(|version| version.parse().ok()) {
                    self.writer.wait_for(&self.key, &self.target, &Expectation::NewerThan(version));
                }
                Err(conflict)
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Delete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delete").field("object", &self.target).finish_non_exhaustive()
    }
}

impl IntoFuture for Delete {
    type Output = Result<(), WriteError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.send().boxed()
    }
}

/// Returns whether the object is there still, marked as deleted: the server shows it then.
fn left(answer: &Value, uid: &str) -> Expectation {
    let (meta, uid) = (&answer["metadata"], uid.to_owned());
    let version = meta["resourceVersion"].as_str().and_then(|version| version.parse::<Version>().ok());
    match version.filter(|_| meta["deletionTimestamp"].is_string()) {
        Some(version) => Expectation::Marked { uid, version },
        None => Expectation::Gone { uid },
    }
}
