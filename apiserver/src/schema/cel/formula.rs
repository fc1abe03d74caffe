//! Formulas: the expressions of policies, which may use the results of earlier ones by name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube_cel::cel::common::ast::{EntryExpr, Expr, IdedEntryExpr, MapEntryExpr, MapExpr};
use kube_cel::cel::objects::{Key, Map as CelMap};
use kube_cel::cel::{IdedExpr, Value as Cel};
use serde_json::{Map, Value};

use super::asker::{Asker, name_variables};
use super::cost::cost;
use super::visit::visit;
use super::{Parsed, SHALLOW, depth, library, parse, roomy, value};
use crate::limits;
use crate::schema::access::Authorizer;

/// The name of the variable that holds the results of earlier formulas.
const VARIABLES: &str = "variables";

/// The key under which a made object keeps the name of its type. No field is called so.
pub(crate) const TYPE_NAME: &str = "\u{0}type";

/// An expression of a policy.
#[derive(Clone, Debug)]
pub(crate) struct Formula {
    text: String,
    parsed: Parsed,
    depth: usize,
    /// The earlier formulas whose results it uses.
    uses: BTreeSet<String>,
}

impl Formula {
    /// Parses an expression; one that can't be parsed fails when it is evaluated.
    pub(crate) fn read(text: &str) -> Self {
        let depth = depth(text);
        let read = || {
            let mut uses = BTreeSet::new();
            let parsed = parse(text).map(|mut parsed| {
                name_variables(&mut parsed);
                visit(&mut parsed, &mut |expression| {
                    if let Expr::Select(select) = &expression.expr
                        && matches!(&select.operand.expr, Expr::Ident(name) if name == VARIABLES)
                    {
                        uses.insert(select.field.clone());
                    }
                    as_map(expression);
                });
                parsed
            });
            (parsed, uses)
        };
        let read = if depth <= SHALLOW { Some(read()) } else { roomy(read) };
        let (parsed, uses) = read.unwrap_or_else(|| (Err("internal error".to_owned()), BTreeSet::new()));
        Self { text: text.to_owned(), parsed, depth, uses }
    }

    /// Returns the expression.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

/// Turns the making of an object into that of a map which keeps the object's type: the interpreter has no objects.
fn as_map(expression: &mut IdedExpr) {
    let Expr::Struct(made) = &mut expression.expr else { return };
    let entry = |key: &str, value: IdedExpr, optional: bool| IdedEntryExpr {
        id: 0,
        expr: EntryExpr::MapEntry(MapEntryExpr { key: literal(key), value, optional }),
    };
    let fields = made.entries.drain(..).filter_map(|field| match field.expr {
        EntryExpr::StructField(field) => Some(entry(&field.field, field.value, field.optional)),
        EntryExpr::MapEntry(_) => None,
    });
    let mut entries: Vec<_> = fields.collect();
    entries.push(entry(TYPE_NAME, literal(&made.type_name), false));
    expression.expr = Expr::Map(MapExpr { entries });
}

fn literal(text: &str) -> IdedExpr {
    let text = kube_cel::cel::common::types::CelString::from(text);
    IdedExpr { id: 0, expr: Expr::Literal(kube_cel::cel::common::ast::LiteralValue::String(text)) }
}

/// Why a formula has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FormulaError {
    /// It failed, in the server's words.
    Failed(String),
    /// The budget of its policy is used up.
    Spent,
}

/// The values that the formulas of a policy see, and the results of its variables.
#[derive(Debug)]
pub(crate) struct FormulaScope<'v> {
    given: Vec<(&'static str, &'v Value)>,
    /// `None` where expressions have no authorizer.
    asker: Option<Asker<'v>>,
    /// In the order in which they are written; each may use those before it.
    variables: &'v [(String, Formula)],
    results: Map<String, Value>,
    shown: BTreeMap<String, Cel>,
    failures: BTreeMap<String, String>,
    left: u64,
}

