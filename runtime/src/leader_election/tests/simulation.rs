//! Elections in a world of bad clocks, a bad network and meddlers: never do two replicas work at a time.
//!
//! What the world keeps to: monotonic clocks run at rates that differ by less than 1.2, and of a replica's two clocks one
//! at least goes on. Nobody writes what a holder writes who releases the Lease. Strangers edit every field, forge
//! renewals, and restore what the Lease was before.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashSet},
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    clock::{ClockReading, WallClock},
    leader_election::{
        elector::{Do, Elector, LeaseAnswer},
        gate::TermGate,
        record::{LeaseRecord, StoredLease, micro_time},
        settings::{LeaderElection, Timing},
    },
};

const SECOND: f64 = 1.0;
/// How long troubles last, and how long the world goes on without.
const TROUBLED: f64 = 120.0;
const END: f64 = 200.0;

/// A moment of the world's own time, in seconds; ordered, and distinct by the number.
#[derive(Clone, Copy, Debug, PartialEq)]
struct At(f64, u64);

impl Eq for At {}

impl PartialOrd for At {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for At {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0).then(self.1.cmp(&other.1))
    }
}

/// What happens.
#[derive(Debug)]
enum Event {
    /// A replica goes on with its election; the number is that of the process.
    Turn(usize, u64),
    /// A replica's worker tries to send something.
    Work(usize),
    /// A request reaches the server.
    Arrives {
        who: usize,
        request: u64,
        what: Do,
    },
    /// An answer reaches its replica.
    Answered {
        who: usize,
        request: u64,
        answer: LeaseAnswer,
    },
    Trouble,
}

/// Two clocks that a world drives, each at its own rate.
struct Clocks {
    /// Where both stood, in world time, and what they showed.
    since: f64,
    monotonic: f64,
    wall: f64,
    rate: f64,
    /// Until when the monotonic clock stands still.
    asleep_until: f64,
    /// Set back, and nobody has looked since: to sleep now would go unnoticed.
    set_back: bool,
}

impl Clocks {
    fn settle(&mut self, now: f64) {
        let awake = now - self.asleep_until.clamp(self.since, now);
        self.wall += (now - self.since) * self.rate;
        self.monotonic += awake * self.rate;
        self.since = now;
    }
}

/// A request that a replica waits for.
struct Waits {
    request: u64,
    sent: ClockReading,
    /// By its monotonic clock.
    until: Instant,
}

struct Replica {
    clocks: Clocks,
    elector: Elector,
    gate: TermGate,
    waits: Option<Waits>,
    /// Until when the process does nothing, whatever its clocks do.
    stopped_until: f64,
    /// Until when requests, and replies, get lost.
    deaf_until: [f64; 2],
    /// Until when half of all requests fail at once, or lose their answers.
    failing_until: f64,
    /// The number of the process; processes with other numbers are dead.
    process: u64,
    /// The term under way, and what its workers do.
    term: Option<u64>,
    leaving: bool,
}

struct World {
    random: SmallRng,
    now: f64,
    events: BinaryHeap<Reverse<(At, usize)>>,
    pending: Vec<Option<Event>>,
    replicas: Vec<Replica>,
    lease: Option<StoredLease>,
    /// What it was before.
    copies: Vec<LeaseRecord>,
    version: u64,
    requests: u64,
    terms: u64,
    epoch: ClockReading,
    /// Who worked last, and whose time is over.
    working: Option<u64>,
    over: HashSet<u64>,
    worked_at: f64,
    take_overs: u64,
    /// The events, for the report of a failure.
    story: Vec<String>,
}

