//! What a context can do: read, patch its own object, apply without an owner or with several, delete with options.

use std::sync::Mutex;

use http::Method;
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        batch::v1::Job,
        core::v1::{ConfigMap, Namespace, Secret},
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::core::{DynamicObject, ObjectMeta};
use serde_json::{Value, json};
use watchkeeper::{Running, WriteError, controller::owners_of, informer::Dynamic, object::Kind, prelude::*};
use watchkeeper_apiserver::{ApiServer, Fault, Verb};
use watchkeeper_tests::{Bodies, Record, Website, deployment_for, does, gates::Gates, website};

async fn shop() -> ApiServer {
    ApiServer::in_memory().crd::<Website>().namespace("shop").start().await
}

async fn rest() {
    tokio::time::sleep(Duration::from_secs(20)).await;
}

/// Runs a controller of websites by a closure.
fn operator<F, Fut>(client: kube::Client, run: F) -> (Running, Record)
where
    F: Fn(Arc<Website>, Context<Website>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = anyhow::Result<Action>> + Send + 'static,
{
    let (reconciler, record) = does(run);
    (Manager::new(client).controller(Controller::new(reconciler)).spawn(), record)
}

/// What one run of a closure returned, for a website `shop/a`.
async fn result_of<T, F, Fut>(server: &ApiServer, run: F) -> Result<T, WriteError>
where
    T: Send + 'static,
    F: Fn(Arc<Website>, Context<Website>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<T, WriteError>> + Send + 'static,
{
    result_by(server.client(), server, run).await
}

/// The same, over a client of the test's own.
async fn result_by<T, F, Fut>(client: kube::Client, server: &ApiServer, run: F) -> Result<T, WriteError>
where
    T: Send + 'static,
    F: Fn(Arc<Website>, Context<Website>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<T, WriteError>> + Send + 'static,
{
    let (result, run) = (Arc::new(Mutex::new(None)), Arc::new(run));
    let kept = result.clone();
    let (_running, record) = operator(client, move |site, cx| {
        let (kept, run) = (kept.clone(), run.clone());
        async move {
            if kept.lock().unwrap().is_none() {
                let done = run(site, cx).await;
                *kept.lock().unwrap() = Some(done);
            }
            Ok(Action::await_change())
        }
    });
    if server.get::<Website>("shop/a").await.is_none() {
        server.create(&website("a")).await;
    }
    record.reaches(1).await;
    rest().await;
    let result = result.lock().unwrap().take();
    result.expect("it ran")
}

fn metadata(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() }
}

fn config_map(name: &str, data: &[(&str, &str)]) -> ConfigMap {
    let data = data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    ConfigMap { metadata: metadata(name), data: Some(data), ..ConfigMap::default() }
}

fn namespace(name: &str) -> Namespace {
    Namespace { metadata: metadata(name), ..Namespace::default() }
}

// W15
#[tokio::test(start_paused = true)]
async fn get_asks_the_server_and_its_errors_name_the_object_and_the_right() {
    let server = shop().await;
    let secret = Secret { metadata: metadata("password"), ..Secret::default() };
    server.create(&secret).await;
    let found =
        result_of(&server, |_, cx| async move { cx.get::<Secret>(&ObjectKey::cluster("password")).await });
    assert_eq!(
        found.await.unwrap().namespace().as_deref(),
        Some("shop"),
        "the reconciled object's, unless it is said"
    );
    let absent = |_, cx: Context<Website>| async move {
        let key = ObjectKey::new("shop", "none");
        assert!(cx.get_opt::<Secret>(&key).await?.is_none());
        assert!(cx.get_for(Dynamic::new(Kind::of::<Secret>()), &key).await?.is_none());
        cx.get::<Secret>(&key).await
    };
    let error = result_of(&server, absent).await.unwrap_err();
    assert!(
        error.is_not_found() && error.to_string().starts_with("get Secret shop/none: not found"),
        "{error}"
    );

    for verb in [Verb::List, Verb::Watch] {
        server.allow("viewer", verb, "websites");
    }
    let (seen, record) = (Arc::new(Mutex::new(None)), Record::default());
    let (kept, runs) = (seen.clone(), record.clone());
    let reconciler = Controller::from_fn(async move |_: Arc<Website>, cx: Context<Website>| {
        *kept.lock().unwrap() = cx.get::<Secret>(&ObjectKey::new("shop", "password")).await.err();
        runs.start(&cx);
        Ok::<_, watchkeeper::Error>(Action::await_change())
    });
    let _running = Manager::new(server.client_as("viewer")).controller(reconciler).spawn();
    record.reaches(1).await;
    let error = seen.lock().unwrap().take().expect("a viewer reads no secrets").to_string();
    for part in ["get Secret shop/password: forbidden", "Role", "\"viewer\" cannot get resource \"secrets\""]
    {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
}

// W16 C24
#[tokio::test(start_paused = true)]
async fn a_patch_of_the_object_itself_is_its_own_write_and_sent_once() {
    let server = shop().await;
    let (_running, record) = operator(server.client(), |site, cx| async move {
        let patched = cx.patch(&site, json!({ "metadata": { "labels": { "seen": "yes" } } })).await?;
        assert_eq!(patched.labels().get("seen").map(String::as_str), Some("yes"));
        Ok(Action::await_change())
    });
    server.create(&website("a")).await;
    rest().await;
    assert_eq!((record.len(), server.requests().count(Verb::Patch, "websites")), (1, 1), "it wakes nobody");
    server.patch_merge::<Website>("shop/a", json!({ "spec": { "replicas": 5 } })).await;
    rest().await;
    assert_eq!((record.len(), server.requests().count(Verb::Patch, "websites")), (2, 1), "nothing to send");
    server.patch_merge::<Website>("shop/a", json!({ "metadata": { "labels": { "seen": null } } })).await;
    rest().await;
    assert_eq!(record.len(), 3, "a stranger's edit wakes it");
    assert_eq!(
        server.get::<Website>("shop/a").await.unwrap().labels().get("seen").map(String::as_str),
        Some("yes")
    );
}

// W16
#[tokio::test(start_paused = true)]
async fn patches_of_one_run_are_each_computed_from_the_one_before() {
    let server = shop().await;
    let label = |value: Value| json!({ "metadata": { "labels": { "step": value } } });
    let last = result_of(&server, move |site, cx| async move {
        cx.patch(&site, label(json!("one"))).await?;
        // The object that the run began with has no such label, and yet there is something to remove.
        cx.patch(&site, label(Value::Null)).await
    });
    assert!(!last.await.unwrap().labels().contains_key("step"));
    assert!(!server.get::<Website>("shop/a").await.unwrap().labels().contains_key("step"));
    let codes: Vec<_> = server.requests().of(Verb::Patch, "websites").iter().map(|one| one.status).collect();
    assert_eq!(codes, [Some(200), Some(200)], "neither met the other");
}

// W16 W9
#[tokio::test(start_paused = true)]
async fn a_patch_meets_a_strangers_change_elsewhere_and_refuses_to_overwrite_one_in_its_lists() {
    let server = shop().await;
    let edit = |change: Value| {
        let server = server.kit().clone();
        move |site: Arc<Website>, cx: Context<Website>| {
            let (server, change) = (server.clone(), change.clone());
            async move {
                server.patch_merge::<Website>("shop/a", change).await;
                cx.patch(&site, json!({ "spec": { "tags": ["mine"] } })).await
            }
        }
    };
    let elsewhere = result_of(&server, edit(json!({ "spec": { "replicas": 7 } }))).await.unwrap();
    assert_eq!((elsewhere.spec.replicas, &*elsewhere.spec.tags), (7, &["mine".to_owned()][..]));
    server.patch_merge::<Website>("shop/a", json!({ "spec": { "tags": [] } })).await;
    let same = result_of(&server, edit(json!({ "spec": { "tags": ["theirs"] } }))).await.unwrap_err();
    assert!(matches!(same, WriteError::Conflict { .. }), "{same}");
    assert_eq!(server.get::<Website>("shop/a").await.unwrap().spec.tags, ["theirs"]);
}

// W16
#[tokio::test(start_paused = true)]
async fn what_is_no_patch_of_an_object_is_refused_before_it_is_sent() {
    let server = shop().await;
    for odd in [json!(7), json!(["a"]), json!({ "metadata": "name" })] {
        let error = result_of(&server, move |site, cx| {
            let odd = odd.clone();
            async move { cx.patch(&site, odd).await }
        });
        assert!(matches!(error.await.unwrap_err(), WriteError::Codec { .. }));
    }
    let unread = result_of(&server, |_, cx| async move { cx.patch(&website("a"), json!({})).await }).await;
    assert!(matches!(unread.unwrap_err(), WriteError::Unidentified { .. }));
    assert_eq!(server.requests().count(Verb::Patch, "websites"), 0);
}

// W17
#[tokio::test(start_paused = true)]
async fn what_is_applied_unowned_has_no_owner_and_may_be_cluster_scoped() {
    let server = shop().await;
    let owned = result_of(&server, |_, cx| async move { cx.apply(namespace("farm")).await }).await;
    let error = owned.unwrap_err();
    assert!(error.to_string().contains(".unowned()"), "the remedy is named: {error}");
    let made = result_of(&server, |_, cx| async move { cx.apply(namespace("farm")).unowned().await });
    assert_eq!(made.await.unwrap().owner_references().len(), 0);
    let elsewhere = |_, cx: Context<Website>| async move {
        let mut map = config_map("shared", &[("a", "1")]);
        map.metadata.namespace = Some("farm".into());
        cx.apply(map).unowned().await
    };
    assert_eq!(result_of(&server, elsewhere).await.unwrap().owner_references().len(), 0);
    assert!(server.get::<ConfigMap>("farm/shared").await.is_some());
}

// W17 C26
#[tokio::test(start_paused = true)]
async fn an_unowned_apply_takes_nothing_over_that_others_manage_or_control() {
    let server = shop().await;
    server.create(&config_map("shared", &[("a", "theirs"), ("b", "theirs")])).await;
    let apply = |adopt| {
        move |_, cx: Context<Website>| async move {
            let apply = cx.apply(config_map("shared", &[("a", "mine")])).unowned();
            if adopt { apply.adopt().await } else { apply.await }
        }
    };
    let error = result_of(&server, apply(false)).await.unwrap_err();
    let WriteError::ManagedByOthers { .. } = error else { panic!("{error}") };
    assert!(error.to_string().contains(".data.a") && error.to_string().contains("`.adopt()`"), "{error}");
    let data = |map: ConfigMap| map.data.unwrap();
    assert_eq!(data(server.get("shop/shared").await.unwrap())["a"], "theirs");
    let taken = data(result_of(&server, apply(true)).await.unwrap());
    assert_eq!((&*taken["a"], &*taken["b"]), ("mine", "theirs"));

    let mut controlled = config_map("controlled", &[]);
    controlled.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        name: "boss".into(),
        uid: "b-1".into(),
        controller: Some(true),
        ..OwnerReference::default()
    }]);
    server.create(&controlled).await;
    let error = result_of(&server, |_, cx| async move {
        cx.apply(config_map("controlled", &[("a", "mine")])).unowned().await
    });
    assert!(matches!(error.await.unwrap_err(), WriteError::NotControlled { .. }));
}

