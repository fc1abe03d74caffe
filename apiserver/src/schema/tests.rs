//! The effects of schemas: pruning, defaults, refusals and messages, as on the real server.

use serde_json::{Value, json};

use super::error::FieldReason;
use super::*;

fn custom(spec: Value) -> Schema {
    let schema = json!({"type": "object", "properties": {
        "spec": spec,
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }});
    Schema::from_crd(&schema).expect("a structural schema")
}

fn fields(properties: Value) -> Schema {
    custom(json!({"type": "object", "properties": properties}))
}

fn widget(spec: Value) -> Value {
    json!({"apiVersion": "g/v1", "kind": "Widget", "metadata": {"name": "x"}, "spec": spec})
}

fn texts(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(FieldError::to_string).collect()
}

fn keywords() -> Schema {
    fields(json!({
        "i": {"type": "integer", "minimum": 1, "maximum": 9, "multipleOf": 2},
        "f": {"type": "number", "exclusiveMinimum": true, "minimum": 0},
        "b": {"type": "boolean"},
        "s": {"type": "string", "minLength": 2, "maxLength": 4, "pattern": "^[a-z]*$"},
        "e": {"type": "string", "enum": ["A", "B"]},
        "a": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "integer"}},
        "m": {
            "type": "object",
            "minProperties": 1,
            "maxProperties": 2,
            "additionalProperties": {"type": "integer"},
        },
        "dt": {"type": "string", "format": "date-time"},
        "uuid": {"type": "string", "format": "uuid"},
        "i32": {"type": "integer", "format": "int32"},
        "u": {"type": "integer", "minimum": 0.0},
        "by": {"type": "string", "format": "byte"},
        "one": {
            "type": "object",
            "properties": {"x": {"type": "string"}, "y": {"type": "string"}},
            "oneOf": [{"required": ["x"]}, {"required": ["y"]}],
        },
        "any": {
            "type": "object",
            "properties": {"x": {"type": "string"}, "y": {"type": "string"}},
            "anyOf": [{"required": ["x"]}, {"required": ["y"]}],
        },
        "not": {"type": "string", "not": {"enum": ["bad"]}},
        "ios": {"x-kubernetes-int-or-string": true},
    }))
}

#[test]
fn violations_are_told_in_the_servers_words() {
    // wire 503
    let schema = keywords();
    let cases = [
        (
            json!({"i": "2"}),
            "spec.i: Invalid value: \"string\": spec.i in body must be of type integer: \"string\"",
        ),
        (json!({"i": 0}), "spec.i: Invalid value: 0: spec.i in body should be greater than or equal to 1"),
        (json!({"i": 10}), "spec.i: Invalid value: 10: spec.i in body should be less than or equal to 9"),
        (json!({"i": 3}), "spec.i: Invalid value: 3: spec.i in body should be a multiple of 2"),
        (json!({"u": -1}), "spec.u: Invalid value: -1: spec.u in body should be greater than or equal to 0"),
        (json!({"f": 0}), "spec.f: Invalid value: 0: spec.f in body should be greater than 0"),
        (
            json!({"b": "true"}),
            "spec.b: Invalid value: \"string\": spec.b in body must be of type boolean: \"string\"",
        ),
        (json!({"s": "a"}), "spec.s: Invalid value: \"a\": spec.s in body should be at least 2 chars long"),
        (json!({"s": "abcde9"}), "spec.s: Too long: may not be more than 4 bytes"),
        (json!({"s": "A1"}), "spec.s: Invalid value: \"A1\": spec.s in body should match '^[a-z]*$'"),
        (json!({"e": "C"}), "spec.e: Unsupported value: \"C\": supported values: \"A\", \"B\""),
        (json!({"a": []}), "spec.a: Invalid value: 0: spec.a in body should have at least 1 items"),
        (json!({"a": [1, 2, 3]}), "spec.a: Too many: 3: must have at most 2 items"),
        (
            json!({"a": [1, "2"]}),
            "spec.a[1]: Invalid value: \"string\": spec.a[1] in body must be of type integer: \"string\"",
        ),
        (json!({"m": {}}), "spec.m: Invalid value: 0: spec.m in body should have at least 1 properties"),
        (json!({"m": {"a": 1, "b": 2, "c": 3}}), "spec.m: Too many: 3: must have at most 2 items"),
        (
            json!({"m": {"a": "x"}}),
            "spec.m.a: Invalid value: \"string\": spec.m.a in body must be of type integer: \"string\"",
        ),
        (
            json!({"dt": "today"}),
            "spec.dt: Invalid value: \"today\": spec.dt in body must be of type date-time: \"today\"",
        ),
        (
            json!({"uuid": "x"}),
            "spec.uuid: Invalid value: \"x\": spec.uuid in body must be of type uuid: \"x\"",
        ),
        (
            json!({"i32": 3_000_000_000_u64}),
            "<nil>: Invalid value: \"\": Checked value must be of type integer with format int32 in spec.i32",
        ),
        (json!({"by": "%%"}), "spec.by: Invalid value: \"%%\": spec.by in body must be of type byte: \"%%\""),
        (
            json!({"one": {"x": "1", "y": "1"}}),
            "<nil>: Invalid value: \"\": \"spec.one\" must validate one and only one schema (oneOf). Found 2 valid alternatives",
        ),
        (
            json!({"not": "bad"}),
            "<nil>: Invalid value: \"\": \"spec.not\" must not validate the schema (not)",
        ),
        (
            json!({"ios": [1]}),
            "spec.ios: Invalid value: \"array\": spec.ios in body must be of type integer,string: \"array\"",
        ),
        (
            json!({"ios": 1.5}),
            "spec.ios: Invalid value: \"number\": spec.ios in body must be of type integer,string: \"number\"",
        ),
    ];
    for (spec, wanted) in cases {
        assert_eq!(texts(&schema.validate(&widget(spec), None)), [wanted]);
    }
}

