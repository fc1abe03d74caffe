//! Who may see what: the API server is asked, by the token of a request.

use std::{
    fmt,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::{HeaderMap, StatusCode, header};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
    authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, Client, api::PostParams};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until, timeout},
};

use super::desk::{Desk, Question, Turn, Verdict};
use crate::{chain::one_line, plain::plain};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long somebody may wait for a turn.
const QUEUED: Duration = Duration::from_secs(4);

/// Asks the API server who may see what; clones remember the same.
#[derive(Clone)]
pub(super) struct Reviewer {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    desk: Mutex<Desk>,
    /// Somebody's turn may have come.
    moved: Notify,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) why: String,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, why: impl Into<String>) -> Self {
        Self { status, why: why.into() }
    }
}

impl Reviewer {
    /// Sends reviews through a client without a gate.
    pub(super) fn new(client: Client) -> Self {
        let desk = Mutex::new(Desk::new(Instant::now()));
        Self { shared: Arc::new(Shared { client, desk, moved: Notify::new() }) }
    }

    /// Checks whether the sender of a request may `get` a path.
    pub(super) async fn check(
        &self,
        headers: &HeaderMap,
        path: &str,
        peer: Option<SocketAddr>,
    ) -> Result<(), Refusal> {
        let Some(token) = token(headers) else {
            let why = "a token is needed: `Authorization: Bearer ..` of a user who may get this path";
            return Err(Refusal::new(StatusCode::UNAUTHORIZED, why));
        };
        let question = Question { token: token.to_owned(), path: path.to_owned() };
        match self.verdict(&question, peer).await? {
            Verdict::Allowed => Ok(()),
            Verdict::Unknown => {
                Err(Refusal::new(StatusCode::UNAUTHORIZED, "the API server does not know the token"))
            }
            Verdict::Forbidden(user) => {
                let user = plain(&user);
                let why = format!(
                    "{user} may not get {path}: allow it by `nonResourceURLs: [{path}]` with the verb `get` in a \
                     ClusterRole, and bind that"
                );
                Err(Refusal::new(StatusCode::FORBIDDEN, why))
            }
        }
    }

    /// Returns what is remembered, or asks once it is this one's turn.
    async fn verdict(&self, question: &Question, peer: Option<SocketAddr>) -> Result<Verdict, Refusal> {
        if let Some(verdict) = self.desk().remembered(question, Instant::now()) {
            return Ok(verdict);
        }
        let id = self.desk().enter(question, peer);
        let _place = Place { shared: &self.shared, id };
        let unavailable = |why| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, why);
        let busy = "too many tokens are being reviewed: try again";
        let turn = timeout(QUEUED, self.turn(id, question)).await.map_err(|_| unavailable(busy))?;
        if let Some(verdict) = turn {
            return Ok(verdict);
        }
        match timeout(PATIENCE, review(&self.shared.client, question)).await {
            Ok(Ok(verdict)) => {
                self.desk().remember(question, verdict.clone(), Instant::now());
                Ok(verdict)
            }
            Ok(Err(error)) => {
                tracing::warn!(error = one_line(&error), "a token can't be reviewed");
                Err(unavailable("the API server does not review the token: see the log"))
            }
            Err(_) => Err(unavailable("the API server did not review the token in time")),
        }
    }

    /// Waits for a turn; returns the answer if that has come meanwhile.
    async fn turn(&self, id: u64, question: &Question) -> Option<Verdict> {
        loop {
            let moved = self.shared.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            let turn = self.desk().turn(id, question, Instant::now());
            match turn {
                Turn::Answered(verdict) => return Some(verdict),
                Turn::Asks => {
                    self.shared.moved.notify_waiters();
                    return None;
                }
                Turn::Waits(None) => moved.await,
                Turn::Waits(Some(until)) => tokio::select! {
                    () = moved => {}
                    () = sleep_until(until) => {}
                },
            }
        }
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.shared.desk()
    }
}

impl Shared {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in the queue, or at the desk; given up when it is dropped.
struct Place<'a> {
    shared: &'a Shared,
    id: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.shared.desk().leave(self.id);
        self.shared.moved.notify_waiters();
    }
}

fn token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

