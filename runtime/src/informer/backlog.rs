//! The pending calls of one handler, folded per object.

use std::{collections::VecDeque, sync::Arc};

use tokio::time::Instant;

use super::{
    change::Gone,
    notification::Notification,
    notification_queue::NotificationQueue,
    resync::{ResyncCursor, ResyncSnapshot},
};
use crate::object::Object;

/// Most deletions that wait with their object's last state; later ones keep key, UID and owners.
const FULL_DELETIONS: usize = 10_000;

/// Most deletions of one name that wait of objects which the handler was never shown; the oldest is dropped.
const UNSEEN: usize = 4;

/// How many changes in a row may come before a resync that waits.
const IN_A_ROW: u32 = 8;

/// How many objects of a resync are passed over in one go.
const PASSED_OVER: usize = 64;

/// Holds at most one notification a live object, and one a deleted one, in the order of their first.
///
/// Add and update fold to an add, updates to one with the oldest old state, anything and a delete to the delete.
/// The add of a successor stays apart from a delete. No delete of an object that the handler was shown is lost. If one name
/// comes and goes all the time, only the last few objects that the handler was never shown are kept.
///
/// Changes take precedence over resyncs: while both wait, one call in nine belongs to a resync. An object that changes
/// first is delivered once, as the change. The initial content comes before any resync.
pub(super) struct Backlog<K> {
    changes: NotificationQueue<K>,
    /// One that is under way, and one that follows it.
    resyncs: VecDeque<ResyncCursor<K>>,
    /// How many changes were taken while a resync waited.
    in_a_row: u32,
    full_deletions: usize,
    initial: Initial,
}

/// Follows the initial content.
#[derive(Clone, Copy)]
enum Initial {
    Awaited,
    /// It ends before this number.
    Before(u64),
    Out,
}

impl<K: Object> Backlog<K> {
    pub(super) fn new() -> Self {
        Self {
            changes: NotificationQueue::new(),
            resyncs: VecDeque::new(),
            in_a_row: 0,
            full_deletions: 0,
            initial: Initial::Awaited,
        }
    }

    /// Adds a notification, or folds it into what waits.
    pub(super) fn push(&mut self, notification: Notification<K>, now: Instant) {
        match notification {
            Notification::Delete(gone) | Notification::DeleteUnseen(gone) => self.push_delete(*gone, now),
            Notification::Add(ref object, _) | Notification::Update { new: ref object, .. } => {
                let live = self
                    .changes
                    .numbers(object.key())
                    .find(|number| self.changes.get(*number).is_some_and(|waits| !waits.is_deletion()));
                match live.and_then(|number| self.changes.get_mut(number)) {
                    Some(live) => live.renew(object.clone()),
                    None => self.changes.append(notification, now),
                }
            }
        }
    }

    /// Adds a resync of what does not wait as a change; it stands in for one that has not begun.
    pub(super) fn push_resync(&mut self, snapshot: Arc<ResyncSnapshot<K>>, now: Instant) {
        ResyncCursor::of(snapshot, now).except(self.changes.keys()).line_up(&mut self.resyncs);
    }

    /// Takes the next call; `None` also where a resync has yet to find something to show.
    pub(super) fn pop(&mut self) -> Option<Notification<K>> {
        let resyncs_wait = !self.resyncs.is_empty();
        let changes_turn =
            !resyncs_wait || self.in_a_row < IN_A_ROW || matches!(self.initial, Initial::Before(_));
        if let Some(notification) = changes_turn.then(|| self.changes.pop()).flatten() {
            self.in_a_row = if resyncs_wait { self.in_a_row.saturating_add(1) } else { 0 };
            self.full_deletions -= usize::from(notification.is_full_deletion());
            return Some(notification);
        }
        self.in_a_row = 0;
        self.reshown()
    }

