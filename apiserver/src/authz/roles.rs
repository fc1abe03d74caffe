//! What roles and bindings say of a user.

use std::ops::ControlFlow;

use serde_json::Value;

use super::attributes::Attributes;
use super::decision::Decision;
use super::resolve::{Missing, visit};
use super::rule::texts;
use crate::identity::User;
use crate::state::State;

pub(crate) use super::aggregate::step;
pub(crate) use super::defaults::install;

/// Decides whether a role that is bound to a user allows something.
pub(super) fn by_roles(state: &State, user: &User, asked: &Attributes) -> Decision {
    let mut by = None;
    let missing = visit(&state.store, user, &asked.namespace, |source, rule| {
        if rule.allows(asked) {
            by = Some(source);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    match by {
        Some(source) => Decision::Allowed(format!("RBAC: allowed by {source}")),
        // Health is open to everyone, whatever the roles allow.
        None if asked.path.as_deref().is_some_and(is_health) => Decision::Allowed(String::new()),
        None if missing.is_empty() => Decision::NoOpinion(String::new()),
        None => Decision::NoOpinion(format!("RBAC: {}", all(&missing))),
    }
}

fn is_health(path: &str) -> bool {
    matches!(path, "/healthz" | "/livez" | "/readyz")
}

/// Writes what is missing as the server lists errors: each once.
pub(super) fn all(missing: &[Missing]) -> String {
    let mut texts: Vec<String> = Vec::new();
    for text in missing.iter().map(ToString::to_string) {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    if let [one] = texts.as_slice() { one.clone() } else { format!("[{}]", texts.join(", ")) }
}

/// Lists what roles let a user do in a namespace: rules of resources, rules of paths, and what could not be resolved.
pub(super) fn rules_by_roles(
    state: &State,
    user: &User,
    namespace: &str,
) -> (Vec<Value>, Vec<Value>, String) {
    let (mut resources, mut paths, mut error) = (Vec::new(), Vec::new(), String::new());
    let missing = visit(&state.store, user, namespace, |_, rule| {
        let rule = rule.0;
        let part = |keys: &[&str]| {
            let there = keys.iter().filter(|key| texts(rule, key).next().is_some());
            there.map(|key| ((*key).to_owned(), rule[*key].clone())).collect::<Value>()
        };
        if texts(rule, "resources").next().is_some() {
            resources.push(part(&["verbs", "apiGroups", "resources", "resourceNames"]));
        }
        if texts(rule, "nonResourceURLs").next().is_some() {
            paths.push(part(&["verbs", "nonResourceURLs"]));
        }
        ControlFlow::Continue(())
    });
    if !missing.is_empty() {
        error = all(&missing);
    }
    (resources, paths, error)
}