// W17 W2
#[tokio::test(start_paused = true)]
async fn what_many_apply_alike_without_owning_it_is_sent_once() {
    let server = shop().await;
    let (reconciler, record) = does(|_: Arc<Website>, cx: Context<Website>| async move {
        cx.apply(config_map("shared", &[("a", "1")])).unowned().await?;
        Ok(Action::await_change())
    });
    let controller = Controller::new(reconciler).watches::<ConfigMap>(|_| Vec::new());
    let _running = Manager::new(server.client()).controller(controller).spawn();
    for number in 0..20 {
        server.create(&website(&format!("site-{number}"))).await;
    }
    record.reaches(20).await;
    rest().await;
    let sent = server.requests().count(Verb::Patch, "configmaps");
    assert!(sent <= 2, "{sent} requests: the first, and one that saw no cache yet");
}

// W17 W1
#[tokio::test(start_paused = true)]
async fn an_object_of_several_owners_keeps_them_all_and_wakes_them_all() {
    let server = shop().await;
    let (reconciler, record) = does(|_: Arc<Website>, cx: Context<Website>| async move {
        cx.apply(config_map("shared", &[("a", "1")])).uncontrolled().await?;
        Ok(Action::await_change())
    });
    let controller = Controller::new(reconciler).watches::<ConfigMap>(owners_of::<Website, _>);
    let _running = Manager::new(server.client()).controller(controller).spawn();
    let names = ["a", "b", "c"];
    for name in names {
        server.create(&website(name)).await;
    }
    rest().await;
    let owners = || async {
        let shared = server.get::<ConfigMap>("shop/shared").await.unwrap();
        let mut owners: Vec<_> = shared.owner_references().iter().map(|owner| owner.name.clone()).collect();
        assert!(shared.owner_references().iter().all(|owner| owner.controller != Some(true)));
        owners.sort();
        owners
    };
    assert_eq!(owners().await, names);
    let before = record.len();
    server.patch_merge::<ConfigMap>("shop/shared", json!({ "data": { "a": "9" } })).await;
    rest().await;
    assert!(record.len() >= before + 3, "each owner hears of an edit");
    assert_eq!(
        server.get::<ConfigMap>("shop/shared").await.unwrap().data.unwrap()["a"],
        "9",
        "it is not forced"
    );
    server.delete::<ConfigMap>("shop/shared").await;
    rest().await;
    assert_eq!(owners().await, names, "they create it again");
}

