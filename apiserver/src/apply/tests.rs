//! Ownership as the real server recorded it, and the laws behind it.

mod laws;

use serde_json::{Value, json};

use super::*;
use crate::schema::Schema;

const FIRST: &str = "2024-01-01T00:00:00Z";
const LATER: &str = "2024-01-02T00:00:00Z";

/// A config map that is written again and again, as a server would do it.
struct Subject {
    schema: Schema,
    live: Option<Value>,
    now: &'static str,
}

impl Subject {
    fn config_map() -> Subject {
        let schema = Schema::builtin("", "v1", "ConfigMap").expect("a built-in kind");
        Subject { schema, live: None, now: FIRST }
    }

    fn widget(spec: Value) -> Subject {
        let schema = json!({"type": "object", "properties": {
            "spec": spec,
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }});
        let schema = Schema::from_crd(&schema).expect("a structural schema");
        Subject { schema, live: None, now: FIRST }
    }

    fn apply_to(
        &mut self,
        manager: &str,
        force: Force,
        subresource: Option<&str>,
        mut applied: Value,
    ) -> Result<Value, ApplyError> {
        applied["apiVersion"] = json!("v1");
        applied["kind"] = json!("ConfigMap");
        applied["metadata"]["name"] = json!("a");
        let ignored: &[&str] = match subresource {
            Some(_) => &["spec", "metadata"],
            None => &["status"],
        };
        let result = apply(ApplyInput {
            live: self.live.as_ref(),
            applied: &applied,
            manager,
            force,
            subresource,
            api_version: "v1",
            schema: &self.schema,
            ignored,
            now: self.now,
        })?;
        self.live = Some(result.clone());
        Ok(result)
    }

    fn apply(&mut self, manager: &str, applied: Value) -> Result<Value, ApplyError> {
        self.apply_to(manager, Force::Refuse, None, applied)
    }

    fn refused(&mut self, manager: &str, applied: Value) -> String {
        let result = self.apply(manager, applied);
        result.expect_err("a refusal").to_string()
    }

    fn update(&mut self, manager: &str, mut new: Value) -> Value {
        new["apiVersion"] = json!("v1");
        new["kind"] = json!("ConfigMap");
        new["metadata"]["name"] = json!("a");
        track_update(UpdateInput {
            live: self.live.as_ref(),
            new: &mut new,
            manager,
            subresource: None,
            api_version: "v1",
            schema: &self.schema,
            ignored: &["status"],
            now: self.now,
        });
        self.live = Some(new.clone());
        new
    }

    fn live(&self) -> &Value {
        self.live.as_ref().expect("an object")
    }

    /// Lists the owners: manager, operation and fields.
    fn owners(&self) -> Vec<(String, Value)> {
        let list = self.live()["metadata"]["managedFields"].as_array().cloned();
        let list = list.unwrap_or_default().into_iter();
        list.map(|entry| {
            let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
            (format!("{} {}", text("manager"), text("operation")), entry["fieldsV1"].clone())
        })
        .collect()
    }

    fn fields_of(&self, owner: &str) -> Value {
        let of_owner = self.owners().into_iter().find(|(name, _)| name == owner);
        of_owner.map(|(_, fields)| fields).unwrap_or_default()
    }

    fn time_of(&self, owner: usize) -> Value {
        self.live()["metadata"]["managedFields"][owner]["time"].clone()
    }
}

#[test]
fn apply_creates_changes_and_removes_what_it_owns() -> anyhow::Result<()> {
    // wire 401
    let mut map = Subject::config_map();
    map.apply("m", json!({"data": {"x": "1", "y": "2"}}))?;
    assert_eq!(map.fields_of("m Apply"), json!({"f:data": {"f:x": {}, "f:y": {}}}));
    map.apply("m", json!({"data": {"x": "3"}}))?;
    assert_eq!(map.live()["data"], json!({"x": "3"}));
    assert_eq!(map.fields_of("m Apply"), json!({"f:data": {"f:x": {}}}));
    map.apply("m", json!({}))?;
    assert_eq!(*map.live(), json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}));
    map.apply("m", json!({"metadata": {"labels": {"l": "1"}}, "data": {"x": "4"}}))?;
    let owned = json!({"f:data": {"f:x": {}}, "f:metadata": {"f:labels": {"f:l": {}}}});
    assert_eq!(map.fields_of("m Apply"), owned);
    Ok(())
}

