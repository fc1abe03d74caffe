//! Without the feature `tables`: kinds have no columns.

use serde_json::Value;

/// The columns of a kind: none.
#[derive(Clone, Debug)]
pub(crate) struct NoColumns;

pub(crate) use NoColumns as Columns;

impl NoColumns {
    /// Returns the columns of a built-in kind.
    pub(crate) fn builtin(_: &str, _: &str, _: &str) -> Self {
        Self
    }

    /// Returns the columns of a custom kind.
    pub(crate) fn custom(_: Option<&Value>) -> Self {
        Self
    }

    /// Describes no columns.
    pub(crate) fn definitions(&self) -> Value {
        Value::Null
    }

    /// Returns no cells: no request is negotiated to a Table.
    pub(crate) fn cells(&self, _: &Value, _: i64) -> Vec<Value> {
        Vec::new()
    }
}
