//! A dry run: each write is sent with `dryRun=All`, so that the server does everything except store it.
//!
//! What the write would change is logged. A request that the server can't be asked to try is refused here, and not sent.

mod diff;
mod rehearsal;

use std::{
    collections::HashMap,
    hash::BuildHasher,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode, header, request::Parts, uri::PathAndQuery};
use http_body_util::BodyExt;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::timeout;

pub use self::rehearsal::Rehearsal;
use self::rehearsal::TriedWrite;
use crate::api_request::{ApiRequest, ApiVerb, MediaType, ResourcePath, SentBy};

/// How long the server may take to answer what an object is before a write.
const DEADLINE: Duration = Duration::from_secs(30);
/// The last log line is remembered for this many objects.
const MOST: usize = 4_096;

/// The subresources for which a server keeps to `dryRun`: it does not if it passes the request on to another program.
const TRIED: [&str; 8] =
    ["approval", "binding", "ephemeralcontainers", "eviction", "finalize", "resize", "scale", "status"];

const JSON: header::HeaderValue = header::HeaderValue::from_static("application/json");

/// Sends a request of a manager.
type SendRequest<'a> = dyn Fn(Request<Body>) -> BoxFuture<'a, kube::Result<Response<Body>>> + Sync + 'a;

/// Returns a body without what depends on the state that a write is based on: a repeated write is the same write.
fn intent(body: &[u8]) -> Value {
    let mut body: Value =
        serde_json::from_slice(body).unwrap_or_else(|_| String::from_utf8_lossy(body).into());
    if let Some(meta) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.remove("uid");
        meta.remove("resourceVersion");
    }
    match &mut body {
        Value::Object(members) => drop(members.remove("preconditions")),
        Value::Array(operations) => operations.retain(|operation| operation["op"] != "test"),
        _ => {}
    }
    body
}

/// Whether a manager's client writes, or only tries to; all clones of that client share it.
#[derive(Default)]
pub(super) struct DryRun {
    on: AtomicBool,
    /// The first write that was sent before the dry run began.
    sent: OnceLock<String>,
    /// The server stores what it is asked to try: nothing more is sent to it.
    stores: AtomicBool,
    /// A digest of the last log line about each object: the same line is not logged again.
    logged: Mutex<HashMap<String, u64>>,
    /// What would be written, where somebody wants to know.
    rehearsal: Mutex<Option<Rehearsal>>,
}

impl DryRun {
    /// Begins it, also for clones of the client that were made before.
    pub(super) fn begin(&self) {
        self.on.store(true, Ordering::Relaxed);
    }

    /// Keeps what would be written from now on.
    pub(super) fn rehearse(&self) {
        *self.rehearsal.lock() = Some(Rehearsal::default());
    }

    /// Takes what would have been written.
    pub(super) fn rehearsed(&self) -> Rehearsal {
        self.rehearsal.lock().take().unwrap_or_default()
    }

    pub(super) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Returns a write that was sent before it began.
    pub(super) fn written_before(&self) -> Option<&str> {
        self.sent.get().map(String::as_str)
    }

    /// Sends a request that only reads as it is, and a write as a trial.
    pub(super) async fn send(
        &self,
        send: &SendRequest<'_>,
        request: Request<Body>,
    ) -> kube::Result<Response<Body>> {
        if only_reads(&request) {
            return send(request).await;
        }
        if !self.is_on() {
            self.sent.get_or_init(|| format!("{} {}", request.method(), request.uri().path()));
            return send(request).await;
        }
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        match tried(&head, &body).filter(|_| !self.stores.load(Ordering::Relaxed)) {
            Some((write, trial)) => {
                let digest =
                    self.logged.lock().hasher().hash_one((head.uri.query(), intent(&body).to_string()));
                self.attempt(send, &head, (&write, digest), trial).await
            }
            None => Ok(refusal(&head)),
        }
    }

