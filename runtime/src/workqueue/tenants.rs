//! The keys that are ready: all together, or shared out between tenants.

use std::collections::BTreeSet;
use std::sync::Arc;

use foldhash::HashMap;
use slab::Slab;

use super::clock::At;
use super::entries::{Entries, Id, KeyEntry, QueueKey};
use super::lines::ReadyLines;
use super::types::Priority;
use crate::users_code::contained;

/// Names the tenant of a key.
pub(super) type TenantOf<K> = Arc<dyn Fn(&K) -> Arc<str> + Send + Sync>;

/// The keys that are ready.
pub(super) enum ReadyKeys<K> {
    Together(ReadyLines),
    Shared(Box<Tenants<K>>),
}

impl<K: QueueKey> ReadyKeys<K> {
    /// Starts with no keys, shared out between the tenants that this function names.
    pub(super) fn shared(of: TenantOf<K>) -> Self {
        Self::Shared(Box::new(Tenants {
            of,
            known: HashMap::default(),
            tenants: Slab::new(),
            of_entries: Vec::new(),
            turns: BTreeSet::new(),
            by_last: BTreeSet::new(),
            last_turn: 0,
            ready: 0,
        }))
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Together(lines) => lines.len(),
            Self::Shared(tenants) => tenants.ready,
        }
    }

    /// Counts the keys of each priority, the highest first.
    pub(super) fn by_rank(&self) -> [usize; Priority::ALL.len()] {
        let mut counts = [0; Priority::ALL.len()];
        for lines in self.lines() {
            counts.iter_mut().zip(&lines.lines).for_each(|(count, line)| *count += line.len());
        }
        counts
    }

    /// Returns the lines of all who have ready keys, in the order of their turns.
    pub(super) fn lines(&self) -> impl Iterator<Item = &ReadyLines> {
        let (together, shared) = match self {
            Self::Together(lines) => (Some(lines), None),
            Self::Shared(tenants) => (None, Some(tenants)),
        };
        let of_tenants =
            shared.into_iter().flat_map(|all| all.turns.iter().map(|turn| &all.tenants[turn.id].ready));
        together.into_iter().chain(of_tenants)
    }

    /// Returns the entries: by tenant, the highest priority first, each line in order.
    pub(super) fn iter<'a>(&'a self, entries: &'a Entries<K>) -> impl Iterator<Item = &'a KeyEntry<K>> {
        self.lines().flat_map(|lines| lines.iter(entries))
    }

    /// Returns since when the key has been ready that has waited longest in its line.
    pub(super) fn since(&self, entries: &Entries<K>) -> At {
        self.lines().map(|lines| lines.since(entries)).min().unwrap_or(At::NEVER)
    }

    /// Adds an entry at the back of the line of its priority.
    #[inline]
    pub(super) fn join(&mut self, entries: &mut Entries<K>, id: Id) {
        let priority = entries[id].priority;
        match self {
            Self::Together(lines) => lines.line(priority).join(entries, id),
            Self::Shared(tenants) => {
                tenants.change(id, |tenant| tenant.ready.line(priority).join(entries, id));
                tenants.ready += 1;
            }
        }
    }

    /// Counts an entry less that leaves out of turn.
    #[inline]
    pub(super) fn leave(&mut self, id: Id, priority: Priority) {
        match self {
            Self::Together(lines) => lines.line(priority).leave(),
            Self::Shared(tenants) => {
                tenants.change(id, |tenant| tenant.ready.line(priority).leave());
                tenants.ready -= 1;
            }
        }
    }

    /// Takes the entry whose turn it is, for a worker. If the rate was waited for, it is said how many workers there are.
    #[inline]
    pub(super) fn pop(&mut self, entries: &Entries<K>, workers: Option<usize>) -> Option<Id> {
        match self {
            Self::Together(lines) => lines.pop(entries),
            Self::Shared(tenants) => tenants.pop(entries, workers),
        }
    }

    /// Notes that a worker brings an entry back.
    #[inline]
    pub(super) fn ended(&mut self, id: Id) {
        if let Self::Shared(tenants) = self {
            tenants.change(id, |tenant| tenant.in_flight -= 1);
        }
    }

    /// Notes a new entry.
    #[inline]
    pub(super) fn enter(&mut self, id: Id, key: &K) {
        if let Self::Shared(tenants) = self {
            tenants.enter(id, key);
        }
    }

    /// Notes that an entry is forgotten, which is in no line and not in flight.
    #[inline]
    pub(super) fn exit(&mut self, id: Id) {
        if let Self::Shared(tenants) = self {
            tenants.exit(id);
        }
    }
}

