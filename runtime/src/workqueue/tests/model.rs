//! The schedule compared with a naive model: vectors, searched from end to end.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::workqueue::clock::At;
use crate::workqueue::entries::{EntryPlace, EntryWait, Meanwhile};
use crate::workqueue::schedule::{Offer, Schedule};
use crate::workqueue::tenants::TenantOf;
use crate::workqueue::{Outcome, RateLimit};

const KEYS: u8 = 6;
const TENANTS: usize = 3;
const FLOOR: u64 = 40;

/// The back-off of both, in milliseconds.
fn step_of(failures: u32) -> u64 {
    (5u64 << (failures - 1).min(20)).min(300)
}

#[derive(Clone, Debug, PartialEq)]
enum Naive {
    Rest,
    Waits(Wait),
    AwaitsToken { floor: u64 },
    Ready,
    Runs(Run),
}

/// What keeps a key waiting.
#[derive(Clone, Debug, Default, PartialEq)]
struct Wait {
    /// The delay that was asked for, if anything asks for a run.
    delay: Option<u64>,
    gate: u64,
    floor: u64,
    retry: bool,
    terminal: bool,
    held: u64,
    order: u64,
}

impl Wait {
    /// Says where the key is, and until when.
    fn place(&self) -> (EntryPlace, u64) {
        let due = self.delay.map(|delay| delay.max(self.gate));
        match due {
            None if self.held > 0 => (EntryPlace::Waits(EntryWait::Held), self.held),
            None if self.terminal => (EntryPlace::Waits(EntryWait::Terminal), u64::MAX),
            None => (EntryPlace::Idle, 0),
            Some(due) if self.held > due => (EntryPlace::Waits(EntryWait::Held), self.held),
            Some(due) => (EntryPlace::Waits(EntryWait::Delayed), due),
        }
    }
}

/// What came during a run.
#[derive(Clone, Debug, Default, PartialEq)]
struct Run {
    changed: bool,
    touched: bool,
    delay: Option<u64>,
    gate: u64,
    floor: u64,
    retry: bool,
    held: u64,
}

/// A bucket that holds thousandths of a millisecond's worth.
#[derive(Debug)]
struct NaiveBucket {
    period: u64,
    burst: u64,
    spent_until: u64,
}

impl NaiveBucket {
    fn take(&mut self, now: u64) -> bool {
        let granted = self.spent_until.max(now) <= now + self.period * (self.burst - 1);
        if granted {
            self.spent_until = self.spent_until.max(now) + self.period;
        }
        granted
    }
}

#[derive(Debug)]
struct Model {
    now: u64,
    keys: Vec<(Naive, u32)>,
    /// Retries in a row that counted for nothing, by key.
    uncounted: Vec<u32>,
    /// What is ready, as it came.
    ready: Vec<u8>,
    /// The same, in queue order: high, normal, low.
    lines: [Vec<u8>; 3],
    /// What was asked for the next run, by key.
    asked: Vec<Priority>,
    /// Counts the grants of each tenant since it has had keys; `None` without any.
    grants: [Option<u64>; TENANTS],
    /// The number of each tenant's last turn; that of its first key counts as one.
    last_turns: [u64; TENANTS],
    awaits_token: bool,
    turns: u64,
    /// Whether the keys are shared out between tenants.
    shared: bool,
    awaiting: Vec<u8>,
    order: u64,
    rate: Option<NaiveBucket>,
    retry_rate: Option<NaiveBucket>,
    mode: NaiveMode,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum NaiveMode {
    Open,
    Draining,
    Discarding,
}

impl Model {
    fn promote(&mut self) {
        loop {
            let due = |key: u8| match &self.keys[key as usize].0 {
                Naive::Waits(wait) => Some((wait.place().1, wait.order)),
                _ => None,
            };
            let next = (0..KEYS).filter_map(|key| Some((due(key)?, key))).min();
            let Some(((_, _), key)) = next.filter(|((due, _), _)| *due <= self.now) else { break };
            let Naive::Waits(wait) = self.keys[key as usize].0.clone() else { unreachable!("it waits") };
            self.wait(key, wait);
        }
        self.serve_retries();
        self.note_tenants();
    }