    async fn attempt(
        &self,
        send: &SendRequest<'_>,
        head: &Parts,
        (write, digest): (&ApiRequest, u64),
        trial: Request<Body>,
    ) -> kube::Result<Response<Body>> {
        let before = match write.path.object() {
            Some(mut object) => {
                // It is answered in a form of its own.
                if write.path.subresource.as_deref() == Some("scale") {
                    object.subresource.clone_from(&write.path.subresource);
                }
                find(send, &object.url(), head).await
            }
            None => Some(Value::Null),
        };
        let (answered, body) = send(trial).await?.into_parts();
        let mut bytes = body.collect().await?.to_bytes();
        if answered.status.is_success() {
            let mut after = serde_json::from_slice::<Value>(&bytes).ok();
            let created = answered.status == StatusCode::CREATED && write.path.subresource.is_none();
            let version = after.as_ref().and_then(|after| after["metadata"]["resourceVersion"].as_str());
            // A version alone says little: an apply that creates gets one, also where nothing is stored.
            let has_version = version.is_some_and(|version| !version.is_empty());
            if created && has_version && is_stored(send, write, head, after.as_ref()).await {
                self.stores.store(true, Ordering::Relaxed);
                tracing::error!(
                    object = %write.path,
                    "the server stored what it was asked to try: no further write is sent"
                );
                return Ok(refusal(head));
            }
            if created && has_version {
                // No cache will ever show this version.
                if let Some(meta) = after.as_mut().and_then(|after| after["metadata"].as_object_mut()) {
                    meta.remove("resourceVersion");
                }
                bytes = after.as_ref().map_or(bytes, |after| after.to_string().into());
            }
            let diff = diff_of(write, before.as_ref(), after);
            let tried = |diff| TriedWrite::new(write, before.as_ref(), diff);
            self.keep(head, (write, digest), tried, diff.as_deref());
            self.log(write, diff);
        } else if !matches!(answered.status, StatusCode::CONFLICT | StatusCode::NOT_FOUND) {
            self.keep(head, (write, digest), |_| TriedWrite::refused(write, &bytes), None);
        }
        Ok(Response::from_parts(answered, Body::from(bytes.to_vec())))
    }

    /// Keeps what would become of a write, unless nothing would change.
    fn keep(
        &self,
        head: &Parts,
        (write, digest): (&ApiRequest, u64),
        tried: impl FnOnce(Vec<String>) -> TriedWrite,
        diff: Option<&[String]>,
    ) {
        let mut rehearsal = self.rehearsal.lock();
        let Some(rehearsal) = rehearsal.as_mut() else { return };
        let by =
            head.extensions.get::<SentBy>().map_or_else(|| "the program itself".into(), |by| by.0.clone());
        let changes = diff.is_none_or(|diff| !diff.is_empty());
        let tried = changes.then(|| tried(diff.map(<[String]>::to_vec).unwrap_or_default()));
        rehearsal.keep((by, write.path.to_string(), verb(write)), digest, tried);
    }

    /// Logs what would be written, unless nothing would change or the last line about the object was the same.
    fn log(&self, write: &ApiRequest, diff: Option<Vec<String>>) {
        let verb = verb(write);
        let object = write.path.to_string();
        if diff.as_ref().is_some_and(Vec::is_empty) {
            return tracing::debug!(object, verb, "dry run: nothing would change");
        }
        let diff = diff.map_or("not known".to_owned(), |diff| diff.join("; "));
        let mut logged = self.logged.lock();
        let digest = logged.hasher().hash_one((verb, &diff));
        if logged.len() >= MOST {
            logged.clear();
        }
        let again = logged.insert(object.clone(), digest) == Some(digest);
        drop(logged);
        match again {
            true => tracing::debug!(object, verb, "dry run: not written, as before"),
            false => tracing::info!(object, verb, diff, "dry run: not written"),
        }
    }
}

/// Names what a write does, as people say it.
fn verb(write: &ApiRequest) -> &'static str {
    match write.media_type {
        Some(MediaType::Apply) => "apply",
        _ => write.verb.as_str(),
    }
}

/// Returns whether a request changes nothing. Reviews are sent by POST, and commands in pods by GET.
fn only_reads(request: &Request<Body>) -> bool {
    let (method, path) = (request.method(), request.uri().path());
    let upgrades = request.headers().contains_key(header::UPGRADE);
    let reviews = ["/apis/authorization.k8s.io/", "/apis/authentication.k8s.io/"];
    let asks = *method == Method::POST && reviews.iter().any(|group| path.starts_with(group));
    ([Method::GET, Method::HEAD, Method::OPTIONS].contains(method) && !upgrades && !is_proxied(path)) || asks
}

/// Returns whether a path leads to a program behind a pod, service or node, which may act on a GET.
fn is_proxied(path: &str) -> bool {
    let leads = |parsed: ResourcePath| parsed.subresource.as_deref() == Some("proxy");
    // A path that is not understood may go on behind the word, or hide it with an encoded letter.
    path.starts_with("/api/v1/") && ResourcePath::parse(path).is_none_or(leads)
}

