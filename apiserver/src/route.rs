//! Routes: what a method and a path ask for.

use http::{Method, Uri};

pub(crate) use percent::decode;

/// The operation on a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verb {
    /// Reads one object.
    Get,
    /// Reads a collection.
    List,
    /// Streams changes of a collection.
    Watch,
    /// Creates an object.
    Create,
    /// Replaces an object.
    Update,
    /// Patches or applies an object.
    Patch,
    /// Deletes one object.
    Delete,
    /// Deletes a collection.
    DeleteCollection,
}

impl Verb {
    /// Returns the word of the API, e.g. `deletecollection`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    /// Returns whether the verb writes.
    #[must_use]
    pub fn writes(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

impl std::fmt::Display for Verb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The target of a request, read only from its method, path and query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestInfo {
    /// The verb; `None` for paths that do not address a resource, and for methods such as HEAD and OPTIONS.
    pub verb: Option<Verb>,
    /// The group, empty for the core group.
    pub group: String,
    /// The version, e.g. `v1`; empty when the path names no group version.
    pub version: String,
    /// The plural, e.g. `configmaps`; empty if the path does not address a resource.
    pub resource: String,
    /// The namespace in the path.
    pub namespace: Option<String>,
    /// The object's name, in the path or by `fieldSelector=metadata.name=…`.
    pub name: Option<String>,
    /// The subresource, e.g. `status`; empty if there isn't any.
    pub subresource: String,
    /// The requested `resourceVersion`; empty if not set.
    pub version_asked: String,
    /// The continue token; empty if not set.
    pub go_on: String,
    /// The path, decoded, without a trailing `/`.
    pub path: String,
    /// The shape of the path: whether it contains an object's name.
    pub(crate) shape: PathShape,
}

/// What the path addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathShape {
    /// A collection of objects.
    Collection,
    /// One object, or a subresource of it.
    Object,
    /// Neither: discovery, health and so on.
    Other,
}

impl RequestInfo {
    /// Reads a request's method and URI.
    pub fn of(method: &Method, uri: &Uri) -> Self {
        let query = Query::of(uri);
        let trimmed = uri.path().trim_end_matches('/');
        let decoded = decode(trimmed);
        let parts: Vec<&str> = decoded.split('/').skip(1).collect();
        let mut words: &[&str] = &parts;
        let mut info = Self {
            verb: None,
            group: String::new(),
            version: String::new(),
            resource: String::new(),
            namespace: None,
            name: None,
            subresource: String::new(),
            version_asked: query.text("resourceVersion").to_owned(),
            go_on: query.text("continue").to_owned(),
            path: if trimmed.is_empty() { "/".to_owned() } else { decoded.clone() },
            shape: PathShape::Other,
        };
        match words {
            ["api", version, rest @ ..] => {
                info.version = (*version).to_owned();
                words = rest;
            }
            ["apis", group, version, rest @ ..] => {
                info.group = (*group).to_owned();
                info.version = (*version).to_owned();
                words = rest;
            }
            _ => return info,
        }
        let mut forced_watch = false;
        if let ["watch", rest @ ..] = words
            && !rest.is_empty()
        {
            forced_watch = true;
            words = rest;
        }
        if let ["namespaces", namespace, resource, ..] = words
            && !(info.group.is_empty() && matches!(*resource, "status" | "finalize"))
        {
            info.namespace = Some((*namespace).to_owned());
            words = &words[2..];
        }
        match words {
            [] => return info,
            [resource] => {
                info.resource = (*resource).to_owned();
                info.shape = PathShape::Collection;
            }
            [resource, name, rest @ ..] => {
                info.resource = (*resource).to_owned();
                info.name = Some((*name).to_owned());
                info.subresource = rest.join("/");
                info.shape = PathShape::Object;
            }
        }
        if info.group.is_empty() && info.resource == "namespaces" && info.name.is_some() {
            info.namespace.clone_from(&info.name);
        }
        info.verb = verb(method, &info, &query, forced_watch);
        if forced_watch && info.shape == PathShape::Object && info.subresource.is_empty() {
            info.shape = PathShape::Collection;
        }
        if info.shape == PathShape::Collection
            && info.name.is_none()
            && matches!(info.verb, Some(Verb::List | Verb::Watch | Verb::DeleteCollection))
        {
            info.name = query.get("fieldSelector").and_then(selected_name);
        }
        info
    }
}

fn verb(method: &Method, info: &RequestInfo, query: &Query, forced_watch: bool) -> Option<Verb> {
    let object = info.shape == PathShape::Object;
    match *method {
        Method::GET if forced_watch => Some(Verb::Watch),
        Method::GET if object => Some(Verb::Get),
        Method::GET if query.flag("watch") => Some(Verb::Watch),
        Method::GET => Some(Verb::List),
        Method::POST => Some(Verb::Create),
        Method::PUT => Some(Verb::Update),
        Method::PATCH => Some(Verb::Patch),
        Method::DELETE if object => Some(Verb::Delete),
        Method::DELETE => Some(Verb::DeleteCollection),
        _ => None,
    }
}

fn selected_name(selector: &str) -> Option<String> {
    selector.split(',').find_map(|part| {
        let value = part.strip_prefix("metadata.name=")?;
        let value = value.strip_prefix('=').unwrap_or(value);
        (!value.is_empty()).then(|| value.to_owned())
    })
}

/// The pairs of a query, decoded; empty pairs are passed over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads a URI's query.
    pub(crate) fn of(uri: &Uri) -> Self {
        let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| {
                    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decode(&key.replace('+', " ")), decode(&value.replace('+', " ")))
                })
                .collect(),
        )
    }

    /// Returns the first value of a key.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// Returns the first value of a key, empty when it is absent.
    pub(crate) fn text(&self, key: &str) -> &str {
        self.get(key).unwrap_or_default()
    }

    /// Returns every value of a key.
    pub(crate) fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// Returns whether a key is given and not `false` or `0`.
    pub(crate) fn flag(&self, key: &str) -> bool {
        self.get(key).is_some_and(|v| !matches!(v.to_ascii_lowercase().as_str(), "false" | "0"))
    }
}

