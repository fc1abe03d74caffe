//! Rules in CEL: parsed, checked against their schema, and run on objects.

mod asker;
mod authorizer;
mod check;
mod condition;
mod cost;
mod formula;
mod functions;
mod infer;
mod library;
mod names;
mod run;
mod types;
mod value;
mod visit;

#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kube_cel::cel::IdedExpr;
use kube_cel::cel::parser::Parser;
use serde_json::{Map, Value, json};

use crate::limits::{CEL_DEPTH, CEL_TEXT};

pub(super) use self::check::check;
pub(crate) use self::condition::{compile_condition, evaluate_condition};
pub(crate) use self::formula::{Formula, FormulaError, FormulaScope, TYPE_NAME};
pub(crate) use self::names::{FormulaNames, Wanted};
pub(super) use self::run::{deepest, run};

/// The depth of expressions that any stack has room for.
const SHALLOW: usize = 40;

/// The reason of the error that a violated rule gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    Invalid,
    Forbidden,
    Required,
    Duplicate,
}

/// An expression, or its error.
type Parsed = Result<IdedExpr, String>;

/// One rule of `x-kubernetes-validations`.
#[derive(Debug)]
pub(crate) struct CelRule {
    text: String,
    message: String,
    message_expression: String,
    reason: Option<String>,
    field_path: String,
    optional_old_self: Option<bool>,
    parsed: Parsed,
    parsed_message: Option<Parsed>,
    uses_old_self: bool,
    /// How deep the deeper of the two expressions may be.
    depth: usize,
}

impl CelRule {
    /// Reads the rules of a schema's node.
    pub(super) fn all(fields: &Map<String, Value>) -> Arc<[CelRule]> {
        match fields.get("x-kubernetes-validations").and_then(Value::as_array) {
            Some(rules) => roomy(|| rules.iter().map(CelRule::read).collect()).unwrap_or_default(),
            None => Arc::default(),
        }
    }

    fn read(rule: &Value) -> CelRule {
        let text = |key: &str| rule[key].as_str().unwrap_or_default().to_owned();
        let (parsed, message_expression) = (parse(&text("rule")), text("messageExpression"));
        let depth = depth(&text("rule")).max(depth(&message_expression));
        let uses_old_self = parsed.as_ref().is_ok_and(|parsed| parsed.references().has_variable("oldSelf"));
        CelRule {
            text: text("rule"),
            message: text("message"),
            reason: rule["reason"].as_str().map(str::to_owned),
            field_path: text("fieldPath"),
            optional_old_self: rule["optionalOldSelf"].as_bool(),
            parsed_message: (!message_expression.trim().is_empty()).then(|| parse(&message_expression)),
            message_expression,
            parsed,
            uses_old_self,
            depth,
        }
    }

    fn reason(&self) -> Reason {
        match self.reason.as_deref() {
            Some("FieldValueForbidden") => Reason::Forbidden,
            Some("FieldValueRequired") => Reason::Required,
            Some("FieldValueDuplicate") => Reason::Duplicate,
            _ => Reason::Invalid,
        }
    }

    /// Returns whether the old value may be absent for it.
    fn takes_optional_old_self(&self) -> bool {
        self.optional_old_self == Some(true)
    }

    /// Names the rule in errors.
    fn called(&self) -> &str {
        if self.message.is_empty() { self.text.trim() } else { self.message.trim() }
    }

    /// Shows the rule as the server's own struct prints.
    fn shown(&self) -> String {
        let quoted = |text: &str| {
            let text = json!(text).to_string();
            text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
        };
        let reason = self.reason.as_deref().map_or_else(|| "null".to_owned(), quoted);
        let optional = self.optional_old_self.map_or_else(|| "null".to_owned(), |flag| flag.to_string());
        format!(
            "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{reason},\"FieldPath\":{},\"OptionalOldSelf\":{optional}}}",
            quoted(&self.text),
            quoted(&self.message),
            quoted(&self.message_expression),
            quoted(&self.field_path),
        )
    }
}

/// Runs a deep recursion on a stack of its own; `None` if it panics.
fn roomy<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    const STACK: usize = 64 * 1024 * 1024;
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
        thread.ok()?.join().ok()
    })
}

fn parse(text: &str) -> Parsed {
    let length = text.chars().count();
    if length > CEL_TEXT {
        return Err(format!("expression code point size exceeds limit: size: {length}, limit {CEL_TEXT}"));
    }
    if depth(text) > CEL_DEPTH {
        return Err(format!("ERROR: <input>:1:1: expression recursion limit exceeded: {CEL_DEPTH}"));
    }
    // The parser is third-party code: an input that makes it panic is refused.
    let parsed =
        catch_unwind(AssertUnwindSafe(|| Parser::default().enable_optional_syntax(true).parse(text)));
    match parsed {
        Ok(Ok(expression)) => Ok(expression),
        Ok(Err(errors)) => Err(errors.to_string().replace("\n|", "\n |")),
        Err(_) => Err("ERROR: <input>:1:1: Syntax error".to_owned()),
    }
}

/// Bounds the depth of an expression before it is parsed: parser and interpreter recurse without a bound of their own.
///
/// Every operator and every dot may stand on top of what is before it, and a bracket takes several rules of the grammar.
fn depth(text: &str) -> usize {
    const BRACKET: usize = 5;
    let (mut open, mut own, mut most) = (Vec::new(), 0_usize, 0);
    let mut below = 0;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\'' | '"' => {
                while let Some(inner) = letters.next() {
                    match inner {
                        '\\' => drop(letters.next()),
                        end if end == letter => break,
                        _ => {}
                    }
                }
            }
            '(' | '[' | '{' => {
                below += own + BRACKET;
                open.push(own);
                own = 0;
            }
            ')' | ']' | '}' => {
                own = open.pop().unwrap_or_default();
                below = below.saturating_sub(own + BRACKET);
            }
            ',' => own = 0,
            '+' | '-' | '*' | '/' | '%' | '<' | '>' | '=' | '!' | '&' | '|' | '?' | ':' | '.' => own += 1,
            _ => {}
        }
        most = most.max(below + own);
    }
    most
}

/// Keywords of the grammar, which can't be used as field names directly.
const GRAMMAR: [&str; 4] = ["true", "false", "null", "in"];

/// Reserved words of the language that can still be used as field names directly.
const KEPT: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Returns whether rules name a field both directly and in its escaped form.
fn has_two_names(name: &str) -> bool {
    KEPT.contains(&name)
}

/// Writes a field's name as rules have it.
fn escaped(name: &str) -> String {
    if GRAMMAR.contains(&name) || KEPT.contains(&name) {
        return format!("__{name}__");
    }
    name.replace("__", "__underscores__")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__")
}
