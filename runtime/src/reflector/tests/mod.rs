//! The reflector over a scripted source, under paused time.

mod chance;
mod consistency;
mod lists;
mod outages;
mod servers;
mod streaming;
mod watches;

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, future, stream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::Status;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::backoff::BackoffSchedule;
use crate::list_watch::{
    FetchedItem, Identity, InitialEventsMark, ListOptions, ListPage, ListWatchError, Unreadable,
    VersionMatch, WatchEvent, WatchStream,
};
use crate::object::ObjectKey;

type Page = Result<ListPage<ConfigMap>, ListWatchError>;
type Latest = Result<Option<String>, ListWatchError>;

/// What a scripted watch does next; when it has nothing left, it stays open in silence.
pub(super) enum Act {
    Tell(Vec<WatchEvent<ConfigMap>>),
    Wait(Duration),
    Fail(ListWatchError),
    Close,
}

/// How a scripted watch answers when it is opened.
pub(super) enum Answer {
    Opens(Vec<Act>),
    /// Opens after a while.
    OpensLate(Duration),
    Refuses(ListWatchError),
    /// Refuses after a while.
    RefusesLate(Duration, ListWatchError),
}

/// Answers each verb from its own queue; an empty one never answers (the latest version: can't be asked).
#[derive(Default)]
pub(super) struct Script {
    lists: Mutex<VecDeque<Page>>,
    watches: Mutex<VecDeque<Answer>>,
    latest: Mutex<VecDeque<Latest>>,
    calls: Mutex<Vec<(Instant, Call)>>,
    opened: AtomicUsize,
    stopped: Arc<AtomicUsize>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Call {
    List(ListOptions),
    Watch(ListOptions),
    Latest,
}

struct Source(Arc<Script>);

struct StopsOnce(Arc<AtomicUsize>);

impl Drop for StopsOnce {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Script {
    fn note(&self, call: Call) {
        self.calls.lock().unwrap().push((Instant::now(), call));
    }

    fn open(&self, acts: Vec<Act>) -> WatchStream<ConfigMap> {
        self.opened.fetch_add(1, Ordering::SeqCst);
        let guard = StopsOnce(self.stopped.clone());
        let acts = acts.into_iter().chain([Act::Wait(Duration::MAX)]).collect::<VecDeque<_>>();
        let events = stream::unfold((acts, guard), |(mut acts, guard)| async move {
            loop {
                let told: Vec<Result<_, ListWatchError>> = match acts.pop_front()? {
                    Act::Close => return None,
                    Act::Wait(Duration::MAX) => future::pending().await,
                    Act::Wait(wait) => {
                        sleep(wait).await;
                        continue;
                    }
                    Act::Tell(events) => events.into_iter().map(Ok).collect(),
                    Act::Fail(error) => {
                        acts = VecDeque::from([Act::Close]);
                        vec![Err(error)]
                    }
                };
                return Some((stream::iter(told), (acts, guard)));
            }
        });
        events.flatten().boxed()
    }
}

impl ListerWatcher<ConfigMap> for Source {
    async fn list(&self, options: &ListOptions) -> Page {
        self.0.note(Call::List(options.clone()));
        let page = self.0.lists.lock().unwrap().pop_front();
        match page {
            Some(page) => page,
            None => future::pending().await,
        }
    }

    async fn watch(&self, options: &ListOptions) -> Result<WatchStream<ConfigMap>, ListWatchError> {
        self.0.note(Call::Watch(options.clone()));
        let answer = self.0.watches.lock().unwrap().pop_front();
        match answer {
            Some(Answer::Opens(acts)) => Ok(self.0.open(acts)),
            Some(Answer::OpensLate(wait)) => {
                sleep(wait).await;
                Ok(self.0.open(Vec::new()))
            }
            Some(Answer::Refuses(error)) => Err(error),
            Some(Answer::RefusesLate(wait, error)) => {
                sleep(wait).await;
                Err(error)
            }
            None => Ok(self.0.open(Vec::new())),
        }
    }

    async fn latest_version(&self) -> Latest {
        self.0.note(Call::Latest);
        let latest = self.0.latest.lock().unwrap().pop_front();
        latest.unwrap_or(Ok(None))
    }
}

/// Records the calls of the store.
#[derive(Default)]
pub(super) struct Recorder {
    told: Mutex<Vec<String>>,
    /// How much had been told when all was well for the last time.
    healthy_after: Mutex<usize>,
    /// What it heard of the connection.
    standing: Mutex<Vec<String>>,
    wants_list: tokio::sync::Notify,
    /// What it answers when it is asked for differences; none, once these are used up.
    differences: Mutex<VecDeque<Option<Vec<Difference>>>>,
}

impl Recorder {
    fn note(&self, text: String) {
        self.told.lock().unwrap().push(text);
    }
}

impl ReflectorStore<ConfigMap> for Recorder {
    fn replace(&self, List { items, unchanged, resource_version, epoch }: List<ConfigMap>) {
        let unchanged = unchanged.iter().map(|key| format!("{key} unchanged"));
        let items: Vec<_> = items.iter().map(spelled_item).chain(unchanged).collect();
        let epoch = if epoch == Epoch::New { " new epoch" } else { "" };
        self.note(format!("replace@{resource_version}{epoch} [{}]", items.join(" ")));
    }

