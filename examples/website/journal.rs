//! What the operator did, and when: the demo's summary is made of it.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::apps::v1::Deployment;
use tokio::time::Instant;
use watchkeeper::prelude::*;

use super::operator::{BURST, RATE, Website, WebsiteStatus};

/// The window in which starts are counted.
const SECOND: Duration = Duration::from_secs(1);
/// How late a requeue may come, in addition to the limiter's wait.
const SLACK: Duration = Duration::from_secs(1);

/// Records reconciles as they start, and the requeues that were promised.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    speaks: AtomicBool,
    record: Mutex<Record>,
}

#[derive(Debug, Default)]
struct Record {
    reconciles: u64,
    busiest_second: usize,
    last_second: VecDeque<Instant>,
    due: HashMap<ObjectKey, Instant>,
    requeues_on_time: u64,
    requeues_late: u64,
    released: BTreeSet<String>,
    shown: HashMap<ObjectKey, (i32, i32)>,
}

/// The figures of a journal.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    /// Reconciles started.
    pub(crate) reconciles: u64,
    /// Most reconciles started within any one second.
    pub(crate) busiest_second: usize,
    /// Requeues that came when promised: never early, at most a second and the limiter's wait late.
    pub(crate) requeues_on_time: u64,
    /// Requeues that came later.
    pub(crate) requeues_late: u64,
    /// Domains that cleanups released.
    pub(crate) released: BTreeSet<String>,
}

impl Journal {
    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From here on, says what the operator does.
    pub(crate) fn speak(&self) {
        self.speaks.store(true, Ordering::Relaxed);
    }

    fn say(&self, line: &str) {
        if self.speaks.load(Ordering::Relaxed) {
            println!("{line}");
        }
    }

    /// Notes that a run of a key has started.
    pub(crate) fn started(&self, key: &ObjectKey) {
        let now = Instant::now();
        let mut record = self.record();
        record.reconciles += 1;
        record.last_second.push_back(now);
        while record.last_second.front().is_some_and(|start| now.duration_since(*start) >= SECOND) {
            record.last_second.pop_front();
        }
        record.busiest_second = record.busiest_second.max(record.last_second.len());
        // A run before its time was caused by a change, so it does not count as a requeue.
        if let Some(due) = record.due.remove(key).filter(|due| *due <= now) {
            let backlog = record.last_second.len().saturating_sub(BURST as usize);
            let wait = SECOND.mul_f64(backlog as f64 / f64::from(RATE));
            match now.duration_since(due) <= SLACK + wait {
                true => record.requeues_on_time += 1,
                false => record.requeues_late += 1,
            }
        }
    }

    /// Notes that a key is to run again after a time.
    pub(crate) fn promised(&self, key: &ObjectKey, after: Duration) {
        self.record().due.insert(key.clone(), Instant::now() + after);
    }

    /// Notes what a site's Deployment has, and says so when it is news.
    pub(crate) fn kept(&self, site: &Website, deployment: &Deployment) {
        let status = WebsiteStatus::from(deployment);
        let (key, now) = (ObjectKey::of(site), (site.spec.replicas, status.ready_replicas));
        if self.record().shown.insert(key.clone(), now) != Some(now) {
            let (wanted, ready) = now;
            self.say(&format!("{key}: Deployment wants {wanted}, {ready} ready, at {}", site.spec.domain));
        }
    }

    /// Notes that a cleanup released a domain.
    pub(crate) fn released(&self, domain: &str) {
        if self.record().released.insert(domain.to_owned()) {
            self.say(&format!("released {domain}"));
        }
    }

    /// Adds it all up.
    pub(crate) fn figures(&self) -> Figures {
        let record = self.record();
        Figures {
            reconciles: record.reconciles,
            busiest_second: record.busiest_second,
            requeues_on_time: record.requeues_on_time,
            requeues_late: record.requeues_late,
            released: record.released.clone(),
        }
    }
}
