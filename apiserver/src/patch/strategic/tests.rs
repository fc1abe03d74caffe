//! Strategic merges as the real server answered them.

use serde_json::json;

use super::*;

fn deployment() -> Value {
    json!({
        "metadata": {"name": "d", "finalizers": ["example.com/a"]},
        "spec": {
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%"}},
            "template": {"spec": {"containers": [
                {
                    "name": "a",
                    "image": "a:1",
                    "args": ["1", "2"],
                    "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}],
                    "ports": [{"containerPort": 80, "protocol": "TCP"}],
                },
                {"name": "b", "image": "b:1"},
            ]}},
        },
    })
}

fn patched(patch: Value) -> Result<Value, StrategicError> {
    let schema = Schema::builtin("apps", "v1", "Deployment").expect("a built-in kind");
    let mut target = deployment();
    strategic_patch(&mut target, &patch, &schema)?;
    Ok(target)
}

fn containers(list: Value) -> Value {
    json!({"spec": {"template": {"spec": {"containers": list}}}})
}

fn container(result: &Value, index: usize) -> &Value {
    &result["spec"]["template"]["spec"]["containers"][index]
}

fn names(result: &Value) -> Vec<&str> {
    let list = result["spec"]["template"]["spec"]["containers"].as_array();
    list.into_iter().flatten().filter_map(|item| item["name"].as_str()).collect()
}

#[test]
fn items_merge_by_name() -> anyhow::Result<()> {
    // wire 328
    let result = patched(containers(json!([{"name": "a", "image": "a:2"}])))?;
    assert_eq!(names(&result), ["a", "b"]);
    assert_eq!(container(&result, 0)["image"], "a:2");
    assert_eq!(container(&result, 0)["args"], json!(["1", "2"]));
    Ok(())
}

#[test]
fn a_new_item_goes_to_the_front() -> anyhow::Result<()> {
    // wire 328
    let result = patched(containers(json!([{"name": "n", "image": "n:1"}])))?;
    assert_eq!(names(&result), ["n", "a", "b"]);
    let result = patched(containers(json!([{"name": "a", "ports": [{"containerPort": 81}]}])))?;
    let ports = json!([{"containerPort": 81}, {"containerPort": 80, "protocol": "TCP"}]);
    assert_eq!(container(&result, 0)["ports"], ports);
    let result = patched(json!({"metadata": {"finalizers": ["example.com/b"]}}))?;
    assert_eq!(result["metadata"]["finalizers"], json!(["example.com/b", "example.com/a"]));
    Ok(())
}

#[test]
fn delete_removes_an_item() -> anyhow::Result<()> {
    // wire 328
    let env = json!([{"name": "X", "$patch": "delete"}, {"name": "Z", "value": "3"}]);
    let result = patched(containers(json!([{"name": "a", "env": env}])))?;
    let left = json!([{"name": "Z", "value": "3"}, {"name": "Y", "value": "2"}]);
    assert_eq!(container(&result, 0)["env"], left);
    let result = patched(containers(json!([{"name": "b", "$patch": "delete"}])))?;
    assert_eq!(names(&result), ["a"]);
    Ok(())
}

#[test]
fn lists_without_a_key_are_replaced() -> anyhow::Result<()> {
    // wire 328
    let result = patched(containers(json!([{"name": "a", "args": ["9"]}])))?;
    assert_eq!(container(&result, 0)["args"], json!(["9"]));
    Ok(())
}

#[test]
fn the_element_order_is_followed() -> anyhow::Result<()> {
    // wire 328
    let patch = json!({"spec": {"template": {"spec": {
        "$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
        "containers": [{"name": "b", "image": "b:2"}],
    }}}});
    let result = patched(patch)?;
    assert_eq!(names(&result), ["b", "a"]);
    assert_eq!(container(&result, 0)["image"], "b:2");
    Ok(())
}

#[test]
fn replace_drops_what_was_there() -> anyhow::Result<()> {
    // wire 328
    let env = json!([{"$patch": "replace"}, {"name": "Q", "value": "q"}]);
    let result = patched(containers(json!([{"name": "a", "env": env}])))?;
    assert_eq!(container(&result, 0)["env"], json!([{"name": "Q", "value": "q"}]));
    let result = patched(json!({"spec": {"strategy": {"$patch": "replace", "type": "Recreate"}}}))?;
    assert_eq!(result["spec"]["strategy"], json!({"type": "Recreate"}));
    Ok(())
}

#[test]
fn replace_of_an_absent_map_adds_nothing() -> anyhow::Result<()> {
    // wire 328
    let result = patched(json!({"metadata": {"labels": {"$patch": "replace", "only": "1"}}}))?;
    assert_eq!(result, deployment());
    Ok(())
}

#[test]
fn scalars_leave_a_set_by_directive() -> anyhow::Result<()> {
    // wire 328
    let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}});
    assert_eq!(patched(patch)?["metadata"]["finalizers"], json!([]));
    Ok(())
}

#[test]
fn retained_keys_are_all_that_stays() -> anyhow::Result<()> {
    // wire 328
    let patch = json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}});
    assert_eq!(patched(patch)?["spec"]["strategy"], json!({"type": "Recreate"}));
    Ok(())
}

#[test]
fn items_need_their_key_and_directives_their_word() {
    // wire 328
    let error = patched(containers(json!([{"image": "x"}]))).map_err(|error| error.to_string());
    let text = "map: map[image:x] does not contain declared merge key: name";
    assert_eq!(error, Err(text.to_owned()));
    let error = patched(json!({"spec": {"template": {"$patch": "bogus"}}}));
    let text = "unknown patch type: bogus in map: map[$patch:bogus]";
    assert_eq!(error.map_err(|error| error.to_string()), Err(text.to_owned()));
}

// A34
#[test]
fn items_that_their_order_does_not_name_are_refused() {
    let of = |order: Value| json!({"$setElementOrder/containers": order, "containers": [{"name": "a", "image": "a:2"}, {"name": "c"}]});
    let wrapped = |order: Value| json!({"spec": {"template": {"spec": of(order)}}});
    let error = patched(wrapped(json!([{"name": "a"}, {"name": "b"}]))).map_err(|error| error.to_string());
    let text = "The order in patch list:\n[map[image:a:2 name:a] map[name:c]]\n doesn't match $setElementOrder list:\n\
                [map[name:a] map[name:b]]\n";
    assert_eq!(error, Err(text.to_owned()));
    assert!(patched(wrapped(json!([{"name": "c"}, {"name": "a"}]))).is_err(), "the other way round");
    assert!(patched(wrapped(json!([{"name": "a"}, {"name": "b"}, {"name": "c"}]))).is_ok());
}

// A31
#[test]
fn long_lists_merge_in_linear_time() -> anyhow::Result<()> {
    let names: Vec<String> = (0..50_000).map(|number| format!("example.com/{number}")).collect();
    let items: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
    let patch =
        json!({"metadata": {"finalizers": names}, "spec": {"template": {"spec": {"containers": items}}}});
    let result = patched(patch)?;
    assert_eq!(result["metadata"]["finalizers"].as_array().map(Vec::len), Some(50_001));
    Ok(())
}
