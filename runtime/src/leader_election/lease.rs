//! Reads and writes the Lease at the server, each within a time limit.

use std::time::Duration;

use http::Request;
use kube::{
    api::{GetParams, PostParams},
    core::request,
};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::{Instant, timeout};

use super::{
    elector::LeaseAnswer,
    record::{LeaseRecord, StoredLease, new_lease},
};
use crate::{api_request::OnNewConnection, chain::one_line, object::ObjectKey};

/// One Lease, through a client that is not gated.
pub(super) struct Lease {
    pub(super) client: kube::Client,
    pub(super) key: ObjectKey,
    /// When a request had no answer in time.
    unanswered: Mutex<Option<Instant>>,
}

/// For how long after that connections may be dead: then the kernel has found that out.
const SUSPECT: Duration = Duration::from_secs(60);

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
    pub(super) fn new(client: kube::Client, key: ObjectKey) -> Self {
        Self { client, key, unanswered: Mutex::default() }
    }

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
        let mut request = request.map_err(|error| LeaseError::Otherwise(error.to_string()))?;
        // A term has time for two requests without an answer, and all connections may have died at once.
        let unanswered = *self.unanswered.lock();
        if unanswered.is_some_and(|unanswered| unanswered.elapsed() < SUSPECT) {
            request.extensions_mut().insert(OnNewConnection);
        }
        let answer = timeout(within, self.client.request::<Value>(request)).await;
        if answer.is_err() {
            *self.unanswered.lock() = Some(Instant::now());
        }
        match answer {
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

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, future::pending, sync::Arc};

    use http::Response;
    use kube::client::Body;
    use tokio::time::sleep;
    use tower::service_fn;

    use super::*;

    // L13
    #[tokio::test(start_paused = true)]
    async fn requests_that_follow_an_unanswered_one_have_new_connections_for_a_while() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let noted = seen.clone();
        let service = service_fn(move |request: Request<Body>| {
            let mut seen = noted.lock();
            seen.push(request.extensions().get::<OnNewConnection>().is_some());
            let is_answered = seen.len() > 1;
            async move {
                if !is_answered {
                    pending::<()>().await;
                }
                let lease = br#"{"metadata":{"name":"maps"}}"#;
                Ok::<_, Infallible>(Response::new(Body::from(lease.to_vec())))
            }
        });
        let lease = Lease::new(kube::Client::new(service, "shop"), ObjectKey::new("shop", "maps"));
        for pause in [0, 0, 50, 20] {
            sleep(Duration::from_secs(pause)).await;
            lease.read(Duration::from_secs(2)).await;
        }
        assert_eq!(*seen.lock(), [false, true, true, false]);
    }
}
