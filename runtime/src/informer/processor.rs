//! The informer's one task: applies batches, then tells observers and handlers.

use std::{
    collections::{HashSet, VecDeque},
    num::NonZeroUsize,
    sync::Arc,
};

use futures::future::ready;

use tokio::{task, time::Instant};

use super::{
    apply::{AppliedDeltas, Fallen, apply},
    change::{AddOrigin, Change, Progress, ProgressVia, Via},
    core::{Command, InformerCore, ObserverEntry},
    handler::EventHandler,
    listener::{Hears, Idler, Resync},
    reflector_task::InformerSink,
    resync::{ResyncCursor, ResyncSnapshot},
};
use crate::{
    delta_fifo::{Audience, Batch, Delta, DeltaEntry, Sync},
    object::{Object, ObjectKey},
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
enum ProcessorTurn<K> {
    Commands,
    Resync,
    Batch(Batch<K>),
    /// Nothing but a resync that observers are being shown.
    Slice,
}

/// Starts the tasks, unless they were started before.
pub(super) fn start<K: Object>(core: &Arc<InformerCore<K>>) {
    let Some(feeds) = core.begin() else { return };
    core.spawn_vital("the task that applies changes", Box::pin(Processor::new(core.clone()).run()));
    for (feed, sink) in feeds {
        let sink = Arc::new(InformerSink {
            sink,
            cache: core.indexer.lister(),
            health: core.health.clone(),
            reliability: core.reliability.clone(),
            meter: core.meter.clone(),
        });
        core.spawn_vital("the task that fetches", (feed.run)(sink, core.stop.clone()));
    }
    core.wake.notify_one();
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
                () = core.wake.notified() => ProcessorTurn::Commands,
                () = until(next) => ProcessorTurn::Resync,
                batch = core.fifo.pop(BATCH) => match batch {
                    Some(batch) => ProcessorTurn::Batch(batch),
                    None => break,
                },
                () = ready(()), if !self.readings.is_empty() => ProcessorTurn::Slice,
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
    fn runs_users_code(&self, turn: &ProcessorTurn<K>) -> bool {
        match turn {
            ProcessorTurn::Batch(_) => {
                self.core.has_users_indexes() || self.observers.iter().any(|entry| entry.observer.may_block())
            }
            // They are seldom; a handler that goes is dropped in one, a transform tried again in the other.
            ProcessorTurn::Commands | ProcessorTurn::Resync => true,
            ProcessorTurn::Slice => false,
        }
    }

    fn take_turn(&mut self, turn: ProcessorTurn<K>) {
        match turn {
            ProcessorTurn::Commands => self.heed_commands(),
            ProcessorTurn::Resync => self.ask_for_resync(),
            ProcessorTurn::Batch(batch) => self.process(batch),
            ProcessorTurn::Slice => {}
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
        let cached = self.core.indexer.lister().list_cached().into_iter();
        let replayed = |object| Change::Added { object, origin: AddOrigin::InitialList, via: Via::Replay };
        let replay: Vec<_> = cached.map(replayed).collect();
        listener.notify(&replay, Resync::NotDue, Instant::now()).wake();
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
        let lists = matches!(entries[..], [DeltaEntry { delta: Delta::Replaced(_), .. }]);
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
    fn tell_errors(&self, applied: &AppliedDeltas<K>) {
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

    fn tell_observers(&self, applied: &AppliedDeltas<K>) {
        if self.observers.is_empty() {
            return;
        }
        for observer in &self.observers {
            applied.changes.iter().for_each(|change| self.show(observer, change));
        }
        // Only now: several observers may be one controller's, which judges progress by what all have seen.
        self.observers.iter().for_each(|observer| self.tell_progress(observer, applied.progress));
    }

    /// Fills the backlogs; wakes the handlers only then, so that their tasks do not delay it.
    fn tell_handlers(&self, applied: &AppliedDeltas<K>) {
        if applied.changes.is_empty() || self.joined.is_empty() {
            return;
        }
        let now = Instant::now();
        let notify = |joined: &HandlerEntry<K>| joined.listener.notify(&applied.changes, joined.resync, now);
        let idlers: Vec<_> = self.joined.iter().map(notify).collect();
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

    fn show(&self, observer: &ObserverEntry<K>, change: &Change<K>) {
        if !observer.watcher.removed.is_set() {
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
