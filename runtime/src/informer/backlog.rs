//! The pending calls of one handler, folded per object.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use foldhash::fast::RandomState;
use tokio::time::Instant;

use super::{
    change::{AddOrigin, Gone},
    resync::{ResyncCursor, ResyncSnapshot},
};
use crate::{object::ObjectKey, store::CachedObject};

/// Most deletions that wait with their object's last state; later ones keep key, UID and owners.
const FULL_DELETIONS: usize = 10_000;

/// Most deletions of one name that wait of objects which the handler was never shown; the oldest is dropped.
const UNSEEN: usize = 4;

/// How many changes in a row may come before a resync that waits.
const IN_A_ROW: u32 = 8;

/// How many objects of a resync are passed over in one go.
const PASSED_OVER: usize = 64;

/// How much room an empty backlog keeps.
const ROOM: usize = 256;

/// A call of a handler for one object; old and new are the same in a resync.
#[derive(Debug)]
pub(super) enum Notification {
    Add(CachedObject, AddOrigin),
    Update { old: CachedObject, new: CachedObject },
    Delete(Box<Gone>),
}

impl Notification {
    /// Returns whose it is.
    pub(super) fn key(&self) -> &ObjectKey {
        match self {
            Self::Add(object, _) | Self::Update { new: object, .. } => object.key(),
            Self::Delete(gone) => gone.key(),
        }
    }

    /// Shows an object again.
    pub(super) fn again(object: CachedObject) -> Self {
        Self::Update { old: object.clone(), new: object }
    }
}

/// Holds at most one notification a live object, and one a deleted one, in the order of their first.
///
/// Add and update fold to an add, updates to one with the oldest old state, anything and a delete to the delete.
/// The add of a successor stays apart from a delete. No delete of an object that the handler was shown is lost. If one name
/// comes and goes all the time, only the last few objects that the handler was never shown are kept.
///
/// Changes take precedence over resyncs: while both wait, one call in nine belongs to a resync. An object that changes
/// first is delivered once, as the change. The initial content comes before any resync.
#[derive(Default)]
pub(super) struct Backlog {
    /// The key of each call that waits, and since when; a key may have more places than calls.
    order: VecDeque<(ObjectKey, Instant)>,
    calls: HashMap<ObjectKey, KeyCalls, RandomState>,
    len: usize,
    /// One that is under way, and one that follows it.
    resyncs: VecDeque<ResyncCursor>,
    /// How many changes were taken while a resync waited.
    in_a_row: u32,
    full_deletions: usize,
    /// How many places of the initial content are left, once it is in.
    initial: Option<usize>,
}

/// The calls that wait for one key.
struct KeyCalls {
    /// The deletions, which come first, and whether the handler was never shown the object.
    deletions: VecDeque<(Box<Gone>, bool)>,
    live: Option<Notification>,
    places: usize,
}

impl KeyCalls {
    fn len(&self) -> usize {
        self.deletions.len() + usize::from(self.live.is_some())
    }
}

impl Backlog {
    /// Adds a notification, or folds it into what waits.
    pub(super) fn push(&mut self, notification: Notification, now: Instant) {
        let key = notification.key().clone();
        let none = || KeyCalls { deletions: VecDeque::new(), live: None, places: 0 };
        let calls = self.calls.entry(key.clone()).or_insert_with(none);
        self.len -= calls.len();
        match (notification, &mut calls.live) {
            (Notification::Delete(gone), _) => delete(calls, gone, &mut self.full_deletions),
            (
                Notification::Add(new, _) | Notification::Update { new, .. },
                Some(Notification::Add(waits, _) | Notification::Update { new: waits, .. }),
            ) => *waits = new,
            (notification, live) => *live = Some(notification),
        }
        self.len += calls.len();
        if calls.len() > calls.places {
            calls.places += 1;
            self.order.push_back((key, now));
        }
    }

    /// Adds a resync of what does not wait as a change; it replaces one that has not begun.
    pub(super) fn push_resync(&mut self, snapshot: Arc<ResyncSnapshot>, now: Instant) {
        ResyncCursor::of(snapshot, self.calls.keys().cloned(), now).line_up(&mut self.resyncs);
    }

