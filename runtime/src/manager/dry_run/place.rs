//! What a path of the API means.

use std::fmt;

/// The subresources that write an object, and store it or not.
const TRIED: [&str; 8] =
    ["approval", "binding", "ephemeralcontainers", "eviction", "finalize", "resize", "scale", "status"];

/// A resource, or one object of it, by its path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// `/api/v1`, or `/apis/apps/v1`.
    root: String,
    pub(super) group: String,
    pub(super) plural: String,
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
    pub(super) subresource: Option<String>,
}

impl Place {
    /// Reads a path; `None` if it does not address a resource.
    pub(super) fn of(path: &str) -> Option<Self> {
        let all: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
        // What a server may read otherwise is not read here.
        if all.iter().any(|part| part.is_empty() || part.starts_with('.') || part.contains('%')) {
            return None;
        }
        let (root, group, rest) = match *all.as_slice() {
            ["api", version, ref rest @ ..] => (format!("/api/{version}"), "", rest),
            ["apis", group, version, ref rest @ ..] => (format!("/apis/{group}/{version}"), group, rest),
            _ => return None,
        };
        let text = |text: &str| Some(text.to_owned());
        let of = Self { root, group: group.to_owned(), ..Self::default() };
        Some(match *rest {
            // The namespaces themselves.
            ["namespaces"] => Self { plural: "namespaces".to_owned(), ..of },
            ["namespaces", name] => Self { plural: "namespaces".to_owned(), name: text(name), ..of },
            ["namespaces", name, sub @ ("status" | "finalize")] => {
                Self { plural: "namespaces".to_owned(), name: text(name), subresource: text(sub), ..of }
            }
            ["namespaces", namespace, plural, ref rest @ ..] => {
                Self { namespace: text(namespace), ..of.below(plural, rest)? }
            }
            [plural, ref rest @ ..] if !plural.is_empty() => of.below(plural, rest)?,
            _ => return None,
        })
    }

    fn below(self, plural: &str, rest: &[&str]) -> Option<Self> {
        let text = |text: &str| Some(text.to_owned());
        let plural = plural.to_owned();
        match *rest {
            [] => Some(Self { plural, ..self }),
            [name] => Some(Self { plural, name: text(name), ..self }),
            [name, sub] => Some(Self { plural, name: text(name), subresource: text(sub), ..self }),
            _ => None,
        }
    }

    /// Whether a server that knows `dryRun` keeps to it here: it does not where it passes a request on to somebody else.
    pub(super) fn can_be_tried(&self) -> bool {
        self.subresource.as_deref().is_none_or(|subresource| TRIED.contains(&subresource))
    }

    /// Names the object; `None` where the path does not.
    pub(super) fn object_path(&self) -> Option<String> {
        let Self { root, plural, name, .. } = self;
        let name = name.as_ref()?;
        Some(match &self.namespace {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{plural}/{name}"),
            None => format!("{root}/{plural}/{name}"),
        })
    }

    /// The same, with the name that an object brings along.
    pub(super) fn with_name(&self, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..self.clone() }
    }
}

/// `deployments.apps shop/web`, with the subresource if it is one.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.plural)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if let Some(subresource) = &self.subresource {
            write!(f, "/{subresource}")?;
        }
        match (&self.namespace, self.name.as_deref().unwrap_or("*")) {
            (Some(namespace), name) => write!(f, " {namespace}/{name}"),
            (None, name) => write!(f, " {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read_as_the_api_has_them() {
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
            let place = Place::of(path).unwrap();
            assert_eq!((place.to_string().as_str(), place.object_path().as_deref()), (shown, object));
        }
        for path in ["/healthz", "/api/v1", "/", "/api/v1/namespaces/shop/services/a/proxy/x/y"] {
            assert_eq!(Place::of(path), None, "{path}");
        }
    }
}
