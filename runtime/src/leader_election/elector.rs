//! What a candidate decides, from what it saw of the Lease and from its own clocks. Pure.
//!
//! A Lease is free once nothing in it has changed for the duration that its record states, and at least for this
//! candidate's own lease duration, by this candidate's monotonic clock. Times that others wrote are compared, never
//! trusted. Only a Lease that its holder released is free at once.
//!
//! # How long a hold lasts
//!
//! A holder works for less than the lease duration that *it* is configured with, counted from its last renewal. So the
//! duration that the holder itself wrote counts. A change that keeps the holder's name and moves `renewTime` forward
//! counts as a renewal. Any other change counts as an edit by somebody else:
//!
//! - After an edit, a hold lasts for the longest duration stated since the last renewal. So no edit shortens it.
//! - After a renewal, it lasts for the longer of the durations that this renewal and the one before state. So what an edit
//!   added is over once the holder has repaired it.
//!
//! A hold never lasts for less than this candidate's own lease duration. So if all replicas have the same duration, no
//! edit of the record lets a replica begin too soon. If the holder's duration is longer, one edit that looks like a renewal
//! (it shortens the duration and moves `renewTime` forward) does not either. Two such edits do, if the holder could not
//! renew in between.
//!
//! # Which records are this process's
//!
//! A process knows its holds by when they began: `acquireTime` has microseconds, and stays the same through all renewals.
//! A record with another `acquireTime` belongs to another process, whatever the holder's name is. A leader whose term
//! lasts knows more: no other process can have taken its Lease yet. So it takes a record with its name for its own, and
//! repairs it, if `acquireTime`, `renewTime` or `leaseTransitions` is still as it wrote it. Another process that took the
//! Lease has written all three.
//!
//! A candidate that stands by continues a hold of its own at once only if the Lease is as it left it, or as a write with an
//! unknown outcome, less than a term ago, would have left it. Otherwise somebody else has written since, and it may be an
//! older copy.
//!
//! A release keeps the transitions of the hold, and sets `acquireTime` and `renewTime` to the same new time. A released
//! record with fewer transitions is an older one that somebody restored, and one with the hold's `acquireTime` is an edit.
//! Neither frees the Lease at once.
//!
//! A Lease that is missing may have been deleted a moment ago, while its holder worked. So the replica that creates it holds
//! it for a whole lease duration before it leads. By then any term of the deleted Lease is over.
//!
//! A term lasts for a fixed time since the last renewal that the server confirmed was sent, by the clock that shows more;
//! see [`Since`].

use std::{sync::Arc, time::Duration};

use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    record::{LeaseRecord, NoteRecord, StoredLease, micro_time},
    settings::Timing,
};
use crate::clock::{ClockReading, Since};

/// How many attempts to begin a hold are remembered. All but one of them cannot have succeeded.
const REMEMBERED: usize = 64;
/// The highest number of transitions that a server accepts.
const MOST_TRANSITIONS: i64 = i32::MAX as i64;

/// What a candidate does next.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Do {
    /// Nothing, until this time.
    Wait(Instant),
    /// Reads the Lease. The [`LeaseAnswer`] goes to [`Elector::answered`].
    Read,
    /// Writes this record if the Lease is still as it was read, or creates the Lease.
    Write { base: Option<Box<StoredLease>>, record: Box<LeaseRecord> },
    /// Nothing any more: the Lease was released, or belongs to another replica.
    Nothing,
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum LeaseAnswer {
    Found(StoredLease),
    Absent,
    Written(StoredLease),
    /// It was not written, because the Lease has changed since it was read.
    Refused,
    /// The outcome is unknown, or the server refused it for another reason.
    Unknown,
}

/// Why a term is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Loss {
    #[error("the Lease was not renewed in time")]
    NotRenewed,
    #[error("{0} holds the Lease")]
    TakenBy(String),
}

