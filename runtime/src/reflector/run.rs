//! Does what the state decides: asks the source, fills the store, reports failures.

use std::{
    convert::Infallible,
    panic::AssertUnwindSafe,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt, StreamExt};
use tokio::{
    task::coop::consume_budget,
    time::{Instant, Sleep, sleep},
};
use tracing::{debug, info, warn};

use super::{
    ReflectorConfig, StoreChange,
    consistency::ConsistencyCheck,
    fault::Fault,
    gathered::{Gathered, PATIENCE},
    reporter::Reporter,
    server::{ServerEvent, ServerMember},
    sink::{AnyStore, Epoch, FetchReport, List},
    state::{Brought, Ending, LIVED, Listed, ReflectorState, Step},
    watch_error::{FetchPart, rounded},
};
use crate::{
    backoff::random_seed,
    clock::{Lead, WallClock},
    list_watch::{AnyItem, AnySource, ListOptions, ListWatchError, WatchEvent, WatchStream},
    object::AnyObject,
    users_code::discard,
};

/// Most events that the store gets at once.
const BATCH: usize = 256;

/// How often an open stream is checked for what only time shows. A quiet informer wakes up this often.
const LOOK: Duration = Duration::from_secs(30);

/// The wall clock runs ahead this far only if the machine was suspended.
const SUSPENDED: Duration = Duration::from_secs(30);

/// The error of an event whose object has no name that can be read.
const NAMELESS: &str = "an event is of an object whose name can't be read";

/// A reflector at work.
pub(super) struct ReflectorLoop {
    source: Arc<dyn AnySource>,
    store: Arc<AnyStore>,
    reporter: Reporter,
    clock: WallClock,
    member: ServerMember,
    state: ReflectorState,
    /// What the list under way has brought.
    gathered: Gathered,
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
    /// What was read may be from before the server lost its history.
    Outdated,
    /// The store wants a list.
    Contradicted,
}

