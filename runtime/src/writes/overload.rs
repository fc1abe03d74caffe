//! Obeys a server that says it is overloaded: until the time that it names, nothing is sent on behalf of any key.
//!
//! A write that would be sent before fails at once, and its key runs again then: a run that waited would hold a
//! worker, and go on from caches that have grown old. What the run wrote before stays written, and is not sent again
//! if nothing changed. At that time the keys that were held back run at most as many at once as there are workers, so
//! that few requests find out whether the server still means it.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use serde::de::DeserializeOwned;

use super::{
    WriteError,
    refusal::RetryAfter,
    request::{Answer, Request},
};

/// Sends the requests of all controllers of a manager; clones share what the server asked for.
#[derive(Clone)]
pub(crate) struct Sender {
    client: kube::Client,
    quiet: Arc<Mutex<Option<RetryAfter>>>,
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("quiet", &self.quiet).finish_non_exhaustive()
    }
}

impl Sender {
    pub(crate) fn new(client: kube::Client) -> Self {
        Self { client, quiet: Arc::default() }
    }

    pub(crate) fn client(&self) -> &kube::Client {
        &self.client
    }

    /// Returns what keeps requests from being sent now.
    pub(super) fn quiet(&self) -> Option<RetryAfter> {
        let mut quiet = self.quiet.lock().unwrap_or_else(PoisonError::into_inner);
        *quiet = quiet.filter(|asked| !asked.is_over());
        *quiet
    }

    /// Refuses a request that would be sent while the server asks for none.
    pub(super) fn check(&self, request: &Request<'_>) -> Result<(), WriteError> {
        self.quiet().map_or(Ok(()), |asked| {
            let (verb, object) = (request.verb, Box::new(request.target.clone()));
            Err(WriteError::HeldBack { verb, object, retry_after: asked.held_back() })
        })
    }

    /// Sends a request, and learns from a refusal that speaks of the server.
    pub(super) async fn send<T: DeserializeOwned>(
        &self,
        request: Request<'_>,
    ) -> Result<Answer<T>, WriteError> {
        let answer = request.send(&self.client).await;
        if let Err(WriteError::Refused { status, retry_after: Some(asked), .. }) = &answer
            && matches!(status.code, 429 | 503)
        {
            self.hush(*asked);
        }
        answer
    }

    fn hush(&self, asked: RetryAfter) {
        let mut quiet = self.quiet.lock().unwrap_or_else(PoisonError::into_inner);
        let before = quiet.filter(|before| !before.is_over());
        *quiet = Some(before.map_or(asked, |before| before.or_later(asked)));
        drop(quiet);
        if before.is_none() {
            tracing::warn!(retry_after = ?asked.asked(), "the server is overloaded: nothing is written to it before");
        }
    }
}
