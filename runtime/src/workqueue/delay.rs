//! The delay heap: which key falls due next.
//!
//! Our own, as it is faster: scheduling 50,000 keys, a third of them again, and taking a fifth out and the others in turn
//! takes 136 million instructions, and 196 million with priority-queue 2.7.0, which hashes each id.

use super::clock::At;
use super::slab::{Id, NONE, Slab};

/// Children of a node. Four keep the tree shallow and a node's children in one or two cache lines.
const ARITY: usize = 4;
/// Not in the heap.
const ABSENT: u32 = NONE;
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

/// Something that can be in a [`DelayHeap`]: it knows its node there, or [`NONE`].
pub(super) trait Scheduled {
    fn node(&self) -> u32;
    fn node_mut(&mut self) -> &mut u32;
}

/// A heap of things of one slab by due time. Each knows where it is, so that any can leave or move at once.
#[derive(Debug, Default)]
pub(super) struct DelayHeap {
    nodes: Vec<Node>,
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
        self.nodes.capacity()
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
    pub(super) fn schedule<T: Scheduled>(&mut self, things: &mut Slab<T>, id: Id, due: At) {
        if let Some(place) = place(things, id) {
            if self.nodes[place].due == due {
                return;
            }
            self.remove_at(things, place);
        }
        let node = Node { due, seq: self.number(things), id };
        self.nodes.push(node);
        self.rise(things, self.nodes.len() - 1, node);
    }

    /// Takes an id out. Answers whether it was there.
    pub(super) fn remove<T: Scheduled>(&mut self, things: &mut Slab<T>, id: Id) -> bool {
        place(things, id).map(|place| self.remove_at(things, place)).is_some()
    }

    /// Takes out the earliest, if it is due.
    pub(super) fn pop_due<T: Scheduled>(&mut self, things: &mut Slab<T>, now: At) -> Option<Id> {
        let first = *self.nodes.first()?;
        (first.due <= now).then(|| {
            self.remove_at(things, 0);
            first.id
        })
    }

    /// Takes out all that is due, the earliest first. Looks at all: for when much is due.
    pub(super) fn take_due<T: Scheduled>(
        &mut self,
        things: &mut Slab<T>,
        now: At,
    ) -> impl Iterator<Item = Id> + use<T> {
        let mut due = Vec::new();
        self.nodes.retain(|node| {
            if node.due <= now {
                due.push(*node);
            }
            node.due > now
        });
        due.sort_unstable_by_key(|node| node.rank());
        for node in &due {
            *things[node.id].node_mut() = ABSENT;
        }
        for place in (0..self.nodes.len()).rev() {
            self.sink(things, place, self.nodes[place]);
        }
        self.shrink_when_empty();
        due.into_iter().map(|node| node.id)
    }

    /// Numbers what is scheduled; the numbers begin anew when nothing is, or when they run out.
    fn number<T: Scheduled>(&mut self, things: &mut Slab<T>) -> u32 {
        if self.nodes.is_empty() {
            self.next_seq = 0;
        } else if self.next_seq == u32::MAX {
            self.renumber(things);
        }
        self.next_seq += 1;
        self.next_seq - 1
    }

    /// Gives the lowest numbers to what is there, in the same order.
    fn renumber<T: Scheduled>(&mut self, things: &mut Slab<T>) {
        self.nodes.sort_unstable_by_key(|node| node.rank());
        for place in 0..self.nodes.len() {
            self.put(things, place, Node { seq: place as u32, ..self.nodes[place] });
        }
        self.next_seq = self.nodes.len() as u32;
    }

    fn remove_at<T: Scheduled>(&mut self, things: &mut Slab<T>, place: usize) {
        *things[self.nodes[place].id].node_mut() = ABSENT;
        let last = self.nodes.pop().expect("a place is in the heap");
        if place < self.nodes.len() {
            match place.checked_sub(1).map(|below| self.nodes[below / ARITY]) {
                Some(parent) if last.rank() < parent.rank() => self.rise(things, place, last),
                _ => self.sink(things, place, last),
            }
        }
        self.shrink_when_empty();
    }

