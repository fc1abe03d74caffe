//! Conditions: expressions on whole requests, which are true or not.

use serde_json::Value;

use super::cost::cost;
use super::library::evaluate;
use super::{SHALLOW, depth, parse, roomy, value};
use crate::limits;

/// Evaluates a condition on named values.
///
/// # Errors
/// Why it is neither true nor false.
pub(crate) fn evaluate_condition(expression: &str, scope: &[(&'static str, &Value)]) -> Result<bool, String> {
    let work = || {
        let parsed = parse(expression)?;
        if cost(&parsed, scope.iter().copied()) > limits::CEL_CONDITION {
            return Err("operation cancelled: actual cost limit exceeded".to_owned());
        }
        let variables = scope.iter().map(|(name, value)| (*name, value::plain(value)));
        match evaluate(&parsed, variables)? {
            kube_cel::cel::Value::Bool(answer) => Ok(answer),
            _ => Err("must evaluate to bool".to_owned()),
        }
    };
    if depth(expression) <= SHALLOW {
        return work();
    }
    roomy(work).unwrap_or_else(|| Err("internal error".to_owned()))
}

/// Checks that a condition can be read at all.
///
/// # Errors
/// The error.
pub(crate) fn compile_condition(expression: &str) -> Result<(), String> {
    let read = || parse(expression).map(drop);
    let read = if depth(expression) <= SHALLOW { read() } else { roomy(read).unwrap_or(Ok(())) };
    read.map_err(|why| format!("compilation failed: {why}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_condition_sees_the_request_and_both_objects() {
        let (object, request) =
            (json!({"metadata": {"name": "a", "labels": {"x": "y"}}}), json!({"operation": "CREATE"}));
        let scope = [("object", &object), ("oldObject", &Value::Null), ("request", &request)];
        for (expression, expected) in [
            ("object.metadata.name == 'a' && oldObject == null", Ok(true)),
            ("request.operation in ['UPDATE', 'DELETE']", Ok(false)),
            ("has(object.metadata.labels) && object.metadata.labels.x.startsWith('y')", Ok(true)),
        ] {
            assert_eq!(evaluate_condition(expression, &scope), expected, "{expression}");
        }
        let large = "lists.range(9000000000).size() > 0";
        for wrong in ["object.spec.x == 1", "'text'", "a b", "[0].map(x, x)", large] {
            assert!(evaluate_condition(wrong, &scope).is_err(), "{wrong}");
        }
    }
}
