//! Decides what a reflector does next: list how, watch from where, wait how long.
//!
//! Pure: outcomes and the time go in, the next step comes out. No I/O, no clock; randomness is seeded.

mod outcomes;
mod silence;

use std::{cmp::Ordering, collections::HashSet, hash::BuildHasher, time::Duration};

use foldhash::fast::RandomState;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use tokio::time::Instant;

use super::{
    config::{FirstList, ReflectorConfig},
    fault::{Fault, asked_to_wait},
    pacing::{Pacing, Urgency},
    sink::Epoch,
};
use crate::{
    list_watch::{Bookmarks, InitialEvents, ListOptions, ListWatchError, VersionMatch},
    object::Version,
};

pub(super) use outcomes::{Brought, Ending, Listed, OnLoss, Step, StreamPhase};
use silence::Silence;

/// After an outage of this length everything is listed again.
const LONG_OUTAGE: Duration = Duration::from_secs(60);
/// Those lists are spread over this time, so that not all programs list at once.
const SPREAD: Duration = Duration::from_secs(30);
/// The shortest period of a kind that is polled.
const MOST_OFTEN: Duration = Duration::from_secs(1);
/// Servers count the timeout of a watch in whole seconds, read zero as their own default, and have a maximum.
const SHORTEST_WATCH: Duration = Duration::from_secs(1);
const LONGEST_WATCH: Duration = Duration::from_secs(i32::MAX as u64);
/// Items in a page, unless set.
const PAGE_SIZE: u32 = 500;
/// After this number of failures in a row a list begins again, and is streamed again if it was.
const TRIES: u32 = 10;
/// Most pages of a list: at the default size, fifty million objects.
const MOST_PAGES: u32 = 100_000;
/// After this number of refusals in a row, at the latest, a list shows what has changed: about twelve minutes.
const REFUSALS_PER_LIST: u32 = 16;
/// A watch that ends sooner, and has brought nothing, counts as too short.
const SHORT: Duration = Duration::from_secs(1);
/// This number of short watches in a row makes the version suspect.
const SHORT_IN_A_ROW: u32 = 3;
/// A stream that was open for this time was good, even if it brought nothing.
pub(super) const LIVED: Duration = Duration::from_secs(10);
/// After internal errors for this time everything is listed again.
const INTERNAL_ERRORS: Duration = Duration::from_secs(60);

/// What a reflector knows about the source.
#[derive(Debug)]
pub(super) struct ReflectorState {
    first_list: FirstList,
    page_size: Option<u32>,
    watch_timeout: (Duration, Duration),
    /// The time between two lists of a kind that is polled, not watched.
    poll: Option<Duration>,
    rng: SmallRng,
    pacing: Pacing,
    goal: Goal,
    wait: Duration,
    /// The last version seen; never an empty one.
    version: Option<String>,
    /// The next list is a consistent read: the last version seen was refused, or is in doubt.
    reads_present: bool,
    epoch: Epoch,
    paging: Paging,
    /// Hashes continue tokens.
    tokens: RandomState,
    streaming: Streaming,
    /// Ask for the collection's version before the next watch.
    must_probe: bool,
    /// How many watches in a row ended at once with nothing to show.
    short_watches: u32,
    /// How many openings in a row the server refused, although it was reachable.
    refusals: u32,
    silence: Silence,
    unopened_since: Option<Instant>,
    internal_errors_since: Option<Instant>,
    /// How the last attempt failed, until one succeeds.
    blocked: Option<Fault>,
    /// Other reflectors reach the server that this one does not.
    others_get_through: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Goal {
    List,
    Watch,
}

#[derive(Clone, Debug, Default)]
struct Paging {
    /// The continue token of the next page.
    next: Option<String>,
    /// How many pages were read, and the tokens that led to them.
    pages: u32,
    followed: HashSet<u64>,
    /// A chain of pages broke: the next list is read as a whole.
    whole: bool,
    /// The server pages what others answer from a cache: all lists are paged from then on.
    always: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Streaming {
    Use,
    NotThisCycle,
    Never,
}

impl ReflectorState {
    pub(super) fn new(config: &ReflectorConfig, seed: u64) -> Self {
        let possible = |timeout: &Duration| (*timeout).clamp(SHORTEST_WATCH, LONGEST_WATCH);
        let poll = config.poll.filter(|poll| !poll.is_zero()).map(|poll| poll.max(MOST_OFTEN));
        let (shortest, longest) =
            (possible(config.watch_timeout.start()), possible(config.watch_timeout.end()));
        Self {
            first_list: config.first_list,
            page_size: config.page_size,
            watch_timeout: (shortest, longest.max(shortest)),
            poll,
            rng: SmallRng::seed_from_u64(seed.wrapping_add(2)),
            pacing: Pacing::new(&config.backoff, seed),
            goal: Goal::List,
            wait: Duration::ZERO,
            version: None,
            reads_present: false,
            epoch: Epoch::Same,
            paging: Paging::default(),
            tokens: RandomState::default(),
            streaming: match config.first_list {
                FirstList::Streaming if poll.is_none() => Streaming::Use,
                _ => Streaming::Never,
            },
            must_probe: false,
            short_watches: 0,
            refusals: 0,
            silence: Silence::new(),
            unopened_since: None,
            internal_errors_since: None,
            blocked: None,
            others_get_through: false,
        }
    }

