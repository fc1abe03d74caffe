//! Policies: what admission policies and their bindings must be.

use std::collections::BTreeSet;

use serde_json::Value;

use super::webhooks::{among, rules};
use crate::schema::{FormulaNames, Wanted};
use crate::status::Cause;

/// The most conditions of a policy.
const CONDITIONS: usize = 64;

/// The most audit annotations of a policy.
const AUDITS: usize = 20;

/// The most bytes of the expression of an audit annotation.
const AUDIT_TEXT: usize = 5 * 1024;

/// Checks a policy or a binding.
pub(super) fn faults(kind: &str, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let is_mutating = kind.starts_with("Mutating");
    match kind.ends_with("Binding") {
        true => binding(&object["spec"], is_mutating, &mut causes),
        false => policy(&object["spec"], is_mutating, &mut causes),
    }
    causes
}

fn policy(spec: &Value, is_mutating: bool, causes: &mut Vec<Cause>) {
    among(spec, "failurePolicy", &["Fail", "Ignore"], "spec", causes);
    let constraints = &spec["matchConstraints"];
    matching(constraints, "spec.matchConstraints", is_mutating, causes);
    if list(constraints, "resourceRules").is_empty() {
        causes.push(Cause::required("spec.matchConstraints.resourceRules", ""));
    }
    let has_params = !spec["paramKind"].is_null();
    for key in ["apiVersion", "kind"].into_iter().filter(|_| has_params) {
        if spec["paramKind"][key].as_str().is_none_or(str::is_empty) {
            causes.push(Cause::required(format!("spec.paramKind.{key}"), ""));
        }
    }
    conditions(spec, &FormulaNames::new(has_params), causes);
    let mut names = FormulaNames::new(has_params);
    if is_mutating || !list(spec, "variables").is_empty() {
        names = names.with_variables();
    }
    for (index, variable) in list(spec, "variables").iter().enumerate() {
        let at = format!("spec.variables[{index}]");
        let (name, text) = (text(variable, "name"), text(variable, "expression"));
        if name.trim().is_empty() {
            causes.push(Cause::required(format!("{at}.name"), "name is not specified"));
        } else if !is_identifier(name) {
            let why = "must be a valid CEL identifier";
            causes.push(Cause::invalid(format!("{at}.name"), &format!("{name:?}"), why));
        }
        let checked = |text: &str| names.add(name, text);
        expression(text, &format!("{at}.expression"), "expression is not specified", checked, causes);
    }
    match is_mutating {
        true => mutations(spec, &names, causes),
        false => validations(spec, &names, causes),
    }
}

/// Checks what a policy or a binding is for.
fn matching(value: &Value, at: &str, is_mutating: bool, causes: &mut Vec<Cause>) {
    among(value, "matchPolicy", &["Equivalent", "Exact"], at, causes);
    for key in ["resourceRules", "excludeResourceRules"] {
        rules(&value[key], &format!("{at}.{key}"), causes);
    }
    let operations = list(value, "resourceRules").iter().flat_map(|rule| list(rule, "operations"));
    for operation in operations.filter_map(Value::as_str).filter(|_| is_mutating) {
        if !matches!(operation, "CREATE" | "UPDATE") {
            let message =
                format!("Unsupported value: {operation:?}: supported values: \"CREATE\", \"UPDATE\"");
            causes.push(Cause::new(
                "FieldValueNotSupported",
                format!("{at}.resourceRules.operations"),
                message,
            ));
        }
    }
}