async fn review(client: &Client, question: &Question) -> Result<Verdict, kube::Error> {
    let spec = TokenReviewSpec { token: question.token.clone(), ..TokenReviewSpec::default() };
    let review = TokenReview { spec, ..TokenReview::default() };
    let tokens = Api::<TokenReview>::all(client.clone());
    let status = tokens.create(&PostParams::default(), &review).await?.status.unwrap_or_default();
    let user = status.user.filter(|_| status.authenticated == Some(true));
    let Some(user) = user else { return Ok(Verdict::Unknown) };
    let name = user.username.clone().unwrap_or_default();
    let review =
        SubjectAccessReview { spec: may_get(user, &question.path), ..SubjectAccessReview::default() };
    let accesses = Api::<SubjectAccessReview>::all(client.clone());
    let status = accesses.create(&PostParams::default(), &review).await?.status.unwrap_or_default();
    let allowed = status.allowed && status.denied != Some(true);
    Ok(if allowed { Verdict::Allowed } else { Verdict::Forbidden(name) })
}

fn may_get(user: UserInfo, path: &str) -> SubjectAccessReviewSpec {
    let what = NonResourceAttributes { path: Some(path.to_owned()), verb: Some("get".to_owned()) };
    SubjectAccessReviewSpec {
        user: user.username,
        uid: user.uid,
        groups: user.groups,
        extra: user.extra,
        non_resource_attributes: Some(what),
        ..SubjectAccessReviewSpec::default()
    }
}

/// Shows no token.
impl fmt::Debug for Reviewer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reviewer").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::atomic::{AtomicUsize, Ordering::Relaxed},
    };

    use http::{Request, Response};
    use http_body_util::BodyExt;
    use kube::client::Body;
    use serde_json::{Value, json};
    use tokio::time::sleep;

    use super::*;

    /// A server that takes its time, knows one token, and counts what it is asked.
    fn server(asked: &Arc<AtomicUsize>) -> Client {
        let asked = asked.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let asked = asked.clone();
            async move {
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let mut review: Value = serde_json::from_slice(&body).unwrap();
                sleep(Duration::from_millis(20)).await;
                review["metadata"] = json!({});
                review["status"] = match review["spec"]["token"].as_str() {
                    Some(token) => {
                        asked.fetch_add(1, Relaxed);
                        json!({ "authenticated": token == "good", "user": { "username": "prometheus" } })
                    }
                    None => json!({ "allowed": true }),
                };
                Ok::<_, Infallible>(Response::new(Body::from(review.to_string().into_bytes())))
            }
        });
        Client::new(service, "default")
    }

    fn bearer(token: &str) -> HeaderMap {
        let value = format!("Bearer {token}").parse().unwrap();
        HeaderMap::from_iter([(header::AUTHORIZATION, value)])
    }

    // P17
    #[tokio::test(start_paused = true)]
    async fn made_up_tokens_neither_lock_a_good_one_out_nor_flood_the_server() {
        const FOR: Duration = Duration::from_secs(600);
        let asked = Arc::new(AtomicUsize::new(0));
        let reviewer = Reviewer::new(server(&asked));
        let begun = Instant::now();
        for client in 0..8_u16 {
            let reviewer = reviewer.clone();
            let peer = SocketAddr::from(([10, 0, 0, 1], 40_000 + client));
            tokio::spawn(async move {
                for number in 0.. {
                    let made_up = bearer(&format!("made-up-{client}-{number}"));
                    let refused = reviewer.check(&made_up, "/metrics", Some(peer)).await;
                    assert!(refused.is_err());
                    sleep(Duration::from_millis(1)).await;
                }
            });
        }
        let scraper = SocketAddr::from(([10, 0, 0, 1], 50_000));
        let mut scrapes = 0;
        while begun.elapsed() < FOR {
            sleep(Duration::from_secs(15)).await;
            let scraped = Instant::now();
            let seen = reviewer.check(&bearer("good"), "/metrics", Some(scraper)).await;
            assert_eq!(seen, Ok(()), "scrape {scrapes} after {:?}", scraped.elapsed());
            assert!(scraped.elapsed() < Duration::from_secs(2), "{:?}", scraped.elapsed());
            scrapes += 1;
        }
        let reviews = asked.load(Relaxed);
        assert!(scrapes >= 38 && reviews <= 600 * 10 + 100, "{reviews} reviews, {scrapes} scrapes");
    }

    // P17
    #[tokio::test(start_paused = true)]
    async fn a_token_that_nobody_knows_is_asked_for_once_in_ten_seconds_whatever_it_is_to_open() {
        let asked = Arc::new(AtomicUsize::new(0));
        let reviewer = Reviewer::new(server(&asked));
        for _ in 0..100 {
            for path in ["/metrics", "/debug"] {
                let refused = reviewer.check(&bearer("made-up"), path, None).await.unwrap_err();
                assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
            }
        }
        assert_eq!(asked.load(Relaxed), 1);
        sleep(Duration::from_secs(11)).await;
        assert!(reviewer.check(&bearer("made-up"), "/debug", None).await.is_err());
        assert_eq!(asked.load(Relaxed), 2);
    }
}
