//! The table of keys, with its real queue, under paused time.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
};

use tokio::time::Instant;

use super::*;
use crate::{
    informer::{Progress, ProgressVia},
    object::{ObjectKey, Version},
};

mod answers;
mod model;
mod own_writes;
mod pending_writes;
mod requests;

const SITES: SourceId = SourceId(0);
const PODS: SourceId = SourceId(1);

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("shop", name)
}

/// Caches as a test wants them.
#[derive(Default)]
struct FakeCaches {
    /// How often they were asked.
    looks: Cell<usize>,
    shown: RefCell<BTreeMap<(SourceId, ObjectKey), CachedState>>,
    /// Sources whose watch is down.
    shut: RefCell<Vec<SourceId>>,
}

impl Caches for FakeCaches {
    fn cached(&self, source: SourceId, object: &ObjectKey) -> CachedState {
        self.looks.set(self.looks.get() + 1);
        self.shown.borrow().get(&(source, object.clone())).cloned().unwrap_or(CachedState::Absent)
    }

    fn is_open(&self, source: SourceId) -> bool {
        !self.shut.borrow().contains(&source)
    }
}

/// A table, its caches, and the time.
struct Bench {
    keys: std::sync::Arc<Keys>,
    caches: FakeCaches,
    now: Instant,
}

impl Bench {
    fn new() -> Self {
        Self { keys: Keys::alone(), caches: FakeCaches::default(), now: Instant::now() }
    }

    fn table(&self) -> parking_lot::MutexGuard<'_, KeyTable> {
        self.keys.table()
    }

    /// Brings a source to a version. Returns the keys that it released.
    fn brought(&self, source: SourceId, version: u64, via: ProgressVia) -> Vec<ObjectKey> {
        let before = self.waiting();
        let progress = Progress { version: Some(Version(version)), via };
        self.table().progressed(source, progress, &self.caches, self.now);
        self.released_of(before)
    }

    /// Returns the keys that wait for their own writes.
    fn waiting(&self) -> Vec<ObjectKey> {
        let table = self.table();
        let mut waiting: Vec<_> = table.waits().map(|(key, _)| key.clone()).collect();
        waiting.dedup();
        waiting
    }

    /// Returns those of some keys that do not wait any more.
    fn released_of(&self, mut before: Vec<ObjectKey>) -> Vec<ObjectKey> {
        let table = self.table();
        before.retain(|key| !table.has_pending(key));
        before
    }

    /// Returns why a key should run, if something asked for a run.
    fn asked(&self, name: &str) -> Option<Reason> {
        self.table().asked(&key(name))
    }
}
