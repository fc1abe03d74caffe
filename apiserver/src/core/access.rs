//! Access: who may do what.

use super::User;
use crate::route::{RequestInfo, Shape};
use crate::state::State;
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
    if grants(state, user, &verb, &resource) {
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

/// Tells whether a user may do `verb` on `resource` (`plural/status` for a subresource).
pub(super) fn grants(state: &State, user: &User, verb: &str, resource: &str) -> bool {
    let fits = |given: &str, asked: &str| given == "*" || given == asked;
    *user == User::Admin
        || state
            .grants
            .iter()
            .any(|(who, may, what)| who == name(user) && fits(may, verb) && fits(what, resource))
}

/// Lists what a user may do, as pairs of verb and resource.
pub(super) fn granted(state: &State, user: &User) -> Vec<(String, String)> {
    if *user == User::Admin {
        return vec![("*".to_owned(), "*".to_owned())];
    }
    let own = state.grants.iter().filter(|(who, _, _)| who == name(user));
    own.map(|(_, verb, resource)| (verb.clone(), resource.clone())).collect()
}

/// Tells whether a user may read a path that is no resource.
pub(super) fn reads(user: &User, path: &str) -> bool {
    let under =
        |root: &str| path == root || path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'));
    *user == User::Admin
        || OPEN.into_iter().any(under)
        || (*user != User::Anonymous && DISCOVERY.into_iter().any(under))
}
