//! Conditions: expressions on whole requests, which are true or not.

use serde_json::Value;

use super::asker::{Asker, name_variables};
use super::cost::cost;
use super::{SHALLOW, depth, parse, roomy, value};
use crate::limits;
use crate::schema::access::Authorizer;

/// Evaluates a condition on named values, which may also ask the authorizer.
///
/// # Errors
/// Why it is neither true nor false.
pub(crate) fn evaluate_condition(
    expression: &str,
    scope: &[(&'static str, &Value)],
    authorizer: Authorizer<'_>,
) -> Result<bool, String> {
    let work = || {
        let mut parsed = parse(expression)?;
        name_variables(&mut parsed);
        let cost = cost(&parsed, scope.iter().copied());
        if cost > limits::CEL_CONDITION {
            return Err("operation cancelled: actual cost limit exceeded".to_owned());
        }
        let variables: Vec<_> = scope.iter().map(|(name, value)| (*name, value::plain(value))).collect();
        match Asker::new(authorizer.clone()).evaluate(&parsed, &variables, cost).0? {
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
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::schema::access::{AccessAnswer, AccessQuestion};

    #[test]
    fn a_condition_sees_the_request_and_both_objects() {
        let (object, request) =
            (json!({"metadata": {"name": "a", "labels": {"x": "y"}}}), json!({"operation": "CREATE"}));
        let scope = [("object", &object), ("oldObject", &Value::Null), ("request", &request)];
        let decide = |question: &AccessQuestion| AccessAnswer {
            allowed: question.verb == "get" && question.name == "a",
            reason: String::new(),
        };
        let own =
            AccessQuestion { resource: "pods".to_owned(), name: "a".to_owned(), ..AccessQuestion::default() };
        let authorizer = Authorizer { request: own, decide: Arc::new(decide) };
        for (expression, expected) in [
            ("object.metadata.name == 'a' && oldObject == null", Ok(true)),
            ("request.operation in ['UPDATE', 'DELETE']", Ok(false)),
            ("has(object.metadata.labels) && object.metadata.labels.x.startsWith('y')", Ok(true)),
            ("authorizer.requestResource.check('get').allowed()", Ok(true)),
            ("authorizer.requestResource.name('b').check('get').allowed()", Ok(false)),
        ] {
            assert_eq!(evaluate_condition(expression, &scope, authorizer.clone()), expected, "{expression}");
        }
        let large = "lists.range(9000000000).size() > 0";
        for wrong in ["object.spec.x == 1", "'text'", "a b", "[0].map(x, x)", large] {
            assert!(evaluate_condition(wrong, &scope, authorizer.clone()).is_err(), "{wrong}");
        }
    }
}
