//! Taps: the places where rules reach into answers that are under way.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Context;
use std::time::Duration;

use bytes::Bytes;
use futures::task::AtomicWaker;
use tokio::sync::watch;
use tokio::time::Instant;

use super::action::Drip;
use super::edit::Edit;
use super::firing::Firing;
use super::interrupt::{self, CutPlace, Edge, Interrupt, Interrupted, Interruption};
use super::reply::{Saying, Then};
use crate::route::{RequestInfo, Verb};
use crate::store::{Lag, View};
use crate::watch::{Frame, Phase};

/// The effects of all rules on one answer.
#[derive(Debug)]
pub(crate) enum Graft {
    /// A stop on its way to its place.
    Stop(Plant),
    /// A distortion of events or items.
    Edit(Edit),
    /// A slow pace.
    Pace(Pace),
    /// A replica that lags.
    View(u64, View),
    /// Tokens without end, by this line.
    Endless(String),
    /// A write by another client, just before.
    Bump,
}

/// A stop on its way to its place in one answer.
#[derive(Debug)]
pub(crate) struct Plant {
    stop: Stop,
    place: CutPlace,
    rule: u64,
    script: String,
    /// Whether the transport has had a turn to send what passed before.
    flushed: bool,
}

#[derive(Debug)]
enum Stop {
    Interrupt(Interrupt),
    Say(Bytes, Then),
}

impl Plant {
    pub(super) fn new(interruption: Interruption, rule: u64, script: String) -> Self {
        let Interruption { kind, place } = interruption;
        Self { stop: Stop::Interrupt(kind), place, rule, script, flushed: false }
    }

    pub(super) fn saying(saying: &Saying, line: Bytes, rule: u64, script: String) -> Self {
        let place = CutPlace { events: saying.after_events, ..CutPlace::default() };
        Self { stop: Stop::Say(line, saying.then), place, rule, script, flushed: false }
    }

    fn due(&self) -> bool {
        self.place.events == 0 && self.place.byte.is_none()
    }

    fn counts(&self, piece: &Piece) -> bool {
        self.place.from == interrupt::From::Start || piece.phase == Phase::Live
    }

    /// Returns the byte of a piece that it stops before, if its place may be in there.
    fn byte(&self, piece: &Piece) -> Option<usize> {
        let byte = self.place.byte.filter(|_| self.place.events == 0 && self.counts(piece))?;
        Some(if byte == 0 && piece.fresh && self.place.edge == Edge::MovedInside { 1 } else { byte })
    }
}

/// Bytes per period, and how many of this period are left.
#[derive(Debug)]
pub(crate) struct Pace {
    rule: u64,
    drip: Drip,
    left: usize,
    ends: Option<Instant>,
    script: Option<String>,
}

impl Pace {
    pub(super) fn new(drip: Drip, rule: u64, script: String) -> Self {
        Self { rule, drip, left: drip.bytes, ends: None, script: Some(script) }
    }

    /// Returns the bytes that may pass now, or the moment when there are some again.
    fn allows(&mut self, now: Instant) -> Result<usize, Instant> {
        match self.ends {
            Some(ends) if now < ends && self.left == 0 => return Err(ends),
            Some(ends) if now < ends => {}
            _ => {
                self.left = self.drip.bytes;
                self.ends = Some(now + self.drip.period.max(Duration::from_millis(1)));
            }
        }
        Ok(self.left)
    }
}

/// The place where rules reach into an answer that is under way.
#[derive(Debug)]
pub(crate) struct Tap {
    info: RequestInfo,
    user_agent: String,
    flow: Mutex<Flow>,
    /// Whether a rule has its hand in the flow; without one, events pass it by.
    ruled: AtomicBool,
    events: AtomicU64,
    version: AtomicU64,
    /// Wakes the stream when a rule changes.
    waker: AtomicWaker,
    lens: watch::Sender<Option<Lag>>,
}

#[derive(Debug, Default)]
struct Flow {
    plants: Vec<Plant>,
    edits: Vec<Edit>,
    pace: Option<Pace>,
    /// The rule that makes the stream lag.
    lagging: Option<u64>,
    /// What removed rules have released.
    freed: VecDeque<Frame>,
    /// The rule that holds the answer back.
    held: Option<u64>,
    /// The number of events that may still pass; `None` for all.
    credit: Option<u32>,
}

impl Flow {
    fn is_ruled(&self) -> bool {
        let Self { plants, edits, pace, lagging: _, freed, held, credit } = self;
        let planted = !plants.is_empty() || !edits.is_empty() || pace.is_some();
        planted || !freed.is_empty() || held.is_some() || credit.is_some()
    }
}

