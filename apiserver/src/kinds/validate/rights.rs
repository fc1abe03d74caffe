//! Roles and role bindings.

use serde_json::Value;

use super::place::{Findings, Place};
use super::{selectors, words};
use crate::kinds::Reach;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Checks a Role or a ClusterRole.
pub(super) fn role(object: &Value, reach: Reach, faults: &mut Findings) {
    for rule in Place::top(object, "rules").items() {
        let (verbs, paths) = (rule.at("verbs"), rule.at("nonResourceURLs"));
        if verbs.len() == 0 {
            verbs.required(faults, "verbs must contain at least one value");
        }
        let (groups, resources) = (rule.at("apiGroups"), rule.at("resources"));
        if paths.len() > 0 {
            if reach == Reach::Namespaced {
                paths.invalid(faults, "namespaced rules cannot apply to non-resource URLs");
            }
            if groups.len() + resources.len() + rule.at("resourceNames").len() > 0 {
                let why = "rules cannot apply to both regular resources and non-resource URLs";
                paths.invalid(faults, why);
            }
            continue;
        }
        if groups.len() == 0 {
            groups.required(faults, "resource rules must supply at least one api group");
        }
        if resources.len() == 0 {
            resources.required(faults, "resource rules must supply at least one resource");
        }
    }
    let aggregation = Place::top(object, "aggregationRule");
    if reach == Reach::Cluster && aggregation.is_set() {
        let roles = aggregation.at("clusterRoleSelectors");
        if roles.len() == 0 {
            let why = "at least one clusterRoleSelector required if aggregationRule is non-nil";
            roles.required(faults, why);
        }
        for selector in roles.items() {
            selectors::selector(&selector, faults);
        }
    }
}

/// Checks a RoleBinding or a ClusterRoleBinding.
pub(super) fn binding(object: &Value, reach: Reach, faults: &mut Findings) {
    let role = Place::top(object, "roleRef");
    role.at("apiGroup").one_of(faults, &[GROUP]);
    match reach {
        Reach::Namespaced => role.at("kind").one_of(faults, &["Role", "ClusterRole"]),
        Reach::Cluster => role.at("kind").one_of(faults, &["ClusterRole"]),
    }
    let name = role.at("name");
    match name.text() {
        "" => name.required(faults, ""),
        text => name.each(faults, words::path_segment(text)),
    }
    for subject in Place::top(object, "subjects").items() {
        let (name, group) = (subject.at("name"), subject.at("apiGroup"));
        if name.text().is_empty() {
            name.required(faults, "");
        }
        match subject.at("kind").text() {
            "ServiceAccount" => {
                if !name.text().is_empty() {
                    name.each(faults, words::subdomain(name.text()));
                }
                if !group.text().is_empty() {
                    group.one_of(faults, &[""]);
                }
                let namespace = subject.at("namespace");
                if reach == Reach::Cluster && namespace.text().is_empty() {
                    namespace.required(faults, "");
                }
            }
            "User" | "Group" => group.one_of(faults, &[GROUP]),
            _ => subject.at("kind").one_of(faults, &["ServiceAccount", "User", "Group"]),
        }
    }
}
