//! Obeys a server that says it is overloaded.
//!
//! The key whose write was refused waits until the time that the server names. So do all other keys once two writes in a
//! row were refused so: a server that takes writes in between refuses now and then, or requests of one priority level.
//! A read that is refused so holds up only its own key.
//!
//! A write that would be sent before fails at once, and its key runs again then: a run that waited would hold a
//! worker, and go on from caches that have grown old. What the run wrote before stays written, and is not sent again
//! if nothing changed. At that time the keys that were held back run at most as many at once as there are workers, so
//! that few requests find out whether the server still means it.

use std::{mem, sync::Arc};

use parking_lot::Mutex;

use super::{
    WriteError,
    refusal::RetryAfter,
    request::{ApiResponse, ApiVerb, ObjectRequest},
};
use crate::api_request::SentBy;

/// Sends the requests of all controllers of a manager; clones share what the server asked for.
#[derive(Clone)]
pub(crate) struct Sender {
    client: kube::Client,
    state: Arc<Mutex<SenderState>>,
}

#[derive(Default)]
struct SenderState {
    paused: Option<RetryAfter>,
    /// Whether the last write was refused so; one that fails otherwise does not count.
    refused: bool,
}

impl Sender {
    pub(crate) fn new(client: kube::Client) -> Self {
        Self { client, state: Arc::default() }
    }

    /// Returns the same sender for one controller: its requests say who sends them.
    pub(crate) fn of(&self, controller: Arc<str>) -> Self {
        let (client, by) = (self.client.clone(), SentBy(controller));
        let namespace = client.default_namespace().to_owned();
        let service = tower::service_fn(move |mut request: http::Request<kube::client::Body>| {
            request.extensions_mut().insert(by.clone());
            let client = client.clone();
            async move { client.send(request).await }
        });
        Self { client: kube::Client::new(service, namespace), state: self.state.clone() }
    }

    pub(crate) fn client(&self) -> &kube::Client {
        &self.client
    }

    /// Returns what keeps requests from being sent now.
    pub(super) fn paused(&self) -> Option<RetryAfter> {
        let mut state = self.state.lock();
        state.paused = state.paused.filter(|asked| !asked.left().is_zero());
        state.paused
    }

    /// Sends a request, unless the server asks for none, and learns from a refusal that speaks of the server.
    pub(super) async fn send(&self, request: ObjectRequest<'_>) -> Result<ApiResponse, WriteError> {
        if let Some(asked) = self.paused() {
            let (verb, object) = (request.operation, Box::new(request.target.clone()));
            return Err(WriteError::Overloaded { verb, object, retry_after: asked.not_sent() });
        }
        let writes = !matches!(request.verb, ApiVerb::Get | ApiVerb::List);
        let answer = request.send(&self.client).await;
        match &answer {
            Ok(_) if writes => self.state.lock().refused = false,
            Err(WriteError::Refused { status, retry_after: Some(asked), .. })
                if writes && matches!(status.code, 429 | 503) =>
            {
                self.refused(*asked);
            }
            _ => {}
        }
        answer
    }

    fn refused(&self, asked: RetryAfter) {
        let mut state = self.state.lock();
        if !mem::replace(&mut state.refused, true) {
            return;
        }
        let before = state.paused.filter(|before| !before.left().is_zero());
        state.paused = [before, Some(asked)].into_iter().flatten().max_by_key(|paused| paused.until);
        drop(state);
        if before.is_none() {
            tracing::warn!(retry_after = ?asked.asked(), "the server is overloaded; pausing all writes");
        }
    }
}
