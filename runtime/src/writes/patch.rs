//! Merge patches of the reconciled object itself, on the version that the caller saw.

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::{
    WriteError,
    child::{decode, encode},
    merge::{merged, replaces_the_same},
    request::{ApiVerb, Path, Request, RequestBody, Target},
    writer::{Proof, Writer, version_of},
};
use crate::{
    keys::Expectation,
    object::{Kind, Object, ObjectKey, Version},
};

const VERB: &str = "patch";
/// How often a patch that met someone else's change elsewhere in the object is sent again.
const RESENDS: usize = 3;

/// Sends a merge patch of an object; nothing if the object reads as patched already.
pub(crate) async fn patch<K: Object>(
    writer: &Writer,
    key: &ObjectKey,
    kind: Kind,
    object: &K,
    patch: Value,
) -> Result<K, WriteError> {
    let target = Target { kind, key: ObjectKey::of(object) };
    if !patch.is_object() || patch.get("metadata").is_some_and(|meta| !meta.is_object()) {
        let problem = "what changes an object, or its metadata, is an object".to_owned();
        return Err(WriteError::Codec { verb: VERB, object: Box::new(target), problem });
    }
    let base = PatchBase::of(&target, object)?;
    let patching = PatchAttempt { writer, key, target, patch };
    match patching.run(base).await? {
        Some(answer) => decode(VERB, &patching.target, answer),
        None => Ok(object.clone()),
    }
}

/// What a patch is computed from.
struct PatchBase {
    uid: String,
    resource_version: String,
    whole: Value,
}

impl PatchBase {
    fn of<K: Object>(target: &Target, object: &K) -> Result<Self, WriteError> {
        let named = || Box::new(target.clone());
        let (uid, version) = (object.meta().uid.clone(), object.meta().resource_version.clone());
        let set = |text: Option<String>| text.filter(|text| !text.is_empty());
        Ok(Self {
            uid: set(uid).ok_or_else(|| WriteError::Unidentified { object: named() })?,
            resource_version: set(version).ok_or_else(|| WriteError::Unversioned { object: named() })?,
            whole: encode(VERB, target, object)?,
        })
    }
}

struct PatchAttempt<'a> {
    writer: &'a Writer,
    key: &'a ObjectKey,
    target: Target,
    patch: Value,
}

impl PatchAttempt<'_> {
    /// Returns what the server answered; `None` where the object reads as patched already.
    ///
    /// Knows no type of the user's, and is boxed: it is compiled once, here.
    fn run(&self, base: PatchBase) -> BoxFuture<'_, Result<Option<Value>, WriteError>> {
        Box::pin(async move {
            let mut version = base.resource_version.clone();
            match self.later_version(&base) {
                // This key has written it since: what `object` shows tells nothing.
                Some(later) => version = later,
                None if merged(base.whole.clone(), &self.patch) == base.whole => return Ok(None),
                None => {}
            }
            for _ in 0..=RESENDS {
                match self.send(&base.uid, &version).await {
                    Ok(answer) => return Ok(Some(answer)),
                    Err(error) if error.is_conflict() => {
                        tracing::debug!(object = %self.target, %error, "refused as stale: looking again");
                        self.writer.forget_answer(self.key, &self.target);
                        version = self.look(&base).await?;
                    }
                    Err(error) => return Err(error),
                }
            }
            Err(self.stale(&base, "it keeps changing"))
        })
    }

    fn later_version(&self, base: &PatchBase) -> Option<String> {
        let seen = base.resource_version.parse::<Version>().ok();
        let answer = self.writer.last_answer(self.key, &self.target)?;
        let later = answer.uid == base.uid && answer.resource_version.parse::<Version>().ok() > seen;
        later.then_some(answer.resource_version)
    }

    async fn send(&self, uid: &str, version: &str) -> Result<Value, WriteError> {
        let mut body = self.patch.clone();
        body["metadata"]["uid"] = json!(uid);
        body["metadata"]["resourceVersion"] = json!(version);
        let request = Request {
            operation: VERB,
            verb: ApiVerb::Patch,
            target: &self.target,
            path: Path::Object,
            query: self.writer.query(),
            content: RequestBody::MergePatch(body),
        };
        let answer = self.writer.write(self.key, request).await?;
        self.writer.learn(self.key, &self.target, &answer, &Proof::Carried(version.to_owned()), None);
        Ok(answer.object)
    }

    /// Gets the present version from the server, if the fields that the patch replaces have not changed.
    async fn look(&self, base: &PatchBase) -> Result<String, WriteError> {
        let Some(found) = self.writer.fetch(&self.target).await? else {
            return Err(self.stale(base, "it is gone"));
        };
        let text = |field: &str| found["metadata"][field].as_str().unwrap_or_default().to_owned();
        if text("uid") != base.uid {
            return Err(self.stale(base, "another object has its name"));
        }
        if version_of(&found) < base.resource_version.parse().ok() {
            self.writer.found_older_state(self.key, &self.target);
            return Err(self.stale(base, "the server holds an older version"));
        }
        match replaces_the_same(&self.patch, &base.whole, &found) {
            true => Ok(text("resourceVersion")),
            false => Err(self.stale(base, "what the patch replaces has changed")),
        }
    }

    /// Makes a conflict, and sees to it that the next run begins with what this one did not know.
    fn stale(&self, base: &PatchBase, why: &str) -> WriteError {
        if let Ok(version) = base.resource_version.parse() {
            self.writer.wait_for(self.key, &self.target, &Expectation::NewerThan(version));
        }
        WriteError::conflict(&self.target, why)
    }
}
