//! Answers on their way out: bodies that can be cut, paused, distorted and resumed.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use futures::Stream;
use http_body::{Body, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::flow::{Admitted, FlowGate, Piece, Tap};
use super::interrupt::Interrupted;
use super::registry::Faults;
use super::reply::Then;
use crate::watch::{Frame, Phase, WatchStream};

/// A registered stream; leaves the registry when the answer ends.
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

enum BodySource<S> {
    Whole(Bytes),
    Events(S),
    Over,
}

/// The time in which an answer holds.
struct Epoch {
    token: CancellationToken,
    over: Pin<Box<WaitForCancellationFutureOwned>>,
    /// The waker to call at its end.
    listed: Option<Waker>,
}

impl Epoch {
    fn new(token: CancellationToken) -> Self {
        let over = Box::pin(token.clone().cancelled_owned());
        Self { token, over, listed: None }
    }

    /// Returns whether it is over; otherwise its end wakes the task.
    fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        // This waker is already registered.
        if self.listed.as_ref().is_some_and(|listed| listed.will_wake(cx.waker())) {
            return self.token.is_cancelled();
        }
        let over = self.over.as_mut().poll(cx).is_ready();
        self.listed = Some(cx.waker().clone());
        over
    }
}

/// An answer's body, under the rules.
pub(crate) struct FaultyBody<S = Box<WatchStream>> {
    source: BodySource<S>,
    /// The rest of a piece that has passed in part.
    kept: Option<Piece>,
    /// Events that are to be sent next.
    queue: VecDeque<Frame>,
    alarm: Option<Pin<Box<Sleep>>>,
    registered: Option<Registered>,
    epoch: Option<Epoch>,
}

impl<S> fmt::Debug for FaultyBody<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyBody").finish_non_exhaustive()
    }
}

impl<S> FaultyBody<S> {
    fn new(source: BodySource<S>) -> Self {
        Self { source, kept: None, queue: VecDeque::new(), alarm: None, registered: None, epoch: None }
    }

    /// A whole body without interruptions.
    pub(crate) fn whole(bytes: Bytes) -> Self {
        Self::new(BodySource::Whole(bytes))
    }

    /// Returns a whole body without interruptions.
    pub(crate) fn as_whole(&self) -> Option<&Bytes> {
        match &self.source {
            BodySource::Whole(bytes) if self.registered.is_none() => Some(bytes),
            _ => None,
        }
    }

    /// A whole body with something planted in it.
    pub(crate) fn planted(bytes: Bytes, faults: &Faults, tap: Tap, epoch: CancellationToken) -> Self {
        // Rules that are added later apply only to later requests.
        let registered = Self::register(faults, tap, u64::MAX);
        Self { registered: Some(registered), epoch: Some(Epoch::new(epoch)), ..Self::whole(bytes) }
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
        let epoch = Some(Epoch::new(epoch));
        Self { registered, epoch, ..Self::new(BodySource::Events(events)) }
    }

    fn register(faults: &Faults, tap: Tap, judged: u64) -> Registered {
        let (id, tap) = faults.open(tap, judged);
        Registered { faults: faults.clone(), id, tap }
    }

    fn broken(&mut self, how: Interrupted) -> Passed {
        self.over();
        Poll::Ready(Some(Err(how)))
    }

    fn over(&mut self) {
        self.source = BodySource::Over;
        self.kept = None;
        self.queue.clear();
        self.alarm = None;
        self.registered = None;
        self.epoch = None;
    }

    /// Waits for a moment; it is the earliest one that counts.
    fn poll_until(&mut self, moment: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep_until(moment)));
        if alarm.deadline() != moment {
            alarm.as_mut().reset(moment);
        }
        alarm.as_mut().poll(cx)
    }
}

type Passed = Poll<Option<Result<http_body::Frame<Bytes>, Interrupted>>>;

impl<S: Stream<Item = Frame> + Unpin> FaultyBody<S> {
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Piece>> {
        loop {
            if let Some(kept) = self.kept.take() {
                return Poll::Ready(Some(kept));
            }
            let due = match &self.registered {
                Some(registered) => registered.tap.flush_due(&mut self.queue),
                None => None,
            };
            if let Some(frame) = self.queue.pop_front() {
                return Poll::Ready(Some(frame.into()));
            }
            match &mut self.source {
                BodySource::Over => return Poll::Ready(None),
                BodySource::Whole(bytes) if bytes.is_empty() => return Poll::Ready(None),
                BodySource::Whole(bytes) => {
                    let bytes = std::mem::take(bytes);
                    let (version, phase) = (0, Phase::Live);
                    return Poll::Ready(Some(Piece { bytes, event: false, version, phase, fresh: true }));
                }
                BodySource::Events(events) => match Pin::new(events).poll_next(cx) {
                    Poll::Ready(Some(frame)) => self.take(frame),
                    Poll::Ready(None) => self.ended(),
                    Poll::Pending => match due {
                        Some(due) => ready!(self.poll_until(due, cx)),
                        None => return Poll::Pending,
                    },
                },
            }
        }
    }

