//! The store: every object, the history of changes, and its followers.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::{limits, object};

mod backlog;
mod change;
mod feed;
mod gate;
mod history;
mod hubs;
mod owners;
mod recent;
mod resource_id;
mod scope;
mod view;

use backlog::{Backlog, Durable};
use change::{Head, Lines, Use};
use history::History;
use hubs::Hubs;
use recent::Recent;

pub(crate) use backlog::{Batch, Unsaved};
pub(crate) use change::{Change, ChangeKind, FormKey, Stored, tail};
pub(crate) use feed::Feed;
pub(crate) use gate::{Gate, Pass};
pub(crate) use hubs::Wakes;
pub(crate) use owners::{OwnerPlace, Owners};
pub(crate) use resource_id::ResourceId;
pub(crate) use scope::Scope;
pub use view::Lag;
pub(crate) use view::{Consistency, View};

/// Reports that a version has expired; contains the oldest one available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forgotten(pub(crate) u64);

#[derive(Debug, Default)]
struct Shelf {
    current: BTreeMap<Arc<str>, Arc<Stored>>,
    changes: History,
    forgotten: u64,
    followers: Hubs,
    heads: Vec<Arc<Head>>,
}

impl Shelf {
    fn forget_oldest(&mut self) {
        if let Some(dropped) = self.changes.pop_front() {
            self.forgotten = dropped.version;
        }
    }

    /// Returns what an object carries of kind and version.
    fn head(&mut self, value: &Value) -> Arc<Head> {
        if let Some(head) = self.heads.iter().find(|head| head.is_of(value)) {
            return head.clone();
        }
        let head = Arc::new(Head::of(value));
        self.heads.push(head.clone());
        head
    }
}

/// All objects under one counter of versions.
#[derive(Debug)]
pub(crate) struct Store {
    version: u64,
    compacted: u64,
    history: usize,
    shelves: HashMap<ResourceId, Shelf>,
    reached: watch::Sender<u64>,
    backlog: Option<Backlog>,
    recent: Arc<Recent>,
    /// Counts how often all feeds were ended, as they are before versions go back.
    era: u64,
    /// Readers of what has been published since the lock was taken.
    wakes: Wakes,
    /// The dependents of each owner.
    pub(crate) owners: Owners,
}

impl Store {
    /// Makes an empty store that keeps `history` changes for each resource.
    pub(crate) fn new(first_version: u64, history: usize) -> Self {
        let (reached, _) = watch::channel(first_version);
        Self {
            version: first_version,
            compacted: 0,
            history,
            shelves: HashMap::new(),
            reached,
            backlog: None,
            recent: Arc::default(),
            era: 0,
            wakes: Wakes::default(),
            owners: Owners::default(),
        }
    }

    /// Creates a store of the present objects, without history and followers.
    pub(crate) fn fork(&self) -> Self {
        let copied = |(id, shelf): (&ResourceId, &Shelf)| {
            let (current, heads) = (shelf.current.clone(), shelf.heads.clone());
            (id.clone(), Shelf { current, heads, ..Shelf::default() })
        };
        let mut fork = Self::new(self.version, self.history);
        fork.compacted = self.version;
        fork.shelves = self.shelves.iter().map(copied).collect();
        fork.owners = self.owners.clone();
        fork
    }

    /// Returns the newest version.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Returns the newest version, with the number of the history that it belongs to.
    pub(crate) fn moment(&self) -> (u64, u64) {
        (self.era, self.version)
    }

    /// Follows the newest version.
    pub(crate) fn reached(&self) -> watch::Receiver<u64> {
        self.reached.subscribe()
    }

    /// Reads one object.
    pub(crate) fn get(&self, id: &ResourceId, key: &str) -> Option<&Arc<Stored>> {
        self.shelves.get(id)?.current.get(key)
    }

    /// Counts the objects of a resource.
    pub(crate) fn count(&self, id: &ResourceId) -> usize {
        self.shelves.get(id).map_or(0, |shelf| shelf.current.len())
    }

