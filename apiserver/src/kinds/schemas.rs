//! Schemas of CRDs as a typed server stores them: without empty fields, and with warnings about unknown formats.

use serde_json::{Map, Value};

/// Fields of a schema where empty lists, maps and texts, and `false`, count as absent.
const OMITTED: [&str; 26] = [
    "$ref",
    "$schema",
    "allOf",
    "anyOf",
    "definitions",
    "dependencies",
    "description",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "externalDocs",
    "format",
    "id",
    "nullable",
    "oneOf",
    "pattern",
    "patternProperties",
    "properties",
    "required",
    "title",
    "type",
    "uniqueItems",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-validations",
];

const FORMATS: [&str; 26] = [
    "bsonobjectid",
    "byte",
    "cidr",
    "creditcard",
    "date",
    "datetime",
    "duration",
    "email",
    "hexcolor",
    "hostname",
    "ipv4",
    "ipv6",
    "isbn",
    "isbn10",
    "isbn13",
    "k8slongname",
    "k8sshortname",
    "mac",
    "password",
    "rgbcolor",
    "ssn",
    "uri",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
];

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        other => *other == 0,
    }
}

fn omit(map: &mut Map<String, Value>, fields: &[&str]) {
    map.retain(|field, value| !(fields.contains(&field.as_str()) && is_empty(value)));
}

/// Removes empty fields from a CRD's specification.
pub(super) fn tidy(spec: &mut Map<String, Value>) {
    omit(spec, &["preserveUnknownFields"]);
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
        omit(names, &["shortNames", "categories", "singular", "listKind"]);
    }
    for version in super::maps::maps(spec, "versions") {
        omit(version, &["additionalPrinterColumns", "selectableFields", "deprecated"]);
        for column in super::maps::maps(version, "additionalPrinterColumns") {
            omit(column, &["description", "format", "priority"]);
        }
        if let Some(schema) = version.get_mut("schema").and_then(|schema| schema.get_mut("openAPIV3Schema")) {
            each(schema, &mut |schema| {
                omit(schema, &OMITTED);
                for rule in super::maps::maps(schema, "x-kubernetes-validations") {
                    omit(rule, &["message", "messageExpression", "fieldPath"]);
                }
            });
        }
    }
}

/// Visits a schema and all within it.
fn each(schema: &mut Value, visit: &mut dyn FnMut(&mut Map<String, Value>)) {
    let Some(fields) = schema.as_object_mut() else { return };
    for (field, value) in fields.iter_mut() {
        match field.as_str() {
            "properties" | "patternProperties" | "definitions" => {
                value.as_object_mut().into_iter().flatten().for_each(|(_, schema)| each(schema, visit));
            }
            "allOf" | "anyOf" | "oneOf" => {
                value.as_array_mut().into_iter().flatten().for_each(|schema| each(schema, visit));
            }
            "items" | "additionalProperties" | "not" => each(value, visit),
            _ => {}
        }
    }
    visit(fields);
}

/// Warns of formats that the server ignores.
pub(crate) fn format_warnings(crd: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    for version in crd["spec"]["versions"].as_array().into_iter().flatten() {
        let mut schema = version["schema"]["openAPIV3Schema"].clone();
        each(&mut schema, &mut |schema| {
            let word = |field: &str| schema.get(field).and_then(Value::as_str).unwrap_or_default();
            let format = word("format");
            let is_known = match word("type") {
                _ if format.is_empty() => true,
                "" | "string" => FORMATS.contains(&format.replace('-', "").as_str()),
                "integer" => matches!(format, "int32" | "int64"),
                "number" => matches!(format, "float" | "double"),
                _ => false,
            };
            let warning = format!("unrecognized format {format:?}");
            if !is_known && !warnings.contains(&warning) {
                warnings.push(warning);
            }
        });
    }
    warnings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // A53
    #[test]
    fn what_is_empty_is_left_out_of_a_definition() {
        let mut spec = json!({
            "preserveUnknownFields": false,
            "names": {"kind": "A", "shortNames": [], "categories": []},
            "versions": [{
                "name": "v1", "selectableFields": [], "deprecated": false,
                "additionalPrinterColumns": [{"name": "A", "priority": 0, "description": "", "format": ""}],
                "schema": {"openAPIV3Schema": {"type": "object", "required": [], "properties": {
                    "a": {"type": "string", "enum": [], "description": "", "default": "", "nullable": false},
                    "b": {"type": "array", "minItems": 0, "items": {"type": "object", "properties": {}}},
                    "default": {"type": "object", "x-kubernetes-preserve-unknown-fields": false},
                }}},
            }],
        });
        tidy(spec.as_object_mut().unwrap());
        assert_eq!(
            spec,
            json!({"names": {"kind": "A"}, "versions": [{
                "name": "v1", "additionalPrinterColumns": [{"name": "A"}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "a": {"type": "string", "default": ""},
                    "b": {"type": "array", "minItems": 0, "items": {"type": "object"}},
                    "default": {"type": "object", "x-kubernetes-preserve-unknown-fields": false},
                }}},
            }]})
        );
    }

    // A53
    #[test]
    fn formats_that_nobody_checks_are_warned_of_once() {
        let property = |kind: &str, format: &str| json!({"type": kind, "format": format});
        let crd = json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "a": property("integer", "uint16"), "b": property("integer", "int32"), "c": property("string", "date-time"),
            "d": {"type": "array", "items": property("string", "foo")}, "e": property("string", "foo"),
            "f": property("number", "double"), "g": property("string", "k8s-short-name"),
        }}}}]}});
        let warned = format_warnings(&crd);
        assert_eq!(warned, ["unrecognized format \"uint16\"", "unrecognized format \"foo\""]);
    }
}
