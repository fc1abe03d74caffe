//! What a candidate decides, from what it saw of the Lease and from its own clocks: pure.
//!
//! A Lease is free once nothing about it has changed for as long as its record says, at least as long as this
//! candidate's own lease, by this candidate's monotonic clock: times that others wrote are compared, never believed. Only
//! a Lease that its holder released is free at once. What this process has not written itself is another's, whatever name
//! it bears.
//!
//! One that is not there may have been deleted a moment ago, while its holder worked. So who makes it holds it for a
//! whole lease before it leads: by then any term that was renewed in the one before is over.
//!
//! A term lasts for as long since the sending of the last renewal that the server confirmed, by whichever clock says
//! more; see [`Since`].

use std::{sync::Arc, time::Duration};

use rand::{Rng, SeedableRng, rngs::SmallRng};
use tokio::time::Instant;

use super::{
    record::{Record, Stored, micro_time},
    settings::Timing,
};
use crate::clock::{Reading, Since};

/// Most writes of unknown fate that are remembered; all but one of them can't have happened.
const REMEMBERED: usize = 64;

/// What a candidate does next.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Do {
    /// Nothing, until this time.
    Wait(Instant),
    /// Reads the Lease; the [`Answer`] goes to [`Elector::answered`].
    Read,
    /// Writes this into the Lease as it was read, or creates it.
    Write { base: Option<Box<Stored>>, record: Box<Record> },
    /// Nothing any more: the Lease is released, or another's.
    Nothing,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Answer {
    Found(Stored),
    Absent,
    Written(Stored),
    /// It was not written, since the Lease is not what it was read as.
    Refused,
    /// Nobody knows, or the server said no.
    Unknown,
}

/// Why a term is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// It was not renewed in time.
    NotRenewed,
    /// Another holds the Lease.
    TakenBy(String),
}

/// A candidate.
#[derive(Debug)]
pub(super) struct Elector {
    identity: Arc<str>,
    timing: Timing,
    role: Role,
    /// What comes at `due`.
    step: Step,
    due: Instant,
    seen: Option<Seen>,
    /// What this process wrote, or may have written.
    own: Vec<Own>,
    /// Until when a Lease that it made is held without leading.
    reserved: Option<Instant>,
    /// The latest time written: each write bears another, so that every renewal is seen as a change.
    written: i64,
    jitter: SmallRng,
}

#[derive(Debug)]
enum Role {
    StandsBy,
    Leads(Since),
    Lost(Loss),
    Releases,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Read,
    Write {
        base: Option<Box<Stored>>,
    },
    /// A write was handed out, and its answer is yet to come.
    Writing,
    Nothing,
}

/// Something that this process wrote, or may have written.
#[derive(Clone, Debug)]
struct Own {
    record: Record,
    origin: Origin,
}

/// What was there before a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// A Lease, which was free or this process's.
    Lease,
    /// None.
    Nothing,
}

/// What was seen last, since when it has not changed, and how long that must last.
#[derive(Clone, Debug)]
struct Seen {
    /// `None`: no Lease.
    lease: Option<Stored>,
    since: Instant,
    hold: Duration,
}

impl Elector {
    pub(super) fn new(identity: Arc<str>, timing: Timing, seed: u64, now: Instant) -> Self {
        Self {
            identity,
            timing,
            role: Role::StandsBy,
            step: Step::Read,
            due: now,
            seen: None,
            own: Vec::new(),
            reserved: None,
            written: 0,
            jitter: SmallRng::seed_from_u64(seed),
        }
    }

    /// Says what to do; the answer to a request goes to [`answered`](Self::answered), none counts as unknown.
    pub(super) fn next(&mut self, now: Reading) -> Do {
        if self.step == Step::Writing {
            self.step = Step::Read;
        }
        if now.monotonic < self.due {
            return Do::Wait(self.due);
        }
        match std::mem::replace(&mut self.step, Step::Read) {
            Step::Read | Step::Writing => Do::Read,
            Step::Write { base } => {
                self.step = Step::Writing;
                let record = self.record(base.as_deref(), now);
                let origin = base.as_ref().map_or(Origin::Nothing, |base| self.origin(&base.record));
                self.remember(Own { record: record.clone(), origin });
                Do::Write { base, record: Box::new(record) }
            }
            Step::Nothing => {
                self.step = Step::Nothing;
                Do::Nothing
            }
        }
    }