#[test]
fn a_repeated_apply_keeps_the_time() -> anyhow::Result<()> {
    // wire 401
    let mut map = Subject::config_map();
    let first = map.apply("m", json!({"data": {"x": "1"}}))?;
    map.now = LATER;
    assert_eq!(map.apply("m", json!({"data": {"x": "1"}}))?, first);
    assert_eq!(map.time_of(0), FIRST);
    map.apply("m", json!({"data": {"x": "2"}}))?;
    assert_eq!(map.time_of(0), LATER);
    Ok(())
}

#[test]
fn a_field_of_another_manager_conflicts() -> anyhow::Result<()> {
    // wire 402
    let mut map = Subject::config_map();
    map.apply("one", json!({"data": {"x": "1", "y": "1"}}))?;
    let text = "Apply failed with 1 conflict: conflict with \"one\": .data.x";
    assert_eq!(map.refused("two", json!({"data": {"x": "2"}})), text);
    let text = "Apply failed with 2 conflicts: conflicts with \"one\":\n- .data.x\n- .data.y";
    assert_eq!(map.refused("two", json!({"data": {"x": "2", "y": "2"}})), text);
    map.update("patcher", json!({"metadata": map.live()["metadata"], "data": {"x": "6", "y": "1"}}));
    let text = "Apply failed with 2 conflicts: conflicts with \"one\":\n- .data.y\nconflicts with \"patcher\" using v1:\n- .data.x";
    assert_eq!(map.refused("three", json!({"data": {"x": "5", "y": "9"}})), text);
    Ok(())
}

#[test]
fn the_same_value_is_shared_and_force_takes_another() -> anyhow::Result<()> {
    // wire 402
    let mut map = Subject::config_map();
    map.apply("one", json!({"data": {"x": "1", "y": "1"}}))?;
    map.apply("two", json!({"data": {"x": "1"}}))?;
    // Nothing changed but the owners: the new entry has no time, and so comes first.
    assert_eq!(map.owners()[0].0, "two Apply");
    assert_eq!(map.time_of(0), Value::Null);
    map.apply_to("two", Force::Take, None, json!({"data": {"x": "5"}}))?;
    assert_eq!(map.live()["data"], json!({"x": "5", "y": "1"}));
    assert_eq!(map.fields_of("one Apply"), json!({"f:data": {"f:y": {}}}));
    Ok(())
}

#[test]
fn a_shared_field_stays_until_its_last_owner_leaves_it_out() -> anyhow::Result<()> {
    // wire 403
    let mut map = Subject::config_map();
    map.apply("one", json!({"data": {"x": "1", "y": "1"}}))?;
    map.apply("two", json!({"data": {"x": "1"}}))?;
    map.apply("one", json!({"data": {"y": "1"}}))?;
    assert_eq!(map.live()["data"], json!({"x": "1", "y": "1"}));
    map.apply("two", json!({}))?;
    assert_eq!(map.live()["data"], json!({"y": "1"}));
    assert_eq!(map.owners().len(), 1);
    Ok(())
}

#[test]
fn an_update_owns_what_it_changes_and_frees_what_it_removes() -> anyhow::Result<()> {
    // wire 404
    let mut map = Subject::config_map();
    map.apply("one", json!({"data": {"x": "1", "y": "1"}}))?;
    map.update("up", json!({"data": {"x": "2", "y": "1", "z": "3"}}));
    assert_eq!(map.fields_of("one Apply"), json!({"f:data": {"f:y": {}}}));
    assert_eq!(map.fields_of("up Update"), json!({"f:data": {"f:x": {}, "f:z": {}}}));
    map.update("up", json!({"data": {"x": "2", "z": "3"}}));
    assert_eq!(map.owners().len(), 1);
    map.update("put", json!({"data": {"x": "9"}}));
    assert_eq!(map.owners(), [("put Update".to_owned(), json!({"f:data": {"f:x": {}}}))]);
    Ok(())
}

