//! What a candidate decides, from what it saw of the Lease and from its own clocks: pure.
//!
//! A Lease is free once nothing about it has changed for as long as its record says, at least as long as this
//! candidate's own lease, by this candidate's monotonic clock: times that others wrote are compared, never believed. Only
//! a Lease that its holder released is free at once.
//!
//! # How long a hold lasts
//!
//! A holder works for less than the lease that *it* is set to, counted from its last renewal. So what counts is the
//! duration that the holder itself wrote. A change that keeps the holder's name and moves `renewTime` on is taken for a
//! renewal, any other one for a stranger's edit:
//!
//! - After an edit a hold lasts for the longest time that was said since the last renewal: no edit shortens it.
//! - After a renewal it lasts for the longer of what this renewal says and the one before: what an edit added is over
//!   once the holder has put it right.
//!
//! It never lasts for less than this candidate's own lease. So where all replicas have the same lease, nothing that is
//! written into the record lets one begin too soon. Where the holder's is longer, one edit that forges a renewal (it
//! shortens the duration and moves `renewTime` on) does not; two of them do, if the holder could not renew in between.
//!
//! # Whose a record is
//!
//! Each process knows its holds by when they began: `acquireTime` has microseconds, and stays through all renewals. What
//! bears another one is another's, whatever name it bears. A leader whose term lasts knows more: nobody could have taken
//! its Lease yet. So it takes a record of its name for its own, and puts it right, if any of `acquireTime`, `renewTime`
//! and `leaseTransitions` is still as it wrote it: another process that took the Lease has written all three.
//!
//! A candidate that stands by goes on with a hold of its own at once only if the Lease is as it left it, or as a write of
//! its own of unknown fate, less than a term ago, would have left it. Otherwise somebody else has written since, perhaps an older copy.
//!
//! A hold that was released has the transitions of that hold. A record that says so with fewer is an older one that
//! somebody restored: it ends no hold at once.
//!
//! One that is not there may have been deleted a moment ago, while its holder worked. So who makes it holds it for a
//! whole lease before it leads: by then any term that was renewed in the one before is over.
//!
//! A term lasts for as long since the sending of the last renewal that the server confirmed, by whichever clock says
//! more; see [`Since`].

use std::{sync::Arc, time::Duration};

use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    record::{Record, Stored, micro_time},
    settings::Timing,
};
use crate::clock::{Reading, Since};

/// Most attempts to begin a hold that are remembered; all but one of them can't have happened.
const REMEMBERED: usize = 64;
/// The most transitions that a server takes.
const MOST_TRANSITIONS: i64 = i32::MAX as i64;

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
    /// The holds of this process: the one that it has, and what it tried since. The first is never forgotten.
    own: Vec<Own>,
    /// When the hold began in which it led last.
    led: Option<Value>,
    /// Whether the term under way goes on where this process's last one ended.
    continues: bool,
    /// When the renewal was sent that was confirmed last, unless that was taken note of.
    confirmed: Option<Reading>,
    /// Until when a Lease that it made is held without leading.
    reserved: Option<Instant>,
    /// The latest time written: each write bears another, so that every renewal is seen as a change.
    written: i64,
    /// Requests in a row of unknown fate, and writes in a row that were refused.
    unknown: u32,
    refused: u32,
    /// How long the next request may take.
    patience: Duration,
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
    /// Tried until its fate is known, with the same record: if an earlier attempt got through, a later one is refused.
    Write {
        base: Option<Box<Stored>>,
        /// What to write, once that was decided.
        record: Option<Box<Record>>,
    },
    Nothing,
}

/// A hold of this process, or one that it tried to begin.
#[derive(Clone, Debug)]
struct Own {
    acquired: Value,
    transitions: i64,
    /// What was written last, and when that was sent first.
    renewed: Value,
    sent: Reading,
    fate: Fate,
    origin: Origin,
}

/// Whether a write is known to have been done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Pending,
    Confirmed,
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
    hold: Hold,
}