    /// Takes the answer to the request that was sent at `sent`.
    pub(super) fn answered(&mut self, sent: Reading, now: Reading, answer: Answer) {
        self.step = Step::Read;
        match answer {
            Answer::Found(lease) => self.saw(Some(lease), now.monotonic),
            Answer::Absent => self.saw(None, now.monotonic),
            Answer::Written(lease) => return self.wrote(lease, sent, now.monotonic),
            Answer::Refused => {
                self.due = match self.role {
                    // Somebody else was quicker: there is time.
                    Role::StandsBy => now.monotonic + self.look(),
                    _ => now.monotonic,
                };
                return;
            }
            Answer::Unknown => {
                let pause = match self.role {
                    Role::StandsBy => now.monotonic + self.look(),
                    Role::Releases => now.monotonic + self.timing.retry / 8,
                    Role::Leads(_) | Role::Lost(_) => sent.monotonic + self.timing.retry,
                };
                self.due = pause.max(now.monotonic);
                return;
            }
        }
        self.judge(now.monotonic);
    }

    /// Whether this candidate has a term, and why not any more. Once lost, a term stays so.
    pub(super) fn loss(&mut self, now: Reading) -> Option<Loss> {
        if let Role::Leads(since) = &mut self.role
            && since.measure(now) >= self.timing.renew
        {
            self.role = Role::Lost(Loss::NotRenewed);
        }
        match &self.role {
            Role::Leads(_) => None,
            Role::Lost(loss) => Some(loss.clone()),
            Role::StandsBy | Role::Releases => Some(Loss::NotRenewed),
        }
    }

    /// Returns until when a term lasts by the monotonic clock, if it is not renewed.
    pub(super) fn lasts_until(&mut self, now: Reading) -> Instant {
        match &mut self.role {
            Role::Leads(since) => now.monotonic + self.timing.renew.saturating_sub(since.measure(now)),
            _ => now.monotonic,
        }
    }

    pub(super) fn leads(&self) -> bool {
        matches!(self.role, Role::Leads(_))
    }

    /// Stands by again; everything that ran in the term has ended.
    pub(super) fn stand_by(&mut self, now: Instant) {
        (self.role, self.step, self.due) = (Role::StandsBy, Step::Read, now);
    }

    /// Gives the Lease up, if it may be this process's; everything that ran in the term has ended.
    pub(super) fn release(&mut self, now: Instant) {
        let held = self.leads();
        let base = self.seen.take().and_then(|seen| seen.lease).filter(|lease| self.is_own(&lease.record));
        self.step = match base {
            // What it wrote last is what the server has, as far as is known.
            Some(base) if held && self.step != Step::Writing => Step::Write { base: Some(Box::new(base)) },
            _ if self.own.is_empty() => Step::Nothing,
            _ => Step::Read,
        };
        (self.role, self.due) = (Role::Releases, now);
    }

    /// Names who holds the Lease, as far as is known.
    pub(super) fn holder(&self) -> Option<&str> {
        let lease = self.seen.as_ref()?.lease.as_ref()?;
        Some(lease.record.holder.as_str()).filter(|holder| !holder.is_empty())
    }

    fn saw(&mut self, lease: Option<Stored>, now: Instant) {
        let hold = self.hold_of(lease.as_ref());
        if lease.as_ref().is_none_or(|lease| !self.is_own(&lease.record)) {
            self.reserved = None;
        }
        if let Some(seen) = &mut self.seen {
            let same = match (&seen.lease, &lease) {
                (None, None) => true,
                (Some(before), Some(lease)) => before.is(lease),
                _ => false,
            };
            if same {
                return;
            }
        }
        self.seen = Some(Seen { lease, since: now, hold });
    }

    /// How long a Lease must not change to be free: as long as anybody has said, in one hold.
    fn hold_of(&self, lease: Option<&Stored>) -> Duration {
        let Some(Stored { record, .. }) = lease else {
            // A leader that was seen makes it anew if it still leads.
            let seen = self.seen.as_ref().map_or(Duration::ZERO, |seen| seen.hold);
            return seen.min(self.timing.lease);
        };
        if record.is_released() || self.is_own(record) {
            return Duration::ZERO;
        }
        // A hold does not end by an edit that shortens it, or that removes its holder.
        let same = record.holder.is_empty() || self.holder() == Some(&record.holder);
        let before = self.seen.as_ref().filter(|_| same).map_or(Duration::ZERO, |seen| seen.hold);
        self.timing.lease.max(record.duration.unwrap_or_default()).max(before)
    }

