//! Returns whether a CRD's schema is structural.

use regex::Regex;
use serde_json::{Map, Value};

use super::error::FieldError;
use super::parse;
use super::validate;

/// Names the root of a definition's schema.
pub(super) const ROOT: &str = "spec.validation.openAPIV3Schema";

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// Lists what keeps a schema from being structural.
pub(super) fn check(schema: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let empty = Map::new();
    let fields = schema.as_object().unwrap_or(&empty);
    match fields.get("type").and_then(Value::as_str) {
        Some("object") => {}
        Some(other) => {
            let field = format!("{ROOT}.type");
            errors.push(FieldError::invalid(field, &Value::from(other), "must be object at the root"));
        }
        None if fields.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true)) => {}
        None => errors.push(FieldError::required(format!("{ROOT}.type"), "must not be empty at the root")),
    }
    if fields.contains_key("additionalProperties") {
        let field = format!("{ROOT}.additionalProperties");
        errors.push(FieldError::forbidden(field, "must not be used at the root"));
    }
    metadata(fields, &mut errors);
    node(ROOT, fields, Level::Root, &mut errors);
    errors
}

/// The requirements on a node at its position.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Field,
    Item,
    /// Within `anyOf` and similar keywords, where a schema may only restrict.
    Restriction,
}

fn metadata(fields: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    let specified = fields
        .get("properties")
        .and_then(|properties| properties.get("metadata"))
        .and_then(|metadata| metadata.get("properties"))
        .and_then(Value::as_object);
    let allowed = |name: &String| name == "name" || name == "generateName";
    if specified.is_some_and(|specified| !specified.keys().all(allowed)) {
        errors.push(FieldError::forbidden(
            format!("{ROOT}.properties[metadata]"),
            "must not specify anything other than name and generateName, but metadata is implicitly specified",
        ));
    }
}

fn node(path: &str, fields: &Map<String, Value>, level: Level, errors: &mut Vec<FieldError>) {
    if level == Level::Restriction {
        restriction(path, fields, errors);
    } else {
        types(path, fields, level, errors);
        lists(path, fields, errors);
        default(path, fields, errors);
    }
    pattern(path, fields, errors);
    if fields.contains_key("properties") && fields.contains_key("additionalProperties") {
        errors.push(FieldError::forbidden(
            format!("{path}.additionalProperties"),
            "additionalProperties and properties are mutual exclusive",
        ));
    }
    children(path, fields, level, errors);
}

fn children(path: &str, fields: &Map<String, Value>, level: Level, errors: &mut Vec<FieldError>) {
    let below = |wanted| if level == Level::Restriction { Level::Restriction } else { wanted };
    if let Some(Value::Object(properties)) = fields.get("properties") {
        for (name, schema) in properties {
            if let Value::Object(schema) = schema {
                node(&format!("{path}.properties[{name}]"), schema, below(Level::Field), errors);
            }
        }
    }
    for (name, wanted) in [("additionalProperties", Level::Field), ("items", Level::Item)] {
        if let Some(Value::Object(schema)) = fields.get(name) {
            node(&format!("{path}.{name}"), schema, below(wanted), errors);
        }
    }
    for name in ["allOf", "anyOf", "oneOf"] {
        let schemas = fields.get(name).and_then(Value::as_array).into_iter().flatten();
        for (index, schema) in schemas.enumerate() {
            if let Value::Object(schema) = schema
                && !fields.contains_key("x-kubernetes-int-or-string")
            {
                node(&format!("{path}.{name}[{index}]"), schema, Level::Restriction, errors);
            }
        }
    }
    if let Some(Value::Object(schema)) = fields.get("not") {
        node(&format!("{path}.not"), schema, Level::Restriction, errors);
    }
}

fn restriction(path: &str, fields: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    let forbidden = [
        "type",
        "default",
        "additionalProperties",
        "nullable",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-int-or-string",
    ];
    for name in forbidden {
        if fields.contains_key(name) {
            errors.push(FieldError::forbidden(format!("{path}.{name}"), "must be empty to be structural"));
        }
    }
}

fn types(path: &str, fields: &Map<String, Value>, level: Level, errors: &mut Vec<FieldError>) {
    let flag = |name| fields.get(name).and_then(Value::as_bool).unwrap_or(false);
    let field = format!("{path}.type");
    match fields.get("type") {
        Some(kind) if kind.as_str().is_some_and(|kind| TYPES.contains(&kind)) => {}
        Some(kind) => {
            let types: Vec<Value> = TYPES.iter().copied().map(Value::from).collect();
            errors.push(FieldError::not_supported(field, kind, &types));
        }
        None if flag("x-kubernetes-preserve-unknown-fields") || flag("x-kubernetes-int-or-string") => {}
        None if level == Level::Root => {}
        None if level == Level::Item => {
            errors.push(FieldError::required(field, "must not be empty for specified array items"));
        }
        None => errors.push(FieldError::required(field, "must not be empty for specified object fields")),
    }
    if fields.get("type").and_then(Value::as_str) == Some("array") && !fields.contains_key("items") {
        errors.push(FieldError::required(format!("{path}.items"), "must be specified"));
    }
}

fn lists(path: &str, fields: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    let keys = fields.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
    let is_map = fields.get("x-kubernetes-list-type").and_then(Value::as_str) == Some("map");
    if is_map && keys.is_none_or(Vec::is_empty) {
        errors.push(FieldError::required(
            format!("{path}.x-kubernetes-list-map-keys"),
            "must not be empty if x-kubernetes-list-type is map",
        ));
    }
}

fn pattern(path: &str, fields: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    let Some(pattern) = fields.get("pattern").and_then(Value::as_str) else { return };
    let Err(error) = Regex::new(pattern) else { return };
    let reason = if pattern.matches('(').count() > pattern.matches(')').count() {
        format!("missing closing ): `{pattern}`")
    } else {
        error.to_string()
    };
    let detail = format!("must be a valid regular expression, but isn't: error parsing regexp: {reason}");
    errors.push(FieldError::invalid(format!("{path}.pattern"), &Value::from(pattern), &detail));
}

fn default(path: &str, fields: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    let Some(default) = fields.get("default") else { return };
    let (arena, root) = parse::fragment(fields);
    let node = arena.at(root);
    let mut filled = default.clone();
    super::defaults::apply(node, &mut filled);
    errors.extend(validate::check_part(node, &format!("{path}.default"), &filled, None));
}
