//! Answers on their way out: bodies that can be cut, paused and resumed.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use futures::Stream;
use http_body::{Body, SizeHint};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::action::{Interrupt, Interruption};
use super::desk::{Faults, Firing, describe};
use crate::route::RequestInfo;
use crate::watch::{EventType, Frame, WatchStream};

/// The connection broke before the answer was whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the connection was cut")]
pub(crate) struct Interrupted;

/// An interruption on its way to its place in one answer.
#[derive(Debug)]
pub(crate) struct Plant {
    kind: Interrupt,
    events: u32,
    byte: Option<usize>,
    rule: u64,
    script: String,
    /// Whether the transport has had a turn to send what passed before.
    flushed: bool,
}

impl Plant {
    pub(super) fn new(interruption: Interruption, rule: u64, script: String) -> Self {
        let Interruption { kind, place } = interruption;
        Self { kind, events: place.events, byte: place.byte, rule, script, flushed: false }
    }

    fn due(&self) -> bool {
        self.events == 0 && self.byte.is_none()
    }
}

/// The place where rules reach into an answer that is under way.
#[derive(Debug)]
pub(crate) struct Tap {
    info: RequestInfo,
    user_agent: String,
    flow: Mutex<Flow>,
}

#[derive(Debug)]
struct Flow {
    plants: Vec<Plant>,
    /// The rule that holds the answer back.
    held: Option<u64>,
    version: u64,
    waker: Option<Waker>,
}

enum Gate {
    Open,
    Shut,
    Broken,
}

impl Tap {
    pub(crate) fn new(info: RequestInfo, user_agent: String, version: u64, plants: Vec<Plant>) -> Self {
        let flow = Flow { plants, held: None, version, waker: None };
        Self { info, user_agent, flow: Mutex::new(flow) }
    }

    pub(super) fn info(&self) -> &RequestInfo {
        &self.info
    }

    pub(super) fn user_agent(&self) -> &str {
        &self.user_agent
    }

    pub(super) fn plant(&self, plant: Plant) {
        self.change(|flow| flow.plants.push(plant));
    }

    /// Forgets one rule's plants and lets go on what it holds.
    pub(super) fn release(&self, rule: u64) {
        self.change(|flow| {
            flow.plants.retain(|plant| plant.rule != rule);
            flow.held = flow.held.filter(|held| *held != rule);
        });
    }

    /// Forgets all plants and goes on.
    pub(super) fn release_all(&self) {
        self.change(|flow| {
            flow.plants.clear();
            flow.held = None;
        });
    }

    fn change(&self, change: impl FnOnce(&mut Flow)) {
        let waker = {
            let mut flow = self.lock();
            change(&mut flow);
            flow.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Tells whether more may pass now, and what has just fired.
    fn gate(&self, cx: &Context<'_>) -> (Gate, Option<Firing>) {
        let mut flow = self.lock();
        if flow.held.is_some() {
            flow.waker = Some(cx.waker().clone());
            return (Gate::Shut, None);
        }
        let Some(index) = flow.plants.iter().position(Plant::due) else {
            flow.waker = Some(cx.waker().clone());
            return (Gate::Open, None);
        };
        if !flow.plants[index].flushed {
            flow.plants[index].flushed = true;
            cx.waker().wake_by_ref();
            return (Gate::Shut, None);
        }
        let plant = flow.plants.remove(index);
        let firing = Firing { script: plant.script, request: describe(&self.info), version: flow.version };
        let gate = match plant.kind {
            Interrupt::Cut => Gate::Broken,
            Interrupt::Silence => {
                flow.held = Some(plant.rule);
                flow.waker = Some(cx.waker().clone());
                Gate::Shut
            }
        };
        (gate, Some(firing))
    }

    /// Lets a piece pass as far as the plants allow; gives what stays behind.
    fn admit(&self, mut piece: Piece) -> (Bytes, Option<Piece>) {
        let mut flow = self.lock();
        let len = piece.bytes.len();
        let ready = |plant: &Plant| plant.byte.filter(|_| plant.events == 0);
        let stop = flow.plants.iter().filter_map(ready).filter(|byte| *byte < len).min();
        let passing = stop.unwrap_or(len);
        for plant in flow.plants.iter_mut().filter(|plant| plant.events == 0) {
            plant.byte = match plant.byte {
                Some(byte) if Some(byte) == stop => None,
                other => other.map(|byte| byte - passing),
            };
        }
        if stop.is_some() {
            let head = piece.bytes.split_to(passing);
            return (head, Some(piece));
        }
        if piece.event {
            for plant in flow.plants.iter_mut() {
                plant.events = plant.events.saturating_sub(1);
            }
        }
        flow.version = flow.version.max(piece.version);
        (piece.bytes, None)
    }

    fn lock(&self) -> MutexGuard<'_, Flow> {
        self.flow.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes that come in one go.
#[derive(Debug)]
struct Piece {
    bytes: Bytes,
    event: bool,
    version: u64,
}

impl From<Frame> for Piece {
    fn from(frame: Frame) -> Self {
        let event = matches!(frame.event, EventType::Added | EventType::Modified | EventType::Deleted);
        Self { bytes: frame.bytes, event, version: frame.version }
    }
}

/// A registered tap; leaves the desk when the answer is over.
struct Registered {
    faults: Faults,
    id: u64,
    tap: Arc<Tap>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.faults.close(self.id);
    }
}

enum Source<S> {
    Whole(Bytes),
    Events(S),
    Over,
}

/// An answer's body, under the rules.
pub(crate) struct FaultyBody<S = Box<WatchStream>> {
    source: Source<S>,
    kept: Option<Piece>,
    registered: Option<Registered>,
    epoch: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl<S> fmt::Debug for FaultyBody<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyBody").finish_non_exhaustive()
    }
}

impl<S> FaultyBody<S> {
    /// A whole body that nothing will interrupt.
    pub(crate) fn whole(bytes: Bytes) -> Self {
        Self { source: Source::Whole(bytes), kept: None, registered: None, epoch: None }
    }

