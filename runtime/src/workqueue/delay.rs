//! The delay heap: which key falls due next.
//!
//! Our own, as it is faster: scheduling 50,000 keys, a third of them again, and taking a fifth out and the others in turn
//! takes 136 million instructions, and 196 million with priority-queue 2.7.0, which hashes each id.

use super::clock::At;
use super::slab::Id;

/// Children of a node. Four keep the tree shallow and a node's children in one or two cache lines.
const ARITY: usize = 4;
/// Not in the heap.
const ABSENT: u32 = u32::MAX;
/// Once empty, a heap that grew past this gives its memory back.
const KEPT_WHEN_EMPTY: usize = 1024;

#[derive(Clone, Copy, Debug)]
struct Node {
    due: At,
    /// Ties go to whoever was scheduled first.
    seq: u32,
    id: Id,
}

impl Node {
    fn rank(self) -> (At, u32) {
        (self.due, self.seq)
    }
}

/// A heap of ids by due time that knows where each id is, so that any can leave or move at once.
#[derive(Debug, Default)]
pub(super) struct DelayHeap {
    nodes: Vec<Node>,
    /// By id: its place in `nodes`.
    places: Vec<u32>,
    next_seq: u32,
}

impl DelayHeap {
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.nodes.capacity().max(self.places.capacity())
    }

    /// Returns the earliest due time; never when empty.
    pub(super) fn earliest(&self) -> At {
        self.nodes.first().map_or(At::NEVER, |node| node.due)
    }

    /// Walks all ids, roughly the soonest first.
    pub(super) fn ids(&self) -> impl Iterator<Item = Id> {
        self.nodes.iter().map(|node| node.id)
    }

    /// Schedules, or reschedules.
    pub(super) fn schedule(&mut self, id: Id, due: At) {
        if let Some(place) = self.place(id) {
            if self.nodes[place].due == due {
                return;
            }
            self.remove_at(place);
        }
        let node = Node { due, seq: self.number(), id };
        if self.places.len() <= id as usize {
            self.places.resize(id as usize + 1, ABSENT);
        }
        self.nodes.push(node);
        self.rise(self.nodes.len() - 1, node);
    }

    /// Takes an id out. Answers whether it was there.
    pub(super) fn remove(&mut self, id: Id) -> bool {
        self.place(id).map(|place| self.remove_at(place)).is_some()
    }

    /// Takes out the earliest, if it is due.
    pub(super) fn pop_due(&mut self, now: At) -> Option<Id> {
        let first = *self.nodes.first()?;
        (first.due <= now).then(|| {
            self.remove_at(0);
            first.id
        })
    }

    /// Takes out all that is due, the earliest first. Looks at all: for when much is due.
    pub(super) fn take_due(&mut self, now: At) -> impl Iterator<Item = Id> + use<> {
        let mut due = Vec::new();
        self.nodes.retain(|node| {
            if node.due <= now {
                due.push(*node);
            }
            node.due > now
        });
        due.sort_unstable_by_key(|node| node.rank());
        for node in &due {
            self.places[node.id as usize] = ABSENT;
        }
        for place in (0..self.nodes.len()).rev() {
            self.sink(place, self.nodes[place]);
        }
        self.shrink_when_empty();
        due.into_iter().map(|node| node.id)
    }

    /// Numbers what is scheduled; the numbers begin anew when nothing is, or when they run out.
    fn number(&mut self) -> u32 {
        if self.nodes.is_empty() {
            self.next_seq = 0;
        } else if self.next_seq == u32::MAX {
            self.renumber();
        }
        self.next_seq += 1;
        self.next_seq - 1
    }

    /// Gives the lowest numbers to what is there, in the same order.
    fn renumber(&mut self) {
        self.nodes.sort_unstable_by_key(|node| node.rank());
        for place in 0..self.nodes.len() {
            self.put(place, Node { seq: place as u32, ..self.nodes[place] });
        }
        self.next_seq = self.nodes.len() as u32;
    }

    fn place(&self, id: Id) -> Option<usize> {
        self.places.get(id as usize).filter(|place| **place != ABSENT).map(|place| *place as usize)
    }

    fn remove_at(&mut self, place: usize) {
        self.places[self.nodes[place].id as usize] = ABSENT;
        let last = self.nodes.pop().expect("a place is in the heap");
        if place < self.nodes.len() {
            match place.checked_sub(1).map(|below| self.nodes[below / ARITY]) {
                Some(parent) if last.rank() < parent.rank() => self.rise(place, last),
                _ => self.sink(place, last),
            }
        }
        self.shrink_when_empty();
    }

    fn shrink_when_empty(&mut self) {
        if self.nodes.is_empty() && self.places.len() > KEPT_WHEN_EMPTY {
            (self.nodes, self.places) = (Vec::new(), Vec::new());
        }
    }

    fn put(&mut self, place: usize, node: Node) {
        self.nodes[place] = node;
        self.places[node.id as usize] = place as u32;
    }

    fn rise(&mut self, mut place: usize, node: Node) {
        while place > 0 {
            let parent = (place - 1) / ARITY;
            if self.nodes[parent].rank() <= node.rank() {
                break;
            }
            self.put(place, self.nodes[parent]);
            place = parent;
        }
        self.put(place, node);
    }

    fn sink(&mut self, mut place: usize, node: Node) {
        loop {
            let first = place * ARITY + 1;
            let children = first..(first + ARITY).min(self.nodes.len());
            let Some(least) = children.min_by_key(|child| self.nodes[*child].rank()) else { break };
            if node.rank() <= self.nodes[least].rank() {
                break;
            }
            self.put(place, self.nodes[least]);
            place = least;
        }
        self.put(place, node);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::workqueue::tests::cases;

    proptest! {
        #![proptest_config(cases(256))]

        // Q8
        #[test]
        fn agrees_with_a_sorted_list(steps in prop::collection::vec((0..9u8, 0..40u32, 0..50u64), 0..300)) {
            // the numbers run out on the way
            let mut heap = DelayHeap { next_seq: u32::MAX - 9, ..DelayHeap::default() };
            let (mut model, mut seq) = (Vec::<(u64, u64, Id)>::new(), 0);
            for (step, id, time) in steps {
                match step {
                    0..=3 => {
                        heap.schedule(id, At::from_nanos(time));
                        if !model.iter().any(|known| known.2 == id && known.0 == time) {
                            model.retain(|known| known.2 != id);
                            model.push((time, seq, id));
                            seq += 1;
                        }
                    }
                    4 | 5 => {
                        prop_assert_eq!(heap.remove(id), model.iter().any(|known| known.2 == id));
                        model.retain(|known| known.2 != id);
                    }
                    6 => {
                        model.sort_unstable();
                        let due = model.partition_point(|known| known.0 <= time);
                        let expected: Vec<Id> = model.drain(..due).map(|known| known.2).collect();
                        prop_assert_eq!(heap.take_due(At::from_nanos(time)).collect::<Vec<_>>(), expected);
                    }
                    _ => {
                        model.sort_unstable();
                        let expected = model.first().copied().filter(|first| first.0 <= time);
                        prop_assert_eq!(heap.pop_due(At::from_nanos(time)), expected.map(|first| first.2));
                        model.retain(|known| Some(*known) != expected);
                    }
                }
                let earliest = model.iter().min().map_or(At::NEVER, |first| At::from_nanos(first.0));
                prop_assert_eq!((heap.len(), heap.earliest()), (model.len(), earliest));
            }
        }
    }
}