// W17
#[tokio::test(start_paused = true)]
async fn owners_that_apply_at_the_same_time_keep_each_other() {
    let server = shop().await;
    let names: Vec<_> = (0..8).map(|number| format!("site-{number}")).collect();
    for name in &names {
        server.create(&website(name)).await;
    }
    let (reconciler, record) = does(|_: Arc<Website>, cx: Context<Website>| async move {
        cx.apply(config_map("shared", &[("a", "1")])).uncontrolled().await?;
        Ok(Action::await_change())
    });
    let controller = Controller::new(reconciler).workers(8);
    let _running = Manager::new(server.client()).controller(controller).spawn();
    record.reaches(8).await;
    rest().await;
    let shared = server.get::<ConfigMap>("shop/shared").await.unwrap();
    let mut owners: Vec<_> = shared.owner_references().iter().map(|owner| owner.name.clone()).collect();
    owners.sort();
    assert_eq!(owners, names);
}

// W18
#[tokio::test(start_paused = true)]
async fn kinds_known_at_run_time_are_applied_created_and_deleted() {
    let server = shop().await;
    let kind = || Dynamic::new(Kind::of::<ConfigMap>());
    let dynamic = |name: &str| -> DynamicObject {
        let object = json!({ "metadata": { "name": name }, "data": { "a": "1" } });
        serde_json::from_value(object).unwrap()
    };
    let made = result_of(&server, move |_, cx| async move {
        let applied = cx.apply_for(kind(), dynamic("one")).await?;
        let created = cx.create_for(kind(), dynamic("two")).await?;
        cx.delete_for(kind(), &created).await?;
        Ok(applied)
    });
    let made = made.await.unwrap();
    assert_eq!((&made.data["data"]["a"], made.owner_references().len()), (&json!("1"), 1));
    assert!(server.get::<ConfigMap>("shop/one").await.is_some());
    assert!(server.get::<ConfigMap>("shop/two").await.is_none());
}

