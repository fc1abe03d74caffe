//! First in, first out, with removal from the middle: links live in the things themselves.

use std::marker::PhantomData;

use super::slab::{Id, NONE, Slab};

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
