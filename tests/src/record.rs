//! When reconciles started, and whether that was within a rate.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::{sync::watch, time::Instant};
use watchkeeper::prelude::{Context, ObjectKey, Reason, Watched};

/// One start of a reconcile.
#[derive(Clone, Debug)]
pub struct Start {
    /// When.
    pub at: Instant,
    /// Of which key.
    pub key: ObjectKey,
    /// Which run since the last success.
    pub attempt: u32,
    /// Why, where a context said so.
    pub reason: Option<Reason>,
}

/// Collects starts; clones share them.
#[derive(Clone, Debug)]
pub struct Record {
    starts: Arc<Mutex<Vec<Start>>>,
    count: Arc<watch::Sender<usize>>,
}

impl Default for Record {
    fn default() -> Self {
        Self { starts: Arc::default(), count: Arc::new(watch::Sender::new(0)) }
    }
}

impl Record {
    /// Notes that a run starts.
    pub fn start<K: Watched>(&self, cx: &Context<K>) {
        self.take(cx.key().clone(), cx.attempt(), Some(cx.reason().clone()));
    }

    /// Notes a start of a key.
    pub fn note(&self, key: ObjectKey, attempt: u32) {
        self.take(key, attempt, None);
    }

    fn take(&self, key: ObjectKey, attempt: u32, reason: Option<Reason>) {
        let mut starts = self.starts.lock().unwrap_or_else(PoisonError::into_inner);
        starts.push(Start { at: Instant::now(), key, attempt, reason });
        self.count.send_replace(starts.len());
    }

    /// Returns all starts so far.
    pub fn starts(&self) -> Vec<Start> {
        self.starts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the names of the objects that ran, in order.
    pub fn names(&self) -> Vec<String> {
        self.starts().iter().map(|start| start.key.name().to_owned()).collect()
    }

    /// Returns why the last run was asked for, as text.
    pub fn last_reason(&self) -> String {
        let starts = self.starts();
        let reason = starts.last().and_then(|start| start.reason.as_ref());
        reason.map(ToString::to_string).unwrap_or_default()
    }

    /// Counts the starts so far.
    pub fn len(&self) -> usize {
        *self.count.borrow()
    }

    /// Returns whether nothing has started yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until this many runs have started.
    ///
    /// # Panics
    /// After ten minutes of (paused) time.
    pub async fn reaches(&self, wanted: usize) {
        let mut count = self.count.subscribe();
        let reached = count.wait_for(|count| *count >= wanted);
        let in_time = tokio::time::timeout(std::time::Duration::from_secs(600), reached).await;
        assert!(in_time.is_ok(), "{} of {wanted} runs started", self.len());
    }
}

/// Checks that over any window `w` at most `burst + rate × w` reconciles started.
///
/// # Panics
/// Naming the first window that holds more.
pub fn assert_rate_holds(starts: &[Start], rate: f64, burst: f64) {
    for (first, from) in starts.iter().enumerate() {
        for (last, to) in starts.iter().enumerate().skip(first) {
            let window = to.at.duration_since(from.at).as_secs_f64();
            let started = (last - first + 1) as f64;
            let allowed = burst + rate * window + 1e-6;
            assert!(started <= allowed, "{started} started within {window} s, {allowed} allowed");
        }
    }
}
