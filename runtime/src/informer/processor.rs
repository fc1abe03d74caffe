//! The informer's one task: applies batches, then tells observers and handlers.

use std::{
    collections::VecDeque,
    num::NonZeroUsize,
    sync::{Arc, atomic::Ordering},
};

use futures::future::ready;
use tokio::{sync::mpsc::UnboundedReceiver, task, time::Instant};

use super::{
    apply::{AppliedDeltas, apply},
    change::{AddOrigin, CacheChange, Progress, ProgressVia, Via},
    core::{Command, InformerCore, ObserverEntry},
    handler::Observer,
    listener::{AnyHandler, Listener},
    reflector_task::InformerSink,
    registration::HandlerSlot,
    resync::ResyncCursor,
};
use crate::{
    clock::until,
    delta_fifo::Batch,
    object::{AnyObject, Version},
    users_code::{contained, may_block},
};

/// Most deltas applied in one go.
const BATCH: NonZeroUsize = NonZeroUsize::new(1_000).expect("not zero");

/// How many objects of a resync observers are shown between two batches.
const SLICE: usize = 500;

/// A handler as the processor sees it.
struct HandlerEntry {
    listener: Arc<Listener>,
    /// When its next resync is due.
    next: Option<Instant>,
    resync_due: bool,
}

/// Starts the tasks, unless they were started before.
pub(super) fn start(core: &Arc<InformerCore>) {
    let Some((commands, feeds)) = core.begin() else { return };
    let mut processor = Processor::new(core.clone(), commands);
    let stop = core.stop.clone();
    let run = async move {
        stop.run_until_cancelled(processor.run()).await;
        may_block(|| drop(processor));
    };
    core.spawn_vital("the task that applies changes", Box::pin(run));
    for (feed, sink) in feeds {
        let sink = Arc::new(InformerSink {
            sink,
            cache: core.indexer.lister(),
            health: core.health.clone(),
            reliability: core.reliability.clone(),
            resync: core.resync.clone(),
        });
        core.spawn_vital("the task that fetches", (feed.run)(sink, core.stop.clone()));
    }
}

pub(super) struct Processor {
    core: Arc<InformerCore>,
    commands: UnboundedReceiver<Command>,
    joined: Vec<HandlerEntry>,
    observers: Vec<ObserverEntry>,
    /// Resyncs that observers are being shown.
    resyncs: VecDeque<ResyncCursor>,
}

impl Processor {
    pub(super) fn new(core: Arc<InformerCore>, commands: UnboundedReceiver<Command>) -> Self {
        let (joined, observers) = (Vec::new(), Vec::new());
        Self { core, commands, joined, observers, resyncs: VecDeque::new() }
    }

    pub(super) async fn run(&mut self) {
        let core = self.core.clone();
        loop {
            let next = self.joined.iter().filter_map(|joined| joined.next).min();
            tokio::select! {
                biased;
                // A handler that goes is dropped by a command; a resync tries transforms again.
                Some(command) = self.commands.recv() => may_block(|| self.heed(command)),
                () = until(next) => may_block(|| self.ask_for_resync()),
                Some(batch) = core.fifo.pop(BATCH) => {
                    let observes = |entry: &ObserverEntry| entry.observer.may_block();
                    // A mapping, a predicate or an index function runs as the batch is applied.
                    match core.users_indexes.is_set() || self.observers.iter().any(observes) {
                        true => may_block(|| self.process(batch)),
                        false => self.process(batch),
                    }
                }
                () = ready(()), if !self.resyncs.is_empty() => {}
            }
            match self.resyncs.is_empty() {
                true => task::coop::consume_budget().await,
                false => {
                    may_block(|| self.show_slice());
                    task::yield_now().await;
                }
            }
        }
    }

    fn heed(&mut self, command: Command) {
        match command {
            // A handler of the user's may panic when it is dropped.
            Command::Join(listener, handler) if listener.status().removed.is_set() => {
                contained(|| drop(handler)).unwrap_or_else(|| self.note_panic());
            }
            Command::Join(listener, handler) => self.join(listener, handler),
            Command::Look(observer) => self.look(observer),
            Command::Sweep => {
                self.joined.retain(|joined| !joined.listener.status().removed.is_set());
                let gone = self.observers.extract_if(.., |observer| observer.status.removed.is_set());
                for observer in gone.collect::<Vec<_>>() {
                    contained(|| drop(observer)).unwrap_or_else(|| self.note_panic());
                }
            }
        }
    }

    /// Replays the cache to a handler; no batch comes between the replay and what follows.
    fn join(&mut self, listener: Arc<Listener>, handler: Box<dyn AnyHandler>) {
        let cached = self.core.indexer.lister().list_cached().into_iter();
        let replayed =
            |object| CacheChange::Added { object, origin: AddOrigin::InitialList, via: Via::Replay };
        let replay: Vec<_> = cached.map(replayed).collect();
        listener.notify(&replay, false, Instant::now());
        if self.core.synced.is_set() {
            listener.mark_initial();
        }
        let next = listener.resync_every.and_then(|period| Instant::now().checked_add(period));
        self.core.spawn(Box::pin(listener.clone().call_until_removed(handler)));
        self.joined.push(HandlerEntry { listener, next, resync_due: false });
    }

