//! A dry run: each write goes to the server with `dryRun=All`, which does all but store it, and is logged with its diff.
//!
//! What the server may do for good in spite of that option is refused here, and not sent.

mod diff;
mod place;

use std::{
    collections::HashMap,
    fmt,
    future::Future,
    hash::{BuildHasher, RandomState},
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header, request::Parts, uri::PathAndQuery};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::timeout;

use self::place::Place;

/// How long the server may take to say what is there.
const DEADLINE: Duration = Duration::from_secs(30);
/// Of how many objects it is remembered what was said last.
const MOST: usize = 4_096;

/// Whether a manager's client writes, or only tries to; all clones of that client share it.
#[derive(Default)]
pub(super) struct DryRun {
    on: AtomicBool,
    /// The first write that was sent before.
    sent: OnceLock<String>,
    /// The server stores what it is asked to try: nothing more is sent to it.
    stores: AtomicBool,
    /// What was logged about each object last, as a digest: the same is not logged again.
    said: Mutex<HashMap<String, u64>>,
    hasher: RandomState,
}

/// What is there before a write, as far as it could be read.
enum Before {
    Object(Value),
    Nothing,
    Unknown,
}

impl DryRun {
    /// Begins it, for clones of the client that were made before too.
    pub(super) fn begin(&self) {
        self.on.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Returns a write that was sent before it began.
    pub(super) fn written_before(&self) -> Option<&str> {
        self.sent.get().map(String::as_str)
    }

    /// Sends a request that reads as it is, and any other so that nothing comes of it.
    pub(super) async fn send<F>(
        &self,
        send: impl Fn(Request<Body>) -> F,
        request: Request<Body>,
    ) -> kube::Result<Response<Body>>
    where
        F: Future<Output = kube::Result<Response<Body>>>,
    {
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
            Some((place, trial)) => self.attempt(&send, &head, place, trial).await,
            None => Ok(refusal(&head)),
        }
    }

    async fn attempt<F>(
        &self,
        send: &impl Fn(Request<Body>) -> F,
        head: &Parts,
        place: Place,
        trial: Request<Body>,
    ) -> kube::Result<Response<Body>>
    where
        F: Future<Output = kube::Result<Response<Body>>>,
    {
        let before = match &place.object_path() {
            Some(path) => find(send, path, head).await,
            None => Before::Nothing,
        };
        let (answered, body) = send(trial).await?.into_parts();
        let bytes = body.collect().await?.to_bytes();
        if answered.status.is_success() {
            let after = serde_json::from_slice::<Value>(&bytes).ok();
            let created = answered.status == StatusCode::CREATED && place.subresource.is_none();
            let version = after.as_ref().and_then(|after| after["metadata"]["resourceVersion"].as_str());
            if created && version.is_some_and(|version| !version.is_empty()) {
                self.stores.store(true, Ordering::Relaxed);
                tracing::error!(object = %place, "the server stored what it was to try only: no further write is sent");
                return Ok(refusal(head));
            }
            self.say(&place, verb(head, &place), diff_of(head, &place, &before, after));
        }
        Ok(Response::from_parts(answered, Body::from(bytes.to_vec())))
    }

    /// Logs what would be written, unless it changes nothing, or the same was logged about the object last.
    fn say(&self, place: &Place, verb: &str, diff: Option<Vec<String>>) {
        if diff.as_ref().is_some_and(Vec::is_empty) {
            return tracing::debug!(object = %place, verb, "dry run: nothing would change");
        }
        let (object, diff) = (place.to_string(), diff.map_or("not known".to_owned(), |diff| diff.join("; ")));
        let digest = self.hasher.hash_one((verb, &diff));
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() >= MOST {
            said.clear();
        }
        let again = said.insert(object.clone(), digest) == Some(digest);
        drop(said);
        match again {
            true => tracing::debug!(object, verb, "dry run: not written, as before"),
            false => tracing::info!(object, verb, diff, "dry run: not written"),
        }
    }
}

impl fmt::Debug for DryRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DryRun").field("on", &self.is_on()).finish_non_exhaustive()
    }
}

/// Returns whether a request changes nothing: reviews are asked by POST, and commands are run by GET.
fn only_reads(request: &Request<Body>) -> bool {
    let (method, path) = (request.method(), request.uri().path());
    let upgrades = request.headers().contains_key(header::UPGRADE);
    let reviews = ["/apis/authorization.k8s.io/", "/apis/authentication.k8s.io/"];
    let asks = *method == Method::POST && reviews.iter().any(|group| path.starts_with(group));
    ([Method::GET, Method::HEAD, Method::OPTIONS].contains(method) && !upgrades && !is_proxied(path)) || asks
}

/// Returns whether a path leads to a program behind a pod, service or node: it may act on a GET as well.
fn is_proxied(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    let (["", "api", _, "namespaces", _, _, _, subresource, ..] | ["", "api", _, _, _, subresource, ..]) =
        *parts
    else {
        return false;
    };
    // An encoded letter could hide it.
    subresource == "proxy" || subresource.contains('%')
}

