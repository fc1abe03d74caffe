//! What a debug page shows of one controller, read from its table of keys and its caches.

use std::{any::TypeId, collections::BTreeMap, sync::atomic::Ordering};

use super::{
    KeyReport, Reconciler, Why,
    inspect::Inspected,
    overview::{
        ControllerPhase, ControllerReport, KeyGroup, KeyLine, KeyPlace, Lagging, QueueDepths, Workers,
    },
    waits::Waits,
    worker::ControllerCore,
};
use crate::{
    clock::{Moment, readable},
    informer::Watched,
    keys::Keys,
    object::ObjectKey,
    store::Lookup,
    workqueue::{Depth, KeyState, QueueSnapshot, WorkQueue},
};

/// Most keys in flight that are named in one line.
const NAMED_IN_FLIGHT: usize = 5;
/// Most objects that are found by their name alone.
const MOST_FOUND: usize = 20;

impl<K: Watched, R: Reconciler<K>> Inspected for ControllerCore<K, R> {
    fn reconciles(&self) -> TypeId {
        TypeId::of::<K>()
    }

    fn report(&self, key: &ObjectKey) -> KeyReport {
        let idle = || match self.objects.lookup(key) {
            Lookup::Absent => Why::NotKnown,
            Lookup::Found(_) => Why::AwaitsChange,
            Lookup::Outdated { unreadable, .. } | Lookup::Unreadable(unreadable) => {
                Why::Unreadable(unreadable.error.clone())
            }
        };
        let blocked = blocked(&self.keys, &self.waits, self.stands_by.load(Ordering::Relaxed), key);
        let why = blocked.or_else(|| self.keys.why(key)).unwrap_or_else(idle);
        let (table, key, controller) = (self.keys.table(), key.clone(), self.name.clone());
        KeyReport { controller, why, reason: table.asked(&key), last_error: table.last_error(&key), key }
    }

    /// Finds objects by name: in whatever namespace, or the one without.
    fn find(&self, name: &str) -> Vec<ObjectKey> {
        let keys = self.objects.keys(None).into_iter();
        keys.filter(|key| key.name() == name).take(MOST_FOUND).collect()
    }

    fn lagging(&self) -> Vec<Lagging> {
        lagging(&self.waits)
    }

    fn phase(&self) -> ControllerPhase {
        let stands_by = self.stands_by.load(Ordering::Relaxed);
        match () {
            () if !stands_by && self.keys.queue.is_shut_down() => ControllerPhase::Stopped,
            () if !self.waits.lagging().is_empty() => ControllerPhase::WaitsForCaches,
            () if stands_by => ControllerPhase::StandsBy,
            () => ControllerPhase::Works,
        }
    }

    fn overview(&self, each: usize) -> ControllerReport {
        let (busy, queue, keys) = standing(&self.keys.queue, each, &|key| self.report(key));
        ControllerReport {
            name: self.name.to_string(),
            kind: self.kind_name.clone(),
            phase: self.phase(),
            waits_for: self.waits.lagging(),
            workers: Workers { busy, total: self.workers },
            queue,
            keys,
            recent_runs: self.recent.report(),
        }
    }

    fn in_flight(&self) -> Option<String> {
        in_flight(&self.name, &self.keys.queue)
    }
}

// What follows knows nothing of what is reconciled, so that it is compiled once.

/// Says what keeps all keys of a controller, or of a namespace, from running.
fn blocked(keys: &Keys, waits: &Waits, stands_by: bool, key: &ObjectKey) -> Option<Why> {
    if !stands_by && keys.queue.is_shut_down() {
        return Some(Why::Stopped);
    }
    let lagging = waits.lagging_for(key);
    match lagging.is_empty() {
        false => Some(Why::BlockedOnSync(lagging)),
        true => stands_by.then_some(Why::StandsBy),
    }
}

/// Names the keys in flight, and for how long they have been.
fn in_flight(controller: &str, queue: &WorkQueue<ObjectKey>) -> Option<String> {
    let snapshot = queue.snapshot(NAMED_IN_FLIGHT);
    let mut named: Vec<_> = snapshot
        .keys
        .iter()
        .filter_map(|(key, state)| match state {
            KeyState::InFlight { since: Some(since), .. } => {
                Some(format!("{key} for {}", readable(since.elapsed())))
            }
            KeyState::InFlight { since: None, .. } => Some(key.to_string()),
            _ => None,
        })
        .collect();
    let more = snapshot.depth.in_flight - named.len();
    if more > 0 {
        named.push(format!("{more} more"));
    }
    (!named.is_empty()).then(|| format!("{controller} ({})", named.join(", ")))
}

