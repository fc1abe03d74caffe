//! Returns whether a CRD's schema is structural.

use serde_json::{Map, Value};

use super::error::FieldError;
use super::parse;
use super::pattern;
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
        "x-kubernetes-validations",
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

/// Checks how lists and maps are merged.
fn lists(path: &str, fields: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    let text = |name: &str| fields.get(name).and_then(Value::as_str);
    for (name, kind, known) in [
        ("x-kubernetes-list-type", "array", &["atomic", "set", "map"][..]),
        ("x-kubernetes-map-type", "object", &["atomic", "granular"]),
    ] {
        let (Some(merged), why) = (fields.get(name), format!("must be {kind} if {name} is specified")) else {
            continue;
        };
        match fields.get("type") {
            None => errors.push(FieldError::required(format!("{path}.type"), &why)),
            Some(found) if found != kind => {
                errors.push(FieldError::invalid(format!("{path}.type"), found, &why));
            }
            Some(_) if !known.iter().any(|known| merged == known) => {
                let known: Vec<Value> = known.iter().copied().map(Value::from).collect();
                errors.push(FieldError::not_supported(format!("{path}.{name}"), merged, &known));
            }
            Some(_) => {}
        }
    }
    if fields.get("uniqueItems") == Some(&Value::Bool(true)) {
        let why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(format!("{path}.uniqueItems"), why));
    }
    let list = text("x-kubernetes-list-type");
    let keys = fields.get("x-kubernetes-list-map-keys").and_then(Value::as_array).map(Vec::as_slice);
    let keys = keys.unwrap_or_default();
    if !keys.is_empty() && list != Some("map") {
        let field = format!("{path}.x-kubernetes-list-type");
        let why = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(match list {
            None => FieldError::required(field, why),
            Some(list) => FieldError::invalid(field, &Value::from(list), why),
        });
    }
    let items = fields.get("items").and_then(Value::as_object);
    if let (Some(list @ ("set" | "map")), Some(items)) = (list, items)
        && items.get("nullable") == Some(&Value::Bool(true))
    {
        let why = format!("cannot be nullable when x-kubernetes-list-type is {list}");
        errors.push(FieldError::forbidden(format!("{path}.items.nullable"), &why));
    }
    match (list, items) {
        (Some("set"), Some(items)) => {
            let merged = items.get("x-kubernetes-map-type");
            if items.get("type").and_then(Value::as_str) == Some("object")
                && merged.and_then(Value::as_str) != Some("atomic")
            {
                let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
                let found = merged.unwrap_or(&Value::Null);
                errors.push(FieldError::invalid(format!("{path}.items.x-kubernetes-map-type"), found, why));
            }
        }
        (Some("map"), items) => list_map(path, keys, items, errors),
        _ => {}
    }
}

/// Checks the keys of a list whose items have keys.
fn list_map(path: &str, keys: &[Value], items: Option<&Map<String, Value>>, errors: &mut Vec<FieldError>) {
    let field = format!("{path}.x-kubernetes-list-map-keys");
    if keys.is_empty() {
        let why = "must not be empty if x-kubernetes-list-type is map";
        errors.push(FieldError::required(&field, why));
    }
    let Some(items) = items else {
        let why = "must have a schema if x-kubernetes-list-type is map";
        return errors.push(FieldError::required(format!("{path}.items"), why));
    };
    if let Some(kind) = items.get("type").filter(|kind| *kind != "object") {
        let why = "must be object if parent array's x-kubernetes-list-type is map";
        return errors.push(FieldError::invalid(format!("{path}.items.type"), kind, why));
    }
    let shown = Value::from(keys);
    if (1..keys.len()).any(|at| keys[..at].contains(&keys[at])) {
        errors.push(FieldError::invalid(&field, &shown, "must not contain duplicate entries"));
    }
    let names = || keys.iter().filter_map(Value::as_str);
    let property = |name: &str| items.get("properties")?.get(name)?.as_object();
    if !names().all(|name| property(name).is_some()) {
        errors.push(FieldError::invalid(&field, &shown, "entries must all be names of item properties"));
    }
    let required = |name: &str| {
        let mut required = items.get("required").and_then(Value::as_array).into_iter().flatten();
        required.any(|required| required == name)
    };
    for (name, of) in names().filter_map(|name| Some((name, property(name)?))) {
        let at = format!("{path}.items.properties[{name}]");
        if let Some(kind) = of.get("type").filter(|kind| *kind == "object" || *kind == "array") {
            let why = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            errors.push(FieldError::invalid(format!("{at}.type"), kind, why));
        }
        if of.get("nullable") == Some(&Value::Bool(true)) {
            let why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(FieldError::forbidden(format!("{at}.nullable"), why));
        }
        if !required(name) && !of.contains_key("default") {
            let why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.push(FieldError::required(format!("{at}.default"), why));
        }
    }
}

fn pattern(path: &str, fields: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    let Some(pattern) = fields.get("pattern").and_then(Value::as_str) else { return };
    let Err(error) = pattern::compiled(pattern) else { return };
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
    let mut pruned = filled.clone();
    super::prune::unknown(node, &mut pruned);
    if pruned != filled {
        let field = format!("{path}.default");
        errors.push(FieldError::invalid(field, default, "must not have unknown fields"));
    }
    errors.extend(validate::check_part(node, &format!("{path}.default"), &filled, None));
}
