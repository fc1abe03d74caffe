//! Checks what merge patches hold, and what of a list stays.

use serde_json::json;

use super::*;

fn patch(old: &Value, new: &Value, raw: &Value) -> Value {
    difference(old, new, raw).expect("they differ")
}

// W9
#[test]
fn a_difference_holds_what_changed_and_nulls_what_went() {
    let old = json!({ "a": 1, "b": { "c": 1, "d": 2 }, "e": [1], "f": "x" });
    let new = json!({ "a": 1, "b": { "c": 2, "d": 2 }, "e": [1, 2] });
    let patch = patch(&old, &new, &Value::Null);
    assert_eq!(patch, json!({ "b": { "c": 2 }, "e": [1, 2], "f": null }));
    assert_eq!(difference(&old, &old, &Value::Null), None);
    assert_eq!(difference(&Value::Null, &new, &Value::Null), Some(new));
}

// W9
#[test]
fn a_patch_may_be_resent_only_over_what_it_replaces_unchanged() {
    let patch = json!({ "mine": { "n": 2 }, "list": [2] });
    let base = json!({ "mine": { "n": 1 }, "list": [1] });
    let elsewhere = json!({ "mine": { "n": 1, "x": 9 }, "list": [1], "theirs": true });
    let clash = json!({ "mine": { "n": 1 }, "list": [1, 5] });
    assert!(replaces_the_same(&patch, &base, &elsewhere));
    assert!(!replaces_the_same(&patch, &base, &clash));
}

// W12
#[test]
fn elements_keep_what_their_type_does_not_know_changed_or_not() {
    let old = json!({ "conditions": [
        { "type": "Theirs", "status": "True" },
        { "type": "Ours", "status": "False", "message": "wait" },
    ] });
    let raw = json!({ "conditions": [
        { "type": "Theirs", "status": "True", "observedGeneration": 4 },
        { "type": "Ours", "status": "False", "message": "wait", "observedGeneration": 3 },
    ] });
    let new = json!({ "conditions": [
        { "type": "New", "status": "True" },
        { "type": "Ours", "status": "True" },
        { "type": "Theirs", "status": "True" },
    ] });
    assert_eq!(
        patch(&old, &new, &raw),
        json!({ "conditions": [
            { "type": "New", "status": "True" },
            { "type": "Ours", "status": "True", "observedGeneration": 3 },
            { "type": "Theirs", "status": "True", "observedGeneration": 4 },
        ] }),
        "and what the type knows and leaves out goes"
    );
}

// W12
#[test]
fn an_element_that_went_takes_what_was_unknown_of_it_along() {
    let old = json!({ "parts": [{ "size": 1 }, { "size": 2 }] });
    let raw = json!({ "parts": [{ "size": 1, "x": "one" }, { "size": 2, "x": "two" }] });
    let new = json!({ "parts": [{ "size": 2 }, { "size": 3 }] });
    assert_eq!(patch(&old, &new, &raw), json!({ "parts": [{ "size": 2, "x": "two" }, { "size": 3 }] }));
}

// W12
#[test]
fn nested_lists_and_equal_elements_keep_theirs_each() {
    let old = json!({ "all": [{ "name": "a", "ports": [{ "name": "p", "n": 1 }] }, { "n": 5 }, { "n": 5 }] });
    let raw = json!({ "all": [
        { "name": "a", "ports": [{ "name": "p", "n": 1, "x": 1 }], "y": 1 }, { "n": 5, "z": 1 }, { "n": 5, "z": 2 },
    ] });
    let new = json!({ "all": [{ "name": "a", "ports": [{ "name": "p", "n": 2 }] }, { "n": 5 }, { "n": 5 }] });
    let kept = json!({ "all": [
        { "name": "a", "ports": [{ "name": "p", "n": 2, "x": 1 }], "y": 1 }, { "n": 5, "z": 1 }, { "n": 5, "z": 2 },
    ] });
    assert_eq!(patch(&old, &new, &raw), kept);
}