    /// A whole body with something planted in it.
    pub(crate) fn planted(bytes: Bytes, faults: &Faults, tap: Tap, epoch: CancellationToken) -> Self {
        // Rules armed later are about requests to come: nothing more is planted.
        let registered = Self::register(faults, tap, u64::MAX);
        Self {
            registered: Some(registered),
            epoch: Some(Box::pin(epoch.cancelled_owned())),
            ..Self::whole(bytes)
        }
    }

    /// A stream of events; `judged` is the number of rules that have had their say.
    pub(crate) fn events(
        events: S,
        faults: &Faults,
        tap: Tap,
        judged: u64,
        epoch: CancellationToken,
    ) -> Self {
        let registered = Some(Self::register(faults, tap, judged));
        Self::watching(events, registered, epoch)
    }

    /// A stream of events past all rules, for the test kit.
    pub(crate) fn unruled(events: S, epoch: CancellationToken) -> Self {
        Self::watching(events, None, epoch)
    }

    fn watching(events: S, registered: Option<Registered>, epoch: CancellationToken) -> Self {
        let epoch = Some(Box::pin(epoch.cancelled_owned()));
        Self { source: Source::Events(events), kept: None, registered, epoch }
    }

    fn register(faults: &Faults, tap: Tap, judged: u64) -> Registered {
        let (id, tap) = faults.open(tap, judged);
        Registered { faults: faults.clone(), id, tap }
    }

    fn broken(&mut self) -> Poll<Option<Result<http_body::Frame<Bytes>, Interrupted>>> {
        self.over();
        Poll::Ready(Some(Err(Interrupted)))
    }

    fn over(&mut self) {
        self.source = Source::Over;
        self.kept = None;
        self.registered = None;
        self.epoch = None;
    }
}

impl<S: Stream<Item = Frame> + Unpin> FaultyBody<S> {
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Piece>> {
        if let Some(kept) = self.kept.take() {
            return Poll::Ready(Some(kept));
        }
        match &mut self.source {
            Source::Over => Poll::Ready(None),
            Source::Events(events) => Pin::new(events).poll_next(cx).map(|frame| frame.map(Piece::from)),
            Source::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Source::Whole(bytes) => {
                Poll::Ready(Some(Piece { bytes: std::mem::take(bytes), event: false, version: 0 }))
            }
        }
    }
}

impl<S: Stream<Item = Frame> + Unpin> Body for FaultyBody<S> {
    type Data = Bytes;
    type Error = Interrupted;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Interrupted>>> {
        let this = self.get_mut();
        if let Some(epoch) = &mut this.epoch
            && epoch.as_mut().poll(cx).is_ready()
        {
            return this.broken();
        }
        loop {
            if let Some(Registered { faults, tap, .. }) = &this.registered {
                let (gate, firing) = tap.gate(cx);
                if let Some(firing) = firing {
                    faults.note(firing);
                }
                match gate {
                    Gate::Open => {}
                    Gate::Shut => return Poll::Pending,
                    Gate::Broken => return this.broken(),
                }
            }
            let Some(piece) = ready!(this.poll_piece(cx)) else {
                this.over();
                return Poll::Ready(None);
            };
            let bytes = match &this.registered {
                Some(registered) => {
                    let (passing, kept) = registered.tap.admit(piece);
                    this.kept = kept;
                    passing
                }
                None => piece.bytes,
            };
            if !bytes.is_empty() {
                return Poll::Ready(Some(Ok(http_body::Frame::data(bytes))));
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Whole(bytes) => {
                let kept = self.kept.as_ref().map_or(0, |piece| piece.bytes.len());
                SizeHint::with_exact((bytes.len() + kept) as u64)
            }
            Source::Over => SizeHint::with_exact(0),
            Source::Events(_) => SizeHint::default(),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Whole(bytes) => bytes.is_empty() && self.kept.is_none() && self.registered.is_none(),
            Source::Over => true,
            Source::Events(_) => false,
        }
    }
}
