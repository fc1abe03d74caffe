//! The slots whose keys a controller runs, if replicas share the work.

use std::collections::BTreeSet;

use super::why::Why;
use crate::{
    object::ObjectKey,
    shards::{Slot, SlotStage, Slots, Turn},
};

/// The slots that a controller has let in. A slot of this replica is let in once the caches are fresh enough.
///
/// The default lets in all keys: nobody shares the work.
#[derive(Debug, Default)]
pub(crate) struct AdmittedSlots {
    slots: Option<Slots>,
    /// The slots that its keys are in; `None`: all.
    own: Option<BTreeSet<Slot>>,
    /// By slot: the turn for which it was let in.
    admitted: Vec<Option<Turn>>,
}

impl AdmittedSlots {
    /// Lets in nothing yet of what replicas share; all keys, if they don't.
    pub(crate) fn new(slots: Option<Slots>, own: Option<BTreeSet<Slot>>) -> Self {
        let count = slots.as_ref().map_or(0, |slots| slots.stages().len());
        Self { slots, own, admitted: vec![None; count] }
    }

    fn is_own(&self, slot: Slot) -> bool {
        self.own.as_ref().is_none_or(|own| own.contains(&slot))
    }

    /// Returns whether replicas share the keys out by their slots.
    pub(crate) fn are_shared(&self) -> bool {
        self.slots.is_some()
    }

    /// Returns whether keys like this one run here.
    pub(crate) fn admits(&self, key: &ObjectKey) -> bool {
        self.slots.as_ref().is_none_or(|slots| self.admitted[usize::from(slots.slot(key))].is_some())
    }

    /// Lets in a slot, if this replica works on it in that turn. Returns whether it does.
    pub(crate) fn admit(&mut self, slot: Slot, turn: Turn) -> bool {
        let works = self.slots.as_ref().is_some_and(|slots| slots.stage(slot) == SlotStage::Works(turn));
        if works {
            self.admitted[usize::from(slot)] = Some(turn);
        }
        works
    }

    /// Returns the slots that this replica works on, and whose keys are not let in yet.
    pub(crate) fn gained(&self) -> Vec<(Slot, Turn)> {
        let stages = self.slots.as_ref().map(Slots::stages).unwrap_or_default();
        let stages = stages.into_iter().zip(&self.admitted).zip(0..);
        let gained = stages.filter_map(|((stage, admitted), slot)| match stage {
            SlotStage::Works(turn) if *admitted != Some(turn) => Some((slot, turn)),
            _ => None,
        });
        gained.filter(|(slot, _)| self.is_own(*slot)).collect()
    }

    /// Lets in nothing more of slots that this replica does not work on. Returns those that drain, and whether one was
    /// let in before.
    pub(super) fn dismiss(&mut self) -> (Vec<(Slot, Turn)>, bool) {
        let stages = self.slots.as_ref().map(Slots::stages).unwrap_or_default();
        let (mut draining, mut is_smaller) = (Vec::new(), false);
        for ((stage, admitted), slot) in stages.into_iter().zip(&mut self.admitted).zip(0..) {
            match stage {
                SlotStage::Works(turn) if *admitted == Some(turn) => continue,
                SlotStage::Drains(turn) => draining.push((slot, turn)),
                SlotStage::Works(_) | SlotStage::Elsewhere => {}
            }
            is_smaller |= admitted.take().is_some();
        }
        draining.retain(|(slot, _)| self.is_own(*slot));
        (draining, is_smaller)
    }

    /// Returns which of some slots have no key among these.
    pub(super) fn without<'a>(
        &self,
        slots: Vec<(Slot, Turn)>,
        keys: impl Iterator<Item = &'a ObjectKey>,
    ) -> Vec<(Slot, Turn, bool)> {
        let slot = |key| self.slots.as_ref().map(|slots| slots.slot(key));
        let used: BTreeSet<Slot> = keys.filter_map(slot).collect();
        slots.into_iter().map(|(slot, turn)| (slot, turn, !used.contains(&slot))).collect()
    }

    /// Says where a key runs that does not run here.
    pub(super) fn elsewhere(&self, key: &ObjectKey) -> Option<Why> {
        if self.admits(key) {
            return None;
        }
        let slots = self.slots.as_ref()?;
        let slot = slots.slot(key);
        let (stage, since) = slots.since(slot);
        if stage != SlotStage::Elsewhere && !self.is_own(slot) {
            return None;
        }
        Some(match stage {
            SlotStage::Works(_) => Why::SlotArrives { slot, since: since.into() },
            SlotStage::Drains(_) => Why::SlotLeaves { slot, since: since.into() },
            SlotStage::Elsewhere => {
                Why::InAnotherShard { slot, holder: slots.holder(slot).map(|holder| holder.to_string()) }
            }
        })
    }
}
