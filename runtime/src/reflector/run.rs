//! Does what the state decides: asks the source, fills the store, reports failures.

use std::{borrow::Cow, convert::Infallible, sync::Arc, time::Duration};

use futures::{Stream, StreamExt};
use tokio::{
    task::coop::consume_budget,
    time::{Instant, sleep, timeout_at},
};
use tracing::{debug, info, warn};

use super::{
    FetchReport, ReflectorConfig, ReflectorStore, StoreChange,
    explain::explain,
    fault::Fault,
    sink::Epoch,
    snapshot::{PATIENCE, Snapshot},
    state::{Brought, Ending, LIVED, Listed, Opened, ProbeFailure, State, Step, StreamPhase},
};
use crate::{
    list_watch::{Item, ListOptions, ListWatchError, ListerWatcher, WatchEvent, WatchStream},
    object::Object,
};

/// Most events that are handed to the store at once.
const BATCH: usize = 256;

/// A reflector at work.
pub(super) struct Run<K, L, S> {
    source: L,
    store: Arc<S>,
    name: Cow<'static, str>,
    state: State,
    /// The pages of the list under way.
    pages: Vec<Item<K>>,
    /// How many failures in a row.
    attempts: u32,
}

/// How the reading of a stream ended.
enum End {
    Closed,
    Failed(ListWatchError),
    /// The initial events did not end in time.
    Overdue,
    /// The initial events showed the past; this is their version.
    TooOld(String),
}