/// The state machine of one candidate.
#[derive(Debug)]
pub(super) struct Elector {
    identity: Arc<str>,
    timing: Timing,
    role: ElectionRole,
    /// What to do at `due`.
    step: ElectionStep,
    due: Instant,
    seen: Option<SeenLease>,
    /// The holds of this process: the one that it has, then those that it tried to begin. The first is never forgotten.
    own: Vec<OwnHold>,
    /// When the hold began in which this process led last.
    led: Option<Value>,
    /// Whether the term under way follows the last one of this process directly.
    pub(super) continues: bool,
    /// When the last confirmed renewal was sent, unless that was returned already.
    confirmed: Option<ClockReading>,
    /// Until when a Lease that this process created is held without leading.
    reserved: Option<Instant>,
    /// Whether a Lease that this process creates is its own at once.
    leads_new: bool,
    /// Whether all replicas with this identity hold the Lease together.
    is_shared: bool,
    /// What the Lease is to say besides.
    note: Option<NoteRecord>,
    /// The latest time written. Each write has another one, so that every renewal is seen as a change.
    written: i64,
    /// Requests in a row with an unknown outcome, and writes in a row that were refused.
    unknown: u32,
    refused: u32,
    /// How long the next request may take.
    pub(super) patience: Duration,
    jitter: SmallRng,
}

#[derive(Debug)]
enum ElectionRole {
    StandsBy,
    Leads(Since),
    Lost(Loss),
    Releases,
}

#[derive(Clone, Debug, PartialEq)]
enum ElectionStep {
    Read,
    /// Tried until its outcome is known, with the same record. If an earlier attempt succeeded, a later one is refused.
    Write {
        base: Option<Box<StoredLease>>,
        /// The record to write, once it was decided.
        record: Option<Box<LeaseRecord>>,
    },
    Nothing,
}

/// A hold of this process, or one that it tried to begin.
#[derive(Clone, Debug)]
struct OwnHold {
    acquired: Value,
    transitions: i64,
    /// The `renewTime` that was written last, and when that was sent first.
    renewed: Value,
    sent: ClockReading,
    /// Whether that write is known to have succeeded.
    is_confirmed: bool,
    /// Whether this process created the Lease for it, and has not led by it yet.
    is_new: bool,
}

/// What was seen last, since when it has not changed, and how long that must last.
#[derive(Clone, Debug)]
struct SeenLease {
    /// `None` if there was no Lease.
    lease: Option<StoredLease>,
    since: Instant,
    hold: Hold,
}

/// How long a Lease must stay unchanged to be free.
#[derive(Clone, Copy, Debug, Default)]
struct Hold {
    lasts: Duration,
    /// The duration that the holder's last renewal stated.
    said: Duration,
}

impl Elector {
    pub(super) fn new(identity: Arc<str>, timing: Timing, seed: u64, now: Instant) -> Self {
        Self {
            identity,
            timing,
            role: ElectionRole::StandsBy,
            step: ElectionStep::Read,
            due: now,
            seen: None,
            own: Vec::new(),
            led: None,
            continues: false,
            confirmed: None,
            reserved: None,
            leads_new: false,
            is_shared: false,
            note: None,
            written: 0,
            unknown: 0,
            refused: 0,
            patience: timing.request(),
            jitter: SmallRng::seed_from_u64(seed),
        }
    }

    /// Leads at once by a Lease that it creates: no other process has one of this name.
    pub(super) fn of_own_name(self) -> Self {
        Self { leads_new: true, ..self }
    }

    /// Holds the Lease together with all that have the same identity. It is theirs to wait until a leader that may have
    /// been there before is gone.
    pub(super) fn shared(self) -> Self {
        Self { leads_new: true, is_shared: true, ..self }
    }

    pub(super) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Changes what the Lease is to say. A holder writes it at once, unless a write is under way.
    pub(super) fn note(&mut self, note: NoteRecord, now: Instant) {
        let is_new = self.note.as_ref() != Some(&note);
        self.note = Some(note);
        if is_new && self.leads() && matches!(self.step, ElectionStep::Write { record: None, .. }) {
            self.due = self.due.min(now);
        }
    }