    /// Returns what to do next; a wait is returned once.
    pub(super) fn next(&mut self) -> Step {
        let wait = std::mem::take(&mut self.wait);
        if !wait.is_zero() {
            return Step::Sleep(wait);
        }
        match self.goal {
            Goal::List if self.streams() => Step::Stream(self.stream_options()),
            Goal::List => Step::List(self.list_options()),
            Goal::Watch if self.must_probe => Step::Probe,
            Goal::Watch => Step::Watch(self.watch_options()),
        }
    }

    /// Notes whether the server answers any reflector.
    pub(super) fn note_reach(&mut self, answers: bool) {
        self.pacing.note_reach(answers);
    }

    /// Returns whether the last attempt succeeded.
    pub(super) fn is_well(&self) -> bool {
        self.blocked.is_none()
    }

    /// Returns how long the next step waits.
    pub(super) fn wait(&self) -> Duration {
        self.wait
    }

    /// Returns the last version seen.
    pub(super) fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// Returns whether the next list starts a new history.
    pub(super) fn next_epoch(&self) -> Epoch {
        self.epoch
    }

    /// Starts again after a panic: work under way is forgotten, knowledge is kept.
    pub(super) fn restarted(&mut self, now: Instant) {
        self.end_chain();
        self.begin_cycle();
        let wait = self.pacing.restart(now);
        self.relist_after(wait);
    }

    fn note_failure(&mut self, error: &ListWatchError) {
        self.blocked = Some(Fault::of(error));
    }

    fn note_success(&mut self) {
        self.blocked = None;
        self.others_get_through = false;
    }

    fn relist_after(&mut self, wait: Duration) {
        self.goal = Goal::List;
        self.wait = wait;
    }

    fn drawn_timeout(&mut self) -> Duration {
        let (shortest, longest) = self.watch_timeout;
        Duration::from_secs(self.rng.random_range(shortest.as_secs()..=longest.as_secs()))
    }

    /// Returns whether a version is lower than the last one seen; `None` where they can't be compared.
    fn is_before_last(&self, version: &str) -> Option<bool> {
        self.compared(version).map(Ordering::is_lt)
    }

    /// Returns whether a version is known to be later than the last one seen.
    pub(super) fn is_later(&self, version: &str) -> bool {
        self.compared(version).is_some_and(Ordering::is_gt)
    }

    fn compared(&self, version: &str) -> Option<Ordering> {
        let last: Version = self.version.as_deref()?.parse().ok()?;
        Some(version.parse::<Version>().ok()?.cmp(&last))
    }

    // Lists.

    fn streams(&self) -> bool {
        self.streaming == Streaming::Use && self.paging.next.is_none() && !self.paging.whole
    }

    /// Returns the version to list at; `None` for a consistent read.
    fn list_version(&self) -> Option<String> {
        match &self.version {
            _ if self.reads_present => None,
            Some(version) => Some(version.clone()),
            None => (self.first_list == FirstList::AnyVersion).then(|| "0".to_owned()),
        }
    }