/// Bytes that come in one go.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) bytes: Bytes,
    pub(super) event: bool,
    pub(super) version: u64,
    pub(super) phase: Phase,
    /// Whether nothing has passed yet.
    pub(super) fresh: bool,
}

impl From<Frame> for Piece {
    fn from(frame: Frame) -> Self {
        let Frame { bytes, event, version, phase } = frame;
        Self { bytes, event: event.is_change(), version, phase, fresh: true }
    }
}

/// What may happen next.
#[derive(Debug)]
pub(super) enum FlowGate {
    Open,
    Shut,
    Broken(Interrupted),
    Say(Bytes, Then),
}

/// The part of a piece that passes.
#[derive(Debug)]
pub(super) enum Admitted {
    /// These bytes, and what stays behind for now.
    Some(Bytes, Option<Piece>),
    /// Nothing before this moment.
    Later(Instant, Piece),
}

impl Tap {
    pub(crate) fn new(info: RequestInfo, user_agent: String, version: u64, grafts: Vec<Graft>) -> Self {
        let tap = Self {
            info,
            user_agent,
            flow: Mutex::default(),
            ruled: AtomicBool::new(false),
            events: AtomicU64::new(0),
            version: AtomicU64::new(version),
            waker: AtomicWaker::new(),
            lens: watch::Sender::new(None),
        };
        grafts.into_iter().for_each(|graft| tap.plant(graft));
        tap
    }

    /// Follows how far the stream is to lag behind.
    pub(crate) fn lens(&self) -> watch::Receiver<Option<Lag>> {
        self.lens.subscribe()
    }

    pub(super) fn info(&self) -> &RequestInfo {
        &self.info
    }

    pub(super) fn is_watch(&self) -> bool {
        self.info.verb == Some(Verb::Watch)
    }

