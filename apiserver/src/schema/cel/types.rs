//! Types: what an expression evaluates to, as far as the schema and the library tell.

use std::fmt;

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, SelectExpr, operators,
};

use super::escaped;
use crate::schema::node::{Kind, NodeRef};

/// The type of an expression.
#[derive(Clone, Debug)]
pub(super) enum Type<'a> {
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    Text,
    Bytes,
    Duration,
    Timestamp,
    List(Box<Type<'a>>),
    Map(Box<Type<'a>>),
    /// An object with declared fields.
    Object(NodeRef<'a>),
    /// The metadata of a whole object, of which rules see the names.
    Metadata,
    Optional(Box<Type<'a>>),
}

impl fmt::Display for Type<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Dyn => f.write_str("dyn"),
            Type::Null => f.write_str("null"),
            Type::Bool => f.write_str("bool"),
            Type::Int => f.write_str("int"),
            Type::Uint => f.write_str("uint"),
            Type::Double => f.write_str("double"),
            Type::Text => f.write_str("string"),
            Type::Bytes => f.write_str("bytes"),
            Type::Duration => f.write_str("google.protobuf.Duration"),
            Type::Timestamp => f.write_str("google.protobuf.Timestamp"),
            Type::List(item) => write!(f, "list({item})"),
            Type::Map(value) => write!(f, "map(string, {value})"),
            Type::Object(_) | Type::Metadata => f.write_str("object"),
            Type::Optional(inner) => write!(f, "optional_type({inner})"),
        }
    }
}

impl<'a> Type<'a> {
    /// Gives the type of the values of a node.
    pub(super) fn of(node: NodeRef<'a>) -> Type<'a> {
        let format = node.node().rules.get("format").and_then(|format| format.as_str()).unwrap_or_default();
        match (node.kind(), format) {
            (Kind::Any | Kind::IntOrString, _) => Type::Dyn,
            (Kind::Boolean, _) => Type::Bool,
            (Kind::Integer, _) => Type::Int,
            (Kind::Number, _) => Type::Double,
            (Kind::String, "date-time" | "date") => Type::Timestamp,
            (Kind::String, "duration") => Type::Duration,
            (Kind::String, "byte") => Type::Bytes,
            (Kind::String, _) => Type::Text,
            (Kind::Array, _) => Type::List(Box::new(Type::of(node.item()))),
            (Kind::Object, _) => match (node.properties().next(), node.node().additional) {
                (None, Some(_)) => Type::Map(Box::new(node.additional().map_or(Type::Dyn, Type::of))),
                (None, None) if node.node().preserve => Type::Dyn,
                _ => Type::Object(node),
            },
        }
    }

    /// Gives the type of a field; `Err` says why there is none.
    fn field(&self, name: &str) -> Result<Type<'a>, String> {
        match self {
            Type::Dyn => Ok(Type::Dyn),
            Type::Map(value) => Ok((**value).clone()),
            Type::Optional(inner) => Ok(Type::Optional(Box::new(inner.field(name)?))),
            Type::Metadata if matches!(name, "name" | "generateName") => Ok(Type::Text),
            Type::Object(node) => {
                let node = *node;
                let whole = node.node().resource || node.node().embedded;
                if whole && name == "metadata" {
                    return Ok(Type::Metadata);
                }
                let found = node.properties().find(|(property, _)| escaped(property) == name);
                match found {
                    Some((_, below)) => Ok(Type::of(below)),
                    None if node.node().preserve => Ok(Type::Dyn),
                    None => Err(format!("undefined field '{name}'")),
                }
            }
            Type::Metadata => Err(format!("undefined field '{name}'")),
            other => Err(format!("type '{other}' does not support field selection")),
        }
    }

    fn is_dyn(&self) -> bool {
        matches!(self, Type::Dyn)
    }

    fn is_number(&self) -> bool {
        matches!(self, Type::Int | Type::Uint | Type::Double)
    }