// What kube-apiserver's own validation says of these.
#[test]
fn of_failed_alternatives_the_one_that_matched_most_is_told() {
    let ports =
        || json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]});
    let schema = custom(json!({
        "type": "object",
        "properties": {
            "ip": {"type": "string", "oneOf": [{"format": "ipv4"}, {"format": "ipv6"}]},
            "most": {
                "type": "object",
                "properties": {"ip": {"type": "string"}, "host": {"type": "string"}},
                "oneOf": [
                    {"required": ["host"]},
                    {"properties": {"ip": {"format": "ipv4", "maxLength": 3}}, "required": ["ip"]},
                ],
            },
            "all": {"type": "string", "allOf": [{"format": "ipv4"}, {"maxLength": 2}]},
            "port": ports(),
            "s": {"type": "string", "minLength": 5, "pattern": "^a"},
            "twice": {
                "type": "object", "required": ["a"], "properties": {"a": {"type": "string"}},
                "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
            },
        },
    }));
    let cases = [
        (
            json!({"ip": "x"}),
            vec![
                "<nil>: Invalid value: \"\": \"spec.ip\" must validate one and only one schema (oneOf). Found none valid",
                "spec.ip: Invalid value: \"x\": spec.ip in body must be of type ipv4: \"x\"",
            ],
        ),
        (
            json!({"most": {"ip": "xxxx"}}),
            vec![
                "<nil>: Invalid value: \"\": \"spec.most\" must validate one and only one schema (oneOf). Found none valid",
                "spec.most.ip: Too long: may not be more than 3 bytes",
                "spec.most.ip: Invalid value: \"xxxx\": spec.most.ip in body must be of type ipv4: \"xxxx\"",
            ],
        ),
        (
            json!({"all": "xxx"}),
            vec![
                "spec.all: Invalid value: \"xxx\": spec.all in body must be of type ipv4: \"xxx\"",
                "spec.all: Too long: may not be more than 2 bytes",
                "<nil>: Invalid value: \"\": \"spec.all\" must validate all the schemas (allOf). None validated",
            ],
        ),
        (
            json!({"port": 1.5}),
            vec![
                "spec.port: Invalid value: \"number\": spec.port in body must be of type integer,string: \"number\"",
                "<nil>: Invalid value: \"\": \"spec.port\" must validate at least one schema (anyOf)",
                "spec.port: Invalid value: \"number\": spec.port in body must be of type integer: \"number\"",
                "<nil>: Invalid value: \"\": Checked value must be of type integer (default format) in spec.port",
            ],
        ),
        (
            json!({"s": "b"}),
            vec!["spec.s: Invalid value: \"b\": spec.s in body should be at least 5 chars long"],
        ),
        (
            json!({"twice": {}}),
            vec![
                "<nil>: Invalid value: \"\": \"spec.twice\" must validate at least one schema (anyOf)",
                "spec.twice.a: Required value",
            ],
        ),
    ];
    for (spec, wanted) in cases {
        assert_eq!(texts(&schema.validate(&widget(spec.clone()), None)), wanted, "{spec}");
    }
    let allowed = json!({"port": 5, "ip": "::1", "most": {"host": "h"}, "all": "x"});
    let texts = texts(&schema.validate(&widget(allowed), None));
    assert_eq!(texts.len(), 2, "only `all` is wrong: {texts:?}");
}