    /// Takes the next call; `None` also if a resync has yet to find something to show.
    pub(super) fn pop(&mut self) -> Option<Notification> {
        let resync_waits = !self.resyncs.is_empty();
        let changes_turn =
            !resync_waits || self.in_a_row < IN_A_ROW || self.initial.is_some_and(|left| left > 0);
        if let Some(notification) = changes_turn.then(|| self.pop_change()).flatten() {
            self.in_a_row = if resync_waits { self.in_a_row.saturating_add(1) } else { 0 };
            return Some(notification);
        }
        self.in_a_row = 0;
        self.pop_resync()
    }

    fn pop_change(&mut self) -> Option<Notification> {
        while let Some((key, _)) = self.order.pop_front() {
            self.initial = self.initial.map(|left| left.saturating_sub(1));
            let Some(calls) = self.calls.get_mut(&key) else { continue };
            let notification = match calls.deletions.pop_front() {
                Some((gone, _)) => {
                    self.full_deletions -= usize::from(gone.cached().is_some());
                    Some(Notification::Delete(gone))
                }
                None => calls.live.take(),
            };
            calls.places = calls.places.saturating_sub(1);
            if calls.len() == 0 {
                self.calls.remove(&key);
            }
            if self.calls.is_empty() && self.calls.capacity() > ROOM {
                (self.calls, self.order) = Default::default();
                self.initial = self.initial.map(|_| 0);
            }
            if notification.is_some() {
                self.len -= 1;
                return notification;
            }
        }
        None
    }

    /// Goes on with the resyncs; an object that has a pending change is shown by that.
    fn pop_resync(&mut self) -> Option<Notification> {
        for _ in 0..PASSED_OVER {
            let object = ResyncCursor::step(&mut self.resyncs)?;
            if let Some(object) = object.filter(|object| !self.calls.contains_key(object.key())) {
                return Some(Notification::again(object));
            }
        }
        None
    }

    /// Says that all that waits is the initial content, or part of it.
    pub(super) fn mark_initial(&mut self) {
        self.initial = self.initial.or(Some(self.order.len()));
    }

    /// Returns whether the initial content is in, and nothing of it waits.
    pub(super) fn initial_is_out(&self) -> bool {
        self.initial == Some(0)
    }

    /// Counts the calls that wait.
    pub(super) fn len(&self) -> usize {
        self.len + self.resyncs.iter().map(ResyncCursor::left).sum::<usize>()
    }

    /// Returns since when the oldest call has waited.
    pub(super) fn oldest(&self) -> Option<Instant> {
        let resync = self.resyncs.front().map(|resync| resync.since);
        self.order.front().map(|(_, since)| *since).into_iter().chain(resync).min()
    }
}

/// Adds a deletion in place of what else waits for its object.
fn delete(calls: &mut KeyCalls, gone: Box<Gone>, full: &mut usize) {
    let earlier = calls.deletions.iter().position(|(held, _)| held.uid() == gone.uid());
    let earlier = earlier.and_then(|at| calls.deletions.remove(at));
    let earlier_unseen = earlier.as_ref().map(|(_, unseen)| *unseen);
    let unseen = match calls.live.take() {
        Some(Notification::Add(..)) => earlier_unseen.unwrap_or(true),
        Some(_) => false,
        None => earlier_unseen.unwrap_or(false),
    };
    let too_many = unseen && calls.deletions.iter().filter(|(_, unseen)| *unseen).count() >= UNSEEN;
    let oldest = calls.deletions.iter().position(|(_, unseen)| *unseen).filter(|_| too_many);
    let dropped = oldest.and_then(|at| calls.deletions.remove(at));
    *full -= earlier.iter().chain(&dropped).filter(|(gone, _)| gone.cached().is_some()).count();
    let gone = if *full < FULL_DELETIONS { gone } else { Box::new(gone.slim()) };
    *full += usize::from(gone.cached().is_some());
    calls.deletions.push_back((gone, unseen));
}