impl<'v> FormulaScope<'v> {
    /// Gives formulas named values, an authorizer and variables, and a budget.
    pub(crate) fn new(
        given: Vec<(&'static str, &'v Value)>,
        authorizer: Authorizer<'v>,
        variables: &'v [(String, Formula)],
        budget: u64,
    ) -> Self {
        let (results, shown, failures) = Default::default();
        Self { given, asker: Some(Asker::new(authorizer)), variables, results, shown, failures, left: budget }
    }

    /// Evaluates a formula, after the variables that it uses.
    ///
    /// # Errors
    /// It has no value, or the budget is used up.
    pub(crate) fn evaluate(&mut self, formula: &Formula) -> Result<Value, FormulaError> {
        let mut needed = formula.uses.clone();
        let mut depth = formula.depth;
        for (name, variable) in self.variables.iter().rev() {
            if needed.contains(name) {
                depth = depth.max(variable.depth);
                needed.extend(variable.uses.iter().cloned());
            }
        }
        let mut work = || {
            for (name, variable) in self.variables {
                let is_known = self.results.contains_key(name) || self.failures.contains_key(name);
                if !needed.contains(name) || is_known {
                    continue;
                }
                match self.run(variable) {
                    Ok(result) => {
                        self.results.insert(name.clone(), value::json(&result));
                        self.shown.insert(name.clone(), result);
                    }
                    Err(FormulaError::Spent) => return Err(FormulaError::Spent),
                    Err(FormulaError::Failed(why)) => {
                        let why = format!("composited variable {name:?} fails to evaluate: {why}");
                        self.failures.insert(name.clone(), why);
                    }
                }
            }
            self.run(formula).map(|result| value::json(&result))
        };
        if depth <= SHALLOW {
            return work();
        }
        roomy(work).unwrap_or_else(|| Err(FormulaError::Failed("internal error".to_owned())))
    }

    /// Evaluates the formula of a message. It has no authorizer, and neither have the variables that it uses.
    ///
    /// # Errors
    /// It has no value, or the budget is used up.
    pub(crate) fn evaluate_message(&mut self, formula: &Formula) -> Result<Value, FormulaError> {
        let (results, shown, failures) = Default::default();
        let (given, variables) = (self.given.clone(), self.variables);
        let mut own =
            FormulaScope { given, asker: None, variables, results, shown, failures, left: self.left };
        let evaluated = own.evaluate(formula);
        self.left = own.left;
        evaluated
    }

    fn run(&mut self, formula: &Formula) -> Result<Cel, FormulaError> {
        let failed = |why: &str| Err(FormulaError::Failed(why.to_owned()));
        let parsed = match &formula.parsed {
            Ok(parsed) => parsed,
            Err(why) => return failed(why),
        };
        let results = Value::Object(std::mem::take(&mut self.results));
        let cost = cost(parsed, self.given.iter().copied().chain([(VARIABLES, &results)]));
        let Value::Object(results) = results else { unreachable!("an object was made above") };
        self.results = results;
        if cost > limits::CEL_CALL {
            return failed("operation cancelled: actual cost limit exceeded");
        }
        if cost > self.left {
            return Err(FormulaError::Spent);
        }
        let entries =
            self.shown.iter().map(|(name, shown)| (Key::String(Arc::new(name.clone())), shown.clone()));
        let variables = Cel::Map(CelMap { map: Arc::new(entries.collect()) });
        let given = self.given.iter().map(|(name, given)| (*name, value::plain(given)));
        let scope: Vec<(&'static str, Cel)> = given.chain([(VARIABLES, variables)]).collect();
        let (result, cost) = match &self.asker {
            Some(asker) => asker.evaluate(parsed, &scope, cost),
            None => (library::evaluate(parsed, scope), cost),
        };
        self.left = self.left.checked_sub(cost).ok_or(FormulaError::Spent)?;
        result.map_err(|why| {
            let of_a_variable = why.strip_prefix("no such key: ").and_then(|name| self.failures.get(name));
            FormulaError::Failed(of_a_variable.cloned().unwrap_or(why))
        })
    }
}