    /// Reads the present objects in key order, from a prefix on.
    pub(crate) fn scan<'a>(
        &'a self,
        id: &ResourceId,
        prefix: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Stored>> + use<'a> {
        self.scan_from(id, prefix, prefix)
    }

    /// Reads the present objects with a prefix in key order, from a key on.
    pub(crate) fn scan_from<'a>(
        &'a self,
        id: &ResourceId,
        prefix: &'a str,
        from: &str,
    ) -> impl Iterator<Item = &'a Arc<Stored>> + use<'a> {
        let from = (Bound::Included(from), Bound::Unbounded);
        let current = self.shelves.get(id).map(|shelf| shelf.current.range::<str, _>(from));
        current
            .into_iter()
            .flatten()
            .take_while(move |(key, _)| key.starts_with(prefix))
            .map(|(_, stored)| stored)
    }

    /// Reads the present objects of a namespace in key order.
    pub(crate) fn in_namespace<'a>(
        &'a self,
        id: &ResourceId,
        namespace: &str,
    ) -> impl Iterator<Item = &'a Arc<Stored>> + use<'a> {
        // No character of a name sorts between these two.
        let (first, end) = (format!("{namespace}/"), format!("{namespace}0"));
        let bounds = (Bound::Included(first.as_str()), Bound::Excluded(end.as_str()));
        let current = self.shelves.get(id).map(|shelf| shelf.current.range::<str, _>(bounds));
        current.into_iter().flatten().map(|(_, stored)| stored)
    }

    /// Returns whether a resource has changed since a version.
    pub(crate) fn changed_since(&self, id: &ResourceId, version: u64) -> bool {
        self.shelves.get(id).is_some_and(|shelf| {
            let last = shelf.changes.back().map_or(0, |change| change.version);
            last.max(shelf.forgotten).max(self.compacted) > version
        })
    }

    /// Reads every object as of a past version, in key order, from a prefix on.
    ///
    /// # Errors
    /// The version is forgotten.
    pub(crate) fn scan_at(
        &self,
        id: &ResourceId,
        prefix: &str,
        version: u64,
    ) -> Result<Vec<Arc<Stored>>, Forgotten> {
        let mut out: BTreeMap<Arc<str>, Arc<Stored>> =
            self.scan(id, prefix).map(|stored| (stored.key.clone(), stored.clone())).collect();
        let later = self.changes_after(id, version)?;
        for change in later.iter().rev().filter(|change| change.object.key.starts_with(prefix)) {
            match &change.previous {
                Some(previous) => drop(out.insert(previous.key.clone(), previous.clone())),
                None => drop(out.remove(&change.object.key)),
            }
        }
        Ok(out.into_values().collect())
    }

    /// Reads the changes after a version, oldest first.
    ///
    /// # Errors
    /// Some of them are forgotten.
    pub(crate) fn changes_after(&self, id: &ResourceId, version: u64) -> Result<Vec<Arc<Change>>, Forgotten> {
        if version >= self.version {
            return Ok(Vec::new());
        }
        let shelf = self.shelves.get(id);
        let floor = self.compacted.max(shelf.map_or(0, |shelf| shelf.forgotten));
        if version < floor {
            return Err(Forgotten(floor));
        }
        let Some(shelf) = shelf else { return Ok(Vec::new()) };
        let start = shelf.changes.partition_point(|change| change.version <= version);
        Ok(shelf.changes.range(start..).cloned().collect())
    }

    /// Follows a resource from now on; the feed ends when the server ends it.
    pub(crate) fn follow(&mut self, id: &ResourceId, scope: Scope) -> Feed {
        self.shelves.entry(id.clone()).or_default().followers.follow(scope)
    }

    /// Takes the readers of published changes; they are woken once the store's lock is released.
    pub(crate) fn take_wakes(&mut self) -> Wakes {
        std::mem::take(&mut self.wakes)
    }

    /// Writes an object at a new version and notifies the followers.
    pub(crate) fn put(&mut self, id: &ResourceId, key: &str, mut value: Value) -> Arc<Stored> {
        self.version += 1;
        object::set(&mut value, "resourceVersion", self.version.to_string());
        let stored = self.stored(id, key.into(), self.version, value);
        let shelf = self.shelves.entry(id.clone()).or_default();
        let previous = shelf.current.insert(stored.key.clone(), stored.clone());
        self.publish(id, ChangeKind::Put, stored.clone(), previous);
        stored
    }

    /// Removes an object at a new version; gives its last state at that version.
    pub(crate) fn delete(&mut self, id: &ResourceId, key: &str) -> Option<Arc<Stored>> {
        let previous = self.shelves.get_mut(id)?.current.remove(key)?;
        self.version += 1;
        let mut value = Value::clone(&previous.value());
        object::set(&mut value, "resourceVersion", self.version.to_string());
        let last = self.stored(id, previous.key.clone(), self.version, value);
        self.publish(id, ChangeKind::Delete, last.clone(), Some(previous));
        Some(last)
    }

    /// Makes a state of an object that is stored nowhere.
    pub(crate) fn unlisted(
        &mut self,
        id: &ResourceId,
        key: Arc<str>,
        version: u64,
        value: Value,
    ) -> Arc<Stored> {
        self.stored(id, key, version, value)
    }

    fn stored(&mut self, id: &ResourceId, key: Arc<str>, version: u64, value: Value) -> Arc<Stored> {
        let head = self.shelves.entry(id.clone()).or_default().head(&value);
        Arc::new(Stored::new((key, version), value, head, Use::of(id), &self.recent))
    }

    fn publish(
        &mut self,
        id: &ResourceId,
        kind: ChangeKind,
        object: Arc<Stored>,
        previous: Option<Arc<Stored>>,
    ) {
        if let Some(previous) = &previous {
            // Few ask for an old state again.
            previous.forms.clear();
        }
        let place = (id.clone(), object.key.clone());
        let after = (kind == ChangeKind::Put).then(|| object.value());
        let before = previous.as_ref().map(|previous| previous.value());
        self.owners.note(&place, before.as_deref(), after.as_deref());
        let (version, at, lines) = (self.version, Instant::now(), Lines::default());
        let change = Arc::new(Change { version, at, kind, object, previous, lines });
        self.note(|| Unsaved::Change(id.clone(), change.clone()));
        let history = self.history;
        if let Some(shelf) = self.shelves.get_mut(id) {
            shelf.followers.publish(&change, &mut self.wakes.0);
            shelf.changes.push_back(change);
            while shelf.changes.len() > history {
                shelf.forget_oldest();
            }
        }
        self.bound_history();
        self.reached.send_replace(self.version);
    }

    /// Forgets the oldest changes, of whichever resource, until the others take no more than they may.
    fn bound_history(&mut self) {
        let mut bytes: usize = self.shelves.values().map(|shelf| shelf.changes.bytes()).sum();
        while bytes > limits::HISTORY {
            let kept = self.shelves.values_mut().filter(|shelf| !shelf.changes.is_empty());
            let Some(shelf) = kept.min_by_key(|shelf| shelf.changes[0].version) else { return };
            let before = shelf.changes.bytes();
            shelf.forget_oldest();
            bytes -= before - shelf.changes.bytes();
        }
    }

    /// Forgets the changes up to a version, at most the newest.
    pub(crate) fn compact(&mut self, version: u64) {
        self.compacted = self.compacted.max(version.min(self.version));
        let compacted = self.compacted;
        self.note(|| Unsaved::Compacted(compacted));
        for shelf in self.shelves.values_mut() {
            while shelf.changes.front().is_some_and(|change| change.version <= self.compacted) {
                shelf.changes.pop_front();
            }
        }
    }

    /// Ends every follower's feed of one resource.
    pub(crate) fn end_followers(&mut self, id: &ResourceId) {
        if let Some(shelf) = self.shelves.get_mut(id) {
            shelf.followers.end(&mut self.wakes.0);
        }
    }

    /// Ends every follower's feed.
    pub(crate) fn cut(&mut self) {
        self.era += 1;
        for shelf in self.shelves.values_mut() {
            shelf.followers.end(&mut self.wakes.0);
        }
    }

    /// Returns whether the state as of a version could still be read, for every resource.
    ///
    /// # Errors
    /// It is forgotten.
    pub(crate) fn remembers(&self, version: u64) -> Result<(), Forgotten> {
        self.shelves.keys().try_for_each(|id| self.changes_after(id, version).map(drop))
    }

    /// Goes back to an older version, as if later changes had never happened; every feed ends.
    ///
    /// The earlier history is kept; a version in the future changes nothing.
    ///
    /// # Errors
    /// The version has expired; nothing has changed then.
    pub(crate) fn rewind(&mut self, version: u64) -> Result<(), Forgotten> {
        self.remembers(version)?;
        self.cut();
        let mut ids: Vec<ResourceId> = self.shelves.keys().cloned().collect();
        ids.sort();
        self.owners.clear();
        for id in ids {
            let then = self.scan_at(&id, "", version)?;
            for stored in &then {
                self.owners.restore((id.clone(), stored.key.clone()), &stored.value());
            }
            if let Some(shelf) = self.shelves.get_mut(&id) {
                while shelf.changes.back().is_some_and(|change| change.version > version) {
                    shelf.changes.pop_back();
                }
                shelf.current = then.into_iter().map(|stored| (stored.key.clone(), stored)).collect();
            }
        }
        self.version = self.version.min(version);
        self.reached.send_replace(self.version);
        self.went_back();
        Ok(())
    }

    /// Empties the store; every feed ends, and versions start again at `first_version`.
    pub(crate) fn clear(&mut self, first_version: u64) {
        self.cut();
        self.shelves.clear();
        self.owners.clear();
        self.compacted = 0;
        self.version = first_version;
        self.reached.send_replace(first_version);
        self.went_back();
    }

    /// Gives the newest version that a view of a resource shows, as far back as is remembered.
    pub(crate) fn seen(&self, id: &ResourceId, view: Option<View>) -> u64 {
        let seen = match view.map(|view| view.lag) {
            None => return self.version,
            Some(Lag::Versions(n)) => self.version.saturating_sub(n),
            Some(Lag::Frozen(version)) => version.min(self.version),
            Some(Lag::Time(time)) => self.version_before(time),
        };
        let forgotten = self.shelves.get(id).map_or(0, |shelf| shelf.forgotten);
        seen.max(self.compacted).max(forgotten).max(1)
    }

    /// Gives the newest version that is at least so old.
    fn version_before(&self, age: Duration) -> u64 {
        let Some(then) = Instant::now().checked_sub(age) else { return 0 };
        let newest = self.shelves.values().filter_map(|shelf| {
            let place = shelf.changes.partition_point(|change| change.at <= then);
            place.checked_sub(1).map(|place| shelf.changes[place].version)
        });
        newest.max().unwrap_or(0)
    }

    /// Notes everything from now on, to be kept; what is there already is.
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

    /// Takes what is to be written.
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

    /// Says that a batch is on disk.
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

    /// Gives the gate of a stream that begins now; `None` where nothing is kept.
    pub(crate) fn gate(&self) -> Option<Gate> {
        self.backlog.as_ref().map(|backlog| Gate::new(backlog.durable.subscribe()))
    }

    /// Says that versions went back: only a snapshot says what there is, and streams that are open end.
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
    /// Gives the facts among it, none where versions went back in between: what is there then is another state.
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

    /// Gives every object there is.
    pub(crate) fn everything(&self) -> Vec<(ResourceId, Arc<Stored>)> {
        let mut ids: Vec<&ResourceId> = self.shelves.keys().collect();
        ids.sort();
        let all = ids
            .into_iter()
            .flat_map(|id| self.shelves[id].current.values().map(move |stored| (id.clone(), stored.clone())));
        all.collect()
    }

    /// Puts an object in that was there before anybody looked: at the present version, with no change to tell of.
    pub(crate) fn preset(&mut self, id: &ResourceId, key: &str, mut value: Value) {
        object::set(&mut value, "resourceVersion", self.version.to_string());
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
            let own = object::text(&value, "resourceVersion").parse().unwrap_or(version);
            let stored = self.stored(&id, key.clone(), own, value);
            self.shelves.entry(id).or_default().current.insert(key, stored);
        }
        self.reached.send_replace(version);
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.cut();
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;
    use serde_json::json;

    fn next(feed: &mut Feed) -> Poll<Option<u64>> {
        let next = feed.poll_next(&mut Context::from_waker(Waker::noop()));
        next.map(|change| change.map(|change| change.version))
    }

    fn names(list: &[Arc<Stored>]) -> Vec<&str> {
        list.iter().map(|stored| &*stored.key).collect()
    }

    #[test]
    fn the_past_is_read_as_it_was() {
        let (mut store, id) = (Store::new(10, 100), ResourceId::new("", "configmaps"));
        store.put(&id, "n/a", json!({"data": 1}));
        store.put(&id, "n/b", json!({}));
        store.put(&id, "n/a", json!({"data": 2}));
        store.delete(&id, "n/b");
        let then = store.scan_at(&id, "n/", 12).expect("remembered");
        assert_eq!(names(&then), ["n/a", "n/b"]);
        assert_eq!(then[0].value()["data"], 1);
        let now: Vec<_> = store.scan(&id, "n/").cloned().collect();
        assert_eq!(names(&now), ["n/a"]);
        assert!(store.scan_at(&id, "n/", 10).expect("remembered").is_empty());
    }

    #[test]
    fn compaction_and_a_full_history_forget() {
        let (mut store, id) = (Store::new(0, 2), ResourceId::new("", "configmaps"));
        for n in 0..4 {
            store.put(&id, "a", json!({"n": n}));
        }
        assert_eq!(store.changes_after(&id, 2).expect("kept").len(), 2);
        assert_eq!(store.changes_after(&id, 1).err(), Some(Forgotten(2)));
        store.compact(3);
        assert_eq!(store.changes_after(&id, 2).err(), Some(Forgotten(3)));
        assert_eq!(store.changes_after(&id, 3).expect("kept").len(), 1);
    }

    // A31
    #[test]
    fn the_history_of_all_resources_is_bounded_by_its_size() {
        let (maps, others) = (ResourceId::new("", "configmaps"), ResourceId::new("", "secrets"));
        let mut store = Store::new(0, 100_000);
        store.put(&others, "b", json!({}));
        let text = "x".repeat(limits::HISTORY / 4);
        for _ in 0..3 {
            store.put(&maps, "a", json!({"text": text}));
        }
        assert_eq!(store.changes_after(&others, 0).expect("kept").len(), 1);
        store.put(&maps, "a", json!({"text": text}));
        store.put(&others, "b", json!({}));
        assert_eq!(store.changes_after(&others, 0).err(), Some(Forgotten(1)));
        assert_eq!(store.changes_after(&maps, 1).err(), Some(Forgotten(2)));
        assert_eq!(store.changes_after(&maps, 2).expect("kept").len(), 3);
        store.compact(6);
        assert_eq!(store.shelves[&maps].changes.bytes(), 0);
    }

    #[test]
    fn a_store_gone_back_is_as_it_was() {
        let (mut store, id) = (Store::new(0, 9), ResourceId::new("", "configmaps"));
        store.put(&id, "a", json!({"n": 1}));
        store.put(&id, "b", json!({}));
        store.put(&id, "a", json!({"n": 2}));
        store.delete(&id, "b");
        let mut feed = store.follow(&id, Scope::default());
        store.rewind(2).expect("remembered");
        let now: Vec<_> = store.scan(&id, "").cloned().collect();
        assert_eq!((names(&now), &now[0].value()["n"], store.version()), (vec!["a", "b"], &json!(1), 2));
        assert_eq!(store.changes_after(&id, 0).expect("kept").len(), 2);
        assert_eq!(next(&mut feed), Poll::Ready(None));
        assert_eq!(store.put(&id, "c", json!({})).version, 3);
        store.compact(3);
        assert_eq!(store.rewind(1), Err(Forgotten(3)));
        assert_eq!(store.version(), 3);
    }

    #[test]
    fn a_slash_orders_namespaces_bytewise() {
        let (mut store, id) = (Store::new(0, 2), ResourceId::new("", "configmaps"));
        store.put(&id, "a/x", json!({}));
        store.put(&id, "a-2/x", json!({}));
        let all: Vec<_> = store.scan(&id, "").cloned().collect();
        assert_eq!(names(&all), ["a-2/x", "a/x"]);
    }

    #[test]
    fn followers_hear_their_scope_only() {
        let (mut store, id) = (Store::new(0, 9), ResourceId::new("", "configmaps"));
        let mut feed = store.follow(&id, Scope { namespace: Some("n".into()), name: None });
        store.put(&id, "m/a", json!({}));
        store.put(&id, "n/a", json!({}));
        assert_eq!(next(&mut feed), Poll::Ready(Some(2)));
        assert_eq!(next(&mut feed), Poll::Pending);
        store.cut();
        assert_eq!(next(&mut feed), Poll::Ready(None));
    }
}
