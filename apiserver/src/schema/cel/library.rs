//! The language of rules: its functions, and how an expression gets a value.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kube_cel::KubeCelExt as _;
use kube_cel::cel::{Context, ExecutionError, IdedExpr, Value as Cel};

/// Evaluates an expression.
///
/// # Errors
/// Why it has no value, in the words of the server.
pub(super) fn evaluate(
    expression: &IdedExpr,
    scope: impl IntoIterator<Item = (&'static str, Cel)>,
) -> Result<Cel, String> {
    thread_local! {
        static LIBRARY: Context<'static> = library();
    }
    // The library is somebody else's: what makes it panic has no value.
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

/// Gives the functions of rules; what the interpreter lacks of the language is added.
fn library() -> Context<'static> {
    let mut library = Context::default().with_all();
    library.add_function("type", |value: Cel| -> Result<Cel, ExecutionError> {
        Ok(Cel::String(Arc::new(named_type(&value).to_owned())))
    });
    library.add_function("dyn", |value: Cel| -> Result<Cel, ExecutionError> { Ok(value) });
    for name in ["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "uint"] {
        library.add_variable_from_value(name, Cel::String(Arc::new(format!("type({name})"))));
    }
    library
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
