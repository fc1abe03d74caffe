//! What the keys read, and which of them a change wakes.
//!
//! A key depends on what its last run read that has ended, together with what the run under way has read so far; what it
//! reads by name is noted when it ends, and compared with the cache then. A node
//! stands for what is read, of one kind; it knows its readers. So a change costs in proportion to the keys that it wakes.
//!
//! Most keys read a few objects by their names. The tables are made for that: a read takes 64 bytes or less.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    hash::{BuildHasher, Hash},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use foldhash::{HashMap, fast::RandomState};
use hashbrown::HashTable;

use super::read_nodes::{Node, Nodes, ReadKind, ReadRef, Readers, SET, Slab, WANTS, Wants};
use crate::{
    object::ObjectKey,
    store::{IndexValue, PickCheck, ReadAspect, ReadPart, ReadSet},
};

/// How many objects, or sets, of one kind a run may depend on one by one.
pub(super) const ONE_BY_ONE: usize = 256;
/// How many keys a sweep asks about: whether their reads are still needed.
const SWEPT_AT_ONCE: usize = 4_096;

/// What the keys of a controller read.
#[derive(Default)]
pub(crate) struct ReadTable {
    kinds: Vec<KindReads>,
    objects: Nodes<ObjectKey>,
    sets: Nodes<ReadSet>,
    readers: Slab<Reader>,
    /// The readers by their keys.
    by_key: HashTable<u32>,
    /// The first reader that the next sweep looks at.
    swept_to: usize,
    hashing: RandomState,
}

/// The nodes of one kind.
#[derive(Default)]
struct KindReads {
    objects: HashTable<u32>,
    sets: HashTable<u32>,
    /// The indexes that are read, and how many nodes each has.
    indexes: BTreeMap<Arc<str>, usize>,
    /// What must be worked out of an object that changes.
    wanted: Arc<[Arc<str>]>,
    /// Sets by selectors, under a label without which nothing matches, and the others.
    by_label: HashMap<(String, String), Vec<u32>>,
    by_any_label: Vec<u32>,
}

/// A run that reads, of a key.
#[derive(Debug)]
pub(crate) struct RunningReader {
    key: ObjectKey,
    run: u64,
    /// Where the key was found last.
    slot: AtomicU32,
}

impl RunningReader {
    pub(crate) fn new(key: ObjectKey, run: u64) -> Self {
        Self { key, run, slot: AtomicU32::new(u32::MAX) }
    }

    pub(crate) fn key(&self) -> &ObjectKey {
        &self.key
    }

    pub(crate) fn run(&self) -> u64 {
        self.run
    }
}

/// A key that reads.
struct Reader {
    key: ObjectKey,
    /// What the last run read that has ended.
    done: RunReads,
    /// What the run under way has read so far.
    running: Option<Box<RunReads>>,
}

/// What a run read.
#[derive(Default)]
struct RunReads {
    run: u64,
    /// A digest of all that it read; 0 where that is not known.
    digest: u64,
    reads: Vec<ReadRef>,
    /// What few runs have.
    more: Option<Box<MoreReads>>,
}

#[derive(Default)]
struct MoreReads {
    picks: Vec<(u32, PickCheck)>,
    /// What is read as a whole: a kind, or a namespace of it.
    wholes: Vec<(ReadKind, Option<Arc<str>>)>,
}

/// An object that changes, before or after.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadState<'o> {
    pub(crate) labels: Cow<'o, BTreeMap<String, String>>,
    /// Its values in each index that is [wanted](ReadTable::wanted).
    pub(crate) values: Vec<Vec<IndexValue>>,
}

/// A change of an object.
#[derive(Clone, Debug)]
pub(crate) struct ReadChange<'o> {
    pub(crate) key: &'o ObjectKey,
    pub(crate) before: Option<ReadState<'o>>,
    pub(crate) after: Option<ReadState<'o>>,
    /// The object became unreadable, or was until now: it may have come or gone for any reader.
    pub(crate) is_doubtful: bool,
}

/// The keys that a change wakes, and the runs that read what changed.
#[derive(Default)]
pub(crate) struct WokenKeys {
    pub(crate) keys: Vec<(ObjectKey, u64)>,
    /// Keys that wake if the check says so.
    pub(crate) picks: Vec<(ObjectKey, u64, PickCheck)>,
}

