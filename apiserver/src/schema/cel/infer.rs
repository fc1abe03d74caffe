//! Inference: the type of an expression, and its errors.

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, SelectExpr, StructExpr, operators,
};

use super::authorizer::AUTHORIZER;
use super::cost::literal;
use super::functions::{FUNCTIONS, NAMES, Takes};
use super::types::{Asking, Type};

/// Finds the type of an expression, and its errors.
pub(super) struct Checker<'a, 's> {
    source: &'s str,
    scope: Vec<(String, Type<'a>)>,
    /// Whether it may make the objects of a mutation.
    makes_objects: bool,
    /// Whether all values of a literal must have one type.
    has_even_literals: bool,
    /// The errors, in the server's words.
    pub(super) errors: Vec<String>,
}

impl<'a, 's> Checker<'a, 's> {
    pub(super) fn new(source: &'s str, scope: Vec<(String, Type<'a>)>) -> Self {
        Self { source, scope, makes_objects: false, has_even_literals: false, errors: Vec::new() }
    }

    /// Lets the expression make `Object` and `JSONPatch`.
    pub(super) fn with_objects(self) -> Self {
        Self { makes_objects: true, ..self }
    }

    /// Refuses lists and maps of several types, as the real server does in expressions of policies.
    pub(super) fn with_even_literals(self) -> Self {
        Self { has_even_literals: true, ..self }
    }

