//! What the crate `watchkeeper-trials` uses of a server's private parts.
//!
//! It is not part of the public interface: any release may change it.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use serde_json::Value;

use crate::faults::FaultyBody;
use crate::kit::Kind;
use crate::server::{ApiServer, Builder, ForMemory};
use crate::service::Passage;
use crate::status::Status;
use crate::store::{ChangeKind, ResourceId};
use crate::{Kit, Restart};

pub use crate::clock::{begin_of_second, seconds_text};
pub use crate::faults::Interrupted;
pub use crate::kit::{body, reset, split};
pub use crate::namespaces::PRELOADED;
pub use crate::route::RequestInfo;
pub use crate::schema::{JsonType, ListKind, NodeRef, Schema};
pub use crate::server::Prepared;
pub use crate::service::client_over;

/// Metadata of untyped objects.
pub mod object {
    pub use crate::object::{
        Owner, carry, finalizers, is_deleting, key, map_mut, meta, name, namespace, owners, remove, text,
        tidy, uid,
    };
}

/// The body of an answer, as the fault rules let it pass.
#[derive(Debug)]
pub struct AnswerBody(FaultyBody);

impl AnswerBody {
    /// Builds a body that arrives at once.
    #[must_use]
    pub fn whole(bytes: Bytes) -> Self {
        Self(FaultyBody::whole(bytes))
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Interrupted;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Interrupted>>> {
        Pin::new(&mut self.0).poll_frame(cx)
    }
}

/// One stored object.
#[derive(Clone, Debug)]
pub struct StoredObject {
    /// The plural, with the group after a dot.
    pub resource: String,
    /// The path of the object itself.
    pub path: String,
    /// The object.
    pub value: Value,
}

impl StoredObject {
    /// Returns the object's UID.
    #[must_use]
    pub fn uid(&self) -> &str {
        crate::object::uid(&self.value)
    }

