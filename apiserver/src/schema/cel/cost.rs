//! Cost: a bound on the steps of a rule, found before it runs.
//!
//! The interpreter counts nothing, so the steps are counted from the object at hand: a list that a rule goes through is
//! followed to the values it may be, and the longest of them counts. The real server counts while it runs.

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators};
use serde_json::Value;

use super::escaped;

/// The values that a variable may have: parts of the object, or nothing that could be followed.
type Known<'a> = Option<Vec<&'a Value>>;

/// Bounds the steps of an expression on an object.
pub(super) fn cost(expression: &IdedExpr, new: &Value, old: Option<&Value>) -> u64 {
    let scope = vec![("self", Some(vec![new])), ("oldSelf", Some(old.into_iter().collect()))];
    let size = values(new) + old.map_or(0, values);
    Counter { scope, size }.steps(expression)
}

/// Counts the values of a document, letters of long texts included.
fn values(value: &Value) -> u64 {
    match value {
        Value::Array(items) => 1 + items.iter().map(values).sum::<u64>(),
        Value::Object(fields) => 1 + fields.values().map(values).sum::<u64>(),
        Value::String(text) => 1 + text.len() as u64 / 10,
        _ => 1,
    }
}

struct Counter<'a, 'e> {
    scope: Vec<(&'e str, Known<'a>)>,
    /// The number of values in the object: no list of it is longer.
    size: u64,
}

impl<'a, 'e> Counter<'a, 'e> {
    fn steps(&mut self, expression: &'e IdedExpr) -> u64 {
        match &expression.expr {
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Call(call) => {
                let own =
                    if reads_whole(&call.func_name) { self.extent(expression).saturating_add(1) } else { 1 };
                let target = call.target.as_ref().map_or(0, |target| self.steps(target));
                call.args
                    .iter()
                    .fold(own.saturating_add(target), |sum, part| sum.saturating_add(self.steps(part)))
            }
            Expr::Select(select) => self.steps(&select.operand).saturating_add(1),
            Expr::List(list) => {
                list.elements.iter().fold(1, |sum: u64, part| sum.saturating_add(self.steps(part)))
            }
            Expr::Map(map) => map.entries.iter().fold(1, |sum: u64, entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => {
                    sum.saturating_add(self.steps(&entry.key)).saturating_add(self.steps(&entry.value))
                }
                EntryExpr::StructField(field) => sum.saturating_add(self.steps(&field.value)),
            }),
            Expr::Ident(_) | Expr::Literal(_) | Expr::Struct(_) | Expr::Unspecified => 1,
        }
    }

    fn comprehension(&mut self, comprehension: &'e ComprehensionExpr) -> u64 {
        let range = self.steps(&comprehension.iter_range);
        let found = self.follow(&comprehension.iter_range);
        let (rounds, items): (u64, Known<'a>) = match &found {
            Some(lists) => {
                let rounds = lists.iter().map(|list| length(list)).max().unwrap_or(0);
                (rounds, Some(lists.iter().flat_map(|list| parts(list)).collect()))
            }
            None => match &comprehension.iter_range.expr {
                Expr::List(list) => (list.elements.len() as u64, None),
                _ => (self.size, None),
            },
        };
        let depth = self.scope.len();
        self.scope.push((&comprehension.iter_var, items.clone()));
        if let Some(second) = &comprehension.iter_var2 {
            self.scope.push((second, items));
        }
        self.scope.push((&comprehension.accu_var, None));
        let round = self.steps(&comprehension.loop_cond).saturating_add(self.steps(&comprehension.loop_step));
        let result = self.steps(&comprehension.result);
        self.scope.truncate(depth);
        range.saturating_add(rounds.saturating_mul(round)).saturating_add(result)
    }

    /// Bounds the size of what an expression gives.
    fn extent(&self, expression: &IdedExpr) -> u64 {
        if let Some(found) = self.follow(expression) {
            return found.iter().map(|value| values(value)).max().unwrap_or(1);
        }
        match &expression.expr {
            Expr::Literal(LiteralValue::String(text)) => 1 + text.inner().len() as u64 / 10,
            Expr::List(list) => {
                list.elements.iter().fold(1, |sum, part| sum.saturating_add(self.extent(part)))
            }
            Expr::Call(call) => {
                let parts: Vec<u64> = call
                    .target
                    .as_deref()
                    .into_iter()
                    .chain(&call.args)
                    .map(|part| self.extent(part))
                    .collect();
                match call.func_name.as_str() {
                    "replace" | "join" | "format" => parts.into_iter().fold(1, u64::saturating_mul),
                    operators::ADD => parts.into_iter().fold(0, u64::saturating_add),
                    _ => parts.into_iter().max().unwrap_or(1),
                }
            }
            Expr::Comprehension(comprehension) => {
                self.extent(&comprehension.iter_range).saturating_mul(self.size)
            }
            _ => 1,
        }
    }

    /// Follows an expression to the values that it may be.
    fn follow(&self, expression: &IdedExpr) -> Known<'a> {
        match &expression.expr {
            Expr::Ident(name) => {
                self.scope.iter().rev().find(|(known, _)| known == name).and_then(|(_, known)| known.clone())
            }
            Expr::Select(select) if !select.test => {
                let found = self.follow(&select.operand)?;
                let field = |value: &&'a Value| {
                    let fields = value.as_object()?;
                    fields.iter().find(|(name, _)| escaped(name) == select.field || **name == select.field)
                };
                Some(found.iter().filter_map(field).map(|(_, value)| value).collect())
            }
            Expr::Call(call) if call.func_name == operators::INDEX => {
                let found = self.follow(call.args.first()?)?;
                Some(found.into_iter().flat_map(parts).collect())
            }
            _ => None,
        }
    }
}

/// Returns whether a function reads or copies all of a text or list.
fn reads_whole(name: &str) -> bool {
    matches!(
        name,
        operators::ADD
            | "format"
            | "contains"
            | "matches"
            | "replace"
            | "split"
            | "find"
            | "findAll"
            | "join"
            | "sort"
            | "distinct"
            | "flatten"
            | "isSorted"
            | "sum"
            | "min"
            | "max"
            | "lowerAscii"
            | "upperAscii"
            | "indexOf"
            | "lastIndexOf"
            | "trim"
    )
}

fn length(value: &Value) -> u64 {
    match value {
        Value::Array(items) => items.len() as u64,
        Value::Object(fields) => fields.len() as u64,
        _ => 0,
    }
}

/// Lists the items or the values of a value.
fn parts(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(fields) => fields.values().collect(),
        _ => Vec::new(),
    }
}
