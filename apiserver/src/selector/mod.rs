//! Selectors: which objects of a collection are meant.

use serde_json::Value;

use crate::object;

mod fields;
mod labels;

pub(crate) use fields::FieldSelector;
pub(crate) use labels::{LabelSelector, SUBDOMAIN, TextFilter, check_label_key, check_label_value};

/// Returns whether labels match a `LabelSelector` as stored in objects; an empty one matches all.
pub(crate) fn matches_labels(selector: &Value, object: &Value) -> bool {
    let wanted = selector["matchLabels"].as_object();
    let fits = wanted
        .is_none_or(|wanted| wanted.iter().all(|(key, value)| object::label(object, key) == value.as_str()));
    let terms = selector["matchExpressions"].as_array().map(Vec::as_slice).unwrap_or_default();
    fits && terms.iter().all(|term| fits_term(term, object))
}

fn fits_term(term: &Value, object: &Value) -> bool {
    let label = object::label(object, term["key"].as_str().unwrap_or_default());
    let listed = |label: &str| {
        term["values"].as_array().is_some_and(|values| values.iter().any(|value| value == label))
    };
    match term["operator"].as_str().unwrap_or_default() {
        "In" => label.is_some_and(listed),
        "NotIn" => !label.is_some_and(listed),
        "Exists" => label.is_some(),
        "DoesNotExist" => label.is_none(),
        _ => false,
    }
}

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
