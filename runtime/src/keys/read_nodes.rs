//! What is read, each thing once, and who reads it: places in tables, and numbers for them.

use foldhash::HashMap;

/// Names a kind that a controller reads, with its narrowing: one cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ReadKind(pub(crate) u16);

/// Values that keep their place, densely.
pub(super) struct Slab<T> {
    pub(super) slots: Vec<Option<T>>,
    free: Vec<u32>,
}

pub(super) type Nodes<T> = Slab<Node<T>>;

/// Something that is read.
pub(super) struct Node<T> {
    pub(super) what: T,
    pub(super) readers: Readers,
}

/// The readers of a node, and for which changes; the node's kind.
pub(super) enum Readers {
    One { kind: ReadKind, reader: u32, wants: Wants },
    Many { kind: ReadKind, readers: Box<HashMap<u32, Wants>> },
}

/// Which changes a reader wants to know of; all, if it is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wants(pub(super) u8);

/// A read of a key: its node, and which changes it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadRef(pub(super) u32);

impl Wants {
    pub(super) const ALL: Self = Self(0);
    pub(super) const MEMBERS: Self = Self(1);
    pub(super) const PICKED: Self = Self(2);

    pub(super) fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(super) fn with(self, other: Self) -> Self {
        if self == Self::ALL || other == Self::ALL { Self::ALL } else { Self(self.0 | other.0) }
    }
}

/// The bit of a read that says that its node is a set.
pub(super) const SET: u32 = 1 << 31;
/// The bits of a read that say which changes it wants.
pub(super) const WANTS: u32 = 3 << 29;

impl ReadRef {
    pub(super) fn is_set(self) -> bool {
        self.0 & SET != 0
    }

    pub(super) fn node(self) -> u32 {
        self.0 & !(SET | WANTS)
    }

    pub(super) fn wants(self) -> Wants {
        Wants(u8::try_from((self.0 & WANTS) >> 29).expect("it is two bits"))
    }

    pub(super) fn wanting(self, wants: Wants) -> Self {
        Self((self.0 & !WANTS) | (u32::from(wants.0) << 29))
    }
}

impl Readers {
    pub(super) fn kind(&self) -> ReadKind {
        match self {
            Self::One { kind, .. } | Self::Many { kind, .. } => *kind,
        }
    }

    pub(super) fn each(&self, mut visit: impl FnMut(u32, Wants)) {
        match self {
            Self::One { reader, wants, .. } => visit(*reader, *wants),
            Self::Many { readers, .. } => readers.iter().for_each(|(reader, wants)| visit(*reader, *wants)),
        }
    }

    pub(super) fn add(&mut self, id: u32, wants: Wants) {
        match self {
            Self::One { reader, wants: known, .. } if *reader == id => *known = known.with(wants),
            Self::One { kind, reader, wants: known } => {
                let readers = HashMap::from_iter([(*reader, *known), (id, wants)]);
                *self = Self::Many { kind: *kind, readers: Box::new(readers) };
            }
            Self::Many { kind, readers } if readers.is_empty() => {
                *self = Self::One { kind: *kind, reader: id, wants };
            }
            Self::Many { readers, .. } => {
                readers.entry(id).and_modify(|known| *known = known.with(wants)).or_insert(wants);
            }
        }
    }

    /// Sets what a reader wants; `None`: nothing. Returns whether no reader is left.
    pub(super) fn set(&mut self, id: u32, wants: Option<Wants>) -> bool {
        match self {
            Self::One { reader, wants: known, .. } if *reader == id => match wants {
                Some(wants) => *known = wants,
                None => return true,
            },
            Self::One { .. } => {}
            Self::Many { readers, .. } => match wants {
                Some(wants) => drop(readers.insert(id, wants)),
                None => drop(readers.remove(&id)),
            },
        }
        matches!(self, Self::Many { readers, .. } if readers.is_empty())
    }
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub(super) fn add(&mut self, value: T) -> u32 {
        if let Some(free) = self.free.pop() {
            self.slots[free as usize] = Some(value);
            return free;
        }
        // Doubling would leave half of it empty.
        if self.slots.len() == self.slots.capacity() {
            self.slots.reserve_exact(self.slots.len() / 8 + 16);
        }
        self.slots.push(Some(value));
        u32::try_from(self.slots.len() - 1).ok().filter(|at| *at < 1 << 29).expect("memory ends before")
    }

    pub(super) fn get(&self, at: u32) -> &T {
        self.slots[at as usize].as_ref().expect("it is in use")
    }

    pub(super) fn get_mut(&mut self, at: u32) -> &mut T {
        self.slots[at as usize].as_mut().expect("it is in use")
    }

    pub(super) fn remove(&mut self, at: u32) -> T {
        self.free.push(at);
        self.slots[at as usize].take().expect("it is in use")
    }

    /// Returns what is in use of a part, and where the next part begins.
    pub(super) fn some(&self, from: usize, most: usize) -> (Vec<u32>, usize) {
        let part = self.slots.iter().enumerate().skip(from).take(most);
        let used = part.filter(|(_, slot)| slot.is_some()).filter_map(|(at, _)| u32::try_from(at).ok());
        let next = from.saturating_add(most);
        (used.collect(), if next < self.slots.len() { next } else { 0 })
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
