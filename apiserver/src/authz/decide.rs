//! Decisions: whether a user may, and why.

use serde_json::{Value, json};

use super::attributes::Attributes;
use super::decision::Decision;
use super::roles::{by_roles, rules_by_roles};
use crate::identity::User;
use crate::state::{Authorization, Grant, State};
use crate::status::Status;

/// Paths that everyone may read.
const OPEN: [&str; 4] = ["/version", "/healthz", "/livez", "/readyz"];

/// Paths that everyone with a token may read.
const DISCOVERY: [&str; 3] = ["/api", "/apis", "/openapi"];

/// Says no, or nothing.
///
/// # Errors
/// 403 in the server's words.
pub(crate) fn check(state: &State, user: &User, asked: &Attributes) -> Result<(), Status> {
    match decide(state, user, asked) {
        Decision::Allowed(_) => Ok(()),
        Decision::NoOpinion(reason) => Err(asked.forbidden(user.name(), &reason)),
    }
}

/// Decides whether a user may.
pub(crate) fn decide(state: &State, user: &User, asked: &Attributes) -> Decision {
    if user.is_superuser() || is_granted(state, user, asked) {
        return Decision::Allowed(String::new());
    }
    match state.authorization {
        Authorization::Rbac => by_roles(state, user, asked),
        Authorization::Grants if is_open(user, asked) => Decision::Allowed(String::new()),
        Authorization::Grants => Decision::NoOpinion(String::new()),
    }
}

fn is_granted(state: &State, user: &User, asked: &Attributes) -> bool {
    if asked.path.is_some() {
        return false;
    }
    let fits = |given: &str, asked: &str| given == "*" || given == asked;
    let (name, combined) = (user.name(), asked.combined());
    state.grants.iter().any(|grant| {
        grant.user == name
            && fits(&grant.verb, &asked.verb)
            && fits(&grant.resource, &combined)
            && reaches(grant, &asked.namespace)
    })
}

/// Returns whether a right holds in a namespace; one of a single namespace doesn't in all of them.
fn reaches(grant: &Grant, namespace: &str) -> bool {
    grant.namespace.as_deref().is_none_or(|own| own == namespace)
}

/// Returns whether everyone, or everyone with a token, is allowed if roles are not enforced.
fn is_open(user: &User, asked: &Attributes) -> bool {
    let Some(path) = &asked.path else {
        let own = matches!(
            (asked.group.as_str(), asked.resource.as_str()),
            ("authorization.k8s.io", "selfsubjectaccessreviews" | "selfsubjectrulesreviews")
                | ("authentication.k8s.io", "selfsubjectreviews")
        );
        return own && *user != User::Anonymous;
    };
    let under =
        |root: &str| path == root || path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'));
    OPEN.into_iter().any(under) || (*user != User::Anonymous && DISCOVERY.into_iter().any(under))
}

/// Lists what a user may do in a namespace: rules of resources, rules of paths, and what could not be resolved.
pub(crate) fn held_rules(state: &State, user: &User, namespace: &str) -> (Vec<Value>, Vec<Value>, String) {
    let (mut resources, mut paths, mut error) = (Vec::new(), Vec::new(), String::new());
    match state.authorization {
        Authorization::Rbac => {
            (resources, paths, error) = rules_by_roles(state, user, namespace);
        }
        Authorization::Grants => {
            resources.push(json!({"verbs": ["create"], "apiGroups": ["authorization.k8s.io"],
                "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]}));
            resources.push(json!({"verbs": ["create"], "apiGroups": ["authentication.k8s.io"],
                "resources": ["selfsubjectreviews"]}));
            paths.push(json!({"verbs": ["get"], "nonResourceURLs": [
                "/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz",
                "/version", "/version/",
            ]}));
            // Two roles say that of a real server's.
            let health = ["/healthz", "/livez", "/readyz", "/version", "/version/"];
            paths.push(json!({"verbs": ["get"], "nonResourceURLs": health}));
            if user.is_superuser() {
                resources.push(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
                paths.push(json!({"verbs": ["*"], "nonResourceURLs": ["*"]}));
            }
        }
    }
    let own = state.grants.iter().filter(|grant| grant.user == user.name() && reaches(grant, namespace));
    resources.extend(
        own.map(|grant| json!({"verbs": [grant.verb], "apiGroups": ["*"], "resources": [grant.resource]})),
    );
    (resources, paths, error)
}