/// How long a Lease must not change to be free.
#[derive(Clone, Copy, Debug, Default)]
struct Hold {
    lasts: Duration,
    /// What the holder's last renewal said.
    said: Duration,
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
            led: None,
            continues: false,
            confirmed: None,
            reserved: None,
            written: 0,
            unknown: 0,
            refused: 0,
            patience: timing.request(),
            jitter: SmallRng::seed_from_u64(seed),
        }
    }

    /// Says what to do; the answer to a request goes to [`answered`](Self::answered), none counts as unknown.
    pub(super) fn next(&mut self, now: Reading) -> Do {
        if now.monotonic < self.due {
            return Do::Wait(self.due);
        }
        match self.step.clone() {
            Step::Read => Do::Read,
            Step::Write { base, record } => {
                let record = record.unwrap_or_else(|| Box::new(self.draft(base.as_deref(), now)));
                self.step = Step::Write { base: base.clone(), record: Some(record.clone()) };
                Do::Write { base, record }
            }
            Step::Nothing => Do::Nothing,
        }
    }

    /// How long the next request may take: one that hangs leaves time for others.
    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    /// Takes the answer to the request that was sent at `sent`.
    pub(super) fn answered(&mut self, sent: Reading, now: Reading, answer: Answer) {
        // A term that ended meanwhile is not brought back by what comes late.
        self.loss(now);
        let took = now.monotonic.saturating_duration_since(sent.monotonic);
        let Answer::Unknown = answer else {
            // Where the server is slow, requests keep their time.
            if took < self.patience / 4 {
                self.patience = (self.patience / 2).max(self.timing.request());
            }
            return self.told(sent, now, answer);
        };
        if took >= self.patience {
            self.patience = (self.patience * 2).min(self.timing.longest_request());
        }
        self.due = now.monotonic + self.pause(self.unknown);
        self.unknown += 1;
    }

    fn told(&mut self, sent: Reading, now: Reading, answer: Answer) {
        self.unknown = 0;
        self.step = Step::Read;
        match answer {
            Answer::Found(lease) => self.saw(Some(lease), now),
            Answer::Absent => self.saw(None, now),
            Answer::Written(lease) => return self.wrote(lease, sent, now.monotonic),
            Answer::Refused | Answer::Unknown => {
                self.due = match self.role {
                    // Somebody else was quicker: there is time.
                    Role::StandsBy => now.monotonic + self.look(),
                    _ if self.refused == 0 => now.monotonic,
                    _ => now.monotonic + self.pause(self.refused),
                };
                self.refused += 1;
                return;
            }
        }
        self.judge(now);
    }

    /// How long to wait after some failures in a row: from a tenth of the retry period to a quarter of it.
    ///
    /// A term must outlast a server that fails half of all requests: within it some twenty attempts fit.
    fn pause(&mut self, failures: u32) -> Duration {
        let grown = (self.timing.retry / 10).mul_f64(1.5_f64.powi(failures.min(16) as i32));
        grown.min(self.timing.retry / 4).mul_f64(self.jitter.random_range(0.8..1.2))
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

    /// Whether the term under way goes on where the last one of this process ended: nobody held the Lease in between.
    pub(super) fn continues(&self) -> bool {
        self.continues
    }

    /// Returns when the renewal was sent that was confirmed last, unless it was returned before.
    pub(super) fn take_confirmed(&mut self) -> Option<Reading> {
        self.confirmed.take()
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
            Some(base) if held => Step::write(Some(base)),
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

    fn saw(&mut self, lease: Option<Stored>, now: Reading) {
        let own = lease.as_ref().and_then(|lease| self.own_of(&lease.record)).cloned();
        let holder = lease.as_ref().map_or("", |lease| &lease.record.holder);
        if own.is_none() && !holder.is_empty() {
            // Whatever was tried before can't happen any more, or is taken for another's: the Lease has moved on.
            self.own.clear();
        }
        if let (Role::Leads(_), Some(own), Some(lease)) = (&self.role, &own, &lease)
            && own.wrote(&lease.record)
        {
            // A renewal whose answer was lost, and which got through.
            self.renewed(own.sent);
        }
        let same = match (self.seen.as_ref().map(|seen| &seen.lease), &lease) {
            (Some(None), None) => true,
            (Some(Some(before)), Some(lease)) => before.is(lease),
            _ => false,
        };
        let hold = if same { None } else { Some(self.hold_of(lease.as_ref(), now)) };
        let is_edited = hold.is_some_and(|hold| !hold.lasts.is_zero());
        if own.is_none() || is_edited {
            self.reserved = None;
        }
        if let Some(hold) = hold {
            if is_edited && matches!(self.role, Role::StandsBy) {
                // Somebody else wrote it, whatever it says.
                self.own.clear();
            }
            self.seen = Some(Seen { lease, since: now.monotonic, hold });
        }
    }

    /// How long a Lease must not change to be free; the module says why.
    fn hold_of(&self, lease: Option<&Stored>, now: Reading) -> Hold {
        let (seen, own_lease) = (self.seen.as_ref(), self.timing.lease);
        let before = seen.map(|seen| seen.hold).unwrap_or_default();
        let Some(Stored { record, .. }) = lease else {
            // A leader that was seen makes it anew if it still leads.
            return Hold { lasts: before.lasts.min(own_lease), ..before };
        };
        let lasts = self.timing.expiry();
        let own = self.own_of(record).is_some_and(|own| self.leads() || own.is_pending(record, now, lasts));
        if own || (record.is_released() && self.may_be_released(record)) {
            return Hold::default();
        }
        let said = record.duration.unwrap_or_default();
        let lasts = own_lease.max(said);
        let known = seen.and_then(|seen| seen.lease.as_ref()).map(|lease| &lease.record);
        match known {
            Some(known) if record.renews(known) => Hold { lasts: lasts.max(before.said), said },
            // A hold does not end by an edit that shortens it, or that removes its holder.
            Some(known) if record.holder.is_empty() || record.holder == known.holder => {
                Hold { lasts: lasts.max(before.lasts), ..before }
            }
            _ => Hold { lasts, said },
        }
    }

    /// Whether it may be the holder who released it, and not somebody who restored an older record.
    fn may_be_released(&self, record: &Record) -> bool {
        let Some(seen) = &self.seen else { return true };
        // One that is not there has no holder to release it.
        let Some(Stored { record: known, .. }) = &seen.lease else { return false };
        record.transitions >= known.transitions + i64::from(known.is_released())
    }

    /// Goes on from what was seen.
    fn judge(&mut self, now: Reading) {
        let Some(seen) = &self.seen else { return };
        let (reading, now) = (now, now.monotonic);
        let (lease, free) = (seen.lease.clone(), seen.since + seen.hold.lasts);
        let own = lease.as_ref().is_some_and(|lease| self.is_own(&lease.record));
        match &self.role {
            Role::StandsBy if free <= now => self.step = Step::write(lease),
            Role::StandsBy => self.due = (now + self.look()).min(free),
            // Nobody has taken what is not there, or has no holder, if the write that puts it right succeeds.
            Role::Leads(_) if own || self.holder().is_none() => {
                (self.step, self.due) = (Step::write(lease), now);
            }
            Role::Leads(_) => {
                let holder = lease.map(|lease| lease.record.holder).unwrap_or_default();
                self.role = Role::Lost(Loss::TakenBy(holder));
            }
            // It runs out if this process made it and never led by it: who led before does not know of it. So it does
            // if it may be an older copy that somebody restored: another replica may work by now.
            Role::Releases
                if own && self.origin_of(&lease) == Origin::Lease && self.is_recent(&lease, reading) =>
            {
                (self.step, self.due) = (Step::write(lease), now);
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
        // Whatever was tried before can't happen any more, or is taken for another's: the Lease has moved on.
        let origin = if leads { Origin::Lease } else { origin };
        let Record { acquired, renewed, transitions, .. } = lease.record.clone();
        let fate = Fate::Confirmed;
        self.own = vec![Own { acquired: acquired.clone(), transitions, renewed, sent, fate, origin }];
        self.seen = Some(Seen { lease: Some(lease.clone()), since: now, hold: Hold::default() });
        self.refused = 0;
        match self.role {
            Role::StandsBy | Role::Leads(_) => {
                self.step = Step::write(Some(lease));
                self.due = (sent.monotonic + self.timing.retry).max(now);
                if leads {
                    if matches!(self.role, Role::StandsBy) {
                        self.continues = self.led.as_ref() == Some(&acquired);
                    }
                    self.led = Some(acquired);
                    self.renewed(sent);
                    self.reserved = None;
                }
                self.due = self.reserved.map_or(self.due, |until| self.due.min(until));
            }
            Role::Releases => self.step = Step::Nothing,
            Role::Lost(_) => {}
        }
    }

    /// Leads by a renewal that was sent then, and confirmed.
    fn renewed(&mut self, sent: Reading) {
        self.role = Role::Leads(Since::start(sent));
        self.confirmed = Some(sent);
    }

    /// Decides what to write into a Lease, and remembers it.
    fn draft(&mut self, base: Option<&Stored>, now: Reading) -> Record {
        self.written = now.unix_micros().max(self.written + 1);
        let before = base.map(|base| &base.record);
        if matches!(self.role, Role::Releases) {
            return before.cloned().unwrap_or_default().released(self.written);
        }
        let renewed = micro_time(self.written);
        let counted = before.map_or(0, |before| before.transitions.clamp(0, MOST_TRANSITIONS));
        let own = before.and_then(|before| self.own_index(before));
        let (acquired, transitions) = match own.map(|at| &mut self.own[at]) {
            Some(own) => {
                (own.renewed, own.sent, own.fate) = (renewed.clone(), now, Fate::Pending);
                own.transitions = own.transitions.max(counted);
                (own.acquired.clone(), own.transitions)
            }
            None => {
                let transitions = (counted + i64::from(before.is_some())).min(MOST_TRANSITIONS);
                let origin = if before.is_some() { Origin::Lease } else { Origin::Nothing };
                let (acquired, sent, fate) = (renewed.clone(), now, Fate::Pending);
                self.remember(Own { acquired, transitions, renewed: renewed.clone(), sent, fate, origin });
                (renewed.clone(), transitions)
            }
        };
        let (holder, duration) = (self.identity.to_string(), Some(self.timing.lease));
        Record { holder, duration, acquired, renewed, transitions }
    }

    /// Whether a record is of a hold of this process; another one of its name has others.
    fn is_own(&self, record: &Record) -> bool {
        self.own_index(record).is_some()
    }

    fn own_of(&self, record: &Record) -> Option<&Own> {
        self.own_index(record).map(|at| &self.own[at])
    }

    fn own_index(&self, record: &Record) -> Option<usize> {
        if *record.holder != *self.identity {
            return None;
        }
        let exact = self.own.iter().position(|own| own.acquired == record.acquired);
        let edited = || self.own.iter().position(|own| own.is_edited(record));
        exact.or_else(|| edited().filter(|_| !matches!(self.role, Role::StandsBy)))
    }

    fn origin_of(&self, lease: &Option<Stored>) -> Origin {
        lease.as_ref().map_or(Origin::Nothing, |lease| self.origin(&lease.record))
    }

    /// What was there before the hold that a record belongs to.
    fn origin(&self, record: &Record) -> Origin {
        self.own_of(record).map_or(Origin::Lease, |own| own.origin)
    }

    /// Whether the hold that a record belongs to was renewed so lately that nobody else can have taken the Lease.
    fn is_recent(&self, lease: &Option<Stored>, now: Reading) -> bool {
        let own = lease.as_ref().and_then(|lease| self.own_of(&lease.record));
        own.is_some_and(|own| Since::start(own.sent).measure(now) < self.timing.expiry())
    }

    fn remember(&mut self, own: Own) {
        if self.own.len() == REMEMBERED {
            self.own.remove(1);
        }
        self.own.push(own);
    }

    fn look(&mut self) -> Duration {
        self.timing.look().mul_f64(self.jitter.random_range(0.8..1.2))
    }
}

impl Step {
    fn write(base: Option<Stored>) -> Self {
        Self::Write { base: base.map(Box::new), record: None }
    }
}

impl Own {
    /// Whether a record is the one that was written last.
    fn wrote(&self, record: &Record) -> bool {
        (&self.acquired, &self.renewed) == (&record.acquired, &record.renewed)
    }

    /// Whether a record is a write whose answer was lost, and nobody else can have written since: a copy looks alike.
    fn is_pending(&self, record: &Record, now: Reading, lasts: Duration) -> bool {
        self.fate == Fate::Pending && self.wrote(record) && Since::start(self.sent).measure(now) < lasts
    }

    /// Whether a record of the same name is this hold's, while nobody else can have taken the Lease.
    fn is_edited(&self, record: &Record) -> bool {
        // At the most that there can be, transitions tell no holds apart.
        let same_transitions = self.transitions == record.transitions && self.transitions < MOST_TRANSITIONS;
        self.renewed == record.renewed || same_transitions
    }
}
