//! Checks the rules of a new schema.

use serde_json::Value;

use super::infer::Checker;
use super::run::deepest;
use super::types::Type;
use super::{CelRule, Parsed, roomy};
use crate::schema::error::FieldError;
use crate::schema::node::{ListKind, NodeRef};

const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Lists the errors in the rules of a schema; `path` leads to its root.
pub(in crate::schema) fn check(root: NodeRef<'_>, path: &str) -> Vec<FieldError> {
    if deepest(root).is_none() {
        return Vec::new();
    }
    let checked = roomy(|| {
        let mut errors = Vec::new();
        walk(root, path, None, &mut errors);
        errors
    });
    checked.unwrap_or_else(|| vec![FieldError::forbidden(path, "the rules can't be checked")])
}

/// Walks a schema; below `lost`, old values are not available.
fn walk(node: NodeRef<'_>, path: &str, lost: Option<&str>, errors: &mut Vec<FieldError>) {
    for (index, rule) in node.node().validations.iter().enumerate() {
        let at = format!("{path}.x-kubernetes-validations[{index}]");
        let found = wording(node, rule, &at);
        if found.is_empty() {
            errors.extend(meaning(node, rule, &at, lost));
        }
        errors.extend(found);
    }
    let whole = node.node().resource || node.node().embedded;
    for (name, below) in node.properties() {
        if !(whole && matches!(name, "metadata" | "apiVersion" | "kind")) {
            walk(below, &format!("{path}.properties[{name}]"), lost, errors);
        }
    }
    if node.node().additional.is_some()
        && let Some(below) = node.additional()
    {
        walk(below, &format!("{path}.additionalProperties"), lost, errors);
    }
    if node.node().items.is_some() {
        let lost = lost.or((!matches!(node.list(), ListKind::Map(_))).then_some(path));
        walk(node.item(), &format!("{path}.items"), lost, errors);
    }
}

/// Checks the parts of a rule other than its expressions.
fn wording(node: NodeRef<'_>, rule: &CelRule, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let broken = |text: &str| text.trim().contains(['\n', '\r']);
    let (text, message) = (rule.text.trim(), rule.message.trim());
    let shown = |text: &str| Value::from(text);
    if text.is_empty() {
        errors.push(FieldError::required(format!("{at}.rule"), "rule is not specified"));
    } else if message.is_empty() && !rule.message.is_empty() {
        errors.push(FieldError::invalid(
            format!("{at}.message"),
            &shown(&rule.message),
            "must be non-empty if specified",
        ));
    } else if broken(message) {
        errors.push(FieldError::invalid(
            format!("{at}.message"),
            &shown(&rule.message),
            "must not contain line breaks",
        ));
    } else if broken(text) && message.is_empty() {
        let why = "message must be specified if rule contains line breaks";
        errors.push(FieldError::required(format!("{at}.message"), why));
    }
    if !rule.message_expression.is_empty() && rule.message_expression.trim().is_empty() {
        let why = "messageExpression must be non-empty if specified";
        errors.push(FieldError::required(format!("{at}.messageExpression"), why));
    }
    if let Some(reason) = &rule.reason
        && !REASONS.contains(&reason.as_str())
    {
        let known: Vec<Value> = REASONS.into_iter().map(Value::from).collect();
        errors.push(FieldError::not_supported(format!("{at}.reason"), &shown(reason), &known));
    }
    if !rule.field_path.is_empty() && !leads(node, &rule.field_path) {
        let why = "must be a valid path";
        errors.push(FieldError::invalid(format!("{at}.fieldPath"), &shown(&rule.field_path), why));
    }
    errors
}

/// Returns whether a path such as `.a.b['c']` leads to a field.
fn leads(node: NodeRef<'_>, path: &str) -> bool {
    if !path.starts_with(['.', '[']) {
        return false;
    }
    let names =
        path.split(['.', '[', ']']).map(|part| part.trim_matches('\'')).filter(|part| !part.is_empty());
    names.into_iter().try_fold(node, |node, name| node.field(name)).is_some()
}

/// Checks what a rule's expressions mean.
fn meaning(node: NodeRef<'_>, rule: &CelRule, at: &str, lost: Option<&str>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let invalid = |what: &str, why: &str| {
        let mut error = FieldError::invalid(format!("{at}.{what}"), &Value::Null, why);
        error.message = format!("Invalid value: {}: {why}", rule.shown());
        error
    };
    let boolean = |given: &Type<'_>| matches!(given, Type::Bool | Type::Dyn);
    if let Err(why) =
        typed(node, rule, &rule.text, &rule.parsed, boolean, "cel expression must evaluate to a bool")
    {
        errors.push(invalid("rule", &why));
    }
    if let Some(parsed) = &rule.parsed_message {
        let text = |given: &Type<'_>| matches!(given, Type::Text | Type::Dyn);
        let why = "messageExpression must evaluate to a string";
        if let Err(why) = typed(node, rule, &rule.message_expression, parsed, text, why) {
            let why = why.replacen("compilation failed", "messageExpression compilation failed", 1);
            errors.push(invalid("messageExpression", &why));
        }
    }
    if let (true, Some(lost)) = (rule.uses_old_self, lost) {
        let why = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {lost}");
        errors.push(FieldError::invalid(format!("{at}.rule"), &Value::from(rule.text.as_str()), &why));
    }
    if let (false, Some(flag)) = (rule.uses_old_self, rule.optional_old_self) {
        let why = "may not be set if oldSelf is not used in rule";
        errors.push(FieldError::invalid(format!("{at}.optionalOldSelf"), &Value::from(flag), why));
    }
    errors
}

/// Finds the type of an expression and checks that it fits.
fn typed(
    node: NodeRef<'_>,
    rule: &CelRule,
    source: &str,
    parsed: &Parsed,
    fits: impl Fn(&Type<'_>) -> bool,
    why: &str,
) -> Result<(), String> {
    let expression = parsed.as_ref().map_err(|error| format!("compilation failed: {error}"))?;
    let own = Type::of(node);
    let old =
        if rule.takes_optional_old_self() { Type::Optional(Box::new(own.clone())) } else { own.clone() };
    let mut checker = Checker::new(source, vec![("self".to_owned(), own), ("oldSelf".to_owned(), old)]);
    let given = checker.infer(expression);
    if !checker.errors.is_empty() {
        return Err(format!("compilation failed: {}", checker.errors.join("\n")));
    }
    if fits(&given) { Ok(()) } else { Err(why.to_owned()) }
}
