//! Reviews of identity and access; answered and never stored.

use bytes::Bytes;
use http::{Method, Response};
use serde_json::{Value, json};

use super::{ApiRequest, answer, binary, service_tokens};
use crate::apply::{UpdateInput, track_update};
use crate::authz::{Attributes, Decision, check, decide, held_rules};
use crate::identity::User;
use crate::limits;
use crate::object;
use crate::route::{Query, RequestInfo};
use crate::schema::Schema;
use crate::state::{Authorization, State};
use crate::status::{Cause, Status};
use crate::write::WriteOptions;

/// Answers a review; `None` for other requests.
///
/// # Errors
/// 405 for all but POST, 400 and 422 for incomplete bodies, 403 for users who may not ask.
pub(super) fn review(
    state: &State,
    request: &ApiRequest,
    info: &RequestInfo,
) -> Result<Option<Response<Bytes>>, Status> {
    type Answer = fn(&State, &ApiRequest, &RequestInfo, &Value) -> Result<Value, Status>;
    let (kind, answer): (_, Answer) =
        match (info.group.as_str(), info.version.as_str(), info.resource.as_str()) {
            ("authentication.k8s.io", "v1", "selfsubjectreviews") => ("SelfSubjectReview", who),
            ("authentication.k8s.io", "v1", "tokenreviews") => ("TokenReview", whose),
            ("authorization.k8s.io", "v1", "selfsubjectaccessreviews") => ("SelfSubjectAccessReview", may_i),
            ("authorization.k8s.io", "v1", "selfsubjectrulesreviews") => ("SelfSubjectRulesReview", rules),
            ("authorization.k8s.io", "v1", "subjectaccessreviews") => ("SubjectAccessReview", may_they),
            ("authorization.k8s.io", "v1", "localsubjectaccessreviews") => {
                ("LocalSubjectAccessReview", may_they_here)
            }
            _ => return Ok(None),
        };
    check(state, &request.user, &Attributes::of(&request.method, info))?;
    if !info.subresource.is_empty() || info.name.is_some() {
        return Err(Status::no_such_resource());
    }
    if request.method != Method::POST {
        return Err(Status::method_not_allowed());
    }
    let expected = object::api_version(&info.group, &info.version);
    let bytes = &binary::json_of(request, (&expected, kind))?.body;
    let body: Value = if bytes.is_empty() { Value::Null } else { parse(bytes)? };
    let mut answered = answer(state, request, info, &body)?;
    if kind.ends_with("AccessReview") || kind == "TokenReview" {
        track(state, request, kind, &mut answered)?;
    }
    Ok(Some(answer::json(201, Bytes::from(answered.to_string()))))
}