impl ReadTable {
    /// Takes a read of a run, before it is done. Returns what the run depends on as a whole from now on, if that is new
    /// because it reads too many things one by one.
    pub(crate) fn note(
        &mut self,
        by: &RunningReader,
        kind: ReadKind,
        part: ReadPart,
        aspect: ReadAspect,
    ) -> Option<ReadSet> {
        let (key, run) = (&by.key, by.run);
        let id = self.reader(by);
        let reader = self.readers.get_mut(id);
        // Work that outlives its run goes on to read.
        let is_late = run == reader.done.run && run != 0;
        let running = reader.running().run;
        if !is_late && running != run && (run < running || run < reader.done.run) {
            return None;
        }
        let reads = reader.reads_mut(run, is_late);
        if reads.covers(kind, &part) {
            return None;
        }
        let (wants, check) = match aspect {
            ReadAspect::Content => (Wants::ALL, None),
            ReadAspect::Members => (Wants::MEMBERS, None),
            ReadAspect::Picked(check) => (Wants::PICKED, Some(check)),
        };
        let whole = match &part {
            ReadPart::Set(ReadSet::Everything) if wants == Wants::ALL => Some(None),
            ReadPart::Set(ReadSet::Namespace(namespace)) if wants == Wants::ALL => {
                Some(Some(namespace.clone()))
            }
            _ => None,
        };
        let node = self.node(kind, named_like(part, key));
        let reader = self.readers.get_mut(id);
        // Mostly a run reads what the one before it has read.
        if !reader.done.reads.contains(&node.wanting(wants)) {
            self.add_reader(node, id, wants);
        }
        let reader = self.readers.get_mut(id);
        let reads = reader.reads_mut(run, is_late);
        if let Some(check) = check {
            reads.more.get_or_insert_default().picks.push((node.node(), check));
        }
        match reads.reads.iter_mut().find(|known| known.0 & !WANTS == node.0) {
            Some(known) => *known = node.wanting(known.wants().with(wants)),
            None => reads.reads.push(node.wanting(wants)),
        }
        if let Some(namespace) = whole {
            reads.more.get_or_insert_default().wholes.push((kind, namespace));
        }
        match reads.reads.len() > ONE_BY_ONE {
            true => self.join(by, id, kind, is_late),
            false => None,
        }
    }

    /// Lets a run depend on a namespace or a kind as a whole, if it reads too many things of it one by one.
    fn join(&mut self, by: &RunningReader, id: u32, kind: ReadKind, is_late: bool) -> Option<ReadSet> {
        let reader = self.readers.get(id);
        let reads = if is_late { &reader.done } else { reader.running() };
        let of_kind: Vec<_> =
            reads.reads.iter().copied().filter(|read| self.kind_of(*read) == kind).collect();
        if of_kind.len() <= ONE_BY_ONE {
            return None;
        }
        let namespace = |read: &ReadRef| match read.is_set() {
            true => None,
            false => self.objects.get(read.node()).what.shared_namespace().cloned(),
        };
        let first = of_kind.first().and_then(namespace);
        let set =
            match first.filter(|first| of_kind.iter().all(|read| namespace(read).as_ref() == Some(first))) {
                Some(namespace) => ReadSet::Namespace(namespace),
                None => ReadSet::Everything,
            };
        let reader = self.readers.get_mut(id);
        let reads = reader.reads_mut(by.run, is_late);
        reads.reads.retain(|read| !of_kind.contains(read));
        if let Some(more) = &mut reads.more {
            more.picks.retain(|(node, _)| !of_kind.iter().any(|read| !read.is_set() && read.node() == *node));
        }
        self.note(by, kind, ReadPart::Set(set.clone()), ReadAspect::Content);
        for read in of_kind {
            self.settle(id, read);
        }
        Some(set)
    }

    /// Ends a run that read the same as the one before it, by the digests of both. Returns whether it did: its reads need not
    /// be noted.
    pub(crate) fn repeat(&mut self, key: &ObjectKey, run: u64, digest: u64) -> bool {
        let Some(id) = self.find_reader(key) else { return false };
        let reader = self.readers.get_mut(id);
        let is_same = reader.running.is_none() && reader.done.digest == digest && digest != 0;
        if is_same {
            reader.done.run = run;
        }
        is_same
    }

    /// Returns whether a run has noted reads.
    pub(crate) fn has_noted(&self, key: &ObjectKey) -> bool {
        self.find_reader(key).is_some_and(|id| self.readers.get(id).running.is_some())
    }