#[test]
fn a_format_of_another_type_is_passed_over() {
    let schema = fields(json!({
        "u": {"type": "integer", "format": "uint32"},
        "n": {"type": "number", "format": "int32"},
        "e": {"type": "object", "enum": [{"q": "1"}], "properties": {"q": {"type": "string"}}},
    }));
    let given = json!({"u": -1, "n": 99_999_999_999_u64, "e": {"q": "2"}});
    assert_eq!(
        texts(&schema.validate(&widget(given), None)),
        [r#"spec.e: Unsupported value: {"q":"2"}: supported values: "{\"q\":\"1\"}""#]
    );
}

#[test]
fn a_root_has_no_path() {
    let schema =
        Schema::from_crd(&json!({"type": "object", "minProperties": 9})).expect("a structural schema");
    assert_eq!(
        texts(&schema.validate(&widget(json!({})), None)),
        ["<nil>: Invalid value: 4:  in body should have at least 9 properties"]
    );
}

#[test]
fn some_violations_are_told_in_several_errors() {
    // wire 503
    let schema = keywords();
    let cases = [
        (
            json!({"i": 2.5}),
            vec![
                "spec.i: Invalid value: \"number\": spec.i in body must be of type integer: \"number\"",
                "<nil>: Invalid value: \"\": Checked value must be of type integer (default format) in spec.i",
                "spec.i: Invalid value: 2.5: spec.i in body should be a multiple of 2",
            ],
        ),
        (
            json!({"i32": 1.5}),
            vec![
                "spec.i32: Invalid value: \"float64\": spec.i32 in body must be of type int32: \"float64\"",
                "<nil>: Invalid value: \"\": Checked value must be of type integer with format int32 in spec.i32",
            ],
        ),
        (
            json!({"i32": true}),
            vec!["spec.i32: Invalid value: \"\": spec.i32 in body must be of type int32: \"\""],
        ),
        (
            json!({"one": {}}),
            vec![
                "<nil>: Invalid value: \"\": \"spec.one\" must validate one and only one schema (oneOf). Found none valid",
                "spec.one.x: Required value",
            ],
        ),
        (
            json!({"any": {}}),
            vec![
                "<nil>: Invalid value: \"\": \"spec.any\" must validate at least one schema (anyOf)",
                "spec.any.x: Required value",
            ],
        ),
    ];
    for (spec, wanted) in cases {
        assert_eq!(texts(&schema.validate(&widget(spec), None)), wanted);
    }
}

#[test]
fn whole_numbers_are_integers_however_they_are_written() {
    // wire 503
    assert_eq!(keywords().validate(&widget(json!({"i": 2.0, "ios": "50%"})), None), []);
}

#[test]
fn required_fields_are_asked_for_where_their_parent_is() {
    // wire 503
    let spec = json!({"type": "object", "required": ["req"], "properties": {"req": {"type": "string"}}});
    let root = json!({"type": "object", "required": ["spec"], "properties": {"spec": spec}});
    let schema = Schema::from_crd(&root).expect("a structural schema");
    let mut object = widget(json!({}));
    let errors = schema.validate(&object, None);
    assert_eq!(texts(&errors), ["spec.req: Required value"]);
    assert_eq!(errors[0].reason, FieldReason::Required);
    object.as_object_mut().map(|fields| fields.remove("spec"));
    assert_eq!(texts(&schema.validate(&object, None)), ["spec: Required value"]);
}

#[test]
fn an_unchanged_violation_passes_an_update() {
    // wire 511
    let schema = fields(json!({"n": {"type": "integer", "maximum": 3}, "m": {"type": "integer"}}));
    let old = widget(json!({"n": 5}));
    assert_eq!(schema.validate(&widget(json!({"n": 5, "m": 3})), Some(&old)), []);
    assert_eq!(schema.validate(&widget(json!({"n": 6})), Some(&old)).len(), 1);
}

#[test]
fn items_of_sets_and_map_lists_are_unique() {
    // wire 514
    let text = json!({"type": "string"});
    let item = json!({"type": "object", "required": ["k"], "properties": {"k": text, "v": text}});
    let schema = fields(json!({
        "set": {"type": "array", "items": text, "x-kubernetes-list-type": "set"},
        "map": {
            "type": "array",
            "items": item,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"],
        },
    }));
    let of = |spec| texts(&schema.validate(&widget(spec), None));
    assert_eq!(of(json!({"set": ["a", "b", "a"]})), ["spec.set[2]: Duplicate value: \"a\""]);
    let doubled = json!({"map": [{"k": "a"}, {"k": "a", "v": "1"}]});
    assert_eq!(of(doubled), ["spec.map[1]: Duplicate value: {\"k\":\"a\"}"]);
    assert_eq!(of(json!({"set": ["a"], "map": [{"k": "a"}]})), [""; 0]);
}

#[test]
fn a_field_checked_on_its_own_is_named_from_there() {
    // wire 407
    let schema = fields(json!({}));
    let errors = schema.validate_field("status", &Value::Null, None);
    let text = "status: Invalid value: \"null\":  in body must be of type object: \"null\"";
    assert_eq!(texts(&errors), [text]);
}

fn pruned_kinds() -> Schema {
    let strict = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    fields(json!({
        "n": {"type": "integer"},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "half": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"strict": strict},
        },
        "emb": {
            "type": "object",
            "x-kubernetes-embedded-resource": true,
            "x-kubernetes-preserve-unknown-fields": true,
        },
        "dict": {"type": "object", "additionalProperties": strict},
        "list": {"type": "array", "items": strict},
    }))
}

