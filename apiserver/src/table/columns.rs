//! The columns of a kind's Table.

use serde_json::{Value, json};

use crate::schema::Schema;

use super::builtin;
use super::cells::{since, text};
use super::path::Path;
use super::printer::Printer;

/// The columns of a kind's Table.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    definitions: Vec<Value>,
    source: ColumnSource,
}

/// The source of the cells.
#[derive(Clone, Debug)]
enum ColumnSource {
    /// From code for a built-in kind.
    BuiltIn(&'static Printer),
    /// From the name and the time of creation.
    Plain,
    /// From the columns of a custom resource; the name comes first.
    Custom(Vec<Column>),
}

/// One column of a custom resource.
#[derive(Clone, Debug)]
struct Column {
    kind: String,
    path: Option<Path>,
}

impl Columns {
    /// Chooses the columns of a built-in kind: its own, or the name and the time of creation.
    pub(crate) fn builtin(group: &str, version: &str, kind: &str) -> Columns {
        match builtin::printer(group, version, kind) {
            Some(printer) => {
                Columns { definitions: printer.definitions(), source: ColumnSource::BuiltIn(printer) }
            }
            None => {
                Columns { definitions: vec![name(), creation("Created At")], source: ColumnSource::Plain }
            }
        }
    }

    /// Reads the `additionalPrinterColumns` of a CRD version; by default only the age.
    pub(crate) fn custom(additional: Option<&Value>) -> Columns {
        let given = additional.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let mut definitions = vec![name()];
        let mut columns = Vec::new();
        for column in given {
            definitions.push(describe(column));
            columns.push(Column {
                kind: field(column, "type").to_owned(),
                path: Path::parse(field(column, "jsonPath")),
            });
        }
        if columns.is_empty() {
            definitions.push(creation("Age"));
            let path = Path::parse(".metadata.creationTimestamp");
            columns.push(Column { kind: "date".to_owned(), path });
        }
        Columns { definitions, source: ColumnSource::Custom(columns) }
    }

    /// Describes the columns, as `columnDefinitions`.
    pub(crate) fn definitions(&self) -> Value {
        Value::Array(self.definitions.clone())
    }

    /// Writes an object's cells; `now` is in seconds since 1970.
    pub(crate) fn cells(&self, object: &Value, now: i64) -> Vec<Value> {
        let name = json!(text(object, "/metadata/name"));
        match &self.source {
            ColumnSource::BuiltIn(printer) => printer.cells(object, now),
            ColumnSource::Plain => vec![name, json!(text(object, "/metadata/creationTimestamp"))],
            ColumnSource::Custom(columns) => {
                let cells = columns.iter().map(|column| column.cell(object, now));
                std::iter::once(name).chain(cells).collect()
            }
        }
    }
}

impl Column {
    fn cell(&self, object: &Value, now: i64) -> Value {
        let found = self.path.as_ref().map(|path| path.find(object)).unwrap_or_default();
        let Some(value) = found.first().filter(|value| !value.is_null()) else {
            return Value::Null;
        };
        match (self.kind.as_str(), *value) {
            ("integer", Value::Number(number)) => match number.as_i64() {
                Some(number) => json!(number),
                None => number.as_f64().map_or(Value::Null, |number| json!(number as i64)),
            },
            ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => (*value).clone(),
            ("date", Value::String(time)) => json!(since(time, now)),
            ("string", Value::String(_)) => (*value).clone(),
            ("string", other) => json!(other.to_string()),
            _ => Value::Null,
        }
    }
}

fn field<'a>(column: &'a Value, name: &str) -> &'a str {
    column.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn describe(column: &Value) -> Value {
    let description = match field(column, "description") {
        "" => {
            let path = field(column, "jsonPath");
            format!("Custom resource definition column (in JSONPath format): {path}")
        }
        given => given.to_owned(),
    };
    json!({
        "name": field(column, "name"),
        "type": field(column, "type"),
        "format": field(column, "format"),
        "description": description,
        "priority": column.get("priority").and_then(Value::as_i64).unwrap_or(0),
    })
}

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Describes the column of the name.
fn name() -> Value {
    json!({
        "name": "Name",
        "type": "string",
        "format": "name",
        "description": Schema::description(META, "name"),
        "priority": 0,
    })
}

/// Describes the column of the time of creation.
fn creation(name: &str) -> Value {
    json!({
        "name": name,
        "type": "date",
        "format": "",
        "description": Schema::description(META, "creationTimestamp"),
        "priority": 0,
    })
}
