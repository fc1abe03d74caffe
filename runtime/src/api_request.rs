//! One vocabulary for requests to the API server: verb, resource, path and media type.

use std::{fmt, sync::Arc};

use http::{HeaderMap, Method, Uri, header};

use crate::object::{Kind, cut_to};

/// Most bytes of a resource that are shown: a program may send a request to any path.
const LONGEST: usize = 253;

/// Which controller sends a request, in an extension of it; only a dry run asks.
#[derive(Clone, Debug)]
pub(crate) struct SentBy(pub(crate) Arc<str>);

/// Has a request sent over a new connection, by an extension of it: those that are there may be dead, and nobody knows yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OnNewConnection;

/// A verb, as roles name it; in the order in which people list them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum ApiVerb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
    /// Only in roles: the server checks it when a binding is written.
    Bind,
    /// Only in roles: the server checks it when a role is written.
    Escalate,
}

impl ApiVerb {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Bind => "bind",
            Self::Escalate => "escalate",
        }
    }

    /// Reads the verb of a request; `None` for a method that the API does not use.
    fn of(method: &Method, uri: &Uri, names_object: bool) -> Option<Self> {
        Some(match *method {
            Method::GET if is_watch(uri) => Self::Watch,
            Method::GET if names_object => Self::Get,
            Method::GET => Self::List,
            Method::POST => Self::Create,
            Method::PUT => Self::Update,
            Method::PATCH => Self::Patch,
            Method::DELETE if names_object => Self::Delete,
            Method::DELETE => Self::DeleteCollection,
            _ => return None,
        })
    }

    /// Returns the method of a request with this verb.
    pub(crate) fn method(self) -> Method {
        match self {
            Self::Get | Self::List | Self::Watch => Method::GET,
            Self::Create => Method::POST,
            Self::Patch => Method::PATCH,
            Self::Delete | Self::DeleteCollection => Method::DELETE,
            Self::Update | Self::Bind | Self::Escalate => Method::PUT,
        }
    }
}

/// How the body of a request is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MediaType {
    Json,
    Apply,
    MergePatch,
    JsonPatch,
}

impl MediaType {
    const ALL: [Self; 4] = [Self::Json, Self::Apply, Self::MergePatch, Self::JsonPatch];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Apply => "application/apply-patch+yaml",
            Self::MergePatch => "application/merge-patch+json",
            Self::JsonPatch => "application/json-patch+json",
        }
    }

    /// Reads the media type of a body; `None` for any other, such as protobuf.
    fn of(headers: &HeaderMap) -> Option<Self> {
        let named = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
        let named = named.split(';').next().unwrap_or_default().trim();
        Self::ALL.into_iter().find(|one| one.as_str() == named)
    }
}

/// A resource of the API, or one object of it, as a path names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResourcePath {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) namespace: Option<String>,
    /// The object; `None` for the collection.
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
}

impl ResourcePath {
    /// Names the collection of a kind, in one namespace or in all.
    pub(crate) fn of(kind: &Kind, namespace: Option<&str>) -> Self {
        Self {
            group: kind.group.to_string(),
            version: kind.version.to_string(),
            plural: kind.plural.to_string(),
            namespace: namespace.map(str::to_owned),
            ..Self::default()
        }
    }

    /// Reads a path; `None` for one that does not name a resource.
    ///
    /// A path that a server may read in another way, for example one with escaped letters, is not read either.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
        if parts.iter().any(|part| part.is_empty() || part.starts_with('.') || part.contains('%')) {
            return None;
        }
        let (group, version, rest) = match *parts.as_slice() {
            ["api", version, ref rest @ ..] => ("", version, rest),
            ["apis", group, version, ref rest @ ..] => (group, version, rest),
            _ => return None,
        };
        let (namespace, plural, rest) = match *rest {
            // A watch in the way of old clients.
            ["watch", ..] => return None,
            // These belong to the namespace itself; what else follows its name is in it.
            ["namespaces", _, "status" | "finalize"] => (None, "namespaces", &rest[1..]),
            ["namespaces", namespace, plural, ref rest @ ..] => (Some(namespace), plural, rest),
            [plural, ref rest @ ..] => (None, plural, rest),
            [] => return None,
        };
        let (name, subresource) = match *rest {
            [] => (None, None),
            [name] => (Some(name), None),
            [name, subresource] => (Some(name), Some(subresource)),
            _ => return None,
        };
        let owned = |part: Option<&str>| part.map(str::to_owned);
        Some(Self {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: plural.to_owned(),
            namespace: owned(namespace),
            name: owned(name),
            subresource: owned(subresource),
        })
    }

    /// Returns the path for a URL.
    pub(crate) fn url(&self) -> String {
        let Self { group, version, plural, .. } = self;
        let mut path = match group.is_empty() {
            true => format!("/api/{version}"),
            false => format!("/apis/{group}/{version}"),
        };
        if let Some(namespace) = &self.namespace {
            path = format!("{path}/namespaces/{}", escaped(namespace));
        }
        path = format!("{path}/{plural}");
        for part in self.name.iter().chain(&self.subresource) {
            path = format!("{path}/{}", escaped(part));
        }
        path
    }

    /// Returns the object that the path names, without the subresource; `None` for a collection.
    pub(crate) fn object(&self) -> Option<Self> {
        self.name.as_ref()?;
        Some(Self { subresource: None, ..self.clone() })
    }

    /// Returns the resource as roles name it: `websites.web.example.dev`, `deployments/scale.apps`.
    pub(crate) fn resource(&self) -> String {
        let mut resource = self.plural.clone();
        if let Some(subresource) = &self.subresource {
            resource = format!("{resource}/{subresource}");
        }
        if !self.group.is_empty() {
            resource = format!("{resource}.{}", self.group);
        }
        cut_to(resource, LONGEST)
    }
}