    /// Ends a run: its key depends on what this run read, and on nothing else. The digest is of all that; 0 where it is not
    /// known.
    pub(crate) fn finish(&mut self, key: &ObjectKey, run: u64, digest: u64) {
        let Some(id) = self.find_reader(key) else { return };
        let reader = self.readers.get_mut(id);
        let running = reader.running.take().map(|reads| *reads).unwrap_or_default();
        // Work that has outlived an earlier run may have been the first to read for that one.
        let (ended, late) = match running.run == run {
            true => (running, Vec::new()),
            false => (RunReads::default(), running.reads),
        };
        let before = std::mem::replace(&mut reader.done, ended);
        reader.done.run = run;
        reader.done.digest = digest;
        reader.done.reads.shrink_to_fit();
        let is_same = reader.done.reads == before.reads;
        self.settle_all(id, if is_same { late } else { [before.reads, late].concat() });
        if self.readers.get(id).done.reads.is_empty() {
            self.remove_reader(id);
        }
    }

    /// Forgets the reads of keys that are not to be kept.
    pub(crate) fn retain(&mut self, keep: impl Fn(&ObjectKey) -> bool) {
        self.swept_to = 0;
        self.sweep_some(usize::MAX, keep);
    }

    /// The same, but looks at some keys, and the next time at others: a sweep must not hold up runs for long.
    pub(crate) fn sweep(&mut self, keep: impl Fn(&ObjectKey) -> bool) {
        self.sweep_some(SWEPT_AT_ONCE, keep);
    }

    fn sweep_some(&mut self, most: usize, keep: impl Fn(&ObjectKey) -> bool) {
        let ids;
        (ids, self.swept_to) = self.readers.some(self.swept_to, most);
        for id in ids {
            let reader = self.readers.get(id);
            if !keep(&reader.key) {
                self.forget_reader(id);
            }
        }
    }

    /// Forgets the reads of a key.
    pub(crate) fn forget(&mut self, key: &ObjectKey) {
        if let Some(id) = self.find_reader(key) {
            self.forget_reader(id);
        }
    }

    fn forget_reader(&mut self, id: u32) {
        let reader = self.readers.get_mut(id);
        let done = std::mem::take(&mut reader.done).reads;
        let running = reader.running.take().map(|reads| reads.reads).unwrap_or_default();
        self.settle_all(id, [done, running].concat());
        self.remove_reader(id);
    }

    fn remove_reader(&mut self, id: u32) {
        let hash = self.hashing.hash_one(&self.readers.get(id).key);
        forget(&mut self.by_key, hash, id);
        self.readers.remove(id);
    }

    /// Forgets all reads.
    pub(crate) fn clear(&mut self) {
        *self = Self { hashing: self.hashing.clone(), ..Self::default() };
    }

    /// Names the indexes whose values count for a kind.
    pub(crate) fn wanted(&self, kind: ReadKind) -> Arc<[Arc<str>]> {
        self.kinds.get(usize::from(kind.0)).map(|reads| reads.wanted.clone()).unwrap_or_default()
    }

    /// Finds the keys that a change of an object wakes; `wanted` names the indexes of its values.
    pub(crate) fn woken(&self, kind: ReadKind, wanted: &[Arc<str>], change: &ReadChange<'_>) -> WokenKeys {
        let Some(reads) = self.kinds.get(usize::from(kind.0)) else { return WokenKeys::default() };
        let mut found: Vec<(u32, Option<u32>)> = Vec::new();
        let was = change.before.is_some();
        let is = change.after.is_some();
        if let Some(node) = self.find(&reads.objects, &self.objects, change.key) {
            let moved = was != is || change.is_doubtful;
            self.objects.get(node).readers.each(|reader, wants| {
                if wants == Wants::ALL || (moved && wants.has(Wants::MEMBERS)) {
                    found.push((reader, None));
                } else if wants.has(Wants::PICKED) {
                    found.push((reader, Some(node)));
                }
            });
        }
        let mut sets: Vec<(u32, bool, bool)> = Vec::new();
        let mut add = |set: &ReadSet, was: bool, is: bool| {
            if let Some(node) = self.find(&reads.sets, &self.sets, set) {
                sets.push((node, was, is));
            }
        };
        if !reads.sets.is_empty() {
            add(&ReadSet::Everything, was, is);
            if let Some(namespace) = change.key.shared_namespace() {
                add(&ReadSet::Namespace(namespace.clone()), was, is);
            }
            self.indexed(wanted, change, &mut add);
            self.selected(reads, change, &mut sets);
        }
        for (node, was, is) in sets {
            let moved = was != is || change.is_doubtful;
            self.sets.get(node).readers.each(|reader, wants| {
                if wants == Wants::ALL || (moved && wants.has(Wants::MEMBERS)) {
                    found.push((reader, None));
                }
            });
        }
        // What wakes in any case comes first.
        found.sort_unstable();
        found.dedup_by_key(|(reader, _)| *reader);
        let mut woken = WokenKeys::default();
        for (id, pick) in found {
            let reader = self.readers.get(id);
            let last = reader.running.as_deref().unwrap_or(&reader.done);
            let (key, run) = (reader.key.clone(), last.run);
            match pick {
                None => woken.keys.push((key, run)),
                Some(node) => {
                    let picks =
                        [&reader.done, reader.running()].into_iter().filter_map(|run| run.more.as_ref());
                    let picks = picks.flat_map(|more| &more.picks);
                    let picks = picks.filter(|(of, _)| *of == node);
                    woken.picks.extend(picks.map(|(_, check)| (key.clone(), run, check.clone())));
                }
            }
        }
        woken
    }

