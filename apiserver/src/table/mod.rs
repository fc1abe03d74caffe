//! The Table form of lists, which `kubectl get` requests.

#[cfg(feature = "tables")]
mod builtin;
#[cfg(feature = "tables")]
mod cells;
#[cfg_attr(not(feature = "tables"), path = "../without/columns.rs")]
mod columns;
#[cfg(feature = "tables")]
mod path;
#[cfg(feature = "tables")]
mod printer;

use serde_json::{Map, Value, json};

pub(crate) use self::columns::Columns;

/// The part of an object in its row.
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

/// Whether a Table describes its columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    /// It does: lists, and the first event of a watch.
    Shown,
    /// It does not: later events.
    Hidden,
}

/// The source of a Table.
#[derive(Debug)]
pub(crate) struct TableInput<'a> {
    /// The kind's columns.
    pub(crate) columns: &'a Columns,
    /// The metadata of the Table: of the list, or the version of the single object.
    pub(crate) metadata: Value,
    /// The objects, one a row.
    pub(crate) objects: &'a [Value],
    /// What the rows hold in addition to the cells.
    pub(crate) include: IncludeObject,
    /// Whether columns are described.
    pub(crate) header: Header,
    /// The requested version of `meta.k8s.io`, such as `v1`.
    pub(crate) version: &'a str,
    /// The time against which ages are computed, in seconds since 1970.
    pub(crate) now: i64,
}

/// Makes a Table.
pub(crate) fn table(input: TableInput<'_>) -> Value {
    let api_version = format!("meta.k8s.io/{}", input.version);
    let row = |object: &Value| {
        let cells = input.columns.cells(object, input.now);
        json!({"cells": cells, "object": included(object, input.include, &api_version)})
    };
    let rows: Vec<Value> = input.objects.iter().map(row).collect();
    let definitions = match input.header {
        Header::Shown => input.columns.definitions(),
        Header::Hidden => Value::Null,
    };
    json!({
        "kind": "Table",
        "apiVersion": api_version,
        "metadata": input.metadata,
        "columnDefinitions": definitions,
        "rows": rows,
    })
}

/// Reduces an object to its metadata.
fn partial(object: &Value, api_version: &str) -> Value {
    let metadata = object.get("metadata").cloned().unwrap_or_else(|| Value::Object(Map::new()));
    json!({"kind": "PartialObjectMetadata", "apiVersion": api_version, "metadata": metadata})
}

fn included(object: &Value, include: IncludeObject, api_version: &str) -> Value {
    match include {
        IncludeObject::Metadata => partial(object, api_version),
        IncludeObject::Object => object.clone(),
        IncludeObject::None => Value::Null,
    }
}

#[cfg(test)]
mod tests;
