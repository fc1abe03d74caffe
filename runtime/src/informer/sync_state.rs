//! How an informer is doing: synced or not, what failed last, what can't be read.

use std::{
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::apply::Fallen;
use crate::{
    chain::one_line,
    clock::{Moment, after, readable},
    delta_fifo::Extent,
    list_watch::{ListWatchError, Unreadable},
    object::{Kind, Version},
    reflector::{FetchPart, FetchReport, LogLevel, Reminder, WatchError, WatchErrorHandler, tell},
};

/// Most items without a name that are remembered a cache.
const NAMELESS: usize = 100;
/// How many objects of a cache that can't be read are logged at once.
const UNREADABLE: u64 = 10;

/// Names a kind for messages, metrics and pages; one of another cluster as `hub/configmaps`.
pub(crate) fn name_of(kind: &Kind, cluster: Option<&str>) -> String {
    match cluster {
        None => kind.to_string(),
        Some(cluster) => format!("{cluster}/{kind}"),
    }
}

/// How an informer is doing at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SyncState {
    /// What is watched.
    pub kind: Kind,
    /// The cluster that it is read from, by [name](crate::manager::Manager::cluster); `None`: the manager's own.
    pub cluster: Option<Arc<str>>,
    /// How far it has come.
    pub phase: SyncPhase,
    /// What keeps it from listing or watching at present; of several namespaces, what has failed longest.
    pub failure: Option<FetchFailure>,
    /// Objects whose latest state could not be read, those without a readable name included.
    pub unreadable: Vec<Arc<Unreadable>>,
    /// The version that the cache shows at least.
    pub resource_version: Option<Version>,
}

/// How far an informer has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum SyncPhase {
    /// Nobody started it yet.
    NotStarted,
    /// Its first list is not through.
    Syncing,
    /// The cache holds at least what the first list held.
    Synced,
    /// It was shut down.
    Stopped,
}

/// What keeps an informer from listing or watching.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FetchFailure {
    /// Which part of the cache it concerns.
    pub extent: Extent,
    /// Which half of fetching fails.
    pub part: FetchPart,
    /// What sort of failure it is.
    pub(crate) cause: FailureCause,
    /// What was said, with its causes.
    pub message: String,
    /// When it began to fail.
    pub since: Moment,
    /// How often in a row it failed.
    pub attempts: u32,
    /// When it is tried again.
    pub retry_at: Moment,
}

/// What sort of failure keeps an informer from its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum FailureCause {
    /// The user may not list or watch the kind.
    Forbidden,
    /// The server does not accept who we say we are.
    Unauthorized,
    /// The server does not serve the kind.
    NotServed,
    /// The answer did not arrive, or was cut off.
    Unreachable,
    /// The code that lists or watches panicked.
    Panicked,
    /// An object, or an event, is larger than may be held.
    TooLarge,
    /// Something else.
    Other,
}

impl FailureCause {
    fn of(error: &ListWatchError) -> Self {
        match error {
            ListWatchError::Status { status, .. } if status.code == 401 => Self::Unauthorized,
            _ if error.is_forbidden() => Self::Forbidden,
            _ if error.is_not_found() => Self::NotServed,
            ListWatchError::TooLarge { .. } => Self::TooLarge,
            ListWatchError::Panicked => Self::Panicked,
            ListWatchError::Connection(_) | ListWatchError::Deadline(_) | ListWatchError::CutShort => {
                Self::Unreachable
            }
            _ => Self::Other,
        }
    }
}

impl SyncState {
    /// Names what is watched, for messages.
    pub(crate) fn name(&self) -> String {
        name_of(&self.kind, self.cluster.as_deref())
    }

    /// Returns whether the cache holds at least what the first list held.
    pub fn is_synced(&self) -> bool {
        self.phase == SyncPhase::Synced
    }

    /// Returns whether the kind may not be listed or watched: a permission is missing.
    pub fn is_forbidden(&self) -> bool {
        self.failure.as_ref().is_some_and(|failure| failure.cause == FailureCause::Forbidden)
    }