    fn serve_retries(&mut self) {
        while !self.awaiting.is_empty() && self.retry_rate.as_mut().is_some_and(|rate| rate.take(self.now)) {
            let key = self.awaiting.remove(0);
            self.keys[key as usize].0 = Naive::Ready;
            self.line_up(key);
        }
    }

    fn tenant(&self, key: u8) -> usize {
        if self.shared { key as usize % TENANTS } else { 0 }
    }

    /// Notes which tenants have keys by now.
    fn note_tenants(&mut self) {
        for tenant in 0..TENANTS {
            let is_known = |key: u8| {
                let (naive, failures) = &self.keys[key as usize];
                self.tenant(key) == tenant && (*naive != Naive::Rest || *failures > 0)
            };
            match ((0..KEYS).any(is_known) || !self.shared, self.grants[tenant]) {
                (true, None) => {
                    self.turns += 1;
                    (self.grants[tenant], self.last_turns[tenant]) = (Some(0), self.turns);
                }
                (false, _) => self.grants[tenant] = None,
                (true, Some(_)) => {}
            }
        }
    }

    fn line_up(&mut self, key: u8) {
        self.ready.push(key);
        self.line_of(key).push(key);
    }

    fn line_of(&mut self, key: u8) -> &mut Vec<u8> {
        match self.asked[key as usize] {
            Priority::High => &mut self.lines[0],
            Priority::Normal => &mut self.lines[1],
            Priority::Low => &mut self.lines[2],
        }
    }

    fn leave_line(&mut self, key: u8) {
        self.ready.retain(|other| *other != key);
        self.line_of(key).retain(|other| *other != key);
    }

    fn raise(&mut self, key: u8, priority: Priority) {
        if priority > self.asked[key as usize] {
            self.line_of(key).retain(|other| *other != key);
            self.asked[key as usize] = priority;
            if self.keys[key as usize].0 == Naive::Ready {
                self.leave_line(key);
                self.line_up(key);
            }
        }
    }

    /// Puts a key where it belongs.
    fn wait(&mut self, key: u8, mut wait: Wait) {
        if wait.held <= self.now {
            wait.held = 0;
        }
        let was = std::mem::replace(&mut self.keys[key as usize].0, Naive::Rest);
        self.leave_line(key);
        self.awaiting.retain(|other| *other != key);
        if wait.delay.is_none() {
            self.asked[key as usize] = Priority::Low;
        }
        self.keys[key as usize].0 = match wait.place() {
            (EntryPlace::Idle, _) => return,
            (_, until) if until > self.now => {
                wait.order = match was {
                    Naive::Waits(was) if was.place() == wait.place() => was.order,
                    _ => {
                        self.order += 1;
                        self.order
                    }
                };
                Naive::Waits(wait)
            }
            _ if wait.retry && self.retry_rate.is_some() => Naive::AwaitsToken { floor: wait.floor },
            _ => Naive::Ready,
        };
        match self.keys[key as usize].0 {
            Naive::AwaitsToken { .. } => {
                self.awaiting.push(key);
                self.serve_retries();
            }
            Naive::Ready => self.line_up(key),
            _ => {}
        }
    }

    /// Returns what a key that is neither ready nor in flight waits for.
    fn waits(&self, key: u8) -> Option<Wait> {
        match &self.keys[key as usize].0 {
            Naive::Rest => Some(Wait::default()),
            Naive::Waits(wait) => Some(wait.clone()),
            Naive::AwaitsToken { floor } => {
                Some(Wait { delay: Some(0), floor: *floor, retry: true, ..Wait::default() })
            }
            Naive::Ready | Naive::Runs(_) => None,
        }
    }

    fn hold(&mut self, key: u8, at_most: u64) {
        self.promote();
        let held = self.now + at_most;
        if let Naive::Runs(run) = &mut self.keys[key as usize].0 {
            run.held = held;
        } else if self.mode != NaiveMode::Open {
            self.leave_line(key);
            self.keys[key as usize] = (Naive::Rest, 0);
        } else {
            let ready = Wait { delay: Some(0), ..Wait::default() };
            self.wait(key, Wait { held, ..self.waits(key).unwrap_or(ready) });
        }
    }

    fn release(&mut self, key: u8) {
        self.promote();
        match self.keys[key as usize].0.clone() {
            Naive::Runs(run) => self.keys[key as usize].0 = Naive::Runs(Run { held: 0, ..run }),
            Naive::Waits(wait) => self.wait(key, Wait { held: 0, ..wait }),
            _ => {}
        }
    }

