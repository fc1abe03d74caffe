//! Policies: rules in CEL, and the bindings that put them to use.

mod invocation;
mod mutating;
mod params;
mod rules;
mod validating;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::state::State;
use crate::store::{ResourceId, Stored};

pub(super) use self::mutating::{PolicyRounds, change};
use self::rules::Policy;
pub(crate) use self::rules::PolicyCache;
pub(super) use self::rules::PolicyFamily;
pub(super) use self::validating::check;

/// Returns whether there are bindings of a family: without one, no policy is asked.
pub(super) fn are_bound(state: &State, family: PolicyFamily) -> bool {
    state.store.count(&family.bindings()) > 0
}

/// Returns whether requests for a kind are never asked about: a wrong policy must be repairable.
fn is_exempt(group: &str, plural: &str) -> bool {
    let family = [PolicyFamily::Mutating, PolicyFamily::Validating];
    let own = family.iter().flat_map(|family| [family.policies(), family.bindings()]);
    own.into_iter().any(|id| id == ResourceId::new(group, plural))
}

/// Returns the policies of a family that have bindings, with these, by their names.
fn bound(state: &mut State, family: PolicyFamily) -> Vec<(Arc<Policy>, Vec<Arc<Stored>>)> {
    let mut bindings: BTreeMap<String, Vec<Arc<Stored>>> = BTreeMap::new();
    for binding in state.store.scan(&family.bindings(), "") {
        let name = binding.pinned()["spec"]["policyName"].as_str().unwrap_or_default();
        bindings.entry(name.to_owned()).or_default().push(binding.clone());
    }
    let policies: Vec<Arc<Stored>> = state.store.scan(&family.policies(), "").cloned().collect();
    let there: BTreeSet<&Arc<str>> = policies.iter().map(|policy| &policy.key).collect();
    state.policies.forget_others(family, &there);
    let with_bindings = policies.iter().filter_map(|policy| {
        let bindings = bindings.remove(&*policy.key)?;
        Some((state.policies.read(family, policy), bindings))
    });
    with_bindings.collect()
}
