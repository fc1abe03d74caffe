//! Why one controller does not reconcile a key.

use std::{any::TypeId, sync::atomic::Ordering};

use super::{
    Reconciler,
    inspect::{Inspected, KeyReport, Why},
    overview::{ControllerPhase, ControllerReport, Lagging},
    queue::ControllerQueue,
    worker::ControllerCore,
};
use crate::{
    clock::{Moment, readable},
    informer::Watched,
    object::ObjectKey,
    store::Lookup,
    workqueue::KeyState,
};

/// Most keys in flight that are named in one line.
const NAMED_IN_FLIGHT: usize = 5;

impl<K: Watched, R: Reconciler<K>> Inspected for ControllerCore<K, R> {
    fn reconciles(&self) -> TypeId {
        TypeId::of::<K>()
    }

    fn report(&self, key: &ObjectKey) -> KeyReport {
        self.key_report(key)
    }

    fn find(&self, name: &str) -> Vec<ObjectKey> {
        self.find_by_name(name)
    }

    fn lagging(&self) -> Vec<Lagging> {
        self.lagging_caches()
    }

    fn phase(&self) -> ControllerPhase {
        self.phase_now()
    }

    fn overview(&self, each: usize) -> ControllerReport {
        self.report_of_all(each)
    }

    fn in_flight(&self) -> Option<String> {
        in_flight(&self.name, &self.queue)
    }
}

/// Knows nothing of what is reconciled, so that it is compiled once.
fn in_flight(controller: &str, queue: &ControllerQueue) -> Option<String> {
    let keys = queue.inner.in_flight(NAMED_IN_FLIGHT);
    let more = queue.inner.depth().in_flight.saturating_sub(keys.len());
    let mut named: Vec<_> = keys
        .iter()
        .map(|(key, since)| match since {
            Some(since) => format!("{key} for {}", readable(since.elapsed())),
            None => key.to_string(),
        })
        .collect();
    if more > 0 {
        named.push(format!("{more} more"));
    }
    (!named.is_empty()).then(|| format!("{controller} ({})", named.join(", ")))
}

impl<K: Watched, R: Reconciler<K>> ControllerCore<K, R> {
    /// Returns how it stands to a key.
    pub(super) fn key_report(&self, key: &ObjectKey) -> KeyReport {
        KeyReport {
            key: key.clone(),
            controller: self.name.clone(),
            why: self.why(key),
            reason: self.queue.reason(key),
            last_error: self.history().failures.get(key).cloned(),
        }
    }

    fn why(&self, key: &ObjectKey) -> Why {
        let stands_by = self.stands_by.load(Ordering::Relaxed);
        if !stands_by && self.queue.inner.is_shut_down() {
            return Why::Stopped;
        }
        let lagging = self.waits.lagging_for(key);
        if !lagging.is_empty() {
            return Why::BlockedOnSync(lagging);
        }
        if stands_by {
            return Why::StandsBy;
        }
        let state = self.queue.inner.state_of(key);
        if matches!(state, KeyState::Queued { .. } | KeyState::Held { .. })
            && let Some(doubt) = self.gate.doubt(key)
        {
            let kinds = self.gate.doubts().iter().map(|(kind, _)| kind.to_string()).collect();
            return Why::AwaitsCaches { kinds, at_most_until: doubt.until.into() };
        }
        match state {
            KeyState::Queued { .. } => Why::Queued,
            KeyState::Delayed { until } => Why::WaitsUntil(until.into()),
            KeyState::BackingOff { until, failures } => Why::BackingOff { until: until.into(), failures },
            KeyState::AwaitsRetryToken { failures } => Why::AwaitsRetryToken { failures },
            KeyState::AwaitsChange { failures } => Why::AwaitsChangeAfterFailure { failures },
            KeyState::InFlight { since, attempt } => {
                Why::InFlight { since: since.map(Moment::from), attempt }
            }
            KeyState::Held { until } => match self.queue.awaits_own_writes(key) {
                true => Why::AwaitsOwnWrites { at_most_until: until.into() },
                false => Why::Paced { until: until.into() },
            },
            KeyState::Idle => match self.objects.lookup(key) {
                Lookup::Absent => Why::NotKnown,
                Lookup::Found(_) => Why::AwaitsChange,
                Lookup::Outdated { unreadable, .. } | Lookup::Unreadable(unreadable) => {
                    Why::Unreadable(unreadable.error.clone())
                }
            },
        }
    }
}
