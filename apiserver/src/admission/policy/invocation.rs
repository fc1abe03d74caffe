//! Invocations: which policies a request meets, and the values that their expressions see.

use std::sync::Arc;

use serde_json::Value;

use super::params::{ParamKind, params};
use super::rules::{Policy, PolicyFamily};
use super::{bound, is_exempt};
use crate::admission::matching::Matching;
use crate::admission::request::{Asked, Operation};
use crate::admission::round::shown;
use crate::kinds::Served;
use crate::limits;
use crate::object;
use crate::schema::{Authorizer, Formula, FormulaError, FormulaScope};
use crate::state::State;
use crate::status::Status;
use crate::store::{ResourceId, Stored};

/// The text for a budget that is used up.
pub(super) const SPENT: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// A policy to be asked, with a binding and its parameters.
#[derive(Clone, Debug)]
pub(super) struct Invocation {
    pub(super) policy: Arc<Policy>,
    pub(super) binding: Arc<Stored>,
    pub(super) param: Option<Value>,
    /// The version in which it sees the objects.
    pub(super) version: Arc<Served>,
}

/// A policy that can't be asked.
#[derive(Clone, Debug)]
pub(super) struct PolicyFailure {
    pub(super) policy: Arc<Policy>,
    /// The name of the binding, if that is at fault.
    pub(super) binding: Option<String>,
    pub(super) why: String,
}

impl Invocation {
    /// Names the binding.
    pub(super) fn binding(&self) -> &str {
        &self.binding.key
    }

    /// Names it among all.
    pub(super) fn id(&self) -> String {
        let param = self.param.as_ref();
        let (namespace, name) = (param.map_or("", object::namespace), param.map_or("", object::name));
        format!("{}/{}/{namespace}/{name}", self.policy.name, self.binding())
    }
}

/// Returns the policies that a request meets, in the order in which they are asked.
pub(super) fn invocations(
    state: &mut State,
    family: PolicyFamily,
    asked: &Asked,
    object: Option<&Value>,
) -> Vec<Result<Invocation, PolicyFailure>> {
    let mut found = Vec::new();
    if is_exempt(asked.resource.group(), asked.resource.plural()) {
        return found;
    }
    let namespace = if asked.is_namespace() { &asked.name } else { &asked.namespace };
    let no_namespace = || format!("namespaces {namespace:?} not found");
    for (policy, bindings) in bound(state, family) {
        let failure = |binding: Option<&Arc<Stored>>, why: String| {
            let what = if binding.is_none() { "policy" } else { "binding" };
            let binding = binding.map(|binding| binding.key.to_string());
            Err(PolicyFailure {
                policy: policy.clone(),
                binding,
                why: format!("failed to configure {what}: {why}"),
            })
        };
        let constraints = Matching::of_policy(&policy.spec["matchConstraints"]);
        let version = match constraints.matches(state, asked, object) {
            Ok(Some(version)) => version,
            Ok(None) => continue,
            Err(_) => {
                found.push(failure(None, no_namespace()));
                continue;
            }
        };
        let kind = match ParamKind::of(state, &policy.spec) {
            Ok(kind) => kind,
            Err(why) => {
                found.push(failure(None, why));
                continue;
            }
        };
        for binding in &bindings {
            let spec = &binding.pinned()["spec"];
            match Matching::of_policy(&spec["matchResources"]).matches(state, asked, object) {
                Ok(Some(_)) => {}
                Ok(None) => continue,
                Err(_) => {
                    found.push(failure(Some(binding), no_namespace()));
                    continue;
                }
            }
            match params(state, kind.as_ref(), spec, namespace) {
                Ok(params) => found.extend(params.into_iter().map(|param| {
                    let (policy, binding, version) = (policy.clone(), binding.clone(), version.clone());
                    Ok(Invocation { policy, binding, param, version })
                })),
                Err(why) => found.push(failure(Some(binding), why)),
            }
        }
    }
    found
}

