//! Namespaces: the four of every cluster, and the emptying of those that terminate.

use serde_json::{Value, json};

use crate::clock::Clock;
use crate::kinds::Reach;
use crate::object;
use crate::state::State;
use crate::store::ResourceId;
use crate::write::{DeleteOptions, remove_or_mark};

/// The namespaces every cluster begins with.
pub const PRELOADED: [&str; 4] = ["kube-system", "kube-public", "default", "kube-node-lease"];

fn id() -> ResourceId {
    ResourceId::new("", "namespaces")
}

/// Creates the namespaces every cluster begins with.
pub(crate) fn preload(state: &mut State) {
    for name in PRELOADED {
        let uid = state.make_uid();
        let metadata = json!({
            "name": name, "uid": uid, "creationTimestamp": state.clock.seconds(),
            "labels": {"kubernetes.io/metadata.name": name},
        });
        let namespace = json!({
            "kind": "Namespace", "apiVersion": "v1", "metadata": metadata,
            "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
        });
        state.store.put(&id(), name, namespace);
    }
}

/// Empties every terminating namespace as far as finalizers let it; gives the number of objects touched.
pub(crate) fn step(state: &mut State) -> usize {
    let all = id();
    let terminating = state.store.scan(&all, "").filter(|stored| object::is_deleting(&stored.value()));
    let names: Vec<String> = terminating.map(|stored| object::name(&stored.value()).to_owned()).collect();
    names.into_iter().map(|name| empty(state, &name)).sum()
}

fn empty(state: &mut State, name: &str) -> usize {
    let Some(namespace) = state.store.get(&id(), name).cloned() else { return 0 };
    let ours = object::at(namespace.pinned(), "spec.finalizers").and_then(Value::as_array);
    if !ours.is_some_and(|list| list.iter().any(|f| f == "kubernetes")) {
        return 0;
    }
    let resources: Vec<_> =
        state.registry.stored().filter(|r| r.reach == Reach::Namespaced).cloned().collect();
    let prefix = format!("{name}/");
    let mut touched = 0;
    let mut held = Vec::new();
    for resource in resources {
        let there: Vec<_> = state.store.scan(&resource.storage, &prefix).cloned().collect();
        let mut left = 0;
        for stored in there {
            if !object::is_deleting(&stored.value()) {
                remove_or_mark(
                    state,
                    &resource,
                    &stored,
                    &DeleteOptions { grace: Some(0), ..DeleteOptions::default() },
                );
                touched += 1;
            }
            if let Some(stored) = state.store.get(&resource.storage, &stored.key) {
                left += 1;
                held.extend(object::finalizers(&stored.value()).into_iter().map(str::to_owned));
            }
        }
        if left > 0 {
            held.push(format!("/{}: {left}", crate::status::qualified(resource.group(), resource.plural())));
        }
    }
    let (kinds, finalizers): (Vec<String>, Vec<String>) =
        held.into_iter().partition(|text| text.starts_with('/'));
    let mut value = namespace.pinned().clone();
    let conditions = conditions(&state.clock, &kinds, &finalizers);
    set_conditions(&mut value, conditions);
    if kinds.is_empty() {
        let spec = object::child_mut(object::map_mut(&mut value), "spec");
        let rest: Vec<Value> = spec.get("finalizers").and_then(Value::as_array).cloned().unwrap_or_default();
        let rest: Vec<Value> = rest.into_iter().filter(|f| f != "kubernetes").collect();
        let done = rest.is_empty();
        if done {
            spec.remove("finalizers");
        } else {
            spec.insert("finalizers".into(), rest.into());
        }
        if done && object::finalizers(&value).is_empty() {
            state.store.delete(&id(), name);
            return touched + 1;
        }
    }
    if value != *namespace.pinned() {
        state.store.put(&id(), name, value);
        touched += 1;
    }
    touched
}

/// Writes the five conditions of a terminating namespace.
fn conditions(clock: &Clock, kinds: &[String], finalizers: &[String]) -> Vec<Value> {
    let now = clock.seconds();
    let condition = |kind: &str, status: bool, reason: &str, message: String| {
        let status = if status { "True" } else { "False" };
        json!({"type": kind, "status": status, "lastTransitionTime": now, "reason": reason, "message": message})
    };
    let resources: Vec<String> = kinds
        .iter()
        .filter_map(|text| text.trim_start_matches('/').split_once(": "))
        .map(|(kind, count)| {
            format!(
                "{} has {count} resource instances",
                if kind.contains('.') { kind.to_owned() } else { format!("{kind}.") }
            )
        })
        .collect();
    let mut counted: std::collections::BTreeMap<&str, usize> = std::collections::BTreeMap::new();
    for finalizer in finalizers {
        *counted.entry(finalizer).or_default() += 1;
    }
    let waiting: Vec<String> =
        counted.iter().map(|(f, n)| format!("{f} in {n} resource instances")).collect();
    let discovered = "All resources successfully discovered".to_owned();
    let parsed = "All legacy kube types successfully parsed".to_owned();
    let deleted = "All content successfully deleted, may be waiting on finalization".to_owned();
    let content = if resources.is_empty() {
        condition(
            "NamespaceContentRemaining",
            false,
            "ContentRemoved",
            "All content successfully removed".to_owned(),
        )
    } else {
        let message = format!("Some resources are remaining: {}", resources.join(", "));
        condition("NamespaceContentRemaining", true, "SomeResourcesRemain", message)
    };
    let held = if waiting.is_empty() {
        let message = "All content-preserving finalizers finished".to_owned();
        condition("NamespaceFinalizersRemaining", false, "ContentHasNoFinalizers", message)
    } else {
        let message =
            format!("Some content in the namespace has finalizers remaining: {}", waiting.join(", "));
        condition("NamespaceFinalizersRemaining", true, "SomeFinalizersRemain", message)
    };
    vec![
        condition("NamespaceDeletionDiscoveryFailure", false, "ResourcesDiscovered", discovered),
        condition("NamespaceDeletionGroupVersionParsingFailure", false, "ParsedGroupVersions", parsed),
        condition("NamespaceDeletionContentFailure", false, "ContentDeleted", deleted),
        content,
        held,
    ]
}

/// Sets conditions, keeping the transition time of those whose status stays.
fn set_conditions(namespace: &mut Value, mut conditions: Vec<Value>) {
    let status = object::child_mut(object::map_mut(namespace), "status");
    let before = status.get("conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    for condition in &mut conditions {
        let was = before
            .iter()
            .find(|was| was["type"] == condition["type"] && was["status"] == condition["status"]);
        if let Some(was) = was {
            condition["lastTransitionTime"] = was["lastTransitionTime"].clone();
        }
    }
    status.insert("conditions".into(), conditions.into());
}
