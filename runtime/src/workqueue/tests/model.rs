//! The schedule compared with a naive model: vectors, searched from end to end.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::workqueue::clock::At;
use crate::workqueue::entries::{EntryPlace, Meanwhile};
use crate::workqueue::schedule::{Offer, Schedule};
use crate::workqueue::{Outcome, RateLimit};

const KEYS: u8 = 6;
const FLOOR: u64 = 40;

/// The back-off of both, in milliseconds.
fn step_of(failures: u32) -> u64 {
    (5u64 << (failures - 1).min(20)).min(300)
}

#[derive(Clone, Debug, PartialEq)]
enum Naive {
    Rest,
    Terminal { floor: u64 },
    Waits { delay: u64, gate: u64, floor: u64, retry: bool, order: u64 },
    AwaitsToken { floor: u64 },
    Ready,
    Runs(Run),
    Held { until: u64, order: u64, then: Box<Naive> },
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
    grants: u64,
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
            let due = |naive: &Naive| match naive {
                Naive::Waits { delay, gate, order, .. } => Some((*delay.max(gate), *order)),
                Naive::Held { until, order, .. } => Some((*until, *order)),
                _ => None,
            };
            let next = (0..KEYS)
                .filter_map(|key| due(&self.keys[key as usize].0).map(|due| (due, key)))
                .min()
                .filter(|((due, _), _)| *due <= self.now);
            let Some((_, key)) = next else { break };
            match self.keys[key as usize].0 {
                Naive::Held { .. } => self.let_go(key),
                _ => self.arrive(key),
            }
        }
        self.serve_retries();
    }

    fn serve_retries(&mut self) {
        while !self.awaiting.is_empty() && self.retry_rate.as_mut().is_some_and(|rate| rate.take(self.now)) {
            let key = self.awaiting.remove(0);
            self.keys[key as usize].0 = Naive::Ready;
            self.line_up(key);
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
                self.line_of(key).push(key);
            }
        }
    }

    /// The wait is over.
    fn arrive(&mut self, key: u8) {
        match self.keys[key as usize].0 {
            Naive::Waits { floor, retry: true, .. } if self.retry_rate.is_some() => {
                self.keys[key as usize].0 = Naive::AwaitsToken { floor };
                self.awaiting.push(key);
            }
            _ => {
                self.keys[key as usize].0 = Naive::Ready;
                self.line_up(key);
            }
        }
    }

    fn wait(&mut self, key: u8, delay: u64, gate: u64, floor: u64, retry: bool) {
        let order = match self.keys[key as usize].0 {
            Naive::Waits { delay: was, gate: gated, order, .. } if was.max(gated) == delay.max(gate) => order,
            _ => {
                self.order += 1;
                self.order
            }
        };
        self.awaiting.retain(|other| *other != key);
        self.keys[key as usize].0 = Naive::Waits { delay, gate, floor, retry, order };
        self.promote();
    }

    fn hold(&mut self, key: u8, at_most: u64) {
        self.promote();
        let until = self.now + at_most;
        if let Naive::Runs(run) = &mut self.keys[key as usize].0 {
            run.held = until;
            return;
        }
        self.leave_line(key);
        self.awaiting.retain(|other| *other != key);
        if self.mode != NaiveMode::Open {
            self.keys[key as usize] = (Naive::Rest, 0);
            return;
        }
        let (mut was, anew) =
            (None, |floor, retry| Naive::Waits { delay: 0, gate: 0, floor, retry, order: 0 });
        let then = match self.keys[key as usize].0.clone() {
            Naive::Held { until, order, then } => {
                was = Some((until, order));
                *then
            }
            Naive::Ready => anew(0, false),
            Naive::AwaitsToken { floor } => anew(floor, true),
            then => then,
        };
        self.park(key, until, then, was);
    }

    fn park(&mut self, key: u8, until: u64, then: Naive, was: Option<(u64, u64)>) {
        let order = match was {
            Some((same, order)) if same == until => order,
            _ => {
                self.order += 1;
                self.order
            }
        };
        self.keys[key as usize].0 = Naive::Held { until, order, then: Box::new(then) };
    }

    fn release(&mut self, key: u8) {
        self.promote();
        match &mut self.keys[key as usize].0 {
            Naive::Runs(run) => run.held = 0,
            Naive::Held { .. } => {
                self.let_go(key);
                self.promote();
            }
            _ => {}
        }
    }

    fn let_go(&mut self, key: u8) {
        let Naive::Held { then, .. } = self.keys[key as usize].0.clone() else { panic!("{key} is not held") };
        self.keys[key as usize].0 = *then.clone();
        match *then {
            Naive::Waits { delay, gate, .. } if delay.max(gate) <= self.now => self.arrive(key),
            Naive::Waits { delay, gate, floor, retry, .. } => {
                self.order += 1;
                let waits = Naive::Waits { delay, gate, floor, retry, order: self.order };
                self.keys[key as usize].0 = waits;
            }
            _ => {}
        }
    }

    /// Says something of what is to happen once a key is let go. Answers whether it is held.
    fn says_of_held(&mut self, key: u8, said: impl FnOnce(&mut Naive)) -> bool {
        match &mut self.keys[key as usize].0 {
            Naive::Held { then, .. } => {
                said(then);
                true
            }
            _ => false,
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
        let held = self.says_of_held(key, |then| {
            let (gate, floor) = match *then {
                Naive::Terminal { floor } => (floor, floor),
                Naive::Waits { gate, floor, .. } => (gate.min(floor), floor),
                _ => (0, 0),
            };
            *then = Naive::Waits { delay: 0, gate, floor, retry: false, order: 0 };
        });
        if held {
            return;
        }
        match self.keys[key as usize].0.clone() {
            Naive::Rest => self.wait(key, 0, 0, 0, false),
            Naive::Terminal { floor } => self.wait(key, 0, floor, floor, false),
            Naive::Waits { gate, floor, .. } => self.wait(key, 0, gate.min(floor), floor, false),
            Naive::AwaitsToken { floor } => self.wait(key, 0, floor.min(self.now), floor, false),
            Naive::Ready | Naive::Held { .. } => {}
            Naive::Runs(run) => self.keys[key as usize].0 = Naive::Runs(Run { changed: true, ..run }),
        }
    }

    fn touch(&mut self, key: u8, priority: Priority) {
        let counts = match &self.keys[key as usize].0 {
            Naive::Rest | Naive::Ready => true,
            Naive::Runs(run) => run.delay.is_none(),
            Naive::Held { then, .. } => match **then {
                Naive::Rest => true,
                Naive::Waits { delay, gate, retry, .. } => {
                    delay.max(gate) <= self.now && !(retry && self.retry_rate.is_some())
                }
                _ => false,
            },
            _ => false,
        };
        if counts {
            self.raise(key, priority);
        }
        self.says_of_held(key, |then| {
            if *then == Naive::Rest {
                *then = Naive::Waits { delay: 0, gate: 0, floor: 0, retry: false, order: 0 };
            }
        });
        match self.keys[key as usize].0.clone() {
            Naive::Rest => self.wait(key, 0, 0, 0, false),
            Naive::Runs(run) if run.delay.is_none() => {
                self.keys[key as usize].0 = Naive::Runs(Run { touched: true, ..run });
            }
            _ => {}
        }
    }

    fn add_after(&mut self, key: u8, delay: u64, priority: Priority) {
        self.raise(key, priority);
        let (at, now) = (self.now + delay, self.now);
        self.says_of_held(key, |then| {
            let (delay, gate, floor, retry) = match *then {
                Naive::Terminal { floor } => (at, floor, floor, false),
                Naive::Waits { delay, gate, .. } if delay.max(gate) <= now => return,
                Naive::Waits { delay, gate, floor, retry, .. } => (delay.min(at), gate, floor, retry),
                _ => (at, 0, 0, false),
            };
            *then = Naive::Waits { delay, gate, floor, retry, order: 0 };
        });
        match self.keys[key as usize].0.clone() {
            Naive::Rest => self.wait(key, at, 0, 0, false),
            Naive::Terminal { floor } => self.wait(key, at, floor, floor, false),
            Naive::Waits { delay, gate, floor, retry, .. } => {
                self.wait(key, delay.min(at), gate, floor, retry)
            }
            Naive::Ready | Naive::AwaitsToken { .. } | Naive::Held { .. } => {}
            Naive::Runs(run) => {
                let delay = Some(run.delay.map_or(at, |delay| delay.min(at)));
                self.keys[key as usize].0 = Naive::Runs(Run { delay, ..run });
            }
        }
    }

    fn add_rate_limited(&mut self, key: u8, priority: Priority) {
        self.raise(key, priority);
        self.keys[key as usize].1 += 1;
        let wait = step_of(self.keys[key as usize].1);
        let (until, floor) = (self.now + wait, self.now + wait.min(FLOOR));
        let (now, pays) = (self.now, self.retry_rate.is_some());
        self.says_of_held(key, |then| {
            let (delay, gate) = match *then {
                Naive::Waits { delay, gate, retry, .. } if delay.max(gate) <= now && !(retry && pays) => {
                    return;
                }
                Naive::Waits { delay, gate, .. } => (delay.min(until), gate.max(until)),
                _ => (until, until),
            };
            *then = Naive::Waits { delay, gate, floor, retry: true, order: 0 };
        });
        match self.keys[key as usize].0.clone() {
            Naive::Rest | Naive::Terminal { .. } => self.wait(key, until, until, floor, true),
            Naive::Waits { delay, gate, .. } => {
                self.wait(key, delay.min(until), gate.max(until), floor, true);
            }
            Naive::AwaitsToken { .. } => self.wait(key, 0, until, floor, true),
            Naive::Ready | Naive::Held { .. } => {}
            Naive::Runs(run) => {
                let gate = run.gate.max(until);
                let delay = Some(run.delay.map_or(gate, |delay| delay.min(gate)));
                self.keys[key as usize].0 = Naive::Runs(Run { delay, gate, floor, retry: true, ..run });
            }
        }
    }

    fn forget(&mut self, key: u8) {
        let (naive, failures) = &mut self.keys[key as usize];
        *failures = 0;
        match naive {
            Naive::Terminal { .. } => *naive = Naive::Rest,
            Naive::Held { then, .. } if matches!(**then, Naive::Terminal { .. }) => **then = Naive::Rest,
            _ => {}
        }
    }

    fn take(&mut self) -> Option<(u8, u32, Priority)> {
        self.promote();
        if self.ready.is_empty() || self.rate.as_mut().is_some_and(|rate| !rate.take(self.now)) {
            return None;
        }
        self.grants += 1;
        let key = match self.grants % 8 {
            0 => self.ready[0],
            _ => *self.lines.iter().flatten().next().unwrap(),
        };
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
        if held > now && self.mode == NaiveMode::Open {
            let then = match wanted {
                Some(delay) => Naive::Waits { delay, gate, floor, retry, order: 0 },
                None if outcome == Outcome::Terminal => Naive::Terminal { floor },
                None => Naive::Rest,
            };
            return self.park(key, held, then, None);
        }
        let owed = changed || touched;
        match wanted {
            Some(delay) if held <= now && self.may_schedule(owed && delay.max(gate) <= now) => {
                self.wait(key, delay, gate, floor, retry);
            }
            _ if outcome == Outcome::Terminal && !changed => {
                self.asked[key as usize] = Priority::Low;
                self.keys[key as usize].0 = Naive::Terminal { floor };
            }
            _ => self.asked[key as usize] = Priority::Low,
        }
    }

    fn may_schedule(&self, owed_now: bool) -> bool {
        match self.mode {
            NaiveMode::Open => true,
            NaiveMode::Draining => owed_now,
            NaiveMode::Discarding => false,
        }
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
            if matches!(key.0, Naive::Waits { .. } | Naive::AwaitsToken { .. } | Naive::Held { .. }) {
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

fn both(limited: bool) -> (Schedule<u8>, Model) {
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
        grants: 0,
        awaiting: Vec::new(),
        order: 0,
        rate: bucket(7, 4),
        retry_rate: bucket(20, 2),
        mode: NaiveMode::Open,
    };
    (Schedule::new(config).unwrap(), model)
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
            Naive::Terminal { .. } => EntryPlace::Terminal,
            Naive::Waits { .. } => EntryPlace::Delayed,
            Naive::AwaitsToken { .. } => EntryPlace::AwaitsToken,
            Naive::Ready => EntryPlace::Ready,
            Naive::Runs(_) => EntryPlace::InFlight(Meanwhile::Nothing),
            Naive::Held { .. } => EntryPlace::Held,
        };
        prop_assert_eq!(place, expected, "place of {}", key);
        if let (Naive::Waits { delay, gate, .. }, Some(entry)) = (naive, entry) {
            prop_assert_eq!(entry.due(), At::START.after(millis(*delay.max(gate))), "due of {}", key);
        }
        if let (Naive::Held { until, .. }, Some(entry)) = (naive, entry) {
            prop_assert_eq!(entry.setback().held, At::START.after(millis(*until)), "hold of {}", key);
        }
        prop_assert!(entry.is_some() == (*naive != Naive::Rest || *failures > 0), "{} left behind", key);
    }
    let depth = state.depth();
    prop_assert_eq!(depth.ready, model.ready.len());
    for (line, priority) in model.lines.iter().zip(Priority::ALL) {
        prop_assert_eq!(depth.ready_at(priority), line.len(), "{:?}", priority);
    }
    let held = model.keys.iter().filter(|(naive, _)| matches!(naive, Naive::Held { .. })).count();
    prop_assert_eq!(depth.held, held);
    Ok(())
}

/// Plays the steps on both, and compares after each.
fn play(steps: Vec<Step>, limited: bool) -> Result<(), TestCaseError> {
    let (mut state, mut model) = both(limited);
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
                let grant = match state.take(&now) {
                    Offer::Run(grant) => Some(grant),
                    Offer::Wait | Offer::Ended => None,
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
        places_agree(&state, &model)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(512))]

    // Q1 Q2 Q4 Q7 Q8 Q14 Q15 Q20
    #[test]
    fn the_state_agrees_with_a_naive_model(
        steps in prop::collection::vec(step(), 1..200),
        limited in any::<bool>(),
    ) {
        play(steps, limited)?;
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
        play(four().chain(late(key)).collect(), true).unwrap();
    }
}