    /// Finds the type of all values of a literal.
    fn together(&mut self, values: &[&IdedExpr]) -> Type<'a> {
        let types: Vec<Type<'a>> = values.iter().map(|value| self.infer(value)).collect();
        // The type of a function's result may be unknown here, but not there.
        let is_sure = |value: &IdedExpr, given: &Type<'_>| !given.is_dyn() || is_path(value);
        if let (true, [first, ..], [value, ..]) = (self.has_even_literals, types.as_slice(), values)
            && is_sure(value, first)
        {
            for (value, given) in values.iter().zip(&types).skip(1) {
                let differs = first.is_dyn() != given.is_dyn() || !first.meets(given);
                if is_sure(value, given)
                    && differs
                    && !matches!((first, given), (Type::Null, _) | (_, Type::Null))
                {
                    let at = literal(value).map(|text| format!("'{text}'")).unwrap_or_default();
                    self.complain(&at, 0, &format!("expected type '{first}' but found '{given}'"));
                }
            }
        }
        types.into_iter().reduce(Type::join).unwrap_or(Type::Dyn)
    }

    /// Records an error at the place of a text in the source.
    fn complain(&mut self, at: &str, into: usize, what: &str) {
        let at = self.source.find(at).map_or(0, |start| start + into);
        let before = &self.source[..at];
        let line = before.matches('\n').count();
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count();
        let text = self.source.lines().nth(line).unwrap_or_default();
        let error = format!(
            "ERROR: <input>:{}:{}: {what}\n | {text}\n | {}^",
            line + 1,
            column + 1,
            ".".repeat(column)
        );
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    pub(super) fn infer(&mut self, expression: &IdedExpr) -> Type<'a> {
        match &expression.expr {
            Expr::Unspecified => Type::Dyn,
            Expr::Struct(made) => self.made(made),
            Expr::Literal(literal) => match literal {
                LiteralValue::Boolean(_) => Type::Bool,
                LiteralValue::Bytes(_) => Type::Bytes,
                LiteralValue::Double(_) => Type::Double,
                LiteralValue::Int(_) => Type::Int,
                LiteralValue::Null => Type::Null,
                LiteralValue::String(_) => Type::Text,
                LiteralValue::UInt(_) => Type::Uint,
            },
            Expr::Ident(name) => self.variable(name),
            Expr::Select(select) => self.select(select),
            Expr::List(list) => {
                Type::List(Box::new(self.together(&list.elements.iter().collect::<Vec<_>>())))
            }
            Expr::Map(map) => {
                let mut values = Vec::new();
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        self.infer(&entry.key);
                        values.push(&entry.value);
                    }
                }
                Type::Map(Box::new(self.together(&values)))
            }
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Call(call) => self.call(call),
        }
    }

    /// Returns the type of an object that is made, with the fields that it may have.
    fn made(&mut self, made: &StructExpr) -> Type<'a> {
        let name = made.type_name.as_str();
        let is_patch = name == "JSONPatch";
        if !(self.makes_objects && (is_patch || name == "Object" || name.starts_with("Object."))) {
            self.complain(name, 0, &format!("undeclared reference to '{name}' (in container '')"));
        }
        for entry in &made.entries {
            let EntryExpr::StructField(field) = &entry.expr else { continue };
            self.infer(&field.value);
            if is_patch && !["op", "path", "from", "value"].contains(&field.field.as_str()) {
                self.complain(&field.field, 0, &format!("undefined field '{}'", field.field));
            }
        }
        Type::Made(name.to_owned())
    }

    fn variable(&mut self, name: &str) -> Type<'a> {
        let found = self.scope.iter().rev().find(|(known, _)| known == name);
        match found {
            Some((_, found)) => found.clone(),
            None if NAMES.contains(&name) => Type::Dyn,
            None => {
                self.complain(name, 0, &format!("undeclared reference to '{name}' (in container '')"));
                Type::Dyn
            }
        }
    }

    fn select(&mut self, select: &SelectExpr) -> Type<'a> {
        let operand = self.infer(&select.operand);
        let found = operand.field(&select.field).unwrap_or_else(|why| {
            self.complain(&format!(".{}", select.field), 0, &why);
            Type::Dyn
        });
        if select.test { Type::Bool } else { found }
    }

    fn comprehension(&mut self, comprehension: &ComprehensionExpr) -> Type<'a> {
        let (key, value) = match self.infer(&comprehension.iter_range) {
            Type::Dyn => (Type::Dyn, Type::Dyn),
            Type::List(item) => (Type::Int, *item),
            Type::Map(value) => (Type::Text, *value),
            other => {
                let why = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.complain(self.source, 0, &why);
                (Type::Dyn, Type::Dyn)
            }
        };
        let is_map = matches!(key, Type::Text);
        let result = self.infer(&comprehension.accu_init);
        let depth = self.scope.len();
        match &comprehension.iter_var2 {
            Some(second) => {
                self.scope.push((comprehension.iter_var.clone(), key));
                self.scope.push((second.clone(), value));
            }
            None => self.scope.push((comprehension.iter_var.clone(), if is_map { key } else { value })),
        }
        self.scope.push((comprehension.accu_var.clone(), result.clone()));
        let step = self.infer(&comprehension.loop_step);
        let is_list = matches!((&result, &step), (Type::List(_), Type::List(_)));
        self.scope.truncate(depth);
        self.scope.push((comprehension.accu_var.clone(), if is_list { step } else { result }));
        let result = self.infer(&comprehension.result);
        self.scope.truncate(depth);
        result
    }

    fn call(&mut self, call: &CallExpr) -> Type<'a> {
        let target = call.target.as_ref().map(|target| self.infer(target));
        let arguments: Vec<Type<'a>> = call.args.iter().map(|argument| self.infer(argument)).collect();
        if let Some(operator) = self.operator(&call.func_name, &arguments) {
            return operator;
        }
        match (call.func_name.as_str(), &target, arguments.as_slice()) {
            ("value", Some(Type::Optional(inner)), []) | ("orValue", Some(Type::Optional(inner)), [_]) => {
                return (**inner).clone();
            }
            ("value" | "orValue", ..) => return Type::Dyn,
            _ => {}
        }
        let name = call.func_name.rsplit('.').next().unwrap_or_default();
        if let Some(given) = self.asked(name, target.as_ref(), &arguments) {
            return given;
        }
        let Some((_, gives, takes)) = FUNCTIONS.iter().find(|(known, ..)| *known == name) else {
            // The formats of a library are functions as well.
            if matches!(call.target.as_ref().map(|target| &target.expr), Some(Expr::Ident(name)) if name == "format")
            {
                return Type::Dyn;
            }
            self.complain(
                &format!("{name}("),
                name.len(),
                &format!("undeclared reference to '{name}' (in container '')"),
            );
            return Type::Dyn;
        };
        let named = matches!(call.target.as_ref().map(|target| &target.expr), Some(Expr::Ident(name)) if NAMES.contains(&name.as_str()));
        if let Some(target) = target
            && *takes == Takes::Text
            && !named
            && !target.meets(&Type::Text)
        {
            let shown: Vec<String> = arguments.iter().map(Type::to_string).collect();
            let why = format!(
                "found no matching overload for '{name}' applied to '{target}.({})'",
                shown.join(", ")
            );
            self.complain(&format!("{name}("), name.len(), &why);
        }
        gives.type_of()
    }

    /// Returns the type of a call of the authorizer's functions; `None` if it is another call.
    fn asked(&mut self, name: &str, target: Option<&Type<'a>>, arguments: &[Type<'a>]) -> Option<Type<'a>> {
        let known = Asking::with_function(name);
        let is_there = || self.scope.iter().any(|(known, _)| known == AUTHORIZER);
        let receiver = match target? {
            Type::Asking(asking) => *asking,
            Type::Dyn if is_there() => return known?.function(name).map(|(_, given)| given),
            _ => return None,
        };
        let fits =
            |count: usize| count == arguments.len() && arguments.iter().all(|given| given.meets(&Type::Text));
        match receiver.function(name) {
            Some((count, given)) if fits(count) => Some(given),
            None if known.is_none() && !FUNCTIONS.iter().any(|(known, ..)| *known == name) => None,
            _ => {
                let shown: Vec<String> = arguments.iter().map(Type::to_string).collect();
                let why = format!(
                    "found no matching overload for '{name}' applied to '{}.({})'",
                    receiver.name(),
                    shown.join(", ")
                );
                self.complain(&format!("{name}("), name.len(), &why);
                Some(Type::Dyn)
            }
        }
    }

    /// Returns the type of an operation; `None` if it is not an operator.
    fn operator(&mut self, name: &str, operands: &[Type<'a>]) -> Option<Type<'a>> {
        use operators as op;
        let dynamic = operands.iter().any(Type::is_dyn);
        let fitting = match (name, operands) {
            (op::LOGICAL_AND | op::LOGICAL_OR, [a, b]) => {
                (a.meets(&Type::Bool) && b.meets(&Type::Bool)).then_some(Type::Bool)
            }
            (op::LOGICAL_NOT | op::NOT_STRICTLY_FALSE, [a]) => a.meets(&Type::Bool).then_some(Type::Bool),
            (op::EQUALS | op::NOT_EQUALS, [a, b]) => a.meets(b).then_some(Type::Bool),
            (op::IN, [_, within]) => {
                matches!(within, Type::Dyn | Type::List(_) | Type::Map(_)).then_some(Type::Bool)
            }
            (op::LESS | op::LESS_EQUALS | op::GREATER | op::GREATER_EQUALS, [a, b]) => {
                let ordered =
                    |t: &Type<'_>| !matches!(t, Type::List(_) | Type::Map(_) | Type::Object(_) | Type::Null);
                let fits = (a.is_number() && b.is_number()) || (a.meets(b) && ordered(a) && ordered(b));
                fits.then_some(Type::Bool)
            }
            (op::CONDITIONAL, [condition, a, b]) => {
                condition.meets(&Type::Bool).then(|| a.clone().join(b.clone()))
            }
            (op::INDEX, [of, _]) => match of {
                Type::Dyn => Some(Type::Dyn),
                Type::List(item) | Type::Map(item) | Type::Optional(item) => Some((**item).clone()),
                _ => None,
            },
            (op::OPT_INDEX, [of, _]) => match of {
                Type::List(item) | Type::Map(item) => Some(Type::Optional(item.clone())),
                _ => Some(Type::Optional(Box::new(Type::Dyn))),
            },
            (op::OPT_SELECT, _) => Some(Type::Optional(Box::new(Type::Dyn))),
            (op::NEGATE, [a]) => (a.is_number() || a.is_dyn()).then(|| a.clone()),
            (op::ADD, [_, _]) if dynamic => Some(operands[0].clone().join(operands[1].clone())),
            (op::SUBSTRACT | op::MULTIPLY | op::DIVIDE | op::MODULO, [_, _]) if dynamic => Some(Type::Dyn),
            (op::ADD, [Type::Timestamp, Type::Duration] | [Type::Duration, Type::Timestamp])
            | (op::SUBSTRACT, [Type::Timestamp, Type::Duration]) => Some(Type::Timestamp),
            (op::SUBSTRACT, [Type::Timestamp, Type::Timestamp]) => Some(Type::Duration),
            (op::ADD, [a @ (Type::Text | Type::Bytes | Type::List(_)), b]) => {
                a.meets(b).then(|| a.clone().join(b.clone()))
            }
            (op::ADD | op::SUBSTRACT, [Type::Duration, Type::Duration]) => Some(Type::Duration),
            (op::ADD | op::SUBSTRACT | op::MULTIPLY | op::DIVIDE, [a, b]) => {
                (a.is_number() && a.meets(b)).then(|| a.clone())
            }
            (op::MODULO, [a @ (Type::Int | Type::Uint), b]) => a.meets(b).then(|| a.clone()),
            (op::MODULO, _) => None,
            _ => return None,
        };
        if fitting.is_none() {
            let shown: Vec<String> = operands.iter().map(Type::to_string).collect();
            let sign: String =
                name.trim_matches('_').chars().filter(|c| !matches!(c, '@' | '_' | ']')).collect();
            let why = format!("found no matching overload for '{name}' applied to '({})'", shown.join(", "));
            self.complain(&sign, 0, &why);
        }
        Some(fitting.unwrap_or(Type::Dyn))
    }
}

/// Returns whether an expression only takes a part of a value.
pub(super) fn is_path(expression: &IdedExpr) -> bool {
    match &expression.expr {
        Expr::Ident(_) => true,
        Expr::Select(select) => !select.test && is_path(&select.operand),
        Expr::Call(call) if call.func_name == operators::INDEX => call.args.first().is_some_and(is_path),
        _ => false,
    }
}
