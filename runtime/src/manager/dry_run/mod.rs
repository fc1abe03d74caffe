//! A client through which no write leaves the process: each is answered here, and logged with its diff.
//!
//! Whoever writes through it goes on as if the server had done it, as far as that is known without the server:
//! defaults, admission, validation and fields that an apply no longer names are not known here.

mod diff;
mod place;
mod simulate;

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::{Method, Request, Response, StatusCode, header, request::Parts};
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio::time::timeout;

use self::{
    place::Place,
    simulate::{Change, Refused, Write, simulate},
};

/// How long the server may take to say what is there.
const DEADLINE: Duration = Duration::from_secs(30);
/// Of how many objects it is remembered what was said last.
const MOST: usize = 4_096;

/// Puts a dry run before a client.
pub(super) fn client(client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let dry_run = Arc::new(DryRun { client, said: Mutex::default(), hasher: RandomState::new() });
    let service = tower::service_fn(move |request: Request<Body>| {
        let dry_run = dry_run.clone();
        async move { dry_run.answer(request).await }
    });
    Client::new(service, namespace)
}

struct DryRun {
    client: Client,
    /// What was logged about each object last, as a digest: the same is not logged again.
    said: Mutex<HashMap<String, u64>>,
    hasher: RandomState,
}

impl DryRun {
    async fn answer(&self, request: Request<Body>) -> Result<Response<Body>, kube::Error> {
        if only_reads(&request) {
            return self.client.send(request).await;
        }
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let Some(place) = Place::of(head.uri.path()) else {
            return Ok(refusal(&head, &Refused::not_simulated(head.uri.path())));
        };
        let Some(write) = Write::of(&head, &place, &body) else {
            return Ok(refusal(&head, &Refused::not_simulated(head.uri.path())));
        };
        let place = write.place(place);
        let found = match &place.object_path() {
            Some(path) => match self.find(path).await? {
                Found::Object(object) => Some(object),
                Found::Nothing => None,
                Found::Refused(answer) => return Ok(answer),
            },
            None => None,
        };
        match simulate(&place, &write, found.as_ref()) {
            Ok(change) => {
                self.say(&place, &write, &change);
                Ok(answer(change.code, &change.answer))
            }
            Err(refused) => Ok(refusal(&head, &refused)),
        }
    }

    /// Asks the server what is there.
    async fn find(&self, path: &str) -> Result<Found, kube::Error> {
        let request = Request::get(path).header(header::ACCEPT, "application/json").body(Body::empty());
        let request = request.map_err(kube::Error::HttpError)?;
        let asked = async {
            let answer = self.client.send(request).await?;
            let (head, body) = answer.into_parts();
            Ok::<_, kube::Error>((head, body.collect().await?.to_bytes()))
        };
        let late = |_| kube::Error::Service("no answer to a dry run's question".into());
        let (head, bytes) = timeout(DEADLINE, asked).await.map_err(late)??;
        Ok(match head.status {
            StatusCode::NOT_FOUND => Found::Nothing,
            status if status.is_success() => {
                Found::Object(serde_json::from_slice(&bytes).map_err(kube::Error::SerdeError)?)
            }
            _ => Found::Refused(Response::from_parts(head, Body::from(bytes.to_vec()))),
        })
    }

    /// Logs what would be written, unless the same was logged about the object last.
    fn say(&self, place: &Place, write: &Write, change: &Change) {
        let lines = diff::lines(place, &change.before, &change.after);
        let (object, verb, diff) = (place.to_string(), write.verb(), lines.join("; "));
        let digest = self.hasher.hash_one((verb, &diff));
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() >= MOST {
            said.clear();
        }
        let again = said.insert(object.clone(), digest) == Some(digest);
        drop(said);
        match again {
            true => tracing::debug!(object, verb, "dry run: not sent, as before"),
            false => tracing::info!(object, verb, diff, "dry run: not sent"),
        }
    }
}

enum Found {
    Object(Value),
    Nothing,
    Refused(Response<Body>),
}

/// Returns whether a request changes nothing: reviews are asked by POST, and commands are run by GET.
fn only_reads(request: &Request<Body>) -> bool {
    let (method, path) = (request.method(), request.uri().path());
    let upgrades = request.headers().contains_key(header::UPGRADE);
    let reviews = ["/apis/authorization.k8s.io/", "/apis/authentication.k8s.io/"];
    let asks = *method == Method::POST && reviews.iter().any(|group| path.starts_with(group));
    ([Method::GET, Method::HEAD, Method::OPTIONS].contains(method) && !upgrades) || asks
}

fn answer(code: StatusCode, body: &Value) -> Response<Body> {
    let mut answer = Response::new(Body::from(body.to_string().into_bytes()));
    *answer.status_mut() = code;
    answer.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    answer
}

fn refusal(head: &Parts, refused: &Refused) -> Response<Body> {
    if refused.code == StatusCode::NOT_IMPLEMENTED {
        tracing::warn!(method = %head.method, path = head.uri.path(), "dry run: not sent, and not simulated");
    }
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": refused.message, "reason": refused.reason, "code": refused.code.as_u16(),
    });
    answer(refused.code, &body)
}