/// `deployments.apps shop/web`.
impl fmt::Display for ResourcePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.as_deref().unwrap_or("*");
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{name}", self.resource()),
            None => write!(f, "{} {name}", self.resource()),
        }
    }
}

/// A request to the API server, without its query and body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiRequest {
    pub(crate) verb: ApiVerb,
    pub(crate) path: ResourcePath,
    /// `None`: the body has another media type, or there is none.
    pub(crate) media_type: Option<MediaType>,
}

impl ApiRequest {
    /// Reads a request; `None` if its method or its path is not understood.
    pub(crate) fn parse(method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<Self> {
        let path = ResourcePath::parse(uri.path())?;
        let verb = ApiVerb::of(method, uri, path.name.is_some())?;
        Some(Self { verb, path, media_type: MediaType::of(headers) })
    }
}

/// Names any request for messages, by verb and resource; a path that is not a resource's names itself.
pub(crate) fn describe(method: &Method, uri: &Uri) -> (&'static str, String) {
    let path = ResourcePath::parse(uri.path());
    let names_object = path.as_ref().is_none_or(|path| path.name.is_some());
    let verb = ApiVerb::of(method, uri, names_object).map_or("request", ApiVerb::as_str);
    (verb, path.map_or_else(|| cut_to(uri.path().to_owned(), LONGEST), |path| path.resource()))
}

/// Returns whether the URL of a `GET` opens a watch.
pub(crate) fn is_watch(uri: &Uri) -> bool {
    let asks = |pair: &str| matches!(pair, "watch=true" | "watch=1");
    uri.query().is_some_and(|query| query.split('&').any(asks))
}

/// Writes every byte that has a meaning in a URL as `%XX`.
fn escaped(name: &str) -> String {
    let byte = |byte: u8| match byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    name.bytes().map(byte).collect()
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
            let (verb, resource) = describe(&method, &uri.parse().unwrap());
            assert_eq!(format!("{verb} {resource}"), named, "{method} {uri}");
        }
    }

    #[test]
    fn paths_are_read_and_built_alike() {
        for (path, shown, object) in [
            ("/api/v1/namespaces/shop/pods", "pods shop/*", None),
            (
                "/api/v1/namespaces/shop/pods/a/status",
                "pods/status shop/a",
                Some("/api/v1/namespaces/shop/pods/a"),
            ),
            (
                "/apis/apps/v1/namespaces/shop/deployments/a",
                "deployments.apps shop/a",
                Some("/apis/apps/v1/namespaces/shop/deployments/a"),
            ),
            ("/api/v1/namespaces/shop", "namespaces shop", Some("/api/v1/namespaces/shop")),
            ("/api/v1/namespaces/shop/finalize", "namespaces/finalize shop", Some("/api/v1/namespaces/shop")),
            ("/api/v1/nodes/n", "nodes n", Some("/api/v1/nodes/n")),
        ] {
            let read = ResourcePath::parse(path).unwrap();
            let found = read.object().map(|object| object.url());
            assert_eq!((read.to_string().as_str(), found.as_deref()), (shown, object));
            assert_eq!(read.url(), path);
        }
        for path in [
            "/healthz",
            "/api/v1",
            "/",
            "/api/v1/namespaces/shop/services/a/proxy/x/y",
            "/api/v1/watch/secrets",
            "/api/v1/secrets/",
        ] {
            assert_eq!(ResourcePath::parse(path), None, "{path}");
        }
    }

    #[test]
    fn a_name_stays_one_part_of_the_path() {
        let path = ResourcePath {
            name: Some("a/b?c".into()),
            plural: "pods".into(),
            version: "v1".into(),
            ..Default::default()
        };
        assert_eq!(path.url(), "/api/v1/pods/a%2Fb%3Fc");
    }
}
