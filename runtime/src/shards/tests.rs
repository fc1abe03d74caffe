//! Claims in a world of bad clocks, a bad network and meddlers: never do two replicas work on one slot.
//!
//! Replicas die, freeze, leave, and are cut off one way or both. Clocks run at rates that differ by a tenth. Leases are
//! deleted, edited, and replaced by older copies, one of them or all. Requests and answers are lost or come late.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::Arc,
    time::Duration,
};

use rand::{Rng, SeedableRng, rngs::SmallRng};
use tokio::time::{Instant, advance};

use super::{
    claims::{Claims, MemberLease, MemberLeases, SlotRecord, shared_out},
    slot::{Slot, SlotOf},
};

/// Milliseconds of the world's own time.
type At = u64;

const SLOTS: Slot = 8;
const LEASE: Duration = Duration::from_secs(15);
/// After how long without a renewal a replica gives up, and its requests are refused.
const DEADLINE: Duration = Duration::from_secs(10);
const EXPIRY: Duration = Duration::from_millis(12_500);
const PATIENCE: Duration = Duration::from_millis(2_500);
/// How long troubles last, and how long the world goes on without.
const TROUBLED: At = 240_000;
const CALM: At = 90_000;
const MOST_MEMBERS: usize = 6;
/// How old a copy of a Lease is at least that somebody restores. Who has not listed for a third of a lease duration, by a clock
/// that may be slow, is not calm.
const OLD_ENOUGH: At = 6_000;

#[derive(Clone, Debug)]
enum Ask {
    List,
    Read,
    Write { base: Option<String>, record: SlotRecord },
}

#[derive(Clone, Debug)]
enum Answer {
    Listed(MemberLeases),
    Read(Option<String>),
    Written(String, SlotRecord),
    Refused,
}

enum Event {
    Turn(usize),
    Arrives(usize, Ask, Instant),
    Answered(usize, Answer, Instant),
    Trouble,
}

struct Member {
    name: Arc<str>,
    claims: Claims,
    /// By how much its clock is faster than the world's.
    rate: f64,
    since: At,
    /// The version of its Lease, as it knows it.
    version: Option<String>,
    renewed: Option<Instant>,
    next_renewal: Instant,
    next_list: Instant,
    writing: Option<Instant>,
    listing: Option<Instant>,
    /// Whether its Lease has to be read before the next write.
    reads: bool,
    /// Until when the runs of a slot last.
    runs: BTreeMap<Slot, Instant>,
    frozen_until: At,
    is_deaf: bool,
    is_mute: bool,
    is_gone: bool,
    leads: bool,
    /// From when on it holds the Lease of the whole program.
    guarded_from: Option<Instant>,
    leaves: bool,
}

impl Member {
    fn may_act(&self, now: At) -> bool {
        !self.is_gone && self.frozen_until <= now
    }
}

