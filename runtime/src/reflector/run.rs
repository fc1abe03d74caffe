//! Does what the state decides: asks the source, fills the store, reports failures.

use std::{convert::Infallible, panic::AssertUnwindSafe, sync::Arc};

use futures::FutureExt;
use tokio::{task::coop::consume_budget, time::Instant};
use tracing::{debug, info, warn};

use super::{
    ReflectorConfig, ReflectorStore,
    difference::Checks,
    pacing::ServerReach,
    pages::Pages,
    part::FetchPart,
    reporter::Reporter,
    server::Member,
    sink::{Epoch, List},
    snapshot::{PATIENCE, Snapshot},
    state::{Ending, Listed, Opened, PagesRead, ProbeFailure, State, Step, StreamPhase},
    watch_error::rounded,
};
use crate::{
    backoff::random_seed,
    clock::WallClock,
    list_watch::{Item, ListOptions, ListWatchError, ListerWatcher},
    object::Object,
    users_code::discard,
};

/// A reflector at work.
pub(super) struct ReflectorLoop<K, L, S> {
    pub(super) source: L,
    pub(super) store: Arc<S>,
    pub(super) reporter: Reporter,
    pub(super) clock: WallClock,
    pub(super) member: Member,
    pub(super) state: State,
    /// The pages of the list under way.
    pub(super) pages: Pages<K>,
    /// How many events the stream under way has brought.
    pub(super) heard: usize,
    /// How many objects the last list showed, if nothing has come since.
    pub(super) count: Option<usize>,
    /// What it is at.
    pub(super) part: FetchPart,
    /// How many losses of the server's history were known when the question under way was asked.
    pub(super) asked_at: u64,
    /// How many losses what the store was given accounts for.
    pub(super) accounted: u64,
    pub(super) watch: WatchNotice,
    pub(super) checks: Checks,
}

/// Whether the store knows that the watch is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchNotice {
    Fine,
    Lost,
}

/// How the reading of a stream ended.
pub(super) enum End {
    Closed,
    Failed(ListWatchError),
    /// The initial events did not end in time.
    Overdue,
    /// The initial events showed the past; this is their version.
    TooOld(String),
    /// The server lost its history.
    HistoryLost,
    /// What was read may be of before the server lost its history.
    Outdated,
    /// The store wants a list.
    Contradicted,
}