    /// Names the object for people, e.g. `deployments.apps shop/a`.
    #[must_use]
    pub fn name(&self) -> String {
        let key = crate::object::key(crate::object::namespace(&self.value), crate::object::name(&self.value));
        format!("{} {key}", self.resource)
    }
}

/// One change that the server remembers.
#[derive(Clone, Debug)]
pub struct StoredChange {
    /// The plural, with the group after a dot.
    pub resource: String,
    /// The object as the change left it.
    pub value: Value,
    /// The version of the change.
    pub version: u64,
    /// Whether the change removed the object.
    pub gone: bool,
}

/// Starts a server and keeps its first state, from which others can start.
///
/// # Panics
///
/// When the server refuses a definition; outside a tokio runtime.
pub async fn prepare(builder: Builder<ForMemory>) -> Prepared {
    builder.prepare().await
}

/// Answers one request, under the fault rules.
///
/// # Errors
///
/// When the connection breaks.
pub async fn handle(
    server: &ApiServer,
    request: Request<http_body_util::Full<Bytes>>,
) -> Result<Response<AnswerBody>, Interrupted> {
    Ok(server.front().handle(request, Passage::Ruled).await?.map(AnswerBody))
}

/// Builds the body that a request gets with an error status.
#[must_use]
pub fn refusal(code: u16, info: &RequestInfo, message: String) -> Response<AnswerBody> {
    let reason = match code {
        403 => "Forbidden",
        404 => {
            let name = info.name.as_deref().unwrap_or_default();
            return Status::not_found(&info.group, &info.resource, name).to_response().map(AnswerBody::whole);
        }
        409 => "Conflict",
        410 => "Expired",
        422 => "Invalid",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        _ => "InternalError",
    };
    let mut status = Status::new(code, Some(reason), message);
    if matches!(code, 429 | 503) {
        status.retry_after = Some(2);
    }
    status.to_response().map(AnswerBody::whole)
}

/// Restores the server to an earlier version; false if it is forgotten.
#[must_use]
pub fn restore(server: &ApiServer, version: u64) -> bool {
    server.front().restart(Restart::At(version)).is_ok()
}

/// Returns the stored object that a request names.
#[must_use]
pub fn peek(server: &ApiServer, info: &RequestInfo) -> Option<Value> {
    server.core().peek(info)
}

/// Writes the object that a request names, as another client would.
pub fn bump(server: &ApiServer, info: &RequestInfo) {
    server.core().bump(info);
}

/// Returns whether the kind of a request has a definition that can be deleted.
#[must_use]
pub fn is_custom(server: &ApiServer, info: &RequestInfo) -> bool {
    server.core().with_state(|state| {
        state.registry.find(&info.group, &info.resource).is_some_and(|resource| resource.is_custom())
    })
}

/// Reads a definition's schema; `None` if the server would refuse it.
#[must_use]
pub fn schema_of(definition: &Value) -> Option<Schema> {
    Schema::from_crd(definition).ok()
}

/// Returns the schema of a kind's stored version.
#[must_use]
pub fn schema(server: &ApiServer, group: &str, plural: &str) -> Option<Schema> {
    server.core().with_state(|state| {
        state.registry.find(group, plural).map(|resource| resource.storage_version().schema.clone())
    })
}

/// Returns every stored object.
#[must_use]
pub fn stored(server: &ApiServer) -> Vec<StoredObject> {
    server.core().with_state(|state| {
        let mut all = Vec::new();
        for resource in state.registry.stored() {
            let (plural, version) = (resource.plural(), &resource.storage_version().version);
            let root = match resource.group() {
                "" => format!("/api/{version}"),
                group => format!("/apis/{group}/{version}"),
            };
            for stored in state.store.scan(&resource.id, "") {
                let value = Value::clone(&stored.value());
                let name = crate::object::name(&value);
                let path = match crate::object::namespace(&value) {
                    "" => format!("{root}/{plural}/{name}"),
                    namespace => format!("{root}/namespaces/{namespace}/{plural}/{name}"),
                };
                all.push(StoredObject { resource: full_name(&resource.id), path, value });
            }
        }
        all
    })
}

/// Returns the changes after a version; `None` for each resource whose changes are forgotten.
#[must_use]
pub fn changes_after(server: &ApiServer, version: u64) -> Vec<Option<Vec<StoredChange>>> {
    server.core().with_state(|state| {
        let ids: Vec<ResourceId> = state.registry.stored().map(|resource| resource.id.clone()).collect();
        ids.iter()
            .map(|id| {
                let changes = state.store.changes_after(id, version).ok()?;
                let changes = changes.iter().map(|change| StoredChange {
                    resource: full_name(id),
                    value: Value::clone(&change.object.value()),
                    version: change.version,
                    gone: change.kind == ChangeKind::Delete,
                });
                Some(changes.collect())
            })
            .collect()
    })
}

fn full_name(id: &ResourceId) -> String {
    match &*id.group {
        "" => id.plural.to_string(),
        group => format!("{}.{group}", id.plural),
    }
}

/// Returns the namespace of objects and keys that name none.
#[must_use]
pub fn namespace(kit: &Kit) -> &str {
    kit.namespace()
}

/// Returns the client of a kit, which no fault rule affects.
#[must_use]
pub fn client(kit: &Kit) -> kube::Client {
    kit.client_ref().clone()
}

/// Returns the path of a kind's collection.
#[must_use]
pub fn path<K: Kind>(kit: &Kit, namespace: Option<&str>) -> String {
    kit.path::<K>(namespace)
}

/// Stores an object under a path as it is, but for its version; without one the object there goes. False for a path that the
/// server does not serve, and where nothing goes.
#[must_use]
pub fn put(server: &ApiServer, path: &str, value: Option<Value>) -> bool {
    let Ok(uri) = path.parse() else { return false };
    server.core().put(&RequestInfo::of(&http::Method::PUT, &uri), value)
}

/// Takes an owner for one that is there, until an object has its UID: what it owns is not garbage.
pub fn assume(server: &ApiServer, uid: &str) {
    server.core().assume_owner(uid);
}

/// Deletes what nothing owns any more.
pub fn collect_garbage(server: &ApiServer) {
    server.core().collect_garbage();
}