#[test]
fn a_create_owns_the_maps_that_it_makes() {
    // wire 404
    let mut map = Subject::config_map();
    map.update("wire", json!({"metadata": {"labels": {"l": "1"}}, "data": {"x": "1"}}));
    let owned = json!({
        "f:data": {".": {}, "f:x": {}},
        "f:metadata": {"f:labels": {".": {}, "f:l": {}}},
    });
    assert_eq!(map.fields_of("wire Update"), owned);
}

#[test]
fn an_update_without_a_change_keeps_the_entry() {
    // wire 304
    let mut map = Subject::config_map();
    let first = map.update("wire", json!({"data": {"x": "1"}}));
    map.now = LATER;
    assert_eq!(map.update("other", json!({"data": {"x": "1"}})), first);
}

#[test]
fn a_cleared_list_is_refilled_by_the_next_apply() -> anyhow::Result<()> {
    // wire 404
    let mut map = Subject::config_map();
    map.apply("one", json!({"data": {"n": "1", "x": "9"}}))?;
    map.update("up", json!({"metadata": {"managedFields": [{}]}, "data": {"n": "1", "x": "9"}}));
    assert_eq!(map.owners(), []);
    map.update("up", json!({"data": {"n": "2", "x": "9"}}));
    assert_eq!(map.owners(), []);
    map.apply("one", json!({"data": {"m": "1"}}))?;
    let before = json!({"f:data": {".": {}, "f:n": {}, "f:x": {}}});
    assert_eq!(map.fields_of("before-first-apply Update"), before);
    let text = "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.x";
    assert_eq!(map.refused("one", json!({"data": {"x": "0"}})), text);
    Ok(())
}

#[test]
fn what_does_not_fit_the_schema_is_not_applied() {
    // wire 324, 405
    let mut map = Subject::config_map();
    let start = "failed to create typed patch object (/a; /v1, Kind=ConfigMap): ";
    let text = format!("{start}.bogus: field not declared in schema");
    assert_eq!(map.refused("m", json!({"bogus": 1})), text);
    let text = format!("{start}.data.x: expected string, got &value.valueUnstructured{{Value:1}}");
    assert_eq!(map.refused("m", json!({"data": {"x": 1}})), text);
    let given = json!({"metadata": {"managedFields": []}});
    assert_eq!(map.refused("m", given), "metadata.managedFields must be nil");
}

#[test]
fn finalizers_are_owned_one_by_one() -> anyhow::Result<()> {
    // wire 406
    let mut map = Subject::config_map();
    let finalizer = |name: &str| json!({"metadata": {"finalizers": [name]}});
    map.apply("one", finalizer("example.com/a"))?;
    map.apply("two", finalizer("example.com/b"))?;
    assert_eq!(map.live()["metadata"]["finalizers"], json!(["example.com/a", "example.com/b"]));
    map.apply("one", finalizer("example.com/c"))?;
    assert_eq!(map.live()["metadata"]["finalizers"], json!(["example.com/b", "example.com/c"]));
    map.apply("one", json!({}))?;
    let owned = json!({"f:metadata": {"f:finalizers": {"v:\"example.com/b\"": {}}}});
    assert_eq!(map.owners(), [("two Apply".to_owned(), owned)]);
    Ok(())
}

#[test]
fn owner_references_are_keyed_by_uid() -> anyhow::Result<()> {
    // wire 406
    let mut map = Subject::config_map();
    let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "f", "uid": "1"});
    map.apply("one", json!({"metadata": {"ownerReferences": [reference]}}))?;
    let owned = json!({"f:metadata": {"f:ownerReferences": {"k:{\"uid\":\"1\"}": {}}}});
    assert_eq!(map.fields_of("one Apply"), owned);
    Ok(())
}