impl ReflectorLoop {
    pub(super) fn new(source: Arc<dyn AnySource>, store: Arc<AnyStore>, config: &ReflectorConfig) -> Self {
        let seed = config.seed.unwrap_or_else(random_seed);
        let state = ReflectorState::new(config, seed);
        let reporter = Reporter::new(store.clone(), config);
        Self {
            source,
            store,
            reporter,
            clock: config.clock.clone(),
            member: config.server.join(),
            state,
            gathered: Gathered::new(),
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
            self.compare();
        }
        self.state.pacing.server_answers = self.member.server_answers();
        if self.gathered.version.is_none() {
            self.asked_at = self.member.losses();
        }
        let step = self.state.next();
        self.part = match step {
            Step::List(_) | Step::Stream(_) => FetchPart::List,
            Step::Sleep(_) | Step::Probe | Step::Watch(_) => FetchPart::Watch,
        };
        match step {
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
        self.drop_list();
        self.member.watch_ended();
        self.state.restarted(Instant::now());
        self.reporter.failed(self.part, ListWatchError::Panicked, self.state.wait);
    }

    async fn list(&mut self, options: &ListOptions) {
        self.reporter.listing();
        let page = match self.source.list(options).await {
            Ok(page) => page,
            Err(error) => return self.list_failed(error, false),
        };
        self.member.succeeded();
        self.gathered.add_page(page.items, page.resource_version, &*self.store).await;
        let version = self.gathered.version.clone().unwrap_or_default();
        match self.state.page_read(&version, page.continue_token) {
            Listed::More => {}
            Listed::Whole(epoch) => self.replace(version, epoch),
            Listed::TooOld => self.refuse(&version),
            Listed::Endless(pages) => self.list_failed(ListWatchError::Endless { pages }, false),
        }
    }

    async fn stream(&mut self, options: &ListOptions) {
        self.reporter.listing();
        match self.source.watch(options).await {
            Ok(stream) => {
                // How often it may be cut is counted elsewhere.
                self.state.pacing.rereading.backoff.reset();
                self.gathered = Gathered::new();
                self.follow(stream, true).await;
            }
            Err(error) => self.list_failed(error, true),
        }
    }

    /// Goes on from a list that failed, in pages or streamed.
    fn list_failed(&mut self, error: ListWatchError, streamed: bool) {
        if !self.state.list_failed(Instant::now(), &error, streamed) {
            self.drop_list();
        }
        if streamed {
            self.warn_of_falling_back("the server refuses them");
        }
        match streamed && (error.is_forbidden() || error.is_not_found()) {
            // A list follows at once, and reports the error if it fails as well.
            true => self.reporter.passed_over(&error),
            false => self.failed(error),
        }
    }

    async fn watch(&mut self, options: &ListOptions) {
        match self.source.watch(options).await {
            Ok(stream) if self.state.watch_opened(Instant::now()) => {
                self.watch_is_back();
                self.follow(stream, false).await;
            }
            Ok(_) => {
                self.member.succeeded();
                let (name, wait) = (&self.reporter.name, rounded(self.state.wait));
                info!(kind = %name, "{name} was out of reach for long: listing it in {wait:?}");
            }
            Err(error) => {
                self.state.open_failed(Instant::now(), &error);
                self.failed(error);
            }
        }
    }

    async fn probe(&mut self) {
        match self.source.latest_version().await {
            Ok(latest) => {
                self.member.succeeded();
                self.state.probed(Instant::now(), latest.as_deref());
                match self.state.epoch {
                    Epoch::New => self.found_loss(),
                    Epoch::Same => self.is_current(),
                }
            }
            Err(error) => match self.state.probe_failed(Instant::now(), &error) {
                true => {
                    debug!(kind = %self.reporter.name, %error, "the latest version can't be asked for");
                    self.note_reach(&error);
                    self.is_current();
                }
                false => self.failed(error),
            },
        }
    }

    /// Hands what was gathered to the store.
    fn replace(&mut self, version: String, epoch: Epoch) {
        let list = std::mem::replace(&mut self.gathered, Gathered::new()).into_list(version.clone(), epoch);
        let count = list.items.len() + list.unchanged.len();
        debug!(kind = %self.reporter.name, items = count, unchanged = list.unchanged.len(), version, ?epoch, "listed");
        // Before the store handles it: other reflectors must not go on meanwhile.
        if epoch == Epoch::New && self.state.epoch == Epoch::Same {
            self.found_loss();
            self.asked_at = self.member.losses();
        }
        let missed = self.state.silence.looks && self.shows_missed(&list);
        self.count = Some(count);
        self.reporter.listed(count);
        if epoch == Epoch::New {
            self.reporter.meter.counts.epochs.inc();
        }
        self.store.replace(list);
        self.state.replaced(Instant::now(), &version);
        self.reporter.reached(self.state.version.as_deref());
        self.reporter.healthy(FetchPart::List);
        self.is_current();
        self.watch_is_back();
        self.state.silence.looked(missed);
        if missed {
            self.reporter.failed(FetchPart::Watch, ListWatchError::HeldBack, self.state.wait);
        }
    }

    /// Returns whether a list shows something that the watches before it had not brought.
    fn shows_missed(&self, list: &List<dyn AnyObject>) -> bool {
        let later =
            |item: &AnyItem| item.resource_version().is_some_and(|version| self.state.is_later(version));
        let count = list.items.len() + list.unchanged.len();
        list.items.iter().any(later) || self.count.is_some_and(|before| before != count)
    }

    /// Goes on from a stream that ended, perhaps before its list was whole.
    fn ended(&mut self, end: StreamEnd, in_list: bool, ending: Ending) {
        let now = Instant::now();
        match end {
            StreamEnd::Outdated => {
                self.compare();
            }
            StreamEnd::Contradicted => self.list_to_compare(),
            StreamEnd::TooOld(version) => self.refuse(&version),
            StreamEnd::Overdue => {
                self.drop_list();
                self.state.never_stream();
                self.warn_of_falling_back("their end did not come in time: a proxy may drop it");
                self.failed(ListWatchError::Deadline(PATIENCE));
            }
            StreamEnd::Closed if in_list => self.list_failed(ListWatchError::CutShort, true),
            StreamEnd::Failed(error) if in_list => self.list_failed(error, true),
            StreamEnd::Closed => {
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
        self.drop_list();
        self.state.list_refused(Instant::now());
        let why = format!("the list is of version {version}, older than what was seen before");
        self.failed(ListWatchError::Unreadable(why));
    }

    fn failed(&mut self, error: ListWatchError) {
        self.note_reach(&error);
        let wait = self.state.wait;
        self.reporter.failed(self.part, error, wait);
    }

    fn warn_of_falling_back(&self, why: &str) {
        if self.state.never_streams() {
            let name = &self.reporter.name;
            warn!(kind = %name, "{name} is listed in pages from now on, streaming lists don't work: {why}");
        }
    }

    // Streams.

    /// Reads a stream to its end: first what belongs to the list, if it starts with one, then changes.
    async fn follow(&mut self, stream: WatchStream<dyn AnyObject>, mut in_list: bool) {
        let mut batches = stream.ready_chunks(BATCH);
        let mut ending = Ending { opened: Instant::now(), brought: Brought::Nothing };
        let (opened, mut heard) = (ending.opened, 0);
        let mut lead = Lead::start(self.clock.clone());
        let store = self.store.clone();
        let (mut alarm, mut wants_list) = (pin!(sleep(LIVED)), store.wants_list());
        self.reporter.watch_opened();
        self.member.watch_opened();
        let (mut lost, mut check) = (pin!(self.member.lost()), pin!(self.check.due()));
        let end = loop {
            // A stream that is always ready must let others run, and cancellation be seen.
            consume_budget().await;
            let until = match in_list {
                true => Some(self.gathered.overdue()),
                // A watch that stays open ends a failure, but not if watches hold changes back.
                false if self.reporter.is_failing(FetchPart::Watch) && !self.state.silence.blind => {
                    Some(ending.opened + LIVED)
                }
                false => None,
            };
            set_alarm(alarm.as_mut(), until);
            // The alarm comes before the events: a stream that is always ready must not delay it.
            tokio::select! {
                biased;
                () = &mut lost => match self.member.take_loss() {
                    true => break StreamEnd::Outdated,
                    false => lost.set(self.member.lost()),
                },
                () = &mut wants_list, if !in_list => break StreamEnd::Contradicted,
                () = &mut check, if !in_list => match self.finds_difference().await {
                    true => break StreamEnd::Contradicted,
                    false => check.set(self.check.due()),
                },
                () = alarm.as_mut() => {
                    let (ahead, is_over) = (lead.measure(), until.is_some_and(|until| until <= Instant::now()));
                    match in_list {
                        _ if ahead >= SUSPENDED => {
                            break StreamEnd::Failed(ListWatchError::Suspended(rounded(ahead)));
                        }
                        true if is_over => break StreamEnd::Overdue,
                        // It was open for long without a failure: the watch works, even if nothing happens.
                        false if is_over => self.reporter.healthy(FetchPart::Watch),
                        _ => {}
                    }
                }
                batch = batches.next() => {
                    let Some(batch) = batch else { break StreamEnd::Closed };
                    heard += batch.len();
                    if let Some(end) = self.take(batch, &mut in_list, &mut ending) {
                        break end;
                    }
                }
            }
        };
        self.reporter.meter.watch_ended(opened.elapsed(), heard);
        drop(batches);
        self.member.watch_ended();
        self.ended(end, in_list, ending);
    }

    /// Takes the events of a batch; returns how the stream ended, if it did.
    fn take(
        &mut self,
        batch: Vec<Result<WatchEvent<dyn AnyObject>, ListWatchError>>,
        in_list: &mut bool,
        ending: &mut Ending,
    ) -> Option<StreamEnd> {
        let now = Instant::now();
        let mut changes = Vec::with_capacity(batch.len());
        let mut end = None;
        for event in batch {
            match (event, *in_list) {
                (Err(error), _) => end = Some(StreamEnd::Failed(error)),
                (Ok(WatchEvent::Error(status)), _) => {
                    end = Some(StreamEnd::Failed(ListWatchError::from_status(*status)));
                }
                (Ok(WatchEvent::Unexpected(what)), _) => self.reporter.skipped(what),
                (Ok(WatchEvent::Added(item) | WatchEvent::Modified(item)), false) => {
                    changes.push(StoreChange::Upsert(item));
                }
                (Ok(WatchEvent::Deleted(item)), false) => changes.push(StoreChange::Delete(item)),
                (Ok(WatchEvent::Bookmark { resource_version, .. }), false) => {
                    changes.push(StoreChange::Bookmark(resource_version));
                }
                (Ok(WatchEvent::Dropped(version)), false) => changes.push(StoreChange::Bookmark(version)),
                (Ok(event), true) => {
                    let Some(version) = self.gathered.add_event(event, now, &*self.store) else { continue };
                    let Some(epoch) = self.state.judged(&version) else {
                        return Some(StreamEnd::TooOld(version));
                    };
                    self.replace(version, epoch);
                    *in_list = false;
                    *ending = Ending { opened: now, brought: Brought::Progress };
                    // What follows is a watch, which has delivered.
                    self.part = FetchPart::Watch;
                    // Unless watches hold changes back: that one is open proves nothing.
                    if !self.state.silence.blind {
                        self.state.was_good();
                        self.reporter.healthy(FetchPart::Watch);
                    }
                }
            }
            if let Some(StoreChange::Upsert(item) | StoreChange::Delete(item)) = changes.last()
                && !item.is_named()
            {
                // Only a list can show which object it belongs to.
                end = Some(StreamEnd::Failed(ListWatchError::Unreadable(NAMELESS.to_owned())));
            }
            if end.is_some() {
                break;
            }
        }
        if !changes.is_empty() {
            self.count = None;
            let version = changes.iter().rev().find_map(version_of).map(str::to_owned);
            self.store.apply(changes);
            if ending.brought == Brought::Nothing {
                self.reporter.healthy(FetchPart::Watch);
            }
            self.state.delivered(ending, version.as_deref());
            self.reporter.reached(self.state.version.as_deref());
        }
        end
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
                    ServerEvent::HistoryLost if self.compare() => return,
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
                    if self.state.blocked.is_none() {
                        return;
                    }
                }
                () = &mut alarm => return,
            }
        }
    }

