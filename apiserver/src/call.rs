//! Calls: a review sent to a webhook, in this process or over TLS.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode, Uri, header};
use serde_json::Value;
use tower::ServiceExt as _;
use tower::util::BoxCloneSyncService;

use crate::limits;
use crate::session::{Answer, Call};

#[cfg_attr(not(feature = "tls"), path = "without/outside.rs")]
mod outside;

use outside::{send, trust};

/// The most requests of one call: clients in Go stop there.
const REDIRECTS: usize = 10;

/// How much of a body the real server reads before anything else.
const TYPE_META: &str =
    r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;

/// A webhook in this process: reviews in, reviews out.
pub(crate) type Handler = Arc<dyn Fn(Value) -> BoxFuture<'static, Value> + Send + Sync>;

/// All webhooks of a program in this process, by their paths.
pub type WebhookService = BoxCloneSyncService<Request<Bytes>, Response<Bytes>, std::convert::Infallible>;

/// The address of a webhook, from its configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WebhookAddress {
    /// By its URL.
    Url(String),
    /// By its service and path.
    Service {
        /// The service's namespace.
        namespace: String,
        /// The service's name.
        name: String,
        /// The path, with its slash.
        path: String,
    },
}

impl WebhookAddress {
    fn of(client: &Value) -> Result<Self, String> {
        let service = &client["service"];
        if let Some(url) = client["url"].as_str() {
            return Ok(Self::Url(url.to_owned()));
        }
        let text = |key: &str| service[key].as_str().unwrap_or_default().to_owned();
        if !service.is_object() {
            return Err(
                "could not get REST client: webhook configuration must have either service or URL".to_owned()
            );
        }
        let path = format!("/{}", text("path").trim_start_matches('/'));
        Ok(Self::Service { namespace: text("namespace"), name: text("name"), path })
    }
}

/// Makes calls.
#[derive(Clone, Default)]
pub(crate) struct Caller {
    handlers: BTreeMap<WebhookAddress, Handler>,
    services: BTreeMap<(String, String), SocketAddr>,
    /// A program that answers whatever address is called; clones share it.
    program: Arc<Mutex<Option<WebhookService>>>,
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places: Vec<_> = self.handlers.keys().collect();
        f.debug_struct("Caller").field("handlers", &places).field("services", &self.services).finish()
    }
}

impl Caller {
    /// Makes the caller of another server, which another program answers.
    pub(crate) fn of_another_server(&self) -> Self {
        Self { program: Arc::default(), ..self.clone() }
    }

    /// Adds a webhook of this process.
    pub(crate) fn handle(&mut self, place: WebhookAddress, handler: Handler) {
        self.handlers.insert(place, handler);
    }

    /// Sets the address of a service.
    pub(crate) fn resolve(&mut self, namespace: &str, name: &str, address: SocketAddr) {
        self.services.insert((namespace.to_owned(), name.to_owned()), address);
    }

    /// Has a program of this process answer all calls to paths that it knows.
    pub(crate) fn answer_by(&self, program: WebhookService) {
        *self.program.lock().unwrap_or_else(PoisonError::into_inner) = Some(program);
    }

    /// Makes a call; a late answer counts as missing.
    pub(crate) async fn call(&self, call: &Call) -> Answer {
        let place = WebhookAddress::of(&call.client)?;
        let url = url_of(&place, &call.client, call.timeout.as_secs());
        let made = async {
            match self.handlers.get(&place) {
                Some(handler) => inside(handler, call.review.clone()).await,
                None => match self.program(&url, &call.review).await {
                    Some(answer) => answer,
                    None => self.outside(&place, &url, call).await,
                },
            }
        };
        let late = |_| Err(format!("Post {url:?}: context deadline exceeded"));
        tokio::time::timeout(call.timeout, made).await.unwrap_or_else(late)
    }

    /// Calls the program of this process; `None` if it does not know the path.
    async fn program(&self, url: &str, review: &Value) -> Option<Answer> {
        let program = self.program.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let uri: Uri = url.parse().ok()?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let request = Request::post(path).header(header::CONTENT_TYPE, "application/json");
        let request = request.body(Bytes::from(review.to_string())).ok()?;
        let answer = AssertUnwindSafe(program.oneshot(request)).catch_unwind().await;
        let Ok(response) = answer else { return Some(Err("the webhook has panicked".to_owned())) };
        let response = response.unwrap_or_else(|never| match never {});
        (response.status() != StatusCode::NOT_FOUND).then(|| read(&response))
    }

    async fn outside(&self, place: &WebhookAddress, url: &str, call: &Call) -> Answer {
        let failed = |why: &dyn fmt::Display| format!("Post {url:?}: {why}");
        let address = match place {
            WebhookAddress::Url(_) => None,
            WebhookAddress::Service { namespace, name, .. } => {
                let address = self.services.get(&(namespace.clone(), name.clone()));
                Some(*address.ok_or_else(|| failed(&format!("service {name:?} not found")))?)
            }
        };
        let mut uri: Uri = url.parse().map_err(|error| failed(&error))?;
        let (first, tls) = (uri.clone(), trust(&call.client).map_err(|why| failed(&why))?);
        let (mut method, mut body) = (Method::POST, Bytes::from(call.review.to_string()));
        for _ in 0..REDIRECTS {
            let address = address.filter(|_| uri.authority() == first.authority());
            let sent = send(&uri, address, &tls, method.clone(), body.clone()).await;
            let response = sent.map_err(|why| failed(&why))?;
            match redirect(&response, &uri) {
                None => return read(&response),
                Some(next) => uri = next.map_err(|why| failed(&why))?,
            }
            if !matches!(response.status().as_u16(), 307 | 308) {
                // Clients in Go, as others, ask without a body then.
                (method, body) = (Method::GET, Bytes::new());
            }
        }
        Err(failed(&format!("stopped after {REDIRECTS} redirects")))
    }
}