struct World {
    random: SmallRng,
    now: At,
    start: Instant,
    events: BTreeMap<(At, u64), Event>,
    sent: u64,
    leases: MemberLeases,
    versions: u64,
    copies: Vec<(At, MemberLeases)>,
    members: Vec<Member>,
    is_calm: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let (random, start) = (SmallRng::seed_from_u64(seed), Instant::now());
        let (events, leases, copies, members) = Default::default();
        let (now, sent, versions, is_calm) = Default::default();
        let mut world = Self { random, now, start, events, sent, leases, versions, copies, members, is_calm };
        (0..=seed % 4).for_each(|_| world.join());
        let first = world.random.random_range(20_000..40_000);
        world.later(first, Event::Trouble);
        world
    }

    fn later(&mut self, wait: At, event: Event) {
        self.sent += 1;
        self.events.insert((self.now + wait, self.sent), event);
    }

    fn join(&mut self) {
        let (who, seed) = (self.members.len(), self.random.random());
        let name: Arc<str> = format!("maps-{who}-{seed:x}").into();
        let of = SlotOf { by_name: false, slots: SLOTS };
        let claims = Claims::new(name.clone(), of, LEASE, seed);
        self.members.push(Member {
            name,
            claims,
            rate: self.random.random_range(0.9..1.1),
            since: self.now,
            version: None,
            renewed: None,
            next_renewal: self.start,
            next_list: self.start,
            writing: None,
            listing: None,
            reads: false,
            runs: BTreeMap::new(),
            frozen_until: 0,
            is_deaf: false,
            is_mute: false,
            is_gone: false,
            leads: false,
            guarded_from: None,
            leaves: false,
        });
        self.later(0, Event::Turn(who));
    }

    /// What a replica's clock shows.
    fn clock(&self, who: usize) -> Instant {
        let Member { rate, since, .. } = self.members[who];
        self.start + Duration::from_secs_f64((self.now - since) as f64 / 1_000.0 * rate)
    }

    fn travel_time(&mut self) -> At {
        let most = match (self.is_calm, self.random.random_ratio(1, 20)) {
            (true, _) => 20,
            (false, true) => 4_000,
            (false, false) => 100,
        };
        self.random.random_range(1..=most)
    }

    fn is_lost(&mut self) -> bool {
        !self.is_calm && self.random.random_ratio(3, 100)
    }

    fn send(&mut self, who: usize, ask: Ask) {
        let (now, time, is_lost) = (self.clock(who), self.travel_time(), self.is_lost());
        if !self.members[who].is_mute && !is_lost {
            self.later(time, Event::Arrives(who, ask, now));
        }
    }

    fn serve(&mut self, who: usize, ask: Ask, sent: Instant) {
        let name = self.members[who].name.clone();
        let current = self.leases.get(&name).map(|lease| lease.version.clone());
        let answer = match ask {
            Ask::List => Answer::Listed(self.listed()),
            Ask::Read => Answer::Read(current),
            Ask::Write { base, record } if base == current => {
                let version = self.version();
                let renewed = i64::try_from(self.versions).unwrap();
                let lease = MemberLease {
                    record: record.clone(),
                    version: version.clone(),
                    renewed,
                    lasts: LEASE,
                    is_broken: false,
                    has_left: false,
                };
                self.leases.insert(name, lease);
                Answer::Written(version, record)
            }
            Ask::Write { .. } => Answer::Refused,
        };
        let (time, is_lost) = (self.travel_time(), self.is_lost());
        if !self.members[who].is_deaf && !is_lost {
            self.later(time, Event::Answered(who, answer, sent));
        }
    }

    /// The Leases as replicas read them.
    fn listed(&self) -> MemberLeases {
        let of = SlotOf { by_name: false, slots: SLOTS };
        let read = |(name, lease): (&Arc<str>, &MemberLease)| {
            let (record, is_broken) = SlotRecord::read(Some(lease.record.clone()), name, of);
            (name.clone(), MemberLease { record, is_broken, ..lease.clone() })
        };
        self.leases.iter().map(read).collect()
    }

    fn version(&mut self) -> String {
        self.versions += 1;
        self.versions.to_string()
    }

    fn answered(&mut self, who: usize, answer: Answer, sent: Instant) {
        let now = self.clock(who);
        let guard = Duration::from_millis(self.random.random_range(5_000..25_000));
        let member = &mut self.members[who];
        let waits = match answer {
            Answer::Listed(_) => &mut member.listing,
            _ => &mut member.writing,
        };
        if waits.take_if(|waits| *waits == sent).is_none() {
            return;
        }
        match answer {
            Answer::Listed(leases) if member.leads => member.claims.listed(sent, now, leases),
            Answer::Listed(_) => {}
            Answer::Written(version, record) => {
                member.version = Some(version);
                member.claims.confirmed(record, now);
                if !member.leads {
                    member.guarded_from = Some(now + guard);
                }
                member.renewed = member.renewed.max(Some(sent));
                (member.leads, member.next_renewal) = (true, sent + Duration::from_secs(2));
            }
            Answer::Refused => member.reads = true,
            Answer::Read(version) => {
                (member.reads, member.version, member.next_renewal) = (false, version, now);
            }
        }
    }

    fn turn(&mut self, who: usize) {
        let now = self.clock(who);
        let longest_run = if self.is_calm { 1_000 } else { 20_000 };
        let run = Duration::from_millis(self.random.random_range(0..longest_run));
        let member = &mut self.members[who];
        if member.leads && member.renewed.is_none_or(|renewed| now - renewed >= DEADLINE) {
            (member.leads, member.renewed, member.guarded_from) = (false, None, None);
            member.claims.lost();
        }
        if member.guarded_from.take_if(|from| *from <= now).is_some() {
            member.claims.guarded(true, now);
        }
        if member.leaves {
            member.claims.leave(now);
        }
        let drains: BTreeSet<Slot> = member.claims.drains().collect();
        member.runs.retain(|slot, _| drains.contains(slot));
        for slot in drains {
            if *member.runs.entry(slot).or_insert(now + run) <= now {
                member.claims.drained(slot, now);
            }
        }
        member.writing.take_if(|sent| now - *sent >= PATIENCE).inspect(|_| member.reads = true);
        member.listing.take_if(|sent| now - *sent >= PATIENCE);
        let mut asks = Vec::new();
        if member.writing.is_none() && member.reads {
            asks.push(Ask::Read);
            member.writing = Some(now);
        } else if member.writing.is_none() {
            let before = member.claims.said().clone();
            let record = member.claims.record().clone();
            if record != before || now >= member.next_renewal {
                asks.push(Ask::Write { base: member.version.clone(), record });
                member.writing = Some(now);
            }
        }
        if member.leads && member.listing.is_none() && now >= member.next_list {
            asks.push(Ask::List);
            (member.listing, member.next_list) = (Some(now), now + Duration::from_millis(500));
        }
        member.is_gone |= member.leaves && member.claims.has_left();
        asks.into_iter().for_each(|ask| self.send(who, ask));
        let pause = self.random.random_range(50..150);
        self.later(pause, Event::Turn(who));
    }

    /// The slots in which something may run.
    fn at_work(&self, who: usize) -> Vec<Slot> {
        let (member, now) = (&self.members[who], self.clock(who));
        let may_work = member.renewed.is_some_and(|renewed| now < renewed + EXPIRY) && !member.is_gone;
        let claims = member.claims.works().chain(member.claims.drains());
        claims.filter(|_| may_work).collect()
    }

    fn trouble(&mut self) {
        let pause = self.random.random_range(500..8_500);
        self.later(pause, Event::Trouble);
        let who = self.random.random_range(0..self.members.len());
        let name = self.members[who].name.clone();
        let here = |member: &&Member| !member.is_gone && !member.leaves;
        let count = self.members.iter().filter(here).count();
        // All replicas that are not cut off have listed since.
        let back = self.random.random_range(OLD_ENOUGH..40_000);
        let copy =
            self.copies.iter().rev().find(|(at, _)| at + back <= self.now).map(|(_, copy)| copy.clone());
        match self.random.random_range(0..12) {
            0 | 1 if count < MOST_MEMBERS => self.join(),
            2 if count > 1 => self.members[who].is_gone = true,
            3 => self.members[who].frozen_until = self.now + self.random.random_range(0..30_000),
            4 => self.members[who].is_mute ^= true,
            5 => self.members[who].is_deaf ^= true,
            6 => drop(self.leases.remove(&name)),
            7 => {
                self.leases = copy.unwrap_or_default();
                for name in self.leases.keys().cloned().collect::<Vec<_>>() {
                    self.rewrite(&name, |_| {});
                }
            }
            8 => {
                if let Some(older) = copy.and_then(|copy| copy.get(&name).cloned()) {
                    self.leases.insert(name.clone(), older);
                    self.rewrite(&name, |_| {});
                }
            }
            9 if count > 1 => self.members[who].leaves = true,
            10 => self.rewrite(&name, |record| record.claims.clear()),
            _ => self.members.iter_mut().for_each(|member| (member.is_deaf, member.is_mute) = (false, false)),
        }
    }

    fn rewrite(&mut self, name: &str, edit: impl FnOnce(&mut SlotRecord)) {
        let version = self.version();
        if let Some(lease) = self.leases.get_mut(name) {
            edit(&mut lease.record);
            lease.version = version;
        }
    }

    fn end_troubles(&mut self) {
        self.is_calm = true;
        for member in &mut self.members {
            (member.is_deaf, member.is_mute, member.frozen_until) = (false, false, 0);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Turn(who) | Event::Answered(who, ..) if self.members[who].is_gone => {}
            Event::Turn(who) | Event::Answered(who, ..) if !self.members[who].may_act(self.now) => {
                self.later(self.members[who].frozen_until - self.now, event);
            }
            Event::Turn(who) => self.turn(who),
            Event::Answered(who, answer, sent) => self.answered(who, answer, sent),
            Event::Arrives(who, ask, sent) => self.serve(who, ask, sent),
            Event::Trouble if self.is_calm => {}
            Event::Trouble => self.trouble(),
        }
    }

    /// Plays until all is at rest.
    ///
    /// # Errors
    /// What went wrong.
    fn play(mut self) -> Result<(), String> {
        while let Some(((at, _), event)) = self.events.pop_first() {
            self.now = at;
            if at > TROUBLED + CALM {
                break;
            }
            if at > TROUBLED && !self.is_calm {
                self.end_troubles();
            }
            if self.copies.last().is_none_or(|(last, _)| at - last > 200) {
                self.copies.push((at, self.leases.clone()));
            }
            self.happen(event);
            let mut working = BTreeMap::new();
            for who in 0..self.members.len() {
                for slot in self.at_work(who) {
                    if let Some(other) = working.insert(slot, who) {
                        return Err(format!("at {at} ms {other} and {who} work on slot {slot}"));
                    }
                }
            }
        }
        let here: Vec<_> = (0..self.members.len())
            .filter(|who| !self.members[*who].is_gone && !self.members[*who].leaves)
            .collect();
        let shares: Vec<usize> = here.iter().map(|who| self.at_work(*who).len()).collect();
        let is_even =
            shares.iter().max().zip(shares.iter().min()).is_none_or(|(most, least)| most - least <= 1);
        let all: usize = shares.iter().sum();
        match is_even && (here.is_empty() || all == usize::from(SLOTS)) {
            true => Ok(()),
            false => Err(format!("at rest, the shares are {shares:?}")),
        }
    }
}

