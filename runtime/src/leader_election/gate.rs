//! Lets requests out while there is a term, and none any more once it is over.

use std::{
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::Request;
use kube::client::Body;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tower::BoxError;

use crate::clock::{Reading, Since, WallClock};

/// How often a request under way looks at the clocks: one may have jumped.
const LOOK: Duration = Duration::from_secs(1);

/// Says that a request was not sent, or was given up, because this replica does not lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotLeading {
    /// This replica does not lead.
    #[error("this replica does not lead: nothing was sent")]
    NotSent,
    /// The term ended while the request was under way; the server may have done what it asks.
    #[error("this replica ceased to lead while the request was under way")]
    GivenUp,
}

/// A gate that is open during terms.
#[derive(Debug)]
pub(crate) struct TermGate {
    clock: WallClock,
    /// How long a term lasts after its last renewal was sent.
    lasts: Duration,
    open: Mutex<Option<Open>>,
}

#[derive(Debug)]
struct Open {
    renewed: Since,
    closed: CancellationToken,
}

/// What a request that may start has left.
#[derive(Clone, Debug)]
pub(super) struct Pass {
    pub(super) left: Duration,
    closed: CancellationToken,
}

impl TermGate {
    /// Makes a gate that is closed.
    pub(super) fn new(clock: WallClock, lasts: Duration) -> Self {
        Self { clock, lasts, open: Mutex::default() }
    }

    /// Opens it for a term, or keeps it open: a renewal that was sent then was confirmed.
    pub(super) fn renewed(&self, sent: Reading) {
        let mut open = self.open();
        let closed = open.take().map_or_else(CancellationToken::new, |open| open.closed);
        *open = Some(Open { renewed: Since::start(sent), closed });
    }

    /// Shuts it; what is under way is given up.
    pub(super) fn close(&self) {
        if let Some(open) = self.open().take() {
            open.closed.cancel();
        }
    }

    /// Returns what is left of the term at a moment, if anything.
    pub(super) fn pass_at(&self, now: Reading) -> Result<Pass, NotLeading> {
        let mut open = self.open();
        let Open { renewed, closed } = open.as_mut().ok_or(NotLeading::NotSent)?;
        match self.lasts.checked_sub(renewed.measure(now)) {
            None | Some(Duration::ZERO) => Err(NotLeading::NotSent),
            Some(left) => Ok(Pass { left, closed: closed.clone() }),
        }
    }

    /// Waits until the term is over, or ends at once where there is none.
    pub(crate) async fn shut(&self) {
        while let Ok(pass) = self.pass_at(self.clock.read()) {
            tokio::select! {
                biased;
                () = pass.closed.cancelled() => return,
                () = sleep(pass.left.min(LOOK)) => {}
            }
        }
    }

    /// Sends a request, if there is a term, and gives it up when that is over.
    async fn guard<T>(&self, sending: impl Future<Output = kube::Result<T>>) -> Result<T, BoxError> {
        self.pass_at(self.clock.read())?;
        tokio::select! {
            biased;
            () = self.shut() => Err(NotLeading::GivenUp.into()),
            answer = sending => Ok(answer?),
        }
    }

    fn open(&self) -> MutexGuard<'_, Option<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes a client whose requests pass a gate.
///
/// # Panics
/// Outside a tokio runtime, as every client that is made.
pub(crate) fn gated(client: &kube::Client, gate: &Arc<TermGate>) -> kube::Client {
    let (namespace, valid_until) = (client.default_namespace().to_owned(), *client.valid_until());
    let (client, gate) = (client.clone(), gate.clone());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, gate) = (client.clone(), gate.clone());
        async move { gate.guard(client.send(request)).await }
    });
    kube::Client::new(service, namespace).with_valid_until(valid_until)
}
