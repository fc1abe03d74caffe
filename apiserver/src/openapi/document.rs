//! Documents: the paths of a group version and the schemas they name.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::operations::Paths;
use super::schemas::Schemas;
use crate::kinds::{Resource, Served, unstored};

/// A kind in one of its versions.
pub(super) type ServedKind = (Arc<Resource>, Arc<Served>);

/// Writes the document of a group version.
pub(super) fn group_version(group: &str, version: &str, kinds: &[ServedKind]) -> Value {
    let mut schemas = Schemas::new(group, version);
    let mut paths = Paths::new(group, version);
    for (resource, served) in kinds {
        let names = schemas.add_kind(resource, served);
        if served.offers("scale") {
            schemas.add_scale();
        }
        paths.add_kind(resource, served, &names);
    }
    for kind in unstored(group, version) {
        let names = schemas.add_unstored(kind);
        paths.add_unstored(kind, &names);
    }
    whole(paths.into_map(), json!({"schemas": schemas.into_map()}))
}

/// Writes the document of a path that is not a group version: `api`, `apis`, `apis/GROUP` or `version`.
pub(super) fn plain(name: &str) -> Value {
    let describe = match name {
        "version" => "get the version information of this server",
        "api" => "get available API versions",
        "apis" => "get available API groups",
        _ => "get information of a group",
    };
    let content = json!({"application/json": {"schema": {"type": "object"}}});
    let operation = json!({
        "description": describe,
        "responses": {"200": {"description": "OK", "content": content}},
    });
    let mut paths = Map::new();
    paths.insert(format!("/{name}/"), json!({"get": operation}));
    whole(paths, json!({}))
}

fn whole(paths: Map<String, Value>, components: Value) -> Value {
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.36.3"},
        "paths": paths,
        "components": components,
    })
}
