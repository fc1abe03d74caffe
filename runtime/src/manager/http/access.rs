//! Who may see what: the API server reviews the token of a request.

use std::{
    borrow::Cow,
    collections::HashMap,
    hash::{BuildHasher, Hash},
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::{Arc, Weak},
    time::Duration,
};

use http::{HeaderMap, StatusCode, header};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
    authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, Client, api::PostParams};
use parking_lot::Mutex;
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep_until, timeout},
};

use crate::{chain::one_line, plain::plain};

/// How long the API server may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a request may wait for its review.
const QUEUED: Duration = Duration::from_secs(4);
/// How long a permission is believed.
const ALLOWED_FOR: Duration = Duration::from_secs(60);
/// How long a token that was allowed once does not wait behind unknown ones.
const KNOWN_FOR: Duration = Duration::from_secs(3_600);
/// How long a refusal is believed.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// Most answers of each sort that are remembered.
const MOST_REMEMBERED: usize = 1_000;
/// Most requests with unknown tokens that wait, for each address.
const MOST_WAITING: usize = 20;
const BUSY: &str = "too many tokens are being reviewed: try again";
/// Unknown tokens are reviewed this often.
const EVERY: Duration = Duration::from_millis(100);

/// Why a request is refused.
pub(super) type HttpRefusal = (StatusCode, Cow<'static, str>);

/// Asks the API server who may see what.
pub(super) struct Reviewer {
    /// A client that does not depend on leadership.
    client: Client,
    answers: Mutex<ReviewAnswers>,
    /// When the next unknown token is reviewed.
    unknown: tokio::sync::Mutex<Instant>,
    /// The requests with unknown tokens that wait, by address.
    waiting: Mutex<HashMap<Option<IpAddr>, Weak<Semaphore>>>,
}

/// A token, and the path that it is to open.
#[derive(Clone, PartialEq, Eq, Hash)]
struct ReviewQuestion {
    token: String,
    path: String,
}

/// Whether the sender of a request may see what it asks for.
type ReviewVerdict = Result<(), HttpRefusal>;

/// The answers that are remembered.
#[derive(Default)]
struct ReviewAnswers {
    /// Until when an answer is believed; it is kept for longer.
    allowed: HashMap<ReviewQuestion, Instant>,
    /// By digest, so that made-up tokens take little memory.
    refused: HashMap<u64, (HttpRefusal, Instant)>,
}

impl Reviewer {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            answers: Mutex::default(),
            unknown: tokio::sync::Mutex::new(Instant::now()),
            waiting: Mutex::default(),
        }
    }

    /// Checks whether the sender of a request may `get` a path.
    pub(super) async fn check(
        &self,
        headers: &HeaderMap,
        path: &str,
        peer: Option<SocketAddr>,
    ) -> ReviewVerdict {
        let Some(token) = token(headers) else {
            let why = "a token is needed: `Authorization: Bearer ..` of a user who may get this path";
            return Err((StatusCode::UNAUTHORIZED, why.into()));
        };
        let question = ReviewQuestion { token: token.to_owned(), path: path.to_owned() };
        self.verdict(&question, peer).await
    }

    /// Returns a remembered answer, or asks the API server.
    async fn verdict(&self, question: &ReviewQuestion, peer: Option<SocketAddr>) -> ReviewVerdict {
        let remembered = || self.answers.lock().remembered(question, Instant::now());
        if let Some(verdict) = remembered() {
            return verdict;
        }
        let unavailable = |why: &'static str| (StatusCode::SERVICE_UNAVAILABLE, why.into());
        let is_known = self.answers.lock().allowed.contains_key(question);
        let waiting = (!is_known).then(|| self.lane(peer).try_acquire_owned()).transpose();
        let _waiting = waiting.map_err(|_| unavailable(BUSY))?;
        if !is_known {
            timeout(QUEUED, self.turn()).await.map_err(|_| unavailable(BUSY))?;
        }
        // Another request with the same token may have had its answer.
        if let Some(verdict) = remembered() {
            return verdict;
        }
        match timeout(PATIENCE, review(&self.client, question)).await {
            Ok(Ok(verdict)) => {
                self.answers.lock().remember(question, &verdict, Instant::now());
                verdict
            }
            Ok(Err(error)) => {
                tracing::warn!(error = one_line(&error), "a token can't be reviewed");
                Err(unavailable("the API server does not review the token: see the log"))
            }
            Err(_) => Err(unavailable("the API server did not review the token in time")),
        }
    }

    /// Returns what the requests of an address pass that wait.
    fn lane(&self, peer: Option<SocketAddr>) -> Arc<Semaphore> {
        let mut lanes = self.waiting.lock();
        lanes.retain(|_, lane| lane.strong_count() > 0);
        let lane = lanes.entry(peer.map(|peer| site(peer.ip()))).or_default();
        lane.upgrade().unwrap_or_else(|| {
            let new = Arc::new(Semaphore::new(MOST_WAITING));
            *lane = Arc::downgrade(&new);
            new
        })
    }

    /// Waits for the turn of an unknown token, in order of arrival.
    async fn turn(&self) {
        let mut next = self.unknown.lock().await;
        sleep_until(*next).await;
        *next = Instant::now() + EVERY;
    }
}

/// Returns what counts as one address: the owner of an IPv6 address has all that differ in their second half.
fn site(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        four => four,
    }
}