fn timing() -> Timing {
    LeaderElection::new("a").timing
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            random: SmallRng::seed_from_u64(seed),
            now: 0.0,
            events: BinaryHeap::new(),
            pending: Vec::new(),
            replicas: Vec::new(),
            lease: None,
            copies: Vec::new(),
            version: 0,
            requests: 0,
            terms: 0,
            epoch: ClockReading {
                monotonic: Instant::now(),
                wall: UNIX_EPOCH + Duration::from_secs(1_700_000_000),
            },
            working: None,
            over: HashSet::new(),
            worked_at: 0.0,
            take_overs: 0,
            story: Vec::new(),
        };
        for who in 0..world.random.random_range(2..5) {
            let replica = world.replica(who, 0);
            world.replicas.push(replica);
            world.after(0.0, Event::Turn(who, 0));
            world.after(0.1, Event::Work(who));
        }
        world.after(5.0, Event::Trouble);
        world
    }

    fn replica(&mut self, who: usize, process: u64) -> Replica {
        let clocks = Clocks {
            since: self.now,
            monotonic: self.random.random_range(1.0..1e4),
            wall: self.random.random_range(-1e5..1e5),
            rate: self.random.random_range(0.94..1.06),
            asleep_until: 0.0,
            set_back: false,
        };
        // Now and then two bear one name, or one bears that of its predecessor.
        let identity: Arc<str> = match self.random.random_bool(0.3) {
            true => "same".into(),
            false => format!("replica-{who}-{process}").into(),
        };
        let now = self.epoch.monotonic + Duration::from_secs_f64(clocks.monotonic);
        Replica {
            clocks,
            elector: Elector::new(identity, timing(), self.random.random(), now),
            gate: TermGate::new(WallClock::system(), timing().expiry()),
            waits: None,
            stopped_until: 0.0,
            deaf_until: [0.0; 2],
            failing_until: 0.0,
            process,
            term: None,
            leaving: false,
        }
    }

    fn tell(&mut self, what: impl std::fmt::Display) {
        self.story.push(format!("{:8.3} s  {what}", self.now));
    }

    fn after(&mut self, wait: f64, event: Event) {
        self.pending.push(Some(event));
        let id = self.pending.len();
        self.events.push(Reverse((At(self.now + wait.max(0.0), id as u64), id - 1)));
    }

    fn run(mut self) -> Self {
        while let Some(Reverse((At(at, _), id))) = self.events.pop() {
            if at > END {
                break;
            }
            self.now = at;
            if let Some(event) = self.pending[id].take() {
                self.happens(event);
            }
        }
        self
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Turn(who, process) => self.turn(who, process),
            Event::Work(who) => self.work(who),
            Event::Arrives { who, request, what } => self.arrives(who, request, what),
            Event::Answered { who, request, answer } => self.answered(who, request, answer),
            Event::Trouble => self.trouble(),
        }
    }

    fn reading(&mut self, who: usize) -> ClockReading {
        let (now, ClockReading { monotonic, wall }) = (self.now, self.epoch);
        let clocks = &mut self.replicas[who].clocks;
        clocks.settle(now);
        let by = Duration::from_secs_f64(clocks.wall.abs());
        ClockReading {
            monotonic: monotonic + Duration::from_secs_f64(clocks.monotonic),
            wall: if clocks.wall < 0.0 { wall - by } else { wall + by },
        }
    }

    /// What the shell does, between two waits.
    fn turn(&mut self, who: usize, process: u64) {
        if self.replicas[who].process != process {
            return;
        }
        let stopped = self.replicas[who].stopped_until;
        if stopped > self.now {
            return self.after(stopped - self.now, Event::Turn(who, process));
        }
        let now = self.reading(who);
        let pause = self.random.random_range(0.0..0.02);
        let replica = &mut self.replicas[who];
        if let Some(waits) = &replica.waits {
            if now.monotonic < waits.until {
                return self.after(0.05, Event::Turn(who, process));
            }
            let sent = waits.sent;
            replica.waits = None;
            replica.elector.answered(sent, now, LeaseAnswer::Unknown);
        }
        if replica.term.is_some() && !replica.leaving && replica.elector.loss(now).is_some() {
            // Workers end when they like, and when the gate shuts at the latest; then it stands by again.
            let taken =
                matches!(replica.elector.loss(now), Some(crate::leader_election::elector::Loss::TakenBy(_)));
            let ends =
                taken || self.random.random_bool(0.05) || self.replicas[who].gate.pass_at(now).is_err();
            let replica = &mut self.replicas[who];
            if !ends {
                return self.after(0.05, Event::Turn(who, process));
            }
            replica.gate.close();
            replica.term = None;
            replica.elector.stand_by(now.monotonic);
        }
        let replica = &mut self.replicas[who];
        match replica.elector.next(now) {
            Do::Nothing => {
                let next = self.replica(who, process + 1);
                self.replicas[who] = next;
                self.after(pause, Event::Turn(who, process + 1));
            }
            Do::Wait(due) => {
                let left = due.saturating_duration_since(now.monotonic).as_secs_f64();
                self.after(left.clamp(0.001, SECOND) + pause, Event::Turn(who, process));
            }
            what => self.send(who, now, what),
        }
    }

    fn send(&mut self, who: usize, sent: ClockReading, what: Do) {
        self.requests += 1;
        let (request, process) = (self.requests, self.replicas[who].process);
        let until = sent.monotonic + self.replicas[who].elector.patience;
        self.replicas[who].waits = Some(Waits { request, sent, until });
        let lost = self.replicas[who].deaf_until[0] > self.now || self.trouble_strikes(0.05);
        let failing = self.replicas[who].failing_until > self.now && self.random.random_bool(0.5);
        let carried_out = !failing || self.random.random_bool(0.3);
        if failing {
            let delay = self.random.random_range(0.001..0.1);
            self.after(delay, Event::Answered { who, request, answer: LeaseAnswer::Unknown });
        }
        if !lost && carried_out {
            let delay = self.delay();
            self.after(delay, Event::Arrives { who, request, what });
        }
        self.after(0.05, Event::Turn(who, process));
    }

    fn trouble_strikes(&mut self, chance: f64) -> bool {
        self.now < TROUBLED && self.random.random_bool(chance)
    }

    /// Mostly short, sometimes longer than anybody waits.
    fn delay(&mut self) -> f64 {
        match self.trouble_strikes(0.1) {
            true => self.random.random_range(0.0..40.0),
            false => self.random.random_range(0.001..0.1),
        }
    }

    fn arrives(&mut self, who: usize, request: u64, what: Do) {
        let answer = match what {
            Do::Read => self.lease.clone().map_or(LeaseAnswer::Absent, LeaseAnswer::Found),
            Do::Write { base, record } if self.lease.as_ref() == base.as_deref() => {
                let uid =
                    base.map_or_else(|| json!(self.requests), |base| base.object["metadata"]["uid"].clone());
                LeaseAnswer::Written(self.store(*record, uid))
            }
            Do::Write { .. } => LeaseAnswer::Refused,
            Do::Wait(_) | Do::Nothing => unreachable!("nothing is sent"),
        };
        let lost = self.replicas[who].deaf_until[1] > self.now || self.trouble_strikes(0.05);
        if !lost {
            let delay = self.delay();
            self.after(delay, Event::Answered { who, request, answer });
        }
    }

    fn store(&mut self, record: LeaseRecord, uid: serde_json::Value) -> StoredLease {
        self.version += 1;
        let object = json!({"metadata": {"uid": uid, "resourceVersion": self.version.to_string()}});
        let version = self.version;
        self.tell(format_args!("version {version} is {record:?}"));
        self.copies.push(record.clone());
        let stored = StoredLease { record, object };
        self.lease = Some(stored.clone());
        stored
    }

    fn answered(&mut self, who: usize, request: u64, answer: LeaseAnswer) {
        let stopped = self.replicas[who].stopped_until;
        if stopped > self.now {
            return self.after(stopped - self.now, Event::Answered { who, request, answer });
        }
        let now = self.reading(who);
        let replica = &mut self.replicas[who];
        let Some(waits) = replica.waits.take_if(|waits| waits.request == request) else { return };
        if now.monotonic >= waits.until {
            return replica.elector.answered(waits.sent, now, LeaseAnswer::Unknown);
        }
        replica.elector.answered(waits.sent, now, answer);
        if let Some(sent) = replica.elector.take_confirmed().filter(|_| replica.elector.leads()) {
            replica.gate.renewed(sent);
            if replica.term.is_none() {
                self.terms += 1;
                self.replicas[who].term = Some(self.terms);
                let term = self.terms;
                self.tell(format_args!("replica {who} wins term {term}"));
            }
        }
    }

    /// A worker of a replica tries to send something, whatever it knows of the election.
    fn work(&mut self, who: usize) {
        let again = self.random.random_range(0.1..0.9);
        self.after(again, Event::Work(who));
        if self.replicas[who].stopped_until > self.now {
            return;
        }
        let now = self.reading(who);
        let replica = &mut self.replicas[who];
        replica.clocks.set_back = false;
        let Some(term) = replica.term.filter(|_| replica.gate.pass_at(now).is_ok()) else { return };
        if self.over.contains(&term) {
            let story = self.story.split_off(self.story.len().saturating_sub(60)).join(
                "
",
            );
            panic!(
                "two at work: replica {who} in term {term} at {:.3} s
{story}",
                self.now
            );
        }
        if let Some(before) = self.working.replace(term).filter(|before| *before != term) {
            self.over.insert(before);
            self.take_overs += 1;
            self.tell(format_args!("replica {who} works in term {term}"));
        }
        self.worked_at = self.now;
    }

    fn trouble(&mut self) {
        let (next, length) = (self.random.random_range(0.5..15.0), self.random.random_range(0.5..45.0));
        if self.now + next < TROUBLED {
            self.after(next, Event::Trouble);
        }
        let until = (self.now + length).min(TROUBLED);
        let trouble = self.random.random_range(0..12);
        let who = self.random.random_range(0..self.replicas.len());
        self.reading(who);
        let replica = &self.replicas[who];
        let awake = replica.stopped_until <= self.now && replica.clocks.asleep_until <= self.now;
        self.tell(format_args!("trouble {trouble} for replica {who} until {until:.3} s"));
        let replica = &self.replicas[who];
        match trouble {
            0 => self.replicas[who].deaf_until = [until, until],
            1 => self.replicas[who].deaf_until[0] = until,
            2 => self.replicas[who].deaf_until[1] = until,
            // Stopped, its clocks go on; or the machine sleeps, and the wall clock alone does.
            3 => self.replicas[who].stopped_until = until,
            4 if awake && !replica.clocks.set_back => {
                let replica = &mut self.replicas[who];
                replica.clocks.asleep_until = until;
                // Or a clock that is broken, while the process goes on.
                replica.stopped_until = if self.random.random_bool(0.7) { until } else { self.now };
            }
            5 => self.jump(who, awake),
            6 => self.restart(who),
            7 if awake => self.leave(who),
            8 => self.replicas[who].failing_until = until,
            _ => self.meddle(),
        }
    }

    fn jump(&mut self, who: usize, awake: bool) {
        let by: f64 = self.random.random_range(-900.0..900.0);
        let clocks = &mut self.replicas[who].clocks;
        if awake || by > 0.0 {
            clocks.wall += by;
            clocks.set_back |= by < 0.0;
        }
    }

    /// Killed and restarted, perhaps elsewhere.
    fn restart(&mut self, who: usize) {
        let process = self.replicas[who].process + 1;
        let next = self.replica(who, process);
        self.replicas[who] = next;
        self.after(1.0, Event::Turn(who, process));
    }

    /// Stops politely: nothing runs any more, then the Lease is released.
    fn leave(&mut self, who: usize) {
        let now = self.reading(who);
        let replica = &mut self.replicas[who];
        replica.gate.close();
        (replica.term, replica.leaving) = (None, true);
        replica.waits = None;
        replica.elector.release(now.monotonic);
    }

    fn meddle(&mut self) {
        let Some(lease) = self.lease.clone() else { return };
        let mut record = lease.record;
        let seconds = Duration::from_secs([2, 15, 60][self.random.random_range(0..3)]);
        match self.random.random_range(0..12) {
            0 => {
                self.tell("the Lease is deleted");
                self.lease = None;
            }
            1 => record.holder = "replica-0-0".into(),
            2 if record.duration != Some(SECOND_LONG) => record.holder.clear(),
            3 if !record.holder.is_empty() => record.duration = Some(SECOND_LONG),
            4 => record.renewed = micro_time(self.random.random_range(0..i64::from(u32::MAX))),
            5 => record.acquired = micro_time(self.random.random_range(0..i64::from(u32::MAX))),
            6 if !record.holder.is_empty() => {
                (record.renewed, record.duration) = (micro_time(i64::MAX / 1_000), Some(seconds));
            }
            7 if !record.holder.is_empty() => record.duration = Some(seconds),
            8 => record.transitions = i64::from(i32::MAX),
            9 | 10 => record = self.older(record),
            _ => record.transitions = (record.transitions + 7).min(i64::from(i32::MAX)),
        }
        if self.lease.is_some() {
            self.store(record, lease.object["metadata"]["uid"].clone());
        }
    }
}

