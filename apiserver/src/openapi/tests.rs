//! Claims about the documents.

use serde_json::{Value, json};

use super::Documents;
use crate::kinds::{Origin, Reach, Registry, Resource, ScalePaths, Served, VersionView};
use crate::object;
use crate::schema::Schema;
use crate::store::ResourceId;
use crate::table::Columns;

/// Makes a registry that serves widgets with this schema.
fn widgets(schema: &Value) -> Registry {
    let mut registry = Registry::new();
    serve(&mut registry, schema);
    registry
}

fn serve(registry: &mut Registry, schema: &Value) {
    let served = Served {
        id: registry.number(),
        group: "shop.example.com".to_owned(),
        version: "v1".to_owned(),
        kind: "Widget".to_owned(),
        served: true,
        schema: Schema::from_crd(schema).expect("structural"),
        subresources: vec!["status".to_owned(), "scale".to_owned()],
        scale: Some(ScalePaths { spec: "spec.n".into(), status: "status.n".into(), selector: String::new() }),
        columns: Columns::custom(None),
        selectable: Vec::new(),
        deprecation: None,
        view: VersionView::Schema,
        conversion: None,
    };
    let id = ResourceId::new("shop.example.com", "widgets");
    registry.insert(Resource {
        storage: id.clone(),
        id,
        kind: "Widget".to_owned(),
        list_kind: "WidgetList".to_owned(),
        singular: "widget".to_owned(),
        short_names: Vec::new(),
        categories: Vec::new(),
        reach: Reach::Namespaced,
        versions: vec![served.into()],
        stored_as: 0,
        origin: Origin::Custom { generation: None },
    });
}

fn schema() -> Value {
    json!({
        "type": "object", "description": "A widget.",
        "properties": {"spec": {
            "type": "object", "description": "What is wanted.", "required": ["n"],
            "properties": {"n": {"type": "integer", "minimum": 1, "description": "How many."}},
        }},
    })
}

fn read(registry: &Registry, name: &str) -> Value {
    let document = Documents::default().find(registry, name).expect("a document");
    serde_json::from_slice(&document.body).expect("JSON")
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().expect("a map").keys().map(String::as_str).collect()
}

// wire 603
#[test]
fn the_index_tells_every_group_version_and_its_hash() {
    let mut documents = Documents::default();
    let registry = widgets(&schema());
    let index = documents.index(&registry);
    for name in ["api", "api/v1", "apis", "apis/apps", "apis/apps/v1", "apis/shop.example.com/v1", "version"]
    {
        let url = index["paths"][name]["serverRelativeURL"].as_str().expect(name);
        assert!(url.starts_with(&format!("/openapi/v3/{name}?hash=")), "{url}");
    }
    assert!(index["paths"].get("apis/shop.example.com").is_none());
    assert_eq!(index, Documents::default().index(&widgets(&schema())), "equal kinds have equal hashes");
}

// wire 603
#[test]
fn a_custom_kind_is_published_with_what_every_object_has() {
    let document = read(&widgets(&schema()), "apis/shop.example.com/v1");
    let widget = &document["components"]["schemas"]["com.example.shop.v1.Widget"];
    assert_eq!(widget["description"], "A widget.");
    assert_eq!(widget["properties"]["spec"], schema()["properties"]["spec"]);
    assert_eq!(keys(&widget["properties"]), ["apiVersion", "kind", "metadata", "spec"]);
    assert_eq!(
        widget["properties"]["metadata"]["allOf"],
        json!([{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}])
    );
    let gvk = json!([{"group": "shop.example.com", "kind": "Widget", "version": "v1"}]);
    assert_eq!(widget["x-kubernetes-group-version-kind"], gvk);
    let base = "/apis/shop.example.com/v1";
    let object = format!("{base}/namespaces/{{namespace}}/widgets/{{name}}");
    assert_eq!(
        keys(&document["paths"]),
        [
            format!("{base}/namespaces/{{namespace}}/widgets"),
            object.clone(),
            format!("{object}/scale"),
            format!("{object}/status"),
            format!("{base}/widgets"),
        ]
    );
}