/// Returns the seeds to play: a few, or those that the environment names.
fn seeds(few: u64) -> Range<u64> {
    let named = |name: &str| std::env::var(name).ok().and_then(|number| number.parse().ok());
    let from = named("WATCHKEEPER_SHARD_FROM").unwrap_or(0);
    from..from + named("WATCHKEEPER_SHARD_SEEDS").unwrap_or(few)
}

// H2
#[tokio::test(start_paused = true)]
async fn whatever_goes_wrong_two_replicas_never_work_on_one_slot_and_all_are_worked_on_in_the_end() {
    let played =
        seeds(10).map(|seed| World::new(seed).play().map_err(|error| format!("seed {seed}: {error}")));
    let failures: Vec<_> = played.filter_map(Result::err).collect();
    assert!(failures.is_empty(), "{}: {failures:#?}", failures.len());
}

// H2
#[tokio::test(start_paused = true)]
async fn a_claim_is_not_verified_while_a_record_is_on_its_way_that_takes_it_back() {
    let (me, other): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
    let of = SlotOf { by_name: false, slots: SLOTS };
    let (mut claims, mut version) = (Claims::new(me.clone(), of, LEASE, 0), 0);
    let mut lease = |record: &SlotRecord| {
        version += 1;
        let (record, lasts, renewed) = (record.clone(), LEASE, version);
        MemberLease {
            record,
            version: version.to_string(),
            renewed,
            lasts,
            is_broken: false,
            has_left: false,
        }
    };
    let mut list = |claims: &mut Claims, own: &SlotRecord, theirs: Option<&SlotRecord>| {
        let theirs = theirs.map(|theirs| (other.clone(), lease(theirs)));
        let leases = theirs.into_iter().chain([(me.clone(), lease(own))]).collect();
        claims.listed(Instant::now(), Instant::now(), leases);
    };
    claims.guarded(true, Instant::now());
    for _ in 0..10 {
        let said = claims.record().clone();
        claims.confirmed(said.clone(), Instant::now());
        list(&mut claims, &said, None);
        advance(Duration::from_secs(2)).await;
    }
    let first = claims.record().clone();
    assert_eq!(claims.works().count(), usize::from(SLOTS));
    // Another replica comes, and a slot is handed over to it. That record is slow.
    let theirs = SlotRecord { number: 1, takes_part: true, slots: SLOTS, ..SlotRecord::default() };
    list(&mut claims, &first, Some(&theirs));
    let slot = claims.drains().next().unwrap();
    claims.drained(slot, Instant::now());
    let second = claims.record().clone();
    assert!(second.gives.contains_key(&slot));
    // It goes, and the slot is claimed again.
    list(&mut claims, &first, Some(&SlotRecord { number: 2, takes_part: false, ..theirs.clone() }));
    let third = claims.record().clone();
    assert!(third.claims.contains(&slot));
    let gone = SlotRecord { number: 2, takes_part: false, ..theirs };
    for said in [&first, &second, &third] {
        claims.confirmed(said.clone(), Instant::now());
        advance(Duration::from_millis(250)).await;
        list(&mut claims, said, Some(&gone));
        assert_eq!(claims.works().any(|works| works == slot), said == &third, "{said:?}");
    }
}

// H4
#[test]
fn slots_are_shared_out_evenly_and_few_move() {
    let names = |count: usize| (0..count).map(|at| format!("maps-{at}").into()).collect::<Vec<Arc<str>>>();
    assert!(shared_out(&[], 64).is_empty());
    for count in 1..=10 {
        let (before, after) = (shared_out(&names(count), 64), shared_out(&names(count + 1), 64));
        let share = |name: &Arc<str>| before.values().filter(|owner| *owner == name).count();
        let shares: Vec<_> = names(count).iter().map(share).collect();
        assert!(
            shares.iter().all(|share| (64 / count..=64_usize.div_ceil(count)).contains(share)),
            "{shares:?}"
        );
        let moved = before.iter().filter(|(slot, owner)| after[slot] != **owner).count();
        assert!(moved <= 2 * 64 / (count + 1) + 3, "{moved} of 64 move when {} come to {count}", 1);
    }
}
