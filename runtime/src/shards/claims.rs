//! Which slots a replica works on, as it decides from what all replicas say in their Leases. Pure.
//!
//! A slot passes through these stages: claimed (the Lease is to say so), worked on, draining (nothing starts any more),
//! given away. [`crate::shards`] says what is promised, and this is how:
//!
//! - A claim is verified by a consistent list of all Leases that was asked for after the server had confirmed the claim.
//!   If two replicas claim a slot at once, at least one of them sees both claims. It withdraws, and tries again later.
//! - A replica is *calm* once it has listed all Leases for a whole lease duration without a gap and without a surprise. A
//!   surprise is a Lease that changed as no replica changes it: its number or its time went back, its seal is broken, it
//!   vanished, or the own one shows what this replica never wrote. Only a calm replica takes a slot that nobody hands over to it.
//! - A surprise ends claims that are not verified, and makes earlier handovers void. Who is calm again has given each
//!   replica the time to repair its Lease, or to stop.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::slot::{Slot, SlotOf, hash};

/// What a replica says in its Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SlotRecord {
    /// Grows with each change that the replica makes.
    pub(super) number: u64,
    pub(super) slots: Slot,
    pub(super) by_name: bool,
    /// The slots that it works on, or is about to.
    pub(super) claims: BTreeSet<Slot>,
    /// The slots that it has handed over.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) gives: BTreeMap<Slot, Handover>,
    /// Whether slots are shared out to it: not before it may work, and not while it leaves.
    pub(super) takes_part: bool,
    /// What its caches showed when it handed over slots last.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) shown: ShownVersions,
    /// A hash of all the rest and of the Lease's name, so that an edit by somebody else is noticed.
    pub(super) seal: u32,
}

impl SlotRecord {
    /// Seals the record of the Lease with this name.
    pub(super) fn sealed(self, lease: &str) -> Self {
        let open = Self { seal: 0, ..self };
        let text = serde_json::to_vec(&open).unwrap_or_default();
        Self { seal: hash(&[lease.as_bytes(), &text]) as u32, ..open }
    }

    /// Takes what the Lease with this name says, and whether somebody else has edited it. Such a replica, and one that puts
    /// keys into slots in another way, works on all slots, unless it says that it works on none.
    pub(super) fn read(said: Option<Self>, lease: &str, of: SlotOf) -> (Self, bool) {
        let said = said.filter(|said| said.clone().sealed(lease).seal == said.seal);
        let all = || (0..of.slots).collect();
        match said {
            None => (Self { claims: all(), ..Self::default() }, true),
            Some(said) if (said.slots, said.by_name) == (of.slots, of.by_name) => (said, false),
            // One that waits for the others must not keep them from the slots of those that stop.
            Some(Self { number, claims, .. }) => {
                let claims = if claims.is_empty() { claims } else { all() };
                (Self { number, claims, ..Self::default() }, false)
            }
        }
    }
}

/// The highest version of an object in each cache, by what is cached.
pub(crate) type ShownVersions = BTreeMap<String, u64>;

/// To whom a slot was handed over, and in which record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Handover {
    pub(super) to: Arc<str>,
    pub(super) number: u64,
}

/// A replica's Lease as it was listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MemberLease {
    pub(super) record: SlotRecord,
    /// Changes with every write, such as a renewal.
    pub(super) version: String,
    /// When it was renewed by its replica's clock, in microseconds. It grows with every renewal.
    pub(super) renewed: i64,
    /// For how long it lasts without a renewal.
    pub(super) lasts: Duration,
    /// Whether somebody else has edited the record.
    pub(super) is_broken: bool,
    /// Whether its replica has released it.
    pub(super) has_left: bool,
}

/// All Leases, by name.
pub(super) type MemberLeases = BTreeMap<Arc<str>, MemberLease>;

/// What is known of another replica.
#[derive(Debug)]
struct OtherMember {
    lease: MemberLease,
    /// When its Lease changed last, as far as was seen.
    changed: Instant,
    is_missing: bool,
}

impl OtherMember {
    fn is_current(&self, now: Instant) -> bool {
        now - self.changed < self.lease.lasts
    }

