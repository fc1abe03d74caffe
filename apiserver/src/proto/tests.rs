//! Bodies as protobuf: reading returns what was written.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::facts::{Count, Form, Presence, Special, facts};

const NONE: (&str, &str) = ("", "");

fn back(object: &Value) -> Value {
    decode(&encode(object).expect("a known kind"), NONE).expect("what was written is read")
}

/// Returns whether all of one value is in another.
fn holds(more: &Value, less: &Value) -> bool {
    match (more, less) {
        (Value::Object(more), Value::Object(less)) => {
            less.iter().all(|(key, value)| more.get(key).is_some_and(|there| holds(there, value)))
        }
        (Value::Array(more), Value::Array(less)) => {
            more.len() == less.len() && more.iter().zip(less).all(|(more, less)| holds(more, less))
        }
        _ => more == less,
    }
}

#[track_caller]
fn assert_kept(object: &Value) {
    let read = back(object);
    assert!(holds(&read, object), "{object}\n{read}");
    assert_eq!(back(&read), read, "a second round changes nothing");
}

// wire 020
#[test]
fn a_status_is_written_byte_for_byte_as_the_real_server_does() {
    let message = "only the following media types are accepted: application/json, application/yaml, \
                   application/vnd.kubernetes.protobuf";
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
        "reason": "NotAcceptable", "code": 406,
    });
    let mut wanted =
        b"k8s\0\n\x0c\n\x02v1\x12\x06Status\x12\x99\x01\n\x06\n\0\x12\0\x1a\0\x12\x07Failure\x1at".to_vec();
    wanted.extend_from_slice(message.as_bytes());
    wanted.extend_from_slice(b"\"\rNotAcceptable0\x96\x03\x1a\0\"\0");
    assert_eq!(String::from_utf8_lossy(&encode(&status).expect("a kind")), String::from_utf8_lossy(&wanted));
}

// A19
#[test]
fn bytes_times_quantities_and_numbers_or_names_keep_their_meaning() {
    assert_kept(&json!({
        "kind": "Secret", "apiVersion": "v1", "metadata": {"name": "s", "creationTimestamp": "2020-01-02T03:04:05Z"},
        "data": {"a": "AAEC", "b": ""}, "immutable": false, "type": "Opaque",
    }));
    assert_kept(&json!({
        "kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": {"name": "l"},
        "spec": {"renewTime": "2020-01-02T03:04:05.000006Z", "leaseDurationSeconds": 0},
    }));
    assert_kept(&json!({
        "kind": "Service", "apiVersion": "v1", "metadata": {"name": "s"},
        "spec": {"ports": [{"port": 80, "targetPort": "web"}, {"port": 81, "targetPort": 8081}]},
        "status": {"loadBalancer": {}},
    }));
    assert_kept(&json!({
        "kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"},
        "spec": {
            "containers": [{"name": "c", "resources": {"limits": {"cpu": "100m"}}}],
            "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}, {"name": "w", "emptyDir": {}}],
            "terminationGracePeriodSeconds": 0,
        },
        "status": {},
    }));
}

// A19
#[test]
fn schemas_keep_their_alternatives() {
    assert_kept(&json!({
        "kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1", "metadata": {"name": "w.g"},
        "spec": {
            "group": "g", "scope": "Namespaced", "names": {"plural": "w", "kind": "W"},
            "versions": [{"name": "v1", "served": true, "storage": false, "schema": {"openAPIV3Schema": {
                "type": "object", "$ref": "r",
                "properties": {
                    "a": {"type": "array", "items": {"type": "string", "default": "x"}, "maxItems": 0},
                    "b": {"items": [{"type": "string"}, {}]},
                    "c": {"additionalProperties": true, "enum": [1, "a", null], "minimum": 0.5},
                    "d": {"additionalProperties": {"type": "integer"}},
                    "e": {"additionalProperties": false, "dependencies": {"x": ["y"], "z": {"type": "object"}}},
                },
                "x-kubernetes-validations": [{"rule": "true", "optionalOldSelf": false}],
                "x-kubernetes-preserve-unknown-fields": true,
            }}}],
        },
        "status": {"storedVersions": ["v1"]},
    }));
}

#[test]
fn what_go_leaves_out_of_json_is_left_out() {
    let read = back(&json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {}}));
    assert_eq!(read, json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}}));
}