    /// Goes on from what was seen.
    fn judge(&mut self, now: Instant) {
        let Some(seen) = &self.seen else { return };
        let (lease, free) = (seen.lease.clone(), seen.since + seen.hold);
        let own = lease.as_ref().is_some_and(|lease| self.is_own(&lease.record));
        match &self.role {
            Role::StandsBy if free <= now => self.step = Step::Write { base: lease.map(Box::new) },
            Role::StandsBy => self.due = (now + self.look()).min(free),
            // Nobody has taken what is not there, or has no holder, if the write that puts it right succeeds.
            Role::Leads(_) if own || self.holder().is_none() => {
                (self.step, self.due) = (Step::Write { base: lease.map(Box::new) }, now);
            }
            Role::Leads(_) => {
                let holder = lease.map(|lease| lease.record.holder).unwrap_or_default();
                self.role = Role::Lost(Loss::TakenBy(holder));
            }
            // One that it made, and never led by, is no news to whoever led before: it runs out.
            Role::Releases if own && self.origin_of(&lease) == Origin::Lease => {
                (self.step, self.due) = (Step::Write { base: lease.map(Box::new) }, now);
            }
            Role::Releases => self.step = Step::Nothing,
            Role::Lost(_) => {}
        }
    }

    fn wrote(&mut self, lease: Stored, sent: Reading, now: Instant) {
        let (origin, mut leads) = (self.origin(&lease.record), true);
        if matches!(self.role, Role::StandsBy) && origin == Origin::Nothing {
            leads = *self.reserved.get_or_insert(now + self.timing.lease) <= now;
        }
        // Whatever was written before can't happen any more, or is taken for another's: the Lease has moved on.
        let origin = if leads { Origin::Lease } else { origin };
        self.own = vec![Own { record: lease.record.clone(), origin }];
        self.seen = Some(Seen { lease: Some(lease.clone()), since: now, hold: Duration::ZERO });
        match self.role {
            Role::StandsBy | Role::Leads(_) => {
                self.step = Step::Write { base: Some(Box::new(lease)) };
                self.due = (sent.monotonic + self.timing.retry).max(now);
                if leads {
                    self.role = Role::Leads(Since::start(sent));
                    self.reserved = None;
                }
                self.due = self.reserved.map_or(self.due, |until| self.due.min(until));
            }
            Role::Releases => self.step = Step::Nothing,
            Role::Lost(_) => {}
        }
    }

    /// What this candidate writes into a Lease.
    fn record(&mut self, base: Option<&Stored>, now: Reading) -> Record {
        self.written = now.unix_micros().max(self.written + 1);
        let before = base.map(|base| &base.record);
        if matches!(self.role, Role::Releases) {
            return before.cloned().unwrap_or_default().released(self.written);
        }
        let renewed = micro_time(self.written);
        let own = before.filter(|before| self.is_own(before));
        Record {
            holder: self.identity.to_string(),
            duration: Some(self.timing.lease),
            acquired: own.map_or_else(|| renewed.clone(), |own| own.acquired.clone()),
            renewed,
            transitions: before
                .map_or(0, |before| before.transitions.saturating_add(i64::from(own.is_none()))),
        }
    }

    /// Whether this process wrote a record; another one of its name did not.
    fn is_own(&self, record: &Record) -> bool {
        *record.holder == *self.identity && self.own.iter().any(|own| own.is(record))
    }

    fn origin_of(&self, lease: &Option<Stored>) -> Origin {
        lease.as_ref().map_or(Origin::Nothing, |lease| self.origin(&lease.record))
    }

    /// What was there before the hold that a record belongs to.
    fn origin(&self, record: &Record) -> Origin {
        self.own.iter().find(|own| own.is(record)).map_or(Origin::Lease, |own| own.origin)
    }

    fn remember(&mut self, own: Own) {
        if self.own.len() == REMEMBERED {
            self.own.remove(0);
        }
        self.own.push(own);
    }

    fn look(&mut self) -> Duration {
        self.timing.look().mul_f64(self.jitter.random_range(0.8..1.2))
    }
}

impl Own {
    fn is(&self, record: &Record) -> bool {
        let own = &self.record;
        own.holder == record.holder && own.acquired == record.acquired && own.renewed == record.renewed
    }
}
