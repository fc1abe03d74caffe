//! Watches: changes of a collection as a stream of lines.

mod alarm;
mod event;

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::call::Caller;
use crate::conversion::{convert, is_missing};
use crate::encode::Encoder;
use crate::negotiate::Media;
use crate::proto;
use crate::read::{ListOptions, Reached, narrow, parse_version, selects};
use crate::selector::Selector;
use crate::state::State;
use crate::status::Status;
use crate::store::{Change, ChangeKind, Feed, Gate, Lag, Pass, Scope, Stored, View};

use alarm::Alarm;

pub(crate) use event::{EventType, Frame, Phase};

/// Writes the objects of tables, which need the rows' columns.
pub(crate) type TableWriter = Box<dyn FnMut(&serde_json::Value, u64) -> Bytes + Send>;

/// The pending lines.
enum Pending {
    State(Arc<Stored>),
    Change(Arc<Change>),
    EndOfState(u64),
    Error(Box<Status>),
}

/// The events of one watch; ends when the watch does.
pub(crate) struct WatchStream {
    encoder: Encoder,
    selector: Selector,
    after: u64,
    /// The newest version that this stream has come to.
    seen: u64,
    lens: Option<watch::Receiver<Option<Lag>>>,
    /// The view at the last poll.
    lag: Option<Lag>,
    /// Waits until the first pending change may be seen.
    held: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    pending: VecDeque<Pending>,
    feed: Option<Feed>,
    reached: watch::Receiver<u64>,
    deadline: Alarm,
    bookmarks: Option<(Alarm, Duration)>,
    table: Option<TableWriter>,
    media: Media,
    /// Holds events back that are not on disk, for servers that keep their state.
    gate: Option<Gate>,
    /// The event that waits at the gate.
    parked: Option<Frame>,
    caller: Caller,
    /// Pending changes are being converted to the watched version.
    converting: Option<Converting>,
}

type Converting = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

impl std::fmt::Debug for WatchStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WatchStream")
            .field("after", &self.after)
            .field("pending", &self.pending.len())
            .finish_non_exhaustive()
    }
}

/// The setup of a watch besides its options.
pub(crate) struct WatchSetup {
    /// The encoder.
    pub(crate) encoder: Encoder,
    /// The part of the resource in the path.
    pub(crate) scope: Scope,
    /// The time between bookmarks.
    pub(crate) bookmark_period: Duration,
    /// Whether the wait for the version has ended.
    pub(crate) waited: bool,
    /// The replica that is watched.
    pub(crate) view: Option<View>,
    /// Writes tables, if the client requested them.
    pub(crate) table: Option<TableWriter>,
    /// The encoding of the events.
    pub(crate) media: Media,
    /// Calls the webhook that turns objects into the version that is watched.
    pub(crate) caller: Caller,
}

