//! What a request asks of the API server, read from its method and URL: a verb and a resource.

use std::fmt;

use http::{Method, Uri};

use super::direct::is_watch;
use crate::object::cut_to;

/// Most bytes of a resource that are shown: a program may ask for any path.
const LONGEST: usize = 253;

/// A verb, and the resource that it is asked of, as RBAC names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) verb: &'static str,
    /// `websites.web.example.dev`, `pods/status`; the path itself if it does not address a resource.
    pub(super) resource: String,
}

impl Asked {
    pub(super) fn of(method: &Method, uri: &Uri) -> Self {
        let path = uri.path();
        let Some((group, rest)) = group_of(path) else {
            return Self {
                verb: verb(method, uri, Extent::Object),
                resource: cut_to(path.to_owned(), LONGEST),
            };
        };
        let segments: Vec<_> = rest.split('/').filter(|segment| !segment.is_empty()).collect();
        let (resource, name, subresource) = match *segments {
            ["namespaces", _, resource, ref rest @ ..] if !is_of_namespaces(resource) => {
                (resource, rest.first(), rest.get(1))
            }
            [resource, ref rest @ ..] => (resource, rest.first(), rest.get(1)),
            [] => ("", None, None),
        };
        let mut shown = match subresource {
            Some(subresource) => format!("{resource}/{subresource}"),
            None => resource.to_owned(),
        };
        if !group.is_empty() {
            shown = format!("{shown}.{group}");
        }
        let extent = if name.is_some() { Extent::Object } else { Extent::Collection };
        Self { verb: verb(method, uri, extent), resource: cut_to(shown, LONGEST) }
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)
    }
}

/// What a URL names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    Object,
    Collection,
}

/// Splits `/apis/GROUP/VERSION/REST` and `/api/VERSION/REST`; `None` for other paths.
fn group_of(path: &str) -> Option<(&str, &str)> {
    let (group, versioned) = match path.strip_prefix("/api/") {
        Some(core) => ("", core),
        None => path.strip_prefix("/apis/")?.split_once('/')?,
    };
    let (_, rest) = versioned.split_once('/')?;
    Some((group, rest))
}

/// Namespaces have these themselves; what else follows their name is in them.
fn is_of_namespaces(segment: &str) -> bool {
    matches!(segment, "status" | "finalize")
}

fn verb(method: &Method, uri: &Uri, extent: Extent) -> &'static str {
    let collection = extent == Extent::Collection;
    match *method {
        Method::GET if is_watch(uri) => "watch",
        Method::GET if collection => "list",
        Method::GET => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if collection => "deletecollection",
        Method::DELETE => "delete",
        _ => "request",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // W21
    #[test]
    fn a_request_is_named_as_rbac_names_it() {
        for (method, uri, named) in [
            (Method::GET, "/api/v1/pods?limit=500", "list pods"),
            (Method::GET, "/api/v1/pods?limit=500&watch=true", "watch pods"),
            (Method::GET, "/api/v1/namespaces/shop/pods/web-0", "get pods"),
            (Method::GET, "/api/v1/namespaces", "list namespaces"),
            (Method::DELETE, "/api/v1/namespaces/shop", "delete namespaces"),
            (Method::PUT, "/api/v1/namespaces/shop/finalize", "update namespaces/finalize"),
            (
                Method::POST,
                "/apis/web.example.dev/v1/namespaces/shop/websites",
                "create websites.web.example.dev",
            ),
            (
                Method::PATCH,
                "/apis/web.example.dev/v1/namespaces/shop/websites/a/status?fieldManager=x",
                "patch websites/status.web.example.dev",
            ),
            (
                Method::DELETE,
                "/apis/apps/v1/namespaces/shop/deployments",
                "deletecollection deployments.apps",
            ),
            (
                Method::PATCH,
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/a",
                "patch clusterroles.rbac.authorization.k8s.io",
            ),
            (Method::GET, "/version", "get /version"),
            (Method::GET, "/apis/apps/v1", "get /apis/apps/v1"),
            (Method::TRACE, "/", "request /"),
        ] {
            assert_eq!(Asked::of(&method, &uri.parse().unwrap()).to_string(), named, "{method} {uri}");
        }
    }
}