    /// Passes the next event on directly, or waits for it, if no rule applies and nothing is held.
    fn poll_unruled(&mut self, cx: &mut Context<'_>) -> Option<Passed> {
        let (BodySource::Events(events), Some(Registered { faults, tap, .. })) =
            (&mut self.source, &self.registered)
        else {
            return None;
        };
        if tap.is_ruled() || self.kept.is_some() || !self.queue.is_empty() {
            return None;
        }
        match Pin::new(events).poll_next(cx) {
            Poll::Ready(Some(Frame { bytes, event, version, .. })) if !bytes.is_empty() => {
                let event = event.is_change();
                tap.passed(event, version);
                if event {
                    faults.told();
                }
                Some(Poll::Ready(Some(Ok(http_body::Frame::data(bytes)))))
            }
            Poll::Ready(Some(frame)) => {
                self.queue.push_back(frame);
                None
            }
            Poll::Ready(None) => {
                self.ended();
                None
            }
            Poll::Pending => {
                tap.listen(cx);
                (!tap.is_ruled()).then_some(Poll::Pending)
            }
        }
    }

    /// Passes an event through the edits, into the queue.
    fn take(&mut self, frame: Frame) {
        match &self.registered {
            Some(Registered { faults, tap, .. }) => {
                tap.edit(frame, &mut self.queue).into_iter().for_each(|firing| faults.note(firing));
            }
            None => self.queue.push_back(frame),
        }
    }

    /// Sends what edits hold still: the stream has ended by itself.
    fn ended(&mut self) {
        self.source = BodySource::Over;
        if let Some(registered) = &self.registered {
            registered.tap.flush(&mut self.queue);
        }
    }
}

impl<S: Stream<Item = Frame> + Unpin> Body for FaultyBody<S> {
    type Data = Bytes;
    type Error = Interrupted;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Passed {
        let this = self.get_mut();
        if this.epoch.as_mut().is_some_and(|epoch| epoch.is_over(cx)) {
            return this.broken(Interrupted::Cut);
        }
        if let Some(passed) = this.poll_unruled(cx) {
            return passed;
        }
        loop {
            if let Some(Registered { faults, tap, .. }) = &this.registered {
                let (gate, firing) = tap.gate(cx);
                if let Some(firing) = firing {
                    faults.note(firing);
                }
                match gate {
                    FlowGate::Open => {}
                    FlowGate::Shut => return Poll::Pending,
                    FlowGate::Broken(how) => return this.broken(how),
                    FlowGate::Say(line, then) => {
                        if then == Then::Close {
                            this.over();
                        }
                        return Poll::Ready(Some(Ok(http_body::Frame::data(line))));
                    }
                }
            }
            let Some(piece) = ready!(this.poll_piece(cx)) else {
                this.over();
                return Poll::Ready(None);
            };
            let Some(Registered { faults, tap, .. }) = &this.registered else {
                return Poll::Ready(Some(Ok(http_body::Frame::data(piece.bytes))));
            };
            let is_event = piece.event;
            let (admitted, firing) = tap.admit(piece);
            if let Some(firing) = firing {
                faults.note(firing);
            }
            match admitted {
                Admitted::Some(bytes, kept) => {
                    if is_event && kept.is_none() {
                        faults.told();
                    }
                    this.kept = kept;
                    if !bytes.is_empty() {
                        return Poll::Ready(Some(Ok(http_body::Frame::data(bytes))));
                    }
                }
                Admitted::Later(moment, kept) => {
                    this.kept = Some(kept);
                    ready!(this.poll_until(moment, cx));
                }
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            BodySource::Whole(bytes) => {
                let kept = self.kept.as_ref().map_or(0, |piece| piece.bytes.len());
                SizeHint::with_exact((bytes.len() + kept) as u64)
            }
            BodySource::Over if self.queue.is_empty() && self.kept.is_none() => SizeHint::with_exact(0),
            BodySource::Over | BodySource::Events(_) => SizeHint::default(),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            BodySource::Whole(bytes) => bytes.is_empty() && self.kept.is_none() && self.registered.is_none(),
            BodySource::Over => self.queue.is_empty() && self.kept.is_none(),
            BodySource::Events(_) => false,
        }
    }
}
