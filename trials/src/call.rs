//! One request on its way from the operator to the server, and the trouble that is planned for it.

use std::future::pending;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tokio::time::{Instant, sleep};
use tower::Service;
use watchkeeper_apiserver::Verb;
use watchkeeper_apiserver::inside::{self, AnswerBody, Interrupted, RequestInfo, client_over, object};

use crate::answers::{Exchange, read};
use crate::body::{HarnessBody, Heard};
use crate::event;
use crate::foreign;
use crate::harness::{Denied, Harness};
use crate::life::Life;
use crate::replace;
use crate::timeline::Actor;
use crate::trouble::{AWAY, Event, Moment, Replacement, RequestTargets, SLOW, Trouble};

/// How late a request is carried out whose connection broke first.
const LATE: Duration = Duration::from_secs(3);

/// Makes the client of one life of the operator.
pub(crate) fn client(harness: &Harness, life: Life) -> kube::Client {
    let service = HarnessService { harness: harness.clone(), life };
    client_over(service, Some("admin-token"), inside::namespace(harness.server.kit()))
}

/// The harness as a tower service, for one life of the operator.
#[derive(Clone, Debug)]
struct HarnessService {
    harness: Harness,
    life: Life,
}

impl Service<Request<kube::client::Body>> for HarnessService {
    type Response = Response<HarnessBody>;
    type Error = Interrupted;
    type Future = BoxFuture<'static, Result<Response<HarnessBody>, Interrupted>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Interrupted>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        Box::pin(carry(self.harness.clone(), self.life, request))
    }
}

/// Carries a request to the server, under the trouble that is planned for it.
async fn carry(
    harness: Harness,
    life: Life,
    request: Request<kube::client::Body>,
) -> Result<Response<HarnessBody>, Interrupted> {
    let info = RequestInfo::of(request.method(), request.uri());
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Interrupted::Cut)?.to_bytes();
    let arrival = harness.arrive(life, &parts.method, &info, &body);
    let Some(arrival) = arrival else { return pending().await };
    let (name, at, hears) = (arrival.name, arrival.at, life.of.actor());
    let mut call = Call { harness, life, info, name, at, hears, parts, body };
    call.take_a_page();
    let answer = call.under(arrival.trouble, arrival.denied).await;
    drop(arrival.in_flight);
    // A dead operator never gets an answer.
    if call.harness.is_dead(life) {
        return pending().await;
    }
    answer
}

/// One request under way.
struct Call {
    harness: Harness,
    life: Life,
    info: RequestInfo,
    name: String,
    /// Its place among those that were sent.
    at: usize,
    /// Actor tells of the answer: the operator, or nobody but the server.
    hears: Actor,
    parts: http::request::Parts,
    body: Bytes,
}

