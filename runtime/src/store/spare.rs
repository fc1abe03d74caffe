//! The snapshot before the published one, kept to be written next: nothing is copied for as long as nobody reads it.
//!
//! The two take turns. A write changes the spare, which becomes the published one; then the one before takes the same
//! steps, and is the spare. Where a reader still holds it, the next write begins with a clone instead, and copies what
//! it changes. So a write waits for no reader, and no reader for a write. At 100,000 objects a write took 12 µs while it
//! always copied. The two share what has not been written since they parted.

use std::sync::Arc;

use super::snapshot::{Snapshot, Step};
use crate::object::Object;

/// Most steps that are taken twice; after more, copying costs less.
const MOST: usize = 4_096;

/// What the writer keeps between two writes.
pub(super) struct Spare<K> {
    /// Shows what the published snapshot shows, and nobody else holds it.
    snapshot: Option<Arc<Snapshot<K>>>,
    /// Their room is used again.
    steps: Vec<Step<K>>,
}

/// The steps that a write took.
pub(super) struct Steps<K> {
    steps: Vec<Step<K>>,
    /// Whether they are all there.
    all: bool,
}

impl<K: Object> Spare<K> {
    pub(super) fn none() -> Self {
        Self { snapshot: None, steps: Vec::new() }
    }

    /// Returns a snapshot to be changed, which shows what the published one shows.
    pub(super) fn take(&mut self, published: &Snapshot<K>) -> (Arc<Snapshot<K>>, Steps<K>) {
        let snapshot = self.snapshot.take().unwrap_or_else(|| Arc::new(published.clone()));
        (snapshot, Steps { steps: std::mem::take(&mut self.steps), all: true })
    }

    /// Keeps the snapshot before, if nobody holds it, and brings it up to the published one.
    pub(super) fn keep(&mut self, mut before: Arc<Snapshot<K>>, mut steps: Steps<K>) {
        if steps.all
            && let Some(snapshot) = Arc::get_mut(&mut before)
        {
            steps.steps.iter().for_each(|step| drop(snapshot.take(step)));
            self.snapshot = Some(before);
        }
        steps.steps.clear();
        self.steps = steps.steps;
    }
}

impl<K> Steps<K> {
    pub(super) fn push(&mut self, step: Step<K>) {
        match self.steps.len() < MOST {
            true => self.steps.push(step),
            false => self.give_up(),
        }
    }

    /// Says that one could not be noted.
    pub(super) fn give_up(&mut self) {
        (self.all, self.steps) = (false, Vec::new());
    }
}
