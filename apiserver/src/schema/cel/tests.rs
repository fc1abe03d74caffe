//! Rules of definitions: which are refused, what they cost, and what they say of objects.

use serde_json::{Value, json};

use crate::schema::Schema;

fn of(spec: &Value) -> Schema {
    Schema::from_crd(&json!({"type": "object", "properties": {"spec": spec}})).expect("a structural schema")
}

fn refused(spec: &Value) -> Vec<String> {
    let found = Schema::from_crd(&json!({"type": "object", "properties": {"spec": spec}}));
    found.err().unwrap_or_default().into_iter().map(|error| error.to_string()).collect()
}

#[track_caller]
fn says(schema: &Schema, new: &Value, old: Option<&Value>) -> Vec<String> {
    let (new, old) = (json!({"spec": new}), old.map(|old| json!({"spec": old})));
    schema.rule_errors(&new, old.as_ref()).into_iter().map(|error| error.to_string()).collect()
}

const NOTHING: [&str; 0] = [];

fn integer(rule: &Value) -> Value {
    json!({"type": "object", "properties": {"n": {"type": "integer", "x-kubernetes-validations": [rule]}}})
}

// wire 506
#[test]
fn a_violation_is_told_with_its_message_its_reason_and_its_path() {
    let schema = of(&json!({
        "type": "object",
        "properties": {
            "min": {"type": "integer"}, "max": {"type": "integer"},
            "tag": {"type": "string", "x-kubernetes-validations": [
                {"rule": "self.startsWith('t-')", "messageExpression": "'tag ' + self + ' must start with t-'"},
            ]},
            "n": {"type": "integer", "x-kubernetes-validations": [
                {"rule": "self > 0"}, {"rule": "self != 13", "message": "unlucky", "reason": "FieldValueForbidden"},
            ]},
        },
        "x-kubernetes-validations": [{"rule": "!has(self.min) || !has(self.max) || self.min <= self.max",
                                      "message": "min must not exceed max", "fieldPath": ".min"}],
    }));
    assert_eq!(says(&schema, &json!({"min": 1, "max": 2, "tag": "t-a", "n": 1}), None), NOTHING);
    assert_eq!(
        says(&schema, &json!({"min": 3, "max": 2}), None),
        ["spec.min: Invalid value: min must not exceed max"]
    );
    assert_eq!(
        says(&schema, &json!({"tag": "x"}), None),
        ["spec.tag: Invalid value: \"x\": tag x must start with t-"]
    );
    assert_eq!(says(&schema, &json!({"n": 0}), None), ["spec.n: Invalid value: 0: failed rule: self > 0"]);
    assert_eq!(says(&schema, &json!({"n": 13}), None), ["spec.n: Forbidden: unlucky"]);
}

// A20, wire 506
#[test]
fn rules_of_change_see_the_old_value() {
    let fixed = of(&integer(&json!({"rule": "self == oldSelf", "message": "fixed"})));
    assert_eq!(says(&fixed, &json!({"n": 1}), None), NOTHING);
    assert_eq!(says(&fixed, &json!({"n": 1}), Some(&json!({}))), NOTHING);
    assert_eq!(says(&fixed, &json!({"n": 2}), Some(&json!({"n": 1}))), ["spec.n: Invalid value: 2: fixed"]);
    let up = of(&integer(&json!({
        "rule": "!oldSelf.hasValue() || self >= oldSelf.value()", "optionalOldSelf": true, "message": "only up",
    })));
    assert_eq!(says(&up, &json!({"n": 5}), None), NOTHING);
    assert_eq!(says(&up, &json!({"n": 6}), Some(&json!({"n": 5}))), NOTHING);
    assert_eq!(says(&up, &json!({"n": 4}), Some(&json!({"n": 5}))), ["spec.n: Invalid value: 4: only up"]);
}