    pub(super) fn user_agent(&self) -> &str {
        &self.user_agent
    }

    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    /// Counts the events that have passed.
    pub(super) fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }

    /// Returns whether a rule must be checked before anything passes.
    pub(super) fn is_ruled(&self) -> bool {
        self.ruled.load(Ordering::Acquire)
    }

    /// Registers the stream to be woken when a rule changes.
    pub(super) fn listen(&self, cx: &Context<'_>) {
        self.waker.register(cx.waker());
    }

    /// Counts an event, or another piece, that has passed whole.
    pub(super) fn passed(&self, event: bool, version: u64) {
        if event {
            self.events.fetch_add(1, Ordering::Relaxed);
        }
        if version > self.version() {
            self.version.fetch_max(version, Ordering::Relaxed);
        }
    }

    pub(super) fn plant(&self, graft: Graft) {
        self.change(|flow| match graft {
            Graft::Stop(plant) => flow.plants.push(plant),
            Graft::Edit(edit) => flow.edits.push(edit),
            Graft::Pace(pace) => flow.pace = Some(pace),
            Graft::View(rule, view) => {
                flow.lagging = Some(rule);
                self.lens.send_replace(Some(view.lag));
            }
            Graft::Endless(_) | Graft::Bump => {}
        });
    }

    /// Sets, raises or, by `None`, lifts the number of events that may pass.
    pub(super) fn set_credit(&self, set: impl FnOnce(Option<u32>) -> Option<u32>) {
        self.change(|flow| flow.credit = set(flow.credit));
    }

    /// Removes the effects of one rule and releases what it held.
    pub(super) fn release(&self, rule: u64) {
        self.change(|flow| {
            flow.plants.retain(|plant| plant.rule != rule);
            flow.held = flow.held.filter(|held| *held != rule);
            flow.pace = flow.pace.take().filter(|pace| pace.rule != rule);
            for edit in flow.edits.iter_mut().filter(|edit| edit.rule == rule) {
                edit.flush(&mut flow.freed);
            }
            flow.edits.retain(|edit| edit.rule != rule);
            if flow.lagging == Some(rule) {
                flow.lagging = None;
                self.lens.send_replace(None);
            }
        });
    }

    /// Removes all effects and continues.
    pub(super) fn release_all(&self) {
        self.change(|flow| {
            for edit in &mut flow.edits {
                edit.flush(&mut flow.freed);
            }
            let Flow { freed, .. } = std::mem::take(flow);
            *flow = Flow { freed, ..Flow::default() };
            self.lens.send_replace(None);
        });
    }

    fn change(&self, change: impl FnOnce(&mut Flow)) {
        {
            let mut flow = self.lock();
            change(&mut flow);
            self.ruled.store(flow.is_ruled(), Ordering::Release);
        }
        self.waker.wake();
    }

    /// Passes an event through all edits; returns what fired.
    pub(super) fn edit(&self, frame: Frame, out: &mut VecDeque<Frame>) -> Vec<Firing> {
        let mut flow = self.lock();
        if flow.edits.is_empty() {
            out.push_back(frame);
            return Vec::new();
        }
        let version = frame.version.max(self.version());
        let (mut frames, mut fired) = (VecDeque::from([frame]), Vec::new());
        for edit in &mut flow.edits {
            let mut next = VecDeque::new();
            for frame in frames {
                fired.extend(edit.apply(frame, &mut next));
            }
            frames = next;
        }
        out.extend(frames);
        fired.into_iter().map(|script| self.firing(script, version)).collect()
    }

    /// Releases what removed rules and due edits held.
    pub(super) fn flush_due(&self, out: &mut VecDeque<Frame>) -> Option<Instant> {
        let mut flow = self.lock();
        out.append(&mut flow.freed);
        let now = Instant::now();
        for edit in flow.edits.iter_mut().filter(|edit| edit.due().is_some_and(|due| due <= now)) {
            edit.flush(out);
        }
        flow.edits.iter().filter_map(Edit::due).min()
    }

    /// Releases everything that edits hold: the stream ends.
    pub(super) fn flush(&self, out: &mut VecDeque<Frame>) {
        let mut flow = self.lock();
        out.append(&mut flow.freed);
        flow.edits.iter_mut().for_each(|edit| edit.flush(out));
    }

    /// Returns whether more may pass now, and what just fired.
    pub(super) fn gate(&self, cx: &Context<'_>) -> (FlowGate, Option<Firing>) {
        self.listen(cx);
        let mut flow = self.lock();
        if flow.held.is_some() {
            return (FlowGate::Shut, None);
        }
        let Some(index) = flow.plants.iter().position(Plant::due) else {
            self.ruled.store(flow.is_ruled(), Ordering::Release);
            return (if flow.credit == Some(0) { FlowGate::Shut } else { FlowGate::Open }, None);
        };
        if !flow.plants[index].flushed {
            flow.plants[index].flushed = true;
            cx.waker().wake_by_ref();
            return (FlowGate::Shut, None);
        }
        let plant = flow.plants.remove(index);
        let firing = self.firing(plant.script, self.version());
        let gate = match plant.stop {
            Stop::Interrupt(Interrupt::Cut) => FlowGate::Broken(Interrupted::Cut),
            Stop::Interrupt(Interrupt::Reset) => FlowGate::Broken(Interrupted::Reset),
            Stop::Interrupt(Interrupt::Silence) => {
                flow.held = Some(plant.rule);
                FlowGate::Shut
            }
            Stop::Say(line, then) => FlowGate::Say(line, then),
        };
        (gate, Some(firing))
    }

    /// Lets a piece pass as far as the effects allow; returns the rest, and what fired.
    pub(super) fn admit(&self, mut piece: Piece) -> (Admitted, Option<Firing>) {
        let mut flow = self.lock();
        let (len, version) = (piece.bytes.len(), self.version());
        let allowed = match flow.pace.as_mut().map(|pace| pace.allows(Instant::now())) {
            Some(Err(later)) => return (Admitted::Later(later, piece), None),
            Some(Ok(left)) => left,
            None => len,
        };
        let stop = flow.plants.iter().filter_map(|plant| plant.byte(&piece)).filter(|byte| *byte < len).min();
        let passing = stop.unwrap_or(len).min(allowed).min(len);
        for plant in &mut flow.plants {
            if let Some(byte) = plant.byte(&piece) {
                plant.place.byte = Some(byte - passing).filter(|_| byte != passing || passing == len);
            }
        }
        let mut fired = None;
        if let Some(pace) = &mut flow.pace {
            pace.left -= passing;
            fired = pace.script.take().map(|script| self.firing(script, version));
        }
        if passing < len {
            let head = piece.bytes.split_to(passing);
            piece.fresh &= passing == 0;
            return (Admitted::Some(head, Some(piece)), fired);
        }
        if piece.event {
            flow.credit = flow.credit.map(|credit| credit.saturating_sub(1));
            for plant in flow.plants.iter_mut().filter(|plant| plant.counts(&piece)) {
                plant.place.events = plant.place.events.saturating_sub(1);
            }
        }
        self.passed(piece.event, piece.version);
        (Admitted::Some(piece.bytes, None), fired)
    }

    fn firing(&self, script: String, version: u64) -> Firing {
        Firing::at(script, &self.info, version)
    }

    fn lock(&self) -> MutexGuard<'_, Flow> {
        self.flow.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