    /// Something is said of a key: it counts while the queue is open.
    fn says(&mut self, key: u8, said: impl FnOnce(&mut Self, u8)) {
        if self.mode == NaiveMode::Open {
            self.promote();
            said(self, key);
        }
    }

    fn add(&mut self, key: u8, priority: Priority) {
        self.raise(key, priority);
        if let Naive::Runs(run) = &mut self.keys[key as usize].0 {
            run.changed = true;
        } else if let Some(wait) = self.waits(key) {
            let gate = wait.gate.min(wait.floor);
            self.wait(key, Wait { delay: Some(0), gate, retry: false, terminal: false, ..wait });
        }
    }

    fn touch(&mut self, key: u8, priority: Priority) {
        match (self.waits(key), &mut self.keys[key as usize].0) {
            (_, Naive::Ready) => self.raise(key, priority),
            (_, Naive::Runs(run)) if run.delay.is_none() => {
                run.touched = true;
                self.raise(key, priority);
            }
            (Some(wait), _) if wait.delay.is_none() && !wait.terminal => {
                self.raise(key, priority);
                self.wait(key, Wait { delay: Some(0), ..wait });
            }
            _ => {}
        }
    }

    fn add_after(&mut self, key: u8, delay: u64, priority: Priority) {
        self.raise(key, priority);
        let at = self.now + delay;
        match &mut self.keys[key as usize].0 {
            Naive::Ready | Naive::AwaitsToken { .. } => {}
            Naive::Runs(run) => run.delay = Some(run.delay.map_or(at, |delay| delay.min(at))),
            Naive::Rest | Naive::Waits(_) => {
                let wait = self.waits(key).unwrap();
                let delay = Some(wait.delay.map_or(at, |delay| delay.min(at)));
                self.wait(key, Wait { delay, terminal: false, ..wait });
            }
        }
    }

    fn add_rate_limited(&mut self, key: u8, priority: Priority) {
        self.raise(key, priority);
        self.keys[key as usize].1 += 1;
        let wait = step_of(self.keys[key as usize].1);
        let (until, floor) = (self.now + wait, self.now + wait.min(FLOOR));
        if let Naive::Runs(run) = &mut self.keys[key as usize].0 {
            let gate = run.gate.max(until);
            let delay = Some(run.delay.map_or(gate, |delay| delay.min(gate)));
            *run = Run { delay, gate, floor, retry: true, ..run.clone() };
        } else if let Some(wait) = self.waits(key) {
            let gate = wait.gate.max(until);
            let delay = Some(wait.delay.map_or(gate, |delay| delay.min(gate)));
            self.wait(key, Wait { delay, gate, floor, retry: true, terminal: false, ..wait });
        }
    }

    fn forget(&mut self, key: u8) {
        let (naive, failures) = &mut self.keys[key as usize];
        *failures = 0;
        if let Naive::Waits(wait) = naive
            && wait.terminal
        {
            *wait = Wait { held: wait.held, order: wait.order, ..Wait::default() };
            if wait.held == 0 {
                *naive = Naive::Rest;
            }
        }
    }

    fn take(&mut self) -> Option<(u8, u32, Priority)> {
        self.promote();
        if self.ready.is_empty() {
            return None;
        }
        if self.rate.as_mut().is_some_and(|rate| !rate.take(self.now)) {
            self.awaits_token = true;
            return None;
        }
        let awaited_token = std::mem::take(&mut self.awaits_token);
        let runs = |tenant| {
            let its = (0..KEYS).filter(|key| self.tenant(*key) == tenant);
            its.filter(|key| matches!(self.keys[*key as usize].0, Naive::Runs(_))).count()
        };
        // A token that was waited for goes to the one served longest ago.
        let turn = |tenant: usize| (if awaited_token { 0 } else { runs(tenant) }, self.last_turns[tenant]);
        let tenant =
            self.ready.iter().map(|key| self.tenant(*key)).min_by_key(|tenant| turn(*tenant)).unwrap();
        let grants = self.grants[tenant].unwrap() + 1;
        let is_its = |key: &&u8| self.tenant(**key) == tenant;
        let key = match grants % 8 {
            0 => *self.ready.iter().find(is_its).unwrap(),
            _ => *self.lines.iter().flatten().find(is_its).unwrap(),
        };
        self.turns += 1;
        (self.grants[tenant], self.last_turns[tenant]) = (Some(grants), self.turns);
        self.leave_line(key);
        self.keys[key as usize].0 = Naive::Runs(Run::default());
        let priority = std::mem::replace(&mut self.asked[key as usize], Priority::Low);
        Some((key, self.keys[key as usize].1 + 1, priority))
    }