impl<K, L, S> Run<K, L, S>
where
    K: Object,
    L: ListerWatcher<K>,
    S: ReflectorStore<K>,
{
    pub(super) fn new(source: L, store: Arc<S>, config: &ReflectorConfig) -> Self {
        let seed = config.seed.unwrap_or_else(rand::random);
        let state = State::new(config, seed);
        Self { source, store, name: config.name.clone(), state, pages: Vec::new(), attempts: 0 }
    }

    pub(super) async fn run(mut self) -> Infallible {
        loop {
            // A source that fails at once, on a schedule without delays, must let others run.
            consume_budget().await;
            match self.state.next() {
                Step::Sleep(wait) => sleep(wait).await,
                Step::Probe => self.probe().await,
                Step::List(options) => self.list(&options).await,
                Step::Stream(options) => self.stream(&options).await,
                Step::Watch(options) => self.watch(&options).await,
            }
        }
    }

    async fn list(&mut self, options: &ListOptions) {
        let page = match self.source.list(options).await {
            Ok(page) => page,
            Err(error) => {
                self.pages.clear();
                self.state.list_failed(Instant::now(), &error);
                return self.failed(error);
            }
        };
        self.pages.extend(page.items);
        match self.state.page_read(&page.resource_version, page.continue_token) {
            Listed::More => {}
            Listed::Whole(epoch) => {
                let items = std::mem::take(&mut self.pages);
                self.replace(items, &page.resource_version, epoch);
            }
            Listed::TooOld => {
                self.pages.clear();
                self.refuse(&page.resource_version);
            }
        }
    }

    async fn stream(&mut self, options: &ListOptions) {
        match self.source.watch(options).await {
            Ok(stream) => self.follow(stream, Some(Snapshot::new(Instant::now()))).await,
            Err(error) => {
                self.state.stream_failed(Instant::now(), &error, StreamPhase::Opening);
                self.warn_of_falling_back("the server refuses them");
                self.failed(error);
            }
        }
    }

    async fn watch(&mut self, options: &ListOptions) {
        match self.source.watch(options).await {
            Ok(stream) => match self.state.watch_opened(Instant::now()) {
                Opened::Follow => self.follow(stream, None).await,
                Opened::Relist => self.tell_long_outage(),
            },
            Err(error) => {
                self.state.open_failed(Instant::now(), &error);
                self.failed(error);
            }
        }
    }

    async fn probe(&mut self) {
        match self.source.latest_version().await {
            Ok(latest) => {
                self.state.probed(Instant::now(), latest.as_deref());
                if self.state.next_epoch() == Epoch::New {
                    warn!(kind = %self.name, "the server lost its history: listing {} anew", self.name);
                }
            }
            Err(error) => match self.state.probe_failed(Instant::now(), &error) {
                ProbeFailure::WatchWithout => {
                    debug!(kind = %self.name, %error, "the latest version can't be asked for");
                }
                ProbeFailure::NotOpened => self.failed(error),
            },
        }
    }

    /// Reads a stream to its end: first what belongs to the list, if it starts with one, then changes.
    async fn follow(&mut self, stream: WatchStream<K>, mut snapshot: Option<Snapshot<K>>) {
        let mut batches = stream.ready_chunks(BATCH);
        let mut ending = Ending { opened: Instant::now(), brought: Brought::Nothing };
        let end = loop {
            let until = match &snapshot {
                Some(snapshot) => Some(snapshot.overdue()),
                None => (self.attempts > 0).then(|| ending.opened + LIVED),
            };
            match next_batch(&mut batches, until).await {
                Err(Overdue) if snapshot.is_some() => break End::Overdue,
                // Open for so long without a failure: all is well, even if nothing happens.
                Err(Overdue) => self.healthy(),
                Ok(None) => break End::Closed,
                Ok(Some(batch)) => {
                    if let Some(end) = self.take(batch, &mut snapshot, &mut ending) {
                        break end;
                    }
                }
            }
        };
        drop(batches);
        match snapshot {
            Some(_) => self.list_ended(end),
            None => self.watch_ended(end, ending),
        }
    }

    /// Takes the events of a batch; returns how the stream ended, if it did.
    fn take(
        &mut self,
        batch: Vec<Result<WatchEvent<K>, ListWatchError>>,
        snapshot: &mut Option<Snapshot<K>>,
        ending: &mut Ending,
    ) -> Option<End> {
        let now = Instant::now();
        let mut changes = Vec::with_capacity(batch.len());
        let mut end = None;
        for event in batch {
            match (event, snapshot.as_mut()) {
                (Err(error), _) => {
                    end = Some(End::Failed(error));
                    break;
                }
                (Ok(WatchEvent::Error(status)), _) => {
                    end = Some(End::Failed(ListWatchError::from_status(*status)));
                    break;
                }
                (Ok(WatchEvent::Unexpected(what)), _) => self.skip(what),
                (Ok(event), None) => changes.extend(change(event)),
                (Ok(event), Some(collected)) => {
                    let Some(version) = collected.take(event, now) else { continue };
                    let items = snapshot.take().map(Snapshot::into_items).unwrap_or_default();
                    match self.state.judged(&version) {
                        Listed::Whole(epoch) => self.replace(items, &version, epoch),
                        Listed::More | Listed::TooOld => {
                            // Still a list that failed, not a watch.
                            *snapshot = Some(Snapshot::new(now));
                            return Some(End::TooOld(version));
                        }
                    }
                    *ending = Ending { opened: now, brought: Brought::Progress };
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
            self.healthy();
        }
        ending.brought = ending.brought.max(self.state.delivered(version.as_deref()));
    }

    fn replace(&mut self, items: Vec<Item<K>>, version: &str, epoch: Epoch) {
        debug!(kind = %self.name, items = items.len(), version, ?epoch, "listed");
        self.store.replace(items, version, epoch);
        self.state.replaced(Instant::now(), version);
        self.healthy();
    }

    /// Goes on from a stream that ended while it still told the list.
    fn list_ended(&mut self, end: End) {
        let now = Instant::now();
        match end {
            End::Closed => {
                self.state.stream_cut();
                debug!(kind = %self.name, "the server closed a streaming list before its end");
            }
            End::Overdue => {
                self.state.stream_overdue();
                self.warn_of_falling_back("their end did not come in time: a proxy may drop it");
                self.failed(ListWatchError::Deadline(PATIENCE));
            }
            End::TooOld(version) => self.refuse(&version),
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
            End::Closed | End::Overdue | End::TooOld(_) => self.state.watch_closed(now, ending),
            End::Failed(error) => {
                self.state.watch_broke(now, ending, &error);
                match error {
                    ListWatchError::Idle(_) => debug!(kind = %self.name, %error, "opening the watch again"),
                    error => self.failed(error),
                }
            }
        }
    }

    fn refuse(&mut self, version: &str) {
        self.state.list_refused(Instant::now());
        self.failed(ListWatchError::Unreadable(too_old(version)));
    }

    fn healthy(&mut self) {
        if self.attempts > 0 {
            info!(kind = %self.name, "{} can be read again", self.name);
        }
        self.attempts = 0;
        self.store.report(FetchReport::Healthy);
    }

    fn failed(&mut self, error: ListWatchError) {
        self.attempts = self.attempts.saturating_add(1);
        let (text, wait) = (explain(&self.name, &error), rounded(self.state.wait()));
        match Fault::of(&error) {
            Fault::Expired | Fault::TooLarge | Fault::CutShort => {
                info!(kind = %self.name, "{text}; trying again {}", when(wait));
            }
            _ => warn!(kind = %self.name, attempts = self.attempts, "{text}; trying again {}", when(wait)),
        }
        self.store.report(FetchReport::Failed { error: Arc::new(error), attempts: self.attempts });
    }

    fn skip(&mut self, what: String) {
        warn!(kind = %self.name, "skipped {what}");
        self.store.report(FetchReport::Skipped { what });
    }

    fn warn_of_falling_back(&self, why: &str) {
        if self.state.never_streams() {
            warn!(kind = %self.name, "{} is listed in pages from now on, streaming lists don't work: {why}", self.name);
        }
    }

    fn tell_long_outage(&self) {
        let wait = rounded(self.state.wait());
        info!(kind = %self.name, "{} was out of reach for long: listing it in {wait:?}", self.name);
    }
}

/// Nothing came until the time that was set.
struct Overdue;

async fn next_batch<T>(
    batches: &mut (impl Stream<Item = Vec<T>> + Unpin),
    until: Option<Instant>,
) -> Result<Option<Vec<T>>, Overdue> {
    // A stream that is always ready must let others run, and cancellation be seen.
    consume_budget().await;
    match until {
        Some(until) => timeout_at(until, batches.next()).await.map_err(|_| Overdue),
        None => Ok(batches.next().await),
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

fn rounded(wait: Duration) -> Duration {
    Duration::from_millis(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).div_ceil(100) * 100)
}

/// Says when, as a person would.
fn when(wait: Duration) -> String {
    match wait.is_zero() {
        true => "at once".to_owned(),
        false => format!("in {wait:?}"),
    }
}