fn conditions(spec: &Value, names: &FormulaNames, causes: &mut Vec<Cause>) {
    let (all, mut known) = (list(spec, "matchConditions"), BTreeSet::new());
    if all.len() > CONDITIONS {
        let message = format!("Too many: {}: must have at most {CONDITIONS} items", all.len());
        causes.push(Cause::new("FieldValueTooMany", "spec.matchConditions", message));
    }
    for (index, condition) in all.iter().enumerate() {
        let at = format!("spec.matchConditions[{index}]");
        let checked = |text: &str| names.check(text, Wanted::Bool);
        expression(text(condition, "expression"), &format!("{at}.expression"), "", checked, causes);
        let name = text(condition, "name");
        if name.is_empty() {
            causes.push(Cause::required(format!("{at}.name"), ""));
        } else if !known.insert(name) {
            let message = format!("Duplicate value: {name:?}");
            causes.push(Cause::new("FieldValueDuplicate", format!("{at}.name"), message));
        }
    }
}

fn validations(spec: &Value, names: &FormulaNames, causes: &mut Vec<Cause>) {
    let (validations, audits) = (list(spec, "validations"), list(spec, "auditAnnotations"));
    if validations.is_empty() && audits.is_empty() {
        let why = "validations or auditAnnotations must contain at least one item";
        causes.push(Cause::required("spec.validations", why));
        causes.push(Cause::required("spec.auditAnnotations", why));
    }
    for (index, validation) in validations.iter().enumerate() {
        let at = format!("spec.validations[{index}]");
        let given = |key: &str| text(validation, key);
        let checked = |text: &str| names.check(text, Wanted::Bool);
        let missing = "expression is not specified";
        expression(given("expression"), &format!("{at}.expression"), missing, checked, causes);
        for key in ["messageExpression", "message"] {
            if !given(key).is_empty() && given(key).trim().is_empty() {
                let shown = format!("{:?}", given(key));
                causes.push(Cause::invalid(format!("{at}.{key}"), &shown, "must be non-empty if specified"));
            }
        }
        if !given("messageExpression").trim().is_empty() {
            let checked = |text: &str| names.check(text, Wanted::Message);
            expression(given("messageExpression"), &format!("{at}.messageExpression"), "", checked, causes);
        }
        if given("message").trim().contains(['\n', '\r']) {
            let shown = format!("{:?}", given("message"));
            causes.push(Cause::invalid(format!("{at}.message"), &shown, "must not contain line breaks"));
        }
        among(validation, "reason", &["Forbidden", "Invalid", "RequestEntityTooLarge"], &at, causes);
    }
    if audits.len() > AUDITS {
        let why = format!("must not have more than {AUDITS} auditAnnotations");
        causes.push(Cause::invalid("spec.auditAnnotations", &spec["auditAnnotations"].to_string(), &why));
    }
    for (index, audit) in audits.iter().enumerate() {
        let at = format!("spec.auditAnnotations[{index}]");
        let key = text(audit, "key");
        if audits[..index].iter().any(|other| text(other, "key") == key) {
            let message = format!("Duplicate value: {key:?}");
            causes.push(Cause::new("FieldValueDuplicate", format!("{at}.key"), message));
        }
        let at = format!("{at}.valueExpression");
        let given = text(audit, "valueExpression");
        if given.trim().len() > AUDIT_TEXT {
            causes.push(Cause::required(at, &format!("must not exceed {AUDIT_TEXT} bytes in length")));
            continue;
        }
        let checked = |text: &str| names.check(text, Wanted::TextOrNull);
        expression(given, &at, "valueExpression is not specified", checked, causes);
    }
}