// W18 W2
#[tokio::test(start_paused = true)]
async fn a_child_known_at_run_time_is_not_sent_again_while_it_is_right() {
    let server = shop().await;
    let kind = || Dynamic::new(Kind::of::<Deployment>());
    let (reconciler, record) = does(move |site: Arc<Website>, cx: Context<Website>| async move {
        let child = serde_json::from_value(serde_json::to_value(deployment_for(&site))?)?;
        cx.apply_for(kind(), child).await?;
        Ok(Action::await_change())
    });
    let controller = Controller::new(reconciler).watch(Watch::of(kind()).owned());
    let _running = Manager::new(server.client()).controller(controller).spawn();
    server.create(&website("a")).await;
    for run in 1..4 {
        record.reaches(run).await;
        rest().await;
        let note = json!({ "metadata": { "annotations": { "note": run.to_string() } } });
        server.patch_merge::<Website>("shop/a", note).await;
    }
    assert_eq!(server.requests().count(Verb::Patch, "deployments"), 1);
}

// W19
#[tokio::test(start_paused = true)]
async fn a_deletion_says_what_becomes_of_the_rest_and_may_insist_on_the_version() {
    let server = shop().await;
    let body = |name: &str| config_map(name, &[]);
    for name in ["plain", "first", "changed"] {
        server.create(&body(name)).await;
    }
    let (bodies, client) = Bodies::of(server.client());
    let kit = server.kit().clone();
    let outcome = result_by(client, &server, move |_, cx| {
        let kit = kit.clone();
        async move {
            let get = async |name: &str| cx.get::<ConfigMap>(&ObjectKey::cluster(name)).await;
            cx.delete(&get("plain").await?).if_unchanged().await?;
            let first = get("first").await?;
            cx.delete(&first)
                .propagation(Propagation::Foreground)
                .grace_period(Duration::from_secs(7))
                .await?;
            // Gone, or going, is deleted.
            cx.delete(&first).if_unchanged().await?;
            let changed = get("changed").await?;
            kit.patch_merge::<ConfigMap>("shop/changed", json!({ "data": { "a": "1" } })).await;
            cx.delete(&changed).if_unchanged().await
        }
    });
    let error = outcome.await.unwrap_err();
    assert!(matches!(error, WriteError::Conflict { .. }), "{error}");
    assert!(server.get::<ConfigMap>("shop/plain").await.is_none());
    assert!(server.get::<ConfigMap>("shop/changed").await.is_some());
    let options: Vec<Value> = bodies.with(&Method::DELETE).into_iter().map(|sent| sent.body).collect();
    assert!(options[0]["preconditions"]["resourceVersion"].is_string());
    assert_eq!(
        (&options[1]["propagationPolicy"], &options[1]["gracePeriodSeconds"]),
        (&json!("Foreground"), &json!(7))
    );
    assert!(options[1]["preconditions"].get("resourceVersion").is_none());
}