fn lagging(waits: &Waits) -> Vec<Lagging> {
    let lag = waits.all().filter(|informer| !informer.has_synced());
    let lagging = lag.map(|informer| Lagging {
        kind: informer.name(),
        since: informer.state().failure.map(|failure| failure.since),
        why: informer.why(),
    });
    let mut lagging: Vec<_> = lagging.collect();
    lagging.dedup_by(|one, other| one.kind == other.kind && one.why == other.why);
    lagging
}

/// Tells how many workers are busy, how many keys stand where, and what is reported of each.
fn standing(
    queue: &WorkQueue<ObjectKey>,
    each: usize,
    report: &dyn Fn(&ObjectKey) -> KeyReport,
) -> (usize, QueueDepths, Vec<KeyGroup>) {
    let standing = queue.snapshot(each);
    let (busy, depths) = (standing.depth.in_flight, depths(&standing));
    (busy, depths, groups(standing, report))
}

fn groups(standing: QueueSnapshot<ObjectKey>, report: &dyn Fn(&ObjectKey) -> KeyReport) -> Vec<KeyGroup> {
    let totals = Totals { backing_off: standing.backing_off, depth: standing.depth };
    let mut groups = BTreeMap::<KeyPlace, Vec<KeyLine>>::new();
    for (key, state) in standing.keys {
        if let Some(place) = place(state) {
            // It may stand elsewhere by now: what is said of it is said by the same rules in either place.
            groups.entry(place).or_default().push(line(&key, state, report(&key)));
        }
    }
    let group = |(place, mut keys): (KeyPlace, Vec<KeyLine>)| {
        // Those in line stand in their order.
        if place != KeyPlace::Queued {
            keys.sort_by(|one, other| (one.due, &one.key).cmp(&(other.due, &other.key)));
        }
        KeyGroup { place, total: totals.of(place).max(keys.len()), keys }
    };
    groups.into_iter().map(group).collect()
}

fn line(key: &ObjectKey, state: KeyState, report: KeyReport) -> KeyLine {
    KeyLine {
        key: key.to_string(),
        due: due(&report.why),
        why: report.why.to_string(),
        reason: report.reason.map(|reason| reason.to_string()),
        attempt: attempt(state),
        last_error: report.last_error,
    }
}

/// How many keys stand where.
struct Totals {
    backing_off: usize,
    depth: Depth,
}

impl Totals {
    fn of(&self, place: KeyPlace) -> usize {
        let Self { backing_off, depth } = self;
        match place {
            KeyPlace::FailedForGood => depth.awaiting_change,
            KeyPlace::BackingOff => backing_off + depth.awaiting_retry_token,
            KeyPlace::Held => depth.held,
            KeyPlace::InFlight => depth.in_flight,
            KeyPlace::Queued => depth.ready,
            KeyPlace::Waiting => depth.delayed.saturating_sub(*backing_off),
        }
    }
}

fn depths(standing: &QueueSnapshot<ObjectKey>) -> QueueDepths {
    let Depth { ready, delayed, held, awaiting_retry_token, in_flight, awaiting_change, .. } = standing.depth;
    let oldest = standing.oldest.map(|since| since.elapsed().as_secs_f64());
    QueueDepths {
        ready,
        oldest_seconds: oldest,
        waiting: delayed,
        held,
        awaiting_retry_token,
        in_flight,
        failed_for_good: awaiting_change,
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

fn attempt(state: KeyState) -> Option<u32> {
    match state {
        KeyState::InFlight { attempt, .. } => Some(attempt),
        KeyState::BackingOff { failures, .. } | KeyState::AwaitsRetryToken { failures } => {
            Some(failures.saturating_add(1))
        }
        KeyState::AwaitsChange { failures } => Some(failures),
        _ => None,
    }
}

fn due(why: &Why) -> Option<Moment> {
    match why {
        Why::WaitsUntil(until) | Why::BackingOff { until, .. } | Why::Paced { until } => Some(*until),
        Why::AwaitsOwnWrites { at_most_until } | Why::AwaitsCaches { at_most_until, .. } => {
            Some(*at_most_until)
        }
        _ => None,
    }
}
