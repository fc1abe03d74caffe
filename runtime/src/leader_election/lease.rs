//! The Lease at the server: reads and writes of it, each within its time.

use std::time::Duration;

use http::{Method, Request, StatusCode, header};
use serde_json::Value;
use tokio::time::timeout;

use super::{
    elector::Answer,
    record::{Record, Stored, new_lease},
};
use crate::object::ObjectKey;

/// One Lease, by the client that no gate stands before.
pub(super) struct Lease {
    client: kube::Client,
    key: ObjectKey,
}

/// Why a request brought no answer of use, in a line.
pub(super) type LeaseFailure = String;

impl Lease {
    pub(super) fn new(client: kube::Client, key: ObjectKey) -> Self {
        Self { client, key }
    }

    pub(super) async fn read(&self, within: Duration) -> (Answer, Option<LeaseFailure>) {
        match self.send(Method::GET, &self.path(), None, within).await {
            Ok(lease) => (Answer::Found(Stored::of(lease)), None),
            Err(Failed::Status(StatusCode::NOT_FOUND, why)) if why.is_of_the_lease() => {
                (Answer::Absent, None)
            }
            Err(failed) => (Answer::Unknown, Some(failed.message())),
        }
    }

    /// Writes a record over what was read, if it is still that; creates the Lease where nothing was.
    pub(super) async fn write(
        &self,
        base: Option<&Stored>,
        record: &Record,
        within: Duration,
    ) -> (Answer, Option<LeaseFailure>) {
        let namespace = self.key.namespace().unwrap_or_default();
        let sent = match base {
            Some(base) => self.send(Method::PUT, &self.path(), Some(base.with(record)), within).await,
            None => {
                let lease = new_lease(namespace, self.key.name(), record);
                self.send(Method::POST, &collection(namespace), Some(lease), within).await
            }
        };
        match sent {
            Ok(lease) => (Answer::Written(Stored::of(lease)), None),
            Err(Failed::Status(StatusCode::CONFLICT, _)) => (Answer::Refused, None),
            Err(Failed::Status(StatusCode::NOT_FOUND, why)) if why.is_of_the_lease() => {
                (Answer::Refused, None)
            }
            Err(failed) => (Answer::Unknown, Some(failed.message())),
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
        within: Duration,
    ) -> Result<Value, Failed> {
        let body = body.map(|body| serde_json::to_vec(&body)).transpose();
        let body = body.map_err(|error| Failed::Otherwise(error.to_string()))?.unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::ACCEPT, "application/json")
            .header(header::CONTENT_TYPE, "application/json")
            .body(body)
            .map_err(|error| Failed::Otherwise(error.to_string()))?;
        match timeout(within, self.client.request::<Value>(request)).await {
            Ok(Ok(lease)) => Ok(lease),
            Ok(Err(kube::Error::Api(status))) => {
                let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                let about = status.details.as_ref().map(|details| details.kind.clone()).unwrap_or_default();
                Err(Failed::Status(code, Refusal { message: status.message, about }))
            }
            Ok(Err(error)) => Err(Failed::Otherwise(error.to_string())),
            Err(_) => Err(Failed::Otherwise(format!("no answer within {within:?}"))),
        }
    }

    fn path(&self) -> String {
        format!("{}/{}", collection(self.key.namespace().unwrap_or_default()), self.key.name())
    }
}

fn collection(namespace: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
}

enum Failed {
    Status(StatusCode, Refusal),
    Otherwise(String),
}

/// The server's answer to a request that it refused.
struct Refusal {
    message: String,
    /// The kind that it speaks of.
    about: String,
}

impl Refusal {
    /// A 404 may also mean that the namespace, or the whole API, is not there.
    fn is_of_the_lease(&self) -> bool {
        self.about == "leases"
    }
}

impl Failed {
    fn message(self) -> LeaseFailure {
        match self {
            Self::Status(code, refusal) => format!("{code}: {}", crate::plain::said(&refusal.message)),
            Self::Otherwise(why) => why,
        }
    }
}