    /// Returns what to do. The answer to a request goes to [`answered`](Self::answered); no answer counts as unknown.
    pub(super) fn next(&mut self, now: ClockReading) -> Do {
        if now.monotonic < self.due {
            return Do::Wait(self.due);
        }
        match self.step.clone() {
            ElectionStep::Read => Do::Read,
            ElectionStep::Write { base, record } => {
                let record = record.unwrap_or_else(|| Box::new(self.draft(base.as_deref(), now)));
                self.step = ElectionStep::Write { base: base.clone(), record: Some(record.clone()) };
                Do::Write { base, record }
            }
            ElectionStep::Nothing => Do::Nothing,
        }
    }

    /// Takes the answer to the request that was sent at `sent`.
    pub(super) fn answered(&mut self, sent: ClockReading, now: ClockReading, answer: LeaseAnswer) {
        // A late answer does not bring back a term that ended meanwhile.
        self.loss(now);
        let took = now.monotonic.saturating_duration_since(sent.monotonic);
        let LeaseAnswer::Unknown = answer else {
            // While the server is slow, requests keep their longer time limit.
            if took < self.patience / 4 {
                self.patience = (self.patience / 2).max(self.timing.request());
            }
            return self.take_answer(sent, now, answer);
        };
        if took >= self.patience {
            self.patience = (self.patience * 2).min(self.timing.longest_request());
        }
        self.due = now.monotonic + self.pause(self.unknown);
        self.unknown += 1;
    }

    fn take_answer(&mut self, sent: ClockReading, now: ClockReading, answer: LeaseAnswer) {
        self.unknown = 0;
        self.step = ElectionStep::Read;
        match answer {
            LeaseAnswer::Found(lease) => self.saw(Some(lease), now),
            LeaseAnswer::Absent => self.saw(None, now),
            LeaseAnswer::Written(lease) => return self.wrote(lease, sent, now.monotonic),
            // Another replica holds it as well.
            LeaseAnswer::Refused if self.is_shared && matches!(self.role, ElectionRole::Releases) => {
                self.step = ElectionStep::Nothing;
                return;
            }
            LeaseAnswer::Refused | LeaseAnswer::Unknown => {
                self.due = match self.role {
                    // Another candidate was faster, so there is time.
                    ElectionRole::StandsBy => now.monotonic + self.look(),
                    _ if self.refused == 0 => now.monotonic,
                    _ => now.monotonic + self.pause(self.refused),
                };
                self.refused += 1;
                return;
            }
        }
        self.judge(now);
    }

    /// Returns how long to wait after a number of failures in a row: a tenth to a quarter of the retry period.
    ///
    /// A term must survive a server that fails half of all requests, so a term has time for many attempts.
    fn pause(&mut self, failures: u32) -> Duration {
        let grown = (self.timing.retry / 10).mul_f64(1.5_f64.powi(failures.min(16) as i32));
        grown.min(self.timing.retry / 4).mul_f64(self.jitter.random_range(0.8..1.2))
    }

    /// Returns why this candidate has no term any more; `None` while it has one. A lost term stays lost.
    pub(super) fn loss(&mut self, now: ClockReading) -> Option<Loss> {
        if let ElectionRole::Leads(since) = &mut self.role
            && since.measure(now) >= self.timing.renew
        {
            self.role = ElectionRole::Lost(Loss::NotRenewed);
        }
        match &self.role {
            ElectionRole::Leads(_) => None,
            ElectionRole::Lost(loss) => Some(loss.clone()),
            ElectionRole::StandsBy | ElectionRole::Releases => Some(Loss::NotRenewed),
        }
    }

    /// Returns when the term ends by the monotonic clock if it is not renewed.
    pub(super) fn lasts_until(&mut self, now: ClockReading) -> Instant {
        match &mut self.role {
            ElectionRole::Leads(since) => {
                now.monotonic + self.timing.renew.saturating_sub(since.measure(now))
            }
            _ => now.monotonic,
        }
    }

