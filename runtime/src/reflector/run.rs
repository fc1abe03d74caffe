//! Does what the state decides: asks the source, fills the store, reports failures.

use std::{convert::Infallible, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt};
use tokio::{
    task::coop::consume_budget,
    time::{Instant, sleep},
};
use tracing::{debug, info, warn};

use super::{
    ReflectorConfig, ReflectorStore, StoreChange,
    difference::{Checked, Checks},
    pages::Pages,
    part::FetchPart,
    reporter::Reporter,
    server::{Member, ServerEvent},
    sink::{Epoch, List},
    snapshot::{PATIENCE, Snapshot},
    state::{Brought, Ending, LIVED, Listed, Opened, ProbeFailure, State, Step, StreamPhase},
    stream::Phase,
    stream::{Flow, LOOK, next_batch, set_alarm},
    watch_error::rounded,
};
use crate::{
    clock::{Lead, WallClock},
    list_watch::{ListOptions, ListWatchError, ListerWatcher, WatchEvent, WatchStream},
    object::Object,
};

/// How far the wall clock must run ahead for the machine to have been suspended.
const SUSPENDED: Duration = Duration::from_secs(30);

/// What is said of an event whose object has no name that can be read.
const NAMELESS: &str = "an event is of an object whose name can't be read";

/// A reflector at work.
pub(super) struct ReflectorLoop<K, L, S> {
    pub(super) source: L,
    pub(super) store: Arc<S>,
    pub(super) reporter: Reporter<S>,
    clock: WallClock,
    pub(super) member: Member,
    pub(super) state: State,
    /// The pages of the list under way.
    pub(super) pages: Pages<K>,
    /// How many events the stream under way has brought.
    heard: usize,
    /// What it is at.
    part: FetchPart,
    /// How many losses of the server's history were known when the question under way was asked.
    pub(super) asked_at: u64,
    /// How many losses what the store was given accounts for.
    pub(super) accounted: u64,
    pub(super) watch: WatchNotice,
    pub(super) checks: Checks,
}