/// The values that the expressions of a policy see.
#[derive(Debug)]
pub(super) struct PolicyView {
    /// The object, or null.
    pub(super) object: Value,
    old: Value,
    request: Value,
    namespace: Value,
}

impl PolicyView {
    /// Shows a request in a version.
    ///
    /// # Errors
    /// A conversion fails, or is waited for.
    pub(super) fn of(
        state: &mut State,
        asked: &Asked,
        version: &Served,
        object: Option<&Value>,
    ) -> Result<Self, Status> {
        let object = object.filter(|_| asked.operation != Operation::Delete);
        let mut sides = [Value::Null, Value::Null];
        for (side, object) in sides.iter_mut().zip([object, asked.old.as_ref()]) {
            if let Some(object) = object {
                *side = match asked.kind {
                    Some(_) => object.clone(),
                    None => shown(state, asked, object, version)?.ok_or_else(Status::waiting)?,
                };
            }
        }
        let [object, old] = sides;
        let mut request = asked.request_of(version, None, None);
        for side in ["object", "oldObject"] {
            object::map_mut(&mut request).remove(side);
        }
        let namespace = match asked.is_namespace() {
            true => None,
            false => state.store.get(&ResourceId::new("", "namespaces"), &asked.namespace),
        };
        let mut namespace = namespace.map_or(Value::Null, |namespace| namespace.pinned().clone());
        if namespace.is_object() {
            object::remove(&mut namespace, "managedFields");
        }
        Ok(Self { object, old, request, namespace })
    }

    /// Gives the values to the expressions of an invocation.
    pub(super) fn scope<'v>(
        &'v self,
        invocation: &'v Invocation,
        authorizer: Authorizer<'v>,
    ) -> FormulaScope<'v> {
        let variables = &invocation.policy.variables;
        self.scope_of(invocation, authorizer, &self.namespace, variables, limits::CEL_OBJECT)
    }

    fn scope_of<'v>(
        &'v self,
        invocation: &'v Invocation,
        authorizer: Authorizer<'v>,
        namespace: &'v Value,
        variables: &'v [(String, Formula)],
        budget: u64,
    ) -> FormulaScope<'v> {
        let mut given = vec![
            ("object", &self.object),
            ("oldObject", &self.old),
            ("request", &self.request),
            ("namespaceObject", namespace),
        ];
        if !invocation.policy.spec["paramKind"].is_null() {
            given.push(("params", invocation.param.as_ref().unwrap_or(&Value::Null)));
        }
        FormulaScope::new(given, authorizer, variables, budget)
    }

    /// Returns whether an invocation's conditions hold.
    ///
    /// # Errors
    /// None is false, and some can't be evaluated.
    pub(super) fn meets_conditions(
        &self,
        invocation: &Invocation,
        authorizer: Authorizer<'_>,
    ) -> Result<bool, String> {
        let policy = &invocation.policy;
        if policy.conditions.is_empty() {
            return Ok(true);
        }
        let mut scope = self.scope_of(invocation, authorizer, &Value::Null, &[], limits::CEL_CONDITION);
        let mut errors = Vec::new();
        for condition in &policy.conditions {
            match scope.evaluate(condition) {
                Ok(Value::Bool(false)) => return Ok(false),
                Ok(_) => {}
                Err(error) => errors.push(worded(condition, error)),
            }
        }
        match errors.as_slice() {
            [] => Ok(true),
            _ if policy.ignores_failures() => Ok(false),
            [one] => Err(one.clone()),
            many => Err(format!("[{}]", many.join(", "))),
        }
    }
}

/// Words the failure of a formula as the server does.
pub(super) fn worded(formula: &Formula, error: FormulaError) -> String {
    match error {
        FormulaError::Failed(why) => format!("expression '{}' resulted in error: {why}", formula.text()),
        FormulaError::Spent => SPENT.to_owned(),
    }
}