    /// Returns whether values of two types may be equal.
    pub(super) fn meets(&self, other: &Type<'_>) -> bool {
        match (self, other) {
            (Type::Dyn, _) | (_, Type::Dyn) | (Type::Null, _) | (_, Type::Null) => true,
            (Type::List(a), Type::List(b))
            | (Type::Map(a), Type::Map(b))
            | (Type::Optional(a), Type::Optional(b)) => a.meets(b),
            (Type::Object(_) | Type::Metadata, Type::Object(_) | Type::Metadata | Type::Map(_)) => true,
            (Type::Map(_), Type::Object(_) | Type::Metadata) => true,
            (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
        }
    }

    /// Gives a type for values of both.
    fn join(self, other: Type<'a>) -> Type<'a> {
        match (self, other) {
            (Type::List(a), Type::List(b)) => Type::List(Box::new(a.join(*b))),
            (Type::Null, other) | (other, Type::Null) => other,
            (a, b) if !a.is_dyn() && a.meets(&b) => a,
            _ => Type::Dyn,
        }
    }
}

/// What functions of the library give; a receiver where only texts have them.
const FUNCTIONS: &[(&str, Gives, Takes)] = &[
    ("contains", Gives::Bool, Takes::Text),
    ("startsWith", Gives::Bool, Takes::Text),
    ("endsWith", Gives::Bool, Takes::Text),
    ("matches", Gives::Bool, Takes::Text),
    ("charAt", Gives::Text, Takes::Text),
    ("lowerAscii", Gives::Text, Takes::Text),
    ("upperAscii", Gives::Text, Takes::Text),
    ("replace", Gives::Text, Takes::Text),
    ("substring", Gives::Text, Takes::Text),
    ("trim", Gives::Text, Takes::Text),
    ("find", Gives::Text, Takes::Text),
    ("format", Gives::Text, Takes::Text),
    ("split", Gives::Texts, Takes::Text),
    ("findAll", Gives::Texts, Takes::Text),
    ("join", Gives::Text, Takes::Any),
    ("quote", Gives::Text, Takes::Any),
    ("string", Gives::Text, Takes::Any),
    ("getScheme", Gives::Text, Takes::Any),
    ("getHost", Gives::Text, Takes::Any),
    ("getHostname", Gives::Text, Takes::Any),
    ("getPort", Gives::Text, Takes::Any),
    ("getEscapedPath", Gives::Text, Takes::Any),
    ("encode", Gives::Text, Takes::Any),
    ("escapeKey", Gives::Text, Takes::Any),
    ("size", Gives::Int, Takes::Any),
    ("indexOf", Gives::Int, Takes::Any),
    ("lastIndexOf", Gives::Int, Takes::Any),
    ("int", Gives::Int, Takes::Any),
    ("getFullYear", Gives::Int, Takes::Any),
    ("getMonth", Gives::Int, Takes::Any),
    ("getDate", Gives::Int, Takes::Any),
    ("getDayOfMonth", Gives::Int, Takes::Any),
    ("getDayOfWeek", Gives::Int, Takes::Any),
    ("getDayOfYear", Gives::Int, Takes::Any),
    ("getHours", Gives::Int, Takes::Any),
    ("getMinutes", Gives::Int, Takes::Any),
    ("getSeconds", Gives::Int, Takes::Any),
    ("getMilliseconds", Gives::Int, Takes::Any),
    ("asInteger", Gives::Int, Takes::Any),
    ("compareTo", Gives::Int, Takes::Any),
    ("family", Gives::Int, Takes::Any),
    ("prefixLength", Gives::Int, Takes::Any),
    ("major", Gives::Int, Takes::Any),
    ("minor", Gives::Int, Takes::Any),
    ("patch", Gives::Int, Takes::Any),
    ("uint", Gives::Uint, Takes::Any),
    ("double", Gives::Double, Takes::Any),
    ("asApproximateFloat", Gives::Double, Takes::Any),
    ("bytes", Gives::Bytes, Takes::Any),
    ("timestamp", Gives::Timestamp, Takes::Any),
    ("duration", Gives::Duration, Takes::Any),
    ("bool", Gives::Bool, Takes::Any),
    ("isSorted", Gives::Bool, Takes::Any),
    ("hasValue", Gives::Bool, Takes::Any),
    ("isURL", Gives::Bool, Takes::Any),
    ("isIP", Gives::Bool, Takes::Any),
    ("isCIDR", Gives::Bool, Takes::Any),
    ("isCanonical", Gives::Bool, Takes::Any),
    ("isLoopback", Gives::Bool, Takes::Any),
    ("isUnspecified", Gives::Bool, Takes::Any),
    ("isLinkLocalMulticast", Gives::Bool, Takes::Any),
    ("isLinkLocalUnicast", Gives::Bool, Takes::Any),
    ("isGlobalUnicast", Gives::Bool, Takes::Any),
    ("containsIP", Gives::Bool, Takes::Any),
    ("containsCIDR", Gives::Bool, Takes::Any),
    ("isQuantity", Gives::Bool, Takes::Any),
    ("isInteger", Gives::Bool, Takes::Any),
    ("isGreaterThan", Gives::Bool, Takes::Any),
    ("isLessThan", Gives::Bool, Takes::Any),
    ("isSemver", Gives::Bool, Takes::Any),
    ("intersects", Gives::Bool, Takes::Any),
    ("equivalent", Gives::Bool, Takes::Any),
    ("isNaN", Gives::Bool, Takes::Any),
    ("isInf", Gives::Bool, Takes::Any),
    ("isFinite", Gives::Bool, Takes::Any),
    ("sum", Gives::Unknown, Takes::Any),
    ("min", Gives::Unknown, Takes::Any),
    ("max", Gives::Unknown, Takes::Any),
    ("dyn", Gives::Unknown, Takes::Any),
    ("type", Gives::Unknown, Takes::Any),
    ("url", Gives::Unknown, Takes::Any),
    ("getQuery", Gives::Unknown, Takes::Any),
    ("ip", Gives::Unknown, Takes::Any),
    ("cidr", Gives::Unknown, Takes::Any),
    ("masked", Gives::Unknown, Takes::Any),
    ("semver", Gives::Unknown, Takes::Any),
    ("quantity", Gives::Unknown, Takes::Any),
    ("sign", Gives::Unknown, Takes::Any),
    ("add", Gives::Unknown, Takes::Any),
    ("sub", Gives::Unknown, Takes::Any),
    ("named", Gives::Unknown, Takes::Any),
    ("validate", Gives::Unknown, Takes::Any),
    ("reverse", Gives::Unknown, Takes::Any),
    ("slice", Gives::Unknown, Takes::Any),
    ("sort", Gives::Unknown, Takes::Any),
    ("flatten", Gives::Unknown, Takes::Any),
    ("distinct", Gives::Unknown, Takes::Any),
    ("first", Gives::Unknown, Takes::Any),
    ("last", Gives::Unknown, Takes::Any),
    ("or", Gives::Unknown, Takes::Any),
    ("none", Gives::Unknown, Takes::Any),
    ("of", Gives::Unknown, Takes::Any),
    ("ofNonZeroValue", Gives::Unknown, Takes::Any),
    ("decode", Gives::Unknown, Takes::Any),
    ("greatest", Gives::Unknown, Takes::Any),
    ("least", Gives::Unknown, Takes::Any),
    ("ceil", Gives::Unknown, Takes::Any),
    ("floor", Gives::Unknown, Takes::Any),
    ("round", Gives::Unknown, Takes::Any),
    ("trunc", Gives::Unknown, Takes::Any),
    ("abs", Gives::Unknown, Takes::Any),
    ("sqrt", Gives::Unknown, Takes::Any),
    ("bitAnd", Gives::Unknown, Takes::Any),
    ("bitOr", Gives::Unknown, Takes::Any),
    ("bitXor", Gives::Unknown, Takes::Any),
    ("bitNot", Gives::Unknown, Takes::Any),
    ("bitShiftLeft", Gives::Unknown, Takes::Any),
    ("bitShiftRight", Gives::Unknown, Takes::Any),
];

/// Names of libraries and types, which are no variables.
const NAMES: [&str; 27] = [
    "optional",
    "math",
    "strings",
    "lists",
    "sets",
    "ip",
    "cidr",
    "format",
    "quantity",
    "semver",
    "url",
    "base64",
    "jsonpatch",
    "regex",
    "int",
    "uint",
    "double",
    "string",
    "bytes",
    "bool",
    "list",
    "map",
    "null_type",
    "type",
    "timestamp",
    "duration",
    "google",
];

#[derive(Clone, Copy)]
enum Gives {
    Bool,
    Int,
    Uint,
    Double,
    Text,
    Texts,
    Bytes,
    Timestamp,
    Duration,
    Unknown,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    Text,
    Any,
}

impl Gives {
    fn type_of<'a>(self) -> Type<'a> {
        match self {
            Gives::Bool => Type::Bool,
            Gives::Int => Type::Int,
            Gives::Uint => Type::Uint,
            Gives::Double => Type::Double,
            Gives::Text => Type::Text,
            Gives::Texts => Type::List(Box::new(Type::Text)),
            Gives::Bytes => Type::Bytes,
            Gives::Timestamp => Type::Timestamp,
            Gives::Duration => Type::Duration,
            Gives::Unknown => Type::Dyn,
        }
    }
}

/// Finds the type of an expression, and what is wrong in it.
pub(super) struct Checker<'a, 's> {
    source: &'s str,
    scope: Vec<(String, Type<'a>)>,
    /// What is wrong, as the server says it.
    pub(super) errors: Vec<String>,
}

impl<'a, 's> Checker<'a, 's> {
    pub(super) fn new(source: &'s str, scope: Vec<(String, Type<'a>)>) -> Self {
        Self { source, scope, errors: Vec::new() }
    }

    /// Notes what is wrong where a text stands in the source.
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
            Expr::Unspecified | Expr::Struct(_) => Type::Dyn,
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
                let types: Vec<Type<'a>> = list.elements.iter().map(|item| self.infer(item)).collect();
                Type::List(Box::new(types.into_iter().reduce(Type::join).unwrap_or(Type::Dyn)))
            }
            Expr::Map(map) => {
                let mut types = Vec::new();
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        self.infer(&entry.key);
                        types.push(self.infer(&entry.value));
                    }
                }
                Type::Map(Box::new(types.into_iter().reduce(Type::join).unwrap_or(Type::Dyn)))
            }
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::Call(call) => self.call(call),
        }
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

    /// Gives the type of an operation; `None` for what is no operator.
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