    fn look(&mut self, observer: ObserverEntry) {
        let lister = self.core.indexer.lister();
        for object in lister.list_cached() {
            let change = CacheChange::Added { object, origin: AddOrigin::InitialList, via: Via::Replay };
            self.call(&observer, |observer| observer.changed(&change));
        }
        for unreadable in lister.unreadable_or_outdated() {
            let kept = unreadable.identity.key.as_ref().and_then(|key| lister.cached(key));
            let change = CacheChange::Unreadable { unreadable, kept, via: Via::Replay };
            self.call(&observer, |observer| observer.changed(&change));
        }
        if self.core.synced.is_set() {
            let progress = Progress { version: lister.resource_version(), via: ProgressVia::Replace };
            self.call(&observer, |observer| observer.progressed(progress));
            observer.status.synced.set();
        }
        self.observers.push(observer);
    }

    fn ask_for_resync(&mut self) {
        let now = Instant::now();
        for joined in &mut self.joined {
            let Some((next, period)) = joined.next.zip(joined.listener.resync_every) else { continue };
            if next <= now {
                joined.resync_due = true;
                // On its own grid, but never twice for a period that was slept through.
                joined.next = next.checked_add(period).max(now.checked_add(period / 2));
            }
        }
        self.core.resync.ask(&self.core.indexer.lister(), false);
        self.core.fifo.resync();
    }

    fn process(&mut self, mut batch: Batch<dyn AnyObject>) {
        let core = &self.core;
        let synced = core.synced.is_set();
        let origin = if synced { AddOrigin::Watch } else { AddOrigin::InitialList };
        let entries = batch.take();
        let mut applied = core.indexer.write(|store| apply(store, entries, &core.kind, origin));
        if applied.found_errors() {
            may_block(|| self.tell_errors(&applied));
        }
        if applied.replaced.is_some() || !applied.nameless.is_empty() {
            let nameless = std::mem::take(&mut applied.nameless);
            core.health.note_nameless(applied.replaced.as_ref(), nameless);
        }
        for entry in &self.observers {
            applied.changes.iter().for_each(|change| self.call(entry, |observer| observer.changed(change)));
        }
        // Only now: several observers may be one controller's, which judges progress by what all have seen.
        for entry in &self.observers {
            self.call(entry, |observer| observer.progressed(applied.progress));
        }
        if applied.progress.via == ProgressVia::NewEpoch {
            core.newest.store(0, Ordering::Release);
        }
        if let Some(Version(newest)) = applied.newest {
            core.newest.fetch_max(newest, Ordering::AcqRel);
        }
        if let Some(extent) = &applied.replaced {
            core.reliability.replaced(extent);
        }
        if !applied.changes.is_empty() && !self.joined.is_empty() {
            let now = Instant::now();
            for joined in &self.joined {
                joined.listener.notify(&applied.changes, joined.resync_due, now);
            }
            // Handlers are woken only then, so that their tasks do not delay it.
            self.joined.iter().for_each(|joined| joined.listener.ready.notify_one());
        }
        if applied.resync {
            self.begin_resync();
        }
        drop(batch);
        for change in applied.changes {
            if contained(|| drop(change)).is_none() {
                self.core.panics.inc();
                tracing::error!(kind = %self.core.kind, "an object panicked as it was dropped; the next change comes");
            }
        }
        let core = &self.core;
        applied.reports.iter().for_each(|(extent, report)| core.reliability.handled(extent, report));
        if !synced && core.fifo.has_synced() {
            core.synced.set();
            self.joined.iter().for_each(|joined| joined.listener.mark_initial());
            self.observers.iter().for_each(|observer| observer.status.synced.set());
        }
    }

    /// Reports what can't be read, and what contradicts the cache: then one of the two belongs to another history, and
    /// a relist decides.
    fn tell_errors(&self, applied: &AppliedDeltas) {
        let core = &self.core;
        applied.unreadable().for_each(|unreadable| core.health.tell_unreadable(&core.name(), unreadable));
        let fallen = applied.fallen.iter().filter(|fallen| core.reliability.list_soon(&fallen.extent));
        fallen.for_each(|fallen| core.health.tell_fallen(&core.name(), fallen));
    }

    /// Begins to show a resync; each is shown it at its own pace, behind changes.
    fn begin_resync(&mut self) {
        let Some((snapshot, everybody)) = self.core.resync.take() else { return };
        let now = Instant::now();
        for joined in &mut self.joined {
            if everybody || joined.resync_due {
                joined.listener.resync(&snapshot, now);
                joined.listener.ready.notify_one();
            }
            joined.resync_due = false;
        }
        if everybody && !self.observers.is_empty() {
            ResyncCursor::of(snapshot, [].into_iter(), now).line_up(&mut self.resyncs);
        }
    }

    /// Shows observers a part of a resync.
    fn show_slice(&mut self) {
        for _ in 0..SLICE {
            let Some(object) = ResyncCursor::step(&mut self.resyncs) else { return };
            if let Some(object) = object {
                let change = CacheChange::Unchanged { object };
                self.observers
                    .iter()
                    .for_each(|entry| self.call(entry, |observer| observer.changed(&change)));
            }
        }
    }

    /// Calls an observer, unless it was removed.
    fn call(&self, entry: &ObserverEntry, call: impl FnOnce(&dyn Observer)) {
        if !entry.status.removed.is_set() && contained(|| call(&*entry.observer)).is_none() {
            self.note_panic();
        }
    }

    fn note_panic(&self) {
        self.core.health.count_panic();
        self.core.panics.inc();
        tracing::error!(kind = %self.core.kind, "a controller's mapping or predicate panicked; the next change comes");
    }
}

/// Lets nobody wait for what will not come.
impl Drop for Processor {
    fn drop(&mut self) {
        self.core.fifo.close();
        self.core.refuse_all(&mut self.commands);
        self.joined.iter().for_each(|joined| joined.listener.remove());
        self.observers.iter().for_each(|observer| observer.status.removed.set());
    }
}
