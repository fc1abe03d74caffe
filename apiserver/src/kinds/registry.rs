//! The registry of kinds: by group and plural, the built-in ones from the start.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::builtin::{MORE_GROUPS, built_in};
use super::{Resource, VersionView};
use crate::store::ResourceId;

/// Every resource by group and plural.
#[derive(Clone, Debug)]
pub(crate) struct Registry {
    resources: BTreeMap<ResourceId, Arc<Resource>>,
    next: u64,
}

impl Registry {
    /// Makes a registry of the built-in kinds.
    pub(crate) fn new() -> Self {
        let mut registry = Self { resources: BTreeMap::new(), next: 0 };
        for row in built_in() {
            let id = registry.number();
            let mut resource = row.resource(id);
            if row.kind == "HorizontalPodAutoscaler" {
                let id = registry.number();
                resource.versions.push(Arc::new(row.served(id, "v1", VersionView::Autoscalers)));
            }
            registry.insert(resource);
        }
        registry
    }

    /// Returns a number no other served version has.
    pub(crate) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Adds or replaces a resource.
    pub(crate) fn insert(&mut self, resource: Resource) {
        self.resources.insert(resource.id.clone(), Arc::new(resource));
    }

    /// Removes every resource that a CRD defines.
    pub(crate) fn remove_custom(&mut self) {
        self.resources.retain(|_, resource| !resource.is_custom());
    }

    /// Removes a resource.
    pub(crate) fn remove(&mut self, id: &ResourceId) {
        self.resources.remove(id);
    }

    /// Finds a resource by group and plural.
    pub(crate) fn find(&self, group: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.resources.get(&ResourceId::new(group, plural))
    }

    /// Returns every resource, by group and plural.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources.values()
    }

    /// Returns the resources that store objects of their own.
    pub(crate) fn stored(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.all().filter(|r| r.id == r.storage)
    }

    /// Returns whether the server itself brings a group.
    pub(crate) fn is_built_in_group(&self, group: &str) -> bool {
        built_in().any(|row| row.group == group) || MORE_GROUPS.contains(&group)
    }

    /// Returns all groups with their served versions, sorted by name, versions by preference.
    pub(crate) fn groups(&self) -> BTreeMap<String, Vec<String>> {
        let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for resource in self.all() {
            let versions = groups.entry(resource.group().to_owned()).or_default();
            for served in resource.versions.iter().filter(|v| v.served) {
                if !versions.contains(&served.version) {
                    versions.push(served.version.clone());
                }
            }
        }
        groups.retain(|_, versions| !versions.is_empty());
        for versions in groups.values_mut() {
            versions.sort_by_key(|version| version_rank(version));
        }
        groups
    }
}

/// Ranks versions as Kubernetes prefers them: `v2`, `v1`, `v2beta1`, `v1alpha1`, others by name.
pub(crate) fn version_rank(version: &str) -> (u8, std::cmp::Reverse<(u64, u64)>, String) {
    let numbers = version.strip_prefix('v').and_then(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let major: u64 = rest[..end].parse().ok()?;
        let tail = &rest[end..];
        if tail.is_empty() {
            return Some((0, major, 0));
        }
        let (stage, minor) = if let Some(minor) = tail.strip_prefix("beta") {
            (1, minor)
        } else {
            (2, tail.strip_prefix("alpha")?)
        };
        Some((stage, major, minor.parse().ok()?))
    });
    match numbers {
        Some((stage, major, minor)) => (stage, std::cmp::Reverse((major, minor)), String::new()),
        None => (3, std::cmp::Reverse((0, 0)), version.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // wire 509
    #[test]
    fn stable_versions_come_before_betas() {
        let mut versions = vec!["v1alpha1", "foo", "v1", "v1beta1", "v2"];
        versions.sort_by_key(|v| version_rank(v));
        assert_eq!(versions, ["v2", "v1", "v1beta1", "v1alpha1", "foo"]);
    }

    #[test]
    fn built_in_kinds_are_found_by_group_and_plural() {
        let registry = Registry::new();
        assert_eq!(registry.find("apps", "deployments").expect("there").kind, "Deployment");
        assert!(registry.find("", "deployments").is_none());
    }
}
