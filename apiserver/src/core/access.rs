//! Access: who may do what.

use super::User;
use crate::route::{RequestInfo, Shape};
use crate::state::State;
use crate::status::Status;

/// Paths that everyone may read.
const OPEN: [&str; 4] = ["/version", "/healthz", "/livez", "/readyz"];

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
    let name = match user {
        User::Admin => return Ok(()),
        User::Named { name, .. } => name.as_str(),
        User::Anonymous => "system:anonymous",
    };
    let under = |root: &str| {
        info.path == root || info.path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'))
    };
    let verb = info.verb.map_or_else(|| method.as_str().to_lowercase(), |verb| verb.as_str().to_owned());
    if info.shape == Shape::Other {
        let discovery = ["/api", "/apis", "/openapi"].into_iter().any(under) && *user != User::Anonymous;
        if OPEN.into_iter().any(under) || discovery {
            return Ok(());
        }
        return Err(Status::forbidden_path(name, &verb, &info.path));
    }
    let resource = if info.subresource.is_empty() {
        info.resource.clone()
    } else {
        format!("{}/{}", info.resource, info.subresource)
    };
    let fits = |given: &str, asked: &str| given == "*" || given == asked;
    if state.grants.iter().any(|(who, may, what)| who == name && fits(may, &verb) && fits(what, &resource)) {
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