/// Opens a watch.
///
/// # Errors
/// 500 for a version that is not a number; an expired one is reported as an event of the stream.
pub(crate) fn open(
    state: &mut State,
    options: &ListOptions,
    setup: WatchSetup,
) -> Result<Reached<WatchStream>, Status> {
    let given = parse_version(&options.version).map_err(Status::internal)?;
    let WatchSetup { encoder, scope, bookmark_period, waited, view, table, media, caller } = setup;
    let scope = narrow(scope, &options.selector);
    let storage = encoder.resource.storage.clone();
    let now = state.store.seen(&storage, view.filter(|view| view.covers(&options.version)));
    let from_start = options.initial_events.unwrap_or(given.unwrap_or(0) == 0);
    let mut pending = VecDeque::new();
    let mut after = now;
    if from_start {
        let wanted = given.unwrap_or(0);
        if wanted > now && !waited {
            return Ok(Reached::At(wanted));
        }
        if wanted > now {
            pending.push_back(Pending::Error(Box::new(Status::version_too_large(wanted, now))));
        } else {
            let prefix = scope.prefix();
            let wanted = |stored: &Arc<Stored>| {
                scope.holds(&stored.key) && selects(&options.selector, &encoder.served, stored)
            };
            if now < state.store.version() {
                let then = state.store.scan_at(&storage, &prefix, now).unwrap_or_default();
                pending.extend(then.into_iter().filter(wanted).map(Pending::State));
            } else {
                let all = state.store.scan(&storage, &prefix);
                pending.extend(all.filter(|stored| wanted(stored)).cloned().map(Pending::State));
            }
            if options.bookmarks {
                pending.push_back(Pending::EndOfState(now));
            }
            let later = state.store.changes_after(&storage, now).unwrap_or_default();
            pending.extend(later.into_iter().filter(|c| scope.holds(&c.object.key)).map(Pending::Change));
        }
    } else if let Some(version) = given.filter(|version| *version > 0) {
        after = version;
        match state.store.changes_after(&storage, version) {
            Ok(changes) => {
                pending
                    .extend(changes.into_iter().filter(|c| scope.holds(&c.object.key)).map(Pending::Change));
            }
            Err(oldest) => {
                let message = format!("too old resource version: {version} ({})", oldest.0);
                pending.push_back(Pending::Error(Box::new(Status::expired(message))));
            }
        }
    }
    let seconds = options.timeout.unwrap_or_else(|| 1800 + state.pick(1800));
    let bookmarks = options.bookmarks.then(|| (Alarm::after(bookmark_period), bookmark_period));
    Ok(Reached::Now(WatchStream {
        encoder,
        selector: options.selector.clone(),
        after,
        seen: now,
        lens: None,
        lag: None,
        held: None,
        pending,
        feed: Some(state.store.follow(&storage, scope)),
        reached: state.store.reached(),
        deadline: Alarm::after(Duration::from_secs(seconds)),
        bookmarks,
        table,
        media,
        gate: state.store.gate(),
        parked: None,
        caller,
        converting: None,
    }))
}

impl WatchStream {
    /// Applies the lag of a view to the stream, now and later.
    pub(crate) fn look_through(&mut self, mut lens: watch::Receiver<Option<Lag>>) {
        self.lag = *lens.borrow_and_update();
        self.lens = Some(lens);
        self.held = None;
    }

    fn lag(&mut self) -> Option<Lag> {
        // The sender goes with the stream.
        if let Some(lens) = self.lens.as_mut().filter(|lens| lens.has_changed().unwrap_or(false)) {
            self.lag = *lens.borrow_and_update();
        }
        self.lag
    }

    /// Waits until a replica that lags has come to a change.
    fn poll_seen(&mut self, version: u64, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        if self.held.is_none() {
            if self.lag().is_none() {
                return Poll::Ready(());
            }
            let Some(lens) = &self.lens else { return Poll::Ready(()) };
            self.held = Some(Box::pin(seen(version, at, lens.clone(), self.reached.clone())));
        }
        let Some(held) = &mut self.held else { return Poll::Ready(()) };
        let there = held.as_mut().poll(cx);
        if there.is_ready() {
            self.held = None;
        }
        there
    }

    /// Returns the version of a bookmark, if the stream has reached the version where it was asked to begin.
    fn bookmark_version(&mut self) -> Option<u64> {
        let reached = *self.reached.borrow();
        let seen = match self.lag() {
            None => reached,
            Some(Lag::Versions(n)) => reached.saturating_sub(n),
            Some(Lag::Frozen(version)) => version.min(reached),
            Some(Lag::Time(_)) => self.seen,
        };
        Some(seen.max(self.seen)).filter(|seen| *seen >= self.after)
    }