    /// Has this kind compared with what the server has left, in the next step; returns whether to stop waiting.
    fn compare(&mut self) -> bool {
        self.drop_list();
        if !self.state.can_ask() {
            self.asked_at = self.member.losses();
            self.is_current();
            return false;
        }
        self.state.compare(Instant::now())
    }

    /// Forgets the list under way.
    fn drop_list(&mut self) {
        self.gathered = Gathered::new();
        self.reporter.listing = None;
        // Otherwise its next page would count as a whole list.
        self.state.end_chain();
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

    /// Lists because the store may show something wrong.
    fn list_to_compare(&mut self) {
        let name = &self.reporter.name;
        debug!(kind = %name, "listing {name} to compare");
        self.drop_list();
        self.state.contradicted();
    }

    /// Notes what a failure says about the connection.
    fn note_reach(&mut self, error: &ListWatchError) {
        let fault = Fault::of(error);
        if error.status().is_some() && !fault.is_of_an_outage() {
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
        if lost && !self.watch_lost && self.state.version.is_some() {
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
        let (name, version) = (&self.reporter.name, self.state.version.as_deref());
        let Some(error) = self.check.run(name, &*self.source, &*self.store, version).await else {
            return false;
        };
        self.reporter.failed(FetchPart::Watch, error, Duration::ZERO);
        true
    }
}

/// Sets the alarm to the next look, or to an earlier time that matters.
fn set_alarm(alarm: Pin<&mut Sleep>, until: Option<Instant>) {
    let now = Instant::now();
    let look = if alarm.is_elapsed() { now + LOOK } else { alarm.deadline() };
    let wanted = until.filter(|until| *until > now).map_or(look, |until| until.min(look));
    if wanted != alarm.deadline() {
        alarm.reset(wanted);
    }
}

fn version_of(change: &StoreChange<dyn AnyObject>) -> Option<&str> {
    match change {
        StoreChange::Upsert(item) | StoreChange::Delete(item) => item.resource_version(),
        StoreChange::Bookmark(version) => Some(version.as_str()),
    }
    .filter(|version| !version.is_empty())
}
