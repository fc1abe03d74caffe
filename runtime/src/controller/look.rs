//! What a debug page shows of one controller, read from its queue and its caches.

use std::{collections::BTreeMap, sync::atomic::Ordering};

use super::{
    KeyReport, Reconciler, Why,
    overview::{
        ControllerPhase, ControllerReport, KeyGroup, KeyLine, KeyPlace, Lagging, QueueDepths, Workers,
    },
    queue::ControllerQueue,
    waits::Waits,
    worker::ControllerCore,
};
use crate::{
    clock::Moment,
    informer::Watched,
    object::ObjectKey,
    workqueue::{Depth, KeyState, Standing},
};

/// Most objects that are found by their name alone.
const MOST_FOUND: usize = 20;

impl<K: Watched, R: Reconciler<K>> ControllerCore<K, R> {
    pub(super) fn phase_now(&self) -> ControllerPhase {
        let stands_by = self.stands_by.load(Ordering::Relaxed);
        match () {
            () if !stands_by && self.queue.inner.is_shut_down() => ControllerPhase::Stopped,
            () if !self.waits.lagging().is_empty() => ControllerPhase::WaitsForCaches,
            () if stands_by => ControllerPhase::StandsBy,
            () => ControllerPhase::Works,
        }
    }

    /// Finds objects by name: in whatever namespace, or the one without.
    pub(super) fn find_by_name(&self, name: &str) -> Vec<ObjectKey> {
        let keys = self.objects.keys(None).into_iter();
        keys.filter(|key| key.name() == name).take(MOST_FOUND).collect()
    }

    pub(super) fn lagging_caches(&self) -> Vec<Lagging> {
        lagging(&self.waits)
    }

    pub(super) fn report_of_all(&self, each: usize) -> ControllerReport {
        let (busy, queue, keys) = standing(&self.queue, each, &|key| self.key_report(key));
        ControllerReport {
            name: self.name.to_string(),
            kind: self.kind_name.clone(),
            phase: self.phase_now(),
            waits_for: self.waits.lagging(),
            workers: Workers { busy, total: self.workers },
            queue,
            keys,
            recent_runs: self.recent.report(),
        }
    }
}

// What follows knows nothing of what is reconciled, so that it is compiled once.

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
    queue: &ControllerQueue,
    each: usize,
    report: &dyn Fn(&ObjectKey) -> KeyReport,
) -> (usize, QueueDepths, Vec<KeyGroup>) {
    let standing = queue.inner.standing(each);
    let (busy, depths) = (standing.depth.in_flight, depths(&standing));
    (busy, depths, groups(standing, report))
}

fn groups(standing: Standing<ObjectKey>, report: &dyn Fn(&ObjectKey) -> KeyReport) -> Vec<KeyGroup> {
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

fn depths(standing: &Standing<ObjectKey>) -> QueueDepths {
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
