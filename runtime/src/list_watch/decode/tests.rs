//! Single objects: decoded without managedFields, named when they fail, distinguished from objects of other kinds.

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::core::{DynamicObject, PartialObjectMeta};
use proptest::prelude::*;

use super::*;
use crate::{
    list_watch::{read::typed_slowly, tests::panicky::Panicky},
    object::{Object, ObjectKey, Scope, downcast},
};

fn kind(group: &'static str, kind: &'static str, plural: &'static str) -> Kind {
    Kind {
        group: group.into(),
        version: "v1".into(),
        kind: kind.into(),
        plural: plural.into(),
        scope: Scope::Namespaced,
    }
}

fn decoder(of: &'static str) -> Decoder {
    Decoder::new(
        ObjectType::of::<ConfigMap>(),
        &kind("", of, "x"),
        Representation::Whole,
        ManagedFields::Drop,
    )
}

/// Decodes a well-formed text as lists and frames do.
fn decode<K: Object>(decoder: &Decoder, json: &str) -> Result<AnyItem, NotAnObject> {
    decoding::<K>(decoder).decode(json)
}

fn decoding<K: Object>(decoder: &Decoder) -> Decoder {
    Decoder { object: ObjectType::of::<K>(), ..decoder.clone() }
}

fn object<K: Object>(decoder: &Decoder, json: &str) -> Arc<K> {
    match decode::<K>(decoder, json) {
        Ok(FetchedItem::Object(object)) => downcast(object),
        other => panic!("{other:?}"),
    }
}

fn unreadable<K: Object>(decoder: &Decoder, json: &str) -> Unreadable {
    match decode::<K>(decoder, json) {
        Ok(FetchedItem::Unreadable(unreadable)) => *unreadable,
        other => panic!("{other:?}"),
    }
}

const MANAGED: &str = r#"{"data":{"managedFields":"kept"},"metadata":{"name":"a","managedFields":
    [{"manager":"m"}],"labels":{"managedFields":"kept"}},"kind":"ConfigMap","apiVersion":"v1"}"#;

#[test]
fn managed_fields_are_dropped_from_metadata_alone() {
    let stripped: Arc<ConfigMap> = object(&decoder("ConfigMap"), MANAGED);
    assert!(stripped.metadata.managed_fields.is_none());
    assert_eq!(stripped.data.as_ref().unwrap()["managedFields"], "kept");
    assert_eq!(stripped.metadata.labels.as_ref().unwrap()["managedFields"], "kept");
    let dynamic: Arc<DynamicObject> =
        object(&decoder("ConfigMap"), &MANAGED.replace("managedF", "managed\\u0046"));
    assert!(dynamic.metadata.managed_fields.is_none());
    assert_eq!(dynamic.data["data"]["managedFields"], "kept");
}

#[test]
fn managed_fields_are_kept_on_demand() {
    let keeping = Decoder::new(
        ObjectType::of::<ConfigMap>(),
        &kind("", "ConfigMap", "x"),
        Representation::Whole,
        ManagedFields::Keep,
    );
    let full: Arc<ConfigMap> = object(&keeping, MANAGED);
    assert_eq!(full.metadata.managed_fields.as_ref().unwrap().len(), 1);
}

// R33
#[test]
fn what_does_not_decode_is_named_with_its_path() {
    let broken = r#"{"metadata":{"name":"p","namespace":"n","uid":"u","resourceVersion":"7",
        "deletionTimestamp":"2024-01-01T00:00:00Z","finalizers":["f"],"ownerReferences":
        [{"apiVersion":"v1","kind":"K","name":"o","uid":"ou"},{"bad":1}]},
        "spec":{"containers":[{"name":"c","ports":[{"containerPort":"hunter2"}]}]}}"#;
    let Unreadable { identity, error } = unreadable::<Pod>(&decoder("Pod"), broken);
    assert_eq!(error, "spec.containers[0].ports[0].containerPort: invalid type: string, expected i32");
    assert_eq!(identity.key, Some(ObjectKey::new("n", "p")));
    assert_eq!(identity.uid.as_deref(), Some("u"));
    assert_eq!(identity.resource_version.as_deref(), Some("7"));
    assert_eq!(identity.deletion_timestamp.as_deref(), Some("2024-01-01T00:00:00Z"));
    assert_eq!(identity.finalizers, ["f"]);
    assert_eq!(identity.owners.len(), 1);
}

