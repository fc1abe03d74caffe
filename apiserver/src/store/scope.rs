//! Scopes: parts of a resource, by namespace and name.

/// The part of a resource that a follower wants; empty for all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scope {
    /// One namespace.
    pub(crate) namespace: Option<String>,
    /// One name.
    pub(crate) name: Option<String>,
}

impl Scope {
    /// Returns whether a storage key is inside.
    pub(crate) fn holds(&self, key: &str) -> bool {
        let (namespace, name) = split(key);
        self.namespace.as_deref().is_none_or(|n| n == namespace)
            && self.name.as_deref().is_none_or(|n| n == name)
    }

    /// Returns the prefix that all keys inside have.
    pub(crate) fn prefix(&self) -> String {
        self.namespace.as_ref().map(|namespace| format!("{namespace}/")).unwrap_or_default()
    }
}

/// Splits a storage key into namespace (empty for cluster-scoped objects) and name.
pub(super) fn split(key: &str) -> (&str, &str) {
    key.split_once('/').unwrap_or(("", key))
}
