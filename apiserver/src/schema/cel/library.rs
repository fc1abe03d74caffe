//! The language of rules: its functions, and how an expression gets a value.

use std::cell::RefCell;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kube_cel::KubeCelExt as _;
use kube_cel::cel::extractors::{Arguments, This};
use kube_cel::cel::{Context, ExecutionError, IdedExpr, Value as Cel};
use regex::{Regex, RegexBuilder};

use super::authorizer::add_functions;
use crate::limits;

/// The most memory of a pattern, in bytes.
const PATTERN: usize = 1 << 20;

/// How many patterns are remembered.
const PATTERNS: usize = 100;

/// Evaluates an expression.
///
/// # Errors
/// Why it has no value, in the server's words.
pub(super) fn evaluate(
    expression: &IdedExpr,
    scope: impl IntoIterator<Item = (&'static str, Cel)>,
) -> Result<Cel, String> {
    thread_local! {
        static LIBRARY: Context<'static> = library();
    }
    // The library is third-party code: an expression that makes it panic has no value.
    let evaluated = catch_unwind(AssertUnwindSafe(|| {
        LIBRARY.with(|library| {
            let mut context = library.new_inner_scope();
            for (name, value) in scope {
                context.add_variable_from_value(name, value);
            }
            Cel::resolve(expression, &context)
        })
    }));
    match evaluated {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(worded(&error)),
        Err(_) => Err("internal error".to_owned()),
    }
}

/// Returns the functions of rules; what the interpreter lacks of the language is added.
fn library() -> Context<'static> {
    let mut library = Context::default().with_all();
    library.add_function("type", |value: Cel| -> Result<Cel, ExecutionError> {
        Ok(Cel::String(Arc::new(named_type(&value).to_owned())))
    });
    library.add_function("dyn", |value: Cel| -> Result<Cel, ExecutionError> { Ok(value) });
    library.add_function("lists.range", range);
    library.add_function("matches", matches);
    library.add_function("find", find);
    library.add_function("findAll", find_all);
    add_functions(&mut library);
    for name in ["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "uint"] {
        library.add_variable_from_value(name, Cel::String(Arc::new(format!("type({name})"))));
    }
    library
}

/// Makes a list of numbers, of bounded length.
fn range(count: i64) -> Result<Cel, ExecutionError> {
    if !(0..=limits::CEL_RANGE).contains(&count) {
        let why = format!("the argument must be between 0 and {}", limits::CEL_RANGE);
        return Err(ExecutionError::function_error("lists.range", why));
    }
    Ok(Cel::List(Arc::new((0..count).map(Cel::Int).collect())))
}

fn matches(This(text): This<Arc<String>>, pattern: Arc<String>) -> Result<Cel, ExecutionError> {
    Ok(Cel::Bool(compiled("matches", &pattern)?.is_match(&text)))
}

fn find(This(text): This<Arc<String>>, pattern: Arc<String>) -> Result<Cel, ExecutionError> {
    let found = compiled("find", &pattern)?.find(&text).map(|found| found.as_str().to_owned());
    Ok(Cel::String(Arc::new(found.unwrap_or_default())))
}

fn find_all(This(text): This<Arc<String>>, Arguments(given): Arguments) -> Result<Cel, ExecutionError> {
    let Some(Cel::String(pattern)) = given.first() else {
        return Err(ExecutionError::function_error("findAll", "expected string pattern"));
    };
    let most = match given.get(1) {
        Some(Cel::Int(most)) => usize::try_from(*most).unwrap_or(usize::MAX),
        _ => usize::MAX,
    };
    let pattern = compiled("findAll", pattern)?;
    let found =
        pattern.find_iter(&text).take(most).map(|found| Cel::String(Arc::new(found.as_str().to_owned())));
    Ok(Cel::List(Arc::new(found.collect())))
}

/// Returns a pattern, compiled once, because a loop uses the same one repeatedly.
fn compiled(function: &str, pattern: &str) -> Result<Regex, ExecutionError> {
    thread_local! {
        static KNOWN: RefCell<HashMap<String, Regex>> = RefCell::default();
    }
    KNOWN.with_borrow_mut(|known| {
        if let Some(regex) = known.get(pattern) {
            return Ok(regex.clone());
        }
        let invalid = |error| ExecutionError::function_error(function, format!("invalid regex: {error}"));
        let regex = RegexBuilder::new(pattern).size_limit(PATTERN).build().map_err(invalid)?;
        if known.len() == PATTERNS {
            known.clear();
        }
        known.insert(pattern.to_owned(), regex.clone());
        Ok(regex)
    })
}

/// Names the type of a value, as no text of an object is.
fn named_type(value: &Cel) -> &'static str {
    match value {
        Cel::Bool(_) => "type(bool)",
        Cel::Bytes(_) => "type(bytes)",
        Cel::Float(_) => "type(double)",
        Cel::Int(_) => "type(int)",
        Cel::List(_) => "type(list)",
        Cel::Map(_) => "type(map)",
        Cel::Null => "type(null_type)",
        Cel::String(_) => "type(string)",
        Cel::UInt(_) => "type(uint)",
        _ => "type(other)",
    }
}

/// Words an error as the server does.
fn worded(error: &ExecutionError) -> String {
    match error {
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::IndexOutOfBounds(Cel::Int(index)) => format!("index out of bounds: {index}"),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::NoSuchOverload
        | ExecutionError::UnsupportedBinaryOperator(..)
        | ExecutionError::UnsupportedUnaryOperator(..)
        | ExecutionError::ValuesNotComparable(..)
        | ExecutionError::UnexpectedType { .. } => "no such overload".to_owned(),
        ExecutionError::FunctionError { message, .. } => message.clone(),
        other => other.to_string(),
    }
}
