//! Places beside a tree that `serde_json` built: the same members, the same text without managedFields.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};

use super::*;
use crate::{
    list_watch::{
        ItemForm, ManagedFields, Representation,
        decode::{self, Decoder},
    },
    object::{Kind, Scope},
};

fn decoder(managed_fields: ManagedFields) -> Decoder {
    let kind = Kind {
        group: "".into(),
        version: "v1".into(),
        kind: "Pod".into(),
        plural: "pods".into(),
        scope: Scope::Namespaced,
    };
    Decoder::new(&kind, Representation::Whole, managed_fields).with_form(ItemForm::Bytes)
}

fn chosen(of: &[&str], bits: usize, comma: &str) -> String {
    let chosen = (0..of.len()).filter(|at| bits >> at & 1 == 1).map(|at| of[at]);
    chosen.collect::<Vec<_>>().join(comma)
}

/// Checks what is found in an object, and what is left of it, against a tree.
fn check(text: &str, managed_fields: ManagedFields) {
    let tree: Value = serde_json::from_str(text).unwrap();
    let json = Json::read(text.as_bytes()).unwrap();
    let (mut stripped, decoder) = ("before".to_owned(), decoder(managed_fields));
    let places = decoder.push_stripped(json.as_str(), &Places::of(json), &mut stripped);
    let stripped = &stripped["before".len()..];
    let at = |span: Span| span.of(stripped).map(|json| serde_json::from_str::<Value>(json.as_str()).unwrap());
    let metadata = |name: &str| tree["metadata"].get(name).cloned();
    for (span, name) in [
        (places.name, "name"),
        (places.namespace, "namespace"),
        (places.uid, "uid"),
        (places.version, "resourceVersion"),
        (places.labels, "labels"),
        (places.owners, "ownerReferences"),
    ] {
        assert_eq!(at(span), metadata(name), "{text}");
    }
    assert_eq!(at(places.api_version), tree.get("apiVersion").cloned(), "{text}");
    assert_eq!(at(places.kind), tree.get("kind").cloned(), "{text}");

    let mut expected = tree.clone();
    if managed_fields == ManagedFields::Drop
        && let Some(metadata) = expected.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.remove("managedFields");
    }
    if let Some(root) = expected.as_object_mut().filter(|root| root.contains_key("metadata")) {
        root.entry("apiVersion").or_insert(json!("v1"));
        root.entry("kind").or_insert(json!("Pod"));
    }
    assert_eq!(serde_json::from_str::<Value>(stripped).unwrap(), expected, "{text}: {stripped}");

    let owners = metadata("ownerReferences")
        .map(|owners| serde_json::from_value::<Vec<OwnerReference>>(owners).unwrap());
    let identity = decode::identity(stripped, &places);
    assert_eq!(identity.owners, owners.unwrap_or_default());
    assert_eq!(
        identity.key.map(|key| key.name().to_owned()),
        metadata("name").map(|name| name.as_str().unwrap().to_owned())
    );
    assert_eq!(identity.uid.map(Value::String), metadata("uid"));
    assert_eq!(
        identity.finalizers.len(),
        metadata("finalizers").map_or(0, |all| all.as_array().unwrap().len())
    );
}

#[test]
fn members_are_found_and_left_out_wherever_they_stand() {
    let inner = [
        r#""managed\u0046ields":[{"f:a":{"}":"\""}}]"#,
        r#""name":"a""#,
        r#""namespace" : "n""#,
        r#""uid":"u\u0031""#,
        r#""resourceVersion":"7""#,
        r#""labels":{"a":"b,}","name":"x","managedFields":1}"#,
        r#""ownerReferences":[{"apiVersion":"v","kind":"K","name":"o","uid":"p"}],"finalizers":["f"]"#,
    ];
    for bits in 0..1 << inner.len() {
        for comma in [",", " , "] {
            for turned in 0..inner.len() {
                let mut inner = inner;
                inner.rotate_left(turned);
                let metadata = format!(r#""metadata":{{{}}}"#, chosen(&inner, bits, comma));
                let outer = [
                    r#""kind":"Pod""#,
                    &metadata,
                    r#""spec":{"metadata":{"name":"x"},"kind":"y"}"#,
                    r#""apiVersion":"v1""#,
                ];
                // All of it in one order, and one part of it chosen by the way.
                for outer_bits in [0b1111, 0b0010, 1 + (bits + turned) % 15] {
                    let text = format!("{{{}}}", chosen(&outer, outer_bits, comma));
                    check(&text, ManagedFields::Drop);
                    check(&text, ManagedFields::Keep);
                }
            }
        }
    }
}

#[test]
fn what_is_no_object_has_no_places() {
    for text in
        ["5", "\"metadata\"", "[\"metadata\",{\"name\":\"a\"}]", "[{\"metadata\":{\"name\":\"a\"}}]", "{}"]
    {
        assert_eq!(Places::of(Json::read(text.as_bytes()).unwrap()), Places::default(), "{text}");
    }
    let places = Places::of(Json::part(r#"{"metadata":[{"name":"a"},{"uid":"b"}],"x":{"name":"c"}}"#));
    assert!(places.name.is_empty() && places.uid.is_empty() && !places.metadata.is_empty());
}

// R48
#[test]
fn an_object_that_says_twice_who_it_is_is_nobody() {
    for text in [
        r#"{"metadata":{"name":"a","name":"b"}}"#,
        r#"{"metadata":{"name":"a","n\u0061me":"a"}}"#,
        r#"{"metadata":{"name":"a"},"metadata":{}}"#,
        r#"{"metadata":{"name":"a","uid":"1","labels":{},"uid":"2"}}"#,
        r#"{"kind":"Pod","metadata":{"name":"a"},"kind":"Job"}"#,
        r#"{"metadata":{"managedFields":[],"name":"a","managedFields":[]}}"#,
    ] {
        let places = Places::of(Json::read(text.as_bytes()).unwrap());
        assert_eq!(places.refused, Some(Refused::Ambiguous), "{text}");
        assert_eq!(decode::identity(text, &places), Default::default());
    }
}

// R48
#[test]
fn an_object_nested_deeper_than_serde_json_goes_is_named_and_not_read() {
    let text = |depth: usize| {
        format!(r#"{{"spec":{}{},"metadata":{{"name":"a"}}}}"#, "[".repeat(depth), "]".repeat(depth))
    };
    for (depth, refused) in [(126, None), (127, Some(Refused::TooDeep)), (5_000, Some(Refused::TooDeep))] {
        let text = text(depth);
        let places = Places::of(Json::read(text.as_bytes()).unwrap());
        assert_eq!(places.refused, refused, "{depth}");
        assert_eq!(serde_json::from_str::<Value>(&text).is_ok(), refused.is_none());
        assert_eq!(decode::identity(&text, &places).key.unwrap().name(), "a");
    }
}
