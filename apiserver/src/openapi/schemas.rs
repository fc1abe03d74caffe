//! Schemas: the components of a document, with all that they refer to.

use std::sync::LazyLock;

use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use schemars::SchemaGenerator;
use serde_json::{Map, Value, json};

use crate::facts::{Count, Field, facts};
use crate::kinds::{Resource, Served, Unstored};
use crate::schema::Schema;

/// The name of deletion options.
pub(super) const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
/// The name of a patch's body.
pub(super) const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
/// The name of what deletions and refusals answer.
pub(super) const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";
/// The name of the scale subresource's kind.
pub(super) const SCALE: &str = "io.k8s.api.autoscaling.v1.Scale";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const CONFIG_MAP: &str = "io.k8s.api.core.v1.ConfigMap";
const GVK: &str = "x-kubernetes-group-version-kind";

/// The names under which a kind and its list are published.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) kind: String,
    pub(super) list: String,
}

/// Points at a component.
pub(super) fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

/// The components of one document, gathered.
#[derive(Debug)]
pub(super) struct Schemas {
    group: String,
    version: String,
    found: Map<String, Value>,
}

impl Schemas {
    /// Starts with what every document of a group version names.
    pub(super) fn new(group: &str, version: &str) -> Self {
        let mut schemas = Self { group: group.to_owned(), version: version.to_owned(), found: Map::new() };
        for name in [DELETE_OPTIONS, PATCH, STATUS, LIST_META] {
            schemas.pull(name);
        }
        schemas.mark(DELETE_OPTIONS, group, version, "DeleteOptions");
        schemas.mark(STATUS, "", "v1", "Status");
        schemas
    }

    /// Adds a kind and its list, with all that they refer to.
    pub(super) fn add_kind(&mut self, resource: &Resource, served: &Served) -> Names {
        let known = Schema::definition_name(&served.group, &served.version, &served.kind);
        let kind = match known {
            Some(name) => {
                self.pull(name);
                name.to_owned()
            }
            None => {
                let name = custom_name(&served.group, &served.version, &served.kind);
                self.pull(OBJECT_META);
                self.found.insert(name.clone(), custom(served));
                name
            }
        };
        let package = kind.strip_suffix(served.kind.as_str()).unwrap_or_default();
        let list = format!("{package}{}", resource.list_kind);
        self.found
            .insert(list.clone(), list_of(&resource.list_kind, resource.plural(), &resource.kind, &kind));
        let (group, version) = (self.group.clone(), self.version.clone());
        self.mark(&kind, &group, &version, &served.kind);
        self.mark(&list, &group, &version, &resource.list_kind);
        Names { kind, list }
    }

    /// Adds a kind that is answered and never stored, and its list if it has one.
    pub(super) fn add_unstored(&mut self, unstored: &Unstored) -> Names {
        let (group, version) = (self.group.clone(), self.version.clone());
        let Unstored { kind: word, plural, verbs, .. } = *unstored;
        let kind = Schema::definition_name(&group, &version, word).unwrap_or_default().to_owned();
        self.pull(&kind);
        self.mark(&kind, &group, &version, word);
        let list = format!("{kind}List");
        if verbs.contains(&"list") {
            let of_list = format!("{word}List");
            self.pull(LIST_META);
            self.found.insert(list.clone(), list_of(&of_list, plural, word, &kind));
            self.mark(&list, &group, &version, &of_list);
        }
        Names { kind, list }
    }

    /// Adds the kind of the scale subresource.
    pub(super) fn add_scale(&mut self) {
        self.pull(SCALE);
        self.mark(SCALE, "autoscaling", "v1", "Scale");
    }

    /// Returns the components by name.
    pub(super) fn into_map(self) -> Map<String, Value> {
        self.found
    }

    /// Takes in a published definition, and those it refers to.
    fn pull(&mut self, name: &str) {
        let mut wanted = vec![name.to_owned()];
        while let Some(name) = wanted.pop() {
            if self.found.contains_key(&name) {
                continue;
            }
            let Some(definition) = definition(&name) else { continue };
            let mut published = publish(definition, &mut wanted);
            correct(&name, &mut published);
            enumerate(&name, &mut published);
            self.found.insert(name, published);
        }
    }

