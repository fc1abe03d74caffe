//! The front: tokens, faults, then the core; in memory it is a tower service.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response, Uri, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use kube::client::ConfigExt as _;
use kube::config::AuthInfo;
use tokio_util::sync::CancellationToken;
use tower::{BoxError, Service, ServiceBuilder};
use tower_http::decompression::DecompressionLayer;

use crate::authz::{Attributes, WantedUser};
use crate::core::{ApiRequest, Core, Reply, Restart};
use crate::faults::{
    Armed, Fault, Faults, FaultyBody, Firing, Graft, Interrupted, Recorded, Requests, Tap, Verdict,
    distort_list,
};
use crate::identity::User;
use crate::limits;
use crate::route::RequestInfo;
use crate::status::Status;
use crate::store::Forgotten;
use crate::tokens::Tokens;

/// The address a client in memory believes it talks to.
pub(crate) const IN_MEMORY_URL: &str = "https://watchkeeper.in-memory";

/// Everything between a transport and the core; both transports share it.
#[derive(Debug)]
pub(crate) struct Front {
    core: Core,
    faults: Faults,
    requests: Requests,
    tokens: Arc<Tokens>,
    epoch: Mutex<ServingState>,
    partition: Mutex<Option<Armed>>,
}

/// The time between two restarts; its token is cancelled at its end.
#[derive(Debug)]
enum ServingState {
    Serving(CancellationToken),
    Stopped,
}

/// Whose requests pass: a client's under the rules, the test kit's past them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    Ruled,
    Unruled,
}

impl Front {
    pub(crate) fn new(core: Core) -> Self {
        let tokens = core.tokens();
        Self {
            core,
            faults: Faults::default(),
            requests: Requests::default(),
            tokens,
            epoch: Mutex::new(ServingState::Serving(CancellationToken::new())),
            partition: Mutex::new(None),
        }
    }

    /// Holds everything back, in both directions, until [`heal`](Front::heal).
    pub(crate) fn partition(&self) {
        let mut partition = lock(&self.partition);
        if partition.is_none() {
            *partition = Some(self.faults.on_everything().then(Fault::Silence));
        }
    }

    /// Releases everything.
    pub(crate) fn heal(&self) {
        if let Some(armed) = lock(&self.partition).take() {
            armed.disarm();
        }
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    pub(crate) fn faults(&self) -> &Faults {
        &self.faults
    }

    pub(crate) fn requests(&self) -> &Requests {
        &self.requests
    }

    pub(crate) fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// Returns the token that is cancelled when all connections are to break.
    pub(crate) fn epoch(&self) -> Result<CancellationToken, Interrupted> {
        match &*lock(&self.epoch) {
            ServingState::Serving(token) => Ok(token.clone()),
            ServingState::Stopped => Err(Interrupted::Cut),
        }
    }

    /// Breaks every connection, stream and request, restarts the core, then serves again.
    ///
    /// # Errors
    /// The version to go back to has expired; nothing has changed then.
    pub(crate) fn restart(&self, what: Restart) -> Result<(), Forgotten> {
        self.core.can_restart(what)?;
        self.stop();
        let (script, request) = (format!("server.restart(Restart::{what:?});"), "everything".to_owned());
        self.faults.note(Firing { script, request, version: self.core.resource_version() });
        let restarted = self.core.restart(what);
        *lock(&self.epoch) = ServingState::Serving(CancellationToken::new());
        restarted
    }

    /// Breaks everything and serves no more.
    pub(crate) fn stop(&self) {
        if let ServingState::Serving(token) =
            std::mem::replace(&mut *lock(&self.epoch), ServingState::Stopped)
        {
            token.cancel();
        }
    }

    /// Answers one request, or breaks its connection.
    pub(crate) async fn handle<B>(
        &self,
        request: Request<B>,
        passage: Passage,
    ) -> Result<Response<FaultyBody>, Interrupted>
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        let epoch = self.epoch()?;
        let answer = self.answer(request, passage, epoch.clone());
        tokio::select! {
            biased;
            // Most answers are ready at once.
            answer = answer => if epoch.is_cancelled() { Err(Interrupted::Cut) } else { answer },
            () = epoch.cancelled() => Err(Interrupted::Cut),
        }
    }

