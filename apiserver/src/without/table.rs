//! Without the feature `tables`: nothing is shown as a Table.

use serde_json::{Value, json};

/// What of an object goes into its row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum IncludeObject {
    /// Its metadata.
    #[default]
    Metadata,
    /// All of it.
    Object,
    /// Nothing.
    None,
}

/// Whether a Table says what its columns are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    /// It does.
    Shown,
    /// It does not.
    Hidden,
}

/// The columns of a kind: none.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Columns;

impl Columns {
    /// Returns the columns of a built-in kind.
    pub(crate) fn builtin(_: &str, _: &str, _: &str) -> Self {
        Self
    }

    /// Returns the columns of a custom kind.
    pub(crate) fn custom(_: Option<&Value>) -> Self {
        Self
    }
}

/// What a Table is made from.
#[derive(Debug)]
pub(crate) struct TableInput<'a> {
    pub(crate) columns: &'a Columns,
    pub(crate) metadata: Value,
    pub(crate) objects: &'a [Value],
    pub(crate) include: IncludeObject,
    pub(crate) header: Header,
    pub(crate) version: &'a str,
    pub(crate) now: i64,
}

/// Is never called: no request is negotiated to a Table.
pub(crate) fn table(_: TableInput<'_>) -> Value {
    json!({})
}
