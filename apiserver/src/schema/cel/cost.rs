//! Cost: a bound on the steps of an expression, and on all that it makes, found before it runs.
//!
//! The interpreter counts nothing, and it copies most of what it reads. So both are counted here from the values at hand:
//! what can be followed to values counts as those, everything else as the largest that it can be. Texts count a step for
//! ten letters. Nothing can be made that costs less than its size. The real server counts while it runs.

use std::collections::HashMap;
use std::rc::Rc;

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators};
use serde_json::Value;

use super::escaped;
use super::functions::{FUNCTIONS, Gives};
use crate::limits;

/// The number of values that the estimate itself may visit.
const EFFORT: u64 = 2_000_000;

/// How many values are copied in the time of a step.
const COPIES: u64 = 2;

/// The letters that a value of size 1 has at most when it is printed.
const PRINTED: u64 = 20;

/// The steps that it takes to read a literal pattern.
const FIXED_PATTERN: u64 = 500;

/// The steps that it takes to read any other pattern.
const PATTERN: u64 = 5_000;

/// The possible values of a part of an expression; `None` if they are unknown.
type Known<'a> = Option<Rc<[&'a Value]>>;

/// Bounds the steps of an expression on the values of its variables.
pub(super) fn cost<'a>(
    expression: &IdedExpr,
    scope: impl IntoIterator<Item = (&'static str, &'a Value)>,
) -> u64 {
    let mut counter = Counter { scope: Vec::new(), extents: HashMap::new(), effort: 0, patterns: 0 };
    let mut given = Cost::default();
    for (name, value) in scope {
        let extent = counter.measure(value);
        given.copies = given.copies.saturating_add(extent.size);
        counter.scope.push((name, Some(Rc::new([value])), extent));
    }
    let mut found = counter.walk(expression).cost.and(given);
    found.steps = found.steps.saturating_add(counter.patterns);
    if counter.effort > EFFORT { u64::MAX } else { found.steps.saturating_add(found.copies / COPIES) }
}

/// How large a value is at most.
#[derive(Clone, Copy, Debug)]
struct Extent {
    /// The values in it, and a tenth of their letters.
    size: u64,
    /// Its letters, items or entries.
    length: u64,
}

impl Extent {
    const SCALAR: Self = Self { size: 1, length: 1 };

    fn text(letters: u64) -> Self {
        Self { size: 1 + letters / 10, length: letters }
    }

    /// A text with everything that is in a value.
    fn printed(self) -> Self {
        Self::text(self.size.saturating_mul(PRINTED))
    }

    /// Any part of it.
    fn part(self) -> Self {
        Self { size: self.size, length: self.size.saturating_mul(10) }
    }

    fn and(self, other: Self) -> Self {
        Self { size: self.size.saturating_add(other.size), length: self.length.saturating_add(other.length) }
    }

    fn or(self, other: Self) -> Self {
        Self { size: self.size.max(other.size), length: self.length.max(other.length) }
    }
}

/// The cost of a part of an expression.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    steps: u64,
    /// Values copied.
    copies: u64,
}

impl Cost {
    fn and(self, other: Self) -> Self {
        Self {
            steps: self.steps.saturating_add(other.steps),
            copies: self.copies.saturating_add(other.copies),
        }
    }

    fn times(self, times: u64) -> Self {
        Self { steps: self.steps.saturating_mul(times), copies: self.copies.saturating_mul(times) }
    }
}

/// A part of an expression, counted.
struct Counted<'a> {
    cost: Cost,
    extent: Extent,
    known: Known<'a>,
}

impl Counted<'_> {
    /// A value that is made in a step and copied.
    fn made(cost: Cost, extent: Extent) -> Self {
        let own = Cost { steps: 1, copies: extent.size };
        Self { cost: cost.and(own), extent, known: None }
    }
}

struct Counter<'a, 'e> {
    scope: Vec<(&'e str, Known<'a>, Extent)>,
    /// Earlier measurements, by address.
    extents: HashMap<*const Value, Extent>,
    effort: u64,
    /// The steps that it takes to read the literal patterns: each is compiled once, however often it is used.
    patterns: u64,
}