/// Records a review.
fn track(state: &State, request: &ApiRequest, kind: &str, review: &mut Value) -> Result<(), Status> {
    let agent = request
        .headers
        .get(http::header::USER_AGENT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let options = WriteOptions::read(&Query::of(&request.uri), agent, "CreateOptions")?;
    let group = if kind == "TokenReview" { "authentication.k8s.io" } else { "authorization.k8s.io" };
    if let Some(schema) = Schema::builtin(group, "v1", kind) {
        track_update(UpdateInput {
            live: None,
            new: review,
            manager: &options.manager,
            subresource: None,
            api_version: &object::api_version(group, "v1"),
            schema: &schema,
            ignored: &["status"],
            now: &state.clock.seconds(),
        });
    }
    Ok(())
}

fn parse(body: &[u8]) -> Result<Value, Status> {
    limits::read_yaml(body)
        .map_err(|error| Status::bad_request(format!("error decoding the review: {error}")))
}

fn user_info(user: &User) -> Value {
    let mut info = json!({"username": user.name(), "groups": user.groups()});
    if !user.uid().is_empty() {
        info["uid"] = user.uid().into();
    }
    if let Some(extra) = user.extra() {
        info["extra"] = json!(extra);
    }
    info
}

/// Describes the user and the audiences of a token.
fn whose(state: &State, _: &ApiRequest, _: &RequestInfo, body: &Value) -> Result<Value, Status> {
    let token = body["spec"]["token"].as_str().unwrap_or_default();
    if token.is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    let asked: Vec<&str> =
        body["spec"]["audiences"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let status = match service_tokens::reviewed(state, token, &asked) {
        Ok((user, audiences)) => {
            json!({"authenticated": true, "user": user_info(&user), "audiences": audiences})
        }
        Err(why) => json!({"user": {}, "error": why}),
    };
    let mut metadata = body["metadata"].as_object().cloned().unwrap_or_default();
    metadata.retain(|key, _| matches!(key.as_str(), "name" | "labels" | "annotations"));
    Ok(json!({
        "kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "metadata": metadata,
        "spec": body["spec"], "status": status,
    }))
}

fn who(state: &State, request: &ApiRequest, _: &RequestInfo, _: &Value) -> Result<Value, Status> {
    let info = user_info(&request.user);
    Ok(json!({
        "kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"creationTimestamp": state.clock.seconds()},
        "status": {"userInfo": info},
    }))
}

fn may_i(state: &State, request: &ApiRequest, _: &RequestInfo, body: &Value) -> Result<Value, Status> {
    let asked = asked_for(&body["spec"]).map_err(|causes| refused(&causes))?;
    Ok(answered("SelfSubjectAccessReview", body, json!({}), decide(state, &request.user, &asked)))
}

fn may_they(state: &State, _: &ApiRequest, _: &RequestInfo, body: &Value) -> Result<Value, Status> {
    let (user, asked) = (subject(&body["spec"]), asked_for(&body["spec"]));
    let (user, asked) = both(user, asked)?;
    Ok(answered("SubjectAccessReview", body, json!({}), decide(state, &user, &asked)))
}

fn may_they_here(state: &State, _: &ApiRequest, info: &RequestInfo, body: &Value) -> Result<Value, Status> {
    let here = info.namespace.as_deref().unwrap_or_default();
    let (user, asked) = both(subject(&body["spec"]), asked_for(&body["spec"]))?;
    let given = object::namespace(body);
    let mut causes = Vec::new();
    if asked.path.is_some() {
        let why = "disallowed on this kind of request";
        let shown = body["spec"]["nonResourceAttributes"].to_string();
        causes.push(Cause::invalid("spec.nonResourceAttributes", &shown, why));
    } else if asked.namespace != given {
        let shown = format!("{:?}", asked.namespace);
        causes.push(Cause::invalid(
            "spec.resourceAttributes.namespace",
            &shown,
            "must match metadata.namespace",
        ));
    }
    if !causes.is_empty() {
        return Err(refused(&causes));
    }
    if here.is_empty() {
        return Err(Status::bad_request("namespace is required on this type: "));
    }
    if given != here {
        let why = format!("spec.resourceAttributes.namespace must match namespace: {here}");
        return Err(Status::bad_request(why));
    }
    let metadata = json!({ "namespace": here });
    Ok(answered("LocalSubjectAccessReview", body, metadata, decide(state, &user, &asked)))
}

fn refused(causes: &[Cause]) -> Status {
    Status::invalid("authorization.k8s.io", "", "", causes)
}

/// Returns what both are, or all that is wrong with either.
fn both<A, B>(first: Result<A, Vec<Cause>>, second: Result<B, Vec<Cause>>) -> Result<(A, B), Status> {
    match (first, second) {
        (Ok(first), Ok(second)) => Ok((first, second)),
        (first, second) => {
            let causes = [second.err().unwrap_or_default(), first.err().unwrap_or_default()].concat();
            Err(refused(&causes))
        }
    }
}

/// Reads whom a review is about; the groups are those given, and no others.
fn subject(spec: &Value) -> Result<User, Vec<Cause>> {
    let list = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let text = |key: &str| spec[key].as_str().unwrap_or_default().to_owned();
    let (name, groups) = (text("user"), list(&spec["groups"]));
    if name.is_empty() && groups.is_empty() {
        return Err(vec![Cause::invalid(
            "spec.user",
            "\"\"",
            "at least one of user or group must be specified",
        )]);
    }
    let extra = spec["extra"].as_object().into_iter().flatten();
    let extra = extra.map(|(key, values)| (key.clone(), list(values))).collect();
    Ok(User::Named { name, groups, uid: text("uid"), extra })
}

/// Reads the attributes of a review.
fn asked_for(spec: &Value) -> Result<Attributes, Vec<Cause>> {
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let text = |attributes: &Value, key: &str| attributes[key].as_str().unwrap_or_default().to_owned();
    match (resource.is_object(), path.is_object()) {
        (true, false) => Ok(Attributes {
            verb: text(resource, "verb"),
            group: text(resource, "group"),
            resource: text(resource, "resource"),
            subresource: text(resource, "subresource"),
            name: text(resource, "name"),
            namespace: text(resource, "namespace"),
            path: None,
        }),
        (false, true) => {
            let verb = text(path, "verb");
            Ok(Attributes { verb, path: Some(text(path, "path")), ..Attributes::default() })
        }
        (true, true) => {
            let why = "cannot be specified in combination with resourceAttributes";
            Err(vec![Cause::invalid("spec.nonResourceAttributes", &path.to_string(), why)])
        }
        (false, false) => {
            let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            Err(vec![Cause::invalid("spec.resourceAttributes", "null", why)])
        }
    }
}

fn answered(kind: &str, body: &Value, metadata: Value, decision: Decision) -> Value {
    let (allowed, reason) = match decision {
        Decision::Allowed(reason) => (true, reason),
        Decision::NoOpinion(reason) => (false, reason),
    };
    let mut status = json!({ "allowed": allowed });
    if !reason.is_empty() {
        status["reason"] = reason.into();
    }
    json!({
        "kind": kind, "apiVersion": "authorization.k8s.io/v1", "metadata": metadata, "spec": body["spec"],
        "status": status,
    })
}

fn rules(state: &State, request: &ApiRequest, _: &RequestInfo, body: &Value) -> Result<Value, Status> {
    let namespace = body["spec"]["namespace"].as_str().unwrap_or_default();
    if namespace.is_empty() && state.authorization == Authorization::Rbac {
        return Err(Status::bad_request("no namespace on request"));
    }
    let (resources, paths, error) = held_rules(state, &request.user, namespace);
    let mut status = json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false});
    if !error.is_empty() {
        status["evaluationError"] = error.into();
    }
    Ok(json!({
        "kind": "SelfSubjectRulesReview", "apiVersion": "authorization.k8s.io/v1", "metadata": {}, "spec": {},
        "status": status,
    }))
}
