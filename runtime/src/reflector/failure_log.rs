//! Decides which failures are logged: when they begin, less and less often while they last, when they end.

use std::{
    borrow::Cow,
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::fault::Fault;

/// After how long a failure that lasts is logged again; each time twice as long, up to an hour.
const AGAIN: Duration = Duration::from_secs(30);
const SELDOM: Duration = Duration::from_secs(3_600);

/// Decides which failures are logged; clones share their state.
///
/// Where several kinds of a server fail because the server does, that is one failure, logged in one line.
#[derive(Clone, Debug, Default)]
pub struct FailureLog {
    ongoing: Arc<Mutex<OngoingFailures>>,
}

#[derive(Debug, Default)]
struct OngoingFailures {
    joined: u64,
    failures: BTreeMap<FailureScope, Ongoing>,
}

/// What fails together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum FailureScope {
    /// The server, whatever it is asked for.
    Server,
    /// One kind, in one way.
    Kind(Cow<'static, str>, &'static str),
}

#[derive(Debug)]
struct Ongoing {
    since: Instant,
    reminder: Reminder,
    /// Who fails, by number, and what each fetches.
    who: BTreeMap<u64, Cow<'static, str>>,
    /// How many kinds there were at most.
    most: usize,
}

/// When something that lasts is logged again: after 30 s, then each time after twice as long, up to an hour.
#[derive(Debug)]
pub(crate) struct Reminder {
    next: Instant,
    gap: Duration,
}

impl Reminder {
    /// Begins now: it has just been logged.
    pub(crate) fn begin(now: Instant) -> Self {
        Self { next: now + AGAIN, gap: AGAIN }
    }

    /// Returns whether it is time to log it again; if so, the next time is later.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        if now < self.next {
            return false;
        }
        self.next = now + self.gap;
        self.gap = (self.gap * 2).min(SELDOM);
        true
    }
}

/// Whether a failure is logged.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogLevel {
    /// It has just begun.
    Begins,
    /// It goes on, and was not logged for a while.
    Lasts {
        /// For how long.
        lasting: Duration,
        /// Everything that fails with it, by name.
        kinds: Vec<Cow<'static, str>>,
    },
    /// It was logged.
    Repeats,
    /// It is expected: the next request repairs it.
    Routine,
}

/// One reflector's part in a log.
#[derive(Debug)]
pub(super) struct FailureLogEntry {
    log: FailureLog,
    number: u64,
    name: Cow<'static, str>,
    failure: Option<FailureScope>,
}

impl FailureLog {
    pub(super) fn join(&self, name: Cow<'static, str>) -> FailureLogEntry {
        let mut ongoing = self.ongoing.lock();
        ongoing.joined += 1;
        FailureLogEntry { log: self.clone(), number: ongoing.joined, name, failure: None }
    }
}

impl FailureLogEntry {
    /// Notes a failure, and returns whether to log it.
    pub(super) fn failed(&mut self, now: Instant, fault: Fault, attempts: u32) -> LogLevel {
        if fault.is_routine() && attempts <= 1 && self.failure.is_none() {
            return LogLevel::Routine;
        }
        let failure = match fault.may_be_chance() {
            true => FailureScope::Server,
            false => FailureScope::Kind(self.name.clone(), fault.label()),
        };
        if self.failure.as_ref() != Some(&failure) {
            self.leave();
            self.failure = Some(failure.clone());
        }
        let mut ongoing = self.log.ongoing.lock();
        match ongoing.failures.entry(failure) {
            Entry::Vacant(new) => {
                let who = BTreeMap::from([(self.number, self.name.clone())]);
                new.insert(Ongoing { since: now, reminder: Reminder::begin(now), who, most: 1 });
                LogLevel::Begins
            }
            Entry::Occupied(old) => old.into_mut().repeated(now, self.number, self.name.clone()),
        }
    }

    /// Notes that all is well; says how long the failure lasted that is over by that, and how many kinds failed at most.
    pub(super) fn healthy(&mut self, now: Instant) -> Option<(Duration, usize)> {
        self.leave().map(|ended| (now - ended.since, ended.most))
    }

