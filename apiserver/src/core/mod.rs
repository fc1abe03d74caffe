//! The core: requests in, answers or event streams out, one mutex around one state.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use self::answer::{Outcome, Patience};
use self::handle::handle;
use crate::clock::Clock;
use crate::negotiate::Media;
use crate::proto;
use crate::route::{Query, RequestInfo};
use crate::state::{Grant, State};
use crate::status::Status;
use crate::store::{Forgotten, Store, View};
use crate::watch::WatchStream;
use crate::{crd, gc, namespaces};

pub(crate) use self::request::{ApiRequest, User};

mod access;
mod answer;
mod binary;
mod handle;
mod openapi;
mod reading;
mod request;
mod reviews;
mod service_tokens;
mod target;

#[cfg(test)]
mod tests;

/// How long a version that is not there yet is waited for.
const PATIENCE: Duration = Duration::from_secs(3);

/// The time between two looks at a replica that lags.
const REPLICA_PAUSE: Duration = Duration::from_millis(50);

/// The answer to one request.
#[derive(Debug)]
pub(crate) enum Reply {
    /// A whole response.
    Full(Response<Bytes>),
    /// A stream of events.
    Stream {
        /// Status and headers.
        parts: http::response::Parts,
        /// The events, one line a frame.
        events: Box<WatchStream>,
    },
}

/// What a restart forgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// Nothing: streams are cut, data and history stay.
    Keep,
    /// The history: older versions are gone, watches from them get 410.
    ForgetHistory,
    /// Everything: a fresh store whose versions start low again.
    Empty,
    /// What came after this version: objects, definitions and the counter are as they were then.
    ///
    /// So a backup is restored: versions are given out a second time, with other contents. The clock goes on.
    /// A watch from a version that is not reached any more is held open in silence; clients have to find out
    /// themselves that time went back.
    At(u64),
}

/// The settings of a core; the defaults suit tests.
#[derive(Clone, Debug)]
pub(crate) struct CoreConfig {
    /// The clock of `creationTimestamp` and the like.
    pub(crate) clock: Clock,
    /// The seed of uids and generated names.
    pub(crate) seed: u64,
    /// The resource version before the first write.
    pub(crate) first_version: u64,
    /// The number of changes kept for each resource.
    pub(crate) history: usize,
    /// The time between two bookmarks of a watch that asked for them.
    pub(crate) bookmark_period: Duration,
    /// The time from a CRD's creation to its being served.
    pub(crate) establish_delay: Duration,
    /// The time from a write to the controllers' looking at it.
    pub(crate) controller_delay: Duration,
}

impl Default for CoreConfig {
    fn default() -> Self {
        Self {
            clock: Clock::default(),
            seed: 1,
            first_version: 1,
            history: 100_000,
            bookmark_period: Duration::from_secs(60),
            establish_delay: Duration::from_millis(30),
            controller_delay: Duration::from_millis(20),
        }
    }
}

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    first_version: u64,
    unsettled: Arc<Notify>,
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.unsettled.notify_one();
    }
}

/// The server itself; a clone is the same server.
#[derive(Clone, Debug)]
pub(crate) struct Core {
    inner: Arc<Inner>,
}

