//! Matching: which requests a webhook, a policy or a binding is for.

use std::sync::Arc;

use serde_json::{Value, json};

use super::request::Asked;
use crate::kinds::Served;
use crate::selector::matches_labels;
use crate::state::State;
use crate::store::ResourceId;

/// Rules and selectors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Matching<'a> {
    /// The fields `namespaceSelector`, `objectSelector` and `matchPolicy`.
    value: &'a Value,
    /// The requests that it is for; `None` if it is for all.
    rules: Option<&'a [Value]>,
    excluded: &'a [Value],
}

/// The namespace of the request is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoNamespace;

impl<'a> Matching<'a> {
    /// Reads those of a webhook, which is for nothing without rules.
    pub(super) fn of_webhook(value: &'a Value) -> Self {
        Self { value, rules: Some(list(value, "rules")), excluded: &[] }
    }

    /// Reads those of a policy or a binding, which are for everything without rules.
    pub(super) fn of_policy(value: &'a Value) -> Self {
        let rules = Some(list(value, "resourceRules")).filter(|rules| !rules.is_empty());
        Self { value, rules, excluded: list(value, "excludeResourceRules") }
    }

    /// Returns the version in which a request matches; `None` if it does not.
    ///
    /// # Errors
    /// It depends on a namespace that is not there.
    pub(super) fn matches(
        self,
        state: &State,
        asked: &Asked,
        object: Option<&Value>,
    ) -> Result<Option<Arc<Served>>, NoNamespace> {
        let objects = [object, asked.old.as_ref()];
        let selector = &self.value["objectSelector"];
        let none = json!({});
        let chosen = |selector: &Value| {
            is_empty(selector) || objects.iter().flatten().any(|object| matches_labels(selector, object))
        };
        if !chosen(selector) || self.named(self.excluded, asked).is_some() {
            return Ok(None);
        }
        let version = match self.rules {
            Some(rules) => self.named(rules, asked),
            None => Some(asked.served.clone()),
        };
        let Some(version) = version else { return Ok(None) };
        let selector = &self.value["namespaceSelector"];
        if !is_empty(selector) && asked.is_namespace() {
            let namespace = object.or(asked.old.as_ref()).unwrap_or(&none);
            if !matches_labels(selector, namespace) {
                return Ok(None);
            }
        } else if !is_empty(selector) && asked.is_namespaced() {
            let namespace = state.store.get(&ResourceId::new("", "namespaces"), &asked.namespace);
            if !matches_labels(selector, namespace.ok_or(NoNamespace)?.pinned()) {
                return Ok(None);
            }
        }
        Ok(Some(version))
    }

    /// Returns the first version that one of these rules names.
    fn named(self, rules: &[Value], asked: &Asked) -> Option<Arc<Served>> {
        if rules.iter().any(|rule| fits(rule, asked, &asked.served)) {
            return Some(asked.served.clone());
        }
        if self.value["matchPolicy"].as_str().is_some_and(|policy| policy == "Exact") {
            return None;
        }
        let versions = asked.versions();
        rules.iter().find_map(|rule| versions.iter().find(|version| fits(rule, asked, version)).cloned())
    }
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn is_empty(selector: &Value) -> bool {
    let none = |key: &str| match &selector[key] {
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => true,
    };
    none("matchLabels") && none("matchExpressions")
}

/// Returns whether a rule names a request in a version.
fn fits(rule: &Value, asked: &Asked, served: &Served) -> bool {
    let names = |key: &str, wanted: &str| {
        list(rule, key).iter().filter_map(Value::as_str).any(|text| text == "*" || text == wanted)
    };
    let scope = match rule["scope"].as_str().unwrap_or("*") {
        "Namespaced" => asked.is_namespaced() && !asked.is_namespace(),
        "Cluster" => !asked.is_namespaced() || asked.is_namespace(),
        _ => true,
    };
    let objects = list(rule, "resourceNames");
    scope
        && names("operations", asked.operation.as_str())
        && names("apiGroups", asked.resource.group())
        && names("apiVersions", &served.version)
        && list(rule, "resources").iter().filter_map(Value::as_str).any(|text| is_named(text, asked))
        && (objects.is_empty() || objects.iter().any(|name| *name == asked.name))
}

/// Returns whether `pods`, `pods/log`, `*`, `*/log`, `pods/*` or `*/*` matches the request's resource.
fn is_named(text: &str, asked: &Asked) -> bool {
    let (plural, subresource) = text.split_once('/').unwrap_or((text, ""));
    let below = subresource == "*" || subresource == asked.subresource;
    (plural == "*" || plural == asked.resource.plural()) && below
}
