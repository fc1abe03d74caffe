//! The answer to one request on the webhook port, as a function of path, query and body.

use std::{collections::BTreeMap, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::FutureExt;
use http::{HeaderValue, Response, StatusCode, header};
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use tokio::{sync::watch, time::timeout};

use super::{
    admit::{HandlerFailure, Verdict},
    calls::{Calls, FailurePolicy},
    conversion_review::{self, ObjectTexts},
    hooks::{AdmissionHook, CONVERSION_PATH, Purpose, STATUS},
    json_patch::json_patch,
    request::{Operation, Request as Asked},
};
use crate::{
    metrics::{Decided, WebhookMetrics},
    plain::plain,
    users_code::{contained, discard, may_block},
    versions::Convert,
};

/// Most bytes of a review of an object: the API server takes objects of 3 MiB, and sends the old one too.
pub(crate) const MOST_OF_AN_OBJECT: usize = 8 << 20;
/// Most bytes of a conversion: an API server sends a list whole.
pub(crate) const MOST_OF_A_LIST: usize = 128 << 20;
/// How long a call may take if the API server does not say so.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest that an API server waits.
const LONGEST: Duration = Duration::from_secs(30);
/// The part of the time that is kept for the answer's way.
const RESERVE: u32 = 10;

/// The answer to a request: a status, and a body that is JSON unless it is an error in plain text.
#[derive(Clone, Debug, PartialEq)]
pub struct WebhookResponse {
    /// The HTTP status: 200 for every review that can be answered.
    pub code: StatusCode,
    /// The review with the response, or a text that says what is wrong.
    pub body: Value,
}

impl WebhookResponse {
    fn refused(code: StatusCode, why: impl Into<String>) -> Self {
        Self { code, body: Value::String(why.into()) }
    }

    fn answered(body: Value) -> Self {
        Self { code: StatusCode::OK, body }
    }

    /// Writes it as an HTTP response.
    pub(crate) fn into_http(self) -> Response<Bytes> {
        let Self { code, body } = self;
        let (kind, text) = match body {
            Value::String(text) => ("text/plain; charset=utf-8", format!("{text}\n")),
            body => ("application/json", body.to_string()),
        };
        let mut response = Response::new(Bytes::from(text));
        *response.status_mut() = code;
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        response
    }
}

/// Returns the most bytes that a body may have at a path.
pub(crate) fn most_bytes(path: &str) -> usize {
    if path == CONVERSION_PATH { MOST_OF_A_LIST } else { MOST_OF_AN_OBJECT }
}

/// What answers requests.
#[derive(Clone, Default)]
pub(super) struct Handlers {
    /// By path.
    pub(super) hooks: BTreeMap<String, Arc<AdmissionHook>>,
    /// By group and kind.
    pub(super) conversions: BTreeMap<(String, String), Arc<dyn Convert>>,
    /// Whether handlers may run that read caches.
    pub(super) synced: watch::Sender<bool>,
    pub(super) metrics: Option<WebhookMetrics>,
}

impl Handlers {
    /// Answers a request; see [`Webhooks::handle`](super::Webhooks::handle).
    pub(super) async fn handle(&self, path: &str, query: &str, body: &[u8]) -> WebhookResponse {
        // Callers choose paths: those that are not known are not labels.
        let known = path == CONVERSION_PATH || self.hooks.contains_key(path);
        let call = self.metrics.as_ref().filter(|_| known).map(|metrics| metrics.begin(path));
        let answer = AssertUnwindSafe(self.answer(path, query, body)).catch_unwind().await;
        let answer = answer.unwrap_or_else(|payload| {
            discard(payload);
            WebhookResponse::refused(StatusCode::INTERNAL_SERVER_ERROR, "the webhook panicked")
        });
        call.inspect(|call| call.answered(answer.code.as_u16()));
        answer
    }

    fn decided(&self, path: &str, decided: Decided) {
        self.metrics.iter().for_each(|metrics| metrics.decided(path, decided));
    }

    async fn answer(&self, path: &str, query: &str, body: &[u8]) -> WebhookResponse {
        let hook = self.hooks.get(path);
        if hook.is_none() && path != CONVERSION_PATH {
            return WebhookResponse::refused(
                StatusCode::NOT_FOUND,
                format!("no webhook is at {}", plain(path)),
            );
        }
        if body.len() > most_bytes(path) {
            let why = format!("a review has {} bytes at most", most_bytes(path));
            return WebhookResponse::refused(StatusCode::PAYLOAD_TOO_LARGE, why);
        }
        let bad = |why: String| WebhookResponse::refused(StatusCode::BAD_REQUEST, why);
        let parsed = may_block(|| match hook {
            Some(_) => serde_json::from_slice(body).map(|review| (review, None)),
            None => conversion_review::read(body),
        });
        let (mut review, objects): (Value, ObjectTexts<'_>) = match parsed {
            Ok(parsed) => parsed,
            Err(error) => return bad(format!("the body is not a review: {error}")),
        };
        let (group, kind) = match hook {
            Some(_) => ("admission.k8s.io/v1", "AdmissionReview"),
            None => ("apiextensions.k8s.io/v1", "ConversionReview"),
        };
        if review["apiVersion"] != group || review["kind"] != kind {
            let found = format!("{} {}", review["apiVersion"], review["kind"]);
            return bad(format!("this path takes {group} {kind}, and this is {}", plain(&found)));
        }
        let request = review["request"].take();
        if request["uid"].as_str().is_none_or(str::is_empty) {
            return bad("the review has no request with a uid".to_owned());
        }
        let response = match hook {
            Some(hook) => self.admit(hook, request, deadline(query)).await,
            None => {
                let response = may_block(|| self.convert(&request, objects));
                let succeeded = response["result"]["status"] == "Success";
                self.decided(path, if succeeded { Decided::Allowed } else { Decided::Failed });
                response
            }
        };
        WebhookResponse::answered(json!({"apiVersion": group, "kind": kind, "response": response}))
    }

    /// Returns what converts the objects of a kind.
    pub(super) fn conversion_of(&self, group: &str, kind: &str) -> Option<&Arc<dyn Convert>> {
        self.conversions.get(&(group.to_owned(), kind.to_owned()))
    }

    async fn admit(&self, hook: &AdmissionHook, request: Value, deadline: Duration) -> Value {
        let uid = request["uid"].clone();
        let object = request["name"].as_str().unwrap_or_default().to_owned();
        let status = |failure: &HandlerFailure| failure.status(&hook.name(), &object, &hook.kind);
        let deadline = deadline.min(hook.calls.timeout - hook.calls.timeout / RESERVE);
        let path = hook.path();
        let request = match self.readable(hook, request) {
            Ok(request) => request,
            Err(failure) => {
                self.decided(&path, Decided::Failed);
                return refused(&uid, status(&failure), Vec::new());
            }
        };
        // To refuse that would keep the object for ever, and no handler can be wanted for it.
        if request.only_takes_finalizers_off() {
            self.decided(&path, Decided::Allowed);
            return json!({"uid": uid, "allowed": true});
        }
        let is_validated = self.is_validated_after(hook, &request);
        let is_deletion = request.operation == Operation::Delete && request.old_object.is_some();
        let verdict = timeout(deadline, async {
            if hook.calls.reads_caches {
                let synced = self.synced.subscribe().wait_for(|synced| *synced).await.map(drop);
                synced
                    .map_err(|_| failure(503, "ServiceUnavailable", "the program is stopping".to_owned()))?;
            }
            self.all(hook, request).await
        });
        let failed = match verdict.await {
            Ok(Ok(verdict)) => {
                let refusal = verdict.findings.status(&object, &hook.kind);
                self.decided(&path, if refusal.is_none() { Decided::Allowed } else { Decided::Refused });
                return decided(&uid, verdict, refusal);
            }
            // The API server names all mistakes that its schema knows, and a validator refuses what is left.
            Ok(Err(failed)) if failed.unreadable.is_some() && is_validated => {
                self.decided(&path, Decided::Allowed);
                return json!({"uid": uid, "allowed": true});
            }
            Ok(Err(failed)) => failed,
            Err(_) if hook.calls.reads_caches && !*self.synced.borrow() => {
                failure(504, "Timeout", "caches have not synced yet".to_owned())
            }
            Err(_) => failure(504, "Timeout", format!("no answer within {deadline:?}")),
        };
        self.decided(&path, Decided::Failed);
        // The policy is for failures of the program: what can't be read is refused in any case. But it is not a mistake of those
        // who delete it, and a namespace could not go otherwise.
        if hook.calls.failure_policy == FailurePolicy::Ignore && (failed.code >= 500 || is_deletion) {
            let warning = format!("{}: {failed}: allowed without it", hook.name());
            return json!({"uid": uid, "allowed": true, "warnings": [warning]});
        }
        refused(&uid, status(&failed), Vec::new())
    }

    /// Returns whether a validator must allow every object that a defaulter gets: it then refuses those that can't be read.
    fn is_validated_after(&self, hook: &AdmissionHook, request: &Asked) -> bool {
        let must_allow = |other: &AdmissionHook| {
            let Calls { operations, failure_policy, conditions, status, .. } = &other.calls;
            let is_of_kind = other.kind.group == hook.kind.group && other.kind.plural == hook.kind.plural;
            other.purpose == Purpose::Validates
                && is_of_kind
                && *failure_policy == FailurePolicy::Fail
                && operations.contains(&request.operation)
                && (*status || request.subresource().is_none())
                && conditions.is_empty()
        };
        hook.purpose == Purpose::Defaults && self.hooks.values().any(|other| must_allow(other))
    }

    /// Converts the objects of a review; one that can't be converted fails the review, which names it.
    fn convert(&self, request: &Value, objects: ObjectTexts<'_>) -> Value {
        let uid = request["uid"].clone();
        let failed = |why: String| json!({"uid": uid, "convertedObjects": [], "result": {"status": "Failed", "message": why}});
        let Some(wanted) = request["desiredAPIVersion"].as_str().map(str::to_owned) else {
            return failed("the request has no desiredAPIVersion".to_owned());
        };
        let Some(objects) = objects else { return failed("the request has no objects".to_owned()) };
        let group = wanted.split_once('/').map_or("", |(group, _)| group);
        let mut converted = Vec::with_capacity(objects.len());
        for raw in &objects {
            let object = match conversion_review::object(raw) {
                Ok(object) => object,
                Err(why) => {
                    tracing::warn!(%why, "a request for {} objects fails", objects.len());
                    return failed(why);
                }
            };
            let kind = object["kind"].as_str().unwrap_or_default();
            let Some(conversion) = self.conversion_of(group, kind) else {
                let why = format!("this program does not convert {} of {}", plain(kind), plain(&wanted));
                return failed(why);
            };
            let outcome = contained(|| conversion.convert(&object, &wanted));
            match outcome {
                Some(Ok(object)) => converted.push(object),
                Some(Err(error)) => {
                    let (key, field) = (&error.key, plain(&error.field));
                    tracing::warn!(
                        kind, object = %key, from = %plain(&error.api_version), to = %plain(&wanted), %field,
                        "an object can't be converted, so a request for {} objects fails", objects.len()
                    );
                    return failed(error.to_string());
                }
                None => return failed(format!("the conversion of a {} panicked", plain(kind))),
            }
        }
        json!({"uid": uid, "convertedObjects": converted, "result": {"status": "Success"}})
    }

    /// Runs the handlers of a hook: first those of the version that the user wrote.
    ///
    /// If these refuse, those of other versions are not asked: they name fields that the user did not write.
    async fn all(&self, hook: &AdmissionHook, mut request: Asked) -> Result<Verdict, HandlerFailure> {
        let raw = request.object.take().filter(|raw| !raw.is_null());
        let sent = raw.as_ref().or(request.old_object.as_ref());
        let sent = sent.and_then(|object| object["apiVersion"].as_str()).unwrap_or_default().to_owned();
        request.object = raw.clone();
        let mut whole = Verdict::default();
        let (own, others): (Vec<_>, Vec<_>) =
            hook.handlers.iter().partition(|handler| handler.api_version() == sent);
        for handlers in [own, others] {
            for handler in handlers {
                let version = handler.api_version();
                let shown =
                    |object: Option<Value>| object.map(|object| self.shown(object, &version)).transpose();
                request.object = shown(request.object.take())?;
                request.old_object = match shown(request.old_object.take()) {
                    // As one that can't be read: a user must be able to put it right.
                    Err(_) if request.operation == Operation::Update => Some("can't be converted".into()),
                    // That it can't be read is not a mistake of this user.
                    old => old.map_err(|failure| HandlerFailure { unreadable: None, ..failure })?,
                };
                let verdict = handler.admit(&request).await?;
                whole.findings.add(verdict.findings);
                request.object = verdict.defaulted.or(request.object);
            }
            if !whole.findings.is_ok() {
                return Ok(whole);
            }
        }
        if hook.purpose == Purpose::Defaults
            && let (Some(raw), Some(object)) = (raw, request.object)
        {
            let shown = self.shown(object, &sent);
            // The program made it.
            let shown = shown.map_err(|failure| HandlerFailure { code: 500, ..failure })?;
            whole.patch = json_patch(&raw, &shown);
        }
        Ok(whole)
    }

    /// Converts an object to the version of a handler, if it is in another one.
    fn shown(&self, object: Value, version: &str) -> Result<Value, HandlerFailure> {
        let text = |name: &str| object[name].as_str().unwrap_or_default();
        let given = text("apiVersion");
        if given == version || given.is_empty() {
            return Ok(object);
        }
        let group = given.split_once('/').map_or("", |(group, _)| group);
        let Some(conversion) = self.conversion_of(group, text("kind")) else {
            let why = format!(
                "the object is of {}, and this program does not convert it to {version}",
                plain(given)
            );
            return Err(HandlerFailure::bad(why));
        };
        let failed = |why: String| HandlerFailure::bad(format!("the object can't be converted: {why}"));
        match contained(|| conversion.convert(&object, version)) {
            Some(Ok(object)) => Ok(object),
            Some(Err(error)) => Err(failed(error.to_string()).at(&error.field, &object, &error.why)),
            None => Err(HandlerFailure { code: 500, ..failed("the conversion panicked".to_owned()) }),
        }
    }

    /// Reads a request that a webhook can decide about.
    ///
    /// The user may have written any version of the kind: handlers of another one see it converted.
    fn readable(&self, hook: &AdmissionHook, request: Value) -> Result<Asked, HandlerFailure> {
        let request: Asked = serde_json::from_value(request)
            .map_err(|error| HandlerFailure::bad(format!("the request can't be read: {error}")))?;
        let (kind, found) = (&hook.kind, &request.kind);
        let is_known = || {
            let conversion = self.conversion_of(&found.group, &found.kind);
            conversion.is_some_and(|conversion| conversion.versions().contains(&&*found.version))
        };
        let is_of_kind = found.group == kind.group && found.kind == kind.kind;
        if !is_of_kind || (found.version != kind.version && !is_known()) {
            let why = format!("this webhook decides about {} {}, not {found}", kind.api_version(), kind.kind);
            return Err(HandlerFailure::bad(why));
        }
        let is_taken = match request.subresource() {
            None => true,
            Some(subresource) => hook.calls.status && subresource == STATUS,
        };
        if request.operation == Operation::Connect || !is_taken {
            let what = request.subresource().unwrap_or(request.operation.as_str());
            let why = format!("this webhook does not decide about {}", plain(what));
            return Err(HandlerFailure::bad(why));
        }
        Ok(request)
    }
}

fn failure(code: u16, reason: &'static str, why: String) -> HandlerFailure {
    HandlerFailure { code, reason, why, unreadable: None }
}

fn decided(uid: &Value, verdict: Verdict, refusal: Option<Value>) -> Value {
    let warnings = verdict.findings.warnings;
    if let Some(refusal) = refusal {
        return refused(uid, refusal, warnings);
    }
    let mut response = json!({"uid": uid, "allowed": true});
    if !warnings.is_empty() {
        response["warnings"] = json!(warnings);
    }
    if !verdict.patch.is_empty() {
        let text = Value::Array(verdict.patch).to_string();
        response["patchType"] = "JSONPatch".into();
        response["patch"] = json!(ByteString(text.into_bytes()));
    }
    response
}

fn refused(uid: &Value, status: Value, warnings: Vec<String>) -> Value {
    let mut response = json!({"uid": uid, "allowed": false, "status": status});
    if !warnings.is_empty() {
        response["warnings"] = json!(warnings);
    }
    response
}

/// Reads `timeout=10s`, and keeps a part of it for the way of the answer.
fn deadline(query: &str) -> Duration {
    let given = query.split('&').find_map(|pair| pair.strip_prefix("timeout="));
    let whole = given.and_then(go_duration).unwrap_or(TIMEOUT).min(LONGEST);
    whole - whole / RESERVE
}

/// Reads a duration as Go writes it, such as `1m30s` or `500ms`.
fn go_duration(text: &str) -> Option<Duration> {
    let (mut rest, mut whole) = (text, Duration::ZERO);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        let unit = &rest[digits..];
        let end = unit.find(|c: char| c.is_ascii_digit()).unwrap_or(unit.len());
        let seconds = match &unit[..end] {
            "h" => 3_600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        whole = whole.checked_add(Duration::try_from_secs_f64(number * seconds).ok()?)?;
        rest = &unit[end..];
    }
    (!text.is_empty()).then_some(whole)
}

#[cfg(test)]
#[path = "handle_tests.rs"]
mod tests;