    pub(super) fn leads(&self) -> bool {
        matches!(self.role, ElectionRole::Leads(_))
    }

    /// Returns when the last confirmed renewal was sent, unless that was returned before.
    pub(super) fn take_confirmed(&mut self) -> Option<ClockReading> {
        self.confirmed.take()
    }

    /// Stands by again, once everything that ran in the term has ended.
    pub(super) fn stand_by(&mut self, now: Instant) {
        (self.role, self.step, self.due) = (ElectionRole::StandsBy, ElectionStep::Read, now);
    }

    /// Releases the Lease if it may be this process's, once everything that ran in the term has ended.
    pub(super) fn release(&mut self, now: Instant) {
        let held = self.leads();
        let base =
            self.seen.take().and_then(|seen| seen.lease).filter(|lease| self.own_of(&lease.record).is_some());
        self.step = match base {
            // As far as is known, the server has what this process wrote last.
            Some(base) if held => ElectionStep::write(Some(base)),
            _ if self.own.is_empty() => ElectionStep::Nothing,
            _ => ElectionStep::Read,
        };
        (self.role, self.due) = (ElectionRole::Releases, now);
    }

    /// Returns the name of the holder, as far as is known.
    pub(super) fn holder(&self) -> Option<&str> {
        let lease = self.seen.as_ref()?.lease.as_ref()?;
        Some(lease.record.holder.as_str()).filter(|holder| !holder.is_empty())
    }

    fn saw(&mut self, lease: Option<StoredLease>, now: ClockReading) {
        self.share_hold(lease.as_ref(), now);
        let own = lease.as_ref().and_then(|lease| self.own_of(&lease.record)).cloned();
        let holder = lease.as_ref().map_or("", |lease| &lease.record.holder);
        if own.is_none() && !holder.is_empty() {
            // The Lease has changed since: earlier attempts can't succeed any more, or count as another's.
            self.own.clear();
        }
        if let (ElectionRole::Leads(_), Some(own), Some(lease)) = (&self.role, &own, &lease)
            && own.wrote(&lease.record)
        {
            // A renewal that succeeded although its answer was lost.
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
            if is_edited && matches!(self.role, ElectionRole::StandsBy) {
                // Somebody else wrote it, whatever its content is.
                self.own.clear();
            }
            self.seen = Some(SeenLease { lease, since: now.monotonic, hold });
        }
    }

    /// Takes another replica's hold for its own, if they hold the Lease together.
    fn share_hold(&mut self, lease: Option<&StoredLease>, now: ClockReading) {
        let Some(StoredLease { record, .. }) = lease.filter(|_| self.is_shared) else { return };
        if *record.holder == *self.identity && self.own_of(record).is_none_or(|own| !own.wrote(record)) {
            let LeaseRecord { acquired, renewed, transitions, .. } = record.clone();
            self.own = vec![OwnHold {
                acquired,
                transitions,
                renewed,
                sent: now,
                is_confirmed: false,
                is_new: false,
            }];
        }
    }

    /// Returns how long a Lease must stay unchanged to be free. The module's documentation says why.
    fn hold_of(&self, lease: Option<&StoredLease>, now: ClockReading) -> Hold {
        let (seen, own_lease) = (self.seen.as_ref(), self.timing.lease);
        let before = seen.map(|seen| seen.hold).unwrap_or_default();
        let Some(StoredLease { record, .. }) = lease else {
            // A leader that was seen creates it again if it still leads.
            return Hold { lasts: before.lasts.min(own_lease), ..before };
        };
        // A write whose answer was lost, so recent that no other replica can have written since.
        let is_pending = |own: &OwnHold| !own.is_confirmed && own.wrote(record) && self.is_recent(own, now);
        let own = self.own_of(record).is_some_and(|own| self.leads() || is_pending(own));
        if own || (record.is_released() && self.may_be_released(record)) {
            return Hold::default();
        }
        let said = record.duration.unwrap_or_default();
        let lasts = own_lease.max(said);
        let known = seen.and_then(|seen| seen.lease.as_ref()).map(|lease| &lease.record);
        match known {
            Some(known) if record.renews(known) => Hold { lasts: lasts.max(before.said), said },
            // An edit that shortens a hold, or removes its holder, does not end it.
            Some(known) if record.holder.is_empty() || record.holder == known.holder => {
                Hold { lasts: lasts.max(before.lasts), ..before }
            }
            _ => Hold { lasts, said },
        }
    }