    /// Says what somebody could do about an informer that does not sync.
    pub(crate) fn remedy(&self) -> String {
        let (kind, cause) = (&self.kind, self.failure.as_ref().map(|failure| failure.cause));
        let remedy = match (self.phase, cause) {
            (SyncPhase::NotStarted, _) => "start it: `start()` on its factory",
            (SyncPhase::Stopped, _) => "it was shut down and does not come back: build another",
            (_, Some(FailureCause::Forbidden)) => {
                let cluster = self.cluster.as_ref().map(|name| format!(" of cluster {name}"));
                let there = cluster.unwrap_or_default();
                return format!(
                    "allow `list` and `watch` of {kind} in a Role or ClusterRole{there}, and bind that"
                );
            }
            (_, Some(FailureCause::NotServed)) => {
                let version = &kind.version;
                return format!(
                    "install what serves {kind} in version {version} (its CustomResourceDefinition)"
                );
            }
            (_, Some(FailureCause::Unauthorized)) => "check the credentials of the client",
            (_, Some(FailureCause::Unreachable)) => "check the server's address, and that it is up",
            (_, Some(FailureCause::Panicked)) => {
                "fix what panics (a source, an options hook, a back-off schedule); it is tried again"
            }
            (_, Some(FailureCause::TooLarge)) => {
                "shrink the object, leave it out by a selector, or raise `largest_object`"
            }
            (_, Some(FailureCause::Other)) => "see what the server says; it is tried again with back-off",
            (_, None) => "it may only need longer",
        };
        remedy.to_owned()
    }
}

/// Shown as one line: the kind, how far it has come, and why not further.
impl fmt::Display for SyncState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = match self.phase {
            SyncPhase::NotStarted => "was never started",
            SyncPhase::Syncing => "has not listed yet",
            SyncPhase::Synced => "is synced",
            SyncPhase::Stopped => "was stopped",
        };
        write!(f, "{} {phase}", self.name())?;
        if let Some(failure) = &self.failure {
            write!(f, ": {failure}")?;
        }
        match self.unreadable.len() {
            0 => Ok(()),
            count => write!(f, "; {count} unreadable"),
        }
    }
}

impl fmt::Display for FetchFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = self.part;
        match self.cause {
            FailureCause::Forbidden => write!(f, "permission to {part} it is missing")?,
            FailureCause::Unauthorized => f.write_str("the server does not accept the credentials")?,
            FailureCause::NotServed => f.write_str("the server does not serve it")?,
            FailureCause::Unreachable => f.write_str("the server is unreachable")?,
            FailureCause::TooLarge => f.write_str("something in it is too large")?,
            FailureCause::Panicked => f.write_str("the code that fetches it panics")?,
            FailureCause::Other => write!(f, "the {part} fails")?,
        }
        if let Extent::Namespace(namespace) = &self.extent {
            write!(f, " in namespace {namespace}")?;
        }
        let attempts =
            if self.attempts == 1 { "1 attempt".to_owned() } else { format!("{} attempts", self.attempts) };
        write!(f, ", for {} ({attempts}): {}", readable(self.since.elapsed()), self.message)
    }
}

/// Names the informers that did not sync in time, and why; a line each, and its remedy.
#[derive(Clone, Debug, thiserror::Error)]
#[error("not synced after {}:{}", readable(*waited), lines(laggards))]
pub struct NotSynced {
    /// Those that lag.
    pub laggards: Vec<SyncState>,
    /// How long was waited.
    pub waited: Duration,
}

fn lines(laggards: &[SyncState]) -> String {
    laggards.iter().map(|state| format!("\n  {state}\n    {}", state.remedy())).collect()
}

/// Remembers what reflectors reported, and what could not even be named.
pub(super) struct Health {
    on_error: WatchErrorHandler,
    state: Mutex<HealthState>,
}

#[derive(Default)]
struct HealthState {
    failures: Vec<FetchFailure>,
    /// Why nothing comes any more.
    lost: Option<FetchFailure>,
    nameless: Vec<(Extent, Arc<Unreadable>)>,
    panics: u64,
    /// How many objects were reported that can't be read, and when another one is logged.
    unreadable: u64,
    reminder: Option<Reminder>,
    handlers: Vec<WatchErrorHandler>,
    /// Those of users who may go.
    guests: Vec<Weak<[WatchErrorHandler]>>,
}

impl_debug!(Health);

impl Health {
    pub(super) fn new(on_error: WatchErrorHandler) -> Self {
        Self { on_error, state: Mutex::default() }
    }

    pub(super) fn count_panic(&self) {
        self.state.lock().panics += 1;
    }

    /// Notes that a task is lost without which nothing comes any more.
    pub(super) fn lose(&self, what: &'static str) {
        let now = Instant::now();
        let failure = FetchFailure {
            extent: Extent::All,
            part: FetchPart::Watch,
            cause: FailureCause::Panicked,
            message: format!("{what} panicked"),
            since: now.into(),
            attempts: 1,
            retry_at: after(now, Duration::MAX).into(),
        };
        self.state.lock().lost = Some(failure);
    }

    pub(super) fn is_lost(&self) -> bool {
        self.state.lock().lost.is_some()
    }

    pub(super) fn panics(&self) -> u64 {
        self.state.lock().panics
    }