#[test]
fn items_of_map_lists_have_owners_of_their_own() -> anyhow::Result<()> {
    // wire 406
    let schema = Schema::builtin("apps", "v1", "Deployment").expect("a built-in kind");
    let mut deployment = Subject { schema, live: None, now: FIRST };
    let with = |containers: Value| json!({"spec": {"template": {"spec": {"containers": containers}}}});
    let ports = json!([{"containerPort": 80}]);
    let env = |name: &str| json!([{"name": name, "value": "1"}]);
    deployment.apply(
        "one",
        with(json!([{"name": "a", "args": ["1"], "env": env("X"), "ports": ports}, {"name": "b"}])),
    )?;
    deployment.apply("two", with(json!([{"name": "a", "env": env("Y")}])))?;
    let container =
        |deployment: &Subject| deployment.live()["spec"]["template"]["spec"]["containers"][0].clone();
    assert_eq!(container(&deployment)["env"][1]["name"], "Y");
    let owned = json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {
        "k:{\"name\":\"a\"}": {
            ".": {},
            "f:env": {"k:{\"name\":\"Y\"}": {".": {}, "f:name": {}, "f:value": {}}},
            "f:name": {},
        },
    }}}}});
    assert_eq!(deployment.fields_of("two Apply"), owned);
    let item = &deployment.fields_of("one Apply")["f:spec"]["f:template"]["f:spec"]["f:containers"];
    let ports = &item["k:{\"name\":\"a\"}"]["f:ports"];
    assert_eq!(
        *ports,
        json!({"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}})
    );
    deployment.apply("one", with(json!([{"name": "a", "args": ["1"]}, {"name": "b"}])))?;
    assert_eq!(container(&deployment)["env"], env("Y"));
    let text = "Apply failed with 1 conflict: conflict with \"one\": .spec.template.spec.containers[name=\"a\"].args";
    assert_eq!(deployment.refused("two", with(json!([{"name": "a", "args": ["2"]}]))), text);
    let text = "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .spec.template.spec.containers: duplicate entries for key [name=\"b\"]";
    assert_eq!(deployment.refused("one", with(json!([{"name": "b"}, {"name": "b"}]))), text);
    Ok(())
}

#[test]
fn applied_items_come_in_their_order_among_the_others() -> anyhow::Result<()> {
    let item = json!({"type": "string"});
    let set = json!({"type": "array", "x-kubernetes-list-type": "set", "items": item});
    let mut widget = Subject::widget(json!({"type": "object", "properties": {"set": set}}));
    widget.apply("one", json!({"spec": {"set": ["a", "b", "c"]}}))?;
    widget.apply("two", json!({"spec": {"set": ["x", "c", "a", "y"]}}))?;
    assert_eq!(widget.live()["spec"]["set"], json!(["b", "x", "c", "a", "y"]));
    Ok(())
}

#[test]
fn status_is_owned_by_its_subresource() -> anyhow::Result<()> {
    // wire 407
    let number = json!({"type": "integer"});
    let mut widget = Subject::widget(json!({"type": "object", "properties": {"n": number}}));
    widget.apply("spec", json!({"spec": {"n": 1}}))?;
    let status = Some("status");
    widget.apply_to("status", Force::Refuse, status, json!({"spec": {"n": 9}, "status": {"ok": true}}))?;
    widget.apply("spec", json!({"spec": {"n": 2}, "status": {"ok": false}}))?;
    assert_eq!(widget.live()["spec"], json!({"n": 2}));
    assert_eq!(widget.live()["status"], json!({"ok": true}));
    assert_eq!(widget.fields_of("spec Apply"), json!({"f:spec": {"f:n": {}}}));
    let entry = &widget.live()["metadata"]["managedFields"][1];
    assert_eq!(entry["subresource"], "status");
    assert_eq!(entry["fieldsV1"], json!({"f:status": {"f:ok": {}}}));
    let refused = widget.apply_to("spec", Force::Refuse, status, json!({"status": {"ok": 1}}));
    let text =
        "Apply failed with 1 conflict: conflict with \"status\" with subresource \"status\": .status.ok";
    assert_eq!(refused.map_err(|error| error.to_string()), Err(text.to_owned()));
    Ok(())
}

#[test]
fn a_scale_conflict_names_the_group_of_scale() -> anyhow::Result<()> {
    // wire 309
    let schema = Schema::builtin("apps", "v1", "Deployment").expect("a built-in kind");
    let mut deployment = Subject { schema, live: None, now: FIRST };
    deployment.apply("one", json!({"spec": {"paused": true}}))?;
    let before = deployment.live().clone();
    let mut new = before.clone();
    new["spec"]["replicas"] = json!(2);
    track_update(UpdateInput {
        live: Some(&before),
        new: &mut new,
        manager: "wire",
        subresource: Some("scale"),
        api_version: "apps/v1",
        schema: &deployment.schema,
        ignored: &["status"],
        now: LATER,
    });
    deployment.live = Some(new);
    let text = "Apply failed with 1 conflict: conflict with \"wire\" with subresource \"scale\" using autoscaling/v1: .spec.replicas";
    assert_eq!(deployment.refused("m", json!({"spec": {"replicas": 5}})), text);
    Ok(())
}

#[test]
fn kubectl_does_not_conflict_with_its_client_side_self() -> anyhow::Result<()> {
    // wire 408
    const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
    let mut map = Subject::config_map();
    let applied =
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"x":"1","y":"1"}}"#;
    let metadata = json!({"annotations": {ANNOTATION: applied}});
    map.update("kubectl-client-side-apply", json!({"metadata": metadata, "data": {"x": "1", "y": "1"}}));
    assert_ne!(map.refused("other", json!({"data": {"x": "2"}})), "");
    map.apply("kubectl", json!({"data": {"x": "2"}}))?;
    assert_eq!(map.live()["data"], json!({"x": "2", "y": "1"}));
    let text = "{\"apiVersion\":\"v1\",\"data\":{\"x\":\"2\"},\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"a\"}}\n";
    assert_eq!(map.live()["metadata"]["annotations"][ANNOTATION], text);
    let rest = &map.fields_of("kubectl-client-side-apply Update")["f:data"];
    assert_eq!(*rest, json!({".": {}, "f:y": {}}));
    Ok(())
}

