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
    consistency::ConsistencyCheck,
    fault::Fault,
    pages::Pages,
    part::FetchPart,
    reporter::Reporter,
    server::{ServerEvent, ServerMember},
    sink::{Epoch, FetchReport, List},
    snapshot::{InitialObjects, PATIENCE},
    state::{Brought, Ending, LIVED, Listed, OnLoss, ReflectorState, Step, StreamPhase},
    stream::{Flow, next_batch, set_alarm},
    watch_error::rounded,
};
use crate::{
    backoff::random_seed,
    clock::{Lead, WallClock},
    list_watch::{FetchedItem, ListOptions, ListWatchError, ListerWatcher, WatchEvent, WatchStream},
    object::Object,
    users_code::discard,
};

/// The wall clock runs ahead this far only if the machine was suspended.
const SUSPENDED: Duration = Duration::from_secs(30);

/// The error of an event whose object has no name that can be read.
const NAMELESS: &str = "an event is of an object whose name can't be read";

/// A reflector at work.
pub(super) struct ReflectorLoop<K, L, S> {
    source: L,
    store: Arc<S>,
    reporter: Reporter,
    clock: WallClock,
    member: ServerMember,
    state: ReflectorState,
    /// The pages of the list under way.
    pages: Pages<K>,
    /// How many events the open stream has brought.
    heard: usize,
    /// How many objects the last list showed, if nothing has come since.
    count: Option<usize>,
    /// What it does now.
    part: FetchPart,
    /// How many losses of the server's history were known when the request under way was sent.
    asked_at: u64,
    /// How many losses are accounted for in what the store has.
    accounted: u64,
    /// The loss of the watch was reported to the store.
    watch_lost: bool,
    check: ConsistencyCheck,
}

