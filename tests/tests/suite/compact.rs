//! Caches of bytes under controllers: what is decoded, when, and what is not.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use kube::{
    Api,
    api::{Patch, PatchParams},
    core::{ApiResource, DynamicObject},
};
use serde::Deserializer;
use serde_json::json;
use watchkeeper::{
    informer::{Compact, Metadata},
    prelude::*,
    store::Lookup,
};
use watchkeeper_apiserver::ApiServer;
use watchkeeper_tests::{Looker, Record, Website, owned_by, website};

/// A parcel that counts how often a weight is decoded.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "post.example.dev", version = "v1", kind = "Parcel", namespaced)]
#[informer(compact)]
struct ParcelSpec {
    #[informer(index)]
    to: String,
    #[serde(deserialize_with = "counted")]
    grams: u32,
}

/// How often a weight was decoded, by the weight: each test has its own.
static DECODED: Mutex<BTreeMap<u32, usize>> = Mutex::new(BTreeMap::new());

fn counted<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let grams = u32::deserialize(deserializer)?;
    *DECODED.lock().unwrap().entry(grams).or_default() += 1;
    Ok(grams)
}

fn decoded(grams: u32) -> usize {
    DECODED.lock().unwrap().get(&grams).copied().unwrap_or_default()
}

/// A server that takes what the type can't read, and parcels written without it.
async fn post_office() -> (ApiServer, Api<DynamicObject>) {
    let mut loose = serde_json::to_value(Parcel::crd()).unwrap();
    loose["spec"]["versions"][0]["schema"]["openAPIV3Schema"] =
        json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let server = ApiServer::in_memory().crd_object(loose).crd::<Website>().namespace("shop").start().await;
    let parcels = Api::namespaced_with(server.client(), "shop", &resource());
    (server, parcels)
}

fn resource() -> ApiResource {
    ApiResource::erase::<Parcel>(&())
}

async fn send(parcels: &Api<DynamicObject>, name: &str, grams: serde_json::Value, owner: Option<&Website>) {
    let mut parcel = DynamicObject::new(name, &resource());
    parcel.data = json!({ "spec": { "to": "there", "grams": grams } });
    parcel.metadata.owner_references = owner.map(|owner| vec![owned_by(owner)]);
    parcels.create(&Default::default(), &parcel).await.unwrap();
}

async fn reweigh(parcels: &Api<DynamicObject>, name: &str, grams: serde_json::Value) {
    let patch = Patch::Merge(json!({ "spec": { "grams": grams } }));
    parcels.patch(name, &PatchParams::default(), &patch).await.unwrap();
}

// C16
#[tokio::test(start_paused = true)]
async fn a_controller_wakes_for_children_of_which_nothing_is_decoded() {
    let (server, parcels) = post_office().await;
    let (a, record) = (server.create(&website("a")).await, Record::default());
    send(&parcels, "first", 101.into(), Some(&a)).await;
    let controller = Controller::new(Looker { record: record.clone() }).owns::<Parcel>();
    let manager = Manager::new(server.client()).controller(controller);
    let lister = manager.lister::<Parcel>();
    let _running = manager.spawn();
    record.reaches(1).await;
    send(&parcels, "second", 101.into(), Some(&a)).await;
    record.reaches(2).await;
    parcels.delete("first", &Default::default()).await.unwrap();
    record.reaches(3).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((lister.len(), decoded(101)), (1, 0));
    let parcel = lister.by_to("there").into_iter().next().unwrap();
    assert_eq!((parcel.spec.grams, decoded(101)), (101, 1));
    assert!(Arc::ptr_eq(&parcel, &lister.list()[0]), "what somebody holds is handed out again");
    assert_eq!(decoded(101), 1);
}

// C32
#[tokio::test(start_paused = true)]
async fn an_object_that_does_not_decode_is_reported_when_it_is_read_and_not_reconciled() {
    let (server, parcels) = post_office().await;
    send(&parcels, "good", 202.into(), None).await;
    send(&parcels, "odd", "heavy".into(), None).await;
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let controller = Controller::from_fn(move |parcel: Arc<Parcel>, _: Context<Parcel>| {
        let runs = counted.clone();
        async move {
            assert_eq!(parcel.spec.grams, 202);
            runs.fetch_add(1, Ordering::Relaxed);
            Ok::<_, anyhow::Error>(Action::await_change())
        }
    });
    let manager = Manager::new(server.client()).controller(controller);
    let lister = manager.lister::<Parcel>();
    let _running = manager.spawn();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!((runs.load(Ordering::Relaxed), lister.len(), lister.list().len()), (1, 2, 1));
    assert_eq!(lister.unreadable()[0].error, "spec.grams: invalid type: string, expected u32");
    assert!(matches!(lister.lookup(&ObjectKey::new("shop", "odd")), Lookup::Unreadable(_)));
    // A good state that goes bad is not kept either.
    reweigh(&parcels, "good", "light".into()).await;
    reweigh(&parcels, "odd", 202.into()).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(runs.load(Ordering::Relaxed), 2);
    assert!(lister.get(&ObjectKey::new("shop", "good")).is_none());
    assert_eq!(lister.list()[0].metadata.name.as_deref(), Some("odd"));
}

// I22
#[tokio::test(start_paused = true)]
async fn markers_ask_for_bytes_of_any_kind() {
    let (server, parcels) = post_office().await;
    send(&parcels, "a", 303.into(), None).await;
    let factory = SharedInformerFactory::new(server.client());
    let metadata = factory.informer::<Compact<Metadata<Website>>>().build();
    let typed = factory.informer::<Website>().build();
    let whole = factory.informer::<Compact<Website>>().build();
    server.create(&website("w")).await;
    factory.start();
    factory.wait_for_sync(Duration::from_secs(5)).await.unwrap();
    let key = ObjectKey::new("shop", "w");
    let forms = [
        metadata.lister().cached(&key).unwrap().form(),
        typed.lister().cached(&key).unwrap().form(),
        whole.lister().cached(&key).unwrap().form(),
    ];
    use watchkeeper::list_watch::ItemForm::{Bytes, Typed};
    assert_eq!(forms, [Bytes, Typed, Bytes]);
    assert_eq!(metadata.lister().get(&key).unwrap().metadata.name.as_deref(), Some("w"));
    assert_eq!(whole.lister().list()[0].spec.domain, typed.lister().list()[0].spec.domain);
    factory.shutdown().await;
}
