//! What a controller is while it runs, whatever it reconciles, and what debug pages show of it.

use std::{
    any::TypeId,
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use rand::rngs::SmallRng;
use tokio::time::Instant;

use super::{
    KeyReport, Leftovers, Why,
    context::ContextBase,
    reads::ReadCaches,
    recent::RecentRuns,
    report::{ControllerPhase, ControllerReport, KeyGroup, KeyLine, KeyPlace, QueueDepths, WorkerCounts},
    settings::Settings,
    sources::ReconciledObjects,
    trace::FindTraceId,
    waits::{Waits, explained},
};
use crate::{
    clock::readable,
    informer::SyncState,
    keys::Keys,
    metrics::ControllerMetrics,
    object::ObjectKey,
    workqueue::{Depth, KeyState, QueueSnapshot},
};

/// Most keys in flight that are named in one line.
const NAMED_IN_FLIGHT: usize = 5;
/// Most objects that are found by their name alone, and most reads of a key that are named.
const MOST_FOUND: usize = 20;

/// What all workers of a controller share. It does not know the reconciled type, so that it is compiled once.
pub(crate) struct ControllerCore {
    pub(crate) settings: Settings,
    /// The kind, and how runs write.
    pub(super) base: Arc<ContextBase>,
    /// The marker type that it reconciles.
    pub(crate) reconciles: TypeId,
    pub(super) objects: Arc<ReconciledObjects>,
    /// The caches that runs may read.
    pub(super) reads: Arc<ReadCaches>,
    pub(crate) waits: Arc<Waits>,
    pub(super) keys: Arc<Keys>,
    pub(super) metrics: ControllerMetrics,
    /// The last runs that ended.
    pub(super) recent: RecentRuns,
    pub(super) runs: AtomicU64,
    pub(super) jitter: Mutex<SmallRng>,
    pub(super) trace_id: Option<FindTraceId>,
    /// Where work is noted that outlives its run, if there is a term of work each time that this replica leads.
    pub(super) leftovers: Option<Arc<Leftovers>>,
    /// Whether another replica works in its place.
    pub(super) stands_by: AtomicBool,
}

impl ControllerCore {
    /// Lets in the keys of a namespace, or of all that have no caches of their own.
    pub(super) fn open(&self, namespace: Option<&Arc<str>>) {
        let cached = || self.objects.keys(namespace.map(|namespace| &**namespace));
        self.keys.table().open(namespace, cached);
    }

    /// Forgets what is over, and what belongs to objects that are gone.
    pub(super) fn sweep(&self) {
        self.keys.table().sweep(Instant::now(), |key| self.objects.is_gone(key));
    }

    fn stands_by(&self) -> bool {
        self.stands_by.load(Ordering::Relaxed)
    }

    fn has_stopped(&self) -> bool {
        !self.stands_by() && self.keys.queue.is_shut_down()
    }

    /// Returns the caches that it waits for.
    pub(crate) fn lagging(&self) -> Vec<SyncState> {
        self.waits.lagging()
    }

    /// Says how far it has come.
    pub(crate) fn phase(&self) -> ControllerPhase {
        match () {
            () if self.has_stopped() => ControllerPhase::Stopped,
            () if !self.lagging().is_empty() => ControllerPhase::WaitsForCaches,
            () if self.stands_by() => ControllerPhase::StandsBy,
            () => ControllerPhase::Works,
        }
    }

    /// Says why a key does not run, or that it does.
    pub(crate) fn report(&self, key: &ObjectKey) -> KeyReport {
        let why = self.blocked(key).or_else(|| self.keys.why(key)).unwrap_or_else(|| self.objects.idle(key));
        let (table, key, controller) = (self.keys.table(), key.clone(), self.settings.name.clone());
        let reads = table.reads.of(&key).into_iter().take(MOST_FOUND);
        let reads = reads.map(|(kind, part)| self.reads.shown(kind, &part)).collect();
        let (reason, last_error) = (table.asked(&key), table.last_error(&key));
        KeyReport { controller, why, reason, last_error, reads, key }
    }

    /// Says what keeps all keys of the controller, or of a namespace, from running.
    fn blocked(&self, key: &ObjectKey) -> Option<Why> {
        if self.has_stopped() {
            return Some(Why::Stopped);
        }
        let lagging = self.waits.lagging_for(key);
        match lagging.is_empty() {
            false => Some(Why::BlockedOnSync(explained(&lagging))),
            true => self.stands_by().then_some(Why::StandsBy),
        }
    }

    /// Finds a bounded number of objects by name, in whatever namespace.
    pub(crate) fn find(&self, name: &str) -> Vec<ObjectKey> {
        let keys = self.objects.keys(None).into_iter();
        keys.filter(|key| key.name() == name).take(MOST_FOUND).collect()
    }

    /// Names the keys in flight in one line, and for how long they have been; `None` if nothing runs.
    pub(crate) fn in_flight(&self) -> Option<String> {
        let QueueSnapshot { depth, keys, .. } = self.keys.queue.snapshot(NAMED_IN_FLIGHT);
        let named = keys.iter().filter_map(|(key, state)| match state {
            KeyState::InFlight { since: Some(since), .. } => {
                Some(format!("{key} for {}", readable(since.elapsed())))
            }
            KeyState::InFlight { since: None, .. } => Some(key.to_string()),
            _ => None,
        });
        let mut named: Vec<_> = named.collect();
        let more = depth.in_flight.saturating_sub(named.len());
        named.extend((more > 0).then(|| format!("{more} more")));
        (!named.is_empty()).then(|| format!("{} ({})", self.settings.name, named.join(", ")))
    }

    /// Shows its state, with at most this many keys of each sort.
    pub(crate) fn overview(&self, each: usize) -> ControllerReport {
        let QueueSnapshot { depth, oldest, keys, backing_off, .. } = self.keys.queue.snapshot(each);
        let mut groups = BTreeMap::<KeyPlace, Vec<KeyLine>>::new();
        for (key, state) in keys {
            if let Some(place) = place(state) {
                // It may be elsewhere by now: what is said of it is said by the same rules in either place.
                groups.entry(place).or_default().push(self.report(&key).into());
            }
        }
        let group = |(place, mut keys): (KeyPlace, Vec<KeyLine>)| {
            // Those in line are in their order.
            if place != KeyPlace::Queued {
                keys.sort_by(|one, other| (one.due, &one.key).cmp(&(other.due, &other.key)));
            }
            KeyGroup { place, total: total(place, depth, backing_off).max(keys.len()), keys }
        };
        ControllerReport {
            name: self.settings.name.to_string(),
            kind: self.base.kind.to_string(),
            phase: self.phase(),
            waits_for: explained(&self.lagging()),
            workers: WorkerCounts { busy: depth.in_flight, total: self.settings.workers },
            queue: QueueDepths {
                ready: depth.ready,
                oldest_seconds: oldest.map(|since| since.elapsed().as_secs_f64()),
                waiting: depth.delayed,
                held: depth.held,
                awaiting_retry_token: depth.awaiting_retry_token,
                in_flight: depth.in_flight,
                failed_for_good: depth.awaiting_change,
            },
            keys: groups.into_iter().map(group).collect(),
            recent_runs: self.recent.report(),
        }
    }
}

fn place(state: KeyState) -> Option<KeyPlace> {
    Some(match state {
        KeyState::Idle => return None,
        KeyState::Queued { .. } => KeyPlace::Queued,
        KeyState::Delayed { .. } => KeyPlace::Waiting,
        KeyState::BackingOff { .. } | KeyState::AwaitsRetryToken { .. } => KeyPlace::BackingOff,
        KeyState::AwaitsChange { .. } => KeyPlace::FailedForGood,
        KeyState::Held { .. } => KeyPlace::Held,
        KeyState::InFlight { .. } => KeyPlace::InFlight,
    })
}

/// Returns how many keys are in a place.
fn total(place: KeyPlace, depth: Depth, backing_off: usize) -> usize {
    match place {
        KeyPlace::FailedForGood => depth.awaiting_change,
        KeyPlace::BackingOff => backing_off + depth.awaiting_retry_token,
        KeyPlace::Held => depth.held,
        KeyPlace::InFlight => depth.in_flight,
        KeyPlace::Queued => depth.ready,
        KeyPlace::Waiting => depth.delayed.saturating_sub(backing_off),
    }
}