    fn apply(&self, changes: Vec<StoreChange<ConfigMap>>) {
        let changes: Vec<_> = changes
            .iter()
            .map(|change| match change {
                StoreChange::Upsert(item) => format!("+{}", spelled_item(item)),
                StoreChange::Delete(item) => format!("-{}", spelled_item(item)),
                StoreChange::Bookmark(version) => format!("~{version}"),
            })
            .collect();
        self.note(changes.join(" "));
    }

    fn resync(&self) {
        self.note("resync".to_owned());
    }

    fn report(&self, report: FetchReport) {
        match report {
            FetchReport::Healthy(_) => *self.healthy_after.lock().unwrap() = self.told.lock().unwrap().len(),
            FetchReport::Skipped(WatchError { error, .. }) => self.note(error.to_string()),
            FetchReport::Failed(WatchError { error, attempts, .. }) => {
                self.note(format!("failed #{attempts}: {error}"));
            }
            report => self.standing.lock().unwrap().push(format!("{report:?}")),
        }
    }

    fn differences(&self, _: &[FetchedItem<ConfigMap>]) -> Option<Vec<Difference>> {
        self.differences.lock().unwrap().pop_front().unwrap_or_else(|| Some(Vec::new()))
    }

    fn wants_list(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.wants_list.notified())
    }
}

fn spelled_item(item: &FetchedItem<ConfigMap>) -> String {
    let key = item.key().map_or("?".to_owned(), |key| key.to_string());
    format!("{key}@{}", item.resource_version().unwrap_or_default())
}

/// A reflector at work on a script.
pub(super) struct Rig {
    script: Arc<Script>,
    store: Arc<Recorder>,
    cancel: CancellationToken,
    task: JoinHandle<()>,
    started: Instant,
}

/// What a test scripts, before the reflector starts.
#[derive(Default)]
pub(super) struct Plan {
    lists: Vec<Page>,
    watches: Vec<Answer>,
    latest: Vec<Latest>,
    config: ReflectorConfig,
}

impl Plan {
    fn paged() -> Self {
        let config = ReflectorConfig { first_list: FirstList::Paged, seed: Some(1), ..Default::default() };
        Self { config, ..Self::default() }
    }

    fn streaming() -> Self {
        let config = ReflectorConfig { seed: Some(1), ..Default::default() };
        Self { config, ..Self::default() }
    }

    fn lists(mut self, lists: impl IntoIterator<Item = Page>) -> Self {
        self.lists.extend(lists);
        self
    }

    fn watches(mut self, watches: impl IntoIterator<Item = Answer>) -> Self {
        self.watches.extend(watches);
        self
    }

    fn latest(mut self, latest: impl IntoIterator<Item = Latest>) -> Self {
        self.latest.extend(latest);
        self
    }

    fn configured(mut self, change: impl FnOnce(&mut ReflectorConfig)) -> Self {
        change(&mut self.config);
        self
    }

    fn start(self) -> Rig {
        let script = Arc::new(Script {
            lists: Mutex::new(self.lists.into()),
            watches: Mutex::new(self.watches.into()),
            latest: Mutex::new(self.latest.into()),
            ..Script::default()
        });
        let (store, cancel) = (Arc::new(Recorder::default()), CancellationToken::new());
        let reflector = Reflector::new(Source(script.clone()), store.clone(), self.config);
        let task = tokio::spawn(reflector.run(cancel.clone()));
        Rig { script, store, cancel, task, started: Instant::now() }
    }

    /// Starts, and lets virtual time pass.
    async fn run_for(self, seconds: u64) -> Rig {
        let rig = self.start();
        rig.pass(seconds).await;
        rig
    }
}

impl Rig {
    async fn pass(&self, seconds: u64) {
        sleep(Duration::from_secs(seconds)).await;
        assert!(!self.task.is_finished(), "the reflector ended by itself");
    }

    fn calls(&self) -> Vec<String> {
        self.script.calls.lock().unwrap().iter().map(|(_, call)| spelled_call(call)).collect()
    }

    /// When each call was made, in seconds since the start.
    fn times(&self) -> Vec<f64> {
        let calls = self.script.calls.lock().unwrap();
        calls.iter().map(|(at, _)| (*at - self.started).as_secs_f64()).collect()
    }