    fn claims(&self, slot: Slot, now: Instant) -> bool {
        self.is_current(now) && self.lease.record.claims.contains(&slot)
    }

    fn takes_part(&self, now: Instant) -> bool {
        self.is_current(now) && self.lease.record.takes_part && !self.is_missing
    }
}

/// A handover to this replica.
#[derive(Debug, Default)]
struct SeenOffer {
    number: u64,
    /// When it was seen to happen; `None` if it may have happened long before.
    seen: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClaimStage {
    /// Claimed, and not known to be the only claim.
    Claimed,
    Works,
    /// Nothing starts any more; what runs may end.
    Drains,
}

/// The slots of one replica, and what it knows of the others.
#[derive(Debug)]
pub(super) struct Claims {
    me: Arc<str>,
    of: SlotOf,
    lease: Duration,
    others: BTreeMap<Arc<str>, OtherMember>,
    own: BTreeMap<Slot, ClaimStage>,
    gives: BTreeMap<Slot, Handover>,
    /// What the caches of this replica show.
    shown: ShownVersions,
    /// What the caches showed of who handed over a slot.
    shown_before: BTreeMap<Slot, ShownVersions>,
    /// What the Lease is to say.
    said: SlotRecord,
    /// What the server confirmed last, and when that was noticed.
    confirmed: (SlotRecord, Option<Instant>),
    /// What was said since, with an unknown outcome.
    unconfirmed: Vec<SlotRecord>,
    /// Since when all Leases have been listed without a gap or a surprise.
    calm_since: Option<Instant>,
    listed_at: Option<Instant>,
    /// Until when a slot is not claimed again that another replica claimed too.
    contested: BTreeMap<Slot, Instant>,
    /// The last handover of each slot to this replica, by who handed it over.
    offers: HashMap<(Arc<str>, Slot), SeenOffer>,
    /// Whether the Lease of the whole program is held for all replicas.
    is_guarded: bool,
    leaves: bool,
    random: SmallRng,
}

impl Claims {
    /// Makes the claims of the replica whose Lease has this name.
    pub(super) fn new(me: Arc<str>, of: SlotOf, lease: Duration, seed: u64) -> Self {
        let said = SlotRecord { slots: of.slots, by_name: of.by_name, ..SlotRecord::default() }.sealed(&me);
        Self {
            me,
            of,
            lease,
            others: BTreeMap::new(),
            own: BTreeMap::new(),
            gives: BTreeMap::new(),
            shown: ShownVersions::new(),
            shown_before: BTreeMap::new(),
            confirmed: (said.clone(), None),
            unconfirmed: vec![said.clone()],
            said,
            calm_since: None,
            listed_at: None,
            contested: BTreeMap::new(),
            offers: HashMap::new(),
            is_guarded: false,
            leaves: false,
            random: SmallRng::seed_from_u64(seed),
        }
    }

    // --- what others see of it

    /// The slots that are worked on, while the term lasts.
    pub(super) fn works(&self) -> impl Iterator<Item = Slot> {
        self.in_stage(ClaimStage::Works)
    }

    /// The slots in which nothing starts any more.
    pub(super) fn drains(&self) -> impl Iterator<Item = Slot> {
        self.in_stage(ClaimStage::Drains)
    }

    fn in_stage(&self, stage: ClaimStage) -> impl Iterator<Item = Slot> {
        self.own.iter().filter(move |(_, own)| **own == stage).map(|(slot, _)| *slot)
    }

    /// Returns the Lease of the other replica that works on a slot, as far as is known.
    pub(super) fn holder(&self, slot: Slot, now: Instant) -> Option<&Arc<str>> {
        self.others.iter().find(|(_, other)| other.claims(slot, now)).map(|(name, _)| name)
    }

    /// Returns whether a Lease says something else than was listed last. That of this replica never does.
    pub(super) fn is_news(&self, name: &Arc<str>, said: &SlotRecord) -> bool {
        *name != self.me && self.others.get(name).is_none_or(|other| other.lease.record != *said)
    }

    /// Counts the replicas that take part, with this one.
    pub(super) fn members(&self, now: Instant) -> usize {
        1 + self.others.values().filter(|other| other.takes_part(now)).count()
    }