    /// Takes leave of the trouble; returns it if that leaves nobody.
    fn leave(&mut self) -> Option<Ongoing> {
        let failure = self.failure.take()?;
        let mut shared = self.log.ongoing.lock();
        let ongoing = shared.failures.get_mut(&failure)?;
        ongoing.who.remove(&self.number);
        ongoing.who.is_empty().then(|| shared.failures.remove(&failure)).flatten()
    }
}

impl Drop for FailureLogEntry {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Ongoing {
    fn repeated(&mut self, now: Instant, number: u64, name: Cow<'static, str>) -> LogLevel {
        self.who.insert(number, name);
        let mut kinds: Vec<_> = self.who.values().cloned().collect();
        kinds.sort_unstable();
        kinds.dedup();
        self.most = self.most.max(kinds.len());
        match self.reminder.is_due(now) {
            true => LogLevel::Lasts { lasting: now - self.since, kinds },
            false => LogLevel::Repeats,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn later(begun: Instant, seconds: u64) -> Instant {
        begun + Duration::from_secs(seconds)
    }

    /// Returns when a failure that happens every second is logged.
    fn told_at(speaker: &mut FailureLogEntry, begun: Instant, fault: Fault, seconds: u64) -> Vec<u64> {
        let told = |at: &u64| speaker.failed(later(begun, *at), fault, 2) != LogLevel::Repeats;
        (0..seconds).filter(told).collect()
    }

    #[test]
    fn a_failure_is_told_of_when_it_begins_then_ever_more_seldom_and_when_it_ends() {
        let (log, begun) = (FailureLog::default(), Instant::now());
        let mut speaker = log.join("secrets".into());
        let told = told_at(&mut speaker, begun, Fault::Forbidden, 7_200);
        assert_eq!(told, [0, 30, 60, 120, 240, 480, 960, 1_920, 3_840]);
        let over = speaker.healthy(later(begun, 8_000));
        assert_eq!(over, Some((Duration::from_secs(8_000), 1)));
        assert_eq!(speaker.healthy(later(begun, 8_001)), None);
        assert_eq!(speaker.failed(later(begun, 9_000), Fault::Forbidden, 1), LogLevel::Begins);
    }

    #[test]
    fn what_fails_by_the_server_is_one_trouble_of_all_kinds() {
        let (log, begun) = (FailureLog::default(), Instant::now());
        let mut kinds: Vec<_> = ["a", "b", "c"].map(|name| log.join(name.into())).into();
        let mut lines = Vec::new();
        for second in 0..31 {
            for kind in &mut kinds {
                // By turns, as a server does that goes down and comes up.
                let fault = [Fault::Unreachable, Fault::Internal, Fault::Overloaded][second as usize % 3];
                match kind.failed(later(begun, second), fault, 2) {
                    LogLevel::Begins => lines.push((second, 1)),
                    LogLevel::Lasts { kinds, lasting } => {
                        assert_eq!(lasting.as_secs(), second);
                        lines.push((second, kinds.len()));
                    }
                    LogLevel::Repeats | LogLevel::Routine => {}
                }
            }
        }
        assert_eq!(lines, [(0, 1), (30, 3)]);
        assert_eq!(kinds[0].healthy(later(begun, 40)), None);
        drop(kinds.remove(1));
        let over = kinds[1].healthy(later(begun, 41));
        assert_eq!(over, Some((Duration::from_secs(41), 3)));
    }

    #[test]
    fn another_cause_is_another_trouble() {
        let (log, begun) = (FailureLog::default(), Instant::now());
        let (mut one, mut other) = (log.join("a".into()), log.join("b".into()));
        assert_eq!(one.failed(begun, Fault::Unreachable, 1), LogLevel::Begins);
        assert_eq!(one.failed(begun, Fault::Forbidden, 2), LogLevel::Begins);
        assert_eq!(other.failed(begun, Fault::Forbidden, 1), LogLevel::Begins);
        assert!(one.healthy(begun).is_some() && other.healthy(begun).is_some());
        assert_eq!(one.failed(begun, Fault::Expired, 1), LogLevel::Routine);
        assert_eq!(one.failed(begun, Fault::Expired, 2), LogLevel::Begins);
    }
}
