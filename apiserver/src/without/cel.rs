//! Without the feature `cel`: definitions and webhooks with rules in CEL are refused.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::access::Authorizer;
use super::error::FieldError;
use super::node::NodeRef;

/// What says why.
const MISSING: &str = "rules in CEL need the feature `cel` of watchkeeper-apiserver";

/// A rule that nothing can run.
#[derive(Debug)]
pub(crate) struct NoRule;

pub(crate) use {
    NoFormula as Formula, NoNames as FormulaNames, NoResult as FormulaError, NoRule as CelRule,
    NoScope as FormulaScope, Unchecked as Wanted,
};

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
pub(crate) fn evaluate_condition(
    _: &str,
    _: &[(&'static str, &Value)],
    _: Authorizer<'_>,
) -> Result<bool, String> {
    Err(MISSING.to_owned())
}

/// The key of the type in an object that an expression made.
pub(crate) const TYPE_NAME: &str = "";

/// An expression of a policy, which nothing evaluates: no policy is ever stored.
#[derive(Clone, Debug)]
pub(crate) struct NoFormula(String);

impl NoFormula {
    /// Keeps an expression.
    pub(crate) fn read(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Returns the expression.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

/// Why a formula has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoResult {
    /// It failed.
    Failed(String),
    /// Its budget is used up, which never happens here.
    #[expect(dead_code, reason = "nothing is evaluated")]
    Spent,
}

/// The values that the formulas of a policy would see.
#[derive(Debug)]
pub(crate) struct NoScope<'v>(std::marker::PhantomData<&'v Value>);

impl<'v> NoScope<'v> {
    /// Takes the values.
    pub(crate) fn new(
        _: Vec<(&'static str, &'v Value)>,
        _: Authorizer<'v>,
        _: &'v [(String, NoFormula)],
        _: u64,
    ) -> Self {
        Self(std::marker::PhantomData)
    }

    /// Refuses every formula.
    ///
    /// # Errors
    /// Always.
    pub(crate) fn evaluate(&mut self, _: &NoFormula) -> Result<Value, NoResult> {
        Err(NoResult::Failed(MISSING.to_owned()))
    }

    /// Refuses every message.
    ///
    /// # Errors
    /// Always.
    pub(crate) fn evaluate_message(&mut self, _: &NoFormula) -> Result<Value, NoResult> {
        Err(NoResult::Failed(MISSING.to_owned()))
    }
}

/// What a formula must give: nobody checks that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unchecked {
    /// Whether something is true.
    Bool,
    /// A text.
    Message,
    /// A text, or none.
    TextOrNull,
    /// A part of the object.
    Configuration,
    /// The operations of a JSON patch.
    Patches,
}

/// The names that the formulas of one policy may use.
#[derive(Debug)]
pub(crate) struct NoNames;

impl NoNames {
    /// Takes whether there are parameters.
    pub(crate) fn new(_: bool) -> Self {
        Self
    }

    /// Lets formulas name the results of earlier ones.
    pub(crate) fn with_variables(self) -> Self {
        self
    }

    /// Refuses every variable.
    ///
    /// # Errors
    /// Always.
    pub(crate) fn add(&mut self, _: &str, _: &str) -> Result<(), String> {
        Err(MISSING.to_owned())
    }

    /// Refuses every formula.
    ///
    /// # Errors
    /// Always.
    pub(crate) fn check(&self, _: &str, _: Unchecked) -> Result<(), String> {
        Err(MISSING.to_owned())
    }
}

/// Refuses every condition.
///
/// # Errors
/// Always.
pub(crate) fn compile_condition(_: &str) -> Result<(), String> {
    Err(MISSING.to_owned())
}
