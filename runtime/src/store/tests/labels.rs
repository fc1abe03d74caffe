//! Label indexes: the same answers as a look at every object, from fewer looks.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::ConfigMap;
use proptest::prelude::*;

use super::suite::put;
use crate::{
    object::ObjectKey,
    store::{IndexDefinition, Indexer, Selector},
};

fn labelled(namespace: &str, name: &str, labels: BTreeMap<String, String>) -> Arc<ConfigMap> {
    let mut object = ConfigMap::default();
    object.metadata.namespace = Some(namespace.to_owned());
    object.metadata.name = Some(name.to_owned());
    object.metadata.labels = Some(labels).filter(|labels| !labels.is_empty());
    Arc::new(object)
}

fn labels() -> impl Strategy<Value = BTreeMap<String, String>> {
    prop::collection::btree_map("[abc]", "[xy7]?", 0..3)
}

fn selector() -> impl Strategy<Value = Selector> {
    const TESTS: [&str; 7] = ["=x", "!=x", "", " in (x,y)", " notin (y)", ">3", "="];
    let requirement = ("[abc]", prop::sample::select(&TESTS)).prop_map(|(key, test)| key + test);
    let absent = "[abc]".prop_map(|key| format!("!{key}"));
    let selector = prop::collection::vec(prop_oneof![5 => requirement, 1 => absent], 0..4);
    selector.prop_map(|requirements| requirements.join(",").parse().expect("the selector is well-formed"))
}

fn names(objects: &[Arc<ConfigMap>]) -> Vec<String> {
    let mut names: Vec<_> = objects.iter().map(|object| ObjectKey::of(&**object).to_string()).collect();
    names.sort_unstable();
    names
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    // S1
    #[test]
    fn selectors_find_the_same_with_and_without_label_indexes(
        objects in prop::collection::vec(((0..3_usize), 0..20_u8, labels()), 0..60),
        deleted in prop::collection::vec((0..3_usize, 0..20_u8), 0..10),
        indexed in prop::collection::btree_set("[abc]", 0..3),
        selectors in prop::collection::vec(selector(), 8),
    ) {
        const NAMESPACES: [&str; 3] = ["shop", "farm", "mill"];
        let definitions = indexed.iter().map(|key| IndexDefinition::label(key.as_str()));
        let indexer = Indexer::with_indexes(definitions).unwrap();
        let mut model = BTreeMap::new();
        for (namespace, name, labels) in objects {
            let object = labelled(NAMESPACES[namespace], &name.to_string(), labels);
            model.insert(ObjectKey::of(&*object), object.clone());
            put(&indexer, object);
        }
        for (namespace, name) in deleted {
            let key = ObjectKey::new(NAMESPACES[namespace], name.to_string());
            prop_assert_eq!(indexer.delete(&key).is_some(), model.remove(&key).is_some());
        }
        let empty = BTreeMap::new();
        for selector in selectors {
            let matching = |object: &ConfigMap| {
                selector.matches(object.metadata.labels.as_ref().unwrap_or(&empty))
            };
            let found = model.values().filter(|object| matching(object)).cloned().collect::<Vec<_>>();
            prop_assert_eq!(names(&indexer.lister().list_matching(&selector)), names(&found));
            for namespace in NAMESPACES {
                let here = |object: &&Arc<ConfigMap>| object.metadata.namespace.as_deref() == Some(namespace);
                let found = found.iter().filter(here).cloned().collect::<Vec<_>>();
                let listed = indexer.lister().namespace(namespace).list_matching(&selector);
                prop_assert_eq!(names(&listed), names(&found));
            }
        }
    }
}

#[test]
fn an_index_leaves_only_objects_that_can_match() {
    let indexer = Indexer::with_indexes(["a", "b"].map(IndexDefinition::label)).unwrap();
    for n in 0..100_u8 {
        let labels = [("a", format!("v{}", n % 10)), ("b", format!("v{}", n % 50))];
        let labels = labels.map(|(key, value)| (key.to_owned(), value));
        put(&indexer, labelled("shop", &n.to_string(), labels.into()));
    }
    put(&indexer, labelled("shop", "bare", BTreeMap::new()));
    let snapshot = indexer.write(|batch| batch.next.clone());
    let looked_at = |selector: &str| {
        let buckets = snapshot.narrowed(&selector.parse().unwrap())?;
        Some(buckets.iter().map(|bucket| bucket.len()).sum::<usize>())
    };
    for (selector, looks) in [
        ("a=v1", Some(10)),
        ("a in (v1,v2,none)", Some(20)),
        ("b=v1,a=v1", Some(2)),
        ("a=v1,b=v1", Some(2)),
        ("a,b=v1", Some(2)),
        ("a", Some(100)),
        ("a>3", Some(100)),
        ("a=none", Some(0)),
        ("!a", None),
        ("a!=v1", None),
        ("c=v1", None),
        ("", None),
    ] {
        assert_eq!(looked_at(selector), looks, "{selector}");
    }
    assert!(indexer.lister().has_index("label:a"));
    assert_eq!(indexer.lister().by_index("label:a", &"v1".into()).len(), 10);
    let found = names(&indexer.lister().list_matching(&"a=v1,b=v1".parse().unwrap()));
    assert_eq!(found, ["shop/1", "shop/51"]);
}
