//! OpenAPI v2 in its binary form, by the fields of the published messages `openapi.v2`.

use serde_json::{Map, Value};

use crate::proto::{put_bytes, put_double, put_number};

/// How a value is written.
#[derive(Debug)]
enum WireKind {
    Text,
    Flag,
    Integer,
    Number,
    /// Any value, as text.
    Any,
    /// A message with a field for each known key.
    Fields(&'static [Field]),
    /// A message whose field of this number has one entry for each key.
    Entries(u32, &'static WireKind),
    /// A message of one field, which is chosen by what the value is.
    Either(fn(&Value) -> (u32, &'static WireKind)),
    /// A message whose first field has the value, or each of its items.
    Items(&'static WireKind),
}

/// A field: its number, its key, and how it is written; each item of a list.
type Field = (u32, &'static str, &'static WireKind);

/// The key that represents all keys that begin with `x-`.
const EXTENSIONS: &str = "x-";

static DOCUMENT: WireKind = WireKind::Fields(&[
    (1, "swagger", &WireKind::Text),
    (2, "info", &INFO),
    (3, "host", &WireKind::Text),
    (4, "basePath", &WireKind::Text),
    (5, "schemes", &WireKind::Text),
    (6, "consumes", &WireKind::Text),
    (7, "produces", &WireKind::Text),
    (8, "paths", &WireKind::Entries(2, &PATH_ITEM)),
    (9, "definitions", &NAMED_SCHEMAS),
    (10, "parameters", &WireKind::Entries(1, &PARAMETER)),
    (11, "responses", &WireKind::Entries(1, &RESPONSE)),
    (12, "security", &SECURITY),
    (13, "securityDefinitions", &WireKind::Entries(1, &SECURITY_DEFINITION)),
    (15, "externalDocs", &DOCS),
    (16, EXTENSIONS, &WireKind::Any),
]);

static INFO: WireKind = WireKind::Fields(&[
    (1, "title", &WireKind::Text),
    (2, "version", &WireKind::Text),
    (3, "description", &WireKind::Text),
    (4, "termsOfService", &WireKind::Text),
    (7, EXTENSIONS, &WireKind::Any),
]);

static DOCS: WireKind = WireKind::Fields(&[
    (1, "description", &WireKind::Text),
    (2, "url", &WireKind::Text),
    (3, EXTENSIONS, &WireKind::Any),
]);

static SECURITY: WireKind = WireKind::Entries(1, &WireKind::Items(&WireKind::Text));

static SECURITY_DEFINITION: WireKind = WireKind::Either(|value| match value["type"].as_str() {
    Some("apiKey") => (2, &API_KEY),
    _ => (1, &BASIC),
});

static BASIC: WireKind = WireKind::Fields(&[
    (1, "type", &WireKind::Text),
    (2, "description", &WireKind::Text),
    (3, EXTENSIONS, &WireKind::Any),
]);

static API_KEY: WireKind = WireKind::Fields(&[
    (1, "type", &WireKind::Text),
    (2, "name", &WireKind::Text),
    (3, "in", &WireKind::Text),
    (4, "description", &WireKind::Text),
    (5, EXTENSIONS, &WireKind::Any),
]);

static PATH_ITEM: WireKind = WireKind::Fields(&[
    (1, "$ref", &WireKind::Text),
    (2, "get", &OPERATION),
    (3, "put", &OPERATION),
    (4, "post", &OPERATION),
    (5, "delete", &OPERATION),
    (6, "options", &OPERATION),
    (7, "head", &OPERATION),
    (8, "patch", &OPERATION),
    (9, "parameters", &PARAMETERS_ITEM),
    (10, EXTENSIONS, &WireKind::Any),
]);

static OPERATION: WireKind = WireKind::Fields(&[
    (1, "tags", &WireKind::Text),
    (2, "summary", &WireKind::Text),
    (3, "description", &WireKind::Text),
    (4, "externalDocs", &DOCS),
    (5, "operationId", &WireKind::Text),
    (6, "produces", &WireKind::Text),
    (7, "consumes", &WireKind::Text),
    (8, "parameters", &PARAMETERS_ITEM),
    (9, "responses", &WireKind::Entries(1, &RESPONSE_VALUE)),
    (10, "schemes", &WireKind::Text),
    (11, "deprecated", &WireKind::Flag),
    (12, "security", &SECURITY),
    (13, EXTENSIONS, &WireKind::Any),
]);

static PARAMETERS_ITEM: WireKind = WireKind::Either(|value| match value.get("$ref") {
    Some(_) => (2, &REFERENCE),
    None => (1, &PARAMETER),
});

static REFERENCE: WireKind =
    WireKind::Fields(&[(1, "$ref", &WireKind::Text), (2, "description", &WireKind::Text)]);

static PARAMETER: WireKind = WireKind::Either(|value| match value["in"].as_str() {
    Some("body") => (1, &BODY),
    _ => (2, &NON_BODY),
});

static BODY: WireKind = WireKind::Fields(&[
    (1, "description", &WireKind::Text),
    (2, "name", &WireKind::Text),
    (3, "in", &WireKind::Text),
    (4, "required", &WireKind::Flag),
    (5, "schema", &SCHEMA),
    (6, EXTENSIONS, &WireKind::Any),
]);

static NON_BODY: WireKind = WireKind::Either(|value| match value["in"].as_str() {
    Some("header") => (1, &FIXED),
    Some("formData") => (2, &OPEN),
    Some("path") => (4, &FIXED),
    _ => (3, &OPEN),
});

/// A parameter in a header or in the path.
static FIXED: WireKind = WireKind::Fields(&[
    (1, "required", &WireKind::Flag),
    (2, "in", &WireKind::Text),
    (3, "description", &WireKind::Text),
    (4, "name", &WireKind::Text),
    (5, "type", &WireKind::Text),
    (6, "format", &WireKind::Text),
    (9, "default", &WireKind::Any),
    (16, "pattern", &WireKind::Text),
    (19, "uniqueItems", &WireKind::Flag),
    (20, "enum", &WireKind::Any),
    (22, EXTENSIONS, &WireKind::Any),
]);

/// A parameter in the query or in a form.
static OPEN: WireKind = WireKind::Fields(&[
    (1, "required", &WireKind::Flag),
    (2, "in", &WireKind::Text),
    (3, "description", &WireKind::Text),
    (4, "name", &WireKind::Text),
    (5, "allowEmptyValue", &WireKind::Flag),
    (6, "type", &WireKind::Text),
    (7, "format", &WireKind::Text),
    (10, "default", &WireKind::Any),
    (17, "pattern", &WireKind::Text),
    (20, "uniqueItems", &WireKind::Flag),
    (21, "enum", &WireKind::Any),
    (23, EXTENSIONS, &WireKind::Any),
]);

static RESPONSE_VALUE: WireKind = WireKind::Either(|value| match value.get("$ref") {
    Some(_) => (2, &REFERENCE),
    None => (1, &RESPONSE),
});

static RESPONSE: WireKind = WireKind::Fields(&[
    (1, "description", &WireKind::Text),
    (2, "schema", &WireKind::Either(|_| (1, &SCHEMA))),
    (5, EXTENSIONS, &WireKind::Any),
]);

static NAMED_SCHEMAS: WireKind = WireKind::Entries(1, &SCHEMA);

static SCHEMA: WireKind = WireKind::Fields(&[
    (1, "$ref", &WireKind::Text),
    (2, "format", &WireKind::Text),
    (3, "title", &WireKind::Text),
    (4, "description", &WireKind::Text),
    (5, "default", &WireKind::Any),
    (6, "multipleOf", &WireKind::Number),
    (7, "maximum", &WireKind::Number),
    (8, "exclusiveMaximum", &WireKind::Flag),
    (9, "minimum", &WireKind::Number),
    (10, "exclusiveMinimum", &WireKind::Flag),
    (11, "maxLength", &WireKind::Integer),
    (12, "minLength", &WireKind::Integer),
    (13, "pattern", &WireKind::Text),
    (14, "maxItems", &WireKind::Integer),
    (15, "minItems", &WireKind::Integer),
    (16, "uniqueItems", &WireKind::Flag),
    (17, "maxProperties", &WireKind::Integer),
    (18, "minProperties", &WireKind::Integer),
    (19, "required", &WireKind::Text),
    (20, "enum", &WireKind::Any),
    (21, "additionalProperties", &WireKind::Either(additional)),
    (22, "type", &WireKind::Items(&WireKind::Text)),
    (23, "items", &WireKind::Items(&SCHEMA)),
    (24, "allOf", &SCHEMA),
    (25, "properties", &NAMED_SCHEMAS),
    (26, "discriminator", &WireKind::Text),
    (27, "readOnly", &WireKind::Flag),
    (29, "externalDocs", &DOCS),
    (30, "example", &WireKind::Any),
    (31, EXTENSIONS, &WireKind::Any),
]);

fn additional(value: &Value) -> (u32, &'static WireKind) {
    if value.is_boolean() { (2, &WireKind::Flag) } else { (1, &SCHEMA) }
}

/// Writes a document of version 2.
pub(super) fn encode(document: &Value) -> Vec<u8> {
    message(&DOCUMENT, document)
}

/// Writes the body of a message.
fn message(kind: &WireKind, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    match kind {
        WireKind::Fields(all) => fields(all, value.as_object().unwrap_or(&Map::new()), &mut out),
        WireKind::Entries(number, of) => {
            for (key, value) in value.as_object().into_iter().flatten() {
                named(*number, key, of, value, &mut out);
            }
        }
        WireKind::Either(choose) => {
            let (number, of) = choose(value);
            put(number, of, value, &mut out);
        }
        WireKind::Items(of) => match value {
            Value::Array(items) => items.iter().for_each(|item| put(1, of, item, &mut out)),
            one => put(1, of, one, &mut out),
        },
        // Flow style is YAML, too.
        WireKind::Any => put_bytes(&mut out, 2, format!("{value}\n").as_bytes()),
        WireKind::Text | WireKind::Flag | WireKind::Integer | WireKind::Number => {}
    }
    out
}

fn fields(all: &[Field], map: &Map<String, Value>, out: &mut Vec<u8>) {
    for (number, key, kind) in all {
        if *key == EXTENSIONS {
            for (key, value) in map.iter().filter(|(key, _)| key.starts_with(EXTENSIONS)) {
                named(*number, key, kind, value, out);
            }
        }
        match (map.get(*key), kind) {
            (None, _) => {}
            // A default or an example is one value of any type; items are written in place.
            (Some(Value::Array(items)), kind)
                if *key == "enum" || !matches!(kind, WireKind::Any | WireKind::Items(_)) =>
            {
                items.iter().for_each(|item| put(*number, kind, item, out));
            }
            (Some(value), _) => put(*number, kind, value, out),
        }
    }
}

/// Writes an entry: a name and a value.
fn named(number: u32, name: &str, kind: &WireKind, value: &Value, out: &mut Vec<u8>) {
    let mut entry = Vec::new();
    put_bytes(&mut entry, 1, name.as_bytes());
    put(2, kind, value, &mut entry);
    put_bytes(out, number, &entry);
}

/// Writes one value; zeros may be left out.
fn put(number: u32, kind: &WireKind, value: &Value, out: &mut Vec<u8>) {
    match kind {
        WireKind::Text => put_bytes(out, number, value.as_str().unwrap_or_default().as_bytes()),
        WireKind::Flag => put_number(out, number, u64::from(value.as_bool().unwrap_or_default())),
        WireKind::Integer => {
            let whole = value.as_i64().or_else(|| value.as_f64().map(|number| number as i64));
            put_number(out, number, whole.unwrap_or_default() as u64);
        }
        WireKind::Number => put_double(out, number, value.as_f64().unwrap_or_default()),
        _ => put_bytes(out, number, &message(kind, value)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Reads a message of messages: the bytes at a path of field numbers, each the first of its number.
    fn at<'a>(mut bytes: &'a [u8], path: &[u64]) -> Option<&'a [u8]> {
        for wanted in path {
            bytes = fields_of(bytes).into_iter().find(|(number, _)| number == wanted)?.1;
        }
        Some(bytes)
    }

    /// Splits a message; a number is given as the bytes that it is written in.
    fn fields_of(mut bytes: &[u8]) -> Vec<(u64, &[u8])> {
        fn varint(bytes: &mut &[u8]) -> u64 {
            let end = bytes.iter().position(|byte| byte & 0x80 == 0).expect("an end");
            let (own, rest) = bytes.split_at(end + 1);
            *bytes = rest;
            own.iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f))
        }
        let mut all = Vec::new();
        while !bytes.is_empty() {
            let tag = varint(&mut bytes);
            let start = bytes;
            let length = match tag & 7 {
                0 => {
                    varint(&mut bytes);
                    bytes = start;
                    start.iter().position(|byte| byte & 0x80 == 0).expect("an end") + 1
                }
                1 => 8,
                2 => usize::try_from(varint(&mut bytes)).expect("a length"),
                other => panic!("no wire type of these messages: {other}"),
            };
            let (own, rest) = bytes.split_at(length);
            all.push((tag >> 3, own));
            bytes = rest;
        }
        all
    }

    // A18
    #[test]
    fn every_form_of_value_is_written_by_its_number() {
        let schema = json!({
            "description": "it", "type": "object", "required": ["a", "b"], "default": {}, "enum": ["x", 1],
            "maxLength": 300, "minimum": 1.5, "uniqueItems": true, "additionalProperties": {"$ref": "#/definitions/B"},
            "items": {"type": "string"}, "properties": {"a": {"format": "int32"}},
            "x-kubernetes-group-version-kind": [{"kind": "A"}],
        });
        let document = json!({
            "swagger": "2.0", "info": {"title": "K", "version": "v1"},
            "definitions": {"A": schema, "B": {"additionalProperties": true}},
            "security": [{"BearerToken": []}],
            "securityDefinitions": {"BearerToken": {"type": "apiKey", "in": "header"}},
            "paths": {"/a": {
                "parameters": [{"name": "p", "in": "path"}],
                "post": {
                    "operationId": "make", "consumes": ["x/y", "z"],
                    "parameters": [{"name": "q", "in": "query", "uniqueItems": true}, {"name": "body", "in": "body",
                        "schema": {"$ref": "#/definitions/A"}}],
                    "responses": {"201": {"description": "Created", "schema": {"$ref": "#/definitions/A"}}},
                },
            }},
        });
        let bytes = encode(&document);
        let text = |path: &[u64]| at(&bytes, path).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let is = |path: &[u64], expected: &str| assert_eq!(text(path).as_deref(), Some(expected), "{path:?}");
        is(&[1], "2.0");
        is(&[2, 1], "K");
        // definitions: A
        is(&[9, 1, 1], "A");
        let a = [9, 1, 2];
        let of_a = |rest: &[u64], expected: &str| is(&[&a, rest].concat(), expected);
        of_a(&[4], "it");
        of_a(&[22, 1], "object");
        of_a(&[19], "a");
        of_a(&[5, 2], "{}\n");
        of_a(&[20, 2], "\"x\"\n");
        of_a(&[21, 1, 1], "#/definitions/B");
        of_a(&[23, 1, 22, 1], "string");
        of_a(&[25, 1, 1], "a");
        of_a(&[25, 1, 2, 2], "int32");
        of_a(&[31, 1], "x-kubernetes-group-version-kind");
        of_a(&[31, 2, 2], "[{\"kind\":\"A\"}]\n");
        assert_eq!(at(&bytes, &[9, 1, 2, 11]), Some(&[0xac, 2][..]));
        assert_eq!(at(&bytes, &[9, 1, 2, 9]), Some(&1.5_f64.to_le_bytes()[..]));
        assert_eq!(at(&bytes, &[9, 1, 2, 16]), Some(&[1][..]));
        let all = fields_of(at(&bytes, &a).expect("there"));
        let count = |wanted: u64| all.iter().filter(|(number, _)| *number == wanted).count();
        assert_eq!((count(19), count(20)), (2, 2));
        // paths
        is(&[8, 2, 1], "/a");
        is(&[8, 2, 2, 9, 1, 2, 4, 4], "p");
        let post = [8, 2, 2, 4];
        let of_post = |rest: &[u64], expected: &str| is(&[&post, rest].concat(), expected);
        of_post(&[5], "make");
        of_post(&[7], "x/y");
        of_post(&[8, 1, 2, 3, 4], "q");
        of_post(&[9, 1, 1], "201");
        of_post(&[9, 1, 2, 1, 2, 1, 1], "#/definitions/A");
        is(&[12, 1, 1], "BearerToken");
        is(&[13, 1, 2, 2, 3], "header");
    }
}
