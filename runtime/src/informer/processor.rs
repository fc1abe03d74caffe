//! The informer's one task: applies batches, then tells observers and handlers.

use std::{
    collections::{HashSet, VecDeque},
    num::NonZeroUsize,
    sync::Arc,
};

use futures::future::ready;

use tokio::{task, time::Instant};

use super::{
    apply::{Applied, Fallen, apply},
    change::{AddOrigin, Change, Progress, ProgressVia, Via},
    command::{Command, ObserverEntry},
    core::InformerCore,
    handler::EventHandler,
    listed::{Accepted, Listed, Portion, portions},
    listener::{Additions, Hears, Idler, Resync, added},
    resync::{ResyncCursor, ResyncSnapshot},
};
use crate::{
    delta_fifo::{Audience, Batch, Delta, Entry, Sync},
    object::{Object, ObjectKey},
    store::CachedObject,
    users_code::{contained, may_block},
};

/// Most deltas applied in one go.
const BATCH: NonZeroUsize = NonZeroUsize::new(1_000).expect("not zero");

/// How many objects of a resync observers are shown between two batches.
const SLICE: usize = 500;

/// A handler as the processor sees it.
struct HandlerEntry<K> {
    listener: Arc<dyn Hears<K>>,
    /// When its next resync is due.
    next: Option<Instant>,
    resync: Resync,
}

/// What there is to do.
enum Turn<K> {
    Commands,
    Resync,
    Batch(Batch<K>),
    /// Nothing but a resync that observers are being shown.
    Slice,
}

pub(super) struct Processor<K: Object> {
    core: Arc<InformerCore<K>>,
    joined: Vec<HandlerEntry<K>>,
    observers: Vec<ObserverEntry<K>>,
    /// What a list changed that a resync waits behind: it shows the rest.
    listed: HashSet<ObjectKey>,
    /// Resyncs that observers are being shown.
    readings: VecDeque<ResyncCursor<K>>,
}

impl<K: Object> Processor<K> {
    pub(super) fn new(core: Arc<InformerCore<K>>) -> Self {
        let (joined, observers) = (Vec::new(), Vec::new());
        Self { core, joined, observers, listed: HashSet::new(), readings: VecDeque::new() }
    }

    pub(super) async fn run(mut self) {
        let core = self.core.clone();
        loop {
            let next = self.joined.iter().filter_map(|joined| joined.next).min();
            let turn = tokio::select! {
                biased;
                () = core.stop.cancelled() => break,
                () = core.wake.notified() => Turn::Commands,
                () = until(next) => Turn::Resync,
                batch = core.fifo.pop(BATCH) => match batch {
                    Some(batch) => Turn::Batch(batch),
                    None => break,
                },
                () = ready(()), if !self.readings.is_empty() => Turn::Slice,
            };
            match self.runs_users_code(&turn) {
                true => may_block(|| self.take_turn(turn)),
                false => self.take_turn(turn),
            }
            match self.readings.is_empty() {
                true => task::coop::consume_budget().await,
                false => {
                    may_block(|| self.show_slice());
                    task::yield_now().await;
                }
            }
        }
        may_block(|| drop(self));
    }

    /// Returns whether the user's code runs in a turn: a mapping, a predicate, an index function, a transform.
    fn runs_users_code(&self, turn: &Turn<K>) -> bool {
        match turn {
            Turn::Batch(_) => {
                self.core.has_users_indexes() || self.observers.iter().any(|entry| entry.observer.may_block())
            }
            // They are seldom; a handler that goes is dropped in one, a transform tried again in the other.
            Turn::Commands | Turn::Resync => true,
            Turn::Slice => false,
        }
    }

    fn take_turn(&mut self, turn: Turn<K>) {
        match turn {
            Turn::Commands => self.heed_commands(),
            Turn::Resync => self.ask_for_resync(),
            Turn::Batch(batch) => self.process(batch),
            Turn::Slice => {}
        }
    }

    fn heed_commands(&mut self) {
        for command in self.core.commands() {
            match command {
                // A handler of the user's may panic when it is dropped.
                Command::Join(listener, handler) if listener.removed().is_set() => {
                    self.contained(|| drop(handler));
                }
                Command::Join(listener, handler) => self.join(listener, handler),
                Command::Look(observer) => self.look(observer),
                Command::Sweep => {}
            }
        }
        self.joined.retain(|joined| !joined.listener.removed().is_set());
        let observers = std::mem::take(&mut self.observers).into_iter();
        let (gone, staying): (Vec<_>, _) = observers.partition(|observer| observer.watcher.removed.is_set());
        self.observers = staying;
        for observer in gone {
            self.contained(|| drop(observer));
        }
    }

