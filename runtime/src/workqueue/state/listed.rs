//! Keys that a list lists: ready like any other, but without an entry until something else is said of them.

use super::*;
use crate::key_list::KeyList;
use crate::workqueue::shared_lists::Room;

impl<K: QueueKey> State<K> {
    /// Something may have changed of all these: as if each was added in turn, at low priority.
    pub(in crate::workqueue) fn add_list(&mut self, list: &Arc<KeyList<K>>, clock: &impl Clock) {
        if self.mode != Mode::Open {
            return;
        }
        self.promote(clock);
        let keys = list.keys();
        if self.lists.room() == Room::None {
            return keys.iter().for_each(|key| self.add(key.clone(), Priority::Low, clock));
        }
        // What is known already has a place of its own, which this may change.
        let known: Vec<&K> = match self.entries.len() {
            0 => Vec::new(),
            _ => keys.iter().filter(|key| self.entries.find(key).is_some()).collect(),
        };
        let Self { entries, lists, stats, .. } = self;
        let unknown = |key: &K| known.is_empty() || entries.find(key).is_none();
        let listed = lists.push(list.clone(), unknown, stats.now(clock));
        stats.adds += listed as u64;
        known.into_iter().for_each(|key| self.add(key.clone(), Priority::Low, clock));
    }

    /// Whether a key stands on a list, and what is asked at this priority is to leave it there.
    #[inline]
    pub(super) fn stays_listed(&mut self, key: &K, priority: Priority, clock: &impl Clock) -> bool {
        let stays = priority == Priority::Low && !self.lists.is_empty() && self.lists.since(key).is_some();
        if stays && self.mode == Mode::Open {
            self.promote(clock);
        }
        stays
    }

    /// Finds the entry of a key, making one where it stands on a list: it then stands at the back of its line.
    #[inline]
    pub(super) fn find(&mut self, key: &K) -> Option<Id> {
        self.entries.find(key).or_else(|| (!self.lists.is_empty()).then(|| self.unlist(key)).flatten())
    }

    /// Gives a key of a list an entry and a place of its own. Kept out of line: lists are soon through.
    #[inline(never)]
    fn unlist(&mut self, key: &K) -> Option<Id> {
        let since = self.lists.remove(key)?;
        let id = self.stand_ready(key.clone(), since);
        self.ready.push(&mut self.entries.slab, id, self.lists.now());
        Some(id)
    }

    /// Gives the first key of the lists an entry: it is handed out now.
    pub(super) fn pop_listed(&mut self) -> Option<Id> {
        let (key, since) = self.lists.pop()?;
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