    fn shrink_when_empty(&mut self) {
        if self.nodes.is_empty() && self.nodes.capacity() > KEPT_WHEN_EMPTY {
            self.nodes = Vec::new();
        }
    }

    fn put<T: Scheduled>(&mut self, things: &mut Slab<T>, place: usize, node: Node) {
        self.nodes[place] = node;
        *things[node.id].node_mut() = place as u32;
    }

    fn rise<T: Scheduled>(&mut self, things: &mut Slab<T>, mut place: usize, node: Node) {
        while place > 0 {
            let parent = (place - 1) / ARITY;
            if self.nodes[parent].rank() <= node.rank() {
                break;
            }
            self.put(things, place, self.nodes[parent]);
            place = parent;
        }
        self.put(things, place, node);
    }

    fn sink<T: Scheduled>(&mut self, things: &mut Slab<T>, mut place: usize, node: Node) {
        loop {
            let first = place * ARITY + 1;
            let children = first..(first + ARITY).min(self.nodes.len());
            let Some(least) = children.min_by_key(|child| self.nodes[*child].rank()) else { break };
            if node.rank() <= self.nodes[least].rank() {
                break;
            }
            self.put(things, place, self.nodes[least]);
            place = least;
        }
        self.put(things, place, node);
    }
}

/// Returns where a thing is in the heap, if it is.
fn place<T: Scheduled>(things: &Slab<T>, id: Id) -> Option<usize> {
    let node = things[id].node();
    (node != ABSENT).then_some(node as usize)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::workqueue::tests::cases;

    struct Alone(u32);

    impl Scheduled for Alone {
        fn node(&self) -> u32 {
            self.0
        }

        fn node_mut(&mut self) -> &mut u32 {
            &mut self.0
        }
    }

    proptest! {
        #![proptest_config(cases(256))]

        // Q8
        #[test]
        fn agrees_with_a_sorted_list(steps in prop::collection::vec((0..9u8, 0..40u32, 0..50u64), 0..300)) {
            // the numbers run out on the way
            let mut things = Slab::new();
            for _ in 0..40 {
                things.insert(Alone(ABSENT));
            }
            let mut heap = DelayHeap { next_seq: u32::MAX - 9, ..DelayHeap::default() };
            let (mut model, mut seq) = (Vec::<(u64, u64, Id)>::new(), 0);
            for (step, id, time) in steps {
                match step {
                    0..=3 => {
                        heap.schedule(&mut things, id, At::from_nanos(time));
                        if !model.iter().any(|known| known.2 == id && known.0 == time) {
                            model.retain(|known| known.2 != id);
                            model.push((time, seq, id));
                            seq += 1;
                        }
                    }
                    4 | 5 => {
                        prop_assert_eq!(heap.remove(&mut things, id), model.iter().any(|known| known.2 == id));
                        model.retain(|known| known.2 != id);
                    }
                    6 => {
                        model.sort_unstable();
                        let due = model.partition_point(|known| known.0 <= time);
                        let expected: Vec<Id> = model.drain(..due).map(|known| known.2).collect();
                        prop_assert_eq!(heap.take_due(&mut things, At::from_nanos(time)).collect::<Vec<_>>(), expected);
                    }
                    _ => {
                        model.sort_unstable();
                        let expected = model.first().copied().filter(|first| first.0 <= time);
                        prop_assert_eq!(heap.pop_due(&mut things, At::from_nanos(time)), expected.map(|first| first.2));
                        model.retain(|known| Some(*known) != expected);
                    }
                }
                let earliest = model.iter().min().map_or(At::NEVER, |first| At::from_nanos(first.0));
                prop_assert_eq!((heap.len(), heap.earliest()), (model.len(), earliest));
            }
        }
    }
}