#[test]
fn unknown_fields_go_at_any_depth() {
    // wire 504
    let strict = json!({"a": "1", "gone": 1});
    let mut object = widget(json!({
        "n": 1,
        "gone": 1,
        "free": {"x": {"y": 1}},
        "half": {"kept": 1, "strict": strict},
        "dict": {"k": strict},
        "list": [strict],
    }));
    object["top"] = json!(1);
    let schema = pruned_kinds();
    let unknown = ["spec.dict.k.gone", "spec.gone", "spec.half.strict.gone", "spec.list[0].gone", "top"];
    assert_eq!(schema.unknown_fields(&object), unknown);
    let text = serde_json::to_vec(&object).expect("JSON");
    let reported: Vec<String> = unknown.iter().map(|path| format!("unknown field {path:?}")).collect();
    assert_eq!(schema.strict_errors(&text), reported);
    schema.prune(&mut object);
    let kept = json!({
        "n": 1,
        "free": {"x": {"y": 1}},
        "half": {"kept": 1, "strict": {"a": "1"}},
        "dict": {"k": {"a": "1"}},
        "list": [{"a": "1"}],
    });
    assert_eq!(object, widget(kept));
}

#[test]
fn embedded_resources_keep_all_but_unknown_metadata() {
    // wire 504
    let schema = pruned_kinds();
    let mut object = widget(json!({"emb": {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "x", "bogus": 1},
        "spec": {"any": 1},
    }}));
    schema.prune(&mut object);
    assert_eq!(object["spec"]["emb"]["metadata"], json!({"name": "x"}));
    assert_eq!(object["spec"]["emb"]["spec"], json!({"any": 1}));
    let nameless = widget(json!({"emb": {"spec": {}}}));
    let wanted = ["spec.emb.apiVersion: Required value", "spec.emb.kind: Required value"];
    assert_eq!(texts(&schema.validate(&nameless, None)), wanted);
    let labels = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a b": "c", "d": "e f"}}});
    let errors = schema.validate(&widget(json!({"emb": labels})), None);
    let (key, value) = (&errors[0], &errors[1]);
    assert!(key.to_string().starts_with("spec.emb.metadata.labels: Invalid value: \"a b\": name part must"));
    assert!(value.to_string().starts_with("spec.emb.metadata.labels: Invalid value: \"e f\": a valid label"));
}

