//! The slots of this replica, as controllers and tasks follow them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use tokio::{sync::watch, time::Instant};

use super::{
    claims::{Claims, ShownVersions},
    slot::{Slot, SlotOf},
};
use crate::{leader_election::LeaseNote, object::ObjectKey};

/// Tells apart the times in which a replica works on a slot.
pub(crate) type Turn = u64;

/// Whether this replica works on a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotStage {
    Elsewhere,
    Works(Turn),
    /// Nothing of it starts any more. It moves once everybody who works on it has [said](SlotUser::drained) that
    /// nothing runs.
    Drains(Turn),
}

/// The slots of this replica. Clones show the same.
#[derive(Clone)]
pub(crate) struct Slots {
    of: SlotOf,
    shared: Arc<SlotsShared>,
}

struct SlotsShared {
    note: Arc<LeaseNote>,
    /// Counts the slots on which this replica works.
    meter: Gauge,
    state: Mutex<SlotsState>,
    changed: watch::Sender<()>,
    /// By slot: whether this replica has anything to do with it. Asked for each object that comes.
    kept: Box<[AtomicBool]>,
    /// Whether something of a slot goes on that a run has left behind, or anything that a task has.
    goes_on: OnceLock<GoesOn>,
}

type GoesOn = Box<dyn Fn(Slot) -> bool + Send + Sync>;

struct SlotsState {
    claims: Claims,
    stages: Vec<(SlotStage, Instant)>,
    turns: Turn,
    users: HashMap<u64, UserState>,
    joined: u64,
}

/// What a user of slots has said.
struct UserState {
    /// The slots that it uses; `None`: all.
    uses: Option<BTreeSet<Slot>>,
    drained: BTreeMap<Slot, Turn>,
}

/// Somebody who works on slots. Dropping it says that nothing of its work runs any more.
pub(crate) struct SlotUser {
    slots: Slots,
    id: u64,
    shown: Box<dyn Fn() -> ShownVersions + Send + Sync>,
}

impl Slots {
    /// Makes the slots of the replica whose Lease has this name, and says in it which they are.
    pub(crate) fn new(
        of: SlotOf,
        lease: Arc<str>,
        lasts: Duration,
        seed: u64,
        note: Arc<LeaseNote>,
        meter: Gauge,
    ) -> Self {
        let claims = Claims::new(lease, of, lasts, seed);
        let stages = vec![(SlotStage::Elsewhere, Instant::now()); usize::from(of.slots)];
        let kept = stages.iter().map(|_| AtomicBool::new(false)).collect();
        let state = SlotsState { claims, stages, turns: 0, users: HashMap::new(), joined: 0 };
        let (state, changed, goes_on) = (Mutex::new(state), watch::channel(()).0, OnceLock::new());
        let shared = SlotsShared { note, meter, state, changed, kept, goes_on };
        let slots = Self { of, shared: Arc::new(shared) };
        slots.update(|_| {});
        slots
    }

    /// Returns the slot of a key.
    pub(crate) fn slot(&self, key: &ObjectKey) -> Slot {
        self.of.slot(key)
    }

    /// Returns the slot of something that is named, such as a task.
    pub(crate) fn named(&self, name: &str) -> Slot {
        self.of.named(name)
    }

    pub(crate) fn stage(&self, slot: Slot) -> SlotStage {
        self.since(slot).0
    }

    /// Returns the stage of a slot, and since when it has it.
    pub(crate) fn since(&self, slot: Slot) -> (SlotStage, Instant) {
        self.shared.state.lock().stages[usize::from(slot)]
    }

    /// Returns the stages of all slots, in order.
    pub(crate) fn stages(&self) -> Vec<SlotStage> {
        self.shared.state.lock().stages.iter().map(|(stage, _)| *stage).collect()
    }

    /// Returns for each slot whether this replica has anything to do with it.
    pub(crate) fn kept(&self) -> Vec<bool> {
        self.stages().iter().map(|stage| *stage != SlotStage::Elsewhere).collect()
    }

