//! Reviews: who am I, and what may I; answered and never stored.

use bytes::Bytes;
use http::{Method, Response};
use serde_json::{Value, json};

use super::{ApiRequest, User, access, answer, binary};
use crate::apply::{UpdateInput, track_update};
use crate::object;
use crate::route::{Query, RequestInfo};
use crate::schema::Schema;
use crate::state::State;
use crate::status::{Cause, Status};
use crate::write::WriteOptions;

/// Answers a review, or says by `None` that the request is none.
///
/// # Errors
/// 405 for all but POST, 400 and 422 for bodies that ask nothing, 403 for the anonymous.
pub(super) fn review(
    state: &State,
    request: &ApiRequest,
    info: &RequestInfo,
) -> Result<Option<Response<Bytes>>, Status> {
    type Answer = fn(&State, &User, &Value) -> Result<Value, Status>;
    let (kind, answer): (_, Answer) =
        match (info.group.as_str(), info.version.as_str(), info.resource.as_str()) {
            ("authentication.k8s.io", "v1", "selfsubjectreviews") => ("SelfSubjectReview", who),
            ("authorization.k8s.io", "v1", "selfsubjectaccessreviews") => ("SelfSubjectAccessReview", may),
            ("authorization.k8s.io", "v1", "selfsubjectrulesreviews") => ("SelfSubjectRulesReview", rules),
            _ => return Ok(None),
        };
    if request.user == User::Anonymous {
        access::check(state, &request.user, &request.method, info)?;
    }
    if request.method != Method::POST || !info.subresource.is_empty() || info.name.is_some() {
        return Err(Status::method_not_allowed());
    }
    let expected = object::api_version(&info.group, &info.version);
    let bytes = &binary::json_of(request, (&expected, kind))?.body;
    let body: Value = if bytes.is_empty() { Value::Null } else { parse(bytes)? };
    let mut answered = answer(state, &request.user, &body)?;
    if kind == "SelfSubjectAccessReview" {
        track(state, request, &mut answered)?;
    }
    Ok(Some(answer::json(201, Bytes::from(answered.to_string()))))
}

/// Notes who has asked what.
fn track(state: &State, request: &ApiRequest, review: &mut Value) -> Result<(), Status> {
    let agent = request
        .headers
        .get(http::header::USER_AGENT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let options = WriteOptions::read(&Query::of(&request.uri), agent, "CreateOptions")?;
    if let Some(schema) = Schema::builtin("authorization.k8s.io", "v1", "SelfSubjectAccessReview") {
        track_update(UpdateInput {
            live: None,
            new: review,
            manager: &options.manager,
            subresource: None,
            api_version: "authorization.k8s.io/v1",
            schema: &schema,
            ignored: &["status"],
            now: &state.clock.seconds(),
        });
    }
    Ok(())
}

fn parse(body: &[u8]) -> Result<Value, Status> {
    serde_yaml_ng::from_slice(body)
        .map_err(|error| Status::bad_request(format!("error decoding the review: {error}")))
}

fn who(state: &State, user: &User, _: &Value) -> Result<Value, Status> {
    let groups = match user {
        User::Admin => vec!["system:masters".to_owned(), "system:authenticated".to_owned()],
        User::Named { groups, .. } => groups.clone(),
        User::Anonymous => vec!["system:unauthenticated".to_owned()],
    };
    let name = access::name(user);
    Ok(json!({
        "kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"creationTimestamp": state.clock.seconds()},
        "status": {"userInfo": {"username": name, "uid": name, "groups": groups}},
    }))
}

fn may(state: &State, user: &User, body: &Value) -> Result<Value, Status> {
    let spec = &body["spec"];
    let text = |attributes: &Value, key: &str| attributes[key].as_str().unwrap_or_default().to_owned();
    let allowed = match (&spec["resourceAttributes"], &spec["nonResourceAttributes"]) {
        (resource @ Value::Object(_), Value::Null) => {
            let plural = match text(resource, "subresource").as_str() {
                "" => text(resource, "resource"),
                subresource => format!("{}/{subresource}", text(resource, "resource")),
            };
            let namespace = Some(text(resource, "namespace")).filter(|namespace| !namespace.is_empty());
            access::grants(state, user, (&text(resource, "verb"), &plural), namespace.as_deref())
        }
        (Value::Null, path @ Value::Object(_)) => {
            text(path, "verb") == "get" && access::reads(user, &text(path, "path"))
        }
        _ => {
            let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            let cause = Cause::invalid("spec.resourceAttributes", "null", why);
            return Err(Status::invalid("authorization.k8s.io", "", "", &[cause]));
        }
    };
    Ok(json!({
        "kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1",
        "metadata": {}, "spec": spec, "status": {"allowed": allowed},
    }))
}

fn rules(state: &State, user: &User, body: &Value) -> Result<Value, Status> {
    let mut resources = vec![
        json!({"verbs": ["create"], "apiGroups": ["authorization.k8s.io"],
               "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]}),
        json!({"verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"]}),
    ];
    resources.extend(
        access::granted(state, user, body["spec"]["namespace"].as_str().unwrap_or_default())
            .into_iter()
            .map(|(verb, resource)| json!({"verbs": [verb], "apiGroups": ["*"], "resources": [resource]})),
    );
    let paths = json!([{"verbs": ["get"], "nonResourceURLs": [
        "/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz",
        "/version", "/version/",
    ]}]);
    Ok(json!({
        "kind": "SelfSubjectRulesReview", "apiVersion": "authorization.k8s.io/v1", "metadata": {}, "spec": {},
        "status": {"resourceRules": resources, "nonResourceRules": paths, "incomplete": false},
    }))
}
