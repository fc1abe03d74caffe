//! Selectors: which objects of a collection are meant.

use serde_json::Value;

use crate::object;

mod fields;
mod labels;

pub(crate) use fields::FieldSelector;
pub(crate) use labels::{LabelSelector, check_label_key, check_label_value};

/// Why a selector can't be read; the message is the server's own.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct SelectorError(pub(crate) String);

/// A label selector and a field selector together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selector {
    /// The terms on labels.
    pub(crate) labels: LabelSelector,
    /// The terms on fields, `metadata.name` and `metadata.namespace` included.
    pub(crate) fields: FieldSelector,
}

impl Selector {
    /// Returns whether everything is selected.
    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Returns whether an object is selected; `field` reads a field's text.
    pub(crate) fn matches(&self, object: &Value, field: impl Fn(&Value, &str) -> String) -> bool {
        self.labels.matches(|key| object::label(object, key))
            && self.fields.terms().iter().all(|term| term.matches(&field(object, &term.path)))
    }
}
