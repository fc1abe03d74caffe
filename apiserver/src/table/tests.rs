//! Tables as the real server printed them.

use serde_json::json;

use super::*;

const NOW: i64 = 1_600_000_000;

fn named(columns: &Columns) -> Vec<String> {
    let definitions = columns.definitions();
    let definitions = definitions.as_array().into_iter().flatten();
    definitions.map(|definition| definition["name"].as_str().unwrap_or_default().to_owned()).collect()
}

fn config_map() -> Value {
    json!({
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"name": "a", "creationTimestamp": "2020-09-13T12:26:30Z"},
        "data": {"k": "v"},
    })
}

fn printed(columns: &Columns, objects: &[Value], include: IncludeObject, header: Header) -> Value {
    let metadata = json!({"resourceVersion": "1"});
    table(TableInput { columns, metadata, objects, include, header, version: "v1", now: NOW })
}

#[test]
fn rows_hold_metadata_unless_asked_otherwise() {
    // wire 017
    let columns = Columns::builtin("", "v1", "ConfigMap");
    let objects = [config_map()];
    let result = printed(&columns, &objects, IncludeObject::Metadata, Header::Shown);
    assert_eq!(named(&columns), ["Name", "Data", "Age"]);
    assert_eq!(result["rows"][0]["cells"], json!(["a", 1, "10s"]));
    assert_eq!(result["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let result = printed(&columns, &objects, IncludeObject::Object, Header::Shown);
    assert_eq!(result["rows"][0]["object"], config_map());
    let result = printed(&columns, &objects, IncludeObject::None, Header::Hidden);
    assert_eq!(result["rows"][0]["object"], Value::Null);
    assert_eq!(result["columnDefinitions"], Value::Null);
}

#[test]
fn an_empty_list_has_columns_and_no_rows() {
    // wire 017
    let columns = Columns::builtin("", "v1", "ConfigMap");
    let result = printed(&columns, &[], IncludeObject::Metadata, Header::Shown);
    assert_eq!(result["rows"], json!([]));
    assert_eq!(result["columnDefinitions"][0]["format"], "name");
}

#[test]
fn a_bookmark_has_empty_cells() {
    // wire 116, 516
    let bookmark = json!({"metadata": {"resourceVersion": "5"}});
    let built_in = Columns::builtin("", "v1", "ConfigMap");
    assert_eq!(built_in.cells(&bookmark, NOW), [json!(""), json!(0), json!("<unknown>")]);
    let custom = Columns::custom(None);
    assert_eq!(custom.cells(&bookmark, NOW), [json!(""), Value::Null]);
}

#[test]
fn kinds_without_columns_show_when_they_were_created() {
    // wire 018
    let columns = Columns::builtin("rbac.authorization.k8s.io", "v1", "Role");
    assert_eq!(named(&columns), ["Name", "Created At"]);
}

#[test]
fn built_in_kinds_have_the_cells_of_the_real_server() {
    // wire 018
    let cells = |group: &str, kind: &str, mut object: Value| {
        object["metadata"] = json!({"name": "x", "creationTimestamp": "2020-09-13T12:26:40Z"});
        json!(Columns::builtin(group, "v1", kind).cells(&object, NOW))
    };
    let pod = json!({"spec": {"containers": [{"name": "c"}]}, "status": {"phase": "Pending"}});
    let none = "<none>";
    assert_eq!(cells("", "Pod", pod), json!(["x", "0/1", "Pending", "0", "0s", none, none, none, none]));
    let deployment = json!({"spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "d"}},
        "template": {"spec": {"containers": [{"name": "c", "image": "img:1"}]}},
    }});
    let wanted = json!(["x", "0/1", 0, 0, "0s", "c", "img:1", "app=d"]);
    assert_eq!(cells("apps", "Deployment", deployment), wanted);
    let service = json!({"spec": {
        "type": "ClusterIP",
        "clusterIP": "None",
        "ports": [{"port": 80, "protocol": "TCP"}],
        "selector": {"a": "b"},
    }});
    let wanted = json!(["x", "ClusterIP", "None", none, "80/TCP", "0s", "a=b"]);
    assert_eq!(cells("", "Service", service), wanted);
    let secret = json!({"type": "Opaque", "data": {"a": "Yg=="}});
    assert_eq!(cells("", "Secret", secret), json!(["x", "Opaque", 1, "0s"]));
    let lease = json!({"spec": {"holderIdentity": "me"}});
    assert_eq!(cells("coordination.k8s.io", "Lease", lease), json!(["x", "me", "0s"]));
}

#[test]
fn every_built_in_column_is_described() {
    for (group, kind) in [
        ("", "ConfigMap"),
        ("", "Secret"),
        ("", "Pod"),
        ("", "Service"),
        ("", "ServiceAccount"),
        ("", "Namespace"),
        ("", "Node"),
        ("", "Event"),
        ("apps", "Deployment"),
        ("apps", "ReplicaSet"),
        ("apps", "StatefulSet"),
        ("apps", "DaemonSet"),
        ("batch", "Job"),
        ("batch", "CronJob"),
        ("coordination.k8s.io", "Lease"),
        ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
        ("rbac.authorization.k8s.io", "RoleBinding"),
    ] {
        let columns = Columns::builtin(group, "v1", kind);
        let definitions = columns.definitions();
        for definition in definitions.as_array().into_iter().flatten() {
            assert_ne!(definition["description"], "", "{kind} {}", definition["name"]);
        }
        let empty = json!({"metadata": {}});
        assert_eq!(columns.cells(&empty, NOW).len(), definitions.as_array().map_or(0, Vec::len));
    }
}

fn widget_columns() -> Columns {
    Columns::custom(Some(&json!([
        {"name": "Str", "type": "string", "jsonPath": ".spec.s"},
        {"name": "Int", "type": "integer", "jsonPath": ".spec.i", "description": "An int", "format": "int32"},
        {"name": "Num", "type": "number", "jsonPath": ".spec.f"},
        {"name": "Bool", "type": "boolean", "jsonPath": ".spec.b"},
        {"name": "Date", "type": "date", "jsonPath": ".spec.d"},
        {"name": "Wide", "type": "string", "jsonPath": ".spec.s", "priority": 1},
        {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
        {"name": "All", "type": "string", "jsonPath": ".spec.l[*]"},
        {"name": "Obj", "type": "string", "jsonPath": ".spec.o"},
    ])))
}

#[test]
fn custom_columns_print_by_type() {
    // wire 508
    let full = json!({
        "metadata": {"name": "a"},
        "spec": {
            "s": "x", "i": 1, "f": 1.5, "b": true, "d": "2020-09-13T12:26:30Z", "l": [1, 2], "o": {"k": "v"},
        },
        "status": {"conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]},
    });
    let cells = json!(widget_columns().cells(&full, NOW));
    assert_eq!(cells, json!(["a", "x", 1, 1.5, true, "10s", "x", "True", "1", "{\"k\":\"v\"}"]));
}

#[test]
fn custom_cells_of_the_wrong_type_are_null() {
    // wire 508
    let wrong = json!({
        "metadata": {"name": "c"},
        "spec": {"s": 5, "i": "text", "f": 2, "b": "yes", "d": "not a date"},
    });
    let cells = json!(widget_columns().cells(&wrong, NOW));
    assert_eq!(cells, json!(["c", "5", null, 2, null, "<invalid>", "5", null, null, null]));
}

#[test]
fn custom_columns_are_described_by_their_path() {
    // wire 508
    let definitions = widget_columns().definitions();
    let text = "Custom resource definition column (in JSONPath format): .spec.s";
    let wanted = json!({"name": "Str", "type": "string", "format": "", "description": text, "priority": 0});
    assert_eq!(definitions[1], wanted);
    let wanted = json!({
        "name": "Int", "type": "integer", "format": "int32", "description": "An int", "priority": 0,
    });
    assert_eq!(definitions[2], wanted);
}