fn mutations(spec: &Value, names: &FormulaNames, causes: &mut Vec<Cause>) {
    let all = list(spec, "mutations");
    if all.is_empty() {
        causes.push(Cause::required("spec.mutations", "mutations must contain at least one item"));
    }
    for (index, mutation) in all.iter().enumerate() {
        let at = format!("spec.mutations[{index}]");
        among(mutation, "patchType", &["ApplyConfiguration", "JSONPatch"], &at, causes);
        let (own, other, wanted) = match text(mutation, "patchType") {
            "" => {
                causes.push(Cause::required(format!("{at}.patchType"), ""));
                continue;
            }
            "ApplyConfiguration" => ("applyConfiguration", "jsonPatch", Wanted::Configuration),
            "JSONPatch" => ("jsonPatch", "applyConfiguration", Wanted::Patches),
            _ => continue,
        };
        let kind = text(mutation, "patchType");
        if mutation[own].is_null() {
            let why = format!("must be specified when patchType is {kind}");
            causes.push(Cause::required(format!("{at}.{own}"), &why));
        } else {
            let given = text(&mutation[own], "expression");
            let checked = |text: &str| names.check(text, wanted);
            expression(given.trim(), &format!("{at}.{own}.expression"), "", checked, causes);
        }
        if !mutation[other].is_null() {
            let why = format!("must not be specified when patchType is {kind}");
            causes.push(Cause::invalid(format!("{at}.{other}"), &format!("\"{{{other}}}\""), &why));
        }
    }
    match text(spec, "reinvocationPolicy") {
        "" => causes.push(Cause::required("spec.reinvocationPolicy", "")),
        _ => among(spec, "reinvocationPolicy", &["IfNeeded", "Never"], "spec", causes),
    }
}

fn binding(spec: &Value, is_mutating: bool, causes: &mut Vec<Cause>) {
    if text(spec, "policyName").is_empty() {
        causes.push(Cause::required("spec.policyName", ""));
    }
    let reference = &spec["paramRef"];
    if reference.is_object() {
        let at = |key: &str| format!("spec.paramRef.{key}");
        let (named, selected) = (!text(reference, "name").is_empty(), !reference["selector"].is_null());
        for key in ["name", "selector"].into_iter().filter(|_| named && selected) {
            causes.push(Cause::forbidden(at(key), "name and selector are mutually exclusive"));
        }
        if !named && !selected {
            causes.push(Cause::required("spec.paramRef", "one of name or selector must be specified"));
        }
        match text(reference, "parameterNotFoundAction") {
            "" => causes.push(Cause::required(at("parameterNotFoundAction"), "")),
            _ => among(reference, "parameterNotFoundAction", &["Deny", "Allow"], "spec.paramRef", causes),
        }
    }
    if spec["matchResources"].is_object() {
        matching(&spec["matchResources"], "spec.matchResources", is_mutating, causes);
    }
    if !is_mutating {
        actions(list(spec, "validationActions"), causes);
    }
}

fn actions(actions: &[Value], causes: &mut Vec<Cause>) {
    let at = "spec.validationActions";
    for (index, action) in actions.iter().enumerate() {
        let place = format!("{at}[{index}]");
        if !["Audit", "Deny", "Warn"].iter().any(|known| action == known) {
            let message =
                format!("Unsupported value: {action}: supported values: \"Audit\", \"Deny\", \"Warn\"");
            causes.push(Cause::new("FieldValueNotSupported", &place, message));
        }
        if actions[..index].contains(action) {
            causes.push(Cause::new("FieldValueDuplicate", place, format!("Duplicate value: {action}")));
        }
    }
    let has = |wanted: &str| actions.iter().any(|action| action == wanted);
    if has("Deny") && has("Warn") {
        let why = "must not contain both Deny and Warn (repeating the same validation failure information in the API \
                   response and headers serves no purpose)";
        causes.push(Cause::invalid(at, &Value::from(actions).to_string(), why));
    }
    if actions.is_empty() {
        causes.push(Cause::required(at, "at least one validation action is required"));
    }
}

/// Checks one expression, which must be there.
fn expression(
    text: &str,
    at: &str,
    missing: &str,
    check: impl FnOnce(&str) -> Result<(), String>,
    causes: &mut Vec<Cause>,
) {
    if text.trim().is_empty() {
        causes.push(Cause::required(at, missing));
    } else if let Err(why) = check(text) {
        causes.push(Cause::invalid(at, &Value::from(text).to_string(), &why));
    }
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// Returns whether a name can be written in an expression as it is.
fn is_identifier(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next().is_some_and(|first| first == '_' || first.is_ascii_alphabetic())
        && letters.all(|letter| letter == '_' || letter.is_ascii_alphanumeric())
}
