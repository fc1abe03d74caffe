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

use super::{
    WriteError,
    refusal::RetryAfter,
    request::{Answer, Request},
};

/// Sends the requests of all controllers of a manager; clones share what the server asked for.
#[derive(Clone)]
pub(crate) struct Sender {
    client: kube::Client,
    paused: Arc<Mutex<Option<RetryAfter>>>,
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("paused", &self.paused).finish_non_exhaustive()
    }
}

impl Sender {
    pub(crate) fn new(client: kube::Client) -> Self {
        Self { client, paused: Arc::default() }
    }

    pub(crate) fn client(&self) -> &kube::Client {
        &self.client
    }

    /// Returns what keeps requests from being sent now.
    pub(super) fn paused(&self) -> Option<RetryAfter> {
        let mut paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        *paused = paused.filter(|asked| !asked.is_over());
        *paused
    }

    /// Refuses a request that would be sent while the server asks for none.
    pub(super) fn check(&self, request: &Request<'_>) -> Result<(), WriteError> {
        self.paused().map_or(Ok(()), |asked| {
            let (verb, object) = (request.verb, Box::new(request.target.clone()));
            Err(WriteError::Overloaded { verb, object, retry_after: asked.not_sent() })
        })
    }

    /// Sends a request, and learns from a refusal that speaks of the server.
    pub(super) async fn send(&self, request: Request<'_>) -> Result<Answer, WriteError> {
        let answer = request.send(&self.client).await;
        if let Err(WriteError::Refused { status, retry_after: Some(asked), .. }) = &answer
            && matches!(status.code, 429 | 503)
        {
            self.pause(*asked);
        }
        answer
    }

    fn pause(&self, asked: RetryAfter) {
        let mut paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        let before = paused.filter(|before| !before.is_over());
        *paused = Some(before.map_or(asked, |before| before.or_later(asked)));
        drop(paused);
        if before.is_none() {
            tracing::warn!(retry_after = ?asked.asked(), "the server is overloaded: nothing is written to it before");
        }
    }
}
