//! Where a cache shows something else than a list.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;

use crate::{
    delta_fifo::Extent,
    list_watch::{AnyItem, FetchedItem, Identity, Unreadable},
    object::ObjectKey,
    reflector::Difference,
    store::Indexer,
};

fn object(namespace: &str, name: &str, version: &str) -> Arc<ConfigMap> {
    let mut object = ConfigMap::default();
    object.metadata.namespace = Some(namespace.to_owned());
    object.metadata.name = Some(name.to_owned());
    object.metadata.resource_version = Some(version.to_owned());
    Arc::new(object)
}

fn unreadable(key: Option<ObjectKey>, version: &str) -> Arc<Unreadable> {
    let identity = Identity { key, resource_version: Some(version.to_owned()), ..Identity::default() };
    Unreadable { identity, error: "no".to_owned() }.into()
}

fn listed(objects: &[(&str, &str)]) -> Vec<AnyItem> {
    objects
        .iter()
        .map(|(name, version)| FetchedItem::Object(object("shop", name, version)).erased())
        .collect()
}

fn found(indexer: &Indexer<ConfigMap>, items: &[AnyItem], transformed: bool) -> Vec<String> {
    let extent = Extent::Namespace("shop".into());
    let mut found = indexer.lister().differences(&extent, items, transformed);
    found.sort_by_key(|difference| difference.key.to_string());
    found.iter().map(Difference::to_string).collect()
}

// R52
#[test]
fn a_cache_differs_by_what_is_missing_too_much_or_of_another_version() {
    let indexer = Indexer::<ConfigMap>::new();
    for (name, version) in [("same", "1"), ("stale", "1"), ("extra", "7")] {
        indexer.upsert(object("shop", name, version));
    }
    indexer.upsert(object("farm", "of-another-extent", "3"));
    let list = listed(&[("same", "1"), ("stale", "2"), ("missing", "4")]);
    let all = [
        "shop/extra (shown: 7, listed: nothing)",
        "shop/missing (shown: nothing, listed: 4)",
        "shop/stale (shown: 1, listed: 2)",
    ];
    assert_eq!(found(&indexer, &list, false), all);
    // A transform may have dropped what is missing; nothing else.
    assert_eq!(found(&indexer, &list, true), [all[0], all[2]]);
}

// R52
#[test]
fn what_can_not_be_read_is_shown_by_its_mark() {
    let indexer = Indexer::<ConfigMap>::new();
    indexer.upsert(object("shop", "kept", "1"));
    let mark = |name: &str, version: &str| {
        let key = ObjectKey::new("shop", name);
        indexer.write(|batch| batch.mark_unreadable(&key, unreadable(Some(key.clone()), version)));
    };
    mark("kept", "5");
    mark("never-read", "6");
    let item = |name: &str, version: &str| {
        AnyItem::Unreadable(Box::new((*unreadable(Some(ObjectKey::new("shop", name)), version)).clone()))
    };
    let list = vec![item("kept", "5"), item("never-read", "6")];
    assert!(found(&indexer, &list, false).is_empty());
    assert_eq!(found(&indexer, &[item("kept", "5")], false), ["shop/never-read (shown: 6, listed: nothing)"]);
    assert_eq!(
        found(&indexer, &[item("kept", "7"), item("never-read", "6")], false),
        ["shop/kept (shown: 5, listed: 7)"]
    );
    // An item without a name may be any of those that seem to be too many.
    assert!(
        found(&indexer, &[FetchedItem::Unreadable(Box::new((*unreadable(None, "9")).clone()))], false)
            .is_empty()
    );
}
