//! The core: requests in, answers or event streams out, one mutex around one state.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use self::answer::{Outcome, Patience};
use self::commit::{Committer, Shared, Ticket};
use self::guard::Guard;
use self::handle::handle;
#[cfg(feature = "persistence")]
use self::reopen::{Opening, open};
use crate::authz::{Attributes, WantedUser};
use crate::call::{Caller, WebhookService};
use crate::clock::Clock;
use crate::data::DataError;
use crate::flow_control::{self, Class, Flows};
use crate::identity::User;
use crate::negotiate::Media;
use crate::proto;
use crate::route::RequestInfo;
use crate::session::Session;
use crate::state::{Grant, State};
use crate::status::Status;
use crate::store::{Forgotten, View};
use crate::tokens::Tokens;
use crate::watch::WatchStream;
use crate::{authz, bootstrap, crd, gc, namespaces};

pub use self::config::Restart;
pub(crate) use self::config::{Controllers, CoreConfig};
pub(crate) use self::request::ApiRequest;
pub use self::restore::Restored;

mod answer;
#[cfg_attr(not(feature = "protobuf"), path = "../without/binary.rs")]
mod binary;
mod binding;
mod component_statuses;
#[cfg_attr(not(feature = "persistence"), path = "../without/commit.rs")]
mod commit;
mod config;
mod eviction;
mod guard;
mod handle;
#[cfg_attr(not(feature = "openapi"), path = "../without/openapi.rs")]
mod openapi;
mod reading;
#[cfg(feature = "persistence")]
mod reopen;
mod request;
mod restore;
mod reviews;
mod service_tokens;
mod target;

#[cfg(test)]
mod admission_tests;
#[cfg(test)]
mod authz_tests;
#[cfg(test)]
mod bounds_tests;
#[cfg(test)]
mod change_tests;
#[cfg(test)]
mod conversion_tests;
#[cfg(test)]
mod data_tests;
#[cfg(test)]
mod flow_tests;
#[cfg(test)]
mod policy_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod truth_tests;
#[cfg(test)]
mod unstored_tests;

/// How long a version that is not there yet is waited for.
const PATIENCE: Duration = Duration::from_secs(3);

/// The subresources whose requests flow control does not count.
const LONG_RUNNING: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// The interval at which a lagging replica is checked.
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

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    first_version: u64,
    unsettled: Arc<Notify>,
    committer: Option<Committer>,
    caller: Caller,
    /// Locked after the state.
    flows: Mutex<Flows>,
    me: Weak<Inner>,
}

impl Inner {
    fn lock(&self) -> Locked<'_> {
        Locked { state: Guard::lock(&self.state), inner: self }
    }

    /// Returns the flow of a request; `None` for requests that hold a connection as long as they like.
    fn class(&self, state: &State, user: &User, asked: &Attributes) -> Option<Class> {
        if asked.path.is_none() && LONG_RUNNING.contains(&&*asked.subresource) {
            return None;
        }
        let mut flows = self.flows.lock().unwrap_or_else(PoisonError::into_inner);
        flows.classify(&state.store, user, asked)
    }

    /// Returns what to wait for before this state is shown to anyone.
    fn ticket(&self, state: &State) -> Option<Ticket> {
        self.committer.as_ref()?.ticket(state)
    }
}

impl Shared for Inner {
    fn state(&self) -> Guard<'_> {
        Guard::lock(&self.state)
    }

    fn committer(&self) -> Option<&Committer> {
        self.committer.as_ref()
    }
}