// A20
#[test]
fn items_of_keyed_lists_and_maps_find_their_old_values() {
    let rule = json!([{"rule": "self.v >= oldSelf.v", "message": "shrinks"}]);
    let item = json!({
        "type": "object", "required": ["k"],
        "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}, "x-kubernetes-validations": rule,
    });
    let list = json!({
        "type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
    });
    let schema = of(&json!({"type": "object", "properties": {
        "list": list, "map": {"type": "object", "additionalProperties": item},
    }}));
    let old = json!({"list": [{"k": "a", "v": 1}, {"k": "b", "v": 5}], "map": {"x": {"k": "a", "v": 5}}});
    let new = json!({"list": [{"k": "b", "v": 4}, {"k": "c", "v": 0}], "map": {"x": {"k": "a", "v": 4}}});
    assert_eq!(
        says(&schema, &new, Some(&old)),
        ["spec.list[0]: Invalid value: shrinks", "spec.map[x]: Invalid value: shrinks"]
    );
}

// A20, wire 511
#[test]
fn an_unchanged_value_may_violate_a_rule_that_came_later() {
    let schema = of(&integer(&json!({"rule": "self > 5"})));
    assert_eq!(says(&schema, &json!({"n": 1}), Some(&json!({"n": 1}))), NOTHING);
    assert_eq!(says(&schema, &json!({"n": 2}), Some(&json!({"n": 1}))).len(), 1);
}

// wire 506
#[test]
fn a_rule_that_fails_to_run_names_the_type_and_the_rule() {
    let schema = of(&integer(&json!({"rule": "10 / self > 0", "message": "div"})));
    assert_eq!(
        says(&schema, &json!({"n": 0}), None),
        ["spec.n: Invalid value: \"integer\": division by zero evaluating rule: div"]
    );
}

#[test]
fn values_have_the_types_of_the_schema() {
    for (property, value, rule) in [
        (json!({"type": "number"}), json!(2), "self.v / 4.0 == 0.5"),
        (json!({"type": "integer"}), json!(2.0), "self.v / 4 == 0"),
        (
            json!({"type": "string", "format": "date-time"}),
            json!("2020-01-01T00:00:00Z"),
            "self.v.getFullYear() == 2020",
        ),
        (json!({"type": "string", "format": "duration"}), json!("90s"), "self.v < duration('2m')"),
        (json!({"type": "string", "format": "byte"}), json!("AAEC"), "self.v.size() == 3"),
        (
            json!({"x-kubernetes-int-or-string": true}),
            json!("25%"),
            "type(self.v) == string && self.v == '25%'",
        ),
        (json!({"x-kubernetes-int-or-string": true}), json!(7), "type(self.v) != string && dyn(self.v) > 5"),
        (
            json!({"type": "array", "items": {"type": "string"}}),
            json!(["a", "b"]),
            "self.v.all(x, x in ['a', 'b'])",
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "integer"}}),
            json!({"a-b": 1}),
            "self.v['a-b'] == 1",
        ),
        (
            json!({"type": "object", "properties": {"a-b": {"type": "integer"}}}),
            json!({"a-b": 1}),
            "self.v.a__dash__b == 1",
        ),
        (
            json!({"type": "object", "properties": {"a_b": {"type": "integer"}}}),
            json!({"a_b": 1}),
            "self.v.a_b == 1",
        ),
        (json!({"type": "string"}), json!("1Gi"), "quantity(self.v).isGreaterThan(quantity('500Mi'))"),
        (json!({"type": "string"}), json!("10.0.0.1"), "isIP(self.v)"),
    ] {
        let schema = of(&json!({
            "type": "object", "properties": {"v": property}, "x-kubernetes-validations": [{"rule": rule}],
        }));
        assert_eq!(says(&schema, &json!({"v": value}), None), NOTHING, "{rule}");
    }
}

#[test]
fn rules_at_the_root_see_the_names() {
    let schema =
        json!({"type": "object", "x-kubernetes-validations": [{"rule": "self.metadata.name.size() < 5"}]});
    let schema = Schema::from_crd(&schema).expect("structural");
    let named =
        |name: &str| schema.rule_errors(&json!({"kind": "W", "metadata": {"name": name, "uid": "u"}}), None);
    assert!(named("a").is_empty());
    assert_eq!(
        named("abcdef")[0].to_string(),
        "<nil>: Invalid value: failed rule: self.metadata.name.size() < 5"
    );
}