impl<'a, 'e> Counter<'a, 'e> {
    fn measure(&mut self, value: &'a Value) -> Extent {
        if let Some(extent) = self.extents.get(&std::ptr::from_ref(value)) {
            return *extent;
        }
        let mut sum = |values: &mut dyn Iterator<Item = &'a Value>| {
            values.fold(1, |sum: u64, value| sum.saturating_add(self.measure(value).size))
        };
        let extent = match value {
            Value::Array(items) => Extent { size: sum(&mut items.iter()), length: items.len() as u64 },
            Value::Object(fields) => {
                let names: usize = fields.keys().map(String::len).sum();
                Extent { size: sum(&mut fields.values()) + names as u64 / 10, length: fields.len() as u64 }
            }
            Value::String(text) => Extent::text(text.len() as u64),
            _ => Extent::SCALAR,
        };
        self.effort += 1;
        self.extents.insert(std::ptr::from_ref(value), extent);
        extent
    }

    fn walk(&mut self, expression: &'e IdedExpr) -> Counted<'a> {
        if self.effort > EFFORT {
            return Counted::made(Cost::default(), Extent::SCALAR);
        }
        match &expression.expr {
            Expr::Ident(name) => {
                let found = self.scope.iter().rev().find(|(known, ..)| known == name);
                let (known, extent) =
                    found.map_or((None, Extent::SCALAR), |(_, known, extent)| (known.clone(), *extent));
                Counted { cost: Cost { steps: 1, copies: 0 }, extent, known }
            }
            Expr::Literal(LiteralValue::String(text)) => {
                Counted::made(Cost::default(), Extent::text(text.inner().len() as u64))
            }
            Expr::Literal(LiteralValue::Bytes(bytes)) => {
                Counted::made(Cost::default(), Extent::text(bytes.inner().len() as u64))
            }
            Expr::Select(select) => {
                let operand = self.walk(&select.operand);
                if select.test {
                    return Counted::made(operand.cost, Extent::SCALAR);
                }
                let field = |value: &&'a Value| {
                    let fields = value.as_object()?;
                    fields.get(&select.field).or_else(|| {
                        fields.iter().find(|(name, _)| escaped(name) == select.field).map(|(_, value)| value)
                    })
                };
                self.select(operand, &|values| values.iter().filter_map(field).collect())
            }
            Expr::List(list) => self.together(list.elements.iter()),
            Expr::Map(map) => self.together(map.entries.iter().flat_map(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
                EntryExpr::StructField(field) => vec![&field.value],
            })),
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Literal(_) | Expr::Struct(_) | Expr::Unspecified => {
                Counted::made(Cost::default(), Extent::SCALAR)
            }
        }
    }

    /// Counts a literal list or map.
    fn together(&mut self, parts: impl Iterator<Item = &'e IdedExpr>) -> Counted<'a> {
        let (mut cost, mut size, mut length) = (Cost::default(), 1_u64, 0);
        for part in parts {
            let part = self.walk(part);
            cost = cost.and(part.cost);
            size = size.saturating_add(part.extent.size);
            length += 1;
        }
        Counted::made(cost, Extent { size, length })
    }

    /// Counts the values taken out of a value.
    fn select(&mut self, from: Counted<'a>, take: &dyn Fn(&[&'a Value]) -> Vec<&'a Value>) -> Counted<'a> {
        let Some(values) = from.known else { return Counted::made(from.cost, from.extent.part()) };
        self.effort += values.len() as u64;
        let taken = take(&values);
        let extent = self.largest(&taken);
        Counted { known: Some(taken.into()), ..Counted::made(from.cost, extent) }
    }

    fn largest(&mut self, values: &[&'a Value]) -> Extent {
        self.effort += values.len() as u64;
        values.iter().fold(Extent::SCALAR, |most, value| most.or(self.measure(value)))
    }

    fn call(&mut self, call: &'e CallExpr) -> Counted<'a> {
        let mut cost = Cost { steps: 1, copies: 0 };
        let mut parts: Vec<Counted<'a>> = Vec::new();
        for part in call.target.as_deref().into_iter().chain(&call.args) {
            let part = self.walk(part);
            cost = cost.and(part.cost);
            parts.push(part);
        }
        let extents: Vec<Extent> = parts.iter().map(|part| part.extent).collect();
        let all = extents.iter().copied().reduce(Extent::and).unwrap_or(Extent::SCALAR);
        match call.func_name.as_str() {
            operators::INDEX | operators::OPT_INDEX | operators::OPT_SELECT => {
                self.effort +=
                    parts.first().and_then(|of| of.known.as_ref()).map_or(0, |known| known.len()) as u64;
                let of = Counted { cost, ..parts.swap_remove(0) };
                return self.select(of, &|values| values.iter().flat_map(|value| items(value)).collect());
            }
            operators::CONDITIONAL => {
                let extent = extents.iter().skip(1).copied().fold(Extent::SCALAR, Extent::or);
                let both: Option<Vec<&Rc<_>>> = parts[1..].iter().map(|part| part.known.as_ref()).collect();
                let known =
                    both.map(|both| both.into_iter().flat_map(|known| known.iter().copied()).collect());
                return Counted { cost, extent, known };
            }
            _ => {}
        }
        let name = call.func_name.rsplit('.').next().unwrap_or_default();
        // A function gets copies, an operator reads in place.
        if !name.contains(['_', '@', '!']) {
            cost.copies = cost.copies.saturating_add(all.size);
        }
        if is_pattern(name) && call.args.first().and_then(literal).is_some() {
            self.patterns = self.patterns.saturating_add(FIXED_PATTERN);
        }
        let extent = made_by(name, call, &extents, all);
        cost.steps = cost.steps.saturating_add(reads(name, call, &extents, all)).saturating_add(extent.size);
        Counted::made(cost, extent)
    }

    fn comprehension(&mut self, comprehension: &'e ComprehensionExpr) -> Counted<'a> {
        let range = self.walk(&comprehension.iter_range);
        let rounds = range.extent.length;
        let (known, item) = match &range.known {
            Some(lists) if lists.iter().all(|list| list.is_array()) => {
                self.effort += lists.iter().map(|list| items(list).len() as u64).sum::<u64>();
                let all: Vec<&'a Value> = lists.iter().flat_map(|list| items(list)).collect();
                let most = self.largest(&all);
                (Some(all.into()), most)
            }
            Some(maps) => {
                let names = maps.iter().filter_map(|map| map.as_object()).flat_map(|map| map.keys());
                (None, Extent::text(names.map(String::len).max().unwrap_or(0) as u64))
            }
            // If each round costs in proportion to its item, an average gives the same sum.
            None if is_linear(&comprehension.loop_step) => (
                None,
                Extent { size: (range.extent.size / rounds.max(1)).saturating_add(1), ..range.extent }.part(),
            ),
            None => (None, range.extent.part()),
        };
        let first = self.walk(&comprehension.accu_init);
        let depth = self.scope.len();
        self.scope.push((&comprehension.iter_var, known.clone(), item));
        if let Some(second) = &comprehension.iter_var2 {
            self.scope.push((second, known, item));
        }
        self.scope.push((&comprehension.accu_var, None, first.extent));
        let condition = self.walk(&comprehension.loop_cond);
        let step = self.walk(&comprehension.loop_step);
        // A collection grows by the same amount in every round, and is copied in every round.
        let grown =
            |first: u64, then: u64| first.saturating_add(then.saturating_sub(first).saturating_mul(rounds));
        let last = Extent {
            size: grown(first.extent.size, step.extent.size),
            length: grown(first.extent.length, step.extent.length),
        };
        let copied = Cost { steps: 1, copies: item.size.saturating_add(last.size) };
        let round = condition.cost.and(step.cost).and(copied);
        self.scope.truncate(depth);
        self.scope.push((&comprehension.accu_var, None, last));
        let result = self.walk(&comprehension.result);
        self.scope.truncate(depth);
        let cost = range.cost.and(first.cost).and(round.times(rounds)).and(result.cost);
        Counted::made(cost, result.extent)
    }
}

/// Bounds the result of a function or an operator by its operands, the receiver first.
fn made_by(name: &str, call: &CallExpr, extents: &[Extent], all: Extent) -> Extent {
    let at = |index: usize| extents.get(index).copied().unwrap_or(Extent::SCALAR);
    match name {
        operators::ADD => all,
        _ if name.contains(['_', '@', '!']) => Extent::SCALAR,
        "replace" => {
            let shortest = call.args.first().and_then(literal).map_or(1, |from| from.len().max(1) as u64);
            let found = (at(0).length / shortest).saturating_add(1);
            Extent::text(at(0).length.saturating_add(found.saturating_mul(at(2).length)))
        }
        "join" => {
            let glue = at(0).length.saturating_mul(at(1).length);
            Extent::text(at(0).printed().length.saturating_add(glue))
        }
        "format" => {
            let digits = match call.target.as_deref().and_then(literal) {
                Some(text) => text.split("%.").skip(1).map(leading_number).sum(),
                None => at(1).length.saturating_mul(u64::from(u16::MAX)),
            };
            Extent::text(at(0).length.saturating_add(at(1).printed().length).saturating_add(digits))
        }
        "split" | "findAll" => {
            let letters = at(0).length;
            Extent { size: letters.saturating_mul(2).saturating_add(2), length: letters.saturating_add(1) }
        }
        "string" | "quote" | "encode" | "escapeKey" => all.printed(),
        "range" => {
            let count = limits::CEL_RANGE.unsigned_abs();
            Extent { size: count, length: count }
        }
        _ => match FUNCTIONS.iter().find(|(known, ..)| *known == name) {
            Some((_, Gives::Text | Gives::Texts | Gives::Bytes | Gives::Unknown, _)) | None => all,
            Some(_) => Extent::SCALAR,
        },
    }
}

/// Bounds the steps that a function or an operator takes to read its operands.
fn reads(name: &str, call: &CallExpr, extents: &[Extent], all: Extent) -> u64 {
    let at = |index: usize| extents.get(index).copied().unwrap_or(Extent::SCALAR);
    let product = |one: Extent, other: Extent| one.size.saturating_mul(other.size);
    let on = |library: &str| matches!(call.target.as_deref().map(|target| &target.expr), Some(Expr::Ident(name)) if name == library);
    match name {
        operators::EQUALS | operators::NOT_EQUALS => at(0).size.min(at(1).size),
        operators::IN => at(1).size,
        operators::LESS | operators::LESS_EQUALS | operators::GREATER | operators::GREATER_EQUALS => {
            at(0).size.min(at(1).size)
        }
        _ if name.contains(['_', '@', '!']) => 0,
        "contains" | "equivalent" | "intersects" if on("sets") => product(at(1), at(2)),
        "indexOf" | "lastIndexOf" => product(at(0), at(1)).saturating_mul(10),
        "distinct" => product(at(0), at(0)),
        "sort" => at(0).size.saturating_mul(4),
        _ if is_pattern(name) && call.args.first().and_then(literal).is_none() => {
            all.size.saturating_add(PATTERN)
        }
        _ => all.size,
    }
}

/// Returns whether a function reads a pattern.
fn is_pattern(name: &str) -> bool {
    matches!(name, "matches" | "find" | "findAll")
}

/// Returns whether the steps of a loop's body grow no faster than its item.
fn is_linear(expression: &IdedExpr) -> bool {
    match &expression.expr {
        Expr::Comprehension(_) => false,
        Expr::Call(call) => {
            let name = call.func_name.as_str();
            !matches!(name, "replace" | "join" | "format" | "indexOf" | "lastIndexOf" | "distinct")
                && !matches!(name, "contains" | "equivalent" | "intersects" if call.args.len() > 1)
                && call.target.as_deref().into_iter().chain(&call.args).all(is_linear)
        }
        Expr::Select(select) => is_linear(&select.operand),
        Expr::List(list) => list.elements.iter().all(is_linear),
        Expr::Map(map) => map.entries.iter().all(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => is_linear(&entry.key) && is_linear(&entry.value),
            EntryExpr::StructField(field) => is_linear(&field.value),
        }),
        _ => true,
    }
}

pub(super) fn literal(expression: &IdedExpr) -> Option<&str> {
    match &expression.expr {
        Expr::Literal(LiteralValue::String(text)) => Some(text.inner()),
        _ => None,
    }
}

/// Reads the number that a text begins with; one that is too long counts as the largest.
fn leading_number(text: &str) -> u64 {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    text[..digits].parse().unwrap_or(u64::from(u16::MAX)).min(u64::from(u16::MAX))
}

/// Lists the items or the values of a value.
fn items(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(fields) => fields.values().collect(),
        _ => Vec::new(),
    }
}