// client-go's parser knows only the keywords of OpenAPI, and panics on a schema that it did not read.
#[test]
fn a_custom_kind_is_published_in_the_keywords_of_openapi_alone() {
    let schema = json!({
        "type": "object", "id": "widget", "$schema": "http://json-schema.org/draft-04/schema#",
        "properties": {"spec": {
            "type": "object", "id": "spec", "default": {"id": "kept"}, "description": null,
            "properties": {
                "id": {"type": "string", "id": "text", "nullable": true},
                "lists": {"type": "array", "items": {"type": "string", "$schema": "x"}},
                "maps": {"type": "object", "additionalProperties": {"type": "string", "id": "value"}},
                "pod": {"type": "object", "x-kubernetes-embedded-resource": true,
                        "x-kubernetes-preserve-unknown-fields": true, "required": ["spec"]},
            },
            "anyOf": [{"id": "any", "required": ["id"]}], "not": {"id": "not", "required": ["no"]},
        }},
    });
    let document = read(&widgets(&schema), "apis/shop.example.com/v1");
    let widget = &document["components"]["schemas"]["com.example.shop.v1.Widget"];
    assert_eq!((widget.get("id"), widget.get("$schema")), (None, None));
    let mut spec = widget["properties"]["spec"].clone();
    let pod = spec["properties"]["pod"].take();
    let expected = json!({
        "type": "object", "default": {"id": "kept"},
        "properties": {
            "id": {"type": "string", "nullable": true},
            "lists": {"type": "array", "items": {"type": "string"}},
            "maps": {"type": "object", "additionalProperties": {"type": "string"}},
            "pod": null,
        },
        "anyOf": [{"required": ["id"]}], "not": {"required": ["no"]},
    });
    assert_eq!(spec, expected);
    assert_eq!(pod["required"], json!(["spec", "kind", "apiVersion"]));
    assert_eq!(keys(&pod["properties"]), ["apiVersion", "kind", "metadata"]);
}

// wire 603
#[test]
fn patches_show_field_validation_and_no_strategic_merge() {
    let document = read(&Registry::new(), "api/v1");
    let path = &document["paths"]["/api/v1/namespaces/{namespace}/configmaps/{name}"];
    assert_eq!(keys(path), ["delete", "get", "parameters", "patch", "put"]);
    let patch = &path["patch"];
    let names: Vec<&str> = patch["parameters"]
        .as_array()
        .expect("parameters")
        .iter()
        .filter_map(|parameter| parameter["name"].as_str())
        .collect();
    assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation", "force"]);
    let media = keys(&patch["requestBody"]["content"]);
    assert!(!media.iter().any(|media| media.contains("strategic")), "{media:?}");
    assert_eq!(
        path["get"]["x-kubernetes-group-version-kind"],
        json!({"group": "", "version": "v1", "kind": "ConfigMap"})
    );
    let map = &document["components"]["schemas"]["io.k8s.api.core.v1.ConfigMap"];
    assert!(map.get("required").is_none());
    assert_eq!(map["properties"]["data"]["additionalProperties"], json!({"type": "string", "default": ""}));
}

/// Follows every reference of a value.
fn dangling(value: &Value, components: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(path)) = fields.get("$ref") {
                let name = path.strip_prefix("#/components/schemas/");
                if name.is_none_or(|name| components.get(name).is_none()) {
                    found.push(path.clone());
                }
            }
            fields.values().for_each(|inner| dangling(inner, components, found));
        }
        Value::Array(items) => items.iter().for_each(|inner| dangling(inner, components, found)),
        _ => {}
    }
}

#[test]
fn every_reference_of_every_document_leads_somewhere() {
    let registry = widgets(&schema());
    let index = Documents::default().index(&registry);
    for name in keys(&index["paths"]) {
        let document = read(&registry, name);
        let mut found = Vec::new();
        dangling(&document, &document["components"]["schemas"], &mut found);
        assert!(found.is_empty(), "{name}: {found:?}");
        assert_eq!(document["openapi"], "3.0.0");
    }
}