// W12
#[test]
fn a_type_that_reorders_a_list_gives_no_element_what_another_had() {
    let old = json!({ "set": [{ "name": "a", "n": 1 }, { "name": "b", "n": 1 }] });
    let raw = json!({ "set": [{ "name": "b", "n": 1, "x": "of b" }, { "name": "a", "n": 1, "x": "of a" }] });
    let new = json!({ "set": [{ "name": "a", "n": 1 }, { "name": "b", "n": 2 }] });
    assert_eq!(
        patch(&old, &new, &raw),
        json!({ "set": [{ "name": "a", "n": 1, "x": "of a" }, { "name": "b", "n": 2, "x": "of b" }] })
    );
    let nameless = json!({ "set": [{ "n": 1 }, { "n": 2 }] });
    let reordered = json!({ "set": [{ "n": 2, "x": 2 }, { "n": 1, "x": 1 }] });
    let new = json!({ "set": [{ "n": 1 }] });
    assert_eq!(patch(&nameless, &new, &reordered), json!({ "set": [{ "n": 1, "x": 1 }] }));
}

// W12
#[test]
fn one_name_that_two_elements_bear_tells_nothing() {
    let old = json!({ "at": [{ "type": "IP", "a": 1 }, { "type": "IP", "a": 2 }] });
    let raw = json!({ "at": [{ "type": "IP", "a": 1, "zone": "x" }, { "type": "IP", "a": 2, "zone": "y" }] });
    let new = json!({ "at": [{ "type": "IP", "a": 2 }, { "type": "IP", "a": 3 }] });
    assert_eq!(
        patch(&old, &new, &raw),
        json!({ "at": [{ "type": "IP", "a": 2, "zone": "y" }, { "type": "IP", "a": 3 }] })
    );
}

// W22
#[test]
fn elements_that_a_number_or_two_fields_tell_apart_keep_what_their_type_does_not_know() {
    for (case, old, new) in [
        ("port", json!([{ "port": 80, "up": 1 }, { "port": 81, "up": 1 }]), json!([{ "port": 81, "up": 2 }])),
        ("index", json!([{ "index": 0, "at": "a" }]), json!([{ "index": 0, "at": "b" }])),
        (
            "port and protocol",
            json!([{ "port": 53, "protocol": "TCP", "up": 1 }, { "port": 53, "protocol": "UDP", "up": 1 }]),
            json!([{ "port": 53, "protocol": "UDP", "up": 2 }, { "port": 53, "protocol": "TCP", "up": 3 }]),
        ),
        (
            "name and namespace",
            json!([{ "name": "a", "namespace": "x", "n": 1 }, { "name": "a", "namespace": "y", "n": 1 }]),
            json!([{ "name": "a", "namespace": "z", "n": 7 }, { "name": "a", "namespace": "y", "n": 2 }]),
        ),
        (
            "a name, and a namespace that one lacks",
            json!([{ "name": "a", "namespace": "x", "n": 1 }, { "name": "a", "namespace": "y", "n": 1 }, { "name": "b", "n": 1 }]),
            json!([{ "name": "b", "n": 2 }, { "name": "a", "namespace": "y", "n": 2 }]),
        ),
        (
            "a type, or a name where there is none",
            json!([{ "type": "T", "n": 1 }, { "name": "b", "n": 1 }]),
            json!([{ "name": "b", "n": 2 }, { "type": "T", "n": 2 }]),
        ),
        (
            "a type that several have, and a name",
            json!([{ "type": "T", "name": "a", "n": 1 }, { "type": "T", "name": "b", "n": 1 }]),
            json!([{ "type": "T", "name": "b", "n": 2 }, { "type": "T", "name": "a", "n": 2 }]),
        ),
        (
            "a number of another name",
            json!([{ "shard": 0, "phase": "A" }, { "shard": 1, "phase": "A" }]),
            json!([{ "shard": 0, "phase": "B" }, { "shard": 1, "phase": "A" }]),
        ),
        (
            "two fields of other names",
            json!([{ "from": "a", "to": "b", "lag": 1 }, { "from": "a", "to": "c", "lag": 1 }]),
            json!([{ "from": "a", "to": "b", "lag": 2 }, { "from": "a", "to": "c", "lag": 1 }]),
        ),
    ] {
        // What the type does not know names the element that it belongs to.
        let mark = |list: &Value| {
            let mut list = list.clone();
            for element in list.as_array_mut().unwrap() {
                let of = |name: &str| element[name].to_string();
                let fields =
                    ["type", "name", "namespace", "port", "protocol", "index", "shard", "from", "to"];
                let mark = fields.map(of).join(" ");
                element["unknown"] = json!(mark);
            }
            list
        };
        let (of, raw) = (|list: &Value| json!({ "list": list }), mark(&old));
        let known: Vec<_> = raw.as_array().unwrap().iter().map(|element| &element["unknown"]).collect();
        let mut expected = mark(&new);
        for element in expected.as_array_mut().unwrap() {
            if !known.contains(&&element["unknown"]) {
                element.as_object_mut().unwrap().remove("unknown");
            }
        }
        assert_eq!(patch(&of(&old), &of(&new), &of(&raw)), of(&expected), "{case}");
    }
}