#[test]
fn rules_see_the_metadata_that_an_embedded_object_declares() {
    let embedded = |properties: &Value| {
        json!({
            "type": "object",
            "properties": {"t": {
                "type": "object", "x-kubernetes-embedded-resource": true, "properties": properties,
            }},
            "x-kubernetes-validations": [{"rule": "self.t.metadata.namespace != 'b'"}],
        })
    };
    let text = json!({"type": "string"});
    let metadata = json!({"name": text, "generateName": text, "namespace": text});
    let declared = json!({
        "kind": text, "apiVersion": text, "metadata": {"type": "object", "properties": metadata},
    });
    let schema = of(&embedded(&declared));
    let value = |namespace: &str| json!({"t": {"apiVersion": "v1", "kind": "A", "metadata": {"namespace": namespace}}});
    assert_eq!(says(&schema, &value("a"), None), NOTHING);
    assert_eq!(
        says(&schema, &value("b"), None),
        ["spec: Invalid value: failed rule: self.t.metadata.namespace != 'b'"]
    );
    let bare = json!({"kind": text, "apiVersion": text});
    let other = json!({"type": "object", "properties": {"name": text, "generateName": text}});
    let other = json!({"kind": text, "apiVersion": text, "metadata": other});
    for properties in [bare, other] {
        let errors = refused(&embedded(&properties));
        assert!(errors.len() == 1 && errors[0].contains("undefined field 'namespace'"), "{errors:?}");
    }
}

// wire 502
#[test]
fn a_definition_with_rules_that_make_no_sense_is_refused() {
    let rule = |text: &str| refused(&integer(&json!({"rule": text})));
    let at = "spec.validation.openAPIV3Schema.properties[spec].properties[n].x-kubernetes-validations[0]";
    let shown = |text: &str| {
        format!(
            "{{\"Rule\":\"{text}\",\"Message\":\"\",\"MessageExpression\":\"\",\"Reason\":null,\"FieldPath\":\"\",\"OptionalOldSelf\":null}}"
        )
    };
    assert_eq!(
        rule("self.foo > 1"),
        [format!(
            "{at}.rule: Invalid value: {}: compilation failed: ERROR: <input>:1:5: type 'int' does not support field \
             selection\n | self.foo > 1\n | ....^",
            shown("self.foo \\u003e 1")
        )]
    );
    assert_eq!(
        rule("self + 1"),
        [format!("{at}.rule: Invalid value: {}: cel expression must evaluate to a bool", shown("self + 1"))]
    );
    assert_eq!(rule(""), [format!("{at}.rule: Required value: rule is not specified")]);
    for text in [
        "self >",
        "other > 1",
        "self.startsWith('a')",
        "self == 'a'",
        "selfie(self)",
        "self > 1 && 3",
        "[1].all(x, y)",
    ] {
        let found = rule(text);
        assert!(
            found.len() == 1 && found[0].contains("compilation failed: ERROR: <input>:1:"),
            "{text}: {found:?}"
        );
    }
}

#[test]
fn what_else_a_rule_says_is_checked() {
    let at = |what: &str| {
        format!(
            "spec.validation.openAPIV3Schema.properties[spec].properties[n].x-kubernetes-validations[0].{what}"
        )
    };
    for (rule, field, why) in [
        (
            json!({"rule": "true", "reason": "Nope"}),
            "reason",
            "Unsupported value: \"Nope\": supported values: ",
        ),
        (json!({"rule": "true", "message": "a\nb"}), "message", "must not contain line breaks"),
        (json!({"rule": "true", "messageExpression": "1"}), "messageExpression", "must evaluate to a string"),
        (json!({"rule": "true", "fieldPath": ".x"}), "fieldPath", "must be a valid path"),
        (
            json!({"rule": "true", "optionalOldSelf": true}),
            "optionalOldSelf",
            "may not be set if oldSelf is not used in rule",
        ),
    ] {
        let found = refused(&integer(&rule));
        assert!(
            found.len() == 1 && found[0].starts_with(&at(field)) && found[0].contains(why),
            "{rule}: {found:?}"
        );
    }
    let list = json!({"type": "array", "items": {"type": "integer", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}});
    let found = refused(&list);
    assert!(found.len() == 1 && found[0].contains("uncorrelatable portion of the schema"), "{found:?}");
}