    /// Returns whether no other replica is there, not even one that may not work yet.
    pub(super) fn is_alone(&self, now: Instant) -> bool {
        let is_there = |other: &OtherMember| other.is_current(now) && !other.lease.has_left;
        !self.others.values().any(is_there)
    }

    /// Returns whether every slot is where it should be.
    pub(super) fn is_settled(&self, now: Instant) -> bool {
        let wanted = self.wanted(now);
        let is_mine = |slot: &Slot| wanted.get(slot) == Some(&self.me);
        let all_work = self.own.values().all(|stage| *stage == ClaimStage::Works);
        all_work
            && self.unconfirmed.is_empty()
            && (0..self.of.slots).all(|slot| is_mine(&slot) == self.own.contains_key(&slot))
    }

    /// Returns the Leases that have not changed for this long.
    pub(super) fn stale(&self, unchanged: Duration, now: Instant) -> Vec<Arc<str>> {
        let stale =
            self.others.iter().filter(|(_, other)| !other.is_missing && now - other.changed > unchanged);
        stale.map(|(name, _)| name.clone()).collect()
    }

    // --- what happens

    /// Takes what the caches of this replica show.
    pub(super) fn show(&mut self, shown: &ShownVersions) {
        for (cache, version) in shown {
            let highest = self.shown.entry(cache.clone()).or_default();
            *highest = (*version).max(*highest);
        }
    }

    /// Returns what the caches of those showed who handed over these slots; `None` if one was not handed over.
    pub(super) fn shown_before(&self, mut slots: impl Iterator<Item = Slot>) -> Option<ShownVersions> {
        slots.try_fold(ShownVersions::new(), |mut all, slot| {
            for (cache, version) in self.shown_before.get(&slot)? {
                let highest = all.entry(cache.clone()).or_default();
                *highest = (*version).max(*highest);
            }
            Some(all)
        })
    }

    /// Every run of a slot that drains has ended.
    pub(super) fn drained(&mut self, slot: Slot, now: Instant) {
        if self.own.get(&slot) == Some(&ClaimStage::Drains) {
            self.give(slot, &self.wanted(now));
        }
    }

    /// This replica is to leave: all its slots drain.
    pub(super) fn leave(&mut self, now: Instant) {
        self.leaves = true;
        self.decide(now);
    }

    /// Nothing of the term runs any more: all slots are given away.
    pub(super) fn end(&mut self, now: Instant) {
        self.leaves = true;
        let wanted = self.wanted(now);
        let slots: Vec<_> = self.own.keys().copied().collect();
        slots.into_iter().for_each(|slot| self.give(slot, &wanted));
    }

    /// The term is over, and others may take the slots.
    pub(super) fn lost(&mut self) {
        (self.own, self.gives, self.others) = Default::default();
        (self.calm_since, self.listed_at, self.is_guarded) = (None, None, false);
    }

    /// Whether the Lease of the whole program is held for all replicas.
    pub(super) fn guarded(&mut self, is_guarded: bool, now: Instant) {
        self.is_guarded = is_guarded;
        self.decide(now);
    }

    /// Returns what the Lease is to say.
    pub(super) fn record(&mut self) -> &SlotRecord {
        let claims: BTreeSet<Slot> = self.own.keys().copied().collect();
        let takes_part = self.is_guarded && !self.leaves;
        let said = &self.said;
        if (&claims, &self.gives, takes_part) != (&said.claims, &said.gives, said.takes_part) {
            let (number, gives, shown) = (said.number + 1, self.gives.clone(), self.shown.clone());
            self.said = SlotRecord { number, claims, gives, takes_part, shown, ..self.said }.sealed(&self.me);
            self.unconfirmed.push(self.said.clone());
        }
        &self.said
    }

    /// Returns what was to be said last.
    #[cfg(test)]
    pub(super) fn said(&self) -> &SlotRecord {
        &self.said
    }

    /// Returns whether it claims nothing any more, and the server knows.
    #[cfg(test)]
    pub(super) fn has_left(&self) -> bool {
        self.own.is_empty() && self.unconfirmed.is_empty() && !self.confirmed.0.takes_part
    }

