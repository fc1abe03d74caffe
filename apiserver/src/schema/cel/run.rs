//! Runs rules on objects.

use std::sync::Arc;

use kube_cel::cel::Value as Cel;
use kube_cel::cel::objects::OptionalValue;
use serde_json::Value;

use super::cost::cost;
use super::library::evaluate;
use super::{CelRule, Reason, SHALLOW, roomy, value};
use crate::limits;
use crate::schema::error::FieldError;
use crate::schema::node::{JsonType, NodeRef};
use crate::schema::validate::{Counterparts, join};

/// The most bytes of an evaluated message.
const LONGEST_MESSAGE: usize = 5 * 1024;

/// Checks an object against the rules of its schema; an unchanged value passes rules without old values.
pub(in crate::schema) fn run(root: NodeRef<'_>, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let work = || {
        let mut run = Run { budget: limits::CEL_OBJECT, errors: Vec::new() };
        // The walk has already reported that the budget is spent.
        let _spent = run.walk(root, "", new, old, None);
        run.errors
    };
    match deepest(root) {
        None => Vec::new(),
        Some(depth) if depth <= SHALLOW => work(),
        Some(_) => roomy(work).unwrap_or_else(|| vec![failed(root, "", "the rules can't be run")]),
    }
}

/// Returns the depth of the deepest rule of a schema; `None` if it has no rules.
pub(in crate::schema) fn deepest(node: NodeRef<'_>) -> Option<usize> {
    let own = node.node().validations.iter().map(|rule| rule.depth);
    let properties =
        node.properties().filter(|(name, _)| *name != "metadata").filter_map(|(_, below)| deepest(below));
    let additional = node.node().additional.and_then(|_| node.additional()).and_then(deepest);
    let items = node.node().items.and_then(|_| deepest(node.item()));
    own.chain(properties).chain(additional).chain(items).max()
}

/// The budget is used up.
struct Spent;

struct Run {
    budget: u64,
    errors: Vec<FieldError>,
}

