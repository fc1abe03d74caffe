//! What becomes of a status that is patched: what is stored, what stays, and what is said of the rest.

use std::sync::Mutex;

use k8s_openapi::api::apps::v1::DeploymentStatus;
use kube::{
    Api,
    core::{ApiResource, DynamicObject},
};
use serde_json::{Value, json};
use watchkeeper::{WriteError, prelude::*};
use watchkeeper_apiserver::{ApiServer, Verb};
use watchkeeper_tests::{Website, WebsiteStatus, does, website};

/// A shop whose definition of a gate knows no fields, and keeps all.
async fn loose_shop() -> ApiServer {
    let mut loose = serde_json::to_value(Gate::crd()).unwrap();
    loose["spec"]["versions"][0]["schema"]["openAPIV3Schema"] =
        json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    ApiServer::in_memory().crd_object(loose).namespace("shop").start().await
}

async fn shop() -> ApiServer {
    ApiServer::in_memory().crd::<Website>().namespace("shop").start().await
}

/// The status as the server holds it.
async fn stored<K: Resource<DynamicType = ()>>(server: &ApiServer) -> Value {
    let resource = ApiResource::erase::<K>(&());
    let api = Api::<DynamicObject>::namespaced_with(server.client(), "shop", &resource);
    api.get("a").await.unwrap().data["status"].clone()
}

/// A kind with conditions.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "web.example.dev", version = "v1", kind = "Gate", namespaced, status = "Conditions")]
struct GateSpec {}

/// An earlier version of a condition: it knows two fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Condition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
struct Conditions {
    conditions: Vec<Condition>,
}

fn condition(type_: &str, status: &str) -> Condition {
    Condition { type_: type_.into(), status: status.into() }
}

/// Makes a gate whose conditions hold more than [`Condition`] knows.
async fn with_rich_conditions(server: &ApiServer) {
    server.create(&Gate::new("a", GateSpec {})).await;
    let theirs = json!({ "conditions": [
        { "type": "Theirs", "status": "True", "observedGeneration": 3, "reason": { "code": 7 } },
        { "type": "Ours", "status": "False", "observedGeneration": 2 },
    ] });
    server.patch_status::<Gate>("shop/a", theirs).await;
}

// W12
#[tokio::test(start_paused = true)]
async fn what_the_type_does_not_know_inside_lists_stays() {
    let server = loose_shop().await;
    with_rich_conditions(&server).await;
    let (reconciler, record) = does(|gate: Arc<Gate>, cx: Context<Gate>| async move {
        let status =
            |ours| Conditions { conditions: vec![condition("Theirs", "True"), condition("Ours", ours)] };
        cx.patch_status(&gate, status("True")).await?;
        cx.patch_status(&gate, status("Unknown")).await?;
        cx.patch_status(&gate, status("Unknown")).await?;
        Ok(Action::await_change())
    });
    let _running = Manager::new(server.client()).controller(Controller::new(reconciler)).spawn();
    record.reaches(1).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let requests = server.requests();
    let counts = (requests.count(Verb::Patch, "gates"), requests.count(Verb::Get, "gates"));
    assert_eq!(counts, (2, 1), "the second patch knows the list from the answer to the first");
    let conditions = json!([
        { "type": "Theirs", "status": "True", "observedGeneration": 3, "reason": { "code": 7 } },
        { "type": "Ours", "status": "Unknown", "observedGeneration": 2 },
    ]);
    assert_eq!(stored::<Gate>(&server).await, json!({ "conditions": conditions }));
    assert_eq!(record.len(), 1, "own writes wake nobody");
}

// W12 W9
#[tokio::test(start_paused = true)]
async fn a_list_that_changed_before_the_look_is_a_conflict_and_no_failure() {
    let server = loose_shop().await;
    with_rich_conditions(&server).await;
    let kit = Mutex::new(Some(watchkeeper_apiserver::Kit::new(server.client()).in_namespace("shop")));
    let kit = Arc::new(kit);
    let (reconciler, record) = does(move |gate: Arc<Gate>, cx: Context<Gate>| {
        let first = kit.lock().unwrap().take();
        async move {
            if let Some(kit) = first {
                let theirs = json!({ "conditions": [{ "type": "Theirs", "status": "False", "x": 1 }] });
                kit.patch_status::<Gate>("shop/a", theirs).await;
                let all = vec![condition("Theirs", "True"), condition("Ours", "True")];
                cx.patch_status(&gate, Conditions { conditions: all }).await?;
            }
            Ok(Action::await_change())
        }
    });
    let _running = Manager::new(server.client()).controller(Controller::new(reconciler)).spawn();
    record.reaches(2).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let conditions = json!([{ "type": "Theirs", "status": "False", "x": 1 }]);
    assert_eq!(stored::<Gate>(&server).await, json!({ "conditions": conditions }));
    assert!(record.starts().iter().all(|start| start.attempt == 1), "{:?}", record.starts());
}