    /// The server confirmed a record.
    pub(super) fn confirmed(&mut self, record: SlotRecord, now: Instant) {
        if record.number < self.confirmed.0.number {
            return;
        }
        self.unconfirmed.retain(|unconfirmed| unconfirmed.number > record.number);
        if record != self.confirmed.0 || self.confirmed.1.is_none() {
            self.confirmed = (record, Some(now));
        }
    }

    /// Takes a consistent list of all Leases that was asked for at `sent`.
    pub(super) fn listed(&mut self, sent: Instant, now: Instant, mut leases: MemberLeases) {
        let own = leases.remove(&self.me).map(|lease| lease.record);
        let own = own.filter(|own| *own == self.confirmed.0 || self.unconfirmed.contains(own));
        let is_gap = self.listed_at.is_none_or(|before| now - before > self.lease / 3);
        self.listed_at = Some(now);
        let mut is_surprise = own.is_none();
        for (name, lease) in &leases {
            is_surprise |= self.saw(name, lease, now);
        }
        for (name, other) in &mut self.others {
            if !leases.contains_key(name) && !other.is_missing {
                other.is_missing = true;
                is_surprise |= other.is_current(now);
            }
        }
        self.others
            .retain(|name, other| leases.contains_key(name) || now - other.changed < 2 * other.lease.lasts);
        let is_calm = !is_gap && !is_surprise;
        self.see_offers(is_calm, now);
        if !is_calm {
            // What others claim may not be what is listed. What is worked on was claimed before.
            self.calm_since = None;
            self.own.retain(|_, stage| *stage != ClaimStage::Claimed);
        }
        self.calm_since.get_or_insert(now);
        self.verify(sent, now, own.as_ref());
        self.decide(now);
    }

    /// Takes another replica's Lease. Returns whether it changed as no replica changes it.
    fn saw(&mut self, name: &Arc<str>, lease: &MemberLease, now: Instant) -> bool {
        let Some(other) = self.others.get_mut(name) else {
            let other = OtherMember { lease: lease.clone(), changed: now, is_missing: false };
            self.others.insert(name.clone(), other);
            return lease.is_broken;
        };
        other.is_missing = false;
        if other.lease.version == lease.version {
            return false;
        }
        let (before, after) = (&other.lease.record, &lease.record);
        let is_back = after.number < before.number
            || (after.number == before.number && after != before)
            || lease.renewed <= other.lease.renewed;
        // A change that is not its own renews nothing, but to be safe it counts.
        (other.changed, other.lease) = (now, lease.clone());
        is_back || lease.is_broken
    }

    /// Notes when slots were handed over to this replica. After a gap or a surprise no earlier handover counts.
    fn see_offers(&mut self, is_calm: bool, now: Instant) {
        for (name, other) in &self.others {
            for (slot, give) in other.lease.record.gives.iter().filter(|(_, give)| give.to == self.me) {
                let offer = self.offers.entry((name.clone(), *slot)).or_default();
                // A Lease that was repaired says again what it said before.
                if offer.number < give.number {
                    *offer = SeenOffer { number: give.number, seen: Some(now) };
                }
            }
        }
        self.offers.retain(|(name, _), _| self.others.contains_key(name));
        if !is_calm {
            self.offers.values_mut().for_each(|offer| offer.seen = None);
        }
    }

    /// Begins to work on what only this replica claims, as a list shows that was asked for after the claim.
    fn verify(&mut self, sent: Instant, now: Instant, own: Option<&SlotRecord>) {
        let claimed: Vec<_> = self.in_stage(ClaimStage::Claimed).collect();
        for slot in claimed {
            if self.holder(slot, now).is_some() {
                self.own.remove(&slot);
                let wait = Duration::from_millis(self.random.random_range(500..2_500));
                self.contested.insert(slot, now + wait);
                continue;
            }
            let is_after = self.confirmed.1.is_some_and(|confirmed| sent >= confirmed);
            let claims = |said: &SlotRecord| said.claims.contains(&slot);
            // A record on its way may take back what the list shows.
            let is_said =
                claims(&self.confirmed.0) && own.is_some_and(claims) && self.unconfirmed.iter().all(claims);
            if is_after && is_said {
                self.own.insert(slot, ClaimStage::Works);
            }
        }
    }