impl World {
    /// What the Lease was before, and somebody has a copy of: never one that was released.
    fn older(&mut self, present: LeaseRecord) -> LeaseRecord {
        let held = self.copies.iter().filter(|copy| !copy.is_released()).count();
        let chosen = self.random.random_range(0..held.max(1));
        self.copies.iter().filter(|copy| !copy.is_released()).nth(chosen).cloned().unwrap_or(present)
    }
}

const SECOND_LONG: Duration = Duration::from_secs(1);

fn seeds() -> std::ops::Range<u64> {
    let many = std::env::var("WATCHKEEPER_ELECTION_WORLDS").ok().and_then(|many| many.parse().ok());
    0..many.unwrap_or(500)
}

// L5 L6 L14 L15
#[test]
fn never_do_two_replicas_work_at_a_time() {
    let (mut take_overs, mut terms) = (0, 0);
    for seed in seeds() {
        let world = std::panic::catch_unwind(|| World::new(seed).run());
        let world = world.unwrap_or_else(|_| panic!("seed {seed}"));
        assert!(world.worked_at > END - 20.0, "seed {seed}: nobody works in the end: {}", world.worked_at);
        take_overs += world.take_overs;
        terms += world.terms;
    }
    assert!(
        take_overs > seeds().end && terms > take_overs,
        "{take_overs} take-overs in {terms} terms prove little"
    );
}
