//! Whether what a write is computed from can be relied on, and what answers say against the caches.

use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::{Instant, timeout};

use super::{
    WriteError,
    caches::Cached,
    contradictions::{Answered, Before, Contradicted, Open, contradiction},
    owner::Owner,
    record::Verdict,
    request::Target,
    source::SourceId,
    writer::{Memory, Writer},
};
use crate::{informer::Comparison, object::ObjectKey, reflector::DoubtCause};

/// How long a write waits for caches that are in doubt, before it is refused and its key runs again later.
const PATIENCE: Duration = Duration::from_secs(5);

impl Writer {
    /// Refuses a write that may be computed from a state which its server lost.
    ///
    /// The caches that the key reads are waited for, for a moment: most are back soon, and show no other history.
    pub(super) async fn check_caches(&self, key: &ObjectKey, target: &Target) -> Result<(), WriteError> {
        if self.gate.doubt(key).is_some() {
            // Whether it is open then is asked next.
            let _ = timeout(PATIENCE, self.gate.opened_for(key)).await;
        }
        if let Some(doubt) = self.gate.doubt(key) {
            let why = match doubt.cause {
                DoubtCause::HistoryLost => {
                    "the server lost its history, and caches are compared with what is left"
                }
                DoubtCause::WatchCut => "the server is unreachable, and may come back with another history",
            };
            return Err(WriteError::doubted(target, why));
        }
        match self.memory().records.spans_epochs(key) {
            true => Err(WriteError::doubted(target, "the server lost its history since the run began")),
            false => Ok(()),
        }
    }

    /// Returns what the caches that would show a target show before it is asked for.
    pub(super) fn before(&self, target: &Target) -> Vec<(SourceId, Before)> {
        let delivered = |source| self.memory().records.delivered(source);
        let shown = self.caches_of(target).filter_map(|cache| {
            let before = match (cache.look_up)(&target.key) {
                Cached::Absent => Before::Absent { delivered: delivered(cache.source) },
                Cached::Present(meta) => {
                    Before::Present { uid: meta.uid, version: meta.resource_version.parse().ok() }
                }
                Cached::Unknown | Cached::Unselected => return None,
            };
            Some((cache.source, before))
        });
        shown.collect()
    }

    /// Holds an answer against what the caches showed before it was asked for.
    pub(super) fn compare(&self, target: &Target, before: Vec<(SourceId, Before)>, answered: &Answered) {
        for (source, before) in before {
            let Some(what) = contradiction(&before, answered) else { continue };
            if matches!(what, Contradicted::Version { .. }) {
                self.report_history_loss(source, &target.key);
            }
            let (mut memory, now) = (self.memory(), Instant::now());
            memory.contradictions.note(source, &target.key, what, now);
            self.set_alarm(&mut memory, now);
        }
    }

    /// Asks for an owner whose child belongs to another UID of it: it may be the owner's cache that is behind.
    pub(super) fn refetch_owner<'a>(
        &'a self,
        owner: &'a Owner,
        refused: Option<&WriteError>,
    ) -> BoxFuture<'a, ()> {
        let belongs_to_another = matches!(refused, Some(WriteError::EarlierOwner { .. }));
        Box::pin(async move {
            if belongs_to_another && let Err(error) = self.fetch(&owner.named()).await {
                tracing::debug!(object = %owner.named(), %error, "can't ask for an owner");
            }
        })
    }

    /// Takes note that the object of a UID is gone, whatever else has its name.
    pub(super) fn note_gone(&self, target: &Target, uid: &str) {
        let mut before = self.before(target);
        before.retain(|(_, before)| matches!(before, Before::Present { uid: shown, .. } if shown == uid));
        self.compare(target, before, &Answered::Absent);
    }

    /// Takes note that the server has an older state of a target than a write of the key was computed from.
    ///
    /// What the key wrote is lost, and its versions may be given to others.
    pub(super) fn found_older_state(&self, key: &ObjectKey, target: &Target) {
        self.forget_answer(key, target);
        let verdict = self.memory().records.forget_own(key);
        self.sources_of(target).into_iter().for_each(|source| self.report_history_loss(source, &target.key));
        if verdict == Verdict::Enqueue {
            self.keys.wake(key.clone());
        }
    }

    fn report_history_loss(&self, source: SourceId, object: &ObjectKey) {
        if let Some(cache) = self.caches.iter().find(|cache| cache.source == source) {
            (cache.report_history_loss)(object);
        }
    }

    /// Has a cache list that shows still what an answer contradicted.
    pub(super) fn list_to_compare(&self, Open { source, object, .. }: &Open) {
        let Some(cache) = self.caches.iter().find(|cache| cache.source == *source) else { return };
        if (cache.compare)(object) == Comparison::TooSoon {
            return;
        }
        self.memory().contradictions.resolved_by_list(*source);
        self.counters.contradicted.inc();
        let kind = &cache.kind;
        tracing::warn!(%object, "the server contradicts the cache of {kind}: listing {kind} again");
    }
}

impl Memory {
    /// Returns when the follow-up task must look next; `None` while nothing waits.
    pub(super) fn next_tick(&self, now: Instant) -> Option<Instant> {
        let (pending, contradicted) = (self.records.next_tick(now), self.contradictions.next_tick(now));
        pending.into_iter().chain(contradicted).min()
    }
}

#[cfg(test)]
#[path = "checks_tests.rs"]
mod tests;