    async fn answer<B>(
        &self,
        request: Request<B>,
        passage: Passage,
        epoch: CancellationToken,
    ) -> Result<Response<FaultyBody>, Interrupted>
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        let (parts, body) = request.into_parts();
        let body = collect(body).await?;
        let http::request::Parts { method, uri, headers, .. } = parts;
        let mut request = ApiRequest { method, uri, headers, body: Bytes::new(), user: User::Anonymous };
        let info = Arc::new(request.info());
        let allowed = self.user(&request, &info).and_then(|user| {
            request.user = user;
            request.body = body?;
            Ok(())
        });
        let recorded = (passage == Passage::Ruled).then(|| self.record(&request, &info));
        match (allowed, recorded) {
            (Ok(()), Some(recorded)) => self.serve_ruled(request, info, recorded, epoch).await,
            (Ok(()), None) => Ok(self.serve_unruled(request, epoch).await),
            (Err(refusal), recorded) => {
                if let Some(recorded) = recorded {
                    recorded.answered(refusal.code);
                }
                Ok(refusal.to_response().map(FaultyBody::whole))
            }
        }
    }

    /// Finds the user a request is to be served as.
    fn user(&self, request: &ApiRequest, info: &RequestInfo) -> Result<User, Status> {
        let user = self.tokens.user(&request.headers, |token| self.core.account_of(token))?;
        match WantedUser::of(&request.headers)? {
            None => Ok(user),
            Some(wanted) => self.core.impersonate(&user, &wanted, &Attributes::of(&request.method, info)),
        }
    }

    async fn serve_unruled(&self, request: ApiRequest, epoch: CancellationToken) -> Response<FaultyBody> {
        match self.core.serve(request).await {
            Reply::Full(response) => response.map(FaultyBody::whole),
            Reply::Stream { parts, events } => {
                Response::from_parts(parts, FaultyBody::unruled(events, epoch))
            }
        }
    }

    async fn serve_ruled(
        &self,
        request: ApiRequest,
        info: Arc<RequestInfo>,
        recorded: Recorded,
        epoch: CancellationToken,
    ) -> Result<Response<FaultyBody>, Interrupted> {
        let user_agent = crate::faults::text(&request.headers, header::USER_AGENT);
        let judged = self.faults.armed();
        let grafts = match self.faults.judge(&info, &user_agent, || self.core.resource_version()) {
            Verdict::Serve(grafts) => grafts,
            Verdict::Drop(how) => return Err(how),
            Verdict::Reply(response) => {
                recorded.answered(response.status().as_u16());
                return Ok(response.map(FaultyBody::whole));
            }
            Verdict::ServeThenDrop => {
                drop(self.core.serve(request).await);
                return Err(Interrupted::Cut);
            }
            Verdict::ServeThenHold(healed, time) => {
                let (reply, mut plain) = (self.core.serve(request).await, Vec::new());
                match time {
                    Some(time) => drop(tokio::time::timeout(time, healed.cancelled()).await),
                    None => healed.cancelled().await,
                }
                let asked = (info, user_agent, judged);
                let response = self.dress(reply, asked, &mut plain, epoch);
                recorded.answered(response.status().as_u16());
                return Ok(response);
            }
            Verdict::Hold(healed) => {
                healed.cancelled().await;
                Vec::new()
            }
        };
        let (mut grafts, mut view) = (grafts, None);
        for graft in &grafts {
            match graft {
                Graft::Bump => self.core.bump(&info),
                Graft::View(_, seen) => view = Some(*seen),
                Graft::Stop(_) | Graft::Edit(_) | Graft::Pace(_) | Graft::Endless(_) => {}
            }
        }
        let reply = self.core.serve_as(request, &info, view).await;
        let response = self.dress(reply, (info, user_agent, judged), &mut grafts, epoch);
        recorded.answered(response.status().as_u16());
        Ok(response)
    }

    /// Applies the rules for an answer to its body.
    fn dress(
        &self,
        reply: Reply,
        (info, user_agent, judged): (Arc<RequestInfo>, String, u64),
        grafts: &mut Vec<Graft>,
        epoch: CancellationToken,
    ) -> Response<FaultyBody> {
        let version = if grafts.is_empty() && matches!(reply, Reply::Full(_)) {
            // No fault would be reported.
            0
        } else {
            self.core.resource_version()
        };
        match reply {
            Reply::Full(response) if grafts.is_empty() => response.map(FaultyBody::whole),
            Reply::Full(response) => {
                let (parts, body) = response.into_parts();
                let (body, fired) = distort_list(body, grafts);
                for script in fired {
                    self.faults.note(Firing::at(script, &info, version));
                }
                grafts.retain(|graft| matches!(graft, Graft::Stop(_) | Graft::Pace(_)));
                let body = if grafts.is_empty() {
                    FaultyBody::whole(body)
                } else {
                    let tap =
                        Tap::new(Arc::unwrap_or_clone(info), user_agent, version, std::mem::take(grafts));
                    FaultyBody::planted(body, &self.faults, tap, epoch)
                };
                Response::from_parts(parts, body)
            }
            Reply::Stream { parts, mut events } => {
                let tap = Tap::new(Arc::unwrap_or_clone(info), user_agent, version, std::mem::take(grafts));
                events.look_through(tap.lens());
                Response::from_parts(parts, FaultyBody::events(events, &self.faults, tap, judged, epoch))
            }
        }
    }

    fn record(&self, request: &ApiRequest, info: &Arc<RequestInfo>) -> Recorded {
        self.requests.arrived(&request.method, &request.uri, &request.headers, info, request.user.name())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads a body up to the limit; a sender that goes away ends the request.
async fn collect<B>(body: B) -> Result<Result<Bytes, Status>, Interrupted>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    if body.is_end_stream() {
        return Ok(Ok(Bytes::new()));
    }
    match Limited::new(body, limits::BODY).collect().await {
        Ok(collected) => Ok(Ok(collected.to_bytes())),
        Err(error) if error.is::<LengthLimitError>() => Ok(Err(Status::too_large(limits::BODY))),
        Err(_) => Err(Interrupted::Cut),
    }
}