/// Percent decoding, lenient: an invalid escape stays as it is.
mod percent {
    /// Decodes `%XX`; invalid UTF-8 is replaced.
    pub(crate) fn decode(text: &str) -> String {
        let bytes = text.as_bytes();
        let mut out = Vec::with_capacity(bytes.len());
        let mut i = 0;
        while i < bytes.len() {
            let escape = (bytes[i] == b'%').then(|| text.get(i + 1..i + 3)).flatten();
            match escape.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
                Some(byte) => {
                    out.push(byte);
                    i += 3;
                }
                None => {
                    out.push(bytes[i]);
                    i += 1;
                }
            }
        }
        String::from_utf8_lossy(&out).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(method: &str, uri: &str) -> RequestInfo {
        RequestInfo::of(&method.parse().expect("method"), &uri.parse().expect("uri"))
    }

    #[test]
    fn paths_give_verb_resource_and_name() {
        let get = info("GET", "/api/v1/namespaces/a/configmaps/b");
        assert_eq!((get.verb, get.resource.as_str()), (Some(Verb::Get), "configmaps"));
        assert_eq!((get.namespace.as_deref(), get.name.as_deref()), (Some("a"), Some("b")));
        let status = info("PATCH", "/apis/apps/v1/namespaces/a/deployments/b/status");
        assert_eq!((status.verb, status.subresource.as_str()), (Some(Verb::Patch), "status"));
        let namespace = info("PUT", "/api/v1/namespaces/a/finalize");
        assert_eq!((namespace.resource.as_str(), namespace.subresource.as_str()), ("namespaces", "finalize"));
        assert_eq!(namespace.name.as_deref(), Some("a"));
    }

    #[test]
    fn a_watch_is_a_flag_or_an_old_path() {
        assert_eq!(info("GET", "/api/v1/pods?&watch=true").verb, Some(Verb::Watch));
        assert_eq!(info("GET", "/api/v1/pods?watch=0").verb, Some(Verb::List));
        let old = info("GET", "/api/v1/watch/namespaces/a/pods/p");
        assert_eq!(
            (old.verb, old.shape, old.name.as_deref()),
            (Some(Verb::Watch), PathShape::Collection, Some("p"))
        );
        assert_eq!(info("GET", "/api/v1/namespaces/a/pods/p?watch=1").verb, Some(Verb::Get));
    }

    #[test]
    fn a_field_selector_on_the_name_names_the_object() {
        let list = info("GET", "/api/v1/pods?fieldSelector=metadata.name%3Dx");
        assert_eq!(list.name.as_deref(), Some("x"));
        assert_eq!(list.shape, PathShape::Collection);
    }

    #[test]
    fn other_paths_have_no_verb() {
        for path in
            ["/", "/version", "/apis", "/apis/apps", "/apis/apps/v1/", "/api/v1", "/openapi/v3/api/v1"]
        {
            assert_eq!(info("GET", path).verb, None, "{path}");
        }
    }
}