/// How the reading of a stream ended.
enum StreamEnd {
    Closed,
    Failed(ListWatchError),
    /// The initial events did not end in time.
    Overdue,
    /// The initial events are older than what was seen; this is their version.
    TooOld(String),
    /// The server lost its history.
    HistoryLost,
    /// What was read may be from before the server lost its history.
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
        let state = ReflectorState::new(config, seed);
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
            watch_lost: false,
            check: ConsistencyCheck::new(config.consistency_check, config.page_size),
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
        // A recovery is left for the next wait: it may have come while this reflector was busy.
        if self.member.take_loss() {
            self.compare_soon();
        }
        self.state.note_reach(self.member.server_answers());
        match self.state.next() {
            Step::Sleep(wait) => self.sleep(wait).await,
            Step::Probe => self.probe().await,
            Step::List(options) => self.list(&options).await,
            Step::Stream(options) => self.stream(&options).await,
            Step::Watch(options) => self.watch(&options).await,
        }
    }

    /// Goes on after a panic in the source, a hook, a schedule, the store, or here.
    ///
    /// What the store did not take is lost, so that everything is listed again.
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
        if !self.state.list_failed(Instant::now(), &error) {
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
                self.follow(stream, Some(InitialObjects::new(Instant::now()))).await;
            }
            Err(error) => {
                self.reporter.list_given_up();
                self.state.stream_failed(Instant::now(), &error, StreamPhase::Opening);
                self.warn_of_falling_back("the server refuses them");
                match error.is_forbidden() || error.is_not_found() {
                    // A list follows at once, and reports the error if it fails as well.
                    true => self.reporter.passed_over(&error),
                    false => self.failed(error),
                }
            }
        }
    }

    async fn watch(&mut self, options: &ListOptions) {
        self.part = FetchPart::Watch;
        match self.source.watch(options).await {
            Ok(stream) if self.state.watch_opened(Instant::now()) => {
                self.watch_is_back();
                self.follow(stream, None).await;
            }
            Ok(_) => {
                self.member.succeeded();
                self.log_long_outage();
            }
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
                true => self.cant_ask(&error),
                false => self.failed(error),
            },
        }
    }

    fn replace(&mut self, list: List<K>) {
        let (count, version, epoch) =
            (list.items.len() + list.unchanged.len(), list.resource_version.clone(), list.epoch);
        debug!(kind = %self.reporter.name, items = count, unchanged = list.unchanged.len(), version, ?epoch, "listed");
        // Before the store handles it: other reflectors must not go on meanwhile.
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
        let later = |item: &FetchedItem<K>| {
            item.resource_version().is_some_and(|version| self.state.is_later(version))
        };
        let count = list.items.len() + list.unchanged.len();
        list.items.iter().any(later) || self.count.is_some_and(|before| before != count)
    }

    /// Goes on from a stream that ended before its list was whole.
    fn list_ended(&mut self, end: StreamEnd) {
        let now = Instant::now();
        self.reporter.list_given_up();
        match end {
            StreamEnd::Closed => {
                self.state.stream_cut(now);
                self.failed(ListWatchError::CutShort);
            }
            StreamEnd::Overdue => {
                self.state.stream_overdue();
                self.warn_of_falling_back("their end did not come in time: a proxy may drop it");
                self.failed(ListWatchError::Deadline(PATIENCE));
            }
            StreamEnd::TooOld(version) => self.refuse(&version),
            StreamEnd::Outdated | StreamEnd::HistoryLost => self.compare_soon(),
            StreamEnd::Contradicted => {}
            StreamEnd::Failed(error) => {
                self.state.stream_failed(now, &error, StreamPhase::Reading);
                self.warn_of_falling_back("the server refuses them");
                self.failed(error);
            }
        }
    }

    /// Goes on from a watch that ended.
    fn watch_ended(&mut self, end: StreamEnd, ending: Ending) {
        let now = Instant::now();
        match end {
            StreamEnd::HistoryLost => {
                self.state.history_lost(now);
                self.found_loss();
            }
            StreamEnd::Contradicted => self.list_to_compare(),
            StreamEnd::Outdated => self.compare_soon(),
            StreamEnd::Closed | StreamEnd::Overdue | StreamEnd::TooOld(_) => {
                if self.state.watch_closed(now, ending) {
                    self.failed(ListWatchError::ClosedAtOnce);
                }
            }
            StreamEnd::Failed(error) => {
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

    fn log_long_outage(&self) {
        let (name, wait) = (&self.reporter.name, rounded(self.state.wait()));
        info!(kind = %name, "{name} was out of reach for long: listing it in {wait:?}");
    }

    // Streams.

    /// Reads a stream to its end: first what belongs to the list, if it starts with one, then changes.
    async fn follow(&mut self, stream: WatchStream<K>, mut snapshot: Option<InitialObjects<K>>) {
        let (mut stream, mut batch) = (stream.fuse(), Vec::new());
        let mut ending = Ending { opened: Instant::now(), brought: Brought::Nothing };
        let opened = ending.opened;
        let mut lead = Lead::start(self.clock.clone());
        let mut alarm = Box::pin(sleep(LIVED));
        self.reporter.watch_opened();
        self.member.watch_opened();
        self.heard = 0;
        let end = loop {
            let until = match &snapshot {
                Some(snapshot) => Some(snapshot.overdue()),
                None => self.awaits_proof().then(|| ending.opened + LIVED),
            };
            let next = tokio::select! {
                biased;
                event = self.member.next_event() => {
                    match self.on_server_event(event, snapshot.is_some()).await {
                        Some(end) => break end,
                        None => continue,
                    }
                }
                () = self.store.wants_list(), if snapshot.is_none() => break StreamEnd::Contradicted,
                () = self.check.due(), if snapshot.is_none() => match self.finds_difference().await {
                    false => continue,
                    true => break StreamEnd::Contradicted,
                },
                next = next_batch(&mut stream, &mut batch, alarm.as_mut()) => next,
            };
            match next {
                Some(Flow::GoesOn) => {
                    if let Some(end) = self.take(&mut batch, &mut snapshot, &mut ending) {
                        break end;
                    }
                }
                Some(Flow::Ended) => break StreamEnd::Closed,
                None if lead.measure() >= SUSPENDED => {
                    break StreamEnd::Failed(ListWatchError::Suspended(rounded(lead.measure())));
                }
                None if until.is_some_and(|until| until <= Instant::now()) => match snapshot {
                    Some(_) => break StreamEnd::Overdue,
                    // It was open for long without a failure: the watch works, even if nothing happens.
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

    /// Returns whether a watch that stays open for a while ends a failure.
    ///
    /// If watches hold changes back, only a watch that brings something does.
    fn awaits_proof(&self) -> bool {
        self.reporter.is_failing(FetchPart::Watch) && !self.state.is_blind()
    }

    /// Takes the events of a batch; returns how the stream ended, if it did.
    fn take(
        &mut self,
        batch: &mut Vec<Result<WatchEvent<K>, ListWatchError>>,
        snapshot: &mut Option<InitialObjects<K>>,
        ending: &mut Ending,
    ) -> Option<StreamEnd> {
        let now = Instant::now();
        self.heard += batch.len();
        let mut changes = Vec::with_capacity(batch.len());
        let mut end = None;
        for event in batch.drain(..) {
            match (event, snapshot.as_mut()) {
                (Err(error), _) => {
                    end = Some(StreamEnd::Failed(error));
                    break;
                }
                (Ok(WatchEvent::Error(status)), _) => {
                    end = Some(StreamEnd::Failed(ListWatchError::from_status(*status)));
                    break;
                }
                (Ok(WatchEvent::Unexpected(what)), _) => self.reporter.skipped(what),
                (Ok(event), None) => {
                    let nameless = event.item().is_some_and(|item| item.key().is_none());
                    changes.extend(change(event));
                    if nameless {
                        // Only a list can show which object it belongs to.
                        end = Some(StreamEnd::Failed(ListWatchError::Unreadable(NAMELESS.to_owned())));
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
                            *snapshot = Some(InitialObjects::new(now));
                            return Some(StreamEnd::TooOld(version));
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
        self.count = None;
        let version = changes.iter().rev().find_map(version_of).map(str::to_owned);
        self.store.apply(changes);
        if ending.brought == Brought::Nothing {
            self.reporter.healthy(FetchPart::Watch);
        }
        ending.brought = ending.brought.max(self.state.delivered(version.as_deref()));
        self.reporter.reached(self.state.version());
    }

    // Events of the server, and of the store.

    /// Waits before the next attempt; an event of the server may end that early.
    async fn sleep(&mut self, wait: Duration) {
        let (began, alarm) = (Instant::now(), sleep(wait));
        tokio::pin!(alarm);
        loop {
            tokio::select! {
                biased;
                event = self.member.next_event() => match event {
                    ServerEvent::HistoryLost if self.on_history_lost() == OnLoss::Asks => return,
                    ServerEvent::HistoryLost => {}
                    ServerEvent::Recovered => {
                        let again = self.state.on_recovery(Instant::now()).and_then(|step| began.checked_add(step));
                        if let Some(again) = again.filter(|again| *again < alarm.deadline()) {
                            alarm.as_mut().reset(again);
                        }
                    }
                },
                () = self.store.wants_list() => {
                    self.list_to_compare();
                    // Nothing has failed: the wait is only for the next poll.
                    if self.state.is_well() {
                        return;
                    }
                }
                () = &mut alarm => return,
            }
        }
    }

    /// Handles an event of the server while a stream is open; returns how the stream ends, if it does.
    ///
    /// The stream stays open during the request, so that it goes on if the server did not lose what was seen.
    async fn on_server_event(&mut self, event: ServerEvent, reads_list: bool) -> Option<StreamEnd> {
        match event {
            ServerEvent::Recovered => return None,
            ServerEvent::HistoryLost if reads_list => return Some(StreamEnd::Outdated),
            ServerEvent::HistoryLost => self.asked_at = self.member.losses(),
        }
        match self.source.latest_version().await {
            Ok(Some(latest)) if self.state.is_past(&latest) => return Some(StreamEnd::HistoryLost),
            Ok(_) => self.is_current(),
            Err(error) if Fault::of(&error).leaves_unknown() => self.cant_ask(&error),
            Err(error) => return Some(StreamEnd::Failed(error)),
        }
        None
    }

    /// Compares this kind with what the server has left, in the next step.
    fn compare_soon(&mut self) {
        let _: OnLoss = self.on_history_lost();
    }

    /// The same; returns whether to stop waiting.
    fn on_history_lost(&mut self) -> OnLoss {
        self.drop_pages();
        let follows = self.state.on_history_lost(Instant::now());
        if follows == OnLoss::CantAsk {
            self.asked_at = self.member.losses();
            self.is_current();
        }
        follows
    }

    /// Forgets the pages of a list that begins again.
    fn drop_pages(&mut self) {
        if !self.pages.is_empty() {
            self.pages = Pages::new();
            self.reporter.list_given_up();
        }
    }

    /// Reports lost history to the other reflectors, unless they reported it.
    fn found_loss(&mut self) {
        if self.asked_at == self.accounted {
            self.member.found_loss(self.asked_at);
        }
        let name = &self.reporter.name;
        warn!(kind = %name, "the server lost its history: listing {name} again");
    }

    /// Reports to the store that it shows what the server has, as far as that is known.
    fn is_current(&mut self) {
        if self.accounted < self.asked_at {
            self.accounted = self.asked_at;
            self.reporter.report(FetchReport::Current { losses: self.accounted });
        }
    }

    /// Goes on if the collection's version can't be read.
    fn cant_ask(&mut self, error: &ListWatchError) {
        debug!(kind = %self.reporter.name, %error, "the latest version can't be asked for");
        self.note_reach(error);
        self.is_current();
    }

    /// Lists because the store may show something wrong.
    fn list_to_compare(&mut self) {
        let name = &self.reporter.name;
        debug!(kind = %name, "listing {name} to compare");
        self.drop_pages();
        self.state.contradicted();
    }

    /// Notes what a failure says about the connection.
    fn note_reach(&mut self, error: &ListWatchError) {
        let fault = Fault::of(error);
        if fault.is_an_answer() {
            self.member.got_through();
        }
        if fault == Fault::Unreachable {
            self.member.missed();
        }
        // A refused list shows as little as a refused request for the version.
        if fault.is_refused_for_good() {
            self.is_current();
        }
        let lost = fault.is_of_the_connection() && !matches!(error, ListWatchError::ClosedAtOnce);
        if lost && !self.watch_lost && self.state.version().is_some() {
            self.watch_lost = true;
            self.reporter.report(FetchReport::WatchLost);
        }
    }

    /// Reports to the store that there is a watch, or a list, after there was neither.
    fn watch_is_back(&mut self) {
        if std::mem::take(&mut self.watch_lost) {
            self.reporter.report(FetchReport::WatchBack);
        }
    }

    /// Compares the store with the source at the version that the watch has reached; returns whether they differ.
    async fn finds_difference(&mut self) -> bool {
        let (name, version) = (&self.reporter.name, self.state.version());
        let Some(error) = self.check.run(name, &self.source, &*self.store, version).await else {
            return false;
        };
        self.reporter.failed(FetchPart::Watch, error, Duration::ZERO);
        true
    }
}

fn too_old(version: &str) -> String {
    format!("the list is of version {version}, older than what was seen before")
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
