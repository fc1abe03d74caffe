//! Decides what a reflector does next: list how, watch from where, wait how long.
//!
//! Pure: outcomes and the time go in, the next step comes out. No I/O, no clock; randomness is seeded.

mod silence;

use std::{cmp::Ordering, collections::HashSet, time::Duration};

use rand::{Rng, SeedableRng, rngs::SmallRng};
use tokio::time::Instant;

use super::{
    config::{FirstList, ReflectorConfig},
    fault::{Fault, asked_to_wait},
    pacing::Pacing,
    sink::Epoch,
    watch_error::FetchPart,
};
use crate::{
    list_watch::{ListOptions, ListWatchError, VersionMatch},
    object::Version,
};

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
const MOST_PAGES: usize = 100_000;
/// After this number of refusals in a row, at the latest, a list shows what has changed: about twelve minutes.
const REFUSALS_PER_LIST: u32 = 16;
/// A watch that ends sooner than this before its time was not ended by that.
const IN_TIME: Duration = Duration::from_secs(5);
/// A watch that ends sooner, and has brought nothing, counts as too short.
const SHORT: Duration = Duration::from_secs(1);
/// This number of short watches in a row makes the version suspect.
const SHORT_IN_A_ROW: u32 = 3;
/// A stream that was open for this time was good, even if it brought nothing.
pub(super) const LIVED: Duration = Duration::from_secs(10);
/// After internal errors for this time everything is listed again.
const INTERNAL_ERRORS: Duration = Duration::from_secs(60);

/// What to do next.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Wait.
    Sleep(Duration),
    /// Ask for the collection's latest version, to notice a server that lost its history.
    Probe,
    /// Read a page of a list.
    List(ListOptions),
    /// Read the list as the start of a watch.
    Stream(ListOptions),
    /// Watch from the last version.
    Watch(ListOptions),
}

/// The result of a page, or of the end of a streaming list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listed {
    /// There are more pages.
    More,
    /// The list is whole.
    Whole(Epoch),
    /// The list is older than what was seen: it must not be used.
    TooOld,
    /// The continue tokens lead in a circle, or did not end after this number of pages.
    Endless(u32),
}

/// How a watch went until it ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ending {
    /// When it was opened.
    pub(super) opened: Instant,
    /// What it brought.
    pub(super) brought: Brought,
}

/// What a watch brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Brought {
    /// Nothing at all.
    Nothing,
    /// Events or bookmarks, all at the version that was known.
    Signs,
    /// A new version.
    Progress,
}

/// What a reflector knows about the source.
#[derive(Debug)]
pub(super) struct ReflectorState {
    first_list: FirstList,
    page_size: Option<u32>,
    watch_timeout: (Duration, Duration),
    /// The time between two lists of a kind that is polled, not watched.
    poll: Option<Duration>,
    rng: SmallRng,
    pub(super) pacing: Pacing,
    /// What is to be done for next.
    goal: FetchPart,
    /// How long the next step waits.
    pub(super) wait: Duration,
    /// The last version seen; never an empty one.
    pub(super) version: Option<String>,
    /// The next list is a consistent read: the last version seen was refused, or is in doubt.
    reads_present: bool,
    /// Whether the next list starts a new history.
    pub(super) epoch: Epoch,
    paging: Paging,
    streaming: Streaming,
    /// Ask for the collection's version before the next watch.
    must_probe: bool,
    /// How long the last watch was asked to stay open.
    timeout: Duration,
    /// How many watches in a row ended at once with nothing to show.
    short_watches: u32,
    /// How many openings in a row the server refused, although it was reachable.
    refusals: u32,
    pub(super) silence: Silence,
    unopened_since: Option<Instant>,
    internal_errors_since: Option<Instant>,
    /// How the last attempt failed, until one succeeds.
    pub(super) blocked: Option<Fault>,
    /// Other reflectors reach the server that this one does not.
    others_get_through: bool,
}