    /// Replays the cache to a handler; no batch comes between the replay and what follows.
    fn join(&mut self, listener: Arc<dyn Hears<K>>, handler: Box<dyn EventHandler<K>>) {
        let cached = self.core.indexer.lister().list_cached();
        listener.add(&cached.into(), AddOrigin::InitialList, Instant::now()).wake();
        if self.core.synced.is_set() {
            listener.mark_initial();
        }
        let next = listener.resync_every().and_then(|period| Instant::now().checked_add(period));
        self.core.spawn(listener.clone().serve(handler));
        self.joined.push(HandlerEntry { listener, next, resync: Resync::NotDue });
    }

    fn look(&mut self, observer: ObserverEntry<K>) {
        let lister = self.core.indexer.lister();
        for object in lister.list_cached() {
            let change = Change::Added { object, origin: AddOrigin::InitialList, via: Via::Replay };
            self.show(&observer, &change);
        }
        for unreadable in lister.unreadable_or_outdated() {
            let kept = unreadable.identity.key.as_ref().and_then(|key| lister.cached(key));
            let change = Change::Unreadable { unreadable, kept, via: Via::Replay };
            self.show(&observer, &change);
        }
        if self.core.synced.is_set() {
            let progress = Progress { version: lister.resource_version(), via: ProgressVia::Replace };
            self.tell_progress(&observer, progress);
            observer.watcher.synced.set();
        }
        self.observers.push(observer);
    }

    fn ask_for_resync(&mut self) {
        let now = Instant::now();
        for joined in &mut self.joined {
            let Some((next, period)) = joined.next.zip(joined.listener.resync_every()) else { continue };
            if next <= now {
                joined.resync = Resync::Due;
                // On its own grid, but never twice for a period that was slept through.
                joined.next = next.checked_add(period).max(now.checked_add(period / 2));
            }
        }
        self.core.fifo.resync(Audience::Due);
    }

    fn process(&mut self, mut batch: Batch<K>) {
        let entries = batch.take();
        let core = &self.core;
        let origin = if core.synced.is_set() { AddOrigin::Watch } else { AddOrigin::InitialList };
        let lists = matches!(entries[..], [Entry { delta: Delta::Replaced(_), .. }]);
        let resync_waits = lists && core.fifo.awaits_resync();
        let mut applied = core.indexer.write(|store| apply(store, entries, &core.kind, origin));
        if applied.unreadable().next().is_some() || !applied.fallen.is_empty() {
            may_block(|| self.tell_errors(&applied));
        }
        if applied.replaced.is_some() || !applied.nameless.is_empty() {
            core.health.note_nameless(applied.replaced.as_ref(), std::mem::take(&mut applied.nameless));
        }
        if resync_waits {
            self.listed.extend(applied.changes.iter().filter_map(Change::key).cloned());
        }
        self.tell_observers(&applied);
        self.tell_handlers(&applied);
        if let Some(sync) = applied.resync.take() {
            self.begin_resync(sync);
        }
        drop(batch);
        for change in applied.changes {
            if contained(|| drop(change)).is_none() {
                self.core.meter.panicked();
                tracing::error!(kind = %self.core.kind, "an object panicked as it was dropped; the next change comes");
            }
        }
        self.core.reliability.handled(self.core.fifo.handled());
        self.core.measure();
        if !self.core.synced.is_set() && self.core.fifo.has_synced() {
            self.core.synced.set();
            self.joined.iter().for_each(|joined| joined.listener.mark_initial());
            self.observers.iter().for_each(|observer| observer.watcher.synced.set());
        }
    }

    /// Tells the handlers of errors what can't be read, and what contradicts the cache.
    fn tell_errors(&self, applied: &Applied<K>) {
        let core = &self.core;
        applied.unreadable().for_each(|unreadable| core.health.tell_unreadable(&core.name(), unreadable));
        applied.fallen.iter().for_each(|fallen| self.doubt(fallen));
    }

    /// Requests a relist after a change that the cache contradicts: one of the two belongs to another history.
    fn doubt(&self, fallen: &Fallen) {
        if self.core.reliability.list_soon(&fallen.extent) {
            self.core.health.tell_fallen(&self.core.name(), fallen);
        }
    }

    fn tell_observers(&self, applied: &Applied<K>) {
        if self.observers.is_empty() {
            return;
        }
        let portions = portions(&applied.changes);
        for observer in &self.observers {
            for portion in &portions {
                match portion {
                    Portion::InOneGo(listed) => self.show_listed(observer, listed),
                    Portion::OneByOne(changes) => self.show_all(observer, changes.iter()),
                }
            }
        }
        // Only now: several observers may be one controller's, which judges progress by what all have seen.
        self.observers.iter().for_each(|observer| self.tell_progress(observer, applied.progress));
    }

