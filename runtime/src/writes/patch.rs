//! Merge patches of the reconciled object and of its status, on the version that the caller saw.

use futures::future::BoxFuture;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    WriteError,
    child::{decode, encode},
    merge::{difference, dropped, merged, replaces_elements, replaces_the_same},
    request::{ApiResponse, ApiVerb, MediaType, ObjectRequest, Target},
    writer::{Writer, version_of},
};
use crate::{
    keys::{Expectation, LastAnswer, StatusSeen},
    object::{Kind, Object, ObjectKey, Version},
};

const PATCH: &str = "patch";
const PATCH_STATUS: &str = "patch the status of";
/// How often a patch that met someone else's change elsewhere in the object is sent again.
const RESENDS: usize = 3;

/// The object that is patched, and the key of the run.
pub(crate) struct Patched<'a, K> {
    pub(crate) writer: &'a Writer,
    pub(crate) key: &'a ObjectKey,
    pub(crate) kind: Kind,
    /// What the caller passed.
    pub(crate) object: &'a K,
    /// What the run began with.
    pub(crate) own: Option<&'a K>,
}

/// Sends a merge patch of an object; nothing if the object reads as patched already.
pub(crate) async fn patch<K: Object>(patched: Patched<'_, K>, change: Value) -> Result<K, WriteError> {
    let (object, mut patching) = (patched.object, Patching::of(&patched, None));
    let target = || Box::new(patching.target.clone());
    if !change.is_object() || change.get("metadata").is_some_and(|meta| !meta.is_object()) {
        let problem = "what changes an object, or its metadata, is an object".to_owned();
        return Err(WriteError::Codec { verb: PATCH, object: target(), problem });
    }
    if patching.uid.is_empty() {
        return Err(WriteError::Unidentified { object: target() });
    }
    patching.check_version()?;
    patching.seen = encode(PATCH, &patching.target, object)?;
    match patching.patch_object(&change).await? {
        Some(answer) => decode(PATCH, &patching.target, answer),
        None => Ok(object.clone()),
    }
}

/// Patches the status of an object to `status`; sends nothing where they are equal.
///
/// All states are read through the object's type and the status' own: what these do not know stays.
pub(crate) async fn patch_status<K: Object, S: Serialize + DeserializeOwned>(
    patched: Patched<'_, K>,
    status: S,
) -> Result<(), WriteError> {
    let reader = StatusReader { through_status: through_status::<S> };
    let mut patching = Patching::of(&patched, Some(reader));
    let wanted = encode(PATCH_STATUS, &patching.target, &status)?;
    drop(status);
    // What the caller saw is what the run began with, if that is the same version: the caller may have written the new
    // status into its own copy.
    let object = patched.own.filter(|own| is_same(*own, patched.object)).unwrap_or(patched.object);
    let mut whole = encode(PATCH_STATUS, &patching.target, object)?;
    patching.seen = (reader.through_status)(whole["status"].take());
    patching.patch_status(reader, &wanted).await
}

/// Reads the status of an object as the user's types have it.
#[derive(Clone, Copy)]
struct StatusReader {
    through_status: fn(Value) -> Value,
}

/// What a patch is sent on: a version, and the status as the server holds it, where that is known.
struct PatchGround {
    resource_version: String,
    raw: Option<Value>,
}

/// One patch on its way to the server.
///
/// It knows the user's types by two functions alone, and its futures are boxed: it is compiled once, here.
struct Patching<'a> {
    writer: &'a Writer,
    key: &'a ObjectKey,
    target: Target,
    /// `None`: the object itself is patched.
    status: Option<StatusReader>,
    /// Reads the status of an answer through the object's type.
    through_object: fn(&Value) -> Option<Value>,
    uid: String,
    /// The version that the patch is computed from.
    resource_version: String,
    /// The object, or its status, at that version, read through the user's types.
    seen: Value,
}