    fn mark(&mut self, name: &str, group: &str, version: &str, kind: &str) {
        if let Some(Value::Object(schema)) = self.found.get_mut(name) {
            schema.insert(GVK.into(), json!([{"group": group, "version": version, "kind": kind}]));
        }
    }
}

/// Finds a published definition: a kind's, or one of the machinery's.
fn definition(name: &str) -> Option<&'static Value> {
    static MACHINERY: LazyLock<Map<String, Value>> = LazyLock::new(|| {
        let mut generator = SchemaGenerator::default();
        generator.subschema_for::<meta::DeleteOptions>();
        generator.subschema_for::<meta::ListMeta>();
        generator.subschema_for::<meta::Patch>();
        generator.subschema_for::<meta::Status>();
        generator.take_definitions(false)
    });
    Schema::definitions().get(name).or_else(|| MACHINERY.get(name))
}

/// Turns a published definition into a component; returns the names that it refers to.
fn publish(schema: &Value, wanted: &mut Vec<String>) -> Value {
    let Value::Object(fields) = schema else { return schema.clone() };
    let mut out = Map::new();
    for (key, value) in fields {
        let value = match (key.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                let properties = properties.iter().map(|(name, of)| (name.clone(), publish(of, wanted)));
                Value::Object(properties.collect())
            }
            ("items" | "additionalProperties", inner) => element(publish(inner, wanted)),
            ("allOf" | "anyOf" | "oneOf", Value::Array(choices)) => {
                choices.iter().map(|choice| publish(choice, wanted)).collect()
            }
            _ => value.clone(),
        };
        out.insert(key.clone(), value);
    }
    if let Some(Value::String(path)) = out.remove("$ref") {
        let name = path.rsplit('/').next().unwrap_or_default();
        wanted.push(name.to_owned());
        if out.is_empty() {
            return reference(name);
        }
        if name == OBJECT_META {
            out.insert("default".into(), json!({}));
        }
        out.insert("allOf".into(), json!([reference(name)]));
    }
    Value::Object(out)
}

/// Sets the default of list and map elements that have no schema: an empty text.
fn element(mut schema: Value) -> Value {
    if let Value::Object(fields) = &mut schema
        && fields.get("type").is_some_and(|kind| kind == "string")
        && !fields.contains_key("format")
    {
        fields.insert("default".into(), "".into());
    }
    schema
}

/// Structs whose name is optional and defaults to an empty text.
const NAMELESS: [&str; 8] = [
    "ConfigMapEnvSource",
    "ConfigMapKeySelector",
    "ConfigMapProjection",
    "ConfigMapVolumeSource",
    "LocalObjectReference",
    "SecretEnvSource",
    "SecretKeySelector",
    "SecretProjection",
];

/// Corrects the crate's definitions where a server publishes something else.
fn correct(name: &str, schema: &mut Value) {
    let short = name.rsplit('.').next().unwrap_or_default();
    let Value::Object(fields) = schema else { return };
    let is_kind = fields.get("properties").is_some_and(|known| known.get("kind").is_some());
    if is_kind && name != "io.k8s.api.core.v1.Event" {
        loosen(fields, "metadata");
    }
    if NAMELESS.contains(&short) {
        loosen(fields, "name");
    }
    let either = |other: &str| json!([{"type": other}, {"type": "string"}]);
    match short {
        "IntOrString" => {
            fields.insert("oneOf".into(), either("integer"));
            fields.insert("format".into(), "int-or-string".into());
        }
        "Quantity" => {
            fields.insert("oneOf".into(), either("number"));
        }
        "JSON" => {
            fields.remove("type");
        }
        _ => {}
    }
    fields.remove("x-kubernetes-int-or-string");
}

/// Adds the enumerations that the crate's types leave out.
fn enumerate(name: &str, schema: &mut Value) {
    let Some(message) = facts().defined(name) else { return };
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for (name, property) in properties.into_iter().flatten() {
        if let Some(field) = facts().field(message, name)
            && !field.values.is_empty()
            && let Value::Object(property) = property
        {
            limit(property, field);
        }
    }
}

