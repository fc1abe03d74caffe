//! Counting the changes that handlers and reconcilers see, and waiting for the last one.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::Notify;

use super::{Next, Work};
use crate::{
    clock::micros_since,
    gadget::{self, Gadget, LISTED},
    measure::Sorted,
};

/// Waits until the last change of a flood has been told.
#[derive(Default)]
pub(crate) struct Last {
    calls: AtomicUsize,
    told: Notify,
}

impl Last {
    /// Takes note of a call; `objects` are served in all, and the last one changes last.
    pub(crate) fn hear(&self, object: &Gadget, objects: usize) {
        let (name, version) = state(object);
        self.hear_of(name, version, objects);
    }

    /// Takes note of a call that shows an object of this name and version.
    pub(crate) fn hear_of(&self, name: &str, version: Option<u64>, objects: usize) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if is_last_state(name, version, objects) {
            self.told.notify_one();
        }
    }

    pub(crate) async fn told(&self) {
        self.told.notified().await;
    }

    pub(crate) fn calls(&self) -> f64 {
        self.calls.load(Ordering::Relaxed) as f64
    }
}

/// Returns whether it is the changed state of the object that changes last.
fn is_last(object: &Gadget, objects: usize) -> bool {
    let (name, version) = state(object);
    is_last_state(name, version, objects)
}

fn state(object: &Gadget) -> (&str, Option<u64>) {
    let metadata = &object.metadata;
    let version = metadata.resource_version.as_deref().and_then(|version| version.parse().ok());
    (metadata.name.as_deref().unwrap_or_default(), version)
}

fn is_last_state(name: &str, version: Option<u64>, objects: usize) -> bool {
    gadget::number(name).is_some_and(|number| number + 1 == objects) && version > Some(LISTED)
}

/// Collects how long changes took from the server to a handler or reconciler.
pub(crate) struct Tally {
    delays: Mutex<Vec<f64>>,
    heard: AtomicUsize,
    calls: AtomicUsize,
    wanted: usize,
    objects: usize,
    all: Notify,
}

impl Work for Tally {
    async fn run(&self, gadget: &Gadget) -> Next {
        self.hear(gadget);
        Next::AwaitChange
    }
}

impl Tally {
    /// Waits for the last change this many times: once for each handler that sees it.
    pub(crate) fn new(objects: usize, wanted: usize) -> Arc<Self> {
        let (heard, calls) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { delays: Mutex::default(), heard, calls, wanted, objects, all: Notify::new() })
    }

    /// Records a state as it is delivered; one without a time is from the first list.
    pub(crate) fn hear(&self, object: &Gadget) {
        self.heard.fetch_add(1, Ordering::Relaxed);
        if object.spec.sent == 0 {
            return;
        }
        let delay = micros_since(object.spec.sent);
        self.delays.lock().unwrap_or_else(PoisonError::into_inner).push(delay);
        if is_last(object, self.objects) && self.calls.fetch_add(1, Ordering::Relaxed) + 1 == self.wanted {
            self.all.notify_one();
        }
    }

    /// Counts all states that were told, those of the first list included.
    pub(crate) fn heard(&self) -> usize {
        self.heard.load(Ordering::Relaxed)
    }

    /// Waits for everybody's last call.
    pub(crate) async fn all(&self) {
        self.all.notified().await;
    }

    /// Returns the delays so far, in microseconds, and starts over.
    pub(crate) fn take(&self) -> Sorted {
        let mut delays = self.delays.lock().unwrap_or_else(PoisonError::into_inner);
        Sorted::new(std::mem::take(&mut *delays))
    }
}