    /// Fills the backlogs; what a list added is shared among them.
    fn tell_handlers(&self, applied: &Applied<K>) {
        if applied.changes.is_empty() || self.joined.is_empty() {
            return;
        }
        let now = Instant::now();
        let additions: Vec<_> = match applied.replaced {
            Some(_) if !applied.repeats => applied.changes.iter().filter_map(added).collect(),
            // What a list names twice is not as its addition shows it: the order counts.
            Some(_) | None => Vec::new(),
        };
        let origin = additions.first().map(|(_, origin)| *origin);
        let additions: Arc<[CachedObject<K>]> =
            additions.into_iter().map(|(object, _)| object.clone()).collect();
        let come = if origin.is_some() { Additions::Apart } else { Additions::InLine };
        let mut idlers = Vec::with_capacity(self.joined.len());
        for joined in &self.joined {
            idlers.push(joined.listener.notify(&applied.changes, come, joined.resync, now));
            // Behind the deletions of those that bore the names before.
            if let Some(origin) = origin {
                idlers.push(joined.listener.add(&additions, origin, now));
            }
        }
        idlers.into_iter().for_each(Idler::wake);
    }

    /// Fixes what a resync shows; each is shown it at its own pace, behind changes.
    fn begin_resync(&mut self, sync: Sync) {
        let (audience, mut told) = (sync.audience, sync.into_pending());
        told.extend(std::mem::take(&mut self.listed));
        let (snapshot, now) = (ResyncSnapshot::of(self.core.indexer.lister(), told), Instant::now());
        for joined in &mut self.joined {
            if audience == Audience::All || joined.resync == Resync::Due {
                joined.listener.resync(&snapshot, now).wake();
            }
            joined.resync = Resync::NotDue;
        }
        if audience == Audience::All && !self.observers.is_empty() {
            ResyncCursor::of(snapshot, now).line_up(&mut self.readings);
        }
    }

    /// Shows observers a part of a resync.
    fn show_slice(&mut self) {
        for _ in 0..SLICE {
            let Some(reading) = self.readings.front_mut() else { return };
            let object = reading.step();
            if reading.left() == 0 {
                self.readings.pop_front();
            }
            if let Some(object) = object {
                let change = Change::Unchanged { object };
                self.observers.iter().for_each(|observer| self.show(observer, &change));
            }
        }
    }

    /// Shows additions at once, and one by one those that the observer did not care for so.
    fn show_listed(&self, observer: &ObserverEntry<K>, listed: &Listed<'_, K>) {
        if observer.watcher.removed.is_set() {
            return;
        }
        match self.contained(|| observer.observer.listed(listed)) {
            Some(Accepted::First(heard)) => self.show_all(observer, listed.changes().skip(heard)),
            Some(Accepted::All) | None => {}
        }
    }

    fn show(&self, observer: &ObserverEntry<K>, change: &Change<K>) {
        self.show_all(observer, std::iter::once(change));
    }

    fn show_all<'c>(&self, observer: &ObserverEntry<K>, changes: impl Iterator<Item = &'c Change<K>>) {
        for change in changes {
            if observer.watcher.removed.is_set() {
                return;
            }
            self.contained(|| observer.observer.changed(change));
        }
    }

    fn tell_progress(&self, observer: &ObserverEntry<K>, progress: Progress) {
        if !observer.watcher.removed.is_set() {
            self.contained(|| observer.observer.progressed(progress));
        }
    }

    /// Calls an observer; `None` if it panicked.
    fn contained<T>(&self, call: impl FnOnce() -> T) -> Option<T> {
        let called = contained(call);
        if called.is_none() {
            self.core.health.count_panic();
            self.core.meter.panicked();
            tracing::error!(kind = %self.core.kind, "a controller's mapping or predicate panicked; the next change comes");
        }
        called
    }
}

/// Lets nobody wait for what will not come.
impl<K: Object> Drop for Processor<K> {
    fn drop(&mut self) {
        self.core.fifo.close();
        self.core.close_inbox();
        self.joined.iter().for_each(|joined| joined.listener.remove());
        self.observers.iter().for_each(|observer| observer.watcher.removed.set());
    }
}

async fn until(next: Option<Instant>) {
    match next {
        Some(next) => tokio::time::sleep_until(next).await,
        None => std::future::pending().await,
    }
}