    /// Goes on with the resyncs; an object that has a pending change is shown by that.
    fn reshown(&mut self) -> Option<Notification<K>> {
        for _ in 0..PASSED_OVER {
            let reading = self.resyncs.front_mut()?;
            let object = reading.step();
            if reading.left() == 0 {
                self.resyncs.pop_front();
            }
            let Some(object) = object else { continue };
            if self.changes.numbers(object.key()).next().is_none() {
                return Some(Notification::again(object));
            }
        }
        None
    }

    /// Says that what has been pushed so far is the initial content.
    pub(super) fn mark_initial(&mut self) {
        if let Initial::Awaited = self.initial {
            self.initial = Initial::Before(self.changes.end());
        }
    }

    /// Tells, once, that nothing of the initial content waits any more.
    pub(super) fn initial_gets_out(&mut self) -> bool {
        let Initial::Before(end) = self.initial else { return false };
        let out = self.changes.start() >= end;
        if out {
            self.initial = Initial::Out;
        }
        out
    }

    pub(super) fn len(&self) -> usize {
        self.changes.len() + self.resyncs.iter().map(ResyncCursor::left).sum::<usize>()
    }

    /// Returns since when the oldest has waited.
    pub(super) fn oldest(&self) -> Option<Instant> {
        let resync = self.resyncs.front().map(|reading| reading.since);
        self.changes.oldest().into_iter().chain(resync).min()
    }

    fn push_delete(&mut self, gone: Gone<K>, now: Instant) {
        let (mut live, mut told, mut unseen) = (None, None, Vec::new());
        for number in self.changes.numbers(gone.key()) {
            let Some(waits) = self.changes.get(number) else { continue };
            match waits {
                _ if waits.gone().is_some_and(|held| held.uid() == gone.uid()) => told = Some(number),
                Notification::DeleteUnseen(_) => unseen.push(number),
                Notification::Delete(_) => {}
                Notification::Add(..) | Notification::Update { .. } => live = Some(number),
            }
        }
        let never_shown = self.was_never_shown(live, told);
        // Where the object's own notification stands, else where its earlier deletion does.
        let Some(number) = live.or(told) else {
            let notification = self.slimmed(gone, Notification::Delete);
            return self.changes.append(notification, now);
        };
        told.filter(|told| *told != number).into_iter().for_each(|told| self.drop_deletion(told));
        self.full_deletions -=
            usize::from(self.changes.get(number).is_some_and(Notification::is_full_deletion));
        let form = if never_shown { Notification::DeleteUnseen } else { Notification::Delete };
        let notification = self.slimmed(gone, form);
        if let Some(place) = self.changes.get_mut(number) {
            *place = notification;
        }
        let oldest = unseen.iter().min().filter(|_| never_shown && unseen.len() >= UNSEEN);
        oldest.into_iter().for_each(|oldest| self.drop_deletion(*oldest));
    }

    /// Returns whether the handler has not yet seen an object whose live state or earlier deletion waits.
    fn was_never_shown(&self, live: Option<u64>, told: Option<u64>) -> bool {
        let is_new = |number| matches!(self.changes.get(number), Some(Notification::Add(..)));
        let was_new = |number| matches!(self.changes.get(number), Some(Notification::DeleteUnseen(_)));
        match live {
            Some(live) => is_new(live) && told.is_none_or(was_new),
            None => told.is_some_and(was_new),
        }
    }

    fn drop_deletion(&mut self, number: u64) {
        let old = self.changes.take(number);
        self.full_deletions -= usize::from(old.is_some_and(|old| old.is_full_deletion()));
    }

    /// Counts a deletion in; past the limit it keeps no more than names.
    fn slimmed(&mut self, gone: Gone<K>, form: fn(Box<Gone<K>>) -> Notification<K>) -> Notification<K> {
        let gone = if self.full_deletions < FULL_DELETIONS { gone } else { gone.slim() };
        let notification = form(Box::new(gone));
        self.full_deletions += usize::from(notification.is_full_deletion());
        notification
    }
}
