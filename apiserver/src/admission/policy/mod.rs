//! Policies: rules in CEL, and the bindings that put them to use.

mod invocation;
mod mutating;
mod params;
mod validating;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::hook::GROUP;
use crate::schema::Formula;
use crate::state::State;
use crate::store::{ResourceId, Stored};

pub(super) use self::mutating::{PolicyRounds, change};
pub(super) use self::validating::check;

/// The kind of policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PolicyFamily {
    /// They may change the object.
    Mutating,
    /// They may only refuse it.
    Validating,
}

impl PolicyFamily {
    fn policies(self) -> ResourceId {
        ResourceId::new(
            GROUP,
            if self == Self::Mutating { "mutatingadmissionpolicies" } else { "validatingadmissionpolicies" },
        )
    }

    fn bindings(self) -> ResourceId {
        let plural = match self {
            Self::Mutating => "mutatingadmissionpolicybindings",
            Self::Validating => "validatingadmissionpolicybindings",
        };
        ResourceId::new(GROUP, plural)
    }
}

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

/// One rule of a validating policy.
#[derive(Debug)]
struct Validation {
    formula: Formula,
    message: String,
    message_formula: Option<Formula>,
    reason: String,
}

impl Validation {
    fn read(value: &Value) -> Self {
        let text = |key: &str| value[key].as_str().unwrap_or_default();
        let message = text("messageExpression");
        Self {
            formula: Formula::read(text("expression")),
            message: text("message").trim().to_owned(),
            message_formula: (!message.trim().is_empty()).then(|| Formula::read(message)),
            reason: text("reason").to_owned(),
        }
    }
}

/// How a mutation writes what it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patches {
    /// As a part of the object.
    Configuration,
    /// As operations of a JSON patch.
    Operations,
}

/// A policy with its parsed expressions.
#[derive(Debug)]
pub(crate) struct Policy {
    name: String,
    spec: Value,
    conditions: Vec<Formula>,
    variables: Vec<(String, Formula)>,
    validations: Vec<Validation>,
    audits: Vec<Formula>,
    mutations: Vec<(Patches, Formula)>,
}

impl Policy {
    fn read(policy: &Value) -> Self {
        let spec = policy["spec"].clone();
        let list = |key: &str| spec[key].as_array().cloned().unwrap_or_default();
        let formula = |value: &Value, key: &str| Formula::read(value[key].as_str().unwrap_or_default());
        let variable = |value: &Value| {
            let name = value["name"].as_str().unwrap_or_default();
            (name.to_owned(), formula(value, "expression"))
        };
        let mutation = |value: &Value| match value["patchType"].as_str() {
            Some("JSONPatch") => (Patches::Operations, formula(&value["jsonPatch"], "expression")),
            _ => (Patches::Configuration, formula(&value["applyConfiguration"], "expression")),
        };
        Self {
            name: policy["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
            conditions: list("matchConditions").iter().map(|value| formula(value, "expression")).collect(),
            variables: list("variables").iter().map(variable).collect(),
            validations: list("validations").iter().map(Validation::read).collect(),
            audits: list("auditAnnotations").iter().map(|value| formula(value, "valueExpression")).collect(),
            mutations: list("mutations").iter().map(mutation).collect(),
            spec,
        }
    }

    fn ignores_failures(&self) -> bool {
        self.spec["failurePolicy"] == "Ignore"
    }
}

/// The policies that were read, so that each request need not parse them.
#[derive(Debug, Default)]
pub(crate) struct PolicyCache(BTreeMap<(PolicyFamily, Arc<str>), Parsed>);

/// A stored policy, and what was parsed of it.
type Parsed = (Arc<Stored>, Arc<Policy>);

impl PolicyCache {
    /// Returns a policy, parsed once.
    fn read(&mut self, family: PolicyFamily, stored: &Arc<Stored>) -> Arc<Policy> {
        let key = (family, stored.key.clone());
        if let Some((known, policy)) = self.0.get(&key)
            && Arc::ptr_eq(known, stored)
        {
            return policy.clone();
        }
        let policy = Arc::new(Policy::read(&stored.value()));
        self.0.insert(key, (stored.clone(), policy.clone()));
        policy
    }
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
    state.policies.0.retain(|(of, key), _| *of != family || there.contains(key));
    let with_bindings = policies.iter().filter_map(|policy| {
        let bindings = bindings.remove(&*policy.key)?;
        Some((state.policies.read(family, policy), bindings))
    });
    with_bindings.collect()
}
