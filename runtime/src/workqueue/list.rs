//! First in, first out, with removal from the middle: links live in the things themselves.

use super::slab::{Id, NONE, Slab};

/// A thing's neighbours in the one list it stands in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    before: Id,
    behind: Id,
}

impl Links {
    pub(super) const ALONE: Self = Self { before: NONE, behind: NONE };
}

/// Something that can stand in a [`List`].
pub(super) trait Linked {
    fn links(&mut self) -> &mut Links;
}

/// A line of things of one slab. A thing stands in one list at a time.
#[derive(Debug)]
pub(super) struct List {
    first: Id,
    last: Id,
    len: usize,
}

impl List {
    pub(super) const fn new() -> Self {
        Self { first: NONE, last: NONE, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(super) fn push_back<T: Linked>(&mut self, things: &mut Slab<T>, id: Id) {
        *things[id].links() = Links { before: self.last, behind: NONE };
        match self.last {
            NONE => self.first = id,
            last => things[last].links().behind = id,
        }
        self.last = id;
        self.len += 1;
    }

    #[inline]
    pub(super) fn pop_front<T: Linked>(&mut self, things: &mut Slab<T>) -> Option<Id> {
        let id = self.first;
        (id != NONE).then(|| {
            self.remove(things, id);
            id
        })
    }

    pub(super) fn pop_back<T: Linked>(&mut self, things: &mut Slab<T>) -> Option<Id> {
        let id = self.last;
        (id != NONE).then(|| {
            self.remove(things, id);
            id
        })
    }

    #[inline]
    pub(super) fn remove<T: Linked>(&mut self, things: &mut Slab<T>, id: Id) {
        let Links { before, behind } = std::mem::replace(things[id].links(), Links::ALONE);
        match before {
            NONE => self.first = behind,
            before => things[before].links().behind = behind,
        }
        match behind {
            NONE => self.last = before,
            behind => things[behind].links().before = before,
        }
        self.len -= 1;
    }
}