/// Makes a trial of a write; `None` for a request that is not understood, or that the server might not only try.
fn tried(head: &Parts, body: &Bytes) -> Option<(ApiRequest, Request<Body>)> {
    let mut write = ApiRequest::parse(&head.method, &head.uri, &head.headers)?;
    let subresource = write.path.subresource.as_deref();
    if subresource.is_some_and(|name| !TRIED.contains(&name)) || head.headers.contains_key(header::UPGRADE) {
        return None;
    }
    let mut request = Request::from_parts(head.clone(), ());
    let query = head.uri.query().map_or_else(String::new, |query| format!("{query}&"));
    let mut uri = head.uri.clone().into_parts();
    let path = head.uri.path();
    uri.path_and_query = Some(PathAndQuery::try_from(format!("{path}?{query}dryRun=All")).ok()?);
    *request.uri_mut() = uri.try_into().ok()?;
    request.headers_mut().remove(header::CONTENT_LENGTH);
    let body = match write.verb {
        ApiVerb::Get | ApiVerb::List | ApiVerb::Watch => return None,
        // If a deletion has a body, the server ignores the options in the query.
        ApiVerb::Delete | ApiVerb::DeleteCollection if !body.is_empty() => {
            let mut options = serde_json::from_slice::<Value>(body).ok()?;
            options.as_object_mut()?.insert("dryRun".to_owned(), json!(["All"]));
            options.to_string().into_bytes()
        }
        _ => body.to_vec(),
    };
    if write.verb == ApiVerb::Create && write.path.name.is_none() {
        let object = serde_json::from_slice::<Value>(&body).unwrap_or_default();
        let name = object["metadata"]["name"].as_str().filter(|name| !name.is_empty());
        write.path.name = name.map(str::to_owned);
    }
    Some((write, request.map(|()| Body::from(body))))
}

/// Reads an object in the form in which the write will be answered: null for none, `None` if it can't be read.
async fn find(send: &SendRequest<'_>, path: &str, head: &Parts) -> Option<Value> {
    let accept = head.headers.get(header::ACCEPT).cloned().unwrap_or(JSON);
    let request = Request::get(path).header(header::ACCEPT, accept).body(Body::empty()).ok()?;
    let answer = async {
        let (head, body) = send(request).await.ok()?.into_parts();
        let bytes = body.collect().await.ok()?.to_bytes();
        match head.status {
            StatusCode::NOT_FOUND => Some(Value::Null),
            status => status.is_success().then(|| serde_json::from_slice(&bytes).ok())?,
        }
    };
    timeout(DEADLINE, answer).await.ok().flatten()
}

/// Returns whether an object that a trial created is there.
async fn is_stored(send: &SendRequest<'_>, write: &ApiRequest, head: &Parts, made: Option<&Value>) -> bool {
    let Some(uid) = made.and_then(|made| made["metadata"]["uid"].as_str()) else { return false };
    let mut path = write.path.clone();
    path.name = made.and_then(|made| made["metadata"]["name"].as_str()).map(str::to_owned);
    let found = find(send, &path.url(), head).await;
    found.is_some_and(|found| found["metadata"]["uid"] == *uid)
}

/// Lists what a write would change; `None` if that is not known.
fn diff_of(write: &ApiRequest, before: Option<&Value>, after: Option<Value>) -> Option<Vec<String>> {
    let before = before?;
    match write.verb {
        ApiVerb::DeleteCollection => {
            let found = after.as_ref().and_then(|after| after["items"].as_array());
            let is_empty = found.is_some_and(Vec::is_empty);
            return Some(if is_empty { Vec::new() } else { vec!["- all that is selected".to_owned()] });
        }
        ApiVerb::Delete => return Some(diff::lines(&write.path, before, &Value::Null)),
        _ => {}
    }
    let mut after = after.filter(|after| after["kind"] != "Status" && after["metadata"].is_object())?;
    if write.path.name.is_none()
        && let Some(meta) = after["metadata"].as_object_mut()
    {
        // The server generates a new name each time.
        meta.remove("name");
    }
    // A subresource may be another form of its object.
    let same_form = before.is_null() || before["kind"] == after["kind"];
    same_form.then(|| diff::lines(&write.path, before, &after))
}

