//! Decides what a reflector does next: list how, watch from where, wait how long.
//!
//! Pure: outcomes and the time go in, the next step comes out. No I/O, no clock; randomness is seeded.

mod list;
mod server_events;
mod silence;
mod watch;

use std::{cmp::Ordering, collections::HashSet, time::Duration};

use foldhash::fast::RandomState;

use rand::{Rng, SeedableRng, rngs::SmallRng};
use tokio::time::Instant;

use super::{
    config::{FirstList, ReflectorConfig},
    fault::Fault,
    pacing::{Pacing, ServerReach},
    sink::Epoch,
};
use crate::{
    list_watch::{ListOptions, ListWatchError},
    object::Version,
};

pub(super) use list::{Listed, PagesRead, StreamPhase};
pub(super) use server_events::OnLoss;
use silence::Silence;
pub(super) use watch::{Brought, Ending, LIVED, Opened, ProbeFailure};

/// How long a kind may be out of reach before everything is listed again.
const LONG_OUTAGE: Duration = Duration::from_secs(60);

/// Over how long those lists are spread, so that not everybody lists at once.
const SPREAD: Duration = Duration::from_secs(30);

/// How often a kind is listed that is not watched, at most.
const MOST_OFTEN: Duration = Duration::from_secs(1);

/// Servers count the timeout of a watch in seconds, take none for their own default, and end somewhere.
const SHORTEST_WATCH: Duration = Duration::from_secs(1);
const LONGEST_WATCH: Duration = Duration::from_secs(i32::MAX as u64);

/// What to do next.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Wait.
    Sleep(Duration),
    /// Ask for the collection's version, to notice a server that lost its history.
    Probe,
    /// Read a page of a list.
    List(ListOptions),
    /// Read the list as the start of a watch.
    Stream(ListOptions),
    /// Watch from the last version.
    Watch(ListOptions),
}

/// What a reflector knows about the source.
#[derive(Debug)]
pub(super) struct State {
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
    freshness: Freshness,
    epoch: Epoch,
    paging: Paging,
    /// Hashes continue tokens.
    tokens: RandomState,
    streaming: Streaming,
    probe: ProbeNeed,
    /// How many watches in a row ended at once with nothing to show.
    short_watches: u32,
    /// How many openings in a row the server refused, although it was in reach.
    refusals: u32,
    silence: Silence,
    unopened_since: Option<Instant>,
    internal_errors_since: Option<Instant>,
    /// How the last attempt failed, until one succeeds.
    blocked: Option<Fault>,
    others: Others,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Goal {
    List,
    Watch,
}

/// Says at which version the next list is read.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Freshness {
    /// At the last version seen, or later.
    LastSeen,
    /// At the present: the last version seen was refused.
    Present,
}

#[derive(Clone, Debug, Default)]
struct Paging {
    /// Where the next page of the list under way starts.
    next: Option<String>,
    /// How many pages of it were read, and the tokens that led to them.
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

/// Whether other reflectors reach the server that this one does not.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Others {
    Unheard,
    GetThrough,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum ProbeNeed {
    Needed,
    NotNeeded,
}

impl State {
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
            freshness: Freshness::LastSeen,
            epoch: Epoch::Same,
            paging: Paging::default(),
            tokens: RandomState::default(),
            streaming: match config.first_list {
                FirstList::Streaming if poll.is_none() => Streaming::Use,
                _ => Streaming::Never,
            },
            probe: ProbeNeed::NotNeeded,
            short_watches: 0,
            refusals: 0,
            silence: Silence::new(),
            unopened_since: None,
            internal_errors_since: None,
            blocked: None,
            others: Others::Unheard,
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
            Goal::Watch if self.probe == ProbeNeed::Needed => Step::Probe,
            Goal::Watch => Step::Watch(self.watch_options()),
        }
    }

    /// Takes note of whether the server answers anyone.
    pub(super) fn note_reach(&mut self, reach: ServerReach) {
        self.pacing.note_reach(reach);
    }

    /// Returns whether nothing has failed since all was well.
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

    /// Starts over after a panic: what was half done is forgotten, what is known stays.
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
        self.others = Others::Unheard;
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
}