    fn finish(&mut self, key: u8, outcome: Outcome, priority: Priority) {
        self.promote();
        let Naive::Runs(run) = self.keys[key as usize].0.clone() else { panic!("{key} does not run") };
        let Run { changed, touched, delay: timer, mut gate, mut floor, mut retry, held } = run;
        self.keys[key as usize].0 = Naive::Rest;
        let now = self.now;
        let mut failures = self.keys[key as usize].1;
        let no_timer = matches!(outcome, Outcome::Done | Outcome::Forget);
        let mut wanted = timer;
        match outcome {
            Outcome::Done => {}
            Outcome::Forget => (failures, gate, floor, retry) = (0, 0, 0, false),
            Outcome::RequeueAfter(delay) => {
                (failures, gate, floor, retry) = (0, 0, 0, false);
                let at = now + delay.as_millis() as u64;
                wanted = Some(timer.map_or(at, |timer| timer.min(at)));
            }
            Outcome::Retry { at_least } => {
                failures += 1;
                let wait = step_of(failures).max(at_least.as_millis() as u64);
                (wanted, gate, floor, retry) = (Some(0), gate.max(now + wait), now + wait.min(FLOOR), true);
            }
            Outcome::RetryUncounted => {
                let wait = step_of(self.uncounted[key as usize] + 1).min(FLOOR);
                (wanted, gate, floor, retry) = (Some(0), now + wait, now + 5, false);
            }
            Outcome::Terminal => {
                failures += 1;
                floor = now + step_of(failures).min(FLOOR);
                (gate, retry) = (floor, false);
            }
            Outcome::PutBack => (wanted, gate, retry) = (Some(0), 0, false),
        }
        self.keys[key as usize].1 = failures;
        self.uncounted[key as usize] = match outcome {
            Outcome::RetryUncounted => self.uncounted[key as usize] + 1,
            _ => 0,
        };
        if changed {
            (wanted, gate, retry) = (Some(0), gate.min(floor), false);
        } else if touched && no_timer {
            wanted = Some(0);
        }
        if !no_timer && outcome != Outcome::Terminal {
            self.raise(key, priority);
        }
        let terminal = outcome == Outcome::Terminal && wanted.is_none();
        let wait = Wait { delay: wanted, gate, floor, retry, terminal, held, order: 0 };
        let owed_now = (changed || touched) && wait.place().1 <= now;
        let may_run = match self.mode {
            NaiveMode::Open => true,
            NaiveMode::Draining => owed_now,
            NaiveMode::Discarding => false,
        };
        let terminal = outcome == Outcome::Terminal && !changed;
        self.wait(key, if may_run { wait } else { Wait { delay: None, held: 0, terminal, ..wait } });
    }

    fn discard(&mut self) {
        self.mode = NaiveMode::Discarding;
        (self.ready, self.awaiting, self.lines) = Default::default();
        for key in &mut self.keys {
            if !matches!(key.0, Naive::Runs(_)) {
                *key = (Naive::Rest, 0);
            }
        }
    }