// A20
#[test]
fn costly_rules_are_cut_off_before_they_run() {
    let nested = "self.all(a, self.all(b, self.all(c, a + b + c >= 0)))";
    let schema = of(
        &json!({"type": "array", "items": {"type": "integer"}, "x-kubernetes-validations": [{"rule": nested}]}),
    );
    assert_eq!(says(&schema, &json!([1, 2, 3]), None), NOTHING);
    let many: Vec<u32> = (0..1000).collect();
    let found = says(&schema, &json!(many), None);
    assert!(found.len() == 1 && found[0].contains("actual cost limit exceeded"), "{found:?}");
    let doubling = format!("self.v{} != ''", ".replace('a', 'aaaaaaaaaaaaaaaaaaaa')".repeat(60));
    let schema = of(&json!({
        "type": "object", "properties": {"v": {"type": "string"}}, "x-kubernetes-validations": [{"rule": doubling}],
    }));
    let found = says(&schema, &json!({"v": "a"}), None);
    assert!(found.len() == 1 && found[0].contains("actual cost limit exceeded"), "{found:?}");
}

// A32
#[test]
fn what_a_rule_would_make_is_bounded_before_it_runs() {
    let replacing = |times| format!("self.v{} != ''", ".replace('a', 'aaaaaaaaaa')".repeat(times));
    let doubling = |times| {
        let doubled: String = (0..times).map(|time| format!(".map(x{time}, x{time} + x{time})")).collect();
        format!("[self.v]{doubled}[0] != ''")
    };
    let joining = |times| format!("self.v{} != ''", ".split('').join('aaaaaaaa')".repeat(times));
    let printing = |times| {
        format!("{} != ''", (0..times).fold("self.v".to_owned(), |v, _| format!("'%s%s'.format([{v}, {v}])")))
    };
    let growing: [&dyn Fn(usize) -> String; 4] = [&replacing, &doubling, &joining, &printing];
    for (number, rule) in growing.into_iter().enumerate() {
        let of = |times: usize| {
            of(&json!({
                "type": "object", "properties": {"v": {"type": "string"}},
                "x-kubernetes-validations": [{"rule": rule(times)}],
            }))
        };
        assert_eq!(says(&of(2), &json!({"v": "a"}), None), NOTHING, "{number}");
        let found = says(&of(if number == 3 { 8 } else { 20 }), &json!({"v": "aaaa"}), None);
        let refused = number == 3 || found.iter().any(|text| text.contains("actual cost limit exceeded"));
        assert!(refused, "{number}: {found:?}");
    }
}

// A32
#[test]
fn usual_rules_are_well_within_the_budget() {
    let item = json!({
        "type": "object",
        "properties": {"name": {"type": "string"}, "ports": {"type": "array", "items": {"type": "integer"}}},
    });
    let of = |rule: &str| {
        of(&json!({
            "type": "object", "properties": {"items": {"type": "array", "items": item}},
            "x-kubernetes-validations": [{"rule": rule}],
        }))
    };
    let items: Vec<Value> =
        (0..100).map(|n| json!({"name": format!("item-{n}"), "ports": [n, n + 1000]})).collect();
    for rule in [
        "self.items.all(a, self.items.exists_one(b, a.name == b.name))",
        "self.items.map(a, a.name).all(name, name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$'))",
        "self.items.all(a, a.ports.all(port, port >= 0 && port < 65536))",
        "self.items.map(a, a.name).join(',').split(',').size() == self.items.size()",
        "self.items.filter(a, a.name.startsWith('item')).size() == size(self.items)",
        "self.items.all(a, a.name.replace('-', '_').lowerAscii() != '')",
    ] {
        assert_eq!(says(&of(rule), &json!({ "items": items }), None), NOTHING, "{rule}");
    }
}