    fn list_options(&self) -> ListOptions {
        if let Some(token) = &self.paging.next {
            let limit = Some(self.page_size.unwrap_or(PAGE_SIZE));
            return ListOptions { limit, continue_token: Some(token.clone()), ..ListOptions::default() };
        }
        let version = self.list_version();
        let at_last_seen = version.is_some() && version == self.version;
        let limit = match self.page_size {
            _ if self.paging.whole => None,
            Some(size) => Some(size),
            None if at_last_seen && !self.paging.always => None,
            None => Some(PAGE_SIZE),
        };
        // A bare limit at a version means exactly that version, which is soon gone.
        let version_match = (at_last_seen && limit.is_some()).then_some(VersionMatch::NotOlderThan);
        ListOptions { resource_version: version, version_match, limit, ..ListOptions::default() }
    }

    fn stream_options(&mut self) -> ListOptions {
        ListOptions {
            resource_version: self.list_version(),
            version_match: Some(VersionMatch::NotOlderThan),
            timeout: Some(self.drawn_timeout()),
            bookmarks: Bookmarks::On,
            initial_events: InitialEvents::Send,
            ..ListOptions::default()
        }
    }

    /// Notes that a page was read; more pages may follow.
    pub(super) fn page_read(&mut self, version: &str, next: Option<String>) -> Listed {
        self.pacing.page_read();
        let Some(token) = next else { return self.judged(version) };
        if self.paging.next.is_none() && self.list_version().as_deref() == Some("0") {
            self.paging.always = true;
        }
        self.paging.pages += 1;
        let known = !self.paging.followed.insert(self.tokens.hash_one(&token));
        self.paging.next = Some(token);
        match known || self.paging.pages >= MOST_PAGES {
            true => Listed::Endless(self.paging.pages),
            false => Listed::More,
        }
    }

    /// Checks the version of a whole list.
    ///
    /// A consistent read that is older than what was seen comes from a server that lost its history; any other
    /// older list is refused.
    pub(super) fn judged(&self, version: &str) -> Listed {
        match self.is_before_last(version) {
            _ if self.epoch == Epoch::New => Listed::Whole(Epoch::New),
            Some(true) if self.list_version().is_none() => Listed::Whole(Epoch::New),
            Some(true) => Listed::TooOld,
            Some(false) | None => Listed::Whole(Epoch::Same),
        }
    }

    /// Goes on from a list that the store has.
    pub(super) fn replaced(&mut self, now: Instant, version: &str) {
        self.version = Some(version.to_owned()).filter(|version| !version.is_empty());
        self.reads_present = false;
        self.epoch = Epoch::Same;
        self.paging = Paging { always: self.paging.always, ..Paging::default() };
        self.begin_cycle();
        (self.goal, self.wait) = match self.poll {
            Some(poll) => (Goal::List, poll),
            None => (Goal::Watch, Duration::ZERO),
        };
        self.must_probe = false;
        self.short_watches = 0;
        self.unopened_since = None;
        self.internal_errors_since = None;
        self.note_success();
        self.pacing.listed(now);
    }

    /// Goes on from a list that failed; returns whether the pages that were read are kept.
    pub(super) fn list_failed(&mut self, now: Instant, error: &ListWatchError) -> bool {
        self.note_failure(error);
        if Fault::of(error).may_be_chance() {
            return self.read_again(now, error);
        }
        let in_chain = self.end_chain();
        let at_version = self.list_version().is_some();
        let wait = match Fault::of(error) {
            Fault::Expired if in_chain => {
                self.paging.whole = true;
                self.pacing.relist(now, Urgency::AtOnceTheFirstTime)
            }
            // As after a broken chain: perhaps the list ends if it is not paged.
            Fault::Endless => {
                self.paging.whole = true;
                self.pacing.relist(now, Urgency::BackOff)
            }
            Fault::Expired | Fault::TooLarge | Fault::Rejected if at_version => {
                self.reads_present = true;
                self.pacing.relist(now, Urgency::AtOnceTheFirstTime)
            }
            Fault::NotFound => {
                self.begin_cycle();
                self.pacing.ask_again(now).max(asked_to_wait(error))
            }
            _ => {
                self.begin_cycle();
                self.pacing.relist(now, Urgency::BackOff).max(asked_to_wait(error))
            }
        };
        self.relist_after(wait);
        false
    }

    /// Asks for the same page again: the failure most likely has nothing to do with the page.
    fn read_again(&mut self, now: Instant, error: &ListWatchError) -> bool {
        let wait = self.pacing.reread(now).max(self.asked_to_wait(error));
        self.relist_after(wait);
        self.paging.whole = false;
        if self.pacing.failed_reads().is_multiple_of(TRIES) {
            self.end_chain();
            self.begin_cycle();
        }
        self.paging.next.is_some()
    }