// W12
#[tokio::test(start_paused = true)]
async fn a_status_written_into_the_object_that_is_passed_is_sent() {
    let server = shop().await;
    server.create(&website("a")).await;
    let (reconciler, record) = does(|site: Arc<Website>, cx: Context<Website>| async move {
        let mut site = (*site).clone();
        let status = WebsiteStatus { replicas: 3, ready_replicas: 1 };
        site.status = Some(status.clone());
        cx.patch_status(&site, status).await?;
        let status = WebsiteStatus { replicas: 3, ready_replicas: 2 };
        site.status = Some(status.clone());
        cx.patch_status(&site, status).await?;
        Ok(Action::await_change())
    });
    let _running = Manager::new(server.client()).controller(Controller::new(reconciler)).spawn();
    record.reaches(1).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(stored::<Website>(&server).await, json!({ "replicas": 3, "readyReplicas": 2 }));
    assert_eq!(server.requests().count(Verb::Patch, "websites"), 2);
}

// W12
#[tokio::test(start_paused = true)]
async fn what_the_server_does_not_store_is_said() {
    let server = shop().await;
    server.create(&website("a")).await;
    let said = Arc::new(Mutex::new(Vec::new()));
    let seen = said.clone();
    let (reconciler, record) = does(move |site: Arc<Website>, cx: Context<Website>| {
        let seen = seen.clone();
        async move {
            let other = DeploymentStatus { updated_replicas: Some(2), ..DeploymentStatus::default() };
            let mut whole = (*site).clone();
            whole.status = Some(WebsiteStatus::default());
            let done = vec![
                cx.patch_status_as(&site, other).await,
                cx.patch_status_as(&site, whole).await,
                cx.patch_status_as(&site, json!({ "replicas": 4, "newer": [{ "x": 1 }] })).await,
                cx.patch_status_as(&site, json!({ "replicas": 5, "none": [], "off": false })).await,
            ];
            seen.lock().unwrap().extend(done);
            Ok(Action::await_change())
        }
    });
    let _running = Manager::new(server.client()).controller(Controller::new(reconciler)).spawn();
    record.reaches(1).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let said = std::mem::take(&mut *said.lock().unwrap());
    let dropped = |at: usize| match &said[at] {
        Err(WriteError::NotStored { fields, .. }) => fields.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(dropped(0), ["status.updatedReplicas"]);
    assert!(dropped(1).contains(&"status.spec".to_owned()), "{:?}", dropped(1));
    assert_eq!(dropped(2), ["status.newer"]);
    assert!(said[3].is_ok(), "{:?}: values that say nothing may be left out", said[3]);
    let text = said[0].as_ref().unwrap_err().to_string();
    assert!(text.contains("Website shop/a") && text.contains("CRD"), "{text}");
    assert_eq!(stored::<Website>(&server).await["replicas"], 5, "what it knows is stored");
}

// W9
#[tokio::test(start_paused = true)]
async fn a_status_goes_back_although_the_object_was_patched_meanwhile() {
    let server = shop().await;
    let (reconciler, record) = does(|site: Arc<Website>, cx: Context<Website>| async move {
        let status = |replicas| WebsiteStatus { replicas, ready_replicas: 0 };
        if site.status.is_some() {
            cx.patch_status(&site, status(1)).await?;
            cx.patch(&site, json!({"metadata": {"annotations": {"at": "work"}}})).await?;
        }
        cx.patch_status(&site, status(7)).await?;
        Ok(Action::await_change())
    });
    let _running = Manager::new(server.client()).controller(Controller::new(reconciler)).spawn();
    server.create(&website("a")).await;
    record.reaches(1).await;
    assert_eq!(stored::<Website>(&server).await["replicas"], 7);
    server.patch_merge::<Website>("shop/a", json!({"spec": {"replicas": 5}})).await;
    record.reaches(2).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(stored::<Website>(&server).await["replicas"], 7);
}