/// Shares grants out: the tenant with the fewest keys in flight comes first, of those the one served longest ago. A token that
/// was waited for goes to the one served longest ago that has less than its part of the workers: a run that takes long costs
/// its tenant workers, and not the rate.
///
/// So each has an equal part of the workers and of the rate as long as it has keys, however many the others have.
pub(super) struct Tenants<K> {
    of: TenantOf<K>,
    /// The tenants that have keys, by name.
    known: HashMap<Arc<str>, usize>,
    tenants: Slab<Tenant>,
    /// The tenant of each entry.
    of_entries: Vec<u32>,
    /// The tenants with ready keys.
    turns: BTreeSet<Turn>,
    /// The same ones, by the numbers of their last turns.
    by_last: BTreeSet<(u64, usize)>,
    last_turn: u64,
    /// Counts the keys that are ready.
    ready: usize,
}

/// When a tenant is served; the least comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    in_flight: u32,
    /// No two tenants have had the same one.
    last: u64,
    id: usize,
}

struct Tenant {
    name: Arc<str>,
    /// Counts its keys, wherever they are.
    keys: usize,
    ready: ReadyLines,
    in_flight: u32,
    /// The number of its last turn; that of its first key counts as one.
    last_turn: u64,
}

impl Tenant {
    /// Returns its turn, if it has ready keys.
    fn turn(&self, id: usize) -> Option<Turn> {
        (self.ready.len() > 0).then_some(Turn { in_flight: self.in_flight, last: self.last_turn, id })
    }
}

impl<K: QueueKey> Tenants<K> {
    fn enter(&mut self, entry: Id, key: &K) {
        // A function that panics puts the key among those without a tenant.
        let name = contained(|| (self.of)(key)).unwrap_or_else(|| Arc::from(""));
        let Self { known, tenants, last_turn, .. } = self;
        let id = *known.entry(name).or_insert_with_key(|name| {
            // As if it had just been served: one that comes and goes must not come first each time.
            *last_turn += 1;
            let (name, ready, last_turn) = (name.clone(), ReadyLines::default(), *last_turn);
            tenants.insert(Tenant { name, keys: 0, ready, in_flight: 0, last_turn })
        });
        self.tenants[id].keys += 1;
        let at = entry as usize;
        if self.of_entries.len() <= at {
            self.of_entries.resize(at + 1, 0);
        }
        self.of_entries[at] = id as u32;
    }

    fn exit(&mut self, entry: Id) {
        let id = self.of_entries[entry as usize] as usize;
        let tenant = &mut self.tenants[id];
        tenant.keys -= 1;
        if tenant.keys == 0 {
            let tenant = self.tenants.remove(id);
            self.known.remove(&tenant.name);
        }
        if self.tenants.is_empty() {
            self.of_entries = Vec::new();
        }
    }

    fn pop(&mut self, entries: &Entries<K>, workers: Option<usize>) -> Option<Id> {
        let first = self.turns.first()?.id;
        let part = workers.map(|workers| (workers / self.turns.len()).max(1));
        let has_room = |id: &usize| part.is_some_and(|part| (self.tenants[*id].in_flight as usize) < part);
        let mut served_longest_ago = self.by_last.iter().map(|(_, id)| *id);
        let id = part.and_then(|_| served_longest_ago.find(has_room)).unwrap_or(first);
        self.ready -= 1;
        self.last_turn += 1;
        let last_turn = self.last_turn;
        self.change_tenant(id, |tenant| {
            (tenant.in_flight, tenant.last_turn) = (tenant.in_flight + 1, last_turn);
            tenant.ready.pop(entries)
        })
    }

    fn change(&mut self, entry: Id, change: impl FnOnce(&mut Tenant)) {
        self.change_tenant(self.of_entries[entry as usize] as usize, change);
    }

    /// Changes a tenant, and puts it where its turn is then.
    fn change_tenant<T>(&mut self, id: usize, change: impl FnOnce(&mut Tenant) -> T) -> T {
        let tenant = &mut self.tenants[id];
        let before = tenant.turn(id);
        let changed = change(tenant);
        let after = tenant.turn(id);
        if before != after {
            if let Some(before) = before {
                self.turns.remove(&before);
                self.by_last.remove(&(before.last, id));
            }
            self.by_last.extend(after.map(|after| (after.last, id)));
            self.turns.extend(after);
        }
        changed
    }
}