impl<K, L, S> ReflectorLoop<K, L, S>
where
    K: Object,
    L: ListerWatcher<K>,
    S: ReflectorStore<K>,
{
    pub(super) fn new(source: L, store: Arc<S>, config: &ReflectorConfig) -> Self {
        let seed = config.seed.unwrap_or_else(random_seed);
        let state = State::new(config, seed);
        let told = store.clone();
        let reporter = Reporter::new(move |report| told.report(report), config);
        Self {
            source,
            store,
            reporter,
            clock: config.clock.clone(),
            member: config.server.join(),
            state,
            pages: Pages::new(),
            heard: 0,
            count: None,
            part: FetchPart::List,
            asked_at: 0,
            accounted: 0,
            watch: WatchNotice::Fine,
            checks: Checks::new(config.consistency_check, config.page_size),
        }
    }

    pub(super) async fn run(mut self) -> Infallible {
        loop {
            // A source that fails at once, on a schedule without delays, must let others run.
            consume_budget().await;
            if let Err(panic) = AssertUnwindSafe(self.step()).catch_unwind().await {
                discard(panic);
                self.restart();
            }
        }
    }

    async fn step(&mut self) {
        // A recovery is left for the wait that may follow: it was announced while this reflector was busy.
        if self.member.take_loss() {
            self.compare_soon();
        }
        self.state.note_reach(match self.member.server_answers() {
            true => ServerReach::Answers,
            false => ServerReach::Silent,
        });
        match self.state.next() {
            Step::Sleep(wait) => self.sleep(wait).await,
            Step::Probe => self.probe().await,
            Step::List(options) => self.list(&options).await,
            Step::Stream(options) => self.stream(&options).await,
            Step::Watch(options) => self.watch(&options).await,
        }
    }

    /// Goes on from a panic: in the source, a hook, a schedule, the store, or here.
    ///
    /// What the store had not taken is lost, so that everything is listed again.
    fn restart(&mut self) {
        self.pages = Pages::new();
        self.member.watch_ended();
        self.reporter.list_given_up();
        self.state.restarted(Instant::now());
        self.reporter.failed(self.part, ListWatchError::Panicked, self.state.wait());
    }

    async fn list(&mut self, options: &ListOptions) {
        self.part = FetchPart::List;
        if self.pages.is_empty() {
            self.asked_at = self.member.losses();
        }
        self.reporter.listing();
        let page = match self.source.list(options).await {
            Ok(page) => page,
            Err(error) => return self.list_failed(error),
        };
        self.member.succeeded();
        self.pages.add(page.items, page.resource_version, &*self.store).await;
        let version = self.pages.version().to_owned();
        match self.state.page_read(&version, page.continue_token) {
            Listed::More => {}
            Listed::Whole(epoch) => {
                let list = self.pages.take(epoch);
                self.replace(list);
            }
            Listed::TooOld => {
                self.pages = Pages::new();
                self.refuse(&version);
            }
            Listed::Endless(pages) => self.list_failed(ListWatchError::Endless { pages }),
        }
    }

    fn list_failed(&mut self, error: ListWatchError) {
        if self.state.list_failed(Instant::now(), &error) == PagesRead::Dropped {
            self.pages = Pages::new();
            self.reporter.list_given_up();
        }
        self.failed(error);
    }

    async fn stream(&mut self, options: &ListOptions) {
        self.part = FetchPart::List;
        self.asked_at = self.member.losses();
        self.reporter.listing();
        match self.source.watch(options).await {
            Ok(stream) => {
                self.state.stream_opened();
                self.follow(stream, Some(Snapshot::new(Instant::now()))).await;
            }
            Err(error) => {
                self.reporter.list_given_up();
                self.state.stream_failed(Instant::now(), &error, StreamPhase::Opening);
                self.warn_of_falling_back("the server refuses them");
                match error.is_forbidden() || error.is_not_found() {
                    // A list follows at once, and tells what is wrong if that fails as well.
                    true => self.reporter.passed_over(&error),
                    false => self.failed(error),
                }
            }
        }
    }

    async fn watch(&mut self, options: &ListOptions) {
        self.part = FetchPart::Watch;
        match self.source.watch(options).await {
            Ok(stream) => match self.state.watch_opened(Instant::now()) {
                Opened::Follow => {
                    self.watch_is_back();
                    self.follow(stream, None).await;
                }
                Opened::Relist => {
                    self.member.succeeded();
                    self.tell_long_outage();
                }
            },
            Err(error) => {
                self.state.open_failed(Instant::now(), &error);
                self.failed(error);
            }
        }
    }

    async fn probe(&mut self) {
        self.part = FetchPart::Watch;
        self.asked_at = self.member.losses();
        match self.source.latest_version().await {
            Ok(latest) => {
                self.member.succeeded();
                self.state.probed(Instant::now(), latest.as_deref());
                match self.state.next_epoch() {
                    Epoch::New => self.found_loss(),
                    Epoch::Same => self.is_current(),
                }
            }
            Err(error) => match self.state.probe_failed(Instant::now(), &error) {
                ProbeFailure::WatchWithout => self.cant_tell(&error),
                ProbeFailure::NotOpened => self.failed(error),
            },
        }
    }

    pub(super) fn replace(&mut self, list: List<K>) {
        let (count, version, epoch) =
            (list.items.len() + list.unchanged.len(), list.resource_version.clone(), list.epoch);
        debug!(kind = %self.reporter.name, items = count, unchanged = list.unchanged.len(), version, ?epoch, "listed");
        // Before the store acts on it: others must not go on meanwhile.
        if epoch == Epoch::New && self.state.next_epoch() == Epoch::Same {
            self.found_loss();
            self.asked_at = self.member.losses();
        }
        let missed = self.state.looks_for_missed() && self.shows_missed(&list);
        self.count = Some(count);
        self.reporter.listed(count);
        if epoch == Epoch::New {
            self.reporter.epoch_began();
        }
        self.store.replace(list);
        self.state.replaced(Instant::now(), &version);
        self.reporter.reached(self.state.version());
        self.reporter.healthy(FetchPart::List);
        self.is_current();
        self.watch_is_back();
        self.state.looked(missed);
        if missed {
            self.reporter.failed(FetchPart::Watch, ListWatchError::HeldBack, self.state.wait());
        }
    }

    /// Returns whether a list shows something that the watches before it had not brought.
    fn shows_missed(&self, list: &List<K>) -> bool {
        let later =
            |item: &Item<K>| item.resource_version().is_some_and(|version| self.state.is_later(version));
        let count = list.items.len() + list.unchanged.len();
        list.items.iter().any(later) || self.count.is_some_and(|before| before != count)
    }

    /// Goes on from a stream that ended before its list was whole.
    pub(super) fn list_ended(&mut self, end: End) {
        let now = Instant::now();
        self.reporter.list_given_up();
        match end {
            End::Closed => {
                self.state.stream_cut(now);
                self.failed(ListWatchError::CutShort);
            }
            End::Overdue => {
                self.state.stream_overdue();
                self.warn_of_falling_back("their end did not come in time: a proxy may drop it");
                self.failed(ListWatchError::Deadline(PATIENCE));
            }
            End::TooOld(version) => self.refuse(&version),
            End::Outdated | End::HistoryLost => self.compare_soon(),
            End::Contradicted => {}
            End::Failed(error) => {
                self.state.stream_failed(now, &error, StreamPhase::Reading);
                self.warn_of_falling_back("the server refuses them");
                self.failed(error);
            }
        }
    }

    /// Goes on from a watch that ended.
    pub(super) fn watch_ended(&mut self, end: End, ending: Ending) {
        let now = Instant::now();
        match end {
            End::HistoryLost => {
                self.state.history_lost(now);
                self.found_loss();
            }
            End::Contradicted => self.list_to_compare(),
            End::Outdated => self.compare_soon(),
            End::Closed | End::Overdue | End::TooOld(_) => {
                if self.state.watch_closed(now, ending) {
                    self.failed(ListWatchError::ClosedAtOnce);
                }
            }
            End::Failed(error) => {
                self.state.watch_broke(now, ending, &error);
                match error {
                    ListWatchError::Idle(_) => {
                        debug!(kind = %self.reporter.name, %error, "opening the watch again")
                    }
                    error => self.failed(error),
                }
            }
        }
    }

    fn refuse(&mut self, version: &str) {
        self.state.list_refused(Instant::now());
        self.failed(ListWatchError::Unreadable(too_old(version)));
    }

    fn failed(&mut self, error: ListWatchError) {
        self.note_reach(&error);
        let wait = self.state.wait();
        self.reporter.failed(self.part, error, wait);
    }

    fn warn_of_falling_back(&self, why: &str) {
        if self.state.never_streams() {
            let name = &self.reporter.name;
            warn!(kind = %name, "{name} is listed in pages from now on, streaming lists don't work: {why}");
        }
    }

    fn tell_long_outage(&self) {
        let (name, wait) = (&self.reporter.name, rounded(self.state.wait()));
        info!(kind = %name, "{name} was out of reach for long: listing it in {wait:?}");
    }
}

fn too_old(version: &str) -> String {
    format!("the list is of version {version}, older than what was seen before")
}