#[test]
fn the_expected_kind_stands_in_for_an_absent_one() {
    let bytes = b"k8s\0\x12\x05\n\x03\n\x01a";
    let read = decode(bytes, ("v1", "ConfigMap")).expect("read");
    assert_eq!(read, json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}}));
    assert_eq!(
        decode(bytes, NONE).expect_err("no kind"),
        ProtoError::Unknown { api_version: "".into(), kind: "".into() }
    );
}

#[test]
fn a_later_part_of_a_message_is_merged_into_the_earlier_one() {
    let bytes = b"k8s\0\x12\x0a\n\x03\n\x01a\n\x03\x1a\x01n";
    let read = decode(bytes, ("v1", "ConfigMap")).expect("read");
    assert_eq!(read["metadata"], json!({"name": "a", "namespace": "n"}));
}

#[test]
fn rubbish_is_refused_and_says_why() {
    assert_eq!(decode(b"", NONE), Err(ProtoError::Empty));
    assert_eq!(decode(b"{}", NONE), Err(ProtoError::NoPrefix));
    let map = ("v1", "ConfigMap");
    assert_eq!(decode(b"k8s\0\x12\x05\n", map), Err(ProtoError::Short));
    assert_eq!(
        decode(b"k8s\0\x12\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", map),
        Err(ProtoError::Overflow)
    );
    assert_eq!(decode(b"k8s\0\x12\x01\x0b", map), Err(ProtoError::WireType(3)));
    assert_eq!(decode(b"k8s\0\x12\x02\x08\x01", map), Err(ProtoError::Value("metadata", "message")));
}

#[test]
fn messages_may_not_lie_too_deep() {
    // A schema's `not`, field 28, in itself a thousand times.
    let mut schema = Vec::new();
    for _ in 0..1000 {
        let mut outer = Vec::new();
        wire::put_bytes(&mut outer, 28, &schema);
        schema = outer;
    }
    let mut validation = Vec::new();
    wire::put_bytes(&mut validation, 1, &schema);
    let mut version = Vec::new();
    wire::put_bytes(&mut version, 4, &validation);
    let mut spec = Vec::new();
    wire::put_bytes(&mut spec, 7, &version);
    let mut crd = Vec::new();
    wire::put_bytes(&mut crd, 2, &spec);
    let mut body = b"k8s\0".to_vec();
    wire::put_bytes(&mut body, 2, &crd);
    let kind = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    assert_eq!(decode(&body, kind), Err(ProtoError::TooDeep));
}

#[test]
fn an_event_has_its_length_before_it() {
    let line = json!({"type": "ADDED", "object": {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}}});
    let bytes = event(&line).expect("an event");
    assert_eq!(bytes[..4], (bytes.len() as u32 - 4).to_be_bytes());
    assert!(bytes[4..].starts_with(b"\n\x05ADDED\x12"));
    assert!(event(&json!({"type": "ADDED", "object": {"kind": "Widget", "apiVersion": "g/v1"}})).is_none());
}

/// Generates a value of a form; `depth` bounds its nesting.
fn any_of(form: Form, depth: u32) -> BoxedStrategy<Value> {
    match form {
        Form::Text => "[a-zé]{1,4}".prop_map(Value::from).boxed(),
        Form::Flag => any::<bool>().prop_map(Value::from).boxed(),
        Form::Int32 => any::<i32>().prop_map(Value::from).boxed(),
        Form::Int64 => any::<i64>().prop_map(Value::from).boxed(),
        Form::Double => (-1000..1000).prop_map(|n| Value::from(f64::from(n) / 8.0)).boxed(),
        Form::Bytes => prop_oneof![Just("AAEC"), Just("/w==")].prop_map(Value::from).boxed(),
        Form::Special(Special::Time) => Just(Value::from("2020-01-02T03:04:05Z")).boxed(),
        Form::Special(Special::MicroTime) => Just(Value::from("2020-01-02T03:04:05.678900Z")).boxed(),
        Form::Special(Special::Quantity) => {
            prop_oneof![Just("1"), Just("100m")].prop_map(Value::from).boxed()
        }
        Form::Special(Special::IntOrString) => {
            prop_oneof![any::<i32>().prop_map(Value::from), "[a-z]{1,3}".prop_map(Value::from)].boxed()
        }
        Form::Special(Special::Json) => prop_oneof![Just(json!({"a": [1, null]})), Just(json!(7))].boxed(),
        Form::Message(place) => message_of(place, depth),
    }
}