    fn render(&mut self, pending: Pending) -> Option<Frame> {
        let frame = match pending {
            Pending::State(stored) => {
                let object = match &mut self.table {
                    Some(table) => table(&self.encoder.show(&stored), stored.version),
                    None => self.encoder.object(&stored),
                };
                Frame { phase: Phase::Initial, ..frame(EventType::Added, &object, stored.version) }
            }
            Pending::Change(change) => return self.change(&change),
            Pending::EndOfState(version) => {
                self.after = self.after.max(version);
                Frame { phase: Phase::Initial, ..self.bookmark(version, true) }
            }
            Pending::Error(status) => {
                self.feed = None;
                self.pending.clear();
                frame(EventType::Error, status.to_value().to_string().as_bytes(), 0)
            }
        };
        Some(self.encoded(frame))
    }

    /// Encodes a line of JSON in the requested form.
    fn encoded(&self, frame: Frame) -> Frame {
        match self.media {
            Media::Protobuf => Frame { bytes: in_protobuf(&frame.bytes), ..frame },
            Media::Json | Media::Yaml => frame,
        }
    }

    fn change(&mut self, change: &Change) -> Option<Frame> {
        self.seen = self.seen.max(change.version);
        if change.version <= self.after {
            return None;
        }
        self.after = change.version;
        let fits = |stored: &Arc<Stored>| selects(&self.selector, &self.encoder.served, stored);
        let before = change.previous.as_ref().is_some_and(fits);
        let after = change.kind == ChangeKind::Put && fits(&change.object);
        let event = match (before, after) {
            (false, false) => return None,
            (false, true) => EventType::Added,
            (true, true) => EventType::Modified,
            (true, false) => EventType::Deleted,
        };
        let left = event == EventType::Deleted && change.kind == ChangeKind::Put;
        if let Some(table) = &mut self.table {
            let object = match (&change.previous, left) {
                (Some(previous), true) => table(&self.encoder.show(previous), change.version),
                _ => table(&self.encoder.show(&change.object), change.version),
            };
            return Some(self.encoded(frame(event, &object, change.version)));
        }
        let line = || self.encoder.change_line(change, event.as_str(), left);
        // Once for all followers with this form.
        let bytes = match self.media {
            Media::Protobuf => {
                change.lines.get((self.encoder.binary_key(), event as u8), || in_protobuf(&line()))
            }
            Media::Json | Media::Yaml => change.lines.get((self.encoder.line_key(), event as u8), line),
        };
        Some(Frame { bytes, event, version: change.version, phase: Phase::Live })
    }

    fn bookmark(&mut self, version: u64, initial_end: bool) -> Frame {
        let value = self.encoder.bookmark(version, initial_end);
        let object = match &mut self.table {
            Some(table) => table(&value, version),
            None => Bytes::from(value.to_string()),
        };
        frame(EventType::Bookmark, &object, version)
    }
}

fn frame(event: EventType, object: &[u8], version: u64) -> Frame {
    Frame { bytes: Encoder::line(event.as_str(), object), event, version, phase: Phase::Live }
}