/// Reads the review in an answer.
fn read(response: &Response<Bytes>) -> Answer {
    let (status, body) = (response.status(), response.body());
    if !status.is_success() {
        return Err(refused(status, body));
    }
    if body.is_empty() {
        let media = response.headers().get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok());
        // Go's client takes that for granted.
        let media = media.unwrap_or("application/json");
        let code = status.as_u16();
        return Err(format!("0-length response with status code: {code} and content type: {media}"));
    }
    // The longest answer may hold more values than fit into memory.
    if !limits::has_few_values(body) {
        return Err("the answer has too many values".to_owned());
    }
    serde_json::from_slice(body).map_err(|error| {
        let why = match limits::read_yaml(body) {
            // The real server reads it as YAML then.
            Ok(Value::String(_)) => {
                format!("json: cannot unmarshal string into Go value of type {TYPE_META}")
            }
            _ => error.to_string(),
        };
        format!("couldn't get version/kind; json parse error: {why}")
    })
}

/// Returns where an answer sends its client instead.
fn redirect(response: &Response<Bytes>, from: &Uri) -> Option<Result<Uri, String>> {
    let location = response
        .headers()
        .get(header::LOCATION)
        .filter(|_| matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308))?;
    let location = String::from_utf8_lossy(location.as_bytes());
    let host = from.authority().map_or("", |authority| authority.as_str());
    let text = match &*location {
        other_host if other_host.starts_with("//") => format!("https:{other_host}"),
        path if path.starts_with('/') => format!("https://{host}{path}"),
        absolute if has_scheme(absolute) => absolute.to_owned(),
        name => {
            let folder = from.path().rsplit_once('/').map_or("", |(folder, _)| folder);
            format!("https://{host}{folder}/{name}")
        }
    };
    Some(text.parse().map_err(|error| format!("failed to parse Location header {location:?}: {error}")))
}

/// Returns whether a location begins with a scheme: an address after it may be part of a query.
fn has_scheme(location: &str) -> bool {
    let scheme = location.split_once("://").map_or("", |(scheme, _)| scheme);
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|c| c.is_ascii_alphanumeric() || b"+-.".contains(&c))
}

/// Calls a webhook of this process; a panic counts as a failure.
async fn inside(handler: &Handler, review: Value) -> Answer {
    let answer = AssertUnwindSafe(async { handler(review).await }).catch_unwind().await;
    answer.map_err(|_| "the webhook has panicked".to_owned())
}

fn url_of(place: &WebhookAddress, client: &Value, seconds: u64) -> String {
    match place {
        WebhookAddress::Url(url) => {
            let separator = if url.contains('?') { '&' } else { '?' };
            format!("{url}{separator}timeout={seconds}s")
        }
        WebhookAddress::Service { namespace, name, path } => {
            let port = client["service"]["port"].as_u64().unwrap_or(443);
            format!("https://{name}.{namespace}.svc:{port}{path}?timeout={seconds}s")
        }
    }
}

/// Says what a client in Go makes of an answer that is none of success.
fn refused(status: StatusCode, body: &[u8]) -> String {
    let said = String::from_utf8_lossy(body);
    let known = match status.as_u16() {
        400 => "the server rejected our request for an unknown reason",
        401 => "the server has asked for the client to provide credentials",
        403 => said.trim(),
        404 => "the server could not find the requested resource",
        405 => "the server does not allow this method on the requested resource",
        409 => "the server reported a conflict",
        422 => "the server rejected our request due to an error in our request",
        429 => "the server has received too many requests and has asked us to try again later",
        503 => "the server is currently unable to handle the request",
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
        }
        500.. => {
            return format!(
                "an error on the server ({:?}) has prevented the request from succeeding",
                said.trim()
            );
        }
        code => {
            return format!(
                "the server responded with the status code {code} but did not return more information"
            );
        }
    };
    known.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    // A39
    #[test]
    fn a_location_is_absolute_only_if_it_begins_so() {
        let from: Uri = "https://hook.example.com:1/a/b".parse().expect("a URI");
        for (location, wanted) in [
            ("https://other.example.com/c", "https://other.example.com/c"),
            ("http://other.example.com/c", "http://other.example.com/c"),
            ("//other.example.com/c", "https://other.example.com/c"),
            ("//other.example.com/c?next=https://x", "https://other.example.com/c?next=https://x"),
            ("/login?next=https://x", "https://hook.example.com:1/login?next=https://x"),
            ("c?next=https://x", "https://hook.example.com:1/a/c?next=https://x"),
        ] {
            let response = Response::builder().status(302).header(header::LOCATION, location);
            let response = response.body(Bytes::new()).expect("a response");
            let next = redirect(&response, &from).expect("a redirect").map(|uri| uri.to_string());
            assert_eq!(next, Ok(wanted.to_owned()), "{location}");
        }
    }

    // A31
    #[test]
    fn an_answer_of_many_values_is_not_read() {
        let answer = |values: usize| Response::new(Bytes::from(format!("[{}1]", "1,".repeat(values))));
        assert_eq!(read(&answer(100_001)), Err("the answer has too many values".to_owned()));
        assert!(read(&answer(10)).is_ok());
    }
}
