//! OpenAPI v3: an index and one document for each group version, as far as clients need them.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::kinds::{Reach, Resource, Served};
use crate::object;
use crate::schema::Schema;
use crate::state::State;
use crate::store::ResourceId;

/// Writes `/openapi/v3`: where the documents are.
pub(crate) fn index(state: &State) -> Value {
    let mut paths = Map::new();
    for (group, versions) in state.registry.groups() {
        for version in versions {
            let path =
                if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") };
            let hash = hash(state, &group, &version);
            paths.insert(
                path.clone(),
                json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash={hash}")}),
            );
        }
    }
    for path in ["api", "apis", "version"] {
        paths.insert(path.to_owned(), json!({"serverRelativeURL": format!("/openapi/v3/{path}")}));
    }
    json!({"paths": paths})
}

/// Makes a text that changes whenever a group version's kinds do.
fn hash(state: &State, group: &str, version: &str) -> String {
    let served = state.registry.all().filter(|r| r.group() == group).filter_map(|r| r.served(version));
    let text: String = served.map(|served| format!("{}:{},", served.kind, served.id)).collect();
    text.bytes().fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte))).to_string()
}

/// Writes the document of a group version; nothing if it has none.
pub(crate) fn document(state: &State, group: &str, version: &str) -> Option<Value> {
    let mut paths = Map::new();
    let mut schemas = Map::new();
    for resource in state.registry.all().filter(|resource| resource.group() == group) {
        let Some(served) = resource.served(version) else { continue };
        let name = describe(state, resource, served, &mut schemas);
        add_paths(&mut paths, resource, served, &name);
    }
    if paths.is_empty() {
        return None;
    }
    Some(json!({
        "openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.36.3"}, "paths": paths,
        "components": {"schemas": schemas},
    }))
}

fn gvk(served: &Served) -> Value {
    json!({"group": served.group, "version": served.version, "kind": served.kind})
}

/// Adds the schema of a kind, and all it refers to; gives its name.
fn describe(state: &State, resource: &Resource, served: &Served, schemas: &mut Map<String, Value>) -> String {
    if let Some(name) = Schema::definition_name(&served.group, &served.version, &served.kind) {
        add_definition(name, schemas);
        if let Some(schema) = schemas.get_mut(name) {
            schema["x-kubernetes-group-version-kind"] = json!([gvk(served)]);
        }
        return name.to_owned();
    }
    let reversed: Vec<&str> = served.group.split('.').rev().collect();
    let name = format!("{}.{}.{}", reversed.join("."), served.version, served.kind);
    let mut schema = custom_schema(state, resource, served).unwrap_or_else(|| json!({"type": "object"}));
    schema["x-kubernetes-group-version-kind"] = json!([gvk(served)]);
    let properties = object::child_mut(object::map_mut(&mut schema), "properties");
    properties.insert("apiVersion".into(), json!({"type": "string"}));
    properties.insert("kind".into(), json!({"type": "string"}));
    const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    properties
        .insert("metadata".into(), json!({"allOf": [{"$ref": format!("#/components/schemas/{META}")}]}));
    add_definition(META, schemas);
    schemas.insert(name.clone(), schema);
    name
}

fn custom_schema(state: &State, resource: &Resource, served: &Served) -> Option<Value> {
    let id = ResourceId::new("apiextensions.k8s.io", "customresourcedefinitions");
    let crd = state.store.get(&id, &format!("{}.{}", resource.plural(), resource.group()))?;
    let versions = object::at(&crd.value, "spec.versions")?.as_array()?;
    let version = versions.iter().find(|version| version["name"] == served.version)?;
    version["schema"].get("openAPIV3Schema").cloned()
}

/// Adds a built-in definition and those it refers to.
fn add_definition(name: &str, schemas: &mut Map<String, Value>) {
    let mut wanted = BTreeSet::from([name.to_owned()]);
    while let Some(name) = wanted.pop_first() {
        if schemas.contains_key(&name) {
            continue;
        }
        let Some(definition) = Schema::definitions().get(&name) else { continue };
        let mut definition = definition.clone();
        point(&mut definition, &mut wanted);
        schemas.insert(name, definition);
    }
}

/// Turns references to definitions into references to components, noting what is referred to.
fn point(value: &mut Value, wanted: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            if let Some(name) =
                map.get("$ref").and_then(Value::as_str).and_then(|path| path.strip_prefix("#/$defs/"))
            {
                let name = name.to_owned();
                map.insert("$ref".into(), format!("#/components/schemas/{name}").into());
                wanted.insert(name);
            }
            map.values_mut().for_each(|value| point(value, wanted));
        }
        Value::Array(list) => list.iter_mut().for_each(|value| point(value, wanted)),
        _ => {}
    }
}

fn add_paths(paths: &mut Map<String, Value>, resource: &Resource, served: &Served, schema: &str) {
    let root = if served.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", served.group) };
    let namespaced = resource.reach == Reach::Namespaced;
    let inside = if namespaced { "/namespaces/{namespace}" } else { "" };
    let collection = format!("{root}/{}{inside}/{}", served.version, resource.plural());
    let body = json!({"schema": {"$ref": format!("#/components/schemas/{schema}")}});
    let operation = |action: &str, writes: bool| {
        let mut operation = json!({
            "x-kubernetes-action": action, "x-kubernetes-group-version-kind": gvk(served),
            "responses": {"200": {"description": "OK", "content": {"application/json": body}}},
        });
        if writes {
            operation["parameters"] = parameters(&["dryRun", "fieldManager", "fieldValidation"]);
            operation["requestBody"] = json!({"content": {"*/*": body}});
        }
        operation
    };
    let mut patch = operation("patch", true);
    patch["parameters"] = parameters(&["dryRun", "fieldManager", "fieldValidation", "force"]);
    let free = json!({"schema": {"type": "object"}});
    patch["requestBody"] = json!({"content": {
        "application/apply-patch+yaml": free, "application/json-patch+json": free, "application/merge-patch+json": free,
    }});
    paths.insert(
        collection.clone(),
        json!({
            "get": operation("list", false), "post": operation("post", true),
            "delete": operation("deletecollection", false),
        }),
    );
    paths.insert(
        format!("{collection}/{{name}}"),
        json!({
            "parameters": [{"name": "name", "in": "path", "required": true, "schema": {"type": "string"}}],
            "get": operation("get", false), "put": operation("put", true), "patch": patch,
            "delete": operation("delete", false),
        }),
    );
}

fn parameters(names: &[&str]) -> Value {
    let parameter = |name: &&str| {
        let kind = if *name == "force" { "boolean" } else { "string" };
        json!({"name": name, "in": "query", "schema": {"type": kind}})
    };
    names.iter().map(parameter).collect()
}
