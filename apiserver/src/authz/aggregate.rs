//! Aggregation: roles that collect the rules of other roles, chosen by labels.

use std::sync::Arc;

use serde_json::{Value, json};

use super::resolve::GROUP;
use crate::apply::{ApplyInput, Force, apply};
use crate::object;
use crate::selector::matches_labels;
use crate::state::{Authorization, State};
use crate::store::{ResourceId, Stored};

/// Brings the rules of aggregated roles up to date; gives the number of roles changed.
pub(crate) fn step(state: &mut State) -> usize {
    let id = ResourceId::new(GROUP, "clusterroles");
    if state.authorization != Authorization::Rbac || !state.store.changed_since(&id, state.aggregated) {
        return 0;
    }
    state.aggregated = state.store.version();
    let roles: Vec<Arc<Stored>> = state.store.scan(&id, "").cloned().collect();
    let mut changed = 0;
    for role in &roles {
        let Some(selectors) = role.pinned()["aggregationRule"]["clusterRoleSelectors"].as_array() else {
            continue;
        };
        let rules = gathered(&roles, role, selectors);
        if !selectors.is_empty()
            && role.pinned()["rules"].as_array().map(Vec::as_slice).unwrap_or_default() != rules
        {
            changed += usize::from(write(state, &id, role, rules));
        }
    }
    changed
}

fn gathered(roles: &[Arc<Stored>], role: &Stored, selectors: &[Value]) -> Vec<Value> {
    let mut rules: Vec<Value> = Vec::new();
    let others = roles.iter().filter(|other| other.key != role.key);
    for other in
        others.filter(|other| selectors.iter().any(|selector| matches_labels(selector, other.pinned())))
    {
        for rule in other.pinned()["rules"].as_array().into_iter().flatten() {
            if !rules.contains(rule) {
                rules.push(rule.clone());
            }
        }
    }
    rules
}

/// Applies the rules as the controller of a cluster does.
fn write(state: &mut State, id: &ResourceId, role: &Stored, rules: Vec<Value>) -> bool {
    let Some(served) =
        state.registry.find(&id.group, &id.plural).map(|found| found.storage_version().clone())
    else {
        return false;
    };
    let now = state.clock.seconds();
    let applied = json!({
        "apiVersion": served.api_version(), "kind": "ClusterRole", "metadata": {"name": object::name(role.pinned())},
        "rules": rules,
    });
    let merged = apply(ApplyInput {
        live: Some(role.pinned()),
        applied: &applied,
        manager: "clusterrole-aggregation-controller",
        force: Force::Take,
        subresource: None,
        api_version: &served.api_version(),
        schema: &served.schema,
        ignored: &[],
        now: &now,
    });
    let Ok(mut merged) = merged else { return false };
    if rules.is_empty() {
        object::map_mut(&mut merged).insert("rules".into(), Value::Null);
    }
    state.store.put(id, &role.key, merged);
    true
}
