//! Keeping: what a store gives to be written, and takes back when that fails.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;

use super::Store;
use super::backlog::{Backlog, Batch, Durable, Unsaved};
use super::change::{Change, Stored};
use super::gate::Gate;
use super::resource_id::ResourceId;

impl Store {
    /// Records everything from now on, to be saved; the present state is not recorded.
    pub(crate) fn keep(&mut self) {
        let (durable, _) = watch::channel(Durable { version: self.version, era: 0 });
        self.backlog = Some(Backlog { entries: Vec::new(), whole: false, durable });
    }

    /// Notes something to be kept, if anything is.
    pub(crate) fn note(&mut self, unsaved: impl FnOnce() -> Unsaved) {
        if let Some(backlog) = &mut self.backlog {
            backlog.entries.push(unsaved());
        }
    }

    /// Returns whether something is to be written.
    pub(crate) fn has_unsaved(&self) -> bool {
        self.backlog.as_ref().is_some_and(|backlog| backlog.whole || !backlog.entries.is_empty())
    }

    /// Takes the next batch to write.
    pub(crate) fn take_unsaved(&mut self) -> Batch {
        let version = self.version;
        match &mut self.backlog {
            None => Batch { entries: Vec::new(), whole: false, version, era: 0 },
            Some(backlog) => {
                let entries = std::mem::take(&mut backlog.entries);
                let era = backlog.durable.borrow().era;
                Batch { entries, whole: std::mem::take(&mut backlog.whole), version, era }
            }
        }
    }

    /// Reports that a batch is on disk.
    pub(crate) fn saved(&self, batch: &Batch) {
        if let Some(backlog) = &self.backlog {
            backlog.durable.send_if_modified(|durable| {
                let same = durable.era == batch.era;
                if same {
                    durable.version = batch.version;
                }
                same
            });
        }
    }

    /// Returns the gate of a new stream; `None` if nothing is saved.
    pub(crate) fn gate(&self) -> Option<Gate> {
        self.backlog.as_ref().map(|backlog| Gate::new(backlog.durable.subscribe()))
    }

    /// Reports that versions went back: only a snapshot is complete, and open streams end.
    pub(super) fn went_back(&mut self) {
        let version = self.version;
        if let Some(backlog) = &mut self.backlog {
            backlog.entries.clear();
            backlog.whole = true;
            backlog.durable.send_modify(|durable| *durable = Durable { version, era: durable.era + 1 });
        }
    }

    /// Takes a batch back that could not be kept, and whatever came after it; every feed ends.
    ///
    /// Returns the facts in it; `None` if versions went back in between, since the state is another then.
    pub(crate) fn undo(&mut self, batch: &Batch) -> Vec<Value> {
        let Some(backlog) = &mut self.backlog else { return Vec::new() };
        backlog.whole |= batch.whole;
        if backlog.durable.borrow().era != batch.era {
            return Vec::new();
        }
        let later = std::mem::take(&mut backlog.entries);
        let mut facts = Vec::new();
        for unsaved in batch.entries.iter().chain(&later).rev() {
            match unsaved {
                Unsaved::Change(id, change) => self.undo_change(id, change),
                Unsaved::Compacted(_) => {}
                Unsaved::Fact(fact) => facts.push(fact.clone()),
            }
        }
        self.cut();
        let version = self.version;
        if let Some(backlog) = &self.backlog {
            backlog.durable.send_modify(|durable| *durable = Durable { version, era: durable.era + 1 });
        }
        self.reached.send_replace(version);
        facts
    }

    fn undo_change(&mut self, id: &ResourceId, change: &Change) {
        self.version = change.version - 1;
        self.compacted = self.compacted.min(self.version);
        let Some(shelf) = self.shelves.get_mut(id) else { return };
        let key = change.object.key.clone();
        let there = match &change.previous {
            Some(previous) => shelf.current.insert(key.clone(), previous.clone()),
            None => shelf.current.remove(&key),
        };
        while shelf.changes.back().is_some_and(|last| last.version >= change.version) {
            shelf.changes.pop_back();
        }
        shelf.forgotten = shelf.forgotten.min(self.version);
        let place = (id.clone(), key);
        let value = |stored: &Arc<Stored>| stored.value();
        let (there, previous) = (there.as_ref().map(value), change.previous.as_ref().map(value));
        self.owners.note(&place, there.as_deref(), previous.as_deref());
    }

    /// Returns every object.
    pub(crate) fn everything(&self) -> Vec<(ResourceId, Arc<Stored>)> {
        let mut ids: Vec<&ResourceId> = self.shelves.keys().collect();
        ids.sort();
        let all = ids
            .into_iter()
            .flat_map(|id| self.shelves[id].current.values().map(move |stored| (id.clone(), stored.clone())));
        all.collect()
    }

    /// Adds an object that existed before any reader: at the present version, without a change.
    pub(crate) fn preset(&mut self, id: &ResourceId, key: &str, mut value: Value) {
        crate::object::set(&mut value, "resourceVersion", self.version.to_string());
        let key: Arc<str> = key.into();
        self.owners.restore((id.clone(), key.clone()), &value);
        let stored = self.stored(id, key.clone(), self.version, value);
        self.shelves.entry(id.clone()).or_default().current.insert(key, stored);
    }

    /// Takes objects over as they were at a version, with no history before it; only for an empty store.
    pub(crate) fn take_over(&mut self, version: u64, objects: Vec<(ResourceId, String, Value)>) {
        self.version = version;
        self.compacted = version;
        for (id, key, value) in objects {
            let key: Arc<str> = key.into();
            self.owners.restore((id.clone(), key.clone()), &value);
            let own = crate::object::text(&value, "resourceVersion").parse().unwrap_or(version);
            let stored = self.stored(&id, key.clone(), own, value);
            self.shelves.entry(id).or_default().current.insert(key, stored);
        }
        self.reached.send_replace(version);
    }
}
