//! Access: what expressions ask the authorizer, and what it answers.

use std::fmt;
use std::sync::Arc;

/// A question to the authorizer: whether somebody may do something.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AccessQuestion {
    /// Namespace and name of a service account; `None` for the user of the request.
    pub(crate) account: Option<(String, String)>,
    /// The verb.
    pub(crate) verb: String,
    /// The path, if it is not about a resource.
    pub(crate) path: Option<String>,
    /// The group, empty for core.
    pub(crate) group: String,
    /// The plural.
    pub(crate) resource: String,
    /// The subresource; empty for the object itself.
    pub(crate) subresource: String,
    /// The namespace; empty for all namespaces and for cluster-scoped objects.
    pub(crate) namespace: String,
    /// The object's name; empty for all objects.
    pub(crate) name: String,
}

/// The answer of the authorizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AccessAnswer {
    /// Whether it is allowed.
    pub(crate) allowed: bool,
    /// The reason; may be empty.
    pub(crate) reason: String,
}

/// The authorizer that the expressions of one request may ask.
#[derive(Clone)]
pub(crate) struct Authorizer<'v> {
    /// Group, resource, subresource, namespace and name of the request.
    pub(crate) request: AccessQuestion,
    /// Decides.
    #[cfg_attr(not(feature = "cel"), expect(dead_code, reason = "nothing is evaluated"))]
    pub(crate) decide: Arc<dyn Fn(&AccessQuestion) -> AccessAnswer + Send + Sync + 'v>,
}

impl fmt::Debug for Authorizer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorizer").field("request", &self.request).finish_non_exhaustive()
    }
}