    /// Finds the sets of the values that an object has, or had.
    fn indexed(
        &self,
        wanted: &[Arc<str>],
        change: &ReadChange<'_>,
        add: &mut impl FnMut(&ReadSet, bool, bool),
    ) {
        for (at, index) in wanted.iter().enumerate() {
            let values = |state: &Option<ReadState<'_>>| -> Vec<IndexValue> {
                let values = state.as_ref().and_then(|state| state.values.get(at).cloned());
                let mut values = values.unwrap_or_default();
                values.sort_unstable();
                values
            };
            let (before, after) = (values(&change.before), values(&change.after));
            let mut all: Vec<&IndexValue> = before.iter().chain(&after).collect();
            all.sort_unstable();
            all.dedup();
            for value in all {
                let (was, is) = (before.binary_search(value).is_ok(), after.binary_search(value).is_ok());
                let namespaces = [None, change.key.shared_namespace().cloned()];
                let scoped = namespaces.len() - usize::from(change.key.shared_namespace().is_none());
                for namespace in namespaces.into_iter().take(scoped) {
                    let set = ReadSet::Index { index: index.clone(), value: value.clone(), namespace };
                    add(&set, was, is);
                }
            }
        }
    }

    /// Finds the sets whose selectors an object's labels meet, or met.
    fn selected(&self, reads: &KindReads, change: &ReadChange<'_>, sets: &mut Vec<(u32, bool, bool)>) {
        let states = || change.before.iter().chain(&change.after);
        let mut candidates = reads.by_any_label.clone();
        if !reads.by_label.is_empty() {
            for (label, value) in states().flat_map(|state| state.labels.iter()) {
                candidates.extend(reads.by_label.get(&(label.clone(), value.clone())).into_iter().flatten());
            }
        }
        candidates.sort_unstable();
        candidates.dedup();
        for node in candidates {
            let ReadSet::Selector { selector, namespace } = &self.sets.get(node).what else { continue };
            if namespace.is_some() && namespace.as_ref() != change.key.shared_namespace() {
                continue;
            }
            let holds = |state: &Option<ReadState<'_>>| {
                state.as_ref().is_some_and(|state| selector.matches(&state.labels))
            };
            let (was, is) = (holds(&change.before), holds(&change.after));
            if was || is {
                sets.push((node, was, is));
            }
        }
    }

    /// Says what a key depends on: kinds, and what is read of them.
    pub(crate) fn of(&self, key: &ObjectKey) -> Vec<(ReadKind, ReadPart)> {
        let Some(reader) = self.find_reader(key).map(|id| self.readers.get(id)) else { return Vec::new() };
        let mut reads = reader.done.reads.clone();
        let more = reader
            .running()
            .reads
            .iter()
            .filter(|read| !reads.iter().any(|known| known.0 & !WANTS == read.0 & !WANTS));
        let more: Vec<_> = more.copied().collect();
        reads.extend(more);
        let part = |read: ReadRef| match read.is_set() {
            true => ReadPart::Set(self.sets.get(read.node()).what.clone()),
            false => ReadPart::Object(self.objects.get(read.node()).what.clone()),
        };
        reads.into_iter().map(|read| (self.kind_of(read), part(read))).collect()
    }

    fn reader(&mut self, by: &RunningReader) -> u32 {
        let (known, key) = (by.slot.load(Ordering::Relaxed), &by.key);
        if self
            .readers
            .slots
            .get(known as usize)
            .is_some_and(|slot| slot.as_ref().is_some_and(|r| r.key == *key))
        {
            return known;
        }
        let id = self.find_reader(key).unwrap_or_else(|| self.add_key(key));
        by.slot.store(id, Ordering::Relaxed);
        id
    }

    fn add_key(&mut self, key: &ObjectKey) -> u32 {
        let id = self.readers.add(Reader { key: key.clone(), done: RunReads::default(), running: None });
        let (hashing, readers) = (&self.hashing, &self.readers);
        self.by_key.insert_unique(hashing.hash_one(key), id, |id| hashing.hash_one(&readers.get(*id).key));
        id
    }

    fn find_reader(&self, key: &ObjectKey) -> Option<u32> {
        // Most controllers track nothing.
        if self.by_key.is_empty() {
            return None;
        }
        self.by_key.find(self.hashing.hash_one(key), |id| self.readers.get(*id).key == *key).copied()
    }

    fn find<T: Hash + Eq>(&self, table: &HashTable<u32>, nodes: &Nodes<T>, what: &T) -> Option<u32> {
        table.find(self.hashing.hash_one(what), |node| nodes.get(*node).what == *what).copied()
    }

    fn kind_of(&self, read: ReadRef) -> ReadKind {
        match read.is_set() {
            true => self.sets.get(read.node()).readers.kind(),
            false => self.objects.get(read.node()).readers.kind(),
        }
    }

    /// Finds the node of what is read, or makes one that has no reader yet.
    fn node(&mut self, kind: ReadKind, part: ReadPart) -> ReadRef {
        let at = usize::from(kind.0);
        if self.kinds.len() <= at {
            self.kinds.resize_with(at + 1, KindReads::default);
        }
        let (reads, hashing) = (&mut self.kinds[at], &self.hashing);
        match part {
            ReadPart::Object(key) => {
                ReadRef(placed(&mut reads.objects, &mut self.objects, hashing, kind, key).0)
            }
            ReadPart::Set(set) => {
                let (node, is_new) = placed(&mut reads.sets, &mut self.sets, hashing, kind, set);
                if is_new {
                    reads.add(&self.sets.get(node).what, node);
                }
                ReadRef(node | SET)
            }
        }
    }

    fn add_reader(&mut self, read: ReadRef, id: u32, wants: Wants) {
        match read.is_set() {
            true => self.sets.get_mut(read.node()).readers.add(id, wants),
            false => self.objects.get_mut(read.node()).readers.add(id, wants),
        }
    }

    fn settle_all(&mut self, id: u32, mut reads: Vec<ReadRef>) {
        // A node may go at its first turn.
        reads.sort_unstable_by_key(|read| read.0 & !WANTS);
        reads.dedup_by_key(|read| read.0 & !WANTS);
        reads.into_iter().for_each(|read| self.settle(id, read));
    }

    /// Brings what a node knows of a reader to what the reader still reads; a node without readers goes.
    fn settle(&mut self, id: u32, read: ReadRef) {
        let reader = self.readers.get(id);
        let reads = reader.done.reads.iter().chain(&reader.running().reads);
        let still = reads.filter(|known| known.0 & !WANTS == read.0 & !WANTS).map(|known| known.wants());
        let still = still.reduce(Wants::with);
        let (node, hashing) = (read.node(), &self.hashing);
        match read.is_set() {
            true => {
                let readers = &mut self.sets.get_mut(node).readers;
                let kind = readers.kind();
                if readers.set(id, still) {
                    let reads = &mut self.kinds[usize::from(kind.0)];
                    let what = self.sets.remove(node).what;
                    reads.remove(&what, node);
                    forget(&mut reads.sets, hashing.hash_one(&what), node);
                }
            }
            false => {
                let readers = &mut self.objects.get_mut(node).readers;
                let kind = readers.kind();
                if readers.set(id, still) {
                    let what = self.objects.remove(node).what;
                    let reads = &mut self.kinds[usize::from(kind.0)];
                    forget(&mut reads.objects, hashing.hash_one(&what), node);
                }
            }
        }
    }

    /// Counts nodes and readers.
    #[cfg(test)]
    pub(super) fn len(&self) -> (usize, usize) {
        (self.objects.len() + self.sets.len(), self.readers.len())
    }
}

