//! Mutating policies: how they change an object.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::invocation::{Invocation, PolicyView, invocations, worded};
use super::rules::{Patches, PolicyFamily};
use super::validating::forbidden;
use crate::admission::authorizer::authorizer;
use crate::admission::request::Asked;
use crate::admission::round::{Round, taken};
use crate::apply::configure;
use crate::kinds::Served;
use crate::patch::json_patch_of_webhook;
use crate::schema::{Formula, FormulaScope, TYPE_NAME};
use crate::state::State;
use crate::status::Status;

/// What the policies of a request remember from the first round to the second.
#[derive(Debug, Default)]
pub(crate) struct PolicyRounds {
    again: BTreeSet<String>,
    may_be_again: BTreeSet<String>,
    /// The object as the last round of policies left it.
    left: Option<Value>,
}

/// Lets the mutating policies change an object; returns whether it has changed.
///
/// # Errors
/// A policy that fails and does not ignore that, or a conversion that is waited for.
pub(crate) fn change(
    state: &mut State,
    asked: &Asked,
    object: &mut Option<Value>,
    round: Round,
    rounds: &mut PolicyRounds,
) -> Result<bool, Status> {
    if round == Round::Second && rounds.left != *object {
        rounds.again.append(&mut rounds.may_be_again);
    }
    let (mut changed, mut failures) = (false, Vec::new());
    for invocation in invocations(state, PolicyFamily::Mutating, asked, object.as_ref()) {
        let Some(before) = object.clone() else { break };
        let failed = match invocation {
            Err(failure) => Some((failure.policy.clone(), failure.binding, failure.why)),
            Ok(invocation) => {
                let policy = invocation.policy.clone();
                let binding = Some(invocation.binding().to_owned());
                let why = invoke(state, asked, object, round, rounds, &invocation)?;
                why.map(|why| (policy, binding, why))
            }
        };
        failures.extend(failed.filter(|(policy, ..)| !policy.ignores_failures()));
        changed |= object.as_ref() != Some(&before);
    }
    rounds.left.clone_from(object);
    let messages = failures.into_iter().map(|(policy, binding, why)| match binding {
        Some(binding) => format!("policy '{}' with binding '{binding}' denied request: {why}", policy.name),
        None => format!("policy {:?} denied request: {why}", policy.name),
    });
    let messages: Vec<String> = messages.collect();
    let Some(first) = messages.first() else { return Ok(changed) };
    let mut status = forbidden(asked, object.as_ref(), first);
    (status.message, status.reason) = (first.clone(), Some("Invalid"));
    if let Some(details) = &mut status.details {
        details["causes"] = messages.iter().map(|message| json!({ "message": message })).collect();
    }
    Err(status)
}

/// Has one policy change an object; returns why it can't.
fn invoke(
    state: &mut State,
    asked: &Asked,
    object: &mut Option<Value>,
    round: Round,
    rounds: &mut PolicyRounds,
    invocation: &Invocation,
) -> Result<Option<String>, Status> {
    let view = PolicyView::of(state, asked, &invocation.version, object.as_ref())?;
    match view.meets_conditions(invocation, authorizer(asked, state)) {
        Ok(true) => {}
        Ok(false) => return Ok(None),
        Err(why) => return Ok(Some(why)),
    }
    let id = invocation.id();
    if round == Round::Second && !rounds.again.contains(&id) {
        return Ok(None);
    }
    let (before, mut failed) = (object.clone(), None);
    for (patches, formula) in &invocation.policy.mutations {
        let view = PolicyView::of(state, asked, &invocation.version, object.as_ref())?;
        let Some(current) = object.as_ref() else { break };
        let mutated = {
            let mut scope = view.scope(invocation, authorizer(asked, state));
            mutated(&mut scope, *patches, formula, &view.object, &invocation.version)
        };
        match mutated {
            Ok(after) if after == view.object => {}
            Ok(after) => {
                let name = format!("policy {:?}", invocation.policy.name);
                *object = Some(taken(state, asked, &invocation.version, current, after, &name)?);
            }
            Err(why) => drop(failed.get_or_insert(why)),
        }
    }
    if *object != before {
        rounds.again.append(&mut rounds.may_be_again);
    }
    if invocation.policy.spec["reinvocationPolicy"] == "IfNeeded" {
        rounds.may_be_again.insert(id);
    }
    Ok(failed)
}

/// Evaluates one mutation of an object.
fn mutated(
    scope: &mut FormulaScope<'_>,
    patches: Patches,
    formula: &Formula,
    object: &Value,
    version: &Served,
) -> Result<Value, String> {
    let made = scope.evaluate(formula).map_err(|error| worded(formula, error))?;
    let mut after = match patches {
        Patches::Configuration => {
            if made[TYPE_NAME].is_null() {
                return Err("unsupported return type from ApplyConfiguration expression".to_owned());
            }
            let mut part = plain(made, Some("Object")).map_err(|why| format!("type mismatch: {why}"))?;
            for key in ["apiVersion", "kind"] {
                part[key] = object[key].clone();
            }
            configure(version.schema.root(), object, &part)
                .map_err(|why| format!("error applying patch: {why}"))?
        }
        Patches::Operations => {
            let mut after = object.clone();
            match json_patch_of_webhook(&mut after, &operations(made)?) {
                // A patch whose test fails does nothing.
                Err(why) if why.ends_with("test failed") => return Ok(object.clone()),
                patched => patched.map_err(|why| format!("JSON Patch: {why}"))?,
            }
            after
        }
    };
    version.schema.default(&mut after);
    Ok(after)
}

/// Writes the operations of a JSON patch.
fn operations(made: Value) -> Result<Value, String> {
    let Value::Array(made) = made else {
        return Err("type mismatch: JSONPatchType.expression should evaluate to array".to_owned());
    };
    let operation = |mut operation: Value| match operation.as_object_mut() {
        Some(fields) if fields.get(TYPE_NAME).is_some_and(|name| name == "JSONPatch") => {
            fields.remove(TYPE_NAME);
            if fields.get("from").is_some_and(|from| from == "") {
                fields.remove("from");
            }
            if let Some(value) = fields.remove("value") {
                let root = value[TYPE_NAME].as_str().map(str::to_owned);
                let value = plain(value, root.as_deref()).map_err(|why| format!("type mismatch: {why}"))?;
                fields.insert("value".to_owned(), value);
            }
            Ok(operation)
        }
        _ => Err("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch".to_owned()),
    };
    made.into_iter().map(operation).collect()
}

/// Removes the types' names from an object that an expression made; they must be those of the fields' paths.
fn plain(value: Value, path: Option<&str>) -> Result<Value, String> {
    match value {
        Value::Object(mut fields) => {
            let name = fields.remove(TYPE_NAME);
            let name = name.as_ref().and_then(Value::as_str);
            if let (Some(name), Some(path)) = (name, path)
                && name != path
            {
                return Err(format!(
                    "unexpected type name {name:?}, expected {path:?}, which matches field name path from root Object type"
                ));
            }
            let below = |(key, value): (String, Value)| {
                let path =
                    path.map(|path| if name.is_some() { format!("{path}.{key}") } else { path.to_owned() });
                Ok((key, plain(value, path.as_deref())?))
            };
            fields.into_iter().map(below).collect::<Result<Map<_, _>, String>>().map(Value::Object)
        }
        Value::Array(items) => items.into_iter().map(|item| plain(item, path)).collect(),
        value => Ok(value),
    }
}