/// Whether the store was told that there is no watch.
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
        let seed = config.seed.unwrap_or_else(rand::random);
        let state = State::new(config, seed);
        let (reporter, clock) = (Reporter::new(store.clone(), config), config.clock.clone());
        Self {
            source,
            store,
            reporter,
            clock,
            member: config.server.join(),
            state,
            pages: Pages::new(),
            heard: 0,
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
            if AssertUnwindSafe(self.step()).catch_unwind().await.is_err() {
                self.restart();
            }
        }
    }

    async fn step(&mut self) {
        if self.member.take_event() == Some(ServerEvent::HistoryLost) {
            self.compare_soon();
        }
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
        self.member.got_through();
        self.pages.add(page.items, &*self.store).await;
        match self.state.page_read(&page.resource_version, page.continue_token) {
            Listed::More => {}
            Listed::Whole(epoch) => {
                let list = self.pages.take(&page.resource_version, epoch);
                self.replace(list);
            }
            Listed::TooOld => {
                self.pages = Pages::new();
                self.refuse(&page.resource_version);
            }
            Listed::Endless(pages) => self.list_failed(ListWatchError::Endless { pages }),
        }
    }

    fn list_failed(&mut self, error: ListWatchError) {
        self.pages = Pages::new();
        self.reporter.list_given_up();
        self.state.list_failed(Instant::now(), &error);
        self.failed(error);
    }

    async fn stream(&mut self, options: &ListOptions) {
        self.part = FetchPart::List;
        self.asked_at = self.member.losses();
        self.reporter.listing();
        match self.source.watch(options).await {
            Ok(stream) => self.follow(stream, Some(Snapshot::new(Instant::now()))).await,
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
                    self.member.got_through();
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
                self.member.got_through();
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

    /// Reads a stream to its end: first what belongs to the list, if it starts with one, then changes.
    async fn follow(&mut self, stream: WatchStream<K>, mut snapshot: Option<Snapshot<K>>) {
        let (mut stream, mut batch) = (stream.fuse(), Vec::new());
        let mut ending = Ending { opened: Instant::now(), brought: Brought::Nothing };
        let opened = ending.opened;
        let mut lead = Lead::start(self.clock.clone());
        let mut alarm = Box::pin(sleep(LOOK));
        self.reporter.watch_opened();
        self.member.watch_opened();
        self.heard = 0;
        let end = loop {
            let until = match &snapshot {
                Some(snapshot) => Some(snapshot.overdue()),
                None => self.reporter.is_failing(FetchPart::Watch).then(|| ending.opened + LIVED),
            };
            let next = tokio::select! {
                biased;
                event = self.member.next_event() => {
                    let phase = snapshot.as_ref().map_or(Phase::Watch, |_| Phase::List);
                    match self.on_server_event(event, phase).await {
                        Some(end) => break end,
                        None => continue,
                    }
                }
                () = self.store.wants_list(), if snapshot.is_none() => break End::Contradicted,
                () = self.checks.due(), if snapshot.is_none() => match self.check().await {
                    Checked::Fine => continue,
                    Checked::Differs => break End::Contradicted,
                },
                next = next_batch(&mut stream, &mut batch, alarm.as_mut()) => next,
            };
            match next {
                Some(Flow::GoesOn) => {
                    if let Some(end) = self.take(&mut batch, &mut snapshot, &mut ending) {
                        break end;
                    }
                }
                Some(Flow::Ended) => break End::Closed,
                None if lead.measure() >= SUSPENDED => {
                    break End::Failed(ListWatchError::Suspended(rounded(lead.measure())));
                }
                None if until.is_some_and(|until| until <= Instant::now()) => match snapshot {
                    Some(_) => break End::Overdue,
                    // Open for so long without a failure: all is well, even if nothing happens.
                    None => self.reporter.healthy(FetchPart::Watch),
                },
                None => {}
            }
            set_alarm(alarm.as_mut(), until);
        };
        self.reporter.watch_ended(opened, self.heard);
        drop(stream);
        self.member.watch_ended();
        match snapshot {
            Some(_) => self.list_ended(end),
            None => self.watch_ended(end, ending),
        }
    }

    /// Takes the events of a batch; returns how the stream ended, if it did.
    fn take(
        &mut self,
        batch: &mut Vec<Result<WatchEvent<K>, ListWatchError>>,
        snapshot: &mut Option<Snapshot<K>>,
        ending: &mut Ending,
    ) -> Option<End> {
        let now = Instant::now();
        self.heard += batch.len();
        let mut changes = Vec::with_capacity(batch.len());
        let mut end = None;
        for event in batch.drain(..) {
            match (event, snapshot.as_mut()) {
                (Err(error), _) => {
                    end = Some(End::Failed(error));
                    break;
                }
                (Ok(WatchEvent::Error(status)), _) => {
                    end = Some(End::Failed(ListWatchError::from_status(*status)));
                    break;
                }
                (Ok(WatchEvent::Unexpected(what)), _) => self.reporter.skipped(what),
                (Ok(event), None) => {
                    let nameless = event.item().is_some_and(|item| item.key().is_none());
                    changes.extend(change(event));
                    if nameless {
                        // Which object it is of is what only a list can tell.
                        end = Some(End::Failed(ListWatchError::Unreadable(NAMELESS.to_owned())));
                        break;
                    }
                }
                (Ok(event), Some(collected)) => {
                    let Some(version) = collected.take(event, now, &*self.store) else { continue };
                    let collected = snapshot.take();
                    match self.state.judged(&version) {
                        Listed::Whole(epoch) => {
                            collected
                                .into_iter()
                                .for_each(|list| self.replace(list.into_list(&version, epoch)));
                        }
                        Listed::More | Listed::TooOld | Listed::Endless(_) => {
                            // Still a list that failed, not a watch.
                            *snapshot = Some(Snapshot::new(now));
                            return Some(End::TooOld(version));
                        }
                    }
                    *ending = Ending { opened: now, brought: Brought::Progress };
                    // What follows is a watch, which has delivered.
                    self.part = FetchPart::Watch;
                    self.reporter.healthy(FetchPart::Watch);
                }
            }
        }
        self.apply(changes, ending);
        end
    }

    /// Hands changes to the store, then advances.
    fn apply(&mut self, changes: Vec<StoreChange<K>>, ending: &mut Ending) {
        if changes.is_empty() {
            return;
        }
        let version = changes.iter().rev().find_map(version_of).map(str::to_owned);
        self.store.apply(changes);
        if ending.brought == Brought::Nothing {
            self.reporter.healthy(FetchPart::Watch);
        }
        ending.brought = ending.brought.max(self.state.delivered(version.as_deref()));
        self.reporter.reached(self.state.version());
    }

    fn replace(&mut self, list: List<K>) {
        let (count, version, epoch) =
            (list.items.len() + list.unchanged.len(), list.resource_version.clone(), list.epoch);
        debug!(kind = %self.reporter.name, items = count, unchanged = list.unchanged.len(), version, ?epoch, "listed");
        // Before the store acts on it: others must not go on meanwhile.
        if epoch == Epoch::New && self.state.next_epoch() == Epoch::Same {
            self.found_loss();
            self.asked_at = self.member.losses();
        }
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
    }

    /// Goes on from a stream that ended while it still told the list.
    fn list_ended(&mut self, end: End) {
        let now = Instant::now();
        self.reporter.list_given_up();
        match end {
            End::Closed => {
                self.state.stream_cut();
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
    fn watch_ended(&mut self, end: End, ending: Ending) {
        let now = Instant::now();
        match end {
            End::HistoryLost => {
                self.state.history_lost(now);
                self.found_loss();
            }
            End::Contradicted => self.list_to_compare(),
            End::Outdated => self.compare_soon(),
            End::Closed | End::Overdue | End::TooOld(_) => {
                self.state.watch_closed(now, ending);
                if !self.state.wait().is_zero() {
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

fn change<K>(event: WatchEvent<K>) -> Option<StoreChange<K>> {
    match event {
        WatchEvent::Added(item) | WatchEvent::Modified(item) => Some(StoreChange::Upsert(item)),
        WatchEvent::Deleted(item) => Some(StoreChange::Delete(item)),
        WatchEvent::Bookmark { resource_version, .. } => Some(StoreChange::Bookmark(resource_version)),
        WatchEvent::Unexpected(_) | WatchEvent::Error(_) => None,
    }
}

fn version_of<K: Object>(change: &StoreChange<K>) -> Option<&str> {
    match change {
        StoreChange::Upsert(item) | StoreChange::Delete(item) => item.resource_version(),
        StoreChange::Bookmark(version) => Some(version.as_str()),
    }
    .filter(|version| !version.is_empty())
}

fn too_old(version: &str) -> String {
    format!("the list is of version {version}, older than what was seen before")
}