impl Call {
    async fn under(
        &self,
        trouble: Option<(usize, Trouble)>,
        denied: Option<Denied>,
    ) -> Result<Response<HarnessBody>, Interrupted> {
        if let Some(Denied { resource, .. }) = denied {
            return match resource {
                Some(_) => Ok(self.refuse(403)),
                None => Err(self.broken("the server is out of reach")),
            };
        }
        if self.page_expired() {
            return Ok(self.refuse(410));
        }
        replace::both_write(&self.harness, self.life.of, &self.info, &self.name, &self.body);
        let Some((at, trouble)) = trouble else { return self.serve_and_look().await };
        self.harness.tell(Actor::Trouble, || format!("{}: {}", self.name, trouble.tell()));
        match trouble {
            Trouble::Lost => Err(self.broken("no answer: the connection broke")),
            Trouble::ReplyLost => {
                drop(self.again().serve().await);
                Err(self.broken("no answer: the connection broke"))
            }
            Trouble::DoneLate => {
                self.arrives_after(LATE);
                Err(self.broken("no answer: the connection broke"))
            }
            Trouble::Frozen => {
                self.arrives_after(AWAY);
                self.harness.kill(self.life.of, None);
                Err(Interrupted::Cut)
            }
            Trouble::Slow => {
                self.harness.wrong_for(SLOW);
                let answer = self.serve().await;
                sleep(SLOW).await;
                answer
            }
            Trouble::Refused(code) => Ok(self.refuse(code)),
            Trouble::Killed(moment) | Trouble::Down(moment) => {
                if moment == Moment::After {
                    drop(self.again().serve().await);
                }
                self.harness.kill(self.life.of, matches!(trouble, Trouble::Down(_)).then_some(AWAY));
                Err(Interrupted::Cut)
            }
            Trouble::Stranger(change, whose, moment) => {
                if moment == Moment::Before
                    && !foreign::act(&self.harness, change, whose, &self.hand(None)).await
                {
                    self.harness.inert(at);
                }
                let answer = self.serve_read().await?;
                if moment == Moment::After {
                    let hand = self.hand(answer.1.as_ref());
                    if !foreign::act(&self.harness, change, whose, &hand).await {
                        self.harness.inert(at);
                    }
                }
                Ok(answer.0)
            }
            Trouble::Replaced(how) => self.replaced(how).await,
            Trouble::Webhooks(how) => {
                self.harness.trouble_webhooks(how);
                self.serve().await
            }
            Trouble::Server(event) => {
                if !self.event(event).await {
                    self.harness.inert(at);
                }
                match event {
                    Event::Partitioned => Err(self.broken("the server is out of reach")),
                    Event::RightsTaken => Ok(self.refuse(403)),
                    _ => self.serve().await,
                }
            }
        }
    }

    /// Lets the other version take over.
    async fn replaced(&self, how: Replacement) -> Result<Response<HarnessBody>, Interrupted> {
        if how == Replacement::Killed(Moment::After) {
            drop(self.again().serve().await);
        }
        replace::at_request(&self.harness, self.life.of, how).await;
        if how == Replacement::Rolling { self.serve().await } else { Err(Interrupted::Cut) }
    }

    /// Carries it out; the baseline run records what somebody else could have touched.
    async fn serve_and_look(&self) -> Result<Response<HarnessBody>, Interrupted> {
        let looks = self.harness.baseline && self.info.verb.is_some_and(|verb| verb != Verb::Watch);
        if !looks {
            return self.serve().await;
        }
        let custom = event::definition(&self.harness, &self.info).is_some();
        let before = foreign::targets(&self.harness, &self.hand(None));
        let calls = self.harness.state().webhook_calls;
        let (response, answer) = self.serve_read().await?;
        let hooked = self.harness.state().webhook_calls > calls;
        let after = foreign::targets(&self.harness, &self.hand(answer.as_ref()));
        if let Some(sent) = self.harness.state().sent.get_mut(self.at) {
            sent.there = RequestTargets { before, after, custom, hooked };
        }
        Ok(response)
    }

    /// Asks for a page of one, where lists are to come in pages.
    fn take_a_page(&mut self) {
        let now = Instant::now();
        let small = self.harness.state().paging.as_ref().is_some_and(|paging| now < paging.until);
        if small && self.info.verb == Some(Verb::List) {
            self.parts.uri = event::with_small_pages(&self.parts.uri);
        }
    }

    /// Returns whether this asks for a further page, for which it is too late.
    fn page_expired(&self) -> bool {
        let goes_on = self.info.verb == Some(Verb::List)
            && self.parts.uri.query().is_some_and(|query| query.contains("continue="));
        let mut state = self.harness.state();
        let paging = state.paging.as_mut().filter(|paging| goes_on && Instant::now() < paging.until);
        paging.is_some_and(|paging| paging.expired.insert(self.info.resource.clone()))
    }

    /// Lets the request be carried out later, on its own.
    fn arrives_after(&self, time: Duration) {
        let (late, in_flight) = (self.again(), self.harness.clone().fly(time));
        tokio::spawn(async move {
            sleep(time).await;
            drop(late.serve().await);
            drop(in_flight);
        });
    }