    /// Refuses a list that is too old: the next one is a consistent read.
    pub(super) fn list_refused(&mut self, now: Instant) {
        self.end_chain();
        self.reads_present = true;
        let wait = self.pacing.relist(now, Urgency::BackOff);
        self.relist_after(wait);
    }

    /// Forgets the pages of the list under way; returns whether there were any.
    fn end_chain(&mut self) -> bool {
        self.paging.pages = 0;
        self.paging.followed.clear();
        self.paging.next.take().is_some()
    }

    /// Notes that a streaming list was opened.
    pub(super) fn stream_opened(&mut self) {
        self.pacing.list_opened();
    }

    /// Goes on from a streaming list that failed.
    pub(super) fn stream_failed(&mut self, now: Instant, error: &ListWatchError, phase: StreamPhase) {
        self.note_failure(error);
        let wait = match (Fault::of(error), phase) {
            // The version is refused, not the stream; the first stream has no version.
            (Fault::Rejected, _) if self.list_version().is_some() => {
                self.reads_present = true;
                self.pacing.relist(now, Urgency::AtOnceTheFirstTime)
            }
            (Fault::Rejected | Fault::NotAllowed, _) => {
                self.streaming = Streaming::Never;
                Duration::ZERO
            }
            (Fault::Expired | Fault::TooLarge, _) => {
                self.reads_present = true;
                self.pacing.relist(now, Urgency::AtOnceTheFirstTime)
            }
            (Fault::Suspended, _) => Duration::ZERO,
            (Fault::CutShort | Fault::Idle, _) | (Fault::Unreachable, StreamPhase::Reading) => {
                return self.stream_cut(now);
            }
            (Fault::Forbidden | Fault::NotFound, _) => {
                self.streaming = Streaming::NotThisCycle;
                Duration::ZERO
            }
            (fault, _) if fault.may_be_chance() => {
                self.streaming = Streaming::NotThisCycle;
                self.pacing.reread(now).max(self.asked_to_wait(error))
            }
            _ => {
                self.streaming = Streaming::NotThisCycle;
                self.pacing.relist(now, Urgency::BackOff).max(asked_to_wait(error))
            }
        };
        self.relist_after(wait);
    }

    /// Goes on from a streaming list that ended before its bookmark.
    pub(super) fn stream_cut(&mut self, now: Instant) {
        self.blocked = Some(Fault::CutShort);
        // A list in pages goes on from the page that failed.
        self.streaming = Streaming::NotThisCycle;
        let wait = self.pacing.reread(now);
        self.relist_after(wait);
    }

    /// Gives up on streaming lists: the bookmark did not come in time.
    pub(super) fn stream_overdue(&mut self) {
        self.streaming = Streaming::Never;
        self.relist_after(Duration::ZERO);
    }

    /// Returns whether streaming lists were given up for good.
    pub(super) fn never_streams(&self) -> bool {
        self.streaming == Streaming::Never
    }

    fn begin_cycle(&mut self) {
        self.paging.whole = false;
        if self.streaming == Streaming::NotThisCycle {
            self.streaming = Streaming::Use;
        }
    }

    // Watches.

    fn watch_options(&mut self) -> ListOptions {
        ListOptions {
            resource_version: self.version.clone(),
            timeout: Some(self.drawn_timeout()),
            bookmarks: Bookmarks::On,
            ..ListOptions::default()
        }
    }

    /// Notes that a watch was opened; returns whether to read it, and not to list again after a long outage.
    pub(super) fn watch_opened(&mut self, now: Instant) -> bool {
        if self.was_out_of_reach(now) {
            self.relist_spread();
            return false;
        }
        self.unopened_since = None;
        self.note_success();
        true
    }

    /// Notes that a stream brought something; returns whether the version is new.
    pub(super) fn delivered(&mut self, version: Option<&str>) -> Brought {
        self.was_good();
        self.silence.broken();
        let Some(version) = version.filter(|version| !version.is_empty()) else { return Brought::Signs };
        if self.version.as_deref() == Some(version) || self.is_before_last(version) == Some(true) {
            return Brought::Signs;
        }
        self.version = Some(version.to_owned());
        Brought::Progress
    }