impl<'a> Patching<'a> {
    fn of<K: Object>(
        Patched { writer, key, kind, object, .. }: &Patched<'a, K>,
        status: Option<StatusReader>,
    ) -> Self {
        let meta = object.meta();
        Self {
            writer,
            key,
            target: Target { kind: kind.clone(), key: ObjectKey::of(*object) },
            status,
            through_object: through_object::<K>,
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            seen: Value::Null,
        }
    }

    fn check_version(&self) -> Result<(), WriteError> {
        match self.resource_version.is_empty() {
            true => Err(WriteError::Unversioned { object: Box::new(self.target.clone()) }),
            false => Ok(()),
        }
    }

    /// Returns this key's later answer for the object that the caller saw: never a newer cached object.
    fn later_answer(&self) -> Option<LastAnswer> {
        let seen = self.resource_version.parse::<Version>().ok();
        let answer = self.writer.last_answer(self.key, &self.target)?;
        let is_later = answer.uid == self.uid && answer.resource_version.parse::<Version>().ok() > seen;
        is_later.then_some(answer)
    }

    /// Returns the status in an answer, if the object's type can read it.
    fn status_in(&self, answer: &ApiResponse) -> Option<StatusSeen> {
        let typed = (self.through_object)(&answer.object)?;
        Some(StatusSeen { typed, raw: answer.object["status"].clone() })
    }

    /// Returns what the server answered; `None` where the object reads as patched already.
    fn patch_object<'p>(&'p self, change: &'p Value) -> BoxFuture<'p, Result<Option<Value>, WriteError>> {
        Box::pin(async move {
            let resource_version = match self.later_answer() {
                // This key has written it since: what the caller saw proves nothing.
                Some(later) => later.resource_version,
                None if merged(self.seen.clone(), change) == self.seen => return Ok(None),
                None => self.resource_version.clone(),
            };
            let ground = PatchGround { resource_version, raw: None };
            let (answer, ground, _) = self.send(change, ground, |_| change.clone()).await?;
            // Otherwise a later status would be compared with that of before this answer.
            let status = self.status_in(&answer);
            self.writer.learn(self.key, &self.target, &answer, Some(&ground.resource_version), status);
            Ok(Some(answer.object))
        })
    }

