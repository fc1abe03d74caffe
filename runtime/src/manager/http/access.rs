//! Who may see what: the API server is asked, by the token of a request.

use std::{
    collections::HashMap,
    fmt,
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
    sync::Semaphore,
    time::{Instant, timeout},
};

use crate::chain::one_line;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it is believed that somebody may.
const ALLOWED_FOR: Duration = Duration::from_secs(60);
/// How long it is believed that somebody may not.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// Most answers that are remembered.
const MOST_KNOWN: usize = 1_000;
/// Most questions at once: who makes tokens up is not to make the API server busy.
const MOST_ASKED: usize = 4;

/// Asks the API server who may see what; clones remember the same.
#[derive(Clone)]
pub(super) struct Reviewer {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    known: Mutex<HashMap<Question, Known>>,
    asking: Semaphore,
}

/// A token, and the path that it is to open.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Question {
    token: String,
    path: String,
}

struct Known {
    verdict: Verdict,
    until: Instant,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Allowed,
    /// The token is nobody's.
    Unknown,
    /// It is that user's, who may not.
    Forbidden(String),
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) why: String,
}

impl Refusal {
    fn new(status: StatusCode, why: impl Into<String>) -> Self {
        Self { status, why: why.into() }
    }
}

impl Reviewer {
    /// Asks through a client that no gate stands before.
    pub(super) fn new(client: Client) -> Self {
        let (known, asking) = (Mutex::default(), Semaphore::new(MOST_ASKED));
        Self { shared: Arc::new(Shared { client, known, asking }) }
    }

    /// Tells whether the sender of a request may `get` a path.
    pub(super) async fn check(&self, headers: &HeaderMap, path: &str) -> Result<(), Refusal> {
        let Some(token) = token(headers) else {
            let why = "a token is needed: `Authorization: Bearer ..` of a user who may get this path";
            return Err(Refusal::new(StatusCode::UNAUTHORIZED, why));
        };
        let question = Question { token: token.to_owned(), path: path.to_owned() };
        let verdict = match self.remembered(&question) {
            Some(verdict) => verdict,
            None => self.ask(question).await?,
        };
        match verdict {
            Verdict::Allowed => Ok(()),
            Verdict::Unknown => {
                Err(Refusal::new(StatusCode::UNAUTHORIZED, "the API server does not know the token"))
            }
            Verdict::Forbidden(user) => {
                let why = format!(
                    "{user} may not get {path}: allow it by `nonResourceURLs: [{path}]` with the verb `get` in a \
                     ClusterRole, and bind that"
                );
                Err(Refusal::new(StatusCode::FORBIDDEN, why))
            }
        }
    }

    async fn ask(&self, question: Question) -> Result<Verdict, Refusal> {
        let unavailable = |why| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, why);
        let Ok(_asking) = self.shared.asking.try_acquire() else {
            return Err(unavailable("too many tokens are being reviewed: try again"));
        };
        let reviewed = timeout(PATIENCE, review(&self.shared.client, &question)).await;
        match reviewed {
            Ok(Ok(verdict)) => {
                self.remember(question, verdict.clone());
                Ok(verdict)
            }
            Ok(Err(error)) => {
                tracing::warn!(error = one_line(&error), "a token can't be reviewed");
                Err(unavailable("the API server does not review the token: see the log"))
            }
            Err(_) => Err(unavailable("the API server did not review the token in time")),
        }
    }

    fn remembered(&self, question: &Question) -> Option<Verdict> {
        let known = self.known();
        known.get(question).filter(|known| known.until > Instant::now()).map(|known| known.verdict.clone())
    }

    fn remember(&self, question: Question, verdict: Verdict) {
        let believed = if verdict == Verdict::Allowed { ALLOWED_FOR } else { REFUSED_FOR };
        let (now, mut known) = (Instant::now(), self.known());
        if known.len() >= MOST_KNOWN {
            known.retain(|_, known| known.until > now);
        }
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        known.insert(question, Known { verdict, until: now + believed });
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Question, Known>> {
        self.shared.known.lock().unwrap_or_else(PoisonError::into_inner)
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
        f.debug_struct("Reviewer").field("known", &self.known().len()).finish_non_exhaustive()
    }
}
