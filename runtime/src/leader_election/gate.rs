//! Lets requests pass during a term, and refuses them after it.

use std::{future::Future, sync::Arc, time::Duration};

use http::Request;
use kube::client::Body;
use parking_lot::Mutex;
use tokio::{sync::Notify, time::sleep};
use tokio_util::sync::CancellationToken;
use tower::BoxError;

use crate::clock::{ClockReading, Since, WallClock};

/// How often a request under way reads the clocks, since one may have jumped.
const LOOK: Duration = Duration::from_secs(1);

/// A request was not sent, or was cancelled, because this replica does not lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotLeading {
    /// This replica does not lead.
    #[error("this replica does not lead: nothing was sent")]
    NotSent,
    /// The term ended while the request was under way. The server may have executed it.
    #[error("this replica ceased to lead while the request was under way")]
    GivenUp,
}

/// A gate that is open during terms.
#[derive(Debug)]
pub(crate) struct TermGate {
    clock: WallClock,
    /// How long a term lasts after its last renewal was sent.
    lasts: Duration,
    /// The last term, also once it is closed.
    term: Mutex<Option<LastTerm>>,
    /// Told that the clocks show more than those who wait for them know.
    pub(super) jumped: Notify,
}

#[derive(Debug)]
struct LastTerm {
    renewed: Since,
    closed: CancellationToken,
    closed_since: Option<Since>,
}

/// The time that a request has left.
#[derive(Clone, Debug)]
pub(super) struct TermPass {
    pub(super) left: Duration,
    closed: CancellationToken,
}

impl TermGate {
    /// Makes a gate that is closed.
    pub(super) fn new(clock: WallClock, lasts: Duration) -> Self {
        Self { clock, lasts, term: Mutex::default(), jumped: Notify::new() }
    }

    /// Opens the gate for a term, or keeps it open: the server confirmed a renewal that was sent then.
    pub(super) fn renewed(&self, sent: ClockReading) {
        let mut term = self.term.lock();
        let open = term.take().map(|term| term.closed).filter(|closed| !closed.is_cancelled());
        let closed = open.unwrap_or_default();
        *term = Some(LastTerm { renewed: Since::start(sent), closed, closed_since: None });
    }

    /// Closes the gate and cancels the requests under way.
    pub(super) fn close(&self) {
        let now = self.clock.read();
        if let Some(term) = &mut *self.term.lock() {
            term.closed_since.get_or_insert_with(|| Since::start(now));
            term.closed.cancel();
        }
    }

    /// Returns for how long the last term has not been renewed.
    pub(super) fn unrenewed(&self) -> Duration {
        let now = self.clock.read();
        self.term.lock().as_mut().map_or(Duration::ZERO, |term| term.renewed.measure(now))
    }

    /// Returns for how long the last term is closed, if it is.
    pub(super) fn closed_for(&self) -> Option<Duration> {
        let now = self.clock.read();
        Some(self.term.lock().as_mut()?.closed_since.as_mut()?.measure(now))
    }

    /// Returns how much of the term is left at a moment, if any.
    pub(super) fn pass_at(&self, now: ClockReading) -> Result<TermPass, NotLeading> {
        let mut term = self.term.lock();
        let term = term.as_mut().filter(|term| !term.closed.is_cancelled());
        let LastTerm { renewed, closed, .. } = term.ok_or(NotLeading::NotSent)?;
        match self.lasts.checked_sub(renewed.measure(now)) {
            None | Some(Duration::ZERO) => Err(NotLeading::NotSent),
            Some(left) => Ok(TermPass { left, closed: closed.clone() }),
        }
    }

    /// Waits until the term is over. Returns at once if there is none.
    pub(crate) async fn shut(&self) {
        while let Ok(pass) = self.pass_at(self.clock.read()) {
            tokio::select! {
                biased;
                () = pass.closed.cancelled() => return,
                () = self.jumped.notified() => {}
                () = sleep(pass.left.min(LOOK)) => {}
            }
        }
    }

    /// Sends a request if there is a term, and cancels it when the term is over.
    async fn guard<T>(&self, sending: impl Future<Output = kube::Result<T>>) -> Result<T, BoxError> {
        self.pass_at(self.clock.read())?;
        tokio::select! {
            biased;
            () = self.shut() => Err(NotLeading::GivenUp.into()),
            answer = sending => Ok(answer?),
        }
    }
}

/// Makes a client whose requests pass a gate.
///
/// # Panics
/// Outside a tokio runtime, like every constructor of a client.
pub(crate) fn gated(client: &kube::Client, gate: &Arc<TermGate>) -> kube::Client {
    let (namespace, valid_until) = (client.default_namespace().to_owned(), *client.valid_until());
    let (client, gate) = (client.clone(), gate.clone());
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, gate) = (client.clone(), gate.clone());
        async move { gate.guard(client.send(request)).await }
    });
    kube::Client::new(service, namespace).with_valid_until(valid_until)
}