    fn patch_status<'p>(
        &'p mut self,
        reader: StatusReader,
        wanted: &'p Value,
    ) -> BoxFuture<'p, Result<(), WriteError>> {
        Box::pin(async move {
            let mut raw = None;
            if let Some(LastAnswer { resource_version, status: Some(status), .. }) = self.later_answer() {
                self.resource_version = resource_version;
                self.seen = (reader.through_status)(status.typed);
                raw = Some(status.raw);
            }
            let Some(change) = difference(&self.seen, wanted, &Value::Null) else { return Ok(()) };
            self.check_version()?;
            let ground = match raw {
                None if replaces_elements(&change, &self.seen) => self.look(&change).await?,
                raw => PatchGround { resource_version: self.resource_version.clone(), raw },
            };
            let patch_on = |raw: &Value| difference(&self.seen, wanted, raw).unwrap_or_default();
            let sent = self.send(&change, ground, patch_on).await;
            let (answer, ground, patch) = match sent {
                Ok(sent) => sent,
                Err(error) => return Err(self.explain(error).await),
            };
            let status = self.status_in(&answer);
            self.writer.learn(self.key, &self.target, &answer, Some(&ground.resource_version), status);
            match dropped(&patch, &answer.object["status"]) {
                fields if fields.is_empty() => Ok(()),
                fields => Err(WriteError::NotStored { object: Box::new(self.target.clone()), fields }),
            }
        })
    }

    /// Sends a change until it meets no change of someone else elsewhere in the object.
    ///
    /// Returns the answer, what the patch was sent on, and the patch.
    async fn send(
        &self,
        change: &Value,
        mut ground: PatchGround,
        patch_on: impl Fn(&Value) -> Value,
    ) -> Result<(ApiResponse, PatchGround, Value), WriteError> {
        for _ in 0..=RESENDS {
            let patch = patch_on(ground.raw.as_ref().unwrap_or(&Value::Null));
            let (operation, subresource, mut body) = match self.status {
                Some(_) => (PATCH_STATUS, Some("status"), json!({ "status": patch })),
                None => (PATCH, None, patch.clone()),
            };
            body["metadata"]["uid"] = json!(self.uid);
            body["metadata"]["resourceVersion"] = json!(ground.resource_version);
            let (verb, media_type) = (ApiVerb::Patch, MediaType::MergePatch);
            let mut request = ObjectRequest::new(operation, verb, &self.target, media_type, body);
            request.subresource = subresource;
            match self.writer.write(self.key, request).await {
                Ok(answer) => return Ok((answer, ground, patch)),
                Err(error) if error.is_conflict() => {
                    tracing::debug!(object = %self.target, %error, "refused as stale: looking again");
                    self.writer.forget_answer(self.key, &self.target);
                    ground = self.look(change).await?;
                }
                Err(error) => return Err(error),
            }
        }
        Err(self.stale("it keeps changing"))
    }

    /// Gets the present object from the server, if the fields that the patch replaces have not changed.
    async fn look(&self, change: &Value) -> Result<PatchGround, WriteError> {
        let Some(mut found) = self.writer.fetch(&self.target).await? else {
            return Err(self.stale("it is gone"));
        };
        if found["metadata"]["uid"] != self.uid {
            return Err(self.stale("another object has its name"));
        }
        if version_of(&found) < self.resource_version.parse().ok() {
            self.writer.found_older_state(self.key, &self.target);
            return Err(self.stale("the server holds an older version"));
        }
        let replaces_the_same = match self.status {
            None => replaces_the_same(change, &self.seen, &found),
            Some(StatusReader { through_status }) => (self.through_object)(&found)
                .map(through_status)
                .is_some_and(|status| replaces_the_same(change, &self.seen, &status)),
        };
        if !replaces_the_same {
            return Err(self.stale("what the patch replaces has changed"));
        }
        let resource_version = found["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        Ok(PatchGround { resource_version, raw: Some(found["status"].take()) })
    }

    /// Makes a conflict, and sees to it that the next run begins with what this one did not know.
    fn stale(&self, why: &str) -> WriteError {
        if let Ok(version) = self.resource_version.parse() {
            self.writer.wait_for(self.key, &self.target, &Expectation::NewerThan(version));
        }
        WriteError::conflict(&self.target, why)
    }

    /// Finds out what was not found: the object, or its status subresource. The server says the same of both.
    async fn explain(&self, error: WriteError) -> WriteError {
        let WriteError::NotFound { verb, object, status } = error else { return error };
        match self.writer.fetch(&self.target).await {
            Ok(Some(found)) if found["metadata"]["uid"] == self.uid => {
                WriteError::NoStatusSubresource { object }
            }
            _ => WriteError::NotFound { verb, object, status },
        }
    }
}

/// Returns whether two objects are one, at one version.
fn is_same<K: Object>(one: &K, other: &K) -> bool {
    let (one, other) = (one.meta(), other.meta());
    one.uid.is_some() && one.uid == other.uid && one.resource_version == other.resource_version
}

/// Reads an answer's status through the object's type.
fn through_object<K: Object>(answer: &Value) -> Option<Value> {
    let object: K = serde_json::from_value(answer.clone()).ok()?;
    serde_json::to_value(object).ok().map(|mut whole| whole["status"].take())
}

/// Reads a status through the type of the one that is wanted; one that this can't read stays as it is.
fn through_status<S: Serialize + DeserializeOwned>(status: Value) -> Value {
    let read = serde_json::from_value::<S>(status.clone()).and_then(serde_json::to_value);
    read.unwrap_or(status)
}