// W19
// If a deletion does not say it, the server leaves the pods of a job to nobody.
#[tokio::test(start_paused = true)]
async fn what_a_job_owns_is_deleted_with_it() {
    let server = shop().await;
    let job: Job = serde_json::from_value(json!({
        "metadata": { "name": "job", "namespace": "shop" },
        "spec": { "template": { "spec": {
            "containers": [{ "name": "a", "image": "b" }], "restartPolicy": "Never",
        } } },
    }))
    .unwrap();
    let job = server.create(&job).await;
    let mut child = config_map("child", &[]);
    child.metadata.owner_references = Some(vec![job.owner_ref(&()).unwrap()]);
    server.create(&child).await;
    let outcome = result_of(&server, |_, cx| async move {
        let job = cx.get::<Job>(&ObjectKey::cluster("job")).await?;
        cx.delete(&job).await
    });
    outcome.await.unwrap();
    server.settle().await;
    assert!(server.get::<Job>("shop/job").await.is_none());
    assert!(server.get::<ConfigMap>("shop/child").await.is_none());
}

// W23
#[tokio::test(start_paused = true)]
async fn what_is_applied_again_after_its_deletion_is_sent_though_the_cache_shows_it_yet() {
    let server = shop().await;
    let (gates, client) = Gates::before(server.client());
    let (kit, held, is_there) = (server.kit().clone(), gates.clone(), Arc::new(Mutex::new(None)));
    let told = is_there.clone();
    let (reconciler, record) = does(move |site: Arc<Website>, cx: Context<Website>| {
        let (kit, gates, told) = (kit.clone(), held.clone(), told.clone());
        async move {
            let child = cx.apply(deployment_for(&site)).await?;
            if site.metadata.labels.is_some() && told.lock().unwrap().is_none() {
                gates.hold_events();
                cx.delete(&child).await?;
                cx.apply(deployment_for(&site)).await?;
                *told.lock().unwrap() = Some(kit.get::<Deployment>("shop/a").await.is_some());
                gates.let_events_pass();
            }
            Ok(Action::await_change())
        }
    });
    let controller = Controller::new(reconciler).owns::<Deployment>();
    let _running = Manager::new(client).controller(controller).spawn();
    server.create(&website("a")).await;
    record.reaches(1).await;
    rest().await;
    let label = json!({ "metadata": { "labels": { "again": "yes" } } });
    server.patch_merge::<Website>("shop/a", label).await;
    rest().await;
    assert_eq!(*is_there.lock().unwrap(), Some(true));
}

// W19 W5
#[tokio::test(start_paused = true)]
async fn an_object_that_was_not_read_is_not_deleted_by_its_name() {
    let server = shop().await;
    server.create(&config_map("plain", &[])).await;
    let error = result_of(&server, |_, cx| async move { cx.delete(&config_map("plain", &[])).await }).await;
    assert!(matches!(error.unwrap_err(), WriteError::Unidentified { .. }));
    let unversioned = result_of(&server, |_, cx| async move {
        let mut read = cx.get::<ConfigMap>(&ObjectKey::cluster("plain")).await?;
        read.metadata.resource_version = None;
        cx.delete(&read).if_unchanged().await
    });
    assert!(matches!(unversioned.await.unwrap_err(), WriteError::Unversioned { .. }));
    assert_eq!(server.requests().count(Verb::Delete, "configmaps"), 0);
}

// W16 W10
#[tokio::test(start_paused = true)]
async fn a_patch_whose_reply_is_lost_is_waited_for_and_not_sent_twice() {
    let server = shop().await;
    server.faults().on(Verb::Patch, "websites").once().then(Fault::CommitThenDrop);
    let (_running, record) = operator(server.client(), |site, cx| async move {
        cx.patch(&site, json!({ "metadata": { "labels": { "seen": "yes" } } })).await?;
        Ok(Action::await_change())
    });
    server.create(&website("a")).await;
    rest().await;
    assert_eq!(
        server.get::<Website>("shop/a").await.unwrap().labels().get("seen").map(String::as_str),
        Some("yes")
    );
    assert_eq!(server.requests().count(Verb::Patch, "websites"), 1, "the next run sees that it came about");
    assert!(record.len() >= 2);
}