// R33
#[test]
fn an_identity_is_read_as_far_as_it_goes() {
    for (json, key) in [
        (r#"{"metadata":{"name":"a","namespace":"n","labels":5}}"#, Some("n/a")),
        (r#"{"metadata":{"name":5,"uid":"u"},"data":1}"#, None),
        (r#"{"metadata":{"name":"a","namespace":5}}"#, None),
        (r#"{"metadata":{"name":""}}"#, None),
        (r#"{"metadata":null}"#, None),
        (r#"{"metadata":{"name":"a"},"metadata":{"name":"b"}}"#, None),
        (r#"{"metadata":{"name":"a","n\u0061me":"b"}}"#, None),
        (r#"[{"metadata":{"name":"a"}}]"#, None),
        (r#"{"metadata":[{"name":"a"}]}"#, None),
        ("5", None),
    ] {
        let found = unreadable::<ConfigMap>(&decoder("ConfigMap"), json).identity.key;
        assert_eq!(found.map(|key| key.to_string()).as_deref(), key, "{json}");
    }
}

// R5
#[test]
fn objects_of_another_kind_are_told_apart() {
    let foreign = |decoder: &Decoder, json: &str| match decode::<DynamicObject>(decoder, json) {
        Err(NotAnObject::OfAnotherKind(found)) => found.error,
        other => panic!("{other:?}"),
    };
    let pods = decoder("Pod");
    let secret = r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}"#;
    assert_eq!(foreign(&pods, secret), "Secret of v1");
    assert_eq!(foreign(&pods, &secret.replace("v1", "v2").replace("Secret", "Pod")), "Pod of v2");
    assert!(matches!(decode::<Pod>(&pods, secret), Err(NotAnObject::OfAnotherKind(_))));
    let Ok(Some(FetchedItem::Unreadable(item))) = pods.list_item(secret) else { panic!("it was read") };
    assert_eq!(item.error, "it is a Secret of v1, not a Pod of v1");
    assert_eq!(item.identity.key, Some(ObjectKey::cluster("a")));
}

#[test]
fn what_lists_leave_out_is_filled_in() {
    let bare = r#"{"metadata":{"name":"a"},"spec":{}}"#;
    let widgets = Decoder::new(
        ObjectType::of::<ConfigMap>(),
        &kind("x.dev", "Widget", "widgets"),
        Representation::Whole,
        ManagedFields::Drop,
    );
    let types = object::<DynamicObject>(&widgets, bare).types.clone().unwrap();
    assert_eq!((types.api_version.as_str(), types.kind.as_str()), ("x.dev/v1", "Widget"));
    let said = r#"{"apiVersion":"x.dev/v1","metadata":{"name":"a"},"kind":"Widget"}"#;
    assert_eq!(object::<DynamicObject>(&widgets, said).types, Some(types));
}

#[test]
fn metadata_is_taken_from_partial_and_from_whole_objects() {
    let metadata = Decoder::new(
        ObjectType::of::<ConfigMap>(),
        &kind("", "Pod", "pods"),
        Representation::Metadata,
        ManagedFields::Drop,
    );
    for json in [
        r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a"}}"#,
        r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"},"spec":{"containers":"odd"}}"#,
        r#"{"metadata":{"name":"a"}}"#,
    ] {
        let object: Arc<PartialObjectMeta<Pod>> = object(&metadata, json);
        assert_eq!(object.metadata.name.as_deref(), Some("a"));
    }
    let foreign = r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a"}}"#;
    let decoded = decode::<PartialObjectMeta<Pod>>(&metadata, foreign);
    assert!(matches!(decoded, Err(NotAnObject::OfAnotherKind(_))));
}

// S12
#[test]
fn what_objects_of_a_kind_have_in_common_is_kept_once() {
    let json = |n: usize| {
        let metadata = format!(r#""metadata":{{"name":"a{n}","uid":"u{n}","labels":{{"app":"b{n}"}}}}"#);
        let spec =
            r#""spec":{"containers":[{"name":"c","imagePullPolicy":"Always"}]},"status":{"phase":"Running"}"#;
        format!(r#"{{"apiVersion":"v1","kind":"Pod",{metadata},{spec}}}"#)
    };
    let bytes = decoder("Pod").with_form(ItemForm::Bytes, &Arc::default());
    for n in 0..5 {
        let Ok(FetchedItem::Raw(raw)) = decode::<Pod>(&bytes, &json(n)) else { panic!("{n}") };
        assert_eq!((raw.text.json(), n < 2 || raw.text.len() * 2 < json(n).len()), (json(n), true), "{n}");
        assert_eq!(raw.text.uid(), Some(&*format!("u{n}")));
        assert_eq!(raw.text.label("app"), Some(format!("b{n}")));
        assert_eq!(raw.decode::<DynamicObject>().unwrap(), serde_json::from_str(&json(n)).unwrap());
        assert!(raw.text.is_same(&RawObject::new(json(n)).unwrap().text));
        let again = raw.of_same_kind(&raw.decode::<DynamicObject>().unwrap()).unwrap();
        assert_eq!((again.key, n < 2 || again.text.len() * 2 < json(n).len()), (raw.key, true), "{n}");
    }
}

#[test]
fn bytes_are_kept_lean_and_whole_and_decode_later() {
    let bytes = decoder("ConfigMap").with_form(ItemForm::Bytes, &Arc::default());
    let raw = |json: &str| match decode::<ConfigMap>(&bytes, json) {
        Ok(FetchedItem::Raw(raw)) => raw,
        other => panic!("{other:?}"),
    };
    let stripped = raw(MANAGED);
    assert_eq!(stripped.key, ObjectKey::cluster("a"));
    let text = stripped.text.json();
    let expected =
        r#"{"data":{"managedFields":"kept"},"metadata":{"name":"a","labels":{"managedFields":"kept"}},"#;
    assert_eq!(text, [expected, r#""kind":"ConfigMap","apiVersion":"v1"}"#].concat());
    for (metadata, lean) in [
        (r#"{"managedFields" : [ ] , "name":"a"}"#, r#"{ "name":"a"}"#),
        (r#"{"name":"a","managed\u0046ields":[{}] }"#, r#"{"name":"a" }"#),
        (r#"{"name":"a", "managedFields":null,"uid":"u"}"#, r#"{"name":"a","uid":"u"}"#),
    ] {
        let expected = format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{lean}}}"#);
        assert_eq!(raw(&format!(r#"{{"metadata":{metadata}}}"#)).text.json(), expected);
    }
    let typed: Arc<ConfigMap> = object(&decoder("ConfigMap"), MANAGED);
    assert_eq!(stripped.decode::<ConfigMap>().unwrap(), *typed);
    let bare = raw(r#"{"metadata":{"name":"a","managedFields":[]}}"#);
    assert_eq!(bare.decode::<DynamicObject>().unwrap().types.unwrap().kind, "ConfigMap");
    let broken = raw(r#"{"metadata":{"name":"a"},"data":{"k":["hunter2"]}}"#);
    let error = broken.decode::<ConfigMap>().unwrap_err();
    assert_eq!(error.error, "data.k: invalid type: sequence, expected a string");
    let nameless = decode::<ConfigMap>(&bytes, r#"{"metadata":{}}"#);
    assert!(matches!(nameless, Ok(FetchedItem::Unreadable(_))));
    let foreign = decode::<ConfigMap>(&bytes, r#"{"kind":"Secret","metadata":{"name":"a"}}"#);
    assert!(matches!(foreign, Err(NotAnObject::OfAnotherKind(_))));
}

// R42
#[test]
fn no_error_shows_what_is_in_an_object() {
    for json in [
        r#"{"metadata":{"name":"a"},"data":{"k":["hunter2"]}}"#,
        r#"{"metadata":{"name":"a"},"data":"hunter2"}"#,
        r#"{"metadata":{"name":"a","creationTimestamp":"hunter2"}}"#,
        r#"{"metadata":{"name":"a"},"immutable":"hunter2"}"#,
    ] {
        let error = unreadable::<ConfigMap>(&decoder("ConfigMap"), json).error;
        assert!(!error.contains("hunter2"), "{error}");
    }
}

// R47
#[test]
fn a_panic_of_its_type_makes_an_object_unreadable() {
    let panicky = r#"{"metadata":{"name":"panicky","uid":"u","resourceVersion":"7"}}"#;
    let Unreadable { identity, error } = unreadable::<Panicky>(&decoder("ConfigMap"), panicky);
    assert_eq!(error, "its type panicked as it was decoded");
    assert_eq!((identity.key, identity.uid.as_deref()), (Some(ObjectKey::cluster("panicky")), Some("u")));
    assert!(
        object::<Panicky>(&decoder("ConfigMap"), &panicky.replace("panicky", "calm")).metadata.name.is_some()
    );
    // As bytes it arrives, and reading it fails.
    let raw = RawObject::new(panicky).unwrap();
    let refused = raw.decode::<Panicky>().unwrap_err();
    assert_eq!((refused.identity.key, &*refused.error), (Some(raw.key), &*error));
    let refused = RawObject::of(&Panicky::named("shy")).unwrap_err();
    assert_eq!(
        (refused.identity.key, &*refused.error),
        (Some(ObjectKey::cluster("shy")), "can't be encoded: its type panicked")
    );
}

/// Members of an object of the kind `Config` of `v1`, most of them as they should be.
fn members() -> impl Strategy<Value = String> {
    let metadata = prop::collection::vec(
        prop_oneof![
            6 => Just(r#""name":"a""#),
            2 => Just(r#""namespace":"n""#),
            2 => Just(r#""uid":"u","resourceVersion":"7""#),
            2 => Just(r#""labels":{"name":"x","name":"y"}"#),
            3 => Just(r#""managedFields":[{"manager":"m","fieldsV1":{"f:name":{}}}]"#),
            1 => Just(r#""n\u0061me":"b""#),
            1 => Just(r#""name":"""#),
            1 => Just(r#""uid":7"#),
            1 => Just(r#""\\u006eame":"c""#),
        ],
        0..5,
    );
    let metadata = metadata.prop_map(|members| format!(r#""metadata":{{{}}}"#, members.join(",")));
    let member = prop_oneof![
        8 => metadata,
        3 => Just(r#""data":{"k":"v","kind":"x"}"#.to_owned()),
        1 => Just(r#""data":{"k":5}"#.to_owned()),
        1 => Just(r#""kind":"ConfigMap""#.to_owned()),
        1 => Just(r#""apiVersion":"v2""#.to_owned()),
        1 => Just(r#""metadata":null"#.to_owned()),
        1 => (120..130_usize).prop_map(|depth| format!(r#""x":{}{}"#, "[".repeat(depth), "]".repeat(depth))),
        1 => Just(r#""x":"{[{[""#.to_owned()),
        1 => Just(r#""x":}"#.to_owned()),
        1 => Just(r#""x":[1e999,"\ud800"]"#.to_owned()),
        1 => Just(r#""data":{"k":"\ud800"}"#.to_owned()),
    ];
    prop::collection::vec(member, 0..4).prop_map(|members| members.join(","))
}

/// Reads an object in one pass, and from its parts.
fn both_ways<K: Object>(text: &str) -> (Option<AnyItem>, Result<AnyItem, NotAnObject>) {
    let decoder = decoding::<K>(&decoder("ConfigMap"));
    (decoder.decode_usual(text), decoder.decode_parts(text))
}

/// Holds that nothing is taken from what `serde_json` rejects, and that both ways read the same.
fn reads_alike<K: Object + PartialEq>(text: &str) {
    match (both_ways::<K>(text), json::check(text)) {
        ((Some(FetchedItem::Object(usual)), Ok(FetchedItem::Object(long))), Ok(())) => {
            let (usual, long) = (downcast::<K>(usual), downcast::<K>(long));
            assert_eq!(usual, long, "{text}");
            let (parts, types) = (ObjectParts::of(text).unwrap(), ("v1", "ConfigMap"));
            let lean = parts.lean(text, types, ManagedFields::Drop);
            assert_eq!(Ok(&*usual), typed_slowly::<K>(&lean).as_ref(), "{text}");
        }
        ((None, Ok(_) | Err(NotAnObject::OfAnotherKind(_))), Ok(())) => {}
        ((None, Err(NotAnObject::NotJson)), Err(NotJson)) => {}
        other => panic!("{text}: {other:?}"),
    }
}

proptest! {
    // R48
    #[test]
    fn what_is_decoded_in_one_pass_is_what_its_parts_come_to(
        begin in prop_oneof![
            4 => Just(r#"{"kind":"ConfigMap","apiVersion":"v1","#),
            4 => Just(r#"{"apiVersion":"v1","kind":"ConfigMap","#),
            4 => Just(r#"{"metadata":{"name":"a","managedFields":[]},"#),
            1 => Just(r#"{"metadata":{},"#),
            1 => Just(r#"{"apiVersion":"v1","kind":"Secret","#),
            1 => Just("{"),
        ],
        members in members(),
    ) {
        let text = format!("{begin}{members}}}");
        reads_alike::<ConfigMap>(&text);
        reads_alike::<DynamicObject>(&text);
    }
}

// R48
#[test]
fn what_api_servers_send_is_decoded_in_one_pass_and_nothing_else() {
    let at_once = |rest: &str| {
        let text = format!(r#"{{"kind":"ConfigMap","apiVersion":"v1",{rest}}}"#);
        let (once, long) = both_ways::<ConfigMap>(&text);
        assert!(long.is_ok(), "{text}");
        once.is_some()
    };
    for usual in [
        r#""metadata":{"name":"a","managedFields":[{"manager":"m"}]},"data":{"k":"v"}"#,
        r#""data":{"kind":"x"},"metadata":{"labels":{"name":"x"},"name":"a"}"#,
        r#""metadata":{"name":"a"},"unknown":[[[]]]"#,
        r#""metadata":{"name":"a"},"unknown":[1e999,"\ud800"]"#,
    ] {
        assert!(at_once(usual), "{usual}");
    }
    for odd in [
        r#""metadata":{"name":"a","name":"a"}"#,
        r#""metadata":{"name":"a","n\u0061me":"a"}"#,
        r#""metadata":{"name":"a","managedFields":[],"managedFields":[]}"#,
        r#""metadata":{"name":"a"},"metadata":{"name":"a"}"#,
        r#""metadata":{"name":"a"},"kind":"ConfigMap""#,
        r#""metadata":{"name":""}"#,
        r#""metadata":{"labels":{"name":"a"}}"#,
        r#""data":{}"#,
    ] {
        assert!(!at_once(odd), "{odd}");
    }
}
