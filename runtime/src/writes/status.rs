//! Status patches: the difference to what the caller saw, on the version the caller saw.

use futures::future::BoxFuture;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    WriteError,
    merge::{difference, dropped, replaces_elements, replaces_the_same},
    request::{ApiResponse, ApiVerb, Path, Request, RequestBody, Target},
    writer::{Proof, Writer, version_of},
};
use crate::{
    keys::{Expectation, StatusSeen},
    object::{Kind, Object, ObjectKey, Version},
};

const VERB: &str = "patch the status of";
/// How often a patch that met someone else's change elsewhere in the object is sent again.
const RESENDS: usize = 3;

/// The state that a patch is computed from.
struct Base {
    uid: String,
    resource_version: String,
    status: Value,
    /// The same as the server holds it, where that is known.
    raw: Option<Value>,
}

/// What a patch is sent on.
struct Ground {
    resource_version: String,
    raw: Option<Value>,
}

/// The object whose status is patched, and the key of the run.
pub(crate) struct Patched<'a, K> {
    pub(crate) writer: &'a Writer,
    pub(crate) key: &'a ObjectKey,
    pub(crate) kind: Kind,
    /// What the caller passed.
    pub(crate) object: &'a K,
    /// What the run began with.
    pub(crate) own: Option<&'a K>,
}

/// Patches the status of an object to `status`; sends nothing where they are equal.
///
/// All states are read through the object's type and the status' own: what these do not know stays.
pub(crate) async fn patch_status<K: Object, S: Serialize + DeserializeOwned>(
    Patched { writer, key, kind, object, own }: Patched<'_, K>,
    status: S,
) -> Result<(), WriteError> {
    let target = Target { kind, key: ObjectKey::of(object) };
    let wanted = encode(&target, &status)?;
    drop(status);
    let patching = Patching {
        writer,
        key,
        target,
        through_object: through_object::<K>,
        through_status: through_status::<S>,
    };
    let base = patching.base(object, own)?;
    patching.run(&base, &wanted).await
}

/// One status on its way to the server.
///
/// Knows the user's types by two functions alone, and is boxed: it is compiled once, here.
struct Patching<'a> {
    writer: &'a Writer,
    key: &'a ObjectKey,
    target: Target,
    through_object: fn(&Value) -> Option<Value>,
    through_status: fn(Value) -> Value,
}