/// Answers in the server's place.
fn refusal(head: &Parts) -> Response<Body> {
    let path = head.uri.path();
    tracing::warn!(method = %head.method, path, "dry run: not sent, since the server can't be asked to only try it");
    let code = StatusCode::NOT_IMPLEMENTED;
    let message = format!("a dry run sends only what the server can be asked to try, and not this: {path}");
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": "NotImplemented", "code": code.as_u16(),
    });
    let mut answer = Response::new(Body::from(body.to_string().into_bytes()));
    *answer.status_mut() = code;
    answer.headers_mut().insert(header::CONTENT_TYPE, JSON);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    // W30
    #[test]
    fn a_write_that_is_repeated_on_a_later_state_is_the_same_write() {
        let is_same = |one: &str, other: &str| intent(one.as_bytes()) == intent(other.as_bytes());
        let applied = r#"{"metadata":{"name":"a","uid":"1"},"data":{}}"#;
        assert!(is_same(applied, r#"{"metadata":{"name":"a","resourceVersion":"7"},"data":{}}"#));
        let removed =
            r#"[{"op":"test","path":"/metadata/resourceVersion","value":"7"},{"op":"remove","path":"/x"}]"#;
        assert!(is_same(removed, r#"[{"op":"remove","path":"/x"}]"#));
        assert!(!is_same(r#"{"data":{"x":"1"}}"#, r#"{"data":{"x":"2"}}"#));
        assert!(!is_same("data: {x: 1}", "data: {x: 2}"));
    }

    fn request(method: Method, path: &str, body: &str) -> (Parts, Bytes) {
        let request = Request::builder().method(method).uri(path).body(()).unwrap();
        (request.into_parts().0, Bytes::from(body.to_owned()))
    }

    // W27
    #[tokio::test]
    async fn a_write_is_sent_as_a_trial_by_its_query_and_a_deletion_by_its_body_too() {
        let pods = "/api/v1/namespaces/shop/pods";
        for (method, path, body, uri, sent) in [
            (Method::POST, pods, "{}", "?dryRun=All", "{}"),
            (Method::PATCH, "/api/v1/nodes/n/status?force=true", "{}", "?force=true&dryRun=All", "{}"),
            (Method::POST, "/api/v1/namespaces/shop/pods/a/eviction", "{}", "?dryRun=All", "{}"),
            (Method::DELETE, "/api/v1/namespaces/shop/pods/a", "", "?dryRun=All", ""),
            (
                Method::DELETE,
                pods,
                r#"{"propagationPolicy":"Orphan"}"#,
                "?dryRun=All",
                r#"{"dryRun":["All"],"propagationPolicy":"Orphan"}"#,
            ),
        ] {
            let (head, body) = request(method, path, body);
            let (_, trial) = tried(&head, &body).unwrap();
            let (trial, body) = trial.into_parts();
            assert!(trial.uri.to_string().ends_with(uri), "{} for {path}", trial.uri);
            let body: Option<Value> = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).ok();
            assert_eq!(body, serde_json::from_str(sent).ok(), "{path}");
        }
    }

    // W27
    #[test]
    fn what_a_server_may_do_for_good_is_not_sent() {
        let pod = "/api/v1/namespaces/shop/pods/a";
        for (method, path, body) in [
            (Method::POST, format!("{pod}/exec"), ""),
            (Method::POST, format!("{pod}/proxy"), ""),
            (Method::DELETE, format!("{pod}/proxy/things/1"), ""),
            (Method::POST, format!("{pod}/%65xec"), ""),
            (Method::POST, format!("{pod}%2Fexec"), ""),
            (Method::POST, format!("/{pod}/exec"), ""),
            (Method::PUT, "/apis/subresources.example.dev/v1/namespaces/shop/machines/a/start".into(), ""),
            (Method::POST, "/healthz".into(), ""),
            (Method::DELETE, pod.into(), "k8s\0 in protobuf"),
            (Method::from_bytes(b"PURGE").unwrap(), pod.into(), ""),
        ] {
            let (head, body) = request(method, &path, body);
            assert!(tried(&head, &body).is_none(), "{path} is sent");
        }
        let reads = |path: &str| only_reads(&Request::get(path).body(Body::empty()).unwrap());
        for path in ["pods/a/proxy", "services/web/proxy/stop", "pods/a/%70roxy"] {
            assert!(!reads(&format!("/api/v1/namespaces/shop/{path}")), "{path} is sent");
        }
        assert!(!reads("/api/v1/nodes/one/proxy/pods"));
        for path in
            ["/api/v1/namespaces/shop/configmaps/proxy", "/api/v1/nodes/proxy", "/apis/proxy/v1/proxies"]
        {
            assert!(reads(path), "{path} is not sent");
        }
    }
}
