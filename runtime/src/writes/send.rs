//! Sends the requests of a controller: writes, of which it keeps account, and reads.

use futures::future::BoxFuture;
use serde_json::Value;

use super::{
    WriteError,
    child::decode,
    contradictions::Answered,
    follow_up::InFlightWrite,
    record::RunActivity,
    request::{Answer, ApiVerb, Content, Path, Request, Target},
    writer::{Writer, version_of},
};
use crate::object::{Object, ObjectKey, Scope};

// What follows is boxed where code that is generic calls it: so it is compiled here, once, and not in each crate that
// awaits it for a type of its own.
impl Writer {
    /// Sends a write of a key; if its reply is lost, the key waits for what became of it.
    pub(crate) fn write<'a>(
        &'a self,
        key: &'a ObjectKey,
        request: Request<'a>,
    ) -> BoxFuture<'a, Result<Answer, WriteError>> {
        Box::pin(async move {
            self.tell_of_undeclared(&request);
            self.check_caches(key, request.target).await?;
            self.sender.check(&request)?;
            let pending = InFlightWrite::new(self, key, request.target, request.path);
            let (target, path) = (request.target, request.path);
            let before = self.before(target);
            let answer = self.sender.send(request).await;
            match &answer {
                Err(error) if error.leaves_in_doubt() => drop(pending),
                _ => pending.settled(),
            }
            match &answer {
                Ok(_) => self.memory().records.note(key, RunActivity::Wrote),
                // Of a status, or of a collection, it says less.
                Err(error) if error.is_not_found() && path == Path::Object => {
                    self.compare(target, before, &Answered::Absent);
                }
                Err(_) => {}
            }
            answer
        })
    }

    /// Asks the server for a target; `None` where there is none.
    pub(crate) fn fetch<'a>(
        &'a self,
        target: &'a Target,
    ) -> BoxFuture<'a, Result<Option<Value>, WriteError>> {
        Box::pin(async move {
            match self.get(target).await {
                Ok(object) => Ok(Some(object)),
                Err(error) if error.is_not_found() => Ok(None),
                Err(error) => Err(error),
            }
        })
    }

    /// Asks the server for a target, and holds its answer against the caches.
    fn get<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Value, WriteError>> {
        Box::pin(async move {
            let before = self.before(target);
            let found = self.read(target, Path::Object, "").await;
            let answered = match &found {
                Ok(found) => Answered::Present {
                    uid: found["metadata"]["uid"].as_str().unwrap_or_default().to_owned(),
                    version: version_of(found),
                },
                Err(error) if error.is_not_found() => Answered::Absent,
                Err(_) => return found,
            };
            self.compare(target, before, &answered);
            found
        })
    }

    /// Asks the server for an object.
    pub(crate) async fn get_as<C: Object>(&self, target: &Target) -> Result<C, WriteError> {
        if target.kind.scope == Scope::Namespaced && target.key.namespace().is_none() {
            return Err(WriteError::Unnamed { object: Box::new(target.clone()), missing: "the namespace" });
        }
        decode("get", target, self.get(target).await?)
    }

    /// Asks the server for the latest state, whatever caches it has.
    pub(super) async fn read(&self, target: &Target, path: Path, query: &str) -> Result<Value, WriteError> {
        let request = Request {
            operation: "get",
            verb: if path == Path::Collection { ApiVerb::List } else { ApiVerb::Get },
            target,
            path,
            query: query.to_owned(),
            content: Content::None,
        };
        self.tell_of_undeclared(&request);
        self.sender.check(&request)?;
        self.sender.send(request).await.map(|answer| answer.object)
    }
}
