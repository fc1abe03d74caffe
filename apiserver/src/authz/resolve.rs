//! Resolving: the rules that bindings give a user.

use std::fmt;
use std::ops::ControlFlow;

use serde_json::Value;

use super::rule::PolicyRule;
use crate::identity::User;
use crate::object;
use crate::store::{ResourceId, Store};

/// The group of roles and bindings.
pub(super) const GROUP: &str = "rbac.authorization.k8s.io";

/// The origin of a rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct RuleSource<'a> {
    binding: &'a Value,
    subject: &'a Value,
    namespace: &'a str,
}

impl fmt::Display for RuleSource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, role) = (object::name(self.binding), &self.binding["roleRef"]);
        let (kind, role) =
            (role["kind"].as_str().unwrap_or_default(), role["name"].as_str().unwrap_or_default());
        if self.namespace.is_empty() {
            write!(f, "ClusterRoleBinding {name:?} of {kind} {role:?} to ")?;
        } else {
            let name = format!("{name}/{}", self.namespace);
            write!(f, "RoleBinding {name:?} of {kind} {role:?} to ")?;
        }
        let text = |key: &str| self.subject[key].as_str().unwrap_or_default();
        if text("kind") == "ServiceAccount" {
            let namespace = if text("namespace").is_empty() { self.namespace } else { text("namespace") };
            return write!(f, "ServiceAccount {:?}", format!("{}/{namespace}", text("name")));
        }
        write!(f, "{} {:?}", text("kind"), text("name"))
    }
}

/// A role that a binding names and that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// No such role: its singular and name.
    Role(&'static str, String),
    /// The reference names no kind of role.
    Kind(String),
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Role(kind, name) => write!(f, "{kind}.{GROUP} {name:?} not found"),
            Self::Kind(kind) => write!(f, "unsupported role reference kind: {kind:?}"),
        }
    }
}

/// Visits the rules that hold for a user in a namespace, or everywhere, until the visitor has enough.
///
/// Returns what could not be resolved on the way.
pub(super) fn visit<'a>(
    store: &'a Store,
    user: &User,
    namespace: &'a str,
    mut visitor: impl FnMut(RuleSource<'a>, PolicyRule<'a>) -> ControlFlow<()>,
) -> Vec<Missing> {
    let mut missing = Vec::new();
    let groups = user.groups();
    let cluster = store.scan(&ResourceId::new(GROUP, "clusterrolebindings"), "").map(|stored| (stored, ""));
    let id = ResourceId::new(GROUP, "rolebindings");
    let local = (!namespace.is_empty()).then(|| store.in_namespace(&id, namespace));
    let bindings = cluster.chain(local.into_iter().flatten().map(|stored| (stored, namespace)));
    for (stored, namespace) in bindings {
        let binding = stored.pinned();
        let subjects = binding["subjects"].as_array().map(Vec::as_slice).unwrap_or_default();
        let Some(subject) = subjects.iter().find(|subject| applies(subject, user.name(), &groups, namespace))
        else {
            continue;
        };
        match rules_of(store, &binding["roleRef"], namespace) {
            Err(error) => missing.push(error),
            Ok(rules) => {
                let source = RuleSource { binding, subject, namespace };
                for rule in rules {
                    if visitor(source, PolicyRule(rule)).is_break() {
                        return missing;
                    }
                }
            }
        }
    }
    missing
}

fn applies(subject: &Value, name: &str, groups: &[&str], namespace: &str) -> bool {
    let text = |key: &str| subject[key].as_str().unwrap_or_default();
    match text("kind") {
        "User" => text("name") == name,
        "Group" => groups.contains(&text("name")),
        "ServiceAccount" => {
            let namespace = if text("namespace").is_empty() { namespace } else { text("namespace") };
            let rest =
                name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.strip_prefix(namespace));
            !namespace.is_empty() && rest.and_then(|rest| rest.strip_prefix(':')) == Some(text("name"))
        }
        _ => false,
    }
}

/// Returns the rules of the role that a reference names.
///
/// # Errors
/// There is no such role.
pub(super) fn rules_of<'a>(
    store: &'a Store,
    reference: &Value,
    namespace: &str,
) -> Result<&'a [Value], Missing> {
    let name = reference["name"].as_str().unwrap_or_default();
    let (plural, singular, key) = match reference["kind"].as_str().unwrap_or_default() {
        "Role" => ("roles", "role", object::key(namespace, name)),
        "ClusterRole" => ("clusterroles", "clusterrole", name.to_owned()),
        other => return Err(Missing::Kind(other.to_owned())),
    };
    let role = store.get(&ResourceId::new(GROUP, plural), &key);
    let role = role.ok_or_else(|| Missing::Role(singular, name.to_owned()))?;
    Ok(role.pinned()["rules"].as_array().map(Vec::as_slice).unwrap_or_default())
}