    fn wanted(&self, now: Instant) -> BTreeMap<Slot, Arc<str>> {
        let others = self.others.iter().filter(|(_, other)| other.takes_part(now)).map(|(name, _)| name);
        let me = (self.is_guarded && !self.leaves).then_some(&self.me);
        shared_out(&others.chain(me).cloned().collect::<Vec<_>>(), self.of.slots)
    }

    fn decide(&mut self, now: Instant) {
        let wanted = self.wanted(now);
        let is_calm = self.calm_since.is_some_and(|calm| now - calm >= self.lease);
        self.contested.retain(|_, until| *until > now);
        for slot in 0..self.of.slots {
            let is_mine = wanted.get(&slot) == Some(&self.me);
            match self.own.get(&slot) {
                None if is_mine && self.is_free(slot, now) => {
                    let offered = self.offered(slot, now).cloned();
                    if is_calm || offered.is_some() {
                        self.own.insert(slot, ClaimStage::Claimed);
                        self.gives.remove(&slot);
                        self.shown_before.remove(&slot);
                        self.shown_before.extend(offered.map(|shown| (slot, shown)));
                    }
                }
                Some(ClaimStage::Claimed) if !is_mine => drop(self.own.remove(&slot)),
                Some(ClaimStage::Works) if !is_mine => drop(self.own.insert(slot, ClaimStage::Drains)),
                Some(ClaimStage::Drains) if is_mine => drop(self.own.insert(slot, ClaimStage::Works)),
                _ => {}
            }
        }
    }

    fn is_free(&self, slot: Slot, now: Instant) -> bool {
        self.holder(slot, now).is_none() && !self.contested.contains_key(&slot)
    }

    /// Ends a claim, and hands the slot over to the replica that should have it.
    fn give(&mut self, slot: Slot, wanted: &BTreeMap<Slot, Arc<str>>) {
        self.own.remove(&slot);
        if let Some(to) = wanted.get(&slot).filter(|to| **to != self.me) {
            self.gives.insert(slot, Handover { to: to.clone(), number: self.said.number + 1 });
        }
    }

    /// Returns what the caches showed of who handed over a slot last, if somebody has just now.
    fn offered(&self, slot: Slot, now: Instant) -> Option<&ShownVersions> {
        let just_now = |(name, other): (&Arc<str>, &'_ OtherMember)| {
            let give = other.lease.record.gives.get(&slot).filter(|give| give.to == self.me);
            let offer = self.offers.get(&(name.clone(), slot));
            let offer = give.zip(offer).filter(|(give, offer)| offer.number == give.number);
            offer.and_then(|(_, offer)| offer.seen).filter(|seen| now - *seen < self.lease / 3)
        };
        let offers = self.others.iter().filter_map(|other| Some((just_now(other)?, other.1)));
        offers.max_by_key(|(seen, _)| *seen).map(|(_, other)| &other.lease.record.shown)
    }
}

/// Shares slots out among replicas: each gets the same number, give or take one, and few move when one comes or goes.
///
/// Each slot goes to the replica that ranks highest for it, by rendezvous hashing, among those that have room.
pub(super) fn shared_out(members: &[Arc<str>], slots: Slot) -> BTreeMap<Slot, Arc<str>> {
    let count = usize::from(slots);
    let Some(least) = count.checked_div(members.len()) else { return BTreeMap::new() };
    let mut with_more = count % members.len();
    let mut given = vec![0; members.len()];
    let mut wanted = BTreeMap::new();
    for slot in 0..slots {
        let rank = |member: &Arc<str>| hash(&[member.as_bytes(), &slot.to_be_bytes()]);
        let has_room = |at: &usize| given[*at] < least || (given[*at] == least && with_more > 0);
        let best = (0..members.len()).filter(has_room).max_by_key(|at| (rank(&members[*at]), &members[*at]));
        if let Some(best) = best {
            with_more -= usize::from(given[best] == least);
            given[best] += 1;
            wanted.insert(slot, members[best].clone());
        }
    }
    wanted
}