    /// The same request, carried out unheard.
    fn again(&self) -> Self {
        let mut parts = Request::new(()).into_parts().0;
        parts.method = self.parts.method.clone();
        parts.uri = self.parts.uri.clone();
        parts.headers = self.parts.headers.clone();
        Self {
            harness: self.harness.clone(),
            life: self.life,
            info: self.info.clone(),
            name: self.name.clone(),
            at: self.at,
            hears: Actor::Server,
            parts,
            body: self.body.clone(),
        }
    }

    /// What the request is about, as far as it says so itself or its answer does.
    fn hand(&self, answer: Option<&Value>) -> foreign::Subject {
        let body = read(&self.body).unwrap_or_default();
        let named = |value: &Value| {
            let name = object::name(value);
            (!name.is_empty()).then(|| name.to_owned())
        };
        let name = self.info.name.clone().or_else(|| answer.and_then(named)).or_else(|| named(&body));
        foreign::Subject { info: self.info.clone(), name, body }
    }

    fn broken(&self, how: &str) -> Interrupted {
        self.harness.disturb(|| format!("{}: {how}", self.name));
        self.harness.tell(self.life.of.actor(), || format!("{} → {how}", self.name));
        Interrupted::Cut
    }

    fn refuse(&self, code: u16) -> Response<HarnessBody> {
        self.harness.disturb(|| format!("{}: {code}", self.name));
        self.harness.tell(self.life.of.actor(), || format!("{} → {code}", self.name));
        let message = format!("a trial refuses this request with {code}");
        inside::refusal(code, &self.info, message).map(HarnessBody::whole)
    }

    async fn serve(&self) -> Result<Response<HarnessBody>, Interrupted> {
        Ok(self.serve_read().await?.0)
    }

    /// Carries it out; gives the answer's object as well.
    async fn serve_read(&self) -> Result<(Response<HarnessBody>, Option<Value>), Interrupted> {
        let writes = self.info.verb.is_some_and(Verb::writes);
        let server = &self.harness.server;
        let before = writes.then(|| inside::peek(server, &self.info)).flatten();
        let version = server.resource_version();
        let mut request = Request::new(http_body_util::Full::new(self.body.clone()));
        *request.method_mut() = self.parts.method.clone();
        *request.uri_mut() = self.parts.uri.clone();
        *request.headers_mut() = self.parts.headers.clone();
        let handled = inside::handle(server, request).await;
        let response = handled.inspect_err(|_| {
            self.broken("the connection broke");
        })?;
        if self.info.verb == Some(Verb::Watch) && response.status().is_success() {
            self.harness.tell(self.hears, || match self.info.version_asked.as_str() {
                "" | "0" => self.name.clone(),
                version => format!("{} from version {version}", self.name),
            });
            let heard =
                Heard { harness: self.harness.clone(), life: self.life, of: self.info.resource.clone() };
            return Ok((response.map(|body| HarnessBody { body, heard: Some(heard) }), None));
        }
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.map_err(|_| Interrupted::Cut)?.to_bytes();
        let reads = writes || self.harness.state().tell;
        let value = reads.then(|| serde_json::from_slice::<Value>(&bytes).ok()).flatten();
        let exchange = Exchange {
            harness: &self.harness,
            info: &self.info,
            name: &self.name,
            body: &self.body,
            hears: self.hears,
            // No other writes an empty first parameter.
            of_kube: self.parts.uri.query().is_some_and(|query| query.starts_with('&')),
        };
        exchange.note(parts.status.as_u16(), version, before.as_ref(), value.as_ref());
        let response = Response::from_parts(parts, HarnessBody::whole(AnswerBody::whole(bytes)));
        Ok((response, value))
    }

    /// Lets something happen to the server; false where there is nothing to happen.
    async fn event(&self, event: Event) -> bool {
        event::happen(&self.harness, &self.info, event).await
    }
}
