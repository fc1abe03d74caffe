//! Labels and the selectors of them.

use serde_json::Value;

use super::place::{Findings, Place};
use crate::selector::{check_label_key, check_label_value};

/// Checks the key of a label.
pub(super) fn key(place: &Place<'_, '_>, key: &str, faults: &mut Findings) {
    if let Err(why) = check_label_key(key) {
        place.invalid_as(faults, &format!("{key:?}"), &why);
        if why == "name part must be non-empty" {
            // An empty text also lacks all required characters.
            let form = check_label_key("-").err().unwrap_or_default();
            place.invalid_as(faults, &format!("{key:?}"), &form);
        }
    }
}

/// Checks labels, all of them under one path as the server does.
pub(super) fn labels(place: &Place<'_, '_>, faults: &mut Findings) {
    for (name, value) in place.entries() {
        key(place, name, faults);
        let value = value.text();
        if let Err(why) = check_label_value(value) {
            place.invalid_as(faults, &format!("{value:?}"), &why);
        }
    }
}

/// Checks a selector with its labels and requirements.
pub(super) fn selector(place: &Place<'_, '_>, faults: &mut Findings) {
    labels(&place.at("matchLabels"), faults);
    for requirement in place.at("matchExpressions").items() {
        let (operator, values) = (requirement.at("operator"), requirement.at("values"));
        match operator.text() {
            "In" | "NotIn" if values.len() == 0 => {
                values.required(faults, "must be specified when `operator` is 'In' or 'NotIn'");
            }
            "Exists" | "DoesNotExist" if values.len() > 0 => {
                values
                    .forbidden(faults, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => {
                operator.invalid_as(faults, &format!("{other:?}"), "not a valid selector operator");
            }
        }
        let name = requirement.at("key");
        key(&name, name.text(), faults);
        for value in values.items() {
            if let Err(why) = check_label_value(value.text()) {
                value.invalid(faults, &why);
            }
        }
    }
}

/// Returns whether a selector selects everything because it is empty.
pub(super) fn is_empty(selector: &Value) -> bool {
    let is_empty = |field: &str| match &selector[field] {
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => true,
    };
    is_empty("matchLabels") && is_empty("matchExpressions")
}

/// Returns whether a selector can be understood.
pub(super) fn is_valid(selector: &Value) -> bool {
    let asked = selector["matchExpressions"].as_array().into_iter().flatten();
    asked.into_iter().all(|requirement| {
        let values = requirement["values"].as_array().map_or(0, Vec::len);
        match requirement["operator"].as_str().unwrap_or_default() {
            "In" | "NotIn" => values > 0,
            "Exists" | "DoesNotExist" => values == 0,
            _ => false,
        }
    })
}

/// Returns whether a selector selects labels; an absent one selects nothing, and an invalid one everything.
pub(crate) fn matches(selector: &Value, labels: &Value) -> bool {
    if selector.is_null() {
        return false;
    }
    let of = |key: &str| labels[key].as_str();
    let wanted = selector["matchLabels"].as_object().into_iter().flatten();
    let asked = selector["matchExpressions"].as_array().into_iter().flatten();
    wanted.into_iter().all(|(key, value)| of(key) == value.as_str())
        && asked.into_iter().all(|requirement| {
            let value = of(requirement["key"].as_str().unwrap_or_default());
            let listed = requirement["values"].as_array();
            let among = listed.is_some_and(|list| list.iter().any(|one| one.as_str() == value));
            match requirement["operator"].as_str().unwrap_or_default() {
                "In" => value.is_some() && among,
                "NotIn" => value.is_none() || !among,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                // The check of the selector reports it.
                _ => true,
            }
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // A45
    #[test]
    fn every_operator_selects() {
        let labels = json!({"a": "1", "b": "2"});
        let asks = |operator: &str, key: &str, values: &[&str]| {
            let selector =
                json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
            matches(&selector, &labels)
        };
        assert!(asks("In", "a", &["1", "2"]) && !asks("In", "a", &["2"]) && !asks("In", "c", &["1"]));
        assert!(asks("NotIn", "a", &["2"]) && !asks("NotIn", "a", &["1"]) && asks("NotIn", "c", &["1"]));
        assert!(asks("Exists", "a", &[]) && !asks("Exists", "c", &[]));
        assert!(asks("DoesNotExist", "c", &[]) && !asks("DoesNotExist", "a", &[]));
        assert!(matches(&json!({"matchLabels": {"a": "1"}}), &labels));
        assert!(!matches(&json!({"matchLabels": {"a": "2"}}), &labels));
        assert!(matches(&json!({}), &labels) && !matches(&Value::Null, &labels));
    }
}
