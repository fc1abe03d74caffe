//! Reads and writes the Lease at the server, each within a time limit.

use std::time::Duration;

use http::{Method, Request, StatusCode, header};
use serde_json::Value;
use tokio::time::timeout;

use super::{
    elector::LeaseAnswer,
    record::{LeaseRecord, StoredLease, new_lease},
};
use crate::object::ObjectKey;

/// One Lease, through a client that is not gated.
pub(super) struct Lease {
    client: kube::Client,
    key: ObjectKey,
}

/// Why a request had no useful answer, in one line.
pub(super) type LeaseFailure = String;

impl Lease {
    pub(super) fn new(client: kube::Client, key: ObjectKey) -> Self {
        Self { client, key }
    }

    pub(super) async fn read(&self, within: Duration) -> (LeaseAnswer, Option<LeaseFailure>) {
        match self.send(Method::GET, &self.path(), None, within).await {
            Ok(lease) => (LeaseAnswer::Found(StoredLease::of(lease)), None),
            Err(LeaseError::Status(StatusCode::NOT_FOUND, why)) if why.is_of_the_lease() => {
                (LeaseAnswer::Absent, None)
            }
            Err(failed) => (LeaseAnswer::Unknown, Some(failed.message())),
        }
    }

    /// Writes a record if the Lease is still as it was read. Creates the Lease if there was none.
    pub(super) async fn write(
        &self,
        base: Option<&StoredLease>,
        record: &LeaseRecord,
        within: Duration,
    ) -> (LeaseAnswer, Option<LeaseFailure>) {
        let namespace = self.key.namespace().unwrap_or_default();
        let sent = match base {
            Some(base) => self.send(Method::PUT, &self.path(), Some(base.with(record)), within).await,
            None => {
                let lease = new_lease(namespace, self.key.name(), record);
                self.send(Method::POST, &collection(namespace), Some(lease), within).await
            }
        };
        match sent {
            Ok(lease) => (LeaseAnswer::Written(StoredLease::of(lease)), None),
            Err(LeaseError::Status(StatusCode::CONFLICT, _)) => (LeaseAnswer::Refused, None),
            Err(LeaseError::Status(StatusCode::NOT_FOUND, why)) if why.is_of_the_lease() => {
                (LeaseAnswer::Refused, None)
            }
            Err(failed) => (LeaseAnswer::Unknown, Some(failed.message())),
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
        within: Duration,
    ) -> Result<Value, LeaseError> {
        let body = body.map(|body| serde_json::to_vec(&body)).transpose();
        let body = body.map_err(|error| LeaseError::Otherwise(error.to_string()))?.unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::ACCEPT, "application/json")
            .header(header::CONTENT_TYPE, "application/json")
            .body(body)
            .map_err(|error| LeaseError::Otherwise(error.to_string()))?;
        match timeout(within, self.client.request::<Value>(request)).await {
            Ok(Ok(lease)) => Ok(lease),
            Ok(Err(kube::Error::Api(status))) => {
                let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                let about = status.details.as_ref().map(|details| details.kind.clone()).unwrap_or_default();
                Err(LeaseError::Status(code, LeaseRefusal { message: status.message, about }))
            }
            Ok(Err(error)) => Err(LeaseError::Otherwise(error.to_string())),
            Err(_) => Err(LeaseError::Otherwise(format!("no answer within {within:?}"))),
        }
    }

    fn path(&self) -> String {
        format!("{}/{}", collection(self.key.namespace().unwrap_or_default()), self.key.name())
    }
}

fn collection(namespace: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
}

enum LeaseError {
    Status(StatusCode, LeaseRefusal),
    Otherwise(String),
}

/// The server's answer to a request that it refused.
struct LeaseRefusal {
    message: String,
    /// The kind of object that the answer names.
    about: String,
}

impl LeaseRefusal {
    /// Says whether the Lease is missing. A 404 may also mean that the namespace or the whole API is missing.
    fn is_of_the_lease(&self) -> bool {
        self.about == "leases"
    }
}

impl LeaseError {
    fn message(self) -> LeaseFailure {
        match self {
            Self::Status(code, refusal) => format!("{code}: {}", crate::plain::said(&refusal.message)),
            Self::Otherwise(why) => why,
        }
    }
}