fn message_of(place: usize, depth: u32) -> BoxedStrategy<Value> {
    let message = facts().at(place);
    if message.is_list() {
        return prop::collection::vec("[a-z]{1,3}", 1..3).prop_map(Value::from).boxed();
    }
    if message.name.contains("JSONSchemaPropsOr") {
        let lists = !message.name.ends_with("OrBool");
        let bare = if message.name.ends_with("OrArray") { json!([{"type": "string"}]) } else { json!(["a"]) };
        return Just(if lists { bare } else { json!(true) }).boxed();
    }
    let Some(depth) = depth.checked_sub(1) else { return Just(json!({})).boxed() };
    let mut fields: Vec<BoxedStrategy<Vec<(&str, Value)>>> = Vec::new();
    for field in &message.fields {
        let below = any_of(field.form, depth);
        let value = match (field.presence, field.count) {
            (Presence::Inlined, _) => {
                fields.push(
                    below
                        .prop_map(|inner| {
                            let Value::Object(map) = inner else { return Vec::new() };
                            map.into_iter().map(|(key, value)| (leak(key), value)).collect()
                        })
                        .boxed(),
                );
                continue;
            }
            (_, Count::One) => below,
            (_, Count::List) => prop::collection::vec(below, 1..3).prop_map(Value::Array).boxed(),
            (_, Count::Map) => prop::collection::btree_map("[a-z]{1,2}", below, 1..3)
                .prop_map(|map| Value::Object(Map::from_iter(map)))
                .boxed(),
        };
        // A field that is omitted when empty is not requested as empty.
        let skips = field.presence == Presence::NotEmpty;
        let name = field.name;
        let given = prop::option::weighted(0.3, value).prop_map(move |value| {
            let kept = value.filter(|value| !(skips && matches!(value, Value::Bool(false))));
            kept.filter(|value| !(skips && value.as_f64() == Some(0.0)))
                .map(|value| (name, value))
                .into_iter()
                .collect()
        });
        fields.push(given.boxed());
    }
    fields
        .prop_map(|fields| {
            Value::Object(
                fields.into_iter().flatten().map(|(name, value)| (name.to_owned(), value)).collect(),
            )
        })
        .boxed()
}

/// Keeps a name for the length of the tests.
fn leak(name: String) -> &'static str {
    Box::leak(name.into_boxed_str())
}

fn any_object() -> impl Strategy<Value = Value> {
    let kinds: Vec<(&str, &str)> = facts().kinds().filter(|(version, _)| *version != "*").collect();
    prop::sample::select(kinds).prop_flat_map(|(version, kind)| {
        let message = facts().kind(version, kind).expect("a kind of the table");
        let place =
            facts().messages().iter().position(|other| other.name == message.name).expect("its message");
        message_of(place, 4).prop_map(move |mut object| {
            object["kind"] = kind.into();
            object["apiVersion"] = version.into();
            object
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn every_kind_comes_back_as_it_was_written(object in any_object()) {
        let read = back(&object);
        prop_assert!(holds(&read, &object), "{object}\n{read}");
        prop_assert_eq!(back(&read), read);
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0..5_usize) {
        let kinds = [
            ("v1", "Pod"), ("apps/v1", "Deployment"), ("v1", "DeleteOptions"), ("autoscaling/v2", "HorizontalPodAutoscaler"),
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        ];
        let mut body = b"k8s\0".to_vec();
        wire::put_bytes(&mut body, 2, &bytes);
        drop(decode(&body, kinds[kind]));
        drop(decode(&bytes, kinds[kind]));
    }

    #[test]
    fn a_damaged_object_is_read_or_refused(
        object in any_object(), hits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = encode(&object).expect("a known kind");
        for (at, byte) in &hits {
            let at = at.index(bytes.len());
            bytes[at] = *byte;
        }
        drop(decode(&bytes, NONE));
        bytes.truncate(cut.index(bytes.len()));
        drop(decode(&bytes, NONE));
    }
}