    /// Adds an error handler.
    pub(super) fn add_handler(&self, handler: WatchErrorHandler) {
        self.state.lock().handlers.push(handler);
    }

    /// Adds error handlers for as long as somebody holds them.
    pub(super) fn add_handlers(&self, handlers: &Arc<[WatchErrorHandler]>) {
        let mut state = self.state.lock();
        state.guests.retain(|guest| guest.strong_count() > 0);
        state.guests.push(Arc::downgrade(handlers));
    }

    pub(super) fn report(&self, extent: &Extent, report: &FetchReport) {
        match report {
            FetchReport::Healthy(part) => {
                self.state
                    .lock()
                    .failures
                    .retain(|failure| failure.extent != *extent || failure.part != *part);
            }
            FetchReport::Skipped(error) => self.tell(error),
            FetchReport::WatchLost | FetchReport::WatchBack | FetchReport::Current { .. } => {}
            FetchReport::Failed(error) => {
                self.note_failure(extent, error);
                self.tell(error);
            }
        }
    }

    fn note_failure(&self, extent: &Extent, error: &WatchError) {
        let mut state = self.state.lock();
        let same = |failure: &FetchFailure| failure.extent == *extent && failure.part == error.part;
        let place = state.failures.iter().position(same);
        let since = place.map(|at| state.failures.swap_remove(at).since);
        state.failures.push(FetchFailure {
            extent: extent.clone(),
            part: error.part,
            cause: FailureCause::of(&error.error),
            message: one_line(&*error.error),
            since: since.unwrap_or_else(Moment::now),
            attempts: error.attempts,
            retry_at: after(Instant::now(), error.retry_in).into(),
        });
    }

    /// Reports an object that can't be read: at once, or in a compact cache at the first read. The first few are logged, and later
    /// ones now and then: each change of one is reported.
    pub(super) fn tell_unreadable(&self, name: &str, unreadable: &Unreadable) {
        let Unreadable { identity, error } = unreadable;
        let what = match &identity.key {
            Some(key) => format!("{key}, which can't be read: {error}"),
            None => format!("an object without a name that can't be read: {error}"),
        };
        let news = {
            let (mut state, now) = (self.state.lock(), Instant::now());
            state.unreadable += 1;
            let is_due = state.reminder.get_or_insert_with(|| Reminder::begin(now)).is_due(now);
            if is_due || state.unreadable <= UNREADABLE { LogLevel::Begins } else { LogLevel::Repeats }
        };
        self.tell_unexpected(name, what, news);
    }

    /// Reports a change whose version is lower than one that came before.
    pub(super) fn tell_fallen(&self, name: &str, Fallen { key, version, cached, .. }: &Fallen) {
        let what = format!(
            "a change of {key} at version {version}, although it is cached at {cached}: the server lost its history, or its \
             versions fall; it is listed again"
        );
        self.tell_unexpected(name, what, LogLevel::Begins);
    }

    fn tell_unexpected(&self, name: &str, what: String, news: LogLevel) {
        let error = ListWatchError::Unexpected(what);
        let error = WatchError::new(name.to_owned(), FetchPart::Watch, error, 0, Duration::ZERO);
        let error = WatchError { news, ..error };
        tell(&self.on_error, &error);
        self.tell(&error);
    }

    fn tell(&self, error: &WatchError) {
        let (handlers, guests) = {
            let state = self.state.lock();
            let guests: Vec<_> = state.guests.iter().filter_map(Weak::upgrade).collect();
            (state.handlers.clone(), guests)
        };
        handlers
            .iter()
            .chain(guests.iter().flat_map(|guest| guest.iter()))
            .for_each(|handler| tell(handler, error));
    }

    /// Notes items that have no name; a list replaces what was noted of its extent.
    pub(super) fn note_nameless(&self, replaced: Option<&Extent>, nameless: Vec<(Extent, Arc<Unreadable>)>) {
        let mut state = self.state.lock();
        state.nameless.retain(|(extent, _)| Some(extent) != replaced);
        state.nameless.extend(nameless);
        state.nameless.truncate(NAMELESS);
    }

    pub(super) fn failure(&self) -> Option<FetchFailure> {
        let state = self.state.lock();
        state.lost.as_ref().or(state.failures.iter().min_by_key(|failure| failure.since)).cloned()
    }

    pub(super) fn nameless(&self) -> Vec<Arc<Unreadable>> {
        self.state.lock().nameless.iter().map(|(_, unreadable)| unreadable.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Health {
        pub(in crate::informer) fn handlers(&self) -> usize {
            let state = self.state.lock();
            state.handlers.len() + state.guests.len()
        }
    }
}
