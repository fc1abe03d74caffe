//! Access: who may do what.

use super::User;
use crate::route::{RequestInfo, Shape};
use crate::state::{Grant, State};
use crate::status::Status;

/// Paths that everyone may read.
const OPEN: [&str; 4] = ["/version", "/healthz", "/livez", "/readyz"];

/// Paths that everyone with a token may read.
const DISCOVERY: [&str; 3] = ["/api", "/apis", "/openapi"];

/// Says no, or nothing.
///
/// # Errors
/// 403 in the server's words.
pub(super) fn check(
    state: &State,
    user: &User,
    method: &http::Method,
    info: &RequestInfo,
) -> Result<(), Status> {
    if *user == User::Admin {
        return Ok(());
    }
    let name = name(user);
    let verb = info.verb.map_or_else(|| method.as_str().to_lowercase(), |verb| verb.as_str().to_owned());
    if info.shape == Shape::Other {
        let refused = || Status::forbidden_path(name, &verb, &info.path);
        return if reads(user, &info.path) { Ok(()) } else { Err(refused()) };
    }
    let resource = if info.subresource.is_empty() {
        info.resource.clone()
    } else {
        format!("{}/{}", info.resource, info.subresource)
    };
    if grants(state, user, (&verb, &resource), info.namespace.as_deref()) {
        return Ok(());
    }
    let place = match &info.namespace {
        Some(namespace) => format!("in the namespace {namespace:?}"),
        None => "at the cluster scope".to_owned(),
    };
    let what =
        format!("User {name:?} cannot {verb} resource {resource:?} in API group {:?} {place}", info.group);
    Err(Status::forbidden(&info.group, &info.resource, info.name.as_deref().unwrap_or_default(), &what))
}

/// Gives a user's name as messages have it.
pub(super) fn name(user: &User) -> &str {
    match user {
        User::Admin => "admin",
        User::Named { name, .. } => name,
        User::Anonymous => "system:anonymous",
    }
}

/// Returns whether a user may do a verb on a resource (`plural/status` for a subresource) in a namespace, or in all.
pub(super) fn grants(
    state: &State,
    user: &User,
    (verb, resource): (&str, &str),
    namespace: Option<&str>,
) -> bool {
    let fits = |given: &str, asked: &str| given == "*" || given == asked;
    *user == User::Admin
        || state.grants.iter().any(|grant| {
            grant.user == name(user)
                && fits(&grant.verb, verb)
                && fits(&grant.resource, resource)
                && reaches(grant, namespace)
        })
}

/// Returns whether a right holds in a namespace; one of a single namespace doesn't in all of them.
fn reaches(grant: &Grant, namespace: Option<&str>) -> bool {
    grant.namespace.is_none() || grant.namespace.as_deref() == namespace
}

/// Lists what a user may do in a namespace, as pairs of verb and resource.
pub(super) fn granted(state: &State, user: &User, namespace: &str) -> Vec<(String, String)> {
    if *user == User::Admin {
        return vec![("*".to_owned(), "*".to_owned())];
    }
    let own = state.grants.iter().filter(|grant| grant.user == name(user) && reaches(grant, Some(namespace)));
    own.map(|grant| (grant.verb.clone(), grant.resource.clone())).collect()
}

/// Returns whether a user may read a path that is no resource.
pub(super) fn reads(user: &User, path: &str) -> bool {
    let under =
        |root: &str| path == root || path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'));
    *user == User::Admin
        || OPEN.into_iter().any(under)
        || (*user != User::Anonymous && DISCOVERY.into_iter().any(under))
}
