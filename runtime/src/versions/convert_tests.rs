//! Conversions of single objects, and what they keep.

use serde_json::json;

use super::{
    super::testing::{Shop, v1alpha1, v1beta1},
    *,
};

fn conversions() -> Conversions<Shop> {
    Conversions::new()
}

fn converted(object: &Value, version: &str) -> Value {
    conversions().convert(object, &format!("shops.dev/{version}")).unwrap()
}

fn shop() -> Value {
    json!({
        "apiVersion": "shops.dev/v1", "kind": "Shop",
        "metadata": {"name": "a", "namespace": "shop", "uid": "7", "labels": {"x": "y"},
            "managedFields": [{"manager": "kubectl"}], "finalizers": ["x.dev/y"], "unheard": 1},
        "spec": {"size": {"least": 2, "most": 5}, "note": "n",
            "ports": [{"name": "a", "port": 1, "app": "web"}, {"name": "b", "port": 2}]},
    })
}

#[test]
fn what_a_spoke_does_not_know_is_kept_and_restored() {
    let old = converted(&shop(), "v1alpha1");
    assert_eq!(
        old["spec"],
        json!({"size": 2, "ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}]})
    );
    assert!(old["metadata"]["annotations"][LOST_ANNOTATION].is_string(), "{old}");
    assert_eq!(converted(&old, "v1"), shop());
    // A user of the old version edits.
    let mut edited = old.clone();
    edited["spec"]["size"] = 9.into();
    edited["spec"]["ports"] = json!([{"name": "b", "port": 3}, {"name": "a", "port": 1}]);
    let back = converted(&edited, "v1");
    assert_eq!(back["spec"]["size"], json!({"least": 9, "most": 9}), "nothing stale comes back");
    let ports = json!([{"name": "b", "port": 3}, {"name": "a", "port": 1, "app": "web"}]);
    assert_eq!(back["spec"]["ports"], ports);
    assert_eq!(back["spec"]["note"], "n");
    assert_eq!(back["metadata"].get("annotations"), None);
}

#[test]
fn metadata_is_copied_but_for_labels_and_annotations() {
    let old = converted(&shop(), "v1alpha1");
    let mut metadata = old["metadata"].clone();
    metadata.as_object_mut().unwrap().remove("annotations");
    assert_eq!(metadata, shop()["metadata"]);
    // This version's `From` passes no metadata on.
    let mut object = shop();
    object["metadata"]["annotations"] = json!({"a": "b"});
    let other = converted(&object, "v1beta1");
    assert_eq!(other["metadata"], object["metadata"]);
    assert_eq!(other["spec"]["legacy"], json!(null));
    // While an object is being created it has no UID, and perhaps no name.
    object["metadata"].as_object_mut().unwrap().remove("uid");
    object["metadata"]["name"] = "".into();
    assert_eq!(converted(&object, "v1beta1")["metadata"], object["metadata"]);
}

/// Users who may write the old version may write the annotation as well.
#[test]
fn an_annotation_changes_nothing_that_the_object_shows() {
    let mut old = converted(&shop(), "v1alpha1");
    let honest = old["metadata"]["annotations"][LOST_ANNOTATION].as_str().unwrap().to_owned();
    let size = r#"{"path":"/spec/size","lost":{"least":7,"most":7},"back":{"least":2,"most":2}}"#;
    old["metadata"]["annotations"][LOST_ANNOTATION] = format!(r#"{{"v1":[{size}]}}"#).into();
    assert_eq!(converted(&old, "v1")["spec"]["size"], json!({"least": 2, "most": 2}));
    // Such a value takes nothing else with it.
    let mixed = honest.replacen('[', &format!("[{size},"), 1);
    assert_ne!(mixed, honest);
    old["metadata"]["annotations"][LOST_ANNOTATION] = mixed.into();
    let mixed = converted(&old, "v1");
    assert_eq!((&mixed["spec"]["note"], &mixed["spec"]["size"]["least"]), (&json!("n"), &json!(2)));
    old["metadata"]["annotations"][LOST_ANNOTATION] = honest.into();
    assert_eq!(converted(&old, "v1")["spec"]["size"], json!({"least": 2, "most": 5}));
}

#[test]
fn what_no_annotation_can_hold_is_an_error_that_names_the_object() {
    let with_ports = |number: i32| {
        let port = |port: i32| json!({"name": format!("port-{port}"), "port": port, "app": "web"});
        let mut object = shop();
        object["spec"]["ports"] = (0..number).map(port).collect();
        object
    };
    let some = with_ports(300);
    assert_eq!(converted(&converted(&some, "v1alpha1"), "v1"), some);
    let refused = conversions().convert(&with_ports(6_000), "shops.dev/v1alpha1").unwrap_err().to_string();
    let why = "Shop shop/a of shops.dev/v1: metadata.annotations: what v1alpha1 can't express makes them";
    assert!(refused.starts_with(why), "{refused}");
}

#[test]
fn the_losses_of_two_spokes_do_not_mix() {
    let mut beta = converted(&shop(), "v1beta1");
    beta["spec"]["legacy"] = "old".into();
    let stored = converted(&beta, "v1");
    assert_eq!(stored["spec"], shop()["spec"]);
    let mut alpha = converted(&stored, "v1alpha1");
    alpha["spec"]["size"] = 3.into();
    let stored = converted(&alpha, "v1");
    assert_eq!(stored["spec"]["size"], json!({"least": 3, "most": 3}));
    assert_eq!(converted(&stored, "v1beta1")["spec"]["legacy"], "old");
    assert_eq!(converted(&alpha, "v1beta1")["spec"]["legacy"], "old");
}

#[test]
fn fields_that_no_schema_knows_survive() {
    let mut object = shop();
    object["spec"]["newer"] = json!({"a": [1]});
    object["spec"]["ports"][1]["newer"] = 5.into();
    let old = converted(&object, "v1alpha1");
    assert_eq!(old["spec"]["newer"], json!({"a": [1]}));
    let back = |old: &Value| {
        let mut back = converted(old, "v1");
        back["metadata"].as_object_mut().unwrap().remove("annotations");
        back
    };
    assert_eq!(back(&old), object);
    // An API server that does not know them either removes them.
    let mut pruned = old;
    pruned["spec"].as_object_mut().unwrap().remove("newer");
    assert_eq!(back(&pruned), object);
}

#[test]
fn an_object_that_cannot_be_converted_names_itself_and_the_field() {
    let refused = |change: fn(&mut Value), to: &str| {
        let mut object = shop();
        change(&mut object);
        conversions().convert(&object, to).unwrap_err().to_string()
    };
    for (change, to, error) in [
        (
            (|shop| shop["spec"]["size"]["least"] = "x".into()) as fn(&mut Value),
            "shops.dev/v1alpha1",
            "Shop shop/a of shops.dev/v1: spec.size.least: invalid type: string \"x\", expected i32",
        ),
        (
            |_| {},
            "shops.dev/v2",
            "Shop shop/a of shops.dev/v1: apiVersion: \"shops.dev/v2\" is not a version of this \
            program: it knows shops.dev/v1, shops.dev/v1beta1, shops.dev/v1alpha1",
        ),
        (
            |shop| shop["apiVersion"] = 3.into(),
            "shops.dev/v1",
            "Shop shop/a of : apiVersion: \"\" is not a version",
        ),
        (
            |shop| shop["kind"] = "Cart".into(),
            "shops.dev/v1",
            "Cart shop/a of shops.dev/v1: kind: it is not a Shop",
        ),
        (|shop| shop["spec"]["note"] = "panic".into(), "shops.dev/v1alpha1", "the conversion panicked"),
        (
            |shop| shop["metadata"] = "x".into(),
            "shops.dev/v1alpha1",
            "Shop  of shops.dev/v1: metadata: invalid type",
        ),
        (|shop| *shop = Value::Null, "shops.dev/v1", "apiVersion: \"\" is not a version"),
    ] {
        let found = refused(change, to);
        assert!(found.contains(error), "{found}");
    }
}

#[test]
fn one_definition_has_all_versions_and_the_hub_is_stored() {
    let definition = conversions().definition().unwrap();
    let versions: Vec<_> =
        definition.spec.versions.iter().map(|one| (one.name.as_str(), one.storage)).collect();
    assert_eq!(versions, [("v1", true), ("v1beta1", false), ("v1alpha1", false)]);
    assert_eq!(conversions().versions(), ["v1", "v1beta1", "v1alpha1"]);
    let _ = (v1alpha1::Shop::crd_name(), v1beta1::Shop::crd_name());
}
