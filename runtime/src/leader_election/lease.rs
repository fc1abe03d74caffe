//! Reads and writes the Lease at the server, each within a time limit.

use std::time::Duration;

use http::Request;
use kube::{
    api::{GetParams, PostParams},
    core::request,
};
use serde_json::Value;
use tokio::time::timeout;

use super::{
    elector::LeaseAnswer,
    record::{LeaseRecord, StoredLease, new_lease},
};
use crate::{chain::one_line, object::ObjectKey};

/// One Lease, through a client that is not gated.
pub(super) struct Lease {
    pub(super) client: kube::Client,
    pub(super) key: ObjectKey,
}

/// Why a request had no useful answer, in one line.
pub(super) type LeaseFailure = String;

/// How the server refused a request, or why it did not answer.
enum LeaseError {
    Conflict,
    /// The Lease is missing.
    Missing,
    Otherwise(LeaseFailure),
}

impl Lease {
    pub(super) async fn read(&self, within: Duration) -> (LeaseAnswer, Option<LeaseFailure>) {
        let request = self.leases().get(self.key.name(), &GetParams::default());
        match self.send(request, within).await {
            Ok(lease) => (LeaseAnswer::Found(lease), None),
            Err(LeaseError::Missing) => (LeaseAnswer::Absent, None),
            Err(LeaseError::Conflict) => (LeaseAnswer::Refused, None),
            Err(LeaseError::Otherwise(failure)) => (LeaseAnswer::Unknown, Some(failure)),
        }
    }

    /// Writes a record if the Lease is still as it was read. Creates the Lease if there was none.
    pub(super) async fn write(
        &self,
        base: Option<&StoredLease>,
        record: &LeaseRecord,
        within: Duration,
    ) -> (LeaseAnswer, Option<LeaseFailure>) {
        let (leases, params) = (self.leases(), PostParams::default());
        let request = match base {
            Some(base) => {
                leases.replace(self.key.name(), &params, base.with(record).to_string().into_bytes())
            }
            None => leases.create(&params, new_lease(&self.key, record).to_string().into_bytes()),
        };
        match self.send(request, within).await {
            Ok(lease) => (LeaseAnswer::Written(lease), None),
            Err(LeaseError::Conflict | LeaseError::Missing) => (LeaseAnswer::Refused, None),
            Err(LeaseError::Otherwise(failure)) => (LeaseAnswer::Unknown, Some(failure)),
        }
    }

    async fn send(
        &self,
        request: Result<Request<Vec<u8>>, request::Error>,
        within: Duration,
    ) -> Result<StoredLease, LeaseError> {
        let request = request.map_err(|error| LeaseError::Otherwise(error.to_string()))?;
        match timeout(within, self.client.request::<Value>(request)).await {
            Ok(Ok(lease)) => Ok(StoredLease::of(lease)),
            Ok(Err(error)) => Err(match &error {
                kube::Error::Api(status) if status.code == 409 => LeaseError::Conflict,
                // A 404 may also mean that the namespace or the whole API is missing.
                kube::Error::Api(status)
                    if status.code == 404
                        && status.details.as_ref().is_some_and(|about| about.kind == "leases") =>
                {
                    LeaseError::Missing
                }
                error => LeaseError::Otherwise(one_line(error)),
            }),
            Err(_) => Err(LeaseError::Otherwise(format!("no answer within {within:?}"))),
        }
    }

    fn leases(&self) -> kube::core::Request {
        let namespace = self.key.namespace().unwrap_or_default();
        kube::core::Request::new(format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"))
    }
}
