//! Validating policies: what they say about a request, and what their bindings do with it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use serde_json::{Value, json};

use super::invocation::{Invocation, PolicyView, SPENT, invocations, worded};
use super::rules::{Policy, PolicyFamily, Validation};
use crate::admission::authorizer::authorizer;
use crate::admission::request::Asked;
use crate::object;
use crate::schema::{Authorizer, FormulaError, FormulaScope};
use crate::state::State;
use crate::status::Status;

/// The most bytes of an evaluated message.
const LONGEST_MESSAGE: usize = 5 * 1024;

/// A rule that a request breaks, or a failure that counts as that.
#[derive(Debug)]
struct Denial {
    policy: Arc<Policy>,
    binding: Option<String>,
    message: String,
    reason: String,
}

/// Lets the validating policies decide about a request.
///
/// # Errors
/// The first denial, or a conversion that is waited for.
pub(crate) fn check(state: &mut State, asked: &Asked, object: Option<&Value>) -> Result<(), Status> {
    let mut views: BTreeMap<u64, PolicyView> = BTreeMap::new();
    let mut denials = Vec::new();
    for invocation in invocations(state, PolicyFamily::Validating, asked, object) {
        let invocation = match invocation {
            Ok(invocation) => invocation,
            Err(failure) if failure.policy.ignores_failures() => continue,
            Err(failure) => {
                let (policy, binding) = (failure.policy, failure.binding);
                denials.push(Denial { policy, binding, message: failure.why, reason: String::new() });
                continue;
            }
        };
        let version = invocation.version.id;
        let view = match views.entry(version) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(PolicyView::of(state, asked, &invocation.version, object)?),
        };
        let findings = judge(view, &invocation, &authorizer(asked, state));
        let actions = invocation.binding.pinned()["spec"]["validationActions"].clone();
        for Violation { message, reason, always } in findings {
            let has =
                |action: &str| actions.as_array().is_some_and(|all| all.iter().any(|one| one == action));
            if has("Warn") && !always {
                let (policy, binding) = (&invocation.policy.name, invocation.binding());
                state.session.warn(&format!(
                    "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{binding}': {message}"
                ));
            }
            if has("Deny") || always {
                let (policy, binding) = (invocation.policy.clone(), Some(invocation.binding().to_owned()));
                denials.push(Denial { policy, binding, message, reason });
            }
        }
    }
    match denials.into_iter().next() {
        Some(denial) => Err(denial.status(asked, object)),
        None => Ok(()),
    }
}

/// A rule that is broken, or can't be evaluated.
struct Violation {
    message: String,
    reason: String,
    /// Whether it denies the request whatever the binding's actions are.
    always: bool,
}

impl Violation {
    fn failed(message: String) -> Self {
        Self { message, reason: String::new(), always: false }
    }
}

/// Evaluates a policy.
fn judge(view: &PolicyView, invocation: &Invocation, authorizer: &Authorizer<'_>) -> Vec<Violation> {
    let policy = &invocation.policy;
    let failed = |message: String| match policy.ignores_failures() {
        true => Vec::new(),
        false => vec![Violation::failed(message)],
    };
    match view.meets_conditions(invocation, authorizer.clone()) {
        Ok(true) => {}
        Ok(false) => return Vec::new(),
        Err(why) => return failed(why),
    }
    let (mut scope, mut findings) = (view.scope(invocation, authorizer.clone()), Vec::new());
    for validation in &policy.validations {
        match scope.evaluate(&validation.formula) {
            Ok(Value::Bool(true)) => {}
            Ok(_) => {
                let message = message(&mut scope, validation);
                findings.push(Violation { message, reason: validation.reason.clone(), always: false });
            }
            // A policy whose budget is used up has no other findings.
            Err(FormulaError::Spent) => return failed(SPENT.to_owned()),
            Err(error) => findings.extend(failed(worded(&validation.formula, error))),
        }
    }
    // Nothing keeps the annotations: this server has no audit log. But one that fails denies the request.
    let mut scope = view.scope(invocation, authorizer.clone());
    for audit in &policy.audits {
        match scope.evaluate(audit) {
            Ok(_) => {}
            Err(FormulaError::Spent) => return failed(SPENT.to_owned()),
            Err(error) => {
                findings.extend(
                    failed(worded(audit, error)).into_iter().map(|found| Violation { always: true, ..found }),
                );
            }
        }
    }
    findings
}

/// Words a broken rule: by its expression for that, its message, or its expression.
fn message(scope: &mut FormulaScope<'_>, validation: &Validation) -> String {
    if let Some(formula) = &validation.message_formula {
        match scope.evaluate_message(formula) {
            Ok(Value::String(text)) => {
                let text = text.trim();
                if !text.is_empty() && text.len() <= LONGEST_MESSAGE && !text.contains('\n') {
                    return text.to_owned();
                }
            }
            Err(FormulaError::Spent) => return format!("failed messageExpression: {SPENT}"),
            Ok(_) | Err(_) => {}
        }
    }
    match validation.message.as_str() {
        "" => format!("failed expression: {}", validation.formula.text().trim()),
        message => message.to_owned(),
    }
}

impl Denial {
    /// Returns the answer to the client.
    fn status(self, asked: &Asked, object: Option<&Value>) -> Status {
        let Self { policy, binding, message, reason } = self;
        let with = binding.map(|binding| format!(" with binding '{binding}'")).unwrap_or_default();
        let message = format!("ValidatingAdmissionPolicy '{}'{with} denied request: {message}", policy.name);
        let mut status = forbidden(asked, object, &message);
        (status.code, status.reason) = match reason.as_str() {
            "Forbidden" => (403, Some("Forbidden")),
            "RequestEntityTooLarge" => (413, Some("RequestEntityTooLarge")),
            _ => (422, Some("Invalid")),
        };
        if let Some(details) = &mut status.details {
            details["causes"] = json!([{"message": message}]);
        }
        status
    }
}

/// Refuses a request, naming the object as well as that is known.
pub(super) fn forbidden(asked: &Asked, object: Option<&Value>, what: &str) -> Status {
    let names = [
        asked.name.as_str(),
        object.map_or("", object::name),
        object.map_or("", |object| object::text(object, "generateName")),
    ];
    let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or("Unknown");
    Status::forbidden(asked.resource.group(), asked.resource.plural(), name, what)
}