/// The locked state; changes are on their way to the disk when the lock is released.
struct Locked<'a> {
    state: Guard<'a>,
    inner: &'a Inner,
}

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        if let Some(committer) = &self.inner.committer
            && self.state.store.has_unsaved()
        {
            committer.start(&self.inner.me);
        }
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
        let state = restore::fresh(&config);
        Self::over(state, None, &config)
    }

    /// Starts a core as its data file has it, if it is to have one.
    ///
    /// # Errors
    /// The error in the file.
    ///
    /// # Panics
    /// Outside of a tokio runtime, if there is a data file.
    pub(crate) fn open(config: CoreConfig) -> Result<(Self, Option<Restored>), DataError> {
        #[cfg(feature = "persistence")]
        if let Some(path) = &config.data {
            let Opening { state, file, started, restored } = open(&config, path)?;
            return Ok((Self::over(state, Some(Committer::new(file, started)), &config), restored));
        }
        Ok((Self::new(config), None))
    }

    /// Starts a core that continues from the state of this one, independent of it and without a data file.
    pub(crate) fn fork(&self, config: &CoreConfig) -> Self {
        let state = self.inner.lock().fork();
        Self::over(state, None, config)
    }

    fn over(mut state: State, committer: Option<Committer>, config: &CoreConfig) -> Self {
        let unsettled = Arc::new(Notify::new());
        let caller = config.caller.of_another_server();
        state.caller = caller.clone();
        let due = state.unsettled || state.store.owners.has_suspects();
        let inner = Arc::new_cyclic(|me| Inner {
            state: Mutex::new(state),
            first_version: config.first_version,
            unsettled: unsettled.clone(),
            committer,
            caller,
            flows: Mutex::default(),
            me: me.clone(),
        });
        if due {
            unsettled.notify_one();
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(control(Arc::downgrade(&inner), unsettled, config.controller_delay));
        }
        Self { inner }
    }

    /// Writes a last snapshot and lets go of the data file; writes are refused from then on.
    ///
    /// # Errors
    /// A change could not be written, and this has not been reported yet.
    pub(crate) async fn close(&self) -> Result<(), Arc<DataError>> {
        let Some(committer) = &self.inner.committer else { return Ok(()) };
        let Some(ticket) = committer.close(&self.inner.lock()) else { return Ok(()) };
        committer.start(&self.inner.me);
        ticket.await.unwrap_or(Ok(()))
    }

    /// Breaks the data file.
    #[cfg(test)]
    fn break_file(&self, how: impl FnOnce(&mut crate::data::DataFile)) {
        if let Some(committer) = &self.inner.committer {
            committer.break_file(how);
        }
    }

    /// Releases the data file as it is.
    pub(crate) fn abandon(&self) {
        if let Some(committer) = &self.inner.committer {
            committer.abandon();
        }
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

    /// Restarts: every stream ends, then the given state is forgotten.
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
                state.aggregated = 0;
                authz::install(&mut state);
                flow_control::install(&mut state);
                bootstrap::install(&mut state);
            }
            Restart::At(version) => {
                state.store.rewind(version)?;
                crd::register_all(&mut state);
                state.aggregated = 0;
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

    /// Changes the object of a request, as another client would.
    pub(crate) fn bump(&self, info: &RequestInfo) {
        target::bump(&mut self.inner.lock(), info);
    }

    /// Stores an object as it is, or removes it: see [`crate::inside::put`].
    pub(crate) fn put(&self, info: &RequestInfo, value: Option<serde_json::Value>) -> bool {
        target::put(&mut self.inner.lock(), info, value)
    }

    /// Takes an owner for one that is there.
    pub(crate) fn assume_owner(&self, uid: &str) {
        self.inner.lock().store.owners.assume(uid);
    }

    /// Runs the controllers (garbage, namespaces, CRDs) until they have nothing left to do, delays included.
    pub(crate) fn settle(&self) {
        run_controllers(&mut self.inner.lock(), crd::Due::All);
    }

    /// Collects garbage now; gives the number of objects it touched.
    pub(crate) fn collect_garbage(&self) -> usize {
        gc::collect(&mut self.inner.lock())
    }

    /// Returns the newest resource version.
    pub(crate) fn resource_version(&self) -> u64 {
        self.inner.lock().store.version()
    }

    /// Has a program of this process answer the webhooks that it serves.
    pub(crate) fn answer_by(&self, program: WebhookService) {
        self.inner.caller.answer_by(program);
    }

    /// Allows a named user something.
    pub(crate) fn allow(&self, grant: Grant) {
        self.inner.lock().grants.insert(grant);
    }

    /// Returns the user that a user acts as.
    ///
    /// # Errors
    /// 403 where rights don't allow it.
    pub(crate) fn impersonate(
        &self,
        user: &User,
        wanted: &WantedUser,
        asked: &Attributes,
    ) -> Result<User, Status> {
        authz::impersonate(&mut self.inner.lock(), user, wanted, asked)
    }

    /// Returns the tokens of users.
    pub(crate) fn tokens(&self) -> Arc<Tokens> {
        self.inner.lock().tokens.clone()
    }

    /// Finds the service account of a token that this server has given out.
    pub(crate) fn account_of(&self, token: &str) -> Option<User> {
        service_tokens::account_of(&self.inner.lock(), token)
    }

    /// Returns the clock.
    pub(crate) fn clock(&self) -> Clock {
        self.inner.lock().clock.clone()
    }

    /// Answers one request; waits only on tokio time.
    pub(crate) async fn serve(&self, request: ApiRequest) -> Reply {
        let info = request.info();
        self.serve_as(request, &info, None).await
    }

    /// Answers one request, reads as a view has them.
    pub(crate) async fn serve_as(
        &self,
        request: ApiRequest,
        info: &RequestInfo,
        view: Option<View>,
    ) -> Reply {
        let asked = Attributes::of(&request.method, info);
        let mut class = None;
        let mut session = Session::default();
        let mut patience = Patience::Fresh;
        let over = Instant::now() + PATIENCE;
        let outcome = loop {
            let (outcome, ticket, reached) = {
                let mut state = self.inner.lock();
                state.session = std::mem::take(&mut session);
                class = class.or_else(|| self.inner.class(&state, &request.user, &asked));
                let outcome = handle(&mut state, &request, (info, &asked), patience, view);
                session = std::mem::take(&mut state.session);
                if state.unsettled || state.store.owners.has_suspects() {
                    self.inner.unsettled.notify_one();
                }
                let waits = matches!(outcome, Ok(Outcome::Wait(_)));
                (outcome, self.inner.ticket(&state), waits.then(|| state.store.reached()))
            };
            let calls = session.take_wanted();
            if !calls.is_empty() {
                let caller = &self.inner.caller;
                let answers = calls.into_iter().map(|call| async move {
                    let answer = caller.call(&call).await;
                    (call, answer)
                });
                session.answered(futures::future::join_all(answers).await);
                continue;
            }
            let Ok(Outcome::Wait(version)) = outcome else { break durable(ticket).await.and(outcome) };
            if view.is_some() {
                // A replica does not announce its progress, so it is polled.
                sleep(REPLICA_PAUSE).await;
            } else if let Some(mut reached) = reached {
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
                let mut response = answer::typed(200, media, Bytes::new());
                answer::name_class(&mut response, class);
                let (parts, _) = response.into_parts();
                return Reply::Stream { parts, events };
            }
            Ok(Outcome::Full(mut response)) => {
                answer::warn(&mut response, session.warnings());
                response
            }
            Ok(Outcome::Wait(version)) => Status::version_too_large(version, version).to_response(),
            Err(status) => {
                let mut response = status.to_response();
                answer::warn(&mut response, &status.warnings);
                answer::warn(&mut response, session.warnings());
                response
            }
        };
        let mut response = answer::finish(response, &request.headers, &request.uri);
        answer::name_class(&mut response, class);
        Reply::Full(response)
    }
}

/// Waits until everything an answer may show is on disk.
async fn durable(ticket: Option<Ticket>) -> Result<(), Status> {
    let Some(ticket) = ticket else { return Ok(()) };
    match ticket.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(Status::internal_error(&error.to_string())),
        Err(_) => Err(Status::internal_error("the server stops")),
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

/// Empties namespaces and collects garbage; gives the number of objects touched.
fn clean_up(state: &mut State) -> usize {
    namespaces::step(state) + gc::collect(state)
}

fn run_controllers(state: &mut State, due: crd::Due) {
    loop {
        state.unsettled = false;
        let touched =
            crd::step(state, due) + authz::step(state) + if state.cleans_up { clean_up(state) } else { 0 };
        if touched == 0 && !(state.cleans_up && state.store.owners.has_suspects()) {
            state.unsettled = false;
            return;
        }
    }
}