#[test]
fn kubectl_still_conflicts_over_values_that_were_changed_since() {
    // wire 408
    let mut map = Subject::config_map();
    let applied = r#"{"data":{"x":"1"}}"#;
    let metadata = json!({"annotations": {"kubectl.kubernetes.io/last-applied-configuration": applied}});
    map.update("someone", json!({"metadata": metadata, "data": {"x": "7"}}));
    let text = "Apply failed with 1 conflict: conflict with \"someone\" using v1: .data.x";
    assert_eq!(map.refused("kubectl", json!({"data": {"x": "2"}})), text);
}

#[test]
fn a_map_that_is_held_empty_becomes_null_when_its_last_field_goes() -> anyhow::Result<()> {
    // wire 410
    let inner = json!({"type": "object", "properties": {"b": {"type": "string"}}});
    let outer = json!({"type": "object", "properties": {"a": inner}});
    let mut widget = Subject::widget(json!({"type": "object", "properties": {"o": outer}}));
    widget.apply("one", json!({"spec": {"o": {"a": {"b": "c"}}}}))?;
    widget.apply("two", json!({"spec": {"o": {}}}))?;
    assert_eq!(widget.fields_of("two Apply"), json!({"f:spec": {"f:o": {}}}));
    widget.apply("one", json!({"spec": {}}))?;
    assert_eq!(widget.live()["spec"]["o"], Value::Null);
    Ok(())
}

#[test]
fn values_of_free_maps_are_owned_with_their_maps() -> anyhow::Result<()> {
    // wire 409
    let free = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let mut widget = Subject::widget(json!({"type": "object", "properties": {"free": free}}));
    widget.apply("one", json!({"spec": {"free": {"deep": {"x": 1}, "list": [1]}}}))?;
    let owned = json!({"f:spec": {"f:free": {"f:deep": {".": {}, "f:x": {}}, "f:list": {}}}});
    assert_eq!(widget.fields_of("one Apply"), owned);
    Ok(())
}

#[test]
fn only_so_many_update_managers_are_told_apart() {
    let mut map = Subject::config_map();
    let mut data = serde_json::Map::new();
    for number in 0..15 {
        data.insert(format!("k{number}"), json!("v"));
        map.update(&format!("m{number}"), json!({"data": data}));
    }
    let owners = map.owners();
    assert_eq!(owners.len(), 10);
    assert!(owners.iter().any(|(name, _)| name == "ancient-changes Update"));
}

#[test]
fn an_applier_keeps_the_name_of_an_object_of_which_it_owns_all_metadata() -> anyhow::Result<()> {
    // wire 412
    let mut map = Subject::config_map();
    map.apply("m", json!({"metadata": {"annotations": {"n": "1"}}, "data": {"x": "1"}}))?;
    map.apply("m", json!({"data": {"x": "1"}}))?;
    assert_eq!(map.live()["metadata"]["name"], "a");
    assert_eq!(map.live()["metadata"]["annotations"], Value::Null);
    Ok(())
}
