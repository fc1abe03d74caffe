//! Keys that a roll lists: ready like any other, but without an entry until something else is said of them.

use super::*;
use crate::roll::Roll;
use crate::workqueue::rolls::Room;

impl<K: QueueKey> State<K> {
    /// Something may have changed of all these: as if each was added in turn, at low priority.
    pub(in crate::workqueue) fn add_roll(&mut self, roll: &Arc<Roll<K>>, clock: &impl Clock) {
        if self.mode != Mode::Open {
            return;
        }
        self.promote(clock);
        let keys = roll.keys();
        if self.rolls.room() == Room::None {
            return keys.iter().for_each(|key| self.add(key.clone(), Priority::Low, clock));
        }
        // What is known already has a place of its own, which this may change.
        let known: Vec<&K> = match self.entries.len() {
            0 => Vec::new(),
            _ => keys.iter().filter(|key| self.entries.find(key).is_some()).collect(),
        };
        let Self { entries, rolls, tally, .. } = self;
        let unknown = |key: &K| known.is_empty() || entries.find(key).is_none();
        let listed = rolls.push(roll.clone(), unknown, tally.now(clock));
        tally.adds += listed as u64;
        known.into_iter().for_each(|key| self.add(key.clone(), Priority::Low, clock));
    }

    /// Whether a key stands on a roll, and what is asked at this priority is to leave it there.
    #[inline]
    pub(super) fn stays_listed(&mut self, key: &K, priority: Priority, clock: &impl Clock) -> bool {
        let stays = priority == Priority::Low && !self.rolls.is_empty() && self.rolls.since(key).is_some();
        if stays && self.mode == Mode::Open {
            self.promote(clock);
        }
        stays
    }

    /// Finds the entry of a key, making one where it stands on a roll: it then stands at the back of its line.
    #[inline]
    pub(super) fn find(&mut self, key: &K) -> Option<Id> {
        self.entries.find(key).or_else(|| (!self.rolls.is_empty()).then(|| self.unlist(key)).flatten())
    }

    /// Gives a key of a roll an entry and a place of its own. Kept out of line: rolls are soon through.
    #[inline(never)]
    fn unlist(&mut self, key: &K) -> Option<Id> {
        let since = self.rolls.remove(key)?;
        let id = self.stand_ready(key.clone(), since);
        self.ready.push(&mut self.entries.slab, id, self.rolls.now());
        Some(id)
    }

    /// Gives the first key of the rolls an entry: it is handed out now.
    pub(super) fn pop_listed(&mut self) -> Option<Id> {
        let (key, since) = self.rolls.pop()?;
        Some(self.stand_ready(key, since))
    }

    fn stand_ready(&mut self, key: K, since: At) -> Id {
        let id = self.entries.find_or_insert(key);
        let entry = &mut self.entries.slab[id];
        entry.place = Place::Ready;
        (entry.waits, entry.since) = (true, since);
        id
    }
}
