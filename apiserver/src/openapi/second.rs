//! OpenAPI v2: one document of all kinds, built from those of version 3.

use serde_json::{Map, Value, json};

/// The keywords that version 2 lacks.
const UNKNOWN: [&str; 5] = ["nullable", "anyOf", "oneOf", "allOf", "not"];

/// Merges documents of version 3 into one of version 2.
pub(super) fn merge(documents: impl IntoIterator<Item = Value>) -> Value {
    let (mut paths, mut definitions) = (Map::new(), Map::new());
    for mut document in documents {
        for (path, item) in std::mem::take(&mut document["paths"]).as_object_mut().into_iter().flatten() {
            paths.insert(path.clone(), path_item(item));
        }
        let schemas = std::mem::take(&mut document["components"]["schemas"]);
        for (name, schema) in schemas.as_object().into_iter().flatten() {
            let marks = definitions.get(name).and_then(|there: &Value| there.get(GVK)).cloned();
            let mut definition = schema_of(schema);
            join(&mut definition, marks);
            definitions.insert(name.clone(), definition);
        }
    }
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "v1.36.3"},
        "paths": paths,
        "definitions": definitions,
        "parameters": {},
        "securityDefinitions": {"BearerToken": {
            "description": "Bearer Token authentication", "type": "apiKey", "name": "authorization", "in": "header",
        }},
        "security": [{"BearerToken": []}],
    })
}

const GVK: &str = "x-kubernetes-group-version-kind";

/// Adds the kinds of a definition from another document.
fn join(definition: &mut Value, marks: Option<Value>) {
    let Some(Value::Array(marks)) = marks else { return };
    let Value::Object(fields) = definition else { return };
    if let Value::Array(own) = fields.entry(GVK).or_insert_with(|| json!([])) {
        for mark in marks {
            if !own.contains(&mark) {
                own.push(mark);
            }
        }
    }
}

fn path_item(item: &Value) -> Value {
    let mut out = Map::new();
    for (key, value) in item.as_object().into_iter().flatten() {
        let value = if key == "parameters" { parameters(value) } else { operation(value) };
        out.insert(key.clone(), value);
    }
    Value::Object(out)
}

fn parameters(all: &Value) -> Value {
    let one = |parameter: &Value| {
        let mut out = parameter.as_object().cloned().unwrap_or_default();
        if let Some(Value::Object(schema)) = out.remove("schema") {
            out.extend(schema.into_iter().filter(|(key, _)| key == "type"));
        }
        out.insert("uniqueItems".into(), true.into());
        Value::Object(out)
    };
    all.as_array().into_iter().flatten().map(one).collect()
}

fn operation(given: &Value) -> Value {
    let mut out = given.as_object().cloned().unwrap_or_default();
    let mut listed = out.remove("parameters").map(|all| parameters(&all)).unwrap_or_else(|| json!([]));
    if let Some(body) = out.remove("requestBody") {
        let (media, schema) = content(&body);
        out.insert("consumes".into(), media);
        if let Value::Array(listed) = &mut listed {
            listed.push(json!({"name": "body", "in": "body", "required": true, "schema": schema}));
        }
    }
    if listed.as_array().is_some_and(|all| !all.is_empty()) {
        out.insert("parameters".into(), listed);
    }
    for (_, response) in out.get_mut("responses").and_then(Value::as_object_mut).into_iter().flatten() {
        let (media, schema) = content(response);
        if !media.as_array().is_none_or(Vec::is_empty) {
            *response = json!({"description": response["description"], "schema": schema, "produces": media});
        }
    }
    let produced = out.get_mut("responses").and_then(Value::as_object_mut).into_iter().flatten();
    let media: Vec<Value> =
        produced.filter_map(|(_, response)| response.as_object_mut()?.remove("produces")).collect();
    if let Some(media) = media.into_iter().next() {
        out.insert("produces".into(), media);
    }
    Value::Object(out)
}

/// Returns the media types of a body, and the schema of the first.
fn content(body: &Value) -> (Value, Value) {
    let content = body["content"].as_object();
    let media = content.into_iter().flatten().map(|(media, _)| Value::from(media.as_str())).collect();
    let schema = content.and_then(|content| content.values().next()).map(|of| schema_of(&of["schema"]));
    (media, schema.unwrap_or_default())
}

/// Turns a schema into one of version 2.
fn schema_of(schema: &Value) -> Value {
    let Value::Object(fields) = schema else { return schema.clone() };
    // Version 3 wraps a reference that has sibling keywords.
    if let Some([one]) = fields.get("allOf").and_then(Value::as_array).map(Vec::as_slice)
        && one.get("$ref").is_some()
    {
        let mut out = schema_of(one);
        if let (Value::Object(out), Some(text)) = (&mut out, fields.get("description")) {
            out.insert("description".into(), text.clone());
        }
        return out;
    }
    let is_open = fields.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
    let is_either = fields.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true));
    let mut out = Map::new();
    for (key, value) in fields {
        let value = match key.as_str() {
            key if UNKNOWN.contains(&key) => continue,
            "type" if is_either => continue,
            "properties" | "items" | "additionalProperties" | "required" if is_open => continue,
            "$ref" => {
                value.as_str().unwrap_or_default().replace("#/components/schemas/", "#/definitions/").into()
            }
            "properties" => {
                let all = value.as_object().into_iter().flatten();
                Value::Object(all.map(|(name, schema)| (name.clone(), schema_of(schema))).collect())
            }
            "items" | "additionalProperties" => schema_of(value),
            _ => value.clone(),
        };
        out.insert(key.clone(), value);
    }
    Value::Object(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_keeps_what_version_2_knows() {
        let schema = json!({"type": "object", "nullable": true, "properties": {
            "metadata": {"description": "of it", "allOf": [{"$ref": "#/components/schemas/Meta"}], "default": {}},
            "port": {"x-kubernetes-int-or-string": true, "type": "integer", "anyOf": [{"type": "integer"}]},
            "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"a": {}}},
        }});
        let expected = json!({"type": "object", "properties": {
            "metadata": {"description": "of it", "$ref": "#/definitions/Meta"},
            "port": {"x-kubernetes-int-or-string": true},
            "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }});
        assert_eq!(schema_of(&schema), expected);
    }

    #[test]
    fn bodies_become_parameters() {
        let document = json!({
            "paths": {"/things": {"post": {
                "parameters": [{"name": "dryRun", "in": "query", "schema": {"type": "string"}}],
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Thing"}}}},
                "responses": {"201": {"description": "Created", "content": {"application/json": {"schema": {"type": "object"}}}}},
            }}},
            "components": {"schemas": {"Thing": {"type": "object", GVK: [{"kind": "Thing"}]}}},
        });
        let merged = merge([document]);
        let post = &merged["paths"]["/things"]["post"];
        assert_eq!(
            post["parameters"][0],
            json!({"name": "dryRun", "in": "query", "type": "string", "uniqueItems": true})
        );
        assert_eq!(post["parameters"][1]["schema"], json!({"$ref": "#/definitions/Thing"}));
        assert_eq!(
            (&post["consumes"], &post["produces"]),
            (&json!(["application/json"]), &json!(["application/json"]))
        );
        assert_eq!(post["responses"]["201"], json!({"description": "Created", "schema": {"type": "object"}}));
        assert_eq!(merged["definitions"]["Thing"][GVK], json!([{"kind": "Thing"}]));
    }
}