#[test]
fn a_changed_schema_changes_its_own_document_alone() {
    let mut documents = Documents::default();
    let mut registry = widgets(&schema());
    let before = documents.index(&registry);
    let core = documents.find(&registry, "api/v1").expect("core");
    let mut changed = schema();
    object::map_mut(&mut changed).insert("description".into(), "A better widget.".into());
    serve(&mut registry, &changed);
    let after = documents.index(&registry);
    for name in keys(&before["paths"]) {
        let same = before["paths"][name] == after["paths"][name];
        assert_eq!(same, name != "apis/shop.example.com/v1", "{name}");
    }
    let again = documents.find(&registry, "api/v1").expect("core");
    assert!(std::sync::Arc::ptr_eq(&core, &again), "written once");
    registry.remove(&ResourceId::new("shop.example.com", "widgets"));
    assert!(documents.find(&registry, "apis/shop.example.com/v1").is_none());
}

// wire 603
#[test]
fn definitions_are_corrected_where_the_types_made_for_them_differ() {
    let document = read(&Registry::new(), "apis/apps/v1");
    let schemas = &document["components"]["schemas"];
    let required = |name: &str| schemas[name].get("required").cloned().unwrap_or_default();
    assert_eq!(required("io.k8s.api.core.v1.SecretKeySelector"), json!(["key"]));
    assert_eq!(required("io.k8s.api.apps.v1.Deployment"), Value::Null);
    assert_eq!(required("io.k8s.api.core.v1.Container"), json!(["name"]));
    assert!(!document.to_string().contains("#/$defs/"));
}

// A25
#[test]
fn enumerations_of_built_in_kinds_are_published_with_their_values() {
    let document = read(&Registry::new(), "api/v1");
    let property = |name: &str, field: &str| {
        document["components"]["schemas"][format!("io.k8s.api.core.v1.{name}")]["properties"][field].clone()
    };
    let policy = property("Container", "imagePullPolicy");
    assert_eq!(policy["enum"], json!(["Always", "IfNotPresent", "Never"]));
    let said = policy["description"].as_str().expect("a description");
    let listed = "\n\nPossible enum values:\n - `\"Always\"`\n - `\"IfNotPresent\"`\n - `\"Never\"`";
    assert!(said.ends_with(listed), "{said}");
    assert_eq!(
        property("EphemeralContainer", "imagePullPolicy")["enum"],
        policy["enum"],
        "inlined fields too"
    );
    let families = property("ServiceSpec", "ipFamilies");
    assert_eq!((&families["items"]["enum"], families.get("enum")), (&json!(["", "IPv4", "IPv6"]), None));
    assert!(property("Container", "image").get("enum").is_none());
}

// A29
#[test]
fn kinds_that_are_never_stored_are_published_where_they_are_answered() {
    let (mut documents, registry) = (Documents::default(), Registry::new());
    let mut read = |name: &str| -> Value {
        let document = documents.find(&registry, name).expect("the document is there");
        serde_json::from_slice(&document.body).expect("it is JSON")
    };
    let reviews = read("apis/authentication.k8s.io/v1");
    let review = &reviews["components"]["schemas"]["io.k8s.api.authentication.v1.TokenReview"];
    assert_eq!(review["x-kubernetes-group-version-kind"][0]["kind"], "TokenReview");
    let path = &reviews["paths"]["/apis/authentication.k8s.io/v1/tokenreviews"];
    assert!(path["post"].is_object() && path["get"].is_null(), "{path}");
    let access = read("apis/authorization.k8s.io/v1");
    let local = "/apis/authorization.k8s.io/v1/namespaces/{namespace}/localsubjectaccessreviews";
    assert!(access["paths"][local]["post"].is_object());
    assert!(documents.index(&registry)["paths"]["apis/authorization.k8s.io"].is_object());
}