#[test]
fn defaults_fill_what_is_absent_but_not_below_it() {
    // wire 505
    let text = |default: &str| json!({"type": "string", "default": default});
    let schema = fields(json!({
        "n": {"type": "integer", "default": 3},
        "o": {"type": "object", "default": {}, "properties": {"a": text("x")}},
        "p": {"type": "object", "properties": {"a": text("y")}},
        "l": {"type": "array", "items": {"type": "object", "properties": {"a": text("z")}}},
        "nul": {"type": "string", "nullable": true, "default": "d"},
        "nn": text("d"),
        "plain": {"type": "string"},
    }));
    let filled = |spec: Value| {
        let mut object = widget(spec);
        schema.prune(&mut object);
        schema.default(&mut object);
        object["spec"].clone()
    };
    assert_eq!(filled(json!({})), json!({"n": 3, "nn": "d", "nul": "d", "o": {"a": "x"}}));
    let given = json!({"n": 5, "p": {}, "l": [{}, {"a": "1"}]});
    let wanted = json!({
        "n": 5, "nn": "d", "nul": "d", "o": {"a": "x"}, "p": {"a": "y"}, "l": [{"a": "z"}, {"a": "1"}],
    });
    assert_eq!(filled(given), wanted);
    let nulls = json!({"nul": null, "nn": null, "plain": null});
    assert_eq!(filled(nulls), json!({"n": 3, "nn": "d", "nul": null, "o": {"a": "x"}}));
    let mut without_spec = json!({"metadata": {"name": "x"}});
    schema.default(&mut without_spec);
    assert_eq!(without_spec, json!({"metadata": {"name": "x"}}));
}

#[test]
fn schemas_that_are_not_structural_are_refused() {
    // wire 502
    let at = "spec.validation.openAPIV3Schema";
    let with = |x: Value| json!({"type": "object", "properties": {"x": x}});
    let any_of = json!({"type": "object", "anyOf": [{"properties": {"y": {"type": "string"}}}]});
    let item = json!({"type": "object", "properties": {"k": {"type": "string"}}});
    let list = json!({"type": "array", "items": item, "x-kubernetes-list-type": "map"});
    let metadata = json!({"type": "object", "properties": {"labels": {"type": "object"}}});
    let cases = [
        (
            with(json!({})),
            ".properties[x].type: Required value: must not be empty for specified object fields",
        ),
        (json!({"type": "string"}), ".type: Invalid value: \"string\": must be object at the root"),
        (
            with(json!({"type": "date"})),
            ".properties[x].type: Unsupported value: \"date\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\"",
        ),
        (with(json!({"type": "array"})), ".properties[x].items: Required value: must be specified"),
        (
            with(json!({"type": "integer", "default": "a"})),
            ".properties[x].default: Invalid value: \"string\":  in body must be of type integer: \"string\"",
        ),
        (
            with(any_of),
            ".properties[x].anyOf[0].properties[y].type: Forbidden: must be empty to be structural",
        ),
        (
            with(list),
            ".properties[x].x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
        ),
        (
            with(json!({"type": "string", "pattern": "("})),
            ".properties[x].pattern: Invalid value: \"(\": must be a valid regular expression, but isn't: error parsing regexp: missing closing ): `(`",
        ),
        (
            json!({"type": "object", "properties": {"metadata": metadata}}),
            ".properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified",
        ),
    ];
    for (schema, wanted) in cases {
        let errors = Schema::from_crd(&schema).map(|_| ()).expect_err("a refusal");
        assert_eq!(texts(&errors), [format!("{at}{wanted}")]);
    }
}

#[test]
fn additional_properties_stand_neither_at_the_root_nor_beside_properties() {
    // wire 502
    let schema = json!({
        "type": "object",
        "properties": {"spec": {"type": "object"}},
        "additionalProperties": {"type": "string"},
    });
    let errors = Schema::from_crd(&schema).map(|_| ()).expect_err("a refusal");
    let at = "spec.validation.openAPIV3Schema.additionalProperties: Forbidden: ";
    let wanted = [
        format!("{at}must not be used at the root"),
        format!("{at}additionalProperties and properties are mutual exclusive"),
    ];
    assert_eq!(texts(&errors), wanted);
}