/// Makes the trial of a write, and says what it is about; `None` where the server might not keep to a trial.
fn tried(head: &Parts, body: &Bytes) -> Option<(Place, Request<Body>)> {
    let path = head.uri.path();
    let place = Place::of(path).filter(Place::can_be_tried)?;
    let known = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE].contains(&head.method);
    if !known || head.headers.contains_key(header::UPGRADE) {
        return None;
    }
    let mut request = Request::from_parts(head.clone(), ());
    let query = head.uri.query().map_or_else(String::new, |query| format!("{query}&"));
    let mut uri = head.uri.clone().into_parts();
    uri.path_and_query = Some(PathAndQuery::try_from(format!("{path}?{query}dryRun=All")).ok()?);
    *request.uri_mut() = uri.try_into().ok()?;
    request.headers_mut().remove(header::CONTENT_LENGTH);
    let place = match head.method {
        Method::POST if place.name.is_none() => {
            let object = serde_json::from_slice::<Value>(body).unwrap_or_default();
            let name = object["metadata"]["name"].as_str().filter(|name| !name.is_empty());
            name.map_or(place.clone(), |name| place.with_name(name))
        }
        _ => place,
    };
    let body = match head.method {
        Method::DELETE => {
            // Where a deletion has a body, the options in its query do not count.
            request.headers_mut().insert(header::CONTENT_TYPE, JSON);
            deletion(body)?
        }
        _ => body.to_vec(),
    };
    Some((place, request.map(|()| Body::from(body))))
}

const JSON: header::HeaderValue = header::HeaderValue::from_static("application/json");

/// Adds to the options of a deletion that it is a trial.
fn deletion(body: &[u8]) -> Option<Vec<u8>> {
    let empty = || json!({ "kind": "DeleteOptions", "apiVersion": "v1" });
    let mut options = match body.is_empty() {
        true => empty(),
        false => serde_json::from_slice::<Value>(body).ok()?,
    };
    options.as_object_mut()?.insert("dryRun".to_owned(), json!(["All"]));
    Some(options.to_string().into_bytes())
}

/// Asks the server what is there, in the form in which the write is to be answered.
async fn find<F>(send: &impl Fn(Request<Body>) -> F, path: &str, head: &Parts) -> Before
where
    F: Future<Output = kube::Result<Response<Body>>>,
{
    let accept = head.headers.get(header::ACCEPT).cloned().unwrap_or(JSON);
    let Ok(request) = Request::get(path).header(header::ACCEPT, accept).body(Body::empty()) else {
        return Before::Unknown;
    };
    let asked = async {
        let (head, body) = send(request).await.ok()?.into_parts();
        Some((head.status, body.collect().await.ok()?.to_bytes()))
    };
    match timeout(DEADLINE, asked).await {
        Ok(Some((StatusCode::NOT_FOUND, _))) => Before::Nothing,
        Ok(Some((status, bytes))) if status.is_success() => {
            serde_json::from_slice(&bytes).map_or(Before::Unknown, Before::Object)
        }
        _ => Before::Unknown,
    }
}

fn verb(head: &Parts, place: &Place) -> &'static str {
    let media_type = head.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    match head.method {
        Method::POST if place.subresource.as_deref() == Some("eviction") => "evict",
        Method::POST => "create",
        Method::PUT => "update",
        Method::DELETE if place.name.is_none() => "deletecollection",
        Method::DELETE => "delete",
        _ if media_type.is_some_and(|it| it.starts_with("application/apply-patch")) => "apply",
        _ => "patch",
    }
}

/// Lists what a write would change; `None` where that can't be told.
fn diff_of(head: &Parts, place: &Place, before: &Before, after: Option<Value>) -> Option<Vec<String>> {
    let before = match before {
        Before::Object(object) => object,
        Before::Nothing => &Value::Null,
        Before::Unknown => return None,
    };
    if head.method == Method::DELETE {
        let all = || vec!["- all that is selected".to_owned()];
        return Some(if place.name.is_some() { diff::lines(place, before, &Value::Null) } else { all() });
    }
    let mut after = after.filter(|after| after["kind"] != "Status" && after["metadata"].is_object())?;
    if place.name.is_none()
        && let Some(meta) = after["metadata"].as_object_mut()
    {
        // The server chose it, and chooses another one for each.
        meta.remove("name");
    }
    // A scale is another form of its object.
    let same_form = before.is_null() || before["kind"] == after["kind"];
    same_form.then(|| diff::lines(place, before, &after))
}

/// Answers for the server.
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
            (
                Method::DELETE,
                "/api/v1/namespaces/shop/pods/a",
                "",
                "?dryRun=All",
                r#"{"apiVersion":"v1","dryRun":["All"],"kind":"DeleteOptions"}"#,
            ),
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
            let body: Value = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap();
            assert_eq!(body, serde_json::from_str::<Value>(sent).unwrap(), "{path}");
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
