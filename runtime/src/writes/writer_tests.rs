//! Checks what a writer remembers, and which cache it reads.

use std::convert::Infallible;

use serde_json::json;

use super::*;
use crate::{
    object::{Kind, Scope},
    writes::Selects,
};

fn writer(caches: Vec<CacheView>) -> Arc<Writer> {
    let nobody = tower::service_fn(|_: http::Request<kube::client::Body>| {
        std::future::pending::<Result<http::Response<kube::client::Body>, Infallible>>()
    });
    let sender = Sender::new(kube::Client::new(nobody, "default"));
    let author =
        Author { controller: "test".into(), field_manager: "test".into(), declared: Rights::default() };
    let counters = Counters { overdue: Counter::default(), contradicted: Counter::default() };
    Writer::new(sender, author, caches, Keys::alone(), true, counters)
}

fn pod() -> Target {
    let kind = Kind {
        group: "".into(),
        version: "v1".into(),
        kind: "Pod".into(),
        plural: "pods".into(),
        scope: Scope::Namespaced,
    };
    Target { kind, key: ObjectKey::new("shop", "pod") }
}

fn cache(source: usize, selects: Selects, found: fn() -> CachedTarget) -> CacheView {
    CacheView {
        source: SourceId(source),
        kind: pod().kind,
        namespace: None,
        selects,
        look_up: Box::new(move |_| found()),
        show: None,
        is_open: Box::new(|| true),
        compare: Box::new(|_| false),
        report_history_loss: Box::new(|_| {}),
    }
}

fn at(resource_version: &str) -> CachedTarget {
    let (uid, resource_version) = ("u".to_owned(), resource_version.to_owned());
    CachedTarget::Present(CachedMeta { uid, resource_version, owners: Vec::new(), finalizers: Vec::new() })
}

fn answer(resource_version: &str) -> ApiResponse {
    let object = json!({ "metadata": { "uid": "u", "resourceVersion": resource_version } });
    ApiResponse { code: StatusCode::OK, object }
}

#[tokio::test]
async fn a_write_after_its_run_leaves_nothing_behind_that_nobody_would_clear() {
    let (writer, key) = (writer(Vec::new()), ObjectKey::new("shop", "a"));
    writer.keys.table().begin(&key, 1);
    writer.learn(&key, &pod(), &answer("5"), None, None);
    assert!(writer.last_answer(&key, &pod()).is_some(), "its run goes on from it");
    writer.keys.table().end(&key);
    assert!(writer.last_answer(&key, &pod()).is_none());
    writer.learn(&key, &pod(), &answer("6"), None, None);
    assert!(writer.last_answer(&key, &pod()).is_none(), "its run was over, and no cache ends it");
}

// W2
#[tokio::test]
async fn of_several_caches_of_a_kind_the_one_that_knows_most_tells() {
    let some = || Selects::SomeFields;
    let key = ObjectKey::new("shop", "a");
    let known = |caches| writer(caches).known(&key, &pod());
    let version = |caches| match known(caches) {
        CachedTarget::Present(found) => found.resource_version,
        other => panic!("{other:?}"),
    };
    let unselected: fn() -> CachedTarget = || CachedTarget::Unselected;
    let absent: fn() -> CachedTarget = || CachedTarget::Absent;
    let everything = || Selects::Everything;
    assert_eq!(version(vec![cache(0, some(), unselected), cache(1, everything(), || at("7"))]), "7");
    assert_eq!(version(vec![cache(0, some(), || at("9")), cache(1, everything(), || at("7"))]), "9");
    assert_eq!(version(vec![cache(0, some(), || at("9")), cache(1, everything(), absent)]), "9");
    assert!(matches!(
        known(vec![cache(0, some(), unselected), cache(1, everything(), absent)]),
        CachedTarget::Absent
    ));
    assert!(matches!(
        known(vec![cache(0, some(), unselected), cache(1, everything(), || CachedTarget::Unknown)]),
        CachedTarget::Unknown
    ));
    let writer = writer(vec![cache(0, some(), unselected), cache(1, everything(), || at("7"))]);
    assert_eq!(writer.source_that_shows(&pod()), Some(SourceId(1)), "one that shows it, whatever it selects");
}