    /// Says whether the holder may have released it. Otherwise somebody edited the record, or restored an older one.
    fn may_be_released(&self, record: &LeaseRecord) -> bool {
        let Some(seen) = &self.seen else { return true };
        // A Lease that is missing has no holder that could release it.
        let Some(StoredLease { record: known, .. }) = &seen.lease else { return false };
        record.acquired != known.acquired
            && record.transitions >= known.transitions + i64::from(known.is_released())
    }

    /// Decides the next step from what was seen.
    fn judge(&mut self, now: ClockReading) {
        let Some(seen) = &self.seen else { return };
        let (reading, now) = (now, now.monotonic);
        let (lease, free) = (seen.lease.clone(), seen.since + seen.hold.lasts);
        let own = lease.as_ref().and_then(|lease| self.own_of(&lease.record));
        match &self.role {
            ElectionRole::StandsBy if free <= now => self.step = ElectionStep::write(lease),
            ElectionRole::StandsBy => self.due = (now + self.look()).min(free),
            // If the Lease is missing or has no holder, and the repairing write succeeds, no other replica had taken it.
            ElectionRole::Leads(_) if own.is_some() || self.holder().is_none() => {
                (self.step, self.due) = (ElectionStep::write(lease), now);
            }
            ElectionRole::Leads(_) => {
                let holder = lease.map(|lease| lease.record.holder).unwrap_or_default();
                self.role = ElectionRole::Lost(Loss::TakenBy(holder));
            }
            // The Lease is left to expire if this process created it and never led by it: an earlier leader does not
            // know of it. The same holds if it may be an older copy that somebody restored: another replica may
            // work by now.
            ElectionRole::Releases if own.is_some_and(|own| !own.is_new && self.is_recent(own, reading)) => {
                (self.step, self.due) = (ElectionStep::write(lease), now);
            }
            ElectionRole::Releases => self.step = ElectionStep::Nothing,
            ElectionRole::Lost(_) => {}
        }
    }

    fn wrote(&mut self, lease: StoredLease, sent: ClockReading, now: Instant) {
        let is_new = self.own_of(&lease.record).is_some_and(|own| own.is_new);
        let is_reserved = matches!(self.role, ElectionRole::StandsBy) && is_new && !self.leads_new;
        let leads = !is_reserved || *self.reserved.get_or_insert(now + self.timing.lease) <= now;
        // The Lease has changed since: earlier attempts can't succeed any more, or count as another's.
        let LeaseRecord { acquired, renewed, transitions, note: said, .. } = lease.record.clone();
        self.own = vec![OwnHold {
            acquired: acquired.clone(),
            transitions,
            renewed,
            sent,
            is_confirmed: true,
            is_new: is_new && !leads,
        }];
        self.seen = Some(SeenLease { lease: Some(lease.clone()), since: now, hold: Hold::default() });
        self.refused = 0;
        match self.role {
            ElectionRole::StandsBy | ElectionRole::Leads(_) => {
                self.step = ElectionStep::write(Some(lease));
                self.due = (sent.monotonic + self.timing.retry).max(now);
                if leads {
                    if matches!(self.role, ElectionRole::StandsBy) {
                        self.continues = self.led.as_ref() == Some(&acquired);
                    }
                    self.led = Some(acquired);
                    self.renewed(sent);
                    self.reserved = None;
                }
                self.due = self.reserved.map_or(self.due, |until| self.due.min(until));
                if self.note.is_some() && said != self.note {
                    self.due = now;
                }
            }
            ElectionRole::Releases => self.step = ElectionStep::Nothing,
            ElectionRole::Lost(_) => {}
        }
    }