/// The server as a tower service, for clients of the same process.
#[derive(Clone, Debug)]
pub(crate) struct LocalService {
    front: Arc<Front>,
    passage: Passage,
}

impl LocalService {
    pub(crate) fn new(front: Arc<Front>, passage: Passage) -> Self {
        Self { front, passage }
    }

    /// Builds a client of this service.
    pub(crate) fn client(self, token: Option<&str>, namespace: &str) -> kube::Client {
        client_over(self, token, namespace)
    }
}

/// Builds a client with the layers that a client over HTTP has: base address, gzip, token if any.
pub fn client_over<S, B>(service: S, token: Option<&str>, namespace: &str) -> kube::Client
where
    S: Service<Request<kube::client::Body>, Response = Response<B>, Error = Interrupted>
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send + 'static,
    B: http_body::Body<Data = Bytes, Error = Interrupted> + Send + 'static,
{
    let mut config = kube::Config::new(Uri::from_static(IN_MEMORY_URL));
    config.auth_info = token.map(auth_info).unwrap_or_default();
    let auth = config.auth_layer().expect("a plain token always makes a header");
    let extra = config.extra_headers_layer().expect("no extra headers are set");
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .layer(DecompressionLayer::new())
        .option_layer(auth)
        .layer(extra)
        .map_err(BoxError::from)
        .service(service);
    kube::Client::new(service, namespace)
}

/// Builds the credentials of a token.
pub(crate) fn auth_info(token: &str) -> AuthInfo {
    let value = serde_json::json!({ "token": token });
    serde_json::from_value(value).expect("a token alone is a user of a kubeconfig")
}

impl Service<Request<kube::client::Body>> for LocalService {
    type Response = Response<FaultyBody>;
    type Error = Interrupted;
    type Future = BoxFuture<'static, Result<Response<FaultyBody>, Interrupted>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Interrupted>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let Self { front, passage } = self.clone();
        Box::pin(async move {
            let is_head = request.method() == Method::HEAD;
            let response = front.handle(request, passage).await?;
            // Over HTTP the transport leaves it out.
            Ok(if is_head { response.map(|_| FaultyBody::whole(Bytes::new())) } else { response })
        })
    }
}