fn config_map() -> Schema {
    Schema::builtin("", "v1", "ConfigMap").expect("a built-in kind")
}

#[test]
fn strict_decoding_reports_in_the_order_of_the_text() {
    // wire 324
    let text = br#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","nope":1},
        "data":{"a":"1","a":"2"},"bogus":true}"#;
    let wanted = ["unknown field \"metadata.nope\"", "duplicate field \"data.a\"", "unknown field \"bogus\""];
    assert_eq!(config_map().strict_errors(text), wanted);
    let pod = Schema::builtin("", "v1", "Pod").expect("a built-in kind");
    let text = br#"{"spec":{"containers":[{"name":"c","imagePulPolicy":"Always"}]}}"#;
    assert_eq!(pod.strict_errors(text), ["unknown field \"spec.containers[0].imagePulPolicy\""]);
}

#[test]
fn types_read_nulls_as_absent_or_zero() {
    // wire 326
    let mut object = json!({"metadata": {"name": "a", "labels": null}, "data": {"x": null}, "bogus": 1});
    assert_eq!(config_map().decode(&mut object), Ok(()));
    assert_eq!(object, json!({"metadata": {"name": "a"}, "data": {"x": ""}}));
}

#[test]
fn types_refuse_values_of_others() {
    // wire 204, 331
    let refused = |group: &str, kind: &str, mut object: Value| {
        let schema = Schema::builtin(group, "v1", kind).expect("a built-in kind");
        schema.decode(&mut object).expect_err("a refusal")
    };
    let lease = |spec: Value| refused("coordination.k8s.io", "Lease", json!({"spec": spec}));
    let text = "json: cannot unmarshal number into Go struct field ConfigMap.data of type string";
    assert_eq!(refused("", "ConfigMap", json!({"data": {"k": 1}})), text);
    let text = "json: cannot unmarshal array into Go struct field ConfigMap.data of type map[string]string";
    assert_eq!(refused("", "ConfigMap", json!({"data": ["x"]})), text);
    let text = "json: cannot unmarshal number 1.5 into Go struct field LeaseSpec.spec.leaseDurationSeconds of type int32";
    assert_eq!(lease(json!({"leaseDurationSeconds": 1.5})), text);
    let text = "parsing time \"2020-01-01T00:00:00Z\" as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse \"Z\" as \".000000\"";
    assert_eq!(lease(json!({"renewTime": "2020-01-01T00:00:00Z"})), text);
    let text = "parsing time \"yesterday\" as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse \"yesterday\" as \"2006\"";
    assert_eq!(lease(json!({"renewTime": "yesterday"})), text);
    let text = "illegal base64 data at input byte 0";
    assert_eq!(refused("", "Secret", json!({"data": {"k": "v"}})), text);
}

#[test]
fn every_built_in_kind_is_found_with_its_metadata() {
    for (group, version, kind) in [
        ("", "v1", "Pod"),
        ("apps", "v1", "Deployment"),
        ("batch", "v1", "CronJob"),
        ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
        ("events.k8s.io", "v1", "Event"),
    ] {
        let schema = Schema::builtin(group, version, kind).expect("a built-in kind");
        let metadata = schema.root().property("metadata").expect("metadata");
        let finalizers = metadata.property("finalizers").expect("finalizers");
        assert_eq!(*finalizers.list(), ListKind::Set);
        assert!(schema.is_builtin());
        let name = Schema::definition_name(group, version, kind).expect("a definition");
        assert!(Schema::definitions().contains_key(name));
    }
    assert!(Schema::builtin("", "v1", "Nonesuch").is_none());
}

#[test]
fn structs_that_types_always_write_are_there_before_creation() {
    let deployment = Schema::builtin("apps", "v1", "Deployment").expect("a built-in kind");
    let zero = deployment.zero();
    assert_eq!(zero["spec"]["strategy"], json!({}));
    assert_eq!(zero["spec"]["template"]["spec"], json!({"containers": null}));
    assert_eq!(fields(json!({})).zero(), json!({}));
}