/// Writes the values of one field, or of each item of it, and lists those of a field in its description as well.
fn limit(property: &mut Map<String, Value>, field: &Field) {
    let values = json!(field.values);
    let items = match field.count {
        Count::One => {
            let listed: String = field.values.iter().map(|value| format!("\n - `{value:?}`")).collect();
            if let Some(Value::String(said)) = property.get_mut("description") {
                said.push_str("\n\nPossible enum values:");
                said.push_str(&listed);
            }
            property.insert("enum".into(), values);
            return;
        }
        Count::List => "items",
        Count::Map => "additionalProperties",
    };
    if let Some(Value::Object(items)) = property.get_mut(items) {
        items.insert("enum".into(), values);
    }
}

/// Drops the demand for a field.
fn loosen(fields: &mut Map<String, Value>, name: &str) {
    if let Some(Value::Array(required)) = fields.get_mut("required") {
        required.retain(|given| given != name);
        if required.is_empty() {
            fields.remove("required");
        }
    }
}

/// Names a custom kind: the group backwards, the version, the kind.
fn custom_name(group: &str, version: &str, kind: &str) -> String {
    let mut words: Vec<&str> = group.split('.').rev().collect();
    words.extend([version, kind]);
    words.join(".")
}

/// The keywords of a custom kind's schema that are published as they were given; so are those of Kubernetes' own.
const KEPT: [&str; 23] = [
    "default",
    "description",
    "enum",
    "example",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "externalDocs",
    "format",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "nullable",
    "pattern",
    "required",
    "title",
    "type",
    "uniqueItems",
];

/// Writes a custom kind's schema, with what every object has.
fn custom(served: &Served) -> Value {
    let mut own = structural(&served.schema.root().node().rules);
    own.insert("type".into(), "object".into());
    add_standard(&mut own);
    Value::Object(own)
}

/// Writes a schema without keywords that OpenAPI does not know, such as `id`: clients refuse the document for one.
fn structural(schema: &Map<String, Value>) -> Map<String, Value> {
    let below = |schema: &Value| match schema {
        Value::Object(schema) => Value::Object(structural(schema)),
        other => other.clone(),
    };
    let mut out = Map::new();
    for (key, value) in schema {
        let value = match (key.as_str(), value) {
            (_, Value::Null) => continue,
            ("properties", Value::Object(properties)) => {
                Value::Object(properties.iter().map(|(name, of)| (name.clone(), below(of))).collect())
            }
            ("allOf" | "anyOf" | "oneOf", Value::Array(choices)) => choices.iter().map(below).collect(),
            ("additionalProperties" | "items" | "not", inner) => below(inner),
            (key, value) if KEPT.contains(&key) || key.starts_with("x-kubernetes-") => value.clone(),
            _ => continue,
        };
        out.insert(key.clone(), value);
    }
    if out.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true)) {
        add_standard(&mut out);
        if let Value::Array(required) = out.entry("required").or_insert_with(|| json!([])) {
            for name in ["kind", "apiVersion"] {
                if !required.iter().any(|given| given == name) {
                    required.push(name.into());
                }
            }
        }
    }
    out
}

/// Adds what every object has to a schema's properties.
fn add_standard(schema: &mut Map<String, Value>) {
    let Value::Object(properties) = schema.entry("properties").or_insert_with(|| json!({})) else { return };
    for name in ["apiVersion", "kind"] {
        properties.insert(name.into(), text(name));
    }
    let said = Schema::description(CONFIG_MAP, "metadata");
    properties.insert("metadata".into(), json!({"description": said, "allOf": [reference(OBJECT_META)]}));
}

fn text(name: &str) -> Value {
    json!({"description": Schema::description(CONFIG_MAP, name), "type": "string"})
}

/// Writes the schema of a kind's list.
fn list_of(list: &str, plural: &str, word: &str, kind: &str) -> Value {
    json!({
        "description": format!("{list} holds objects of the kind {word}."),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": text("apiVersion"),
            "items": {
                "description": format!("The {plural}."),
                "type": "array",
                "items": reference(kind),
            },
            "kind": text("kind"),
            "metadata": {
                "description": "The version and the extent of the list.",
                "allOf": [reference(LIST_META)],
            },
        },
    })
}