impl Patching<'_> {
    fn run<'a>(&'a self, base: &'a Base, wanted: &'a Value) -> BoxFuture<'a, Result<(), WriteError>> {
        Box::pin(async move {
            let Some(change) = difference(&base.status, wanted, &Value::Null) else { return Ok(()) };
            if base.resource_version.is_empty() {
                return Err(WriteError::Unversioned { object: Box::new(self.target.clone()) });
            }
            let mut ground =
                Ground { resource_version: base.resource_version.clone(), raw: base.raw.clone() };
            if ground.raw.is_none() && replaces_elements(&change, &base.status) {
                ground = self.look(base, &change).await?;
            }
            for _ in 0..=RESENDS {
                let raw = ground.raw.as_ref().unwrap_or(&Value::Null);
                let patch = difference(&base.status, wanted, raw).unwrap_or(Value::Null);
                match self.send(&base.uid, &ground.resource_version, &patch).await {
                    Ok(answer) => return self.learn(&answer, ground.resource_version, &patch),
                    Err(error) if error.is_conflict() => {
                        tracing::debug!(object = %self.target, %error, "refused as stale: looking again");
                        self.writer.forget_answer(self.key, &self.target);
                        ground = self.look(base, &change).await?;
                    }
                    Err(error) => return Err(self.explain(&base.uid, error).await),
                }
            }
            Err(self.stale(base, "it keeps changing"))
        })
    }

    /// Takes what the caller saw, or this key's later answer for the same UID: never a newer cached object.
    ///
    /// What the caller saw is what the run began with, where that is the same version: the caller may have written
    /// the new status into its own copy.
    fn base<K: Object>(&self, object: &K, own: Option<&K>) -> Result<Base, WriteError> {
        let meta = object.meta();
        let uid = meta.uid.clone().unwrap_or_default();
        let resource_version = meta.resource_version.clone().unwrap_or_default();
        let seen = resource_version.parse::<Version>().ok();
        let later = self
            .writer
            .last_answer(self.key, &self.target)
            .filter(|answer| answer.uid == uid && answer.resource_version.parse::<Version>().ok() > seen);
        if let Some(answer) = later
            && let Some(StatusSeen { typed, raw }) = answer.status
        {
            let status = (self.through_status)(typed);
            return Ok(Base { uid, resource_version: answer.resource_version, status, raw: Some(raw) });
        }
        let seen = own.filter(|own| is_same(*own, object)).unwrap_or(object);
        let mut whole = encode(&self.target, seen)?;
        let status = (self.through_status)(whole["status"].take());
        Ok(Base { uid, resource_version, status, raw: None })
    }

    async fn send(&self, uid: &str, version: &str, patch: &Value) -> Result<ApiResponse, WriteError> {
        let request = Request {
            operation: VERB,
            verb: ApiVerb::Patch,
            target: &self.target,
            path: Path::Status,
            query: self.writer.query(),
            content: RequestBody::MergePatch(json!({
                "metadata": { "uid": uid, "resourceVersion": version },
                "status": patch,
            })),
        };
        self.writer.write(self.key, request).await
    }

    /// Gets the present object from the server, if the fields that the patch replaces have not changed.
    async fn look(&self, base: &Base, change: &Value) -> Result<Ground, WriteError> {
        let mut found = match self.writer.fetch(&self.target).await? {
            Some(found) => found,
            None => return Err(self.stale(base, "it is gone")),
        };
        let text = |field: &str| found["metadata"][field].as_str().unwrap_or_default().to_owned();
        let (uid, resource_version) = (text("uid"), text("resourceVersion"));
        if uid != base.uid {
            return Err(self.stale(base, "another object has its name"));
        }
        if version_of(&found) < base.resource_version.parse().ok() {
            self.writer.found_older_state(self.key, &self.target);
            return Err(self.stale(base, "the server holds an older version"));
        }
        let reads = (self.through_object)(&found).map(self.through_status);
        if !reads.is_some_and(|status| replaces_the_same(change, &base.status, &status)) {
            return Err(self.stale(base, "what the patch replaces has changed"));
        }
        Ok(Ground { resource_version, raw: Some(found["status"].take()) })
    }

    /// Makes a conflict, and sees to it that the next run begins with what this one did not know.
    fn stale(&self, base: &Base, why: &str) -> WriteError {
        if let Ok(version) = base.resource_version.parse() {
            self.writer.wait_for(self.key, &self.target, &Expectation::NewerThan(version));
        }
        WriteError::conflict(&self.target, why)
    }

    /// Learns from an answer, and says what of the patch it does not show.
    fn learn(&self, answer: &ApiResponse, carried: String, patch: &Value) -> Result<(), WriteError> {
        let raw = &answer.object["status"];
        let seen = (self.through_object)(&answer.object).map(|typed| StatusSeen { typed, raw: raw.clone() });
        self.writer.learn(self.key, &self.target, answer, &Proof::Carried(carried), seen);
        match dropped(patch, raw) {
            fields if fields.is_empty() => Ok(()),
            fields => Err(WriteError::NotStored { object: Box::new(self.target.clone()), fields }),
        }
    }

    /// Finds out what was not found: the object, or its status subresource. The server says the same of both.
    async fn explain(&self, uid: &str, error: WriteError) -> WriteError {
        let WriteError::NotFound { verb, object, status } = error else { return error };
        match self.writer.fetch(&self.target).await {
            Ok(Some(found)) if found["metadata"]["uid"] == uid => WriteError::NoStatusSubresource { object },
            _ => WriteError::NotFound { verb, object, status },
        }
    }
}

/// Returns whether two objects are one, at one version.
fn is_same<K: Object>(one: &K, other: &K) -> bool {
    let (one, other) = (one.meta(), other.meta());
    one.uid.is_some() && one.uid == other.uid && one.resource_version == other.resource_version
}

fn encode(target: &Target, value: &impl Serialize) -> Result<Value, WriteError> {
    serde_json::to_value(value).map_err(|error| WriteError::Codec {
        verb: VERB,
        object: Box::new(target.clone()),
        problem: format!("can't be written as JSON: {error}"),
    })
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