// W22
#[test]
fn a_value_that_two_elements_share_by_chance_gives_one_nothing_of_the_other() {
    for (old, new) in [
        (json!([{ "region": "eu", "replicas": 3 }]), json!([{ "region": "us", "replicas": 3 }])),
        (
            json!([{ "region": "eu", "replicas": 3 }, { "region": "us", "replicas": 5 }]),
            json!([{ "region": "asia", "replicas": 3 }, { "region": "africa", "replicas": 7 }]),
        ),
        (json!([{ "port": 80, "protocol": "TCP" }]), json!([{ "port": 81, "protocol": "TCP" }])),
    ] {
        let mut raw = old.clone();
        raw.as_array_mut().unwrap().iter_mut().for_each(|element| element["unknown"] = json!(1));
        let of = |list: &Value| json!({ "list": list });
        assert_eq!(patch(&of(&old), &of(&new), &of(&raw)), of(&new));
    }
    let (old, new) = (
        json!([{ "n": 0, "at": 3 }, { "n": 1, "at": 4 }]),
        json!([{ "n": 0, "at": 4 }, { "n": 1, "at": 3 }]),
    );
    let raw = json!([{ "n": 0, "at": 3, "x": 0 }, { "n": 1, "at": 4, "x": 1 }]);
    let kept = json!([{ "n": 0, "at": 4, "x": 0 }, { "n": 1, "at": 3, "x": 1 }]);
    let of = |list: Value| json!({ "list": list });
    assert_eq!(patch(&of(old), &of(new), &of(raw)), of(kept), "elements keep their places");
}

#[test]
fn only_lists_of_objects_hold_what_a_type_may_not_know() {
    let base = json!({ "names": ["a"], "at": { "parts": [[{ "n": 1 }]] }, "none": [], "n": 1 });
    for (patch, holds) in [
        (json!({ "names": ["b"], "n": 2 }), false),
        (json!({ "none": [{ "n": 1 }] }), false),
        (json!({ "at": { "parts": [] } }), true),
        (json!({ "at": null }), false),
    ] {
        assert_eq!(replaces_elements(&patch, &base), holds, "{patch}");
    }
}

// W12
#[test]
fn what_an_answer_lacks_is_named_by_its_path_and_empty_values_are_not() {
    let sent = json!({
        "kept": 1, "gone": "x", "went": null, "zero": 0, "off": false, "none": [], "deep": { "in": { "x": 1 } },
        "list": [{ "a": 1 }, { "b": 2, "c": "" }], "shell": { "n": 0 },
    });
    let answer = json!({ "kept": 2, "deep": {}, "list": [{ "a": 1 }, {}] });
    assert_eq!(dropped(&sent, &answer), ["status.deep.in", "status.gone", "status.list[1].b"]);
    assert_eq!(dropped(&json!({ "a": 1 }), &Value::Null), ["status"]);
}

#[test]
fn long_lists_are_compared_in_proportion_to_their_length() {
    let elements = |from: i32| Value::Array((from..from + 30_000).map(|n| json!({ "n": n })).collect());
    let (old, new) = (json!({ "list": elements(0) }), json!({ "list": elements(15_000) }));
    let patch = patch(&old, &new, &old);
    assert_eq!(patch["list"].as_array().unwrap().len(), 30_000);
}