impl Run {
    /// Walks a value; `around` is the nearest one that has an old value, if this one has none, and that.
    fn walk<'v>(
        &mut self,
        node: NodeRef<'_>,
        path: &str,
        new: &'v Value,
        old: Option<&'v Value>,
        around: Option<(&'v Value, &'v Value)>,
    ) -> Result<(), Spent> {
        if new.is_null() {
            return Ok(());
        }
        let old = old.filter(|old| !old.is_null());
        let nearest = old.map(|old| (new, old)).or(around);
        self.rules(node, path, new, old, nearest)?;
        let whole = node.node().resource || node.node().embedded;
        match new {
            Value::Object(fields) => {
                for (name, value) in fields {
                    if whole && matches!(name.as_str(), "metadata" | "apiVersion" | "kind") {
                        continue;
                    }
                    let old = old.and_then(|old| old.get(name));
                    if let Some(below) = node.property(name) {
                        self.walk(below, &join(path, name), value, old, nearest)?;
                    } else if node.node().additional.is_some()
                        && let Some(below) = node.additional()
                    {
                        self.walk(below, &format!("{path}[{name}]"), value, old, nearest)?;
                    }
                }
            }
            Value::Array(items) if node.node().items.is_some() => {
                let old = Counterparts::of(node, old);
                for (index, value) in items.iter().enumerate() {
                    let at = format!("{path}[{index}]");
                    self.walk(node.item(), &at, value, old.find(value), nearest)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn rules(
        &mut self,
        node: NodeRef<'_>,
        path: &str,
        new: &Value,
        old: Option<&Value>,
        nearest: Option<(&Value, &Value)>,
    ) -> Result<(), Spent> {
        let rules = &node.node().validations;
        if rules.is_empty() {
            return Ok(());
        }
        let (own, before) = (value::of(node, new), old.map(|old| value::of(node, old)));
        for rule in rules.iter() {
            let Ok(expression) = &rule.parsed else { continue };
            if rule.uses_old_self && before.is_none() && !rule.takes_optional_old_self() {
                continue;
            }
            self.spend(cost(expression, variables(new, old)), node, path, rule)?;
            let scope = scope(rule, &own, before.as_ref());
            match evaluate(expression, scope.clone()) {
                Ok(Cel::Bool(true)) => {}
                // An object must not be locked by a rule that came later.
                Ok(_) if !rule.uses_old_self && nearest.is_some_and(|(new, old)| new == old) => {}
                Ok(_) => {
                    let message = self.message(rule, scope, new, old);
                    self.errors.push(violation(node, rule, path, new, message));
                }
                Err(why) => {
                    let why = format!("{why} evaluating rule: {}", rule.called());
                    self.errors.push(failed(node, path, &why));
                }
            }
        }
        Ok(())
    }

    fn spend(&mut self, cost: u64, node: NodeRef<'_>, path: &str, rule: &CelRule) -> Result<(), Spent> {
        if cost > limits::CEL_CALL {
            let why = format!(
                "'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call cost \
                 exceeds limit for rule: {}",
                rule.called()
            );
            self.errors.push(failed(node, path, &why));
            return Err(Spent);
        }
        match self.budget.checked_sub(cost) {
            Some(left) => self.budget = left,
            None => {
                let why = "validation failed due to running out of cost budget, no further validation rules will be run";
                self.errors.push(failed(node, path, why));
                return Err(Spent);
            }
        }
        Ok(())
    }

    /// Words a violation: by the rule's expression if that gives a line of text.
    fn message(
        &mut self,
        rule: &CelRule,
        scope: Vec<(&'static str, Cel)>,
        new: &Value,
        old: Option<&Value>,
    ) -> String {
        let plain = || {
            if rule.message.is_empty() {
                format!("failed rule: {}", rule.called())
            } else {
                rule.called().to_owned()
            }
        };
        let Some(Ok(expression)) = &rule.parsed_message else { return plain() };
        let cost = cost(expression, variables(new, old));
        if cost > limits::CEL_CALL || cost > self.budget {
            return plain();
        }
        self.budget -= cost;
        match evaluate(expression, scope) {
            Ok(Cel::String(text)) => {
                let text = text.trim();
                let fits = !text.is_empty() && text.len() <= LONGEST_MESSAGE && !text.contains(['\n', '\r']);
                if fits { text.to_owned() } else { plain() }
            }
            _ => plain(),
        }
    }
}

/// Returns the values that the variables of a rule have.
fn variables<'a>(new: &'a Value, old: Option<&'a Value>) -> impl Iterator<Item = (&'static str, &'a Value)> {
    std::iter::once(("self", new)).chain(old.map(|old| ("oldSelf", old)))
}

/// Returns the variables of a rule.
fn scope(rule: &CelRule, own: &Cel, before: Option<&Cel>) -> Vec<(&'static str, Cel)> {
    let mut scope = vec![("self", own.clone())];
    if rule.takes_optional_old_self() {
        let old = before.cloned().map_or_else(OptionalValue::none, OptionalValue::of);
        scope.push(("oldSelf", Cel::Opaque(Arc::new(old))));
    } else if let Some(before) = before {
        scope.push(("oldSelf", before.clone()));
    }
    scope
}

fn violation(node: NodeRef<'_>, rule: &CelRule, path: &str, value: &Value, message: String) -> FieldError {
    let path = join(path, rule.field_path.trim().trim_start_matches('.'));
    let path = if path.is_empty() { "<nil>".to_owned() } else { path };
    let shown = !matches!(node.kind(), JsonType::Object | JsonType::Array);
    match rule.reason() {
        Reason::Forbidden => FieldError::forbidden(path, &message),
        Reason::Required => FieldError::required(path, &message),
        Reason::Duplicate if shown => FieldError::duplicate(path, value),
        Reason::Duplicate => {
            FieldError { message: "Duplicate value".to_owned(), ..FieldError::duplicate(path, value) }
        }
        Reason::Invalid if shown => FieldError::invalid(path, value, &message),
        Reason::Invalid => FieldError {
            message: format!("Invalid value: {message}"),
            ..FieldError::invalid(path, value, "")
        },
    }
}

/// Reports a rule that could not be run to its end; shows only its type.
fn failed(node: NodeRef<'_>, path: &str, why: &str) -> FieldError {
    let path = if path.is_empty() { "<nil>" } else { path };
    FieldError::invalid(path, &Value::from(node.type_name()), why)
}