    /// Goes on from a watch that could not be opened.
    pub(super) fn open_failed(&mut self, now: Instant, error: &ListWatchError) {
        match Fault::of(error) {
            // The server is reachable, and refuses the watch.
            fault @ (Fault::Forbidden | Fault::NotFound | Fault::NotAllowed | Fault::Rejected) => {
                self.refused(now, fault, error);
            }
            _ => {
                self.unopened_since.get_or_insert(now);
                self.watch_failed(now, error);
            }
        }
    }

    /// Goes on from a refused watch.
    ///
    /// Lists may still be allowed, and show changes meanwhile: after 1, 2, 4, 8, 16, 32, 48, … refusals in a row.
    fn refused(&mut self, now: Instant, fault: Fault, error: &ListWatchError) {
        self.refusals = self.refusals.saturating_add(1);
        let wait = match fault {
            Fault::NotFound => self.pacing.ask_again(now),
            _ => self.pacing.relist(now, Urgency::BackOff),
        };
        let wait = wait.max(asked_to_wait(error));
        match self.refusals.is_power_of_two() || self.refusals.is_multiple_of(REFUSALS_PER_LIST) {
            true => self.relist_after(wait),
            false => (self.goal, self.must_probe, self.wait) = (Goal::Watch, true, wait),
        }
    }

    /// Goes on from a watch that broke off, or that the server ended with an error.
    pub(super) fn watch_broke(&mut self, now: Instant, ending: Ending, error: &ListWatchError) {
        self.note_life(now, ending);
        self.short_watches = 0;
        if Fault::of(error) == Fault::Idle && ending.brought == Brought::Nothing {
            self.silence.watch_died();
        }
        self.watch_failed(now, error);
    }

    /// Goes on from a watch that the server ended cleanly; returns whether it ended too soon.
    pub(super) fn watch_closed(&mut self, now: Instant, ending: Ending) -> bool {
        self.note_life(now, ending);
        if now - ending.opened >= SHORT || ending.brought == Brought::Progress {
            self.short_watches = 0;
            return false;
        }
        self.short_watches += 1;
        self.blocked = Some(Fault::CutShort);
        if self.short_watches < SHORT_IN_A_ROW {
            self.wait = self.pacing.reopen(now);
            return true;
        }
        self.short_watches = 0;
        let wait = self.pacing.relist(now, Urgency::BackOff);
        self.relist_after(wait);
        true
    }

    /// Returns whether the version of a consistent read shows that the server lost its history.
    pub(super) fn is_past(&self, latest: &str) -> bool {
        self.is_before_last(latest) == Some(true)
    }

    /// Checks the version that a consistent read of the collection returned.
    pub(super) fn probed(&mut self, now: Instant, latest: Option<&str>) {
        self.must_probe = false;
        self.note_success();
        if latest.is_some_and(|latest| self.is_past(latest)) {
            self.history_lost(now);
        } else if self.was_out_of_reach(now) {
            self.relist_spread();
        } else if latest.is_some_and(|latest| self.is_later(latest)) && self.silence.is_suspicious() {
            self.ask_for_the_present();
            self.relist_after(Duration::ZERO);
        }
    }

    /// Starts again: the server has lost its history.
    pub(super) fn history_lost(&mut self, now: Instant) {
        self.must_probe = false;
        self.epoch = Epoch::New;
        self.reads_present = true;
        self.end_chain();
        let wait = self.pacing.relist(now, Urgency::AtOnceTheFirstTime);
        self.relist_after(wait);
    }

    /// Goes on after the collection's version could not be read; returns whether the watch is opened without it.
    ///
    /// Any other failure counts as a failure to open the watch.
    pub(super) fn probe_failed(&mut self, now: Instant, error: &ListWatchError) -> bool {
        match Fault::of(error) {
            fault if fault.leaves_unknown() => {
                self.must_probe = false;
                true
            }
            _ => {
                self.open_failed(now, error);
                false
            }
        }
    }

    /// Returns whether the list under way is to show what silent watches may have missed.
    pub(super) fn looks_for_missed(&self) -> bool {
        self.silence.looks()
    }

    /// Notes whether such a list showed something that no watch had brought.
    pub(super) fn looked(&mut self, missed: bool) {
        self.silence.looked(missed);
    }

