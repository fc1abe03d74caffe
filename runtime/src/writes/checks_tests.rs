//! A writer with a scripted server and a scripted cache.

use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{Arc, Mutex},
};

use http::{Request, Response};
use k8s_openapi::api::core::v1::Pod;
use kube::client::Body;
use prometheus_client::metrics::counter::Counter;
use serde_json::{Value, json};
use tokio::time::Duration;

use super::*;
use crate::{
    object::{Kind, Scope},
    writes::{CachedMeta, Delete, Patched, Selects, add_finalizer, patch_status},
};

const PODS: SourceId = SourceId(0);

/// What the cache was asked to do.
#[derive(Clone, Default)]
struct Requests(Arc<Mutex<Vec<&'static str>>>);

impl Requests {
    fn note(&self, what: &'static str) {
        self.0.lock().unwrap().push(what);
    }

    fn all(&self) -> Vec<&'static str> {
        self.0.lock().unwrap().clone()
    }
}

fn kind(plural: &'static str) -> Kind {
    let scope = Scope::Namespaced;
    Kind { group: "".into(), version: "v1".into(), kind: "Pod".into(), plural: plural.into(), scope }
}

fn key() -> ObjectKey {
    ObjectKey::new("shop", "a")
}

fn pod(version: &str) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.name = Some("a".to_owned());
    pod.metadata.namespace = Some("shop".to_owned());
    pod.metadata.uid = Some("u".to_owned());
    pod.metadata.resource_version = Some(version.to_owned());
    pod
}

fn object(version: &str) -> Value {
    let metadata = json!({ "name": "a", "namespace": "shop", "uid": "u", "resourceVersion": version });
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata })
}

fn refusal(code: u16) -> (u16, Value) {
    (code, json!({ "kind": "Status", "status": "Failure", "code": code, "message": "no", "reason": "no" }))
}

/// A writer whose cache shows a pod at a version, and whose server gives these answers.
fn writer(shown: &str, answers: impl IntoIterator<Item = (u16, Value)>) -> (Arc<Writer>, Requests) {
    let answers = Arc::new(Mutex::new(answers.into_iter().collect::<VecDeque<_>>()));
    let service = tower::service_fn(move |_: Request<Body>| {
        let (code, body) = answers.lock().unwrap().pop_front().expect("no more requests");
        let body = Body::from(body.to_string().into_bytes());
        async move { Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap()) }
    });
    let (asked, meta) = (Requests::default(), CachedMeta::of(pod(shown).metadata));
    let (compared, told) = (asked.clone(), asked.clone());
    let cache = CacheView {
        source: PODS,
        kind: kind("pods"),
        namespace: None,
        selects: Selects::Everything,
        look_up: Box::new(move |_| CachedTarget::Present(meta.clone())),
        show: Some(Box::new(|_| None)),
        is_open: Box::new(|| true),
        compare: Box::new(move |_| {
            compared.note("list");
            true
        }),
        report_history_loss: Box::new(move |_| told.note("loss")),
    };
    let counters = Counters { overdue: Counter::default(), contradicted: Counter::default() };
    let sender = Sender::new(kube::Client::new(service, "shop"));
    let author =
        Author { controller: "test".into(), field_manager: "test".into(), declared: Rights::default() };
    (Writer::new(sender, author, vec![cache], Keys::alone(), true, counters), asked)
}

/// Lets the follow-up task work for a while.
async fn attended(writer: &Writer) {
    let _ = timeout(Duration::from_secs(30), writer.follow_up()).await;
}

fn patching<'a>(writer: &'a Writer, key: &'a ObjectKey, object: &'a Pod) -> Patched<'a, Pod> {
    Patched { writer, key, kind: kind("pods"), object, own: None }
}

fn status() -> Value {
    json!({ "phase": "Running" })
}

// R43
#[tokio::test(start_paused = true)]
async fn a_status_whose_base_is_newer_than_what_the_server_has_is_not_sent_again_and_tells_of_the_loss() {
    let (writer, asked) = writer("60", [refusal(409), (200, object("60"))]);
    writer.keys.table().begin(&key(), 1);
    let patched = patch_status(patching(&writer, &key(), &pod("61")), status()).await;
    assert!(patched.unwrap_err().is_conflict());
    assert_eq!(asked.all(), ["loss"], "the cache itself is not behind");
    assert!(writer.keys.table().end(&key()).changed, "the key runs again");
}

// R50 R43
#[tokio::test(start_paused = true)]
async fn a_cache_that_shows_a_newer_version_than_the_server_is_compared_and_the_loss_told() {
    let (writer, asked) = writer("61", [(200, object("60"))]);
    let target = Target { kind: kind("pods"), key: key() };
    writer.fetch(&target).await.unwrap();
    assert_eq!(asked.all(), ["loss"]);
    attended(&writer).await;
    assert_eq!(asked.all(), ["loss", "list"]);
    assert_eq!(writer.counters.contradicted.get(), 1);
}

// R50
#[tokio::test(start_paused = true)]
async fn every_write_that_learns_that_the_cached_object_is_gone_says_so() {
    let (patched, asked) = writer("61", [refusal(404), refusal(404)]);
    patch_status(patching(&patched, &key(), &pod("61")), status()).await.unwrap_err();
    attended(&patched).await;
    assert_eq!(asked.all(), ["list"], "a status");

    // The server says 409 of another UID: whether the object is there, a GET tells.
    for (code, then) in [(404, None), (409, Some(refusal(404)))] {
        let (deleted, asked) = writer("61", [refusal(code)].into_iter().chain(then));
        Delete::new(deleted.clone(), key(), kind("pods"), &pod("61")).await.unwrap();
        attended(&deleted).await;
        assert_eq!(asked.all(), ["list"], "a deletion, {code}");
    }

    let target = Target { kind: kind("pods"), key: key() };
    let (finalized, asked) = writer("61", [refusal(409), refusal(404)]);
    let added = add_finalizer::<Pod>(&finalized, &target, &pod("61").metadata, "example.dev/x").await;
    assert!(added.unwrap_err().is_conflict());
    attended(&finalized).await;
    assert_eq!(asked.all(), ["list"], "a finalizer that is in conflict for ever");
}

// R50
#[tokio::test(start_paused = true)]
async fn a_status_that_is_not_found_of_an_object_that_is_there_contradicts_nothing() {
    let (writer, asked) = writer("61", [refusal(404), (200, object("61"))]);
    let refused = patch_status(patching(&writer, &key(), &pod("61")), status()).await;
    assert!(matches!(refused, Err(WriteError::NoStatusSubresource { .. })));
    attended(&writer).await;
    assert!(asked.all().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_new_epoch_forgets_what_was_applied_to_objects_of_its_kind() {
    let (writer, _) = writer("61", []);
    let target = |plural| Target { kind: kind(plural), key: key() };
    let intent = json!({});
    let applied = |target: &Target| writer.applied.last(target, &intent).is_some();
    writer.applied.keep(&target("pods"), &intent, &pod("61"));
    writer.applied.keep(&target("secrets"), &intent, &pod("61"));
    let progress = |via| Progress { version: Some(Version(61)), via };
    writer.progressed(PODS, progress(ProgressVia::Replace));
    assert!(applied(&target("pods")), "a list of the same history");
    // The server may give version 61 to another state: what was applied last proves nothing any more.
    writer.progressed(PODS, progress(ProgressVia::NewEpoch));
    assert!(!applied(&target("pods")));
    assert!(applied(&target("secrets")));
}
