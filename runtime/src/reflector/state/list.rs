//! Lists: at which version, in which form, and what follows from their outcomes.

use std::{hash::BuildHasher, time::Duration};

use tokio::time::Instant;

use super::{Freshness, Goal, Paging, ProbeNeed, State, Streaming};
use crate::{
    list_watch::{Bookmarks, InitialEvents, ListOptions, ListWatchError, VersionMatch},
    reflector::{
        config::FirstList,
        fault::{Fault, asked_to_wait},
        pacing::Urgency,
        sink::Epoch,
    },
};

/// Items a page where nobody says otherwise.
const PAGE_SIZE: u32 = 500;

/// After how many failures in a row a list begins again, and is streamed again if it was.
const TRIES: u32 = 10;

/// Most pages of a list: at the default size, fifty million objects.
const MOST_PAGES: u32 = 100_000;

/// What a page, or the end of a streaming list, comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::reflector) enum Listed {
    /// There are more pages.
    More,
    /// The list is whole.
    Whole(Epoch),
    /// The list shows the past: it must not be taken.
    TooOld,
    /// The chain of pages is a circle, or breaks off, after this many.
    Endless(u32),
}

/// What becomes of the pages that were read before a list failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::reflector) enum PagesRead {
    /// The page that failed is asked for again.
    Kept,
    /// The list begins again.
    Dropped,
}

/// Where a streaming list failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::reflector) enum StreamPhase {
    /// When it was opened.
    Opening,
    /// Before its end.
    Reading,
}

impl State {
    pub(super) fn streams(&self) -> bool {
        self.streaming == Streaming::Use && self.paging.next.is_none() && !self.paging.whole
    }

    /// Returns the version to list at; `None` for a consistent read.
    fn list_version(&self) -> Option<String> {
        match (self.freshness, &self.version) {
            (Freshness::Present, _) => None,
            (Freshness::LastSeen, Some(version)) => Some(version.clone()),
            (Freshness::LastSeen, None) if self.first_list == FirstList::AnyVersion => Some("0".to_owned()),
            (Freshness::LastSeen, None) => None,
        }
    }

    pub(super) fn list_options(&self) -> ListOptions {
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

    pub(super) fn stream_options(&mut self) -> ListOptions {
        ListOptions {
            resource_version: self.list_version(),
            version_match: Some(VersionMatch::NotOlderThan),
            timeout: Some(self.drawn_timeout()),
            bookmarks: Bookmarks::On,
            initial_events: InitialEvents::Send,
            ..ListOptions::default()
        }
    }

    /// Takes what a page says about itself; more pages may follow.
    pub(in crate::reflector) fn page_read(&mut self, version: &str, next: Option<String>) -> Listed {
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

    /// Judges a whole list by its version.
    ///
    /// A consistent read that is behind what was seen comes from a server that lost its history; any other
    /// list that is behind is refused.
    pub(in crate::reflector) fn judged(&self, version: &str) -> Listed {
        match self.is_before_last(version) {
            _ if self.epoch == Epoch::New => Listed::Whole(Epoch::New),
            Some(true) if self.list_version().is_none() => Listed::Whole(Epoch::New),
            Some(true) => Listed::TooOld,
            Some(false) | None => Listed::Whole(Epoch::Same),
        }
    }

    /// Goes on from a list that is safely in the store.
    pub(in crate::reflector) fn replaced(&mut self, now: Instant, version: &str) {
        self.version = Some(version.to_owned()).filter(|version| !version.is_empty());
        self.freshness = Freshness::LastSeen;
        self.epoch = Epoch::Same;
        self.paging = Paging { always: self.paging.always, ..Paging::default() };
        self.begin_cycle();
        (self.goal, self.wait) = match self.poll {
            Some(poll) => (Goal::List, poll),
            None => (Goal::Watch, Duration::ZERO),
        };
        self.probe = ProbeNeed::NotNeeded;
        self.short_watches = 0;
        self.unopened_since = None;
        self.internal_errors_since = None;
        self.note_success();
        self.pacing.listed(now);
    }

    /// Goes on from a list that failed.
    pub(in crate::reflector) fn list_failed(&mut self, now: Instant, error: &ListWatchError) -> PagesRead {
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
                self.freshness = Freshness::Present;
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
        PagesRead::Dropped
    }

    /// Asks for the same page again: what kept it from being read has nothing to do with it, most likely.
    fn read_again(&mut self, now: Instant, error: &ListWatchError) -> PagesRead {
        let wait = self.pacing.reread(now).max(self.asked_to_wait(error));
        self.relist_after(wait);
        self.paging.whole = false;
        if self.pacing.failed_reads().is_multiple_of(TRIES) {
            self.end_chain();
            self.begin_cycle();
        }
        if self.paging.next.is_some() { PagesRead::Kept } else { PagesRead::Dropped }
    }

    /// Refuses a list that shows the past: the next one is a consistent read.
    pub(in crate::reflector) fn list_refused(&mut self, now: Instant) {
        self.end_chain();
        self.freshness = Freshness::Present;
        let wait = self.pacing.relist(now, Urgency::BackOff);
        self.relist_after(wait);
    }

    /// Forgets the pages of the list under way; tells whether there were any.
    pub(super) fn end_chain(&mut self) -> bool {
        self.paging.pages = 0;
        self.paging.followed.clear();
        self.paging.next.take().is_some()
    }

    /// Notes that a streaming list was opened.
    pub(in crate::reflector) fn stream_opened(&mut self) {
        self.pacing.list_opened();
    }

    /// Goes on from a streaming list that failed.
    pub(in crate::reflector) fn stream_failed(
        &mut self,
        now: Instant,
        error: &ListWatchError,
        phase: StreamPhase,
    ) {
        self.note_failure(error);
        let wait = match (Fault::of(error), phase) {
            // A version that is refused is not the stream that is; the first stream has none.
            (Fault::Rejected, _) if self.list_version().is_some() => {
                self.freshness = Freshness::Present;
                self.pacing.relist(now, Urgency::AtOnceTheFirstTime)
            }
            (Fault::Rejected | Fault::NotAllowed, _) => {
                self.streaming = Streaming::Never;
                Duration::ZERO
            }
            (Fault::Expired | Fault::TooLarge, _) => {
                self.freshness = Freshness::Present;
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
    pub(in crate::reflector) fn stream_cut(&mut self, now: Instant) {
        self.blocked = Some(Fault::CutShort);
        // A list in pages goes on from the page that failed.
        self.streaming = Streaming::NotThisCycle;
        let wait = self.pacing.reread(now);
        self.relist_after(wait);
    }

    /// Gives up on streaming lists: the bookmark did not come in time.
    pub(in crate::reflector) fn stream_overdue(&mut self) {
        self.streaming = Streaming::Never;
        self.relist_after(Duration::ZERO);
    }

    /// Returns whether streaming lists were given up for good.
    pub(in crate::reflector) fn never_streams(&self) -> bool {
        self.streaming == Streaming::Never
    }

    pub(super) fn begin_cycle(&mut self) {
        self.paging.whole = false;
        if self.streaming == Streaming::NotThisCycle {
            self.streaming = Streaming::Use;
        }
    }
}
