//! Policies as they are stored, with their parsed expressions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::admission::request::GROUP;
use crate::schema::Formula;
use crate::store::{ResourceId, Stored};

/// The kind of policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::admission) enum PolicyFamily {
    /// They may change the object.
    Mutating,
    /// They may only refuse it.
    Validating,
}

impl PolicyFamily {
    pub(super) fn policies(self) -> ResourceId {
        ResourceId::new(
            GROUP,
            if self == Self::Mutating { "mutatingadmissionpolicies" } else { "validatingadmissionpolicies" },
        )
    }

    pub(super) fn bindings(self) -> ResourceId {
        let plural = match self {
            Self::Mutating => "mutatingadmissionpolicybindings",
            Self::Validating => "validatingadmissionpolicybindings",
        };
        ResourceId::new(GROUP, plural)
    }
}

/// One rule of a validating policy.
#[derive(Debug)]
pub(super) struct Validation {
    pub(super) formula: Formula,
    pub(super) message: String,
    pub(super) message_formula: Option<Formula>,
    pub(super) reason: String,
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
pub(super) enum Patches {
    /// As a part of the object.
    Configuration,
    /// As operations of a JSON patch.
    Operations,
}

/// A policy with its parsed expressions.
#[derive(Debug)]
pub(crate) struct Policy {
    pub(super) name: String,
    pub(super) spec: Value,
    pub(super) conditions: Vec<Formula>,
    pub(super) variables: Vec<(String, Formula)>,
    pub(super) validations: Vec<Validation>,
    pub(super) audits: Vec<Formula>,
    pub(super) mutations: Vec<(Patches, Formula)>,
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

    pub(super) fn ignores_failures(&self) -> bool {
        self.spec["failurePolicy"] == "Ignore"
    }
}

/// The policies that were read, so that each request need not parse them.
#[derive(Debug, Default)]
pub(crate) struct PolicyCache(BTreeMap<(PolicyFamily, Arc<str>), Parsed>);

/// A stored policy, and what was parsed of it.
type Parsed = (Arc<Stored>, Arc<Policy>);

impl PolicyCache {
    /// Forgets the policies of a family that do not exist any more.
    pub(super) fn forget_others(&mut self, family: PolicyFamily, there: &BTreeSet<&Arc<str>>) {
        self.0.retain(|(of, key), _| *of != family || there.contains(key));
    }

    /// Returns a policy, parsed once.
    pub(super) fn read(&mut self, family: PolicyFamily, stored: &Arc<Stored>) -> Arc<Policy> {
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
