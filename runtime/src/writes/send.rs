//! Sends the requests of a controller: writes, of which it keeps account, and reads.

use http::Method;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    WriteError,
    contradictions::Answered,
    follow_up::InFlightWrite,
    own_writes::RunActivity,
    request::{Answer, Content, Path, Request, Target},
    writer::{Writer, version_of},
};
use crate::object::ObjectKey;

impl Writer {
    /// Sends a write of a key; if its reply is lost, the key waits for what became of it.
    pub(crate) async fn write<T: DeserializeOwned>(
        &self,
        key: &ObjectKey,
        request: Request<'_>,
    ) -> Result<Answer<T>, WriteError> {
        self.check_caches(key, request.target).await?;
        self.sender.check(&request)?;
        let pending = InFlightWrite::new(self, key, request.target, request.path);
        let (target, path) = (request.target, request.path);
        let before = self.before(target);
        let answer = self.sender.send::<T>(request).await;
        match &answer {
            Err(error) if error.leaves_in_doubt() => drop(pending),
            _ => pending.settled(),
        }
        match &answer {
            Ok(_) => self.memory().own.note(key, RunActivity::Wrote),
            // Of a status, or of a collection, it says less.
            Err(error) if error.is_not_found() && path == Path::Object => {
                self.compare(target, before, &Answered::Absent);
            }
            Err(_) => {}
        }
        answer
    }

    /// Asks the server for a target; `None` where there is none.
    pub(crate) async fn fetch(&self, target: &Target) -> Result<Option<Value>, WriteError> {
        let before = self.before(target);
        let found = match self.read(target, Path::Object, "").await {
            Ok(object) => Some(object),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error),
        };
        let answered = found.as_ref().map_or(Answered::Absent, |found| Answered::Present {
            uid: found["metadata"]["uid"].as_str().unwrap_or_default().to_owned(),
            version: version_of(found),
        });
        self.compare(target, before, &answered);
        Ok(found)
    }

    /// Asks the server for the latest state, whatever caches it has.
    pub(super) async fn read(&self, target: &Target, path: Path, query: &str) -> Result<Value, WriteError> {
        let request = Request {
            verb: "get",
            method: Method::GET,
            target,
            path,
            query: query.to_owned(),
            content: Content::None,
        };
        self.sender.check(&request)?;
        self.sender.send::<Value>(request).await.map(|answer| answer.object)
    }
}
