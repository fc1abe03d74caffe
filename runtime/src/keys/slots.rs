//! The slots whose keys a controller runs, if replicas share the work.

use super::why::Why;
use crate::{
    object::ObjectKey,
    shards::{Slot, SlotStage, Slots, Turn},
};

/// The slots that a controller has let in. A slot of this replica is let in once the caches are fresh enough.
#[derive(Debug)]
pub(super) struct AdmittedSlots {
    slots: Slots,
    /// By slot: the turn for which it was let in.
    admitted: Vec<Option<Turn>>,
}

impl AdmittedSlots {
    pub(super) fn new(slots: Slots) -> Self {
        Self { admitted: vec![None; slots.stages().len()], slots }
    }

    pub(super) fn slot(&self, key: &ObjectKey) -> Slot {
        self.slots.slot(key)
    }

    pub(super) fn admits(&self, key: &ObjectKey) -> bool {
        self.admitted[usize::from(self.slot(key))].is_some()
    }

    /// Lets in a slot, if this replica works on it in that turn.
    pub(super) fn admit(&mut self, slot: Slot, turn: Turn) -> bool {
        let works = self.slots.stage(slot) == SlotStage::Works(turn);
        if works {
            self.admitted[usize::from(slot)] = Some(turn);
        }
        works
    }

    /// Returns the slots that are to be let in.
    pub(super) fn gained(&self) -> Vec<(Slot, Turn)> {
        let stages = self.slots.stages().into_iter().zip(&self.admitted).zip(0..);
        let gained = stages.filter_map(|((stage, admitted), slot)| match stage {
            SlotStage::Works(turn) if *admitted != Some(turn) => Some((slot, turn)),
            _ => None,
        });
        gained.collect()
    }

    /// Lets in nothing more of slots that this replica does not work on. Returns those that drain, and whether one was
    /// let in before.
    pub(super) fn dismiss(&mut self) -> (Vec<(Slot, Turn)>, bool) {
        let (mut draining, mut is_smaller) = (Vec::new(), false);
        for ((stage, admitted), slot) in self.slots.stages().into_iter().zip(&mut self.admitted).zip(0..) {
            match stage {
                SlotStage::Works(turn) if *admitted == Some(turn) => continue,
                SlotStage::Drains(turn) => draining.push((slot, turn)),
                SlotStage::Works(_) | SlotStage::Elsewhere => {}
            }
            is_smaller |= admitted.take().is_some();
        }
        (draining, is_smaller)
    }

    /// Says where a key runs that does not run here.
    pub(super) fn elsewhere(&self, key: &ObjectKey) -> Option<Why> {
        let slot = self.slot(key);
        if self.admitted[usize::from(slot)].is_some() {
            return None;
        }
        let (stage, since) = self.slots.since(slot);
        Some(match stage {
            SlotStage::Works(_) => Why::SlotArrives { slot, since: since.into() },
            SlotStage::Drains(_) => Why::SlotLeaves { slot, since: since.into() },
            SlotStage::Elsewhere => {
                Why::InAnotherShard { slot, holder: self.slots.holder(slot).map(|holder| holder.to_string()) }
            }
        })
    }
}
