//! Attributes: a request as authorization sees it.

use http::Method;

use crate::route::{PathShape, RequestInfo};
use crate::status::Status;

/// The verb and the target of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// The verb, e.g. `get`.
    pub(crate) verb: String,
    /// The group, empty for core.
    pub(crate) group: String,
    /// The plural.
    pub(crate) resource: String,
    /// The subresource; empty for the object itself.
    pub(crate) subresource: String,
    /// The object's name, or the name in a `metadata.name` selector; empty if neither is given.
    pub(crate) name: String,
    /// The namespace; empty for all namespaces and for cluster-scoped objects.
    pub(crate) namespace: String,
    /// The path of a request that does not address a resource.
    pub(crate) path: Option<String>,
}

impl Attributes {
    /// Reads a request.
    pub(crate) fn of(method: &Method, info: &RequestInfo) -> Self {
        let verb = info.verb.map_or_else(|| method.as_str().to_lowercase(), |verb| verb.as_str().to_owned());
        if info.shape == PathShape::Other {
            return Self { verb, path: Some(info.path.clone()), ..Self::default() };
        }
        Self {
            verb,
            group: info.group.clone(),
            resource: info.resource.clone(),
            subresource: info.subresource.split('/').next().unwrap_or_default().to_owned(),
            name: info.name.clone().unwrap_or_default(),
            namespace: info.namespace.clone().unwrap_or_default(),
            path: None,
        }
    }

    /// Returns the resource as rules name it: `pods`, or `pods/log`.
    pub(crate) fn combined(&self) -> String {
        match self.subresource.as_str() {
            "" => self.resource.clone(),
            subresource => format!("{}/{subresource}", self.resource),
        }
    }

    /// 403 in the server's words, with an optional reason at the end.
    pub(crate) fn forbidden(&self, user: &str, reason: &str) -> Status {
        let verb = &self.verb;
        let what = match &self.path {
            Some(path) => format!("User {user:?} cannot {verb} path {path:?}"),
            None => {
                let (resource, group) = (self.combined(), &self.group);
                let place = match self.namespace.as_str() {
                    "" => "at the cluster scope".to_owned(),
                    namespace => format!("in the namespace {namespace:?}"),
                };
                format!("User {user:?} cannot {verb} resource {resource:?} in API group {group:?} {place}")
            }
        };
        let what = what.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let what = if reason.is_empty() { what } else { format!("{what}: {reason}") };
        if self.path.is_some() {
            return Status::forbidden_outside(&what);
        }
        Status::forbidden(&self.group, &self.resource, &self.name, &what)
    }
}