impl Core {
    /// Starts a core with the four namespaces every cluster has.
    ///
    /// Its controllers run as a task of the current tokio runtime until the last clone is dropped; outside of a
    /// runtime they run in [`Core::settle`] only.
    pub(crate) fn new(config: CoreConfig) -> Self {
        let store = Store::new(config.first_version, config.history);
        let mut state = State::new(store, config.clock, config.seed);
        state.establish_delay = config.establish_delay;
        state.bookmark_period = config.bookmark_period;
        namespaces::preload(&mut state);
        let unsettled = Arc::new(Notify::new());
        let inner = Arc::new(Inner {
            state: Mutex::new(state),
            first_version: config.first_version,
            unsettled: unsettled.clone(),
        });
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(control(Arc::downgrade(&inner), unsettled, config.controller_delay));
        }
        Self { inner }
    }

    /// Forgets all history up to a version; open watches go on.
    pub(crate) fn compact_to(&self, version: u64) {
        self.inner.lock().store.compact(version);
    }

    /// Returns whether a restart can leave what it is to leave.
    ///
    /// # Errors
    /// The version to go back to is forgotten.
    pub(crate) fn can_restart(&self, what: Restart) -> Result<(), Forgotten> {
        match what {
            Restart::At(version) => self.inner.lock().store.remembers(version),
            Restart::Keep | Restart::ForgetHistory | Restart::Empty => Ok(()),
        }
    }

    /// Restarts: every stream ends, then what is said is forgotten.
    ///
    /// # Errors
    /// The version to go back to is forgotten; the data stays as it is.
    pub(crate) fn restart(&self, what: Restart) -> Result<(), Forgotten> {
        let mut state = self.inner.lock();
        state.store.cut();
        match what {
            Restart::Keep => {}
            Restart::ForgetHistory => {
                let now = state.store.version();
                state.store.compact(now);
            }
            Restart::Empty => {
                state.store.clear(self.inner.first_version);
                state.registry = crate::kinds::Registry::new();
                state.establishing.clear();
                namespaces::preload(&mut state);
            }
            Restart::At(version) => {
                state.store.rewind(version)?;
                crd::register_all(&mut state);
                self.inner.unsettled.notify_one();
            }
        }
        Ok(())
    }

    /// Looks at the state, under its lock.
    pub(crate) fn with_state<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.inner.lock())
    }

    /// Reads the stored object that a request names.
    pub(crate) fn peek(&self, info: &RequestInfo) -> Option<serde_json::Value> {
        target::peek(&self.inner.lock(), info)
    }

    /// Changes the object a request names, as somebody else would.
    pub(crate) fn bump(&self, info: &RequestInfo) {
        target::bump(&mut self.inner.lock(), info);
    }

    /// Runs the controllers (garbage, namespaces, CRDs) until nothing is left to do, delays included.
    pub(crate) fn settle(&self) {
        run_controllers(&mut self.inner.lock(), crd::Due::All);
    }

    /// Collects garbage now; gives the number of objects it touched.
    pub(crate) fn collect_garbage(&self) -> usize {
        gc::collect(&mut self.inner.lock())
    }

    /// Gives the newest resource version.
    pub(crate) fn resource_version(&self) -> u64 {
        self.inner.lock().store.version()
    }

    /// Lets a named user do something.
    pub(crate) fn allow(&self, grant: Grant) {
        self.inner.lock().grants.insert(grant);
    }

    /// Finds the service account of a token that this server has given out.
    pub(crate) fn account_of(&self, token: &str) -> Option<User> {
        service_tokens::account_of(&self.inner.lock(), token)
    }

    /// Gives the clock.
    pub(crate) fn clock(&self) -> Clock {
        self.inner.lock().clock.clone()
    }

    /// Answers one request; waits only on tokio time.
    pub(crate) async fn serve(&self, request: ApiRequest) -> Reply {
        self.serve_as(request, None).await
    }

    /// Answers one request, reads as a view has them.
    pub(crate) async fn serve_as(&self, request: ApiRequest, view: Option<View>) -> Reply {
        let info = request.info();
        let mut patience = Patience::Fresh;
        let over = Instant::now() + PATIENCE;
        let outcome = loop {
            let (outcome, mut reached) = {
                let mut state = self.inner.lock();
                let outcome = handle(&mut state, &request, &info, patience, view);
                if state.unsettled || state.store.owners.has_suspects() {
                    self.inner.unsettled.notify_one();
                }
                (outcome, state.store.reached())
            };
            let Ok(Outcome::Wait(version)) = outcome else { break outcome };
            if view.is_some() {
                // A replica says nothing of its progress: it is asked again and again.
                sleep(REPLICA_PAUSE).await;
            } else {
                let _late = timeout(PATIENCE, reached.wait_for(|now| *now >= version)).await;
            }
            if Instant::now() >= over {
                patience = Patience::Over;
            }
        };
        let response = match outcome {
            Ok(Outcome::Watch(events)) => {
                let media =
                    if events.media() == Media::Protobuf { proto::STREAM_MEDIA } else { "application/json" };
                let (parts, _) = answer::typed(200, media, Bytes::new()).into_parts();
                return Reply::Stream { parts, events };
            }
            Ok(Outcome::Full(response)) => response,
            Ok(Outcome::Wait(version)) => Status::version_too_large(version, version).to_response(),
            Err(status) => {
                let mut response = status.to_response();
                answer::warn(&mut response, &status.warnings);
                response
            }
        };
        Reply::Full(answer::finish(response, &request.headers, &Query::of(&request.uri)))
    }
}

/// Runs the controllers a moment after each write that may concern them.
async fn control(inner: Weak<Inner>, unsettled: Arc<Notify>, delay: Duration) {
    loop {
        let due = match inner.upgrade() {
            Some(inner) => crd::next_due(&inner.lock()),
            None => return,
        };
        match due {
            Some(due) => tokio::select! {
                biased;
                () = unsettled.notified() => {}
                () = sleep_until(due) => {}
            },
            None => unsettled.notified().await,
        }
        sleep(delay).await;
        let Some(inner) = inner.upgrade() else { return };
        run_controllers(&mut inner.lock(), crd::Due::Now);
    }
}

fn run_controllers(state: &mut State, due: crd::Due) {
    loop {
        state.unsettled = false;
        let touched = crd::step(state, due) + namespaces::step(state) + gc::collect(state);
        if touched == 0 && !state.store.owners.has_suspects() {
            state.unsettled = false;
            return;
        }
    }
}