    fn options(&self) -> Vec<ListOptions> {
        let calls = self.script.calls.lock().unwrap();
        let options = calls.iter().filter_map(|(_, call)| match call {
            Call::List(options) | Call::Watch(options) => Some(options.clone()),
            Call::Latest => None,
        });
        options.collect()
    }

    fn told(&self) -> Vec<String> {
        self.store.told.lock().unwrap().clone()
    }

    /// What the store heard of the connection, and of losses.
    fn standing(&self) -> Vec<String> {
        self.store.standing.lock().unwrap().clone()
    }

    /// Returns whether nothing has failed since all was well.
    fn is_healthy(&self) -> bool {
        *self.store.healthy_after.lock().unwrap() == self.told().len()
    }

    fn open_now(&self) -> usize {
        self.script.opened.load(Ordering::SeqCst) - self.stopped()
    }

    fn stopped(&self) -> usize {
        self.script.stopped.load(Ordering::SeqCst)
    }
}

fn spelled_call(call: &Call) -> String {
    let (verb, options) = match call {
        Call::Latest => return "latest".to_owned(),
        Call::List(options) => ("list", options),
        Call::Watch(options) if options.initial_events => ("stream", options),
        Call::Watch(options) => ("watch", options),
    };
    let mut text = verb.to_owned();
    for (name, value) in [
        (" rv=", options.resource_version.clone()),
        (" match=", options.version_match.map(|version_match| format!("{version_match:?}"))),
        (" limit=", options.limit.map(|limit| limit.to_string())),
        (" continue=", options.continue_token.clone()),
    ] {
        text.extend(value.map(|value| format!("{name}{value}")));
    }
    text
}

pub(super) fn item(name: &str, version: &str) -> FetchedItem<ConfigMap> {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.to_owned());
    object.metadata.namespace = Some("n".to_owned());
    object.metadata.resource_version = Some(version.to_owned());
    FetchedItem::Object(Arc::new(object))
}

pub(super) fn unreadable(name: &str, version: &str) -> FetchedItem<ConfigMap> {
    let identity = Identity {
        key: Some(ObjectKey::new("n", name)),
        resource_version: Some(version.to_owned()),
        ..Identity::default()
    };
    FetchedItem::Unreadable(Unreadable { identity, error: "data: no".to_owned() }.into())
}

pub(super) fn without_key() -> FetchedItem<ConfigMap> {
    FetchedItem::Unreadable(
        Unreadable { identity: Identity::default(), error: "metadata: no".to_owned() }.into(),
    )
}

/// `a@1 b@2` as items.
fn items(text: &str) -> Vec<FetchedItem<ConfigMap>> {
    let parts = text.split_whitespace().map(|part| part.split_once('@').unwrap());
    parts.map(|(name, version)| item(name, version)).collect()
}

fn page(text: &str, version: &str) -> Page {
    Ok(ListPage { items: items(text), resource_version: version.to_owned(), continue_token: None })
}

fn page_before(text: &str, version: &str, next: &str) -> Page {
    page(text, version).map(|page| ListPage { continue_token: Some(next.to_owned()), ..page })
}

pub(super) fn answer(code: u16, reason: &str) -> ListWatchError {
    ListWatchError::from_status(Status::failure("no", reason).with_code(code))
}

pub(super) fn gone() -> ListWatchError {
    answer(410, "Expired")
}

pub(super) fn refused() -> ListWatchError {
    ListWatchError::Connection("connection refused".into())
}

fn error_event(code: u16, reason: &str) -> WatchEvent<ConfigMap> {
    WatchEvent::Error(Box::new(Status::failure("no", reason).with_code(code)))
}

/// `+a@1` added, `=a@2` modified, `-a@3` deleted, `~4` bookmark, `!5` the bookmark that ends a list.
fn events(text: &str) -> Act {
    let event = |word: &str| {
        let (sign, rest) = word.split_at(1);
        let object = || rest.split_once('@').map(|(name, version)| item(name, version)).unwrap();
        let bookmark =
            |initial_events| WatchEvent::Bookmark { resource_version: rest.to_owned(), initial_events };
        match sign {
            "+" => WatchEvent::Added(object()),
            "=" => WatchEvent::Modified(object()),
            "-" => WatchEvent::Deleted(object()),
            "~" => bookmark(InitialEventsMark::Absent),
            "!" => bookmark(InitialEventsMark::End),
            _ => panic!("{word} is not an event"),
        }
    };
    Act::Tell(text.split_whitespace().map(event).collect())
}

fn wait(seconds: f64) -> Act {
    Act::Wait(Duration::from_secs_f64(seconds))
}

fn opens(acts: impl IntoIterator<Item = Act>) -> Answer {
    Answer::Opens(acts.into_iter().collect())
}

/// A watch that is open, silent, for good.
fn silent() -> Answer {
    Answer::Opens(Vec::new())
}