    /// Leads by a confirmed renewal that was sent then.
    fn renewed(&mut self, sent: ClockReading) {
        self.role = ElectionRole::Leads(Since::start(sent));
        self.confirmed = Some(sent);
    }

    /// Decides which record to write, and remembers it.
    fn draft(&mut self, base: Option<&StoredLease>, now: ClockReading) -> LeaseRecord {
        self.written = now.unix_micros().max(self.written + 1);
        let before = base.map(|base| &base.record);
        if matches!(self.role, ElectionRole::Releases) {
            let released = before.cloned().unwrap_or_default().released(self.written);
            return LeaseRecord { note: self.note.clone(), ..released };
        }
        let renewed = micro_time(self.written);
        let counted = before.map_or(0, |before| before.transitions.clamp(0, MOST_TRANSITIONS));
        let own = before.and_then(|before| self.own_index(before));
        let (acquired, transitions) = match own.map(|at| &mut self.own[at]) {
            Some(own) => {
                (own.renewed, own.sent, own.is_confirmed) = (renewed.clone(), now, false);
                own.transitions = own.transitions.max(counted);
                (own.acquired.clone(), own.transitions)
            }
            None => {
                let transitions = (counted + i64::from(before.is_some())).min(MOST_TRANSITIONS);
                if self.own.len() == REMEMBERED {
                    self.own.remove(1);
                }
                self.own.push(OwnHold {
                    acquired: renewed.clone(),
                    transitions,
                    renewed: renewed.clone(),
                    sent: now,
                    is_confirmed: false,
                    is_new: before.is_none(),
                });
                (renewed.clone(), transitions)
            }
        };
        let (holder, duration) = (self.identity.to_string(), Some(self.timing.lease));
        LeaseRecord { holder, duration, acquired, renewed, transitions, note: self.note.clone() }
    }

    /// Returns the hold of this process that a record belongs to. Another process with the same name has other holds.
    fn own_of(&self, record: &LeaseRecord) -> Option<&OwnHold> {
        self.own_index(record).map(|at| &self.own[at])
    }

    fn own_index(&self, record: &LeaseRecord) -> Option<usize> {
        if *record.holder != *self.identity {
            return None;
        }
        let exact = self.own.iter().position(|own| own.acquired == record.acquired);
        let edited = || self.own.iter().position(|own| own.is_edited(record));
        exact.or_else(|| edited().filter(|_| !matches!(self.role, ElectionRole::StandsBy)))
    }

    /// Says whether a hold was renewed so recently that no other replica can have taken the Lease.
    fn is_recent(&self, own: &OwnHold, now: ClockReading) -> bool {
        Since::start(own.sent).measure(now) < self.timing.expiry()
    }

    fn look(&mut self) -> Duration {
        self.timing.look().mul_f64(self.jitter.random_range(0.8..1.2))
    }
}

impl ElectionStep {
    fn write(base: Option<StoredLease>) -> Self {
        Self::Write { base: base.map(Box::new), record: None }
    }
}

impl OwnHold {
    /// Says whether a record is the one that was written last.
    fn wrote(&self, record: &LeaseRecord) -> bool {
        (&self.acquired, &self.renewed) == (&record.acquired, &record.renewed)
    }

    /// Says whether a record with the same name belongs to this hold, while no other replica can have taken the Lease.
    fn is_edited(&self, record: &LeaseRecord) -> bool {
        // At their maximum, transitions do not distinguish holds.
        let same_transitions = self.transitions == record.transitions && self.transitions < MOST_TRANSITIONS;
        self.renewed == record.renewed || same_transitions
    }
}
