//! Without the feature `cel`: definitions and webhooks with rules in CEL are refused.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::error::FieldError;
use super::node::NodeRef;

/// What says why.
const MISSING: &str = "rules in CEL need the feature `cel` of watchkeeper-apiserver";

/// A rule that nothing can run.
#[derive(Debug)]
pub(crate) struct NoRule;

pub(crate) use NoRule as CelRule;

impl NoRule {
    /// Reads the rules of a schema's node.
    pub(super) fn all(fields: &Map<String, Value>) -> Arc<[CelRule]> {
        let rules = fields.get("x-kubernetes-validations").and_then(Value::as_array);
        rules.into_iter().flatten().map(|_| NoRule).collect()
    }
}

/// Refuses a schema that has rules.
pub(super) fn check(root: NodeRef<'_>, path: &str) -> Vec<FieldError> {
    let found = deepest(root).map(|_| FieldError::forbidden(path, MISSING));
    found.into_iter().collect()
}

/// Returns no errors: no schema with rules is served.
pub(super) fn run(_: NodeRef<'_>, _: &Value, _: Option<&Value>) -> Vec<FieldError> {
    Vec::new()
}

/// Returns whether a schema has rules.
pub(super) fn deepest(node: NodeRef<'_>) -> Option<usize> {
    let own = (!node.node().validations.is_empty()).then_some(1);
    let properties = node.properties().find_map(|(_, below)| deepest(below));
    let additional = node.node().additional.and_then(|_| node.additional()).and_then(deepest);
    let items = node.node().items.and_then(|_| deepest(node.item()));
    own.or(properties).or(additional).or(items)
}

/// Refuses every condition.
///
/// # Errors
/// Always.
pub(crate) fn evaluate_condition(_: &str, _: &[(&'static str, &Value)]) -> Result<bool, String> {
    Err(MISSING.to_owned())
}

/// Refuses every condition.
///
/// # Errors
/// Always.
pub(crate) fn compile_condition(_: &str) -> Result<(), String> {
    Err(MISSING.to_owned())
}
