//! The faults that fired, and their requests.

use std::fmt;

use crate::route::RequestInfo;

/// One firing of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Firing {
    /// The line that fires the same way at the same request again.
    pub script: String,
    /// The request it fired at, e.g. `watch deployments in shop`.
    pub request: String,
    /// The resource version the server, or the stream, had come to.
    pub version: u64,
}

impl Firing {
    pub(crate) fn at(script: String, info: &RequestInfo, version: u64) -> Self {
        Self { script, request: describe(info), version }
    }
}

impl fmt::Display for Firing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} // {} at version {}", self.script, self.request, self.version)
    }
}

/// Describes a request in words.
fn describe(info: &RequestInfo) -> String {
    let Some(verb) = info.verb else { return info.path.clone() };
    let mut out = format!("{verb} {}", info.resource);
    if !info.subresource.is_empty() {
        out += &format!("/{}", info.subresource);
    }
    if let Some(name) = &info.name {
        out += &format!(" {name}");
    }
    if let Some(namespace) = &info.namespace {
        out += &format!(" in {namespace}");
    }
    out
}