    /// Returns whether watches are known to hold changes back: then an open watch does not count as a good one.
    pub(super) fn is_blind(&self) -> bool {
        self.silence.is_blind()
    }

    fn note_life(&mut self, now: Instant, ending: Ending) {
        let lived = now - ending.opened;
        if lived >= LIVED {
            self.was_good();
        } else if lived >= SHORT {
            self.pacing.stream_was_open();
        }
        if ending.brought == Brought::Nothing {
            self.must_probe = true;
        }
    }

    fn was_good(&mut self) {
        self.pacing.stream_was_good();
        self.internal_errors_since = None;
        self.refusals = 0;
    }

    fn watch_failed(&mut self, now: Instant, error: &ListWatchError) {
        self.note_failure(error);
        match Fault::of(error) {
            Fault::Idle | Fault::Suspended => self.wait = Duration::ZERO,
            Fault::Overloaded | Fault::Unauthorized | Fault::CutShort => self.reopen(now, error),
            Fault::Unreachable => self.reopen(now, error),
            Fault::Internal if !self.internal_errors_last(now) => self.reopen(now, error),
            Fault::Expired | Fault::TooLarge => {
                self.reads_present = true;
                let wait = self.pacing.relist(now, Urgency::AtOnceTheFirstTime);
                self.relist_after(wait);
            }
            _ => {
                let wait = self.pacing.relist(now, Urgency::BackOff).max(asked_to_wait(error));
                self.relist_after(wait);
            }
        }
    }

    /// Opens the watch again after a wait. Meanwhile the server may be restored to an older state.
    fn reopen(&mut self, now: Instant, error: &ListWatchError) {
        self.goal = Goal::Watch;
        self.must_probe = true;
        self.wait = self.pacing.reopen(now).max(self.asked_to_wait(error));
    }

    /// Returns how long the server asked to wait, unless other reflectors find that it is up.
    ///
    /// A server that starts sends `Retry-After` until all of it is up.
    fn asked_to_wait(&self, error: &ListWatchError) -> Duration {
        match self.others_get_through && Fault::of(error).is_of_an_outage() {
            true => Duration::ZERO,
            false => asked_to_wait(error),
        }
    }

    fn internal_errors_last(&mut self, now: Instant) -> bool {
        now - *self.internal_errors_since.get_or_insert(now) > INTERNAL_ERRORS
    }

    fn was_out_of_reach(&self, now: Instant) -> bool {
        self.unopened_since.is_some_and(|since| now - since >= LONG_OUTAGE)
    }

    fn relist_spread(&mut self) {
        self.unopened_since = None;
        let wait = SPREAD.mul_f64(self.rng.random_range(0.0..1.0));
        self.relist_after(wait);
    }

    // Events of the server, and of the store.

    /// Handles the event that the server lost its history: this kind is checked by its own versions.
    pub(super) fn on_history_lost(&mut self, now: Instant) -> OnLoss {
        if self.blocked.is_some_and(Fault::is_refused_for_good) {
            return OnLoss::CantAsk;
        }
        match self.goal {
            Goal::Watch => self.must_probe = true,
            // A list under way may show what was lost; the next one is a consistent read.
            Goal::List => self.ask_for_the_present(),
        }
        if self.blocked == Some(Fault::Overloaded) {
            return OnLoss::AsksLater;
        }
        self.on_recovery(now);
        self.wait = Duration::ZERO;
        OnLoss::Asks
    }

    /// Handles the event that the server was reached again; returns how long after the last failure to try again.
    ///
    /// `None`: this kind waits for another reason, or has failed for long while others got through.
    pub(super) fn on_recovery(&mut self, now: Instant) -> Option<Duration> {
        let waits = self.blocked.is_some_and(Fault::is_of_an_outage);
        let step = match self.goal {
            _ if !waits => None,
            Goal::List => self.pacing.reread_in_a_hurry(now),
            Goal::Watch => self.pacing.reopen_in_a_hurry(now),
        }?;
        self.others_get_through = true;
        Some(step)
    }

    /// Lists again because answers contradict what the store shows.
    pub(super) fn contradicted(&mut self) {
        if self.version.is_some() {
            self.goal = Goal::List;
            self.ask_for_the_present();
        }
    }

    fn ask_for_the_present(&mut self) {
        self.end_chain();
        if self.version.is_some() {
            self.reads_present = true;
        }
    }
}
