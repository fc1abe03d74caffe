//! Things at stable small numbers, and first-in-first-out lists of them whose links live in the things.

use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// The number of a thing in a [`Slab`].
pub(super) type Id = u32;

/// No thing has this number.
pub(super) const NONE: Id = Id::MAX;

/// Once empty, a slab that grew past this gives its memory back.
const KEPT_WHEN_EMPTY: usize = 1024;

enum Slot<T> {
    Full(T),
    Free { next: Id },
}

/// Keeps things in a vector, each at the number it got when it came.
pub(super) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Id,
    len: usize,
}

impl<T> Slab<T> {
    pub(super) const fn new() -> Self {
        Self { slots: Vec::new(), free: NONE, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.slots.capacity()
    }

    /// # Panics
    /// When four thousand million things are kept at once.
    #[inline]
    pub(super) fn insert(&mut self, thing: T) -> Id {
        self.len += 1;
        if self.free == NONE {
            let id = Id::try_from(self.slots.len()).ok().filter(|id| *id != NONE);
            self.slots.push(Slot::Full(thing));
            return id.expect("fewer keys than a u32 can number");
        }
        let id = self.free;
        let slot = &mut self.slots[id as usize];
        if let Slot::Free { next } = *slot {
            self.free = next;
        }
        *slot = Slot::Full(thing);
        id
    }

    pub(super) fn remove(&mut self, id: Id) -> T {
        let gone = std::mem::replace(&mut self.slots[id as usize], Slot::Free { next: self.free });
        let Slot::Full(thing) = gone else { unreachable!("ids are removed once") };
        self.freed(id);
        thing
    }

    /// Drops a thing where it is: what is large need not move.
    #[inline]
    pub(super) fn drop_in_place(&mut self, id: Id) {
        self.slots[id as usize] = Slot::Free { next: self.free };
        self.freed(id);
    }

    #[inline]
    fn freed(&mut self, id: Id) {
        self.free = id;
        self.len -= 1;
        if self.len == 0 && self.slots.len() > KEPT_WHEN_EMPTY {
            *self = Self::new();
        }
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = Id> + '_ {
        (0..).zip(&self.slots).filter_map(|(id, slot)| matches!(slot, Slot::Full(_)).then_some(id))
    }
}

impl<T> Index<Id> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, id: Id) -> &T {
        match &self.slots[id as usize] {
            Slot::Full(thing) => thing,
            Slot::Free { .. } => unreachable!("ids are used while they live"),
        }
    }
}

impl<T> IndexMut<Id> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, id: Id) -> &mut T {
        match &mut self.slots[id as usize] {
            Slot::Full(thing) => thing,
            Slot::Free { .. } => unreachable!("ids are used while they live"),
        }
    }
}

/// A thing's neighbours in a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    before: Id,
    behind: Id,
}

impl Links {
    pub(super) const ALONE: Self = Self { before: NONE, behind: NONE };
}

/// Something that can stand in a [`List`] of a sort.
pub(super) trait Linked<Sort = ()> {
    fn links(&self) -> Links;
    fn links_mut(&mut self) -> &mut Links;
}

/// A line of things of one slab. A thing stands in one list of each sort at a time.
#[derive(Debug)]
pub(super) struct List<Sort = ()> {
    first: Id,
    last: Id,
    len: usize,
    sort: PhantomData<fn() -> Sort>,
}

impl<Sort> List<Sort> {
    pub(super) const fn new() -> Self {
        Self { first: NONE, last: NONE, len: 0, sort: PhantomData }
    }

    #[inline]
    pub(super) fn first(&self) -> Option<Id> {
        (self.first != NONE).then_some(self.first)
    }

    /// Walks the line, first to last.
    pub(super) fn iter<'a, T: Linked<Sort>>(&self, things: &'a Slab<T>) -> impl Iterator<Item = &'a T> {
        let known = |id: Id| (id != NONE).then_some(id);
        let ids = std::iter::successors(known(self.first), move |id| known(things[*id].links().behind));
        ids.map(|id| &things[id])
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(super) fn push_back<T: Linked<Sort>>(&mut self, things: &mut Slab<T>, id: Id) {
        *things[id].links_mut() = Links { before: self.last, behind: NONE };
        match self.last {
            NONE => self.first = id,
            last => things[last].links_mut().behind = id,
        }
        self.last = id;
        self.len += 1;
    }

    #[inline]
    pub(super) fn pop_front<T: Linked<Sort>>(&mut self, things: &mut Slab<T>) -> Option<Id> {
        let id = self.first;
        (id != NONE).then(|| {
            self.remove(things, id);
            id
        })
    }

    pub(super) fn pop_back<T: Linked<Sort>>(&mut self, things: &mut Slab<T>) -> Option<Id> {
        let id = self.last;
        (id != NONE).then(|| {
            self.remove(things, id);
            id
        })
    }

    #[inline]
    pub(super) fn remove<T: Linked<Sort>>(&mut self, things: &mut Slab<T>, id: Id) {
        let Links { before, behind } = std::mem::replace(things[id].links_mut(), Links::ALONE);
        match before {
            NONE => self.first = behind,
            before => things[before].links_mut().behind = behind,
        }
        match behind {
            NONE => self.last = before,
            behind => things[behind].links_mut().before = before,
        }
        self.len -= 1;
    }
}