#[test]
fn long_rules_of_many_short_parts_are_taken() {
    let parts: Vec<String> = (0..60).map(|n| format!("self != {n}")).collect();
    assert_eq!(refused(&integer(&json!({"rule": parts.join(" && ")}))), NOTHING);
    let nested = format!("{}self > 0{}", "(".repeat(20), ")".repeat(20));
    assert_eq!(refused(&integer(&json!({"rule": nested}))), NOTHING);
}

#[test]
fn deep_and_long_rules_are_refused() {
    let sum = format!("self > 0{}", " + 1".repeat(20_000));
    for text in ["(".repeat(50_000), format!("{}true", "!".repeat(50_000)), "a".repeat(200_000), sum] {
        let found = refused(&integer(&json!({"rule": text})));
        assert!(found.len() == 1 && found[0].contains("compilation failed"), "{found:?}");
    }
}

// A47
#[test]
fn a_field_named_by_a_kept_word_is_named_plainly_and_escaped() {
    for word in super::KEPT {
        for rule in [
            format!("self.{word} == 'x'"),
            format!("self.__{word}__ == 'x'"),
            format!("has(self.{word}) && has(self.__{word}__)"),
        ] {
            let schema = of(&json!({
                "type": "object", "properties": {word: {"type": "string"}},
                "x-kubernetes-validations": [{"rule": rule, "message": "not x"}],
            }));
            assert_eq!(says(&schema, &json!({word: "x"}), None), NOTHING, "{rule}");
        }
        let rule = json!([{"rule": format!("self.{word} == 'x'"), "message": "not x"}]);
        let schema = of(&json!({
            "type": "object", "properties": {word: {"type": "string"}}, "x-kubernetes-validations": rule,
        }));
        assert_eq!(says(&schema, &json!({word: "y"}), None), ["spec: Invalid value: not x"], "{word}");
    }
    for word in super::GRAMMAR {
        let with = |rule: String| {
            json!({"type": "object", "properties": {word: {"type": "string"}},
                   "x-kubernetes-validations": [{"rule": rule}]})
        };
        assert_eq!(says(&of(&with(format!("self.__{word}__ == 'x'"))), &json!({word: "x"}), None), NOTHING);
        assert_eq!(refused(&with(format!("self.{word} == 'x'"))).len(), 1, "{word}");
    }
    // A key of a map is not a field: it has one form.
    let map = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let schema = of(&json!({
        "type": "object", "properties": {"map": map},
        "x-kubernetes-validations": [{"rule": "self.map.namespace == 'x' && size(self.map) == 1"}],
    }));
    assert_eq!(says(&schema, &json!({"map": {"namespace": "x"}}), None), NOTHING);
}

// A32
#[test]
fn a_literal_pattern_is_charged_once() {
    let schema = of(&json!({
        "type": "object",
        "properties": {"items": {"type": "array", "items": {"type": "string"}}},
        "x-kubernetes-validations": [{"rule": "self.items.all(name, name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$'))"}],
    }));
    let items: Vec<String> = (0..3_000).map(|n| format!("item-{n}")).collect();
    assert_eq!(says(&schema, &json!({ "items": items }), None), NOTHING);
}

#[test]
fn rules_of_a_schema_have_no_authorizer() {
    for rule in
        ["authorizer.path('/').check('get').allowed()", "authorizer.requestResource.check('get').allowed()"]
    {
        let found = refused(&integer(&json!({"rule": rule})));
        assert!(found.concat().contains("undeclared reference to 'authorizer'"), "{found:?}");
    }
    let found = refused(&integer(&json!({"rule": "self.check('get').allowed()"})));
    assert!(found.concat().contains("undeclared reference to 'check'"), "{found:?}");
}