impl ReviewAnswers {
    fn remembered(&self, question: &ReviewQuestion, now: Instant) -> Option<ReviewVerdict> {
        if self.allowed.get(question).is_some_and(|until| *until > now) {
            return Some(Ok(()));
        }
        let of = |digest| self.refused.get(&digest).filter(|(_, until)| *until > now);
        let found = of(self.refused.hasher().hash_one(question))
            .or_else(|| of(self.refused.hasher().hash_one(&question.token)));
        found.map(|(refusal, _)| Err(refusal.clone()))
    }

    fn remember(&mut self, question: &ReviewQuestion, verdict: &ReviewVerdict, now: Instant) {
        let Err(refusal) = verdict else {
            make_room(&mut self.allowed, |until| *until);
            self.allowed.retain(|_, until| *until + KNOWN_FOR > now);
            self.allowed.insert(question.clone(), now + ALLOWED_FOR);
            return;
        };
        // That a token is not known holds for every path.
        let digest = match refusal.0 {
            StatusCode::UNAUTHORIZED => self.refused.hasher().hash_one(&question.token),
            _ => self.refused.hasher().hash_one(question),
        };
        self.allowed.remove(question);
        make_room(&mut self.refused, |(_, until)| *until);
        self.refused.insert(digest, (refusal.clone(), now + REFUSED_FOR));
    }
}

/// Drops the entry that expires first if the map is full.
fn make_room<K: Clone + Eq + Hash, V>(remembered: &mut HashMap<K, V>, until: impl Fn(&V) -> Instant) {
    if remembered.len() < MOST_REMEMBERED {
        return;
    }
    let first = remembered.iter().min_by_key(|(_, value)| until(value)).map(|(key, _)| key.clone());
    first.map(|key| remembered.remove(&key));
}

fn token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

async fn review(client: &Client, question: &ReviewQuestion) -> Result<ReviewVerdict, kube::Error> {
    let spec = TokenReviewSpec { token: question.token.clone(), ..TokenReviewSpec::default() };
    let review = TokenReview { spec, ..TokenReview::default() };
    let tokens = Api::<TokenReview>::all(client.clone());
    let status = tokens.create(&PostParams::default(), &review).await?.status.unwrap_or_default();
    let user = status.user.filter(|_| status.authenticated == Some(true));
    let Some(user) = user else {
        return Ok(Err((StatusCode::UNAUTHORIZED, "the API server does not know the token".into())));
    };
    let (name, path) = (user.username.clone().unwrap_or_default(), &question.path);
    let review = SubjectAccessReview { spec: may_get(user, path), ..SubjectAccessReview::default() };
    let accesses = Api::<SubjectAccessReview>::all(client.clone());
    let status = accesses.create(&PostParams::default(), &review).await?.status.unwrap_or_default();
    if status.allowed && status.denied != Some(true) {
        return Ok(Ok(()));
    }
    let why = format!(
        "{} may not get {path}: allow it by `nonResourceURLs: [{path}]` with the verb `get` in a ClusterRole, \
         and bind that",
        plain(&name)
    );
    Ok(Err((StatusCode::FORBIDDEN, why.into())))
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
        let reviewer = Arc::new(Reviewer::new(server(&asked)));
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
    async fn an_unknown_token_is_reviewed_once_in_ten_seconds_for_all_paths() {
        let asked = Arc::new(AtomicUsize::new(0));
        let reviewer = Arc::new(Reviewer::new(server(&asked)));
        for _ in 0..100 {
            for path in ["/metrics", "/debug"] {
                let refused = reviewer.check(&bearer("made-up"), path, None).await.unwrap_err();
                assert_eq!(refused.0, StatusCode::UNAUTHORIZED);
            }
        }
        assert_eq!(asked.load(Relaxed), 1);
        sleep(Duration::from_secs(11)).await;
        assert!(reviewer.check(&bearer("made-up"), "/debug", None).await.is_err());
        assert_eq!(asked.load(Relaxed), 2);
    }

    fn question(token: &str) -> ReviewQuestion {
        ReviewQuestion { token: token.to_owned(), path: "/metrics".to_owned() }
    }

    // P17
    #[tokio::test]
    async fn refusals_are_bounded_and_push_no_good_answer_out() {
        let now = Instant::now();
        let mut answers = ReviewAnswers::default();
        answers.remember(&question("good"), &Ok(()), now);
        let unknown = Err((StatusCode::UNAUTHORIZED, "unknown".into()));
        for number in 0..10 * MOST_REMEMBERED {
            answers.remember(&question(&number.to_string()), &unknown, now);
        }
        assert_eq!(answers.refused.len(), MOST_REMEMBERED);
        assert_eq!(answers.remembered(&question("good"), now), Some(Ok(())));
    }

    // P17
    #[tokio::test(start_paused = true)]
    async fn one_address_does_not_fill_the_queue_for_others() {
        let asked = Arc::new(AtomicUsize::new(0));
        let reviewer = Arc::new(Reviewer::new(server(&asked)));
        let flood: Vec<_> = (0..500_u16)
            .map(|number| {
                let (reviewer, headers) = (reviewer.clone(), bearer(&format!("made-up-{number}")));
                let peer = SocketAddr::from(([10, 0, 0, 1], 40_000 + number));
                tokio::spawn(
                    async move { reviewer.check(&headers, "/metrics", Some(peer)).await.unwrap_err().0 },
                )
            })
            .collect();
        sleep(Duration::from_millis(1)).await;
        let scraper = SocketAddr::from(([10, 0, 0, 2], 50_000));
        assert_eq!(reviewer.check(&bearer("good"), "/metrics", Some(scraper)).await, Ok(()));
        let mut busy = 0;
        for one in flood {
            busy += usize::from(one.await.unwrap() == StatusCode::SERVICE_UNAVAILABLE);
        }
        assert_eq!(busy, 500 - MOST_WAITING);
    }
}