#[derive(Clone, Debug, Default)]
struct Paging {
    /// The continue token of the next page.
    next: Option<String>,
    /// The tokens of the pages that were read.
    followed: HashSet<String>,
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
            goal: FetchPart::List,
            wait: Duration::ZERO,
            version: None,
            reads_present: false,
            epoch: Epoch::Same,
            paging: Paging::default(),
            streaming: match config.first_list {
                FirstList::Streaming if poll.is_none() => Streaming::Use,
                _ => Streaming::Never,
            },
            must_probe: false,
            timeout: Duration::ZERO,
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
            FetchPart::List if self.streams() => Step::Stream(self.stream_options()),
            FetchPart::List => Step::List(self.list_options()),
            FetchPart::Watch if self.must_probe => Step::Probe,
            FetchPart::Watch => Step::Watch(self.watch_options()),
        }
    }

    /// Starts again after a panic: work under way is forgotten, knowledge is kept.
    pub(super) fn restarted(&mut self, now: Instant) {
        self.end_chain();
        self.begin_cycle();
        let wait = self.pacing.restart(now);
        self.relist_after(wait);
    }

    fn note_success(&mut self) {
        self.blocked = None;
        self.others_get_through = false;
    }

    fn relist_after(&mut self, wait: Duration) {
        self.goal = FetchPart::List;
        self.wait = wait;
    }

    fn relist(&mut self, now: Instant, error: &ListWatchError) {
        let wait = self.pacing.relist(now).max(asked_to_wait(error));
        self.relist_after(wait);
    }

    fn relist_soon(&mut self, now: Instant) {
        let wait = self.pacing.relist_soon(now);
        self.relist_after(wait);
    }

    fn relist_at_present(&mut self, now: Instant) {
        self.reads_present = true;
        self.relist_soon(now);
    }

    fn drawn_timeout(&mut self) -> Duration {
        let (shortest, longest) = self.watch_timeout;
        self.timeout = Duration::from_secs(self.rng.random_range(shortest.as_secs()..=longest.as_secs()));
        self.timeout
    }

    /// Returns whether a version is known to be lower than the last one seen.
    fn is_past(&self, version: &str) -> bool {
        compared(version, self.version.as_deref()).is_some_and(Ordering::is_lt)
    }

    /// Returns whether a version is known to be later than the last one seen.
    pub(super) fn is_later(&self, version: &str) -> bool {
        compared(version, self.version.as_deref()).is_some_and(Ordering::is_gt)
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
            bookmarks: true,
            initial_events: true,
            ..ListOptions::default()
        }
    }

    /// Notes that a page was read; more pages may follow.
    pub(super) fn page_read(&mut self, version: &str, next: Option<String>) -> Listed {
        self.pacing.rereading.reset();
        let Some(token) = next else { return self.judged(version).map_or(Listed::TooOld, Listed::Whole) };
        if self.paging.next.is_none() && self.list_version().as_deref() == Some("0") {
            self.paging.always = true;
        }
        let known = !self.paging.followed.insert(token.clone());
        let pages = self.paging.followed.len() + usize::from(known);
        self.paging.next = Some(token);
        match known || pages >= MOST_PAGES {
            true => Listed::Endless(pages as u32),
            false => Listed::More,
        }
    }

    /// Checks the version of a whole list; `None`: it must not be used.
    ///
    /// A consistent read that is older than what was seen comes from a server that lost its history; any other
    /// older list is refused.
    pub(super) fn judged(&self, version: &str) -> Option<Epoch> {
        match self.is_past(version) {
            _ if self.epoch == Epoch::New => Some(Epoch::New),
            true if self.list_version().is_none() => Some(Epoch::New),
            true => None,
            false => Some(Epoch::Same),
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
            Some(poll) => (FetchPart::List, poll),
            None => (FetchPart::Watch, Duration::ZERO),
        };
        self.must_probe = false;
        self.short_watches = 0;
        self.unopened_since = None;
        self.internal_errors_since = None;
        self.note_success();
        self.pacing.rereading.reset();
        self.pacing.listed = Some(now);
    }

    /// Goes on from a list that failed, in pages or streamed; returns whether the pages that were read are kept.
    pub(super) fn list_failed(&mut self, now: Instant, error: &ListWatchError, streamed: bool) -> bool {
        let fault = Fault::of(error);
        self.blocked = Some(fault);
        if fault.may_be_chance() {
            return self.read_again(now, error, streamed);
        }
        let (in_chain, at_version) = (self.end_chain(), self.list_version().is_some());
        match fault {
            Fault::Expired if in_chain => {
                self.paging.whole = true;
                self.relist_soon(now);
            }
            // As after a broken chain: perhaps the list ends if it is not paged.
            Fault::Endless => {
                self.paging.whole = true;
                self.relist(now, error);
            }
            // The version is refused, not the list.
            Fault::Expired | Fault::TooLarge if at_version => self.relist_at_present(now),
            Fault::Expired | Fault::TooLarge if streamed => {
                // Without a version as well: perhaps a list in pages is answered, which needs no cache of the server.
                if self.reads_present {
                    self.streaming = Streaming::NotThisCycle;
                }
                self.relist_at_present(now);
            }
            Fault::Rejected if at_version => self.relist_at_present(now),
            Fault::Rejected | Fault::NotAllowed if streamed => self.never_stream(),
            Fault::Suspended => self.relist_after(Duration::ZERO),
            Fault::Forbidden | Fault::NotFound if streamed => {
                self.streaming = Streaming::NotThisCycle;
                self.relist_after(Duration::ZERO);
            }
            Fault::NotFound => {
                self.begin_cycle();
                let wait = self.pacing.ask_again(now).max(asked_to_wait(error));
                self.relist_after(wait);
            }
            _ => {
                match streamed {
                    true => self.streaming = Streaming::NotThisCycle,
                    false => self.begin_cycle(),
                }
                self.relist(now, error);
            }
        }
        false
    }

    /// Asks for the same page again: the failure most likely has nothing to do with the page.
    ///
    /// A streaming list is followed by one in pages, which goes on from the page that failed.
    fn read_again(&mut self, now: Instant, error: &ListWatchError, streamed: bool) -> bool {
        let wait = self.pacing.reread(now).max(self.asked_to_wait(error));
        self.relist_after(wait);
        if streamed {
            self.streaming = Streaming::NotThisCycle;
            return false;
        }
        self.paging.whole = false;
        if self.pacing.rereading.backoff.failures().is_multiple_of(TRIES) {
            self.end_chain();
            self.begin_cycle();
        }
        self.paging.next.is_some()
    }

    /// Refuses a list that is too old: the next one is a consistent read.
    pub(super) fn list_refused(&mut self, now: Instant) {
        self.end_chain();
        self.reads_present = true;
        let wait = self.pacing.relist(now);
        self.relist_after(wait);
    }

    /// Forgets the pages of the list under way; returns whether there were any.
    pub(super) fn end_chain(&mut self) -> bool {
        self.paging.followed.clear();
        self.paging.next.take().is_some()
    }

    /// Gives up on streaming lists.
    pub(super) fn never_stream(&mut self) {
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
            bookmarks: true,
            ..ListOptions::default()
        }
    }

    /// Notes that a watch was opened; returns whether to read it, and not to list again after a long outage.
    pub(super) fn watch_opened(&mut self, now: Instant) -> bool {
        if self.relists_after_outage(now) {
            return false;
        }
        self.unopened_since = None;
        self.note_success();
        true
    }

    /// Notes that a watch brought something: it is good from its first event on.
    pub(super) fn delivered(&mut self, ending: &mut Ending, version: Option<&str>) {
        if ending.brought == Brought::Nothing {
            self.was_good();
            ending.brought = Brought::Signs;
        }
        self.silence = Silence::new();
        let Some(version) = version.filter(|version| !version.is_empty()) else { return };
        if self.version.as_deref() != Some(version) && !self.is_past(version) {
            self.version = Some(version.to_owned());
            ending.brought = Brought::Progress;
        }
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
            _ => self.pacing.relist(now),
        };
        let wait = wait.max(asked_to_wait(error));
        match self.refusals.is_power_of_two() || self.refusals.is_multiple_of(REFUSALS_PER_LIST) {
            true => self.relist_after(wait),
            false => (self.goal, self.must_probe, self.wait) = (FetchPart::Watch, true, wait),
        }
    }

    /// Goes on from a watch that broke off, or that the server ended with an error.
    pub(super) fn watch_broke(&mut self, now: Instant, ending: Ending, error: &ListWatchError) {
        self.note_life(now, ending);
        self.short_watches = 0;
        if Fault::of(error) == Fault::Idle && ending.brought == Brought::Nothing {
            self.silence.watches += 1;
        }
        self.watch_failed(now, error);
    }

    /// Goes on from a watch that the server ended cleanly; returns whether it ended too soon.
    pub(super) fn watch_closed(&mut self, now: Instant, ending: Ending) -> bool {
        self.note_life(now, ending);
        // Something else ended it than its time: by now the server may be another, or a restored one.
        self.must_probe |= now + IN_TIME < ending.opened + self.timeout;
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
        let wait = self.pacing.relist(now);
        self.relist_after(wait);
        true
    }

    /// Checks the version that a consistent read of the collection returned.
    pub(super) fn probed(&mut self, now: Instant, latest: Option<&str>) {
        self.must_probe = false;
        self.note_success();
        if latest.is_some_and(|latest| self.is_past(latest)) {
            // The server has lost its history.
            self.epoch = Epoch::New;
            self.end_chain();
            self.relist_at_present(now);
        } else if !self.relists_after_outage(now)
            && latest.is_some_and(|latest| self.is_later(latest))
            && self.silence.is_suspicious()
        {
            self.ask_for_the_present();
            self.relist_after(Duration::ZERO);
        }
    }

    /// Goes on after the collection's version could not be read; returns whether the watch is opened without it.
    ///
    /// Any other failure counts as a failure to open the watch.
    pub(super) fn probe_failed(&mut self, now: Instant, error: &ListWatchError) -> bool {
        let stays_unknown = Fault::of(error).leaves_unknown();
        match stays_unknown {
            true => self.must_probe = false,
            false => self.open_failed(now, error),
        }
        stays_unknown
    }

    fn note_life(&mut self, now: Instant, ending: Ending) {
        let lived = now - ending.opened;
        if lived >= LIVED {
            self.was_good();
        } else if lived >= SHORT {
            // The kind is reachable.
            self.pacing.reopening.since = None;
        }
        if ending.brought == Brought::Nothing {
            self.must_probe = true;
        }
    }

    pub(super) fn was_good(&mut self) {
        self.pacing.reopening.reset();
        self.internal_errors_since = None;
        self.refusals = 0;
    }

    fn watch_failed(&mut self, now: Instant, error: &ListWatchError) {
        let fault = Fault::of(error);
        self.blocked = Some(fault);
        match fault {
            Fault::Idle | Fault::Suspended => (self.must_probe, self.wait) = (true, Duration::ZERO),
            Fault::Internal if now - *self.internal_errors_since.get_or_insert(now) > INTERNAL_ERRORS => {
                self.relist(now, error)
            }
            fault if fault.may_be_chance() => self.reopen(now, error),
            Fault::Expired | Fault::TooLarge => self.relist_at_present(now),
            _ => self.relist(now, error),
        }
    }

    /// Opens the watch again after a wait. Meanwhile the server may be restored to an older state.
    fn reopen(&mut self, now: Instant, error: &ListWatchError) {
        self.goal = FetchPart::Watch;
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

    /// Lists after a while if no watch could be opened for long; returns whether that is so.
    fn relists_after_outage(&mut self, now: Instant) -> bool {
        let is_long = self.unopened_since.is_some_and(|since| now - since >= LONG_OUTAGE);
        if is_long {
            self.unopened_since = None;
            let wait = SPREAD.mul_f64(self.rng.random_range(0.0..1.0));
            self.relist_after(wait);
        }
        is_long
    }

    // Events of the server, and of the store.

    /// Returns whether the server answers for this kind, or may do so soon.
    pub(super) fn can_ask(&self) -> bool {
        !self.blocked.is_some_and(Fault::is_refused_for_good)
    }

    /// Has this kind checked by its own versions, as the server lost its history; returns whether to stop waiting.
    pub(super) fn compare(&mut self, now: Instant) -> bool {
        match self.goal {
            FetchPart::Watch => self.must_probe = true,
            // A list under way may show what was lost; the next one is a consistent read.
            FetchPart::List => self.ask_for_the_present(),
        }
        let asks_now = self.blocked != Some(Fault::Overloaded);
        if asks_now {
            self.on_recovery(now);
            self.wait = Duration::ZERO;
        }
        asks_now
    }

    /// Handles the event that the server was reached again; returns how long after the last failure to try again.
    ///
    /// `None`: this kind waits for another reason, or has failed for long while others got through.
    pub(super) fn on_recovery(&mut self, now: Instant) -> Option<Duration> {
        let waits = self.blocked.is_some_and(Fault::is_of_an_outage);
        let step = match self.goal {
            _ if !waits => None,
            FetchPart::List => self.pacing.rereading.hurry(now),
            FetchPart::Watch => self.pacing.reopening.hurry(now),
        }?;
        self.others_get_through = true;
        Some(step)
    }

    /// Lists again because answers contradict what the store shows.
    pub(super) fn contradicted(&mut self) {
        if self.version.is_some() {
            self.goal = FetchPart::List;
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

/// Compares two versions; `None` where that can't be done.
pub(super) fn compared(version: &str, with: Option<&str>) -> Option<Ordering> {
    let with: Version = with?.parse().ok()?;
    Some(version.parse::<Version>().ok()?.cmp(&with))
}