/// Waits until a lens shows a change of this version and moment.
async fn seen(
    version: u64,
    at: Instant,
    mut lens: watch::Receiver<Option<Lag>>,
    mut reached: watch::Receiver<u64>,
) {
    loop {
        let lag = *lens.borrow_and_update();
        let there = async {
            match lag {
                None => {}
                Some(Lag::Versions(n)) => {
                    // The sender goes with the server, and the stream before it.
                    let _gone = reached.wait_for(|now| now.saturating_sub(n) >= version).await;
                }
                Some(Lag::Time(time)) => sleep_until(at + time).await,
                Some(Lag::Frozen(frozen)) if version <= frozen => {}
                Some(Lag::Frozen(_)) => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = there => return,
            changed = lens.changed() => if changed.is_err() { return },
        }
    }
}

impl Stream for WatchStream {
    type Item = Frame;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Frame>> {
        self.get_mut().poll_durable(cx)
    }
}

/// Wraps a line of JSON in a binary frame.
fn in_protobuf(line: &[u8]) -> Bytes {
    let event = serde_json::from_slice(line).ok().and_then(|line| proto::event(&line));
    event.map_or_else(Bytes::new, Bytes::from)
}

impl WatchStream {
    /// Has what is pending turned into the version that is watched; a failure of the webhook ends the stream.
    fn poll_converted(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.encoder.served.conversion.is_none() {
            return Poll::Ready(());
        }
        if self.converting.is_none() {
            let mut objects: Vec<Arc<Stored>> = Vec::new();
            for pending in &self.pending {
                match pending {
                    Pending::State(stored) => objects.push(stored.clone()),
                    Pending::Change(change) => {
                        objects.push(change.object.clone());
                        objects.extend(change.previous.clone());
                    }
                    Pending::EndOfState(_) | Pending::Error(_) => {}
                }
            }
            objects.retain(|stored| is_missing(&self.encoder.served, stored));
            if objects.is_empty() {
                return Poll::Ready(());
            }
            let (caller, served) = (self.caller.clone(), self.encoder.served.clone());
            self.converting = Some(Box::pin(async move { convert(&caller, &served, &objects).await }));
        }
        let Some(converting) = &mut self.converting else { return Poll::Ready(()) };
        let Poll::Ready(converted) = converting.as_mut().poll(cx) else { return Poll::Pending };
        self.converting = None;
        if let Err(why) = converted {
            self.pending.clear();
            self.pending.push_back(Pending::Error(Box::new(Status::internal(why))));
        }
        Poll::Ready(())
    }

    /// Gives the encoding of the events.
    pub(crate) fn media(&self) -> Media {
        self.media
    }

    /// Returns the next event that is on disk.
    fn poll_durable(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame>> {
        if self.gate.is_none() {
            return self.poll_line(cx);
        }
        let frame = match self.parked.take() {
            Some(frame) => frame,
            None => match self.poll_line(cx) {
                Poll::Ready(Some(frame)) => frame,
                other => return other,
            },
        };
        let pass = self.gate.as_mut().map_or(Poll::Ready(Pass::Show), |gate| gate.poll(frame.version, cx));
        match pass {
            Poll::Ready(Pass::Show) => Poll::Ready(Some(frame)),
            Poll::Ready(Pass::End) => {
                self.feed = None;
                self.pending.clear();
                Poll::Ready(None)
            }
            Poll::Pending => {
                self.parked = Some(frame);
                Poll::Pending
            }
        }
    }

    fn poll_line(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame>> {
        let this = self;
        loop {
            if this.poll_converted(cx).is_pending() {
                return Poll::Pending;
            }
            let next = match this.pending.front() {
                Some(Pending::Change(change)) => Some((change.version, change.at)),
                _ => None,
            };
            let held = next.is_some_and(|(version, at)| this.poll_seen(version, at, cx).is_pending());
            if !held && let Some(pending) = this.pending.pop_front() {
                match this.render(pending) {
                    Some(frame) => return Poll::Ready(Some(frame)),
                    None => continue,
                }
            }
            let Some(feed) = &mut this.feed else { return Poll::Ready(None) };
            match feed.poll_next(cx) {
                Poll::Ready(Some(change)) => {
                    this.pending.push_back(Pending::Change(change));
                    continue;
                }
                Poll::Ready(None) => {
                    this.feed = None;
                    continue;
                }
                Poll::Pending => {}
            }
            if this.deadline.poll(cx).is_ready() {
                this.feed = None;
                continue;
            }
            if let Some((due, period)) = &mut this.bookmarks
                && due.poll(cx).is_ready()
            {
                due.again(*period);
                // A watch from a version not reached yet stays silent.
                if let Some(version) = this.bookmark_version() {
                    let bookmark = this.bookmark(version, false);
                    return Poll::Ready(Some(this.encoded(bookmark)));
                }
                continue;
            }
            return Poll::Pending;
        }
    }
}