    /// Returns what tells whether an object is in this replica's part.
    pub(crate) fn keeps(&self) -> impl Fn(Option<&str>, &str) -> bool + Send + Sync + 'static {
        let slots = self.clone();
        move |namespace, name| {
            slots.shared.kept[usize::from(slots.of.slot_of(namespace, name))].load(Ordering::Acquire)
        }
    }

    /// Returns how keys are put into slots.
    pub(crate) fn of(&self) -> SlotOf {
        self.of
    }

    /// Returns the Lease of the other replica that works on a slot, as far as is known.
    pub(crate) fn holder(&self, slot: Slot) -> Option<Arc<str>> {
        self.shared.state.lock().claims.holder(slot, Instant::now()).cloned()
    }

    /// Returns what the caches of those showed who handed over these slots; `None` if one was not handed over.
    pub(crate) fn shown_before(&self, slots: impl Iterator<Item = Slot>) -> Option<ShownVersions> {
        self.shared.state.lock().claims.shown_before(slots)
    }

    /// Counts the replicas that share the work.
    pub(crate) fn members(&self) -> usize {
        self.shared.state.lock().claims.members(Instant::now())
    }

    /// Says on how much this replica works, in one line.
    pub(crate) fn summary(&self) -> String {
        let stages = self.stages();
        let count = |of: fn(&SlotStage) -> bool| stages.iter().filter(|stage| of(stage)).count();
        let works = count(|stage| matches!(stage, SlotStage::Works(_)));
        let drains = count(|stage| matches!(stage, SlotStage::Drains(_)));
        let leave = if drains == 0 { String::new() } else { format!(", {drains} leave") };
        let (all, members) = (stages.len(), self.members());
        let replicas = if members == 1 { "replica" } else { "replicas" };
        format!("works on {works} of {all} slots{leave}; {members} {replicas}")
    }

    /// Follows changes of stages.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.shared.changed.subscribe()
    }

    /// Begins to use some slots, or all. No slot that drains moves before the user says that it may.
    ///
    /// `shown` says what the user's caches show: the replica that takes a slot waits until its own caches show that.
    pub(crate) fn join(
        &self,
        uses: Option<BTreeSet<Slot>>,
        shown: impl Fn() -> ShownVersions + Send + Sync + 'static,
    ) -> SlotUser {
        let mut state = self.shared.state.lock();
        state.joined += 1;
        let id = state.joined;
        state.users.insert(id, UserState { uses, drained: BTreeMap::new() });
        SlotUser { slots: self.clone(), id, shown: Box::new(shown) }
    }

    /// A slot does not move while something of it goes on that a run has left behind, or anything that a task has.
    ///
    /// Nobody says when that ends: it is asked for at each change, and at each list of the Leases.
    pub(crate) fn wait_while(&self, goes_on: impl Fn(Slot) -> bool + Send + Sync + 'static) {
        let _made_once = self.shared.goes_on.set(Box::new(goes_on));
    }

    /// This replica is to leave: all slots drain.
    pub(crate) fn leave(&self) {
        self.update(|claims| claims.leave(Instant::now()));
    }

    /// Nothing of the term runs any more: all slots are given away.
    pub(crate) fn end(&self) {
        self.update(|claims| claims.end(Instant::now()));
    }

    /// The term is over, and others may take the slots.
    pub(crate) fn lost(&self) {
        self.update(Claims::lost);
    }

    pub(super) fn read<T>(&self, read: impl FnOnce(&Claims) -> T) -> T {
        read(&self.shared.state.lock().claims)
    }

    /// Changes the claims, and lets everybody see what follows.
    pub(super) fn update(&self, change: impl FnOnce(&mut Claims)) {
        let mut state = self.shared.state.lock();
        change(&mut state.claims);
        self.follow_up(&mut state);
    }

    fn follow_up(&self, state: &mut SlotsState) {
        let mut is_changed = state.refresh();
        let mut free = state.free_to_move();
        if let Some(goes_on) = self.shared.goes_on.get() {
            free.retain(|slot| !goes_on(*slot));
        }
        for slot in free {
            state.claims.drained(slot, Instant::now());
            is_changed |= state.refresh();
        }
        let said = serde_json::to_string(state.claims.record()).unwrap_or_default();
        self.shared.note.set(&said);
        if is_changed {
            let works = state.stages.iter().filter(|(stage, _)| matches!(stage, SlotStage::Works(_)));
            self.shared.meter.set(i64::try_from(works.count()).unwrap_or(i64::MAX));
            for (kept, (stage, _)) in self.shared.kept.iter().zip(&state.stages) {
                kept.store(*stage != SlotStage::Elsewhere, Ordering::Release);
            }
            self.shared.changed.send_replace(());
        }
    }
}

impl_debug!(Slots, this => slots: this.of.slots);

impl SlotsState {
    /// Brings the stages up to date. Returns whether one has changed.
    fn refresh(&mut self) -> bool {
        let (mut stages, now) = (vec![SlotStage::Elsewhere; self.stages.len()], Instant::now());
        self.claims.works().for_each(|slot| stages[usize::from(slot)] = SlotStage::Works(0));
        self.claims.drains().for_each(|slot| stages[usize::from(slot)] = SlotStage::Drains(0));
        let mut is_changed = false;
        for (before, after) in self.stages.iter_mut().zip(stages) {
            let next = match (before.0, after) {
                (SlotStage::Elsewhere, SlotStage::Elsewhere)
                | (SlotStage::Works(_), SlotStage::Works(_))
                | (SlotStage::Drains(_), SlotStage::Drains(_)) => continue,
                (_, SlotStage::Elsewhere) => SlotStage::Elsewhere,
                (_, SlotStage::Works(_)) => SlotStage::Works(self.turns + 1),
                (_, SlotStage::Drains(_)) => SlotStage::Drains(self.turns + 1),
            };
            (*before, is_changed) = ((next, now), true);
        }
        self.turns += u64::from(is_changed);
        is_changed
    }

    /// Returns the slots that drain, and in which nothing runs any more.
    fn free_to_move(&self) -> Vec<Slot> {
        let slots = (0..).zip(&self.stages);
        let is_free = |(slot, (stage, _)): (Slot, &(SlotStage, Instant))| {
            let SlotStage::Drains(turn) = *stage else { return None };
            let mut users =
                self.users.values().filter(|user| user.uses.as_ref().is_none_or(|uses| uses.contains(&slot)));
            users.all(|user| user.drained.get(&slot) == Some(&turn)).then_some(slot)
        };
        slots.filter_map(is_free).collect()
    }
}

impl SlotUser {
    /// Says that nothing of a slot runs any more, and that nothing starts before its next turn.
    pub(crate) fn drained(&self, slot: Slot, turn: Turn) {
        self.say(|state| {
            let user = state.users.get_mut(&self.id);
            user.is_some_and(|user| user.drained.insert(slot, turn) != Some(turn))
        });
    }

    /// Changes what the user said. What follows depends on it if that says something new.
    fn say(&self, change: impl FnOnce(&mut SlotsState) -> bool) {
        let shown = (self.shown)();
        let mut state = self.slots.shared.state.lock();
        if change(&mut state) {
            state.claims.show(&shown);
            self.slots.follow_up(&mut state);
        }
    }
}

impl Drop for SlotUser {
    fn drop(&mut self) {
        self.say(|state| state.users.remove(&self.id).is_some());
    }
}
