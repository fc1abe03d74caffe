//! A fake of an HTTP API outside the cluster, which the operator under trial calls.

use std::fmt;
use std::future::pending;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use tokio::time::sleep;
use tower::Service;
use watchkeeper_apiserver::inside::RequestInfo;

use crate::harness::{Arrival, Harness};
use crate::life::Life;
use crate::records::{NAME, refused};
use crate::timeline::Actor;
use crate::trouble::{AWAY, Moment, SLOW, Trouble};

/// How late a request is carried out whose connection broke first.
const LATE: Duration = Duration::from_secs(3);

/// An HTTP API outside the cluster, such as a registrar's or a cloud's, as one life of the operator calls it.
///
/// It keeps records of JSON by path:
///
/// | Request | Does |
/// |---|---|
/// | `POST /domains` | keeps the body under a path that it chooses, and answers 201 with the body and an `id` |
/// | `PUT /domains/a` | keeps the body there; 201 if nothing was there, else 200 |
/// | `GET /domains/a` | answers the record with its `id`, or 404 |
/// | `GET /domains` | answers the list of the records below the path |
/// | `DELETE /domains/a` | removes it: 204, or 404 |
///
/// A body that is not a JSON object is answered with 400. At each of these requests the troubles strike that may strike at a
/// request to the API server: it gets lost, its answer does, it is slow or carried out late, it is refused with 429, 500 or
/// 503, or the operator is killed. At the end the records must be those of the run without trouble; and no record may be
/// deleted more often on the way than in the run without trouble. If several records under chosen paths
/// are equal, all but one may be deleted.
///
/// It is a tower service, and has no address: paused time does not wait for a socket. Let your client take a service, or a
/// trait of your own.
///
/// ```no_run
/// # use bytes::Bytes;
/// # use http::Request;
/// # use watchkeeper_trials::{External, Trials};
/// # async fn run_the_operator(client: kube::Client, registrar: External) {}
/// Trials::of_calling(run_the_operator).check();
///
/// async fn register(registrar: &External, domain: &str) -> Result<(), Box<dyn std::error::Error>> {
///     let request = Request::put(format!("/domains/{domain}")).body(Bytes::from_static(b"{}"))?;
///     let answer = registrar.send(request).await?;
///     match answer.status().is_success() {
///         true => Ok(()),
///         false => Err(answer.status().to_string().into()),
///     }
/// }
/// ```
#[derive(Clone)]
pub struct External {
    harness: Harness,
    life: Life,
}

/// The connection to an [`External`] API broke: the request may have been carried out, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionBroke;

impl fmt::Display for ConnectionBroke {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the connection broke")
    }
}

impl std::error::Error for ConnectionBroke {}

impl fmt::Debug for External {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("External").field("life", &self.life).finish_non_exhaustive()
    }
}

impl External {
    pub(crate) fn new(harness: &Harness, life: Life) -> Self {
        Self { harness: harness.clone(), life }
    }

    /// Sends a request, under the trouble that is planned for it. The host in its address does not matter.
    ///
    /// # Errors
    ///
    /// The connection broke.
    pub async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ConnectionBroke> {
        let (parts, body) = request.into_parts();
        let (method, path) = (parts.method, parts.uri.path().to_owned());
        let info = RequestInfo::of(&method, &format!("/{NAME}{path}").parse().unwrap_or_default());
        let arrival = self.harness.arrive(self.life, &method, &info, &body);
        let Some(Arrival { name, trouble, in_flight, .. }) = arrival else { return pending().await };
        let call = ExternalCall { external: self.clone(), method, path, body, name };
        let answer = call.under(trouble).await;
        drop(in_flight);
        if self.harness.is_dead(self.life) {
            return pending().await;
        }
        answer
    }
}

impl Service<Request<Bytes>> for External {
    type Response = Response<Bytes>;
    type Error = ConnectionBroke;
    type Future = BoxFuture<'static, Result<Response<Bytes>, ConnectionBroke>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectionBroke>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let external = self.clone();
        Box::pin(async move { external.send(request).await })
    }
}

/// One request under way.
#[derive(Clone)]
struct ExternalCall {
    external: External,
    method: Method,
    path: String,
    body: Bytes,
    name: String,
}

impl ExternalCall {
    async fn under(&self, trouble: Option<(usize, Trouble)>) -> Result<Response<Bytes>, ConnectionBroke> {
        let harness = &self.external.harness;
        let Some((at, trouble)) = trouble else { return Ok(self.serve()) };
        harness.tell(Actor::Trouble, || format!("{}: {}", self.name, trouble.tell()));
        match trouble {
            Trouble::Lost => Err(self.broken()),
            Trouble::ReplyLost => {
                self.serve_unheard();
                Err(self.broken())
            }
            Trouble::DoneLate => {
                let (late, in_flight) = (self.clone(), harness.clone().fly(LATE));
                tokio::spawn(async move {
                    sleep(LATE).await;
                    late.serve_unheard();
                    drop(in_flight);
                });
                Err(self.broken())
            }
            Trouble::Slow => {
                harness.wrong_for(SLOW);
                let answer = self.serve();
                sleep(SLOW).await;
                Ok(answer)
            }
            Trouble::Refused(code) => {
                let code = StatusCode::from_u16(code).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
                harness.disturb(|| format!("{}: {}", self.name, code.as_u16()));
                self.tell(&format!("{}", code.as_u16()));
                Ok(refused(code, "a trial refuses this request"))
            }
            Trouble::Killed(moment) | Trouble::Down(moment) => {
                if moment == Moment::After {
                    self.serve_unheard();
                }
                harness.kill(self.external.life.of, matches!(trouble, Trouble::Down(_)).then_some(AWAY));
                Err(ConnectionBroke)
            }
            _ => {
                harness.inert(at);
                Ok(self.serve())
            }
        }
    }

    fn tell(&self, answer: &str) {
        let External { harness, life } = &self.external;
        harness.tell(life.of.actor(), || format!("{} → {answer}", self.name));
    }

    fn broken(&self) -> ConnectionBroke {
        self.external.harness.disturb(|| format!("{}: the connection broke", self.name));
        self.tell("no answer: the connection broke");
        ConnectionBroke
    }

    /// Carries it out.
    fn serve(&self) -> Response<Bytes> {
        let answer = self.serve_unheard();
        let failed = !answer.status().is_success() && answer.status() != StatusCode::NOT_FOUND;
        if failed {
            self.external.harness.disturb(|| format!("{} → {}", self.name, answer.status().as_u16()));
        }
        self.tell(answer.status().as_str());
        answer
    }

    fn serve_unheard(&self) -> Response<Bytes> {
        let mut state = self.external.harness.state();
        let (answer, changed) = state.external.serve(&self.method, &self.path, &self.body);
        state.changes += usize::from(changed);
        drop(state);
        if changed {
            self.external.harness.disturb(|| format!("{} changed something", self.name));
        }
        answer
    }
}
