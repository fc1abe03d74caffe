//! Printers: which columns a kind has, and what fills them.

use serde_json::{Value, json};

use crate::schema::Schema;

macro_rules! definition {
    ($name:literal) => {
        concat!("io.k8s.api.", $name)
    };
}

pub(super) use definition;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
pub(super) const NAME: PrinterColumn = col("Name", META, "name");
pub(super) const AGE: PrinterColumn = col("Age", META, "creationTimestamp");

/// Prints the objects of one kind.
#[derive(Debug)]
pub(super) struct Printer {
    pub(super) columns: &'static [PrinterColumn],
    pub(super) cells: fn(&Value, i64) -> Vec<Value>,
}

/// Describes one column.
#[derive(Debug)]
pub(super) struct PrinterColumn {
    name: &'static str,
    kind: &'static str,
    /// Columns of priority 1 are shown in wide output only.
    priority: i64,
    description: Described,
}

/// The source of a column's description.
#[derive(Debug)]
enum Described {
    /// In the definition of a field.
    Field(&'static str, &'static str),
    /// None.
    Text(&'static str),
}

impl Printer {
    /// Describes the columns.
    pub(super) fn definitions(&self) -> Vec<Value> {
        self.columns.iter().map(PrinterColumn::definition).collect()
    }

    /// Writes an object's cells.
    pub(super) fn cells(&self, object: &Value, now: i64) -> Vec<Value> {
        (self.cells)(object, now)
    }
}

impl PrinterColumn {
    fn definition(&self) -> Value {
        let description = match self.description {
            Described::Field(definition, field) => Schema::description(definition, field),
            Described::Text(text) => text,
        };
        json!({
            "name": self.name,
            "type": self.kind,
            "format": if self.name == "Name" { "name" } else { "" },
            "description": description,
            "priority": self.priority,
        })
    }
}

pub(super) const fn col(name: &'static str, definition: &'static str, field: &'static str) -> PrinterColumn {
    PrinterColumn { name, kind: "string", priority: 0, description: Described::Field(definition, field) }
}

pub(super) const fn told(name: &'static str, text: &'static str) -> PrinterColumn {
    PrinterColumn { name, kind: "string", priority: 0, description: Described::Text(text) }
}

impl PrinterColumn {
    pub(super) const fn wide(self) -> PrinterColumn {
        PrinterColumn { priority: 1, ..self }
    }

    pub(super) const fn of(self, kind: &'static str) -> PrinterColumn {
        PrinterColumn { kind, ..self }
    }
}