/// Shares the namespace with the reader, which mostly is in the same.
fn named_like(part: ReadPart, reader: &ObjectKey) -> ReadPart {
    match part {
        ReadPart::Object(key) if key.namespace() == reader.namespace() => ReadPart::Object(
            ObjectKey::from_parts(reader.shared_namespace().cloned(), key.shared_name().clone()),
        ),
        part => part,
    }
}

/// Finds the place of a node, or makes one. Returns also whether it is new.
fn placed<T: Hash + Eq>(
    table: &mut HashTable<u32>,
    nodes: &mut Nodes<T>,
    hashing: &RandomState,
    kind: ReadKind,
    what: T,
) -> (u32, bool) {
    let hash = hashing.hash_one(&what);
    if let Some(node) = table.find(hash, |node| nodes.get(*node).what == what) {
        return (*node, false);
    }
    let none = Readers::Many { kind, readers: Box::default() };
    let node = nodes.add(Node { what, readers: none });
    table.insert_unique(hash, node, |node| hashing.hash_one(&nodes.get(*node).what));
    (node, true)
}

fn forget(table: &mut HashTable<u32>, hash: u64, node: u32) {
    if let Ok(entry) = table.find_entry(hash, |held| *held == node) {
        entry.remove();
    }
}

impl KindReads {
    fn add(&mut self, set: &ReadSet, node: u32) {
        match set {
            ReadSet::Index { index, .. } => {
                *self.indexes.entry(index.clone()).or_default() += 1;
                self.wanted = self.indexes.keys().cloned().collect();
            }
            ReadSet::Selector { selector, .. } => match selector.one_of() {
                Some((label, values)) => values.iter().for_each(|value| {
                    self.by_label.entry((label.to_owned(), value.clone())).or_default().push(node);
                }),
                None => self.by_any_label.push(node),
            },
            ReadSet::Everything | ReadSet::Namespace(_) => {}
        }
    }

