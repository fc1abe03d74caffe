//! Obeys a server that says it is overloaded.
//!
//! The key whose write was refused waits until the time that the server names. So do all other keys once two writes in a
//! row were refused so: a server that takes writes in between refuses now and then, or requests of one priority level.
//! A read that is refused so holds up only who asked.
//!
//! A write that would be sent before fails at once, and its key runs again then: a run that waited would hold a
//! worker, and go on from caches that have grown old. What the run wrote before stays written, and is not sent again
//! if nothing changed. At that time the keys that were held back run at most as many at once as there are workers, so
//! that few requests find out whether the server still means it.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    WriteError,
    refusal::RetryAfter,
    request::{Answer, ApiVerb, Request},
};

/// Sends the requests of all controllers of a manager; clones share what the server asked for.
#[derive(Clone)]
pub(crate) struct Sender {
    client: kube::Client,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    paused: Option<RetryAfter>,
    /// Whether the last write was refused so; one that fails otherwise does not count.
    refused: bool,
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Sender {
    pub(crate) fn new(client: kube::Client) -> Self {
        Self { client, state: Arc::default() }
    }

    pub(crate) fn client(&self) -> &kube::Client {
        &self.client
    }

    /// Returns what keeps requests from being sent now.
    pub(super) fn paused(&self) -> Option<RetryAfter> {
        let mut state = self.state();
        state.paused = state.paused.filter(|asked| !asked.is_over());
        state.paused
    }

    /// Refuses a request that would be sent while the server asks for none.
    pub(super) fn check(&self, request: &Request<'_>) -> Result<(), WriteError> {
        self.paused().map_or(Ok(()), |asked| {
            let (verb, object) = (request.operation, Box::new(request.target.clone()));
            Err(WriteError::Overloaded { verb, object, retry_after: asked.not_sent() })
        })
    }

    /// Sends a request, and learns from a refusal that speaks of the server.
    pub(super) async fn send(&self, request: Request<'_>) -> Result<Answer, WriteError> {
        let writes = request.verb != ApiVerb::Get && request.verb != ApiVerb::List;
        let answer = request.send(&self.client).await;
        match &answer {
            Ok(_) if writes => self.state().refused = false,
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
        let mut state = self.state();
        if !std::mem::replace(&mut state.refused, true) {
            return;
        }
        let before = state.paused.filter(|before| !before.is_over());
        state.paused = Some(before.map_or(asked, |before| before.or_later(asked)));
        drop(state);
        if before.is_none() {
            tracing::warn!(retry_after = ?asked.asked(), "the server is overloaded; pausing all writes");
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