    fn shut_down(&mut self) {
        if self.mode != NaiveMode::Open {
            return;
        }
        self.mode = NaiveMode::Draining;
        self.promote();
        self.awaiting.clear();
        for key in &mut self.keys {
            if matches!(&key.0, Naive::Waits(wait) if wait.place().1 < u64::MAX)
                || matches!(key.0, Naive::AwaitsToken { .. })
            {
                *key = (Naive::Rest, 0);
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Add(u8, Priority),
    Touch(u8, Priority),
    AddAfter(u8, u64, Priority),
    AddRateLimited(u8, Priority),
    Forget(u8),
    Hold(u8, u64),
    Release(u8),
    Take,
    Finish(usize, Outcome, Option<Priority>),
    Advance(u64),
    ShutDown,
    Discard,
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        1 => Just(Outcome::Done),
        1 => Just(Outcome::Forget),
        1 => (0..60u64).prop_map(|delay| Outcome::RequeueAfter(millis(delay))),
        3 => Just(Outcome::Retry { at_least: Duration::ZERO }),
        1 => (0..80u64).prop_map(|at_least| Outcome::Retry { at_least: millis(at_least) }),
        1 => Just(Outcome::RetryUncounted),
        1 => Just(Outcome::Terminal),
        1 => Just(Outcome::PutBack),
    ]
}

fn asked() -> impl Strategy<Value = Priority> {
    prop_oneof![Just(Priority::Low), Just(Priority::Normal), Just(Priority::High)]
}

/// What a run asks for its successor, if not to keep its own.
fn priority() -> impl Strategy<Value = Option<Priority>> {
    prop::option::weighted(0.3, asked())
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        60 => (0..KEYS, asked()).prop_map(|(key, at)| Step::Add(key, at)),
        20 => (0..KEYS, asked()).prop_map(|(key, at)| Step::Touch(key, at)),
        40 => (0..KEYS, 0..60u64, asked()).prop_map(|(key, delay, at)| Step::AddAfter(key, delay, at)),
        10 => (0..KEYS, asked()).prop_map(|(key, at)| Step::AddRateLimited(key, at)),
        5 => (0..KEYS).prop_map(Step::Forget),
        15 => (0..KEYS, 0..80u64).prop_map(|(key, at_most)| Step::Hold(key, at_most)),
        10 => (0..KEYS).prop_map(Step::Release),
        100 => Just(Step::Take),
        80 => (0..4usize, outcome(), priority()).prop_map(|(which, outcome, at)| Step::Finish(which, outcome, at)),
        40 => (0..30u64).prop_map(Step::Advance),
        1 => Just(Step::ShutDown),
        1 => Just(Step::Discard),
    ]
}

fn both(limited: bool, shared: bool) -> (Schedule<u8>, Model) {
    let config = WorkQueueConfig {
        backoff: Arc::new(ItemExponentialFailure::new(millis(5), millis(300))),
        rate: limited.then(|| RateLimit::per_period(millis(7)).burst(4)),
        retry_rate: limited.then(|| RateLimit::per_period(millis(20)).burst(2)),
        floor: millis(FLOOR),
    };
    let bucket = |period, burst| limited.then_some(NaiveBucket { period, burst, spent_until: 0 });
    let model = Model {
        now: 0,
        keys: vec![(Naive::Rest, 0); KEYS as usize],
        uncounted: vec![0; KEYS as usize],
        ready: Vec::new(),
        lines: Default::default(),
        asked: vec![Priority::Low; KEYS as usize],
        grants: if shared { [None; TENANTS] } else { [Some(0); TENANTS] },
        last_turns: [0; TENANTS],
        awaits_token: false,
        turns: 0,
        shared,
        awaiting: Vec::new(),
        order: 0,
        rate: bucket(7, 4),
        retry_rate: bucket(20, 2),
        mode: NaiveMode::Open,
    };
    let schedule = Schedule::new(config).unwrap();
    let tenant: TenantOf<u8> = Arc::new(|key| (*key as usize % TENANTS).to_string().into());
    (if shared { schedule.with_tenants(tenant) } else { schedule }, model)
}

fn places_agree(state: &Schedule<u8>, model: &Model) -> Result<(), TestCaseError> {
    for key in 0..KEYS {
        let (naive, failures) = &model.keys[key as usize];
        let entry = state.entry(&key);
        prop_assert_eq!(entry.map_or(0, |entry| entry.setback().failures), *failures, "failures of {}", key);
        let place = match entry.map_or(EntryPlace::Idle, |entry| entry.place) {
            EntryPlace::InFlight(_) => EntryPlace::InFlight(Meanwhile::Nothing),
            place => place,
        };
        let expected = match naive {
            Naive::Rest => EntryPlace::Idle,
            Naive::Waits(wait) => wait.place().0,
            Naive::AwaitsToken { .. } => EntryPlace::AwaitsToken,
            Naive::Ready => EntryPlace::Ready,
            Naive::Runs(_) => EntryPlace::InFlight(Meanwhile::Nothing),
        };
        prop_assert_eq!(place, expected, "place of {}", key);
        if let (Naive::Waits(wait), Some(entry)) = (naive, entry)
            && wait.place().1 < u64::MAX
        {
            prop_assert_eq!(entry.at, At::START.after(millis(wait.place().1)), "due of {}", key);
        }
        prop_assert!(entry.is_some() == (*naive != Naive::Rest || *failures > 0), "{} left behind", key);
    }
    let depth = state.depth();
    prop_assert_eq!(depth.ready, model.ready.len());
    for (line, priority) in model.lines.iter().zip(Priority::ALL) {
        prop_assert_eq!(depth.ready_at(priority), line.len(), "{:?}", priority);
    }
    let held = EntryPlace::Waits(EntryWait::Held);
    let waits_held = |naive: &Naive| matches!(naive, Naive::Waits(wait) if wait.place().0 == held);
    prop_assert_eq!(depth.held, model.keys.iter().filter(|(naive, _)| waits_held(naive)).count());
    Ok(())
}

/// Plays the steps on both, and compares after each.
fn play(steps: Vec<Step>, limited: bool, shared: bool) -> Result<(), TestCaseError> {
    let (mut state, mut model) = both(limited, shared);
    let mut flying = Vec::new();
    for step in steps {
        let now = At::START.after(millis(model.now));
        match step {
            Step::Add(key, at) => {
                state.add(key, at, &now);
                model.says(key, |model, key| model.add(key, at));
            }
            Step::Touch(key, at) => {
                state.touch(key, at, &now);
                model.says(key, |model, key| model.touch(key, at));
            }
            Step::AddAfter(key, delay, at) => {
                state.add_after(key, millis(delay), at, &now);
                model.says(key, |model, key| model.add_after(key, delay, at));
            }
            Step::AddRateLimited(key, at) => {
                state.add_rate_limited(key, at, &now);
                model.says(key, |model, key| model.add_rate_limited(key, at));
            }
            Step::Forget(key) => {
                state.forget(&key);
                model.forget(key);
            }
            Step::Hold(key, at_most) => {
                state.hold(&key, millis(at_most), &now);
                model.hold(key, at_most);
            }
            Step::Release(key) => {
                state.release(&key, &now);
                model.release(key);
            }
            Step::Take => {
                let grant = match state.take(&now, usize::MAX) {
                    Offer::Run(grant) => {
                        state.rate.iter_mut().for_each(|rate| rate.pay(now));
                        Some(grant)
                    }
                    Offer::Wait(_) | Offer::Ended => None,
                };
                let granted = grant.as_ref().map(|grant| (grant.key, grant.attempt, grant.priority));
                prop_assert_eq!(granted, model.take());
                flying.extend(grant);
            }
            Step::Finish(which, outcome, at) if !flying.is_empty() => {
                let grant = flying.swap_remove(which % flying.len());
                state.finish(grant.id, outcome, at.unwrap_or(grant.priority), &now);
                model.finish(grant.key, outcome, at.unwrap_or(grant.priority));
            }
            Step::Finish(..) => {}
            Step::Advance(by) => model.now += by,
            Step::ShutDown => {
                state.shut_down(&now);
                model.shut_down();
            }
            Step::Discard => {
                state.discard();
                model.discard();
            }
        }
        model.note_tenants();
        places_agree(&state, &model)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(512))]

    // Q1 Q2 Q4 Q7 Q8 Q14 Q15 Q20 Q22
    #[test]
    fn the_state_agrees_with_a_naive_model(
        steps in prop::collection::vec(step(), 1..200),
        limited in any::<bool>(),
        shared in any::<bool>(),
    ) {
        play(steps, limited, shared)?;
    }
}

// Q20
#[test]
fn a_retry_that_awaits_its_token_keeps_its_turn_whatever_timer_is_asked_for() {
    let fails = || Step::Finish(0, Outcome::Retry { at_least: Duration::ZERO }, None);
    let four = || {
        (1..=4)
            .map(|key| Step::Add(key, Priority::Normal))
            .chain((0..4).map(|_| Step::Take))
            .chain((0..4).map(|_| fails()))
    };
    let late =
        |key| [Step::Advance(30), Step::AddAfter(key, 0, Priority::Normal), Step::Advance(20), Step::Take];
    for key in 1..=4 {
        play(four().chain(late(key)).collect(), true, false).unwrap();
    }
}