    fn remove(&mut self, set: &ReadSet, node: u32) {
        match set {
            ReadSet::Index { index, .. } => {
                if let Some(count) = self.indexes.get_mut(index) {
                    *count -= 1;
                }
                self.indexes.retain(|_, count| *count > 0);
                self.wanted = self.indexes.keys().cloned().collect();
            }
            ReadSet::Selector { selector, .. } => match selector.one_of() {
                Some((label, values)) => values.iter().for_each(|value| {
                    let place = (label.to_owned(), value.clone());
                    let is_empty = self.by_label.get_mut(&place).is_some_and(|nodes| {
                        nodes.retain(|other| *other != node);
                        nodes.is_empty()
                    });
                    if is_empty {
                        self.by_label.remove(&place);
                    }
                }),
                None => self.by_any_label.retain(|other| *other != node),
            },
            ReadSet::Everything | ReadSet::Namespace(_) => {}
        }
    }
}

impl Reader {
    /// What the run under way has read so far; nothing, if there is none.
    fn running(&self) -> &RunReads {
        static NONE: RunReads = RunReads { run: 0, digest: 0, reads: Vec::new(), more: None };
        self.running.as_deref().unwrap_or(&NONE)
    }

    /// Returns the reads of a run: of the one under way, or of the last one that has ended.
    fn reads_mut(&mut self, run: u64, is_late: bool) -> &mut RunReads {
        if is_late {
            self.done.digest = 0;
            return &mut self.done;
        }
        let running = self.running.get_or_insert_default();
        running.run = run;
        running
    }
}

impl RunReads {
    /// Returns whether something is read as a part of what is read as a whole.
    fn covers(&self, kind: ReadKind, part: &ReadPart) -> bool {
        let namespace = match part {
            ReadPart::Object(key) => key.shared_namespace(),
            ReadPart::Set(ReadSet::Namespace(namespace)) => Some(namespace),
            ReadPart::Set(ReadSet::Index { namespace, .. } | ReadSet::Selector { namespace, .. }) => {
                namespace.as_ref()
            }
            ReadPart::Set(ReadSet::Everything) => None,
        };
        let covers = |(of, whole): &(ReadKind, Option<Arc<str>>)| {
            *of == kind && (whole.is_none() || whole.as_ref() == namespace)
        };
        self.more.as_ref().is_some_and(|more| more.wholes.iter().any(covers))
    }
}

/// Shows no content.
impl std::fmt::Debug for ReadTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadTable").field("readers", &self.by_key.len()).finish()
    }
}

#[cfg(test)]
#[path = "reads_tests.rs"]
mod tests;
