//! What hostile users, panics, deletions and slow caches do to a controller and its writes.

use std::{
    fmt,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::{
    Api,
    api::{Patch, PatchParams},
    core::{DynamicObject, ObjectMeta},
};
use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};
use serde_json::{Value, json};
use watchkeeper::{
    WriteError,
    informer::{Dynamic, Metadata},
    prelude::*,
};
use watchkeeper_apiserver::{ApiServer, Fault, Verb};
use watchkeeper_tests::{Does, Record, Website, WebsiteStatus, deployment_for, does, website};

async fn shop() -> ApiServer {
    ApiServer::in_memory().crd::<Website>().crd::<Region>().namespace("shop").start().await
}

/// A shop whose definition of a website fills nothing in, and refuses nothing.
async fn loose_shop() -> ApiServer {
    let mut loose = serde_json::to_value(Website::crd()).unwrap();
    loose["spec"]["versions"][0]["schema"]["openAPIV3Schema"] =
        json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    ApiServer::in_memory().crd_object(loose).namespace("shop").start().await
}

fn spawn<K: Watched, R: Reconciler<K>>(
    server: &ApiServer,
    controller: Controller<K, R>,
) -> watchkeeper::Running {
    Manager::new(server.client()).controller(controller).spawn()
}

async fn quiet(record: &Record, runs: usize) {
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(record.len(), runs, "{:?}", record.starts());
}

fn status(replicas: i32) -> WebsiteStatus {
    WebsiteStatus { replicas, ready_replicas: 0 }
}

fn config_map(name: &str) -> ConfigMap {
    ConfigMap { metadata: ObjectMeta { name: Some(name.into()), ..Default::default() }, ..Default::default() }
}

/// A cluster-scoped owner of namespaced children.
#[derive(CustomResource, Informer, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(group = "web.example.dev", version = "v1", kind = "Region", status = "RegionStatus")]
struct RegionSpec {
    /// Where it is.
    pub place: String,
}

/// How often it was looked at.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
struct RegionStatus {
    /// The number of looks.
    pub looks: i32,
}

// ---- status ----

// W9
#[tokio::test(start_paused = true)]
async fn a_status_set_to_something_else_and_back_within_a_run_ends_as_it_was_set_last() {
    let server = shop().await;
    server.create(&website("a")).await;
    server.patch_status::<Website>("shop/a", json!({ "replicas": 1, "readyReplicas": 0 })).await;
    let (reconciler, record) = does(|site: Arc<Website>, cx: Context<Website>| async move {
        cx.patch_status(&site, status(7)).await?;
        // The write is seen by the cache before the run goes on.
        tokio::time::sleep(Duration::from_secs(1)).await;
        cx.patch_status(&site, status(1)).await?;
        Ok(Action::await_change())
    });
    let _running = spawn(&server, Controller::new(reconciler));
    quiet(&record, 1).await;
    let site = server.get::<Website>("shop/a").await.unwrap();
    assert_eq!(site.status.unwrap().replicas, 1);
}

// W9
#[tokio::test(start_paused = true)]
async fn a_status_set_twice_in_a_run_is_no_conflict_with_itself() {
    let server = shop().await;
    server.create(&website("a")).await;
    let (reconciler, record) = does(|site: Arc<Website>, cx: Context<Website>| async move {
        let before = site.status.clone().unwrap_or_default().replicas;
        cx.patch_status(&site, status(before + 1)).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        cx.patch_status(&site, status(before + 2)).await?;
        Ok(Action::await_change())
    });
    let _running = spawn(&server, Controller::new(reconciler));
    quiet(&record, 1).await;
    assert_eq!(server.get::<Website>("shop/a").await.unwrap().status.unwrap().replicas, 2);
}

// W9
#[tokio::test(start_paused = true)]
async fn a_strangers_edit_elsewhere_does_not_refuse_a_status_that_reads_the_same() {
    let server = loose_shop().await;
    server.create(&website("a")).await;
    // What the type fills in by default is not there on the server.
    server.patch_status::<Website>("shop/a", json!({ "replicas": 1 })).await;
    let (reconciler, record) = does(|site: Arc<Website>, cx: Context<Website>| async move {
        if site.labels().is_empty() {
            let api = Api::<Website>::namespaced(cx.client().clone(), "shop");
            let label = json!({ "metadata": { "labels": { "by": "stranger" } } });
            api.patch("a", &PatchParams::default(), &Patch::Merge(label)).await?;
        }
        cx.patch_status(&site, WebsiteStatus { replicas: 1, ready_replicas: 5 }).await?;
        Ok(Action::await_change())
    });
    let _running = spawn(&server, Controller::new(reconciler));
    record.reaches(1).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let refused = server.requests().of(Verb::Patch, "websites");
    let refused = refused.iter().filter(|request| request.subresource == "status");
    let codes: Vec<_> = refused.map(|request| request.status).collect();
    assert_eq!(codes, [Some(409), Some(200)], "sent again at once, on the version found");
    quiet(&record, 2).await;
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Part {
    replicas: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

#[tokio::test(start_paused = true)]
async fn fields_that_the_callers_status_type_does_not_know_stay() {
    let server = loose_shop().await;
    server.create(&website("a")).await;
    let before = json!({ "replicas": 1, "note": "old", "theirs": { "kept": [1, 2] } });
    server.patch_status::<Website>("shop/a", before).await;
    let kind = Website::kind_of(&());
    let (reconciler, record) = does(|site: Arc<DynamicObject>, cx: Context<Dynamic>| async move {
        cx.patch_status_as(&site, Part { replicas: 3, note: None }).await?;
        Ok(Action::await_change())
    });
    let _running = spawn(&server, Controller::for_kind(Dynamic::new(kind), reconciler));
    quiet(&record, 1).await;
    let resource = kube::core::ApiResource::erase::<Website>(&());
    let api = Api::<DynamicObject>::namespaced_with(server.client(), "shop", &resource);
    let found = api.get("a").await.unwrap();
    assert_eq!(found.data["status"], json!({ "replicas": 3, "theirs": { "kept": [1, 2] } }));
}

#[tokio::test(start_paused = true)]
async fn a_status_of_an_object_that_was_never_read_is_refused() {
    let server = shop().await;
    server.create(&website("a")).await;
    let errors = Arc::new(Mutex::new(Vec::new()));
    let seen = errors.clone();
    let (reconciler, record) = does(move |_, cx: Context<Website>| {
        let seen = seen.clone();
        async move {
            let mut made_up = website("a");
            made_up.metadata.namespace = Some("shop".into());
            let refused = cx.patch_status(&made_up, status(9)).await.map_err(|error| error.to_string());
            seen.lock().unwrap().push(refused);
            Ok(Action::await_change())
        }
    });
    let _running = spawn(&server, Controller::new(reconciler));
    quiet(&record, 1).await;
    let error = errors.lock().unwrap()[0].clone().expect_err("it carries no version");
    assert!(error.contains("Website shop/a") && error.contains("resourceVersion"), "{error}");
    assert_eq!(server.requests().count(Verb::Patch, "websites"), 0);
}

// ---- who feeds, who wakes ----

async fn counting_child(controller: impl FnOnce(Does<Website>) -> Controller<Website, Does<Website>>) {
    let server = shop().await;
    let runs = Arc::new(AtomicUsize::new(0));
    let (reconciler, record) = does(move |site: Arc<Website>, cx: Context<Website>| {
        let run = runs.fetch_add(1, Ordering::SeqCst);
        async move {
            let mut child = deployment_for(&site);
            child.annotations_mut().insert("run".into(), run.to_string());
            cx.apply(child).await?;
            Ok(Action::await_change())
        }
    });
    let _running = spawn(&server, controller(reconciler));
    server.create(&website("a")).await;
    record.reaches(1).await;
    quiet(&record, 1).await;
    server.patch_merge::<Deployment>("shop/a", json!({ "spec": { "replicas": 9 } })).await;
    record.reaches(2).await;
    quiet(&record, 2).await;
}

// C24
#[tokio::test(start_paused = true)]
async fn a_kind_that_is_owned_twice_does_not_make_own_writes_strangers() {
    counting_child(|reconciler| Controller::new(reconciler).owns::<Deployment>().owns::<Deployment>()).await;
}

// C24
#[tokio::test(start_paused = true)]
async fn a_kind_that_is_watched_in_two_forms_does_not_make_own_writes_strangers() {
    counting_child(|reconciler| {
        Controller::new(reconciler).owns::<Deployment>().owns::<Metadata<Deployment>>()
    })
    .await;
}

// C24
#[tokio::test(start_paused = true)]
async fn a_cluster_scoped_owner_of_children_in_one_namespace_is_not_woken_by_its_own_status() {
    let server = shop().await;
    let (reconciler, record) = does(|region: Arc<Region>, cx: Context<Region>| async move {
        let looks = region.status.clone().unwrap_or_default().looks + 1;
        let mut child = config_map("child");
        child.metadata.namespace = Some("shop".into());
        cx.apply(child).await?;
        cx.patch_status(&region, RegionStatus { looks }).await?;
        Ok(Action::await_change())
    });
    let controller = Controller::new(reconciler).namespace("shop").owns::<ConfigMap>();
    let _running = spawn(&server, controller);
    let regions = Api::<Region>::all(server.client());
    let region = Region::new("north", RegionSpec { place: "north".into() });
    regions.create(&Default::default(), &region).await.unwrap();
    record.reaches(1).await;
    quiet(&record, 1).await;
    server.patch_merge::<ConfigMap>("shop/child", json!({ "data": { "k": "v" } })).await;
    record.reaches(2).await;
    quiet(&record, 2).await;
}

// C27
#[tokio::test(start_paused = true)]
async fn what_one_controller_writes_is_news_to_another_that_shares_its_informer() {
    let server = shop().await;
    let (writer, written) = does(|site: Arc<Website>, cx: Context<Website>| async move {
        let replicas = site.status.clone().unwrap_or_default().replicas + 1;
        cx.patch_status(&site, status(replicas)).await?;
        Ok(Action::await_change())
    });
    let (looker, looked) =
        does(|_: Arc<Website>, _: Context<Website>| async move { Ok(Action::await_change()) });
    let _running = Manager::new(server.client())
        .controller(Controller::new(writer))
        .controller(Controller::new(looker).named("looker"))
        .spawn();
    tokio::time::sleep(Duration::from_secs(5)).await;
    server.create(&website("a")).await;
    looked.reaches(2).await;
    quiet(&written, 1).await;
    assert_eq!(looked.len(), 2);
}

// C33
#[tokio::test(start_paused = true)]
async fn a_controller_of_one_namespace_reads_in_that_namespace() {
    let server = shop().await;
    server.create(&website("a")).await;
    let (reconciler, record) =
        does(|_: Arc<Website>, _: Context<Website>| async move { Ok(Action::await_change()) });
    let controller = Controller::new(reconciler).namespace("shop").owns::<Deployment>();
    let _running = spawn(&server, controller.reads::<Deployment>().reads::<ConfigMap>());
    record.reaches(1).await;
    for resource in ["deployments", "configmaps"] {
        let asked = server.requests().of(Verb::Watch, resource);
        assert_eq!(asked.len(), 1, "{asked:#?}");
        assert_eq!(asked[0].namespace.as_deref(), Some("shop"));
    }
}

// ---- children ----

// C26
#[tokio::test(start_paused = true)]
async fn having_written_to_an_object_is_no_proof_of_owning_it() {
    let server = shop().await;
    server.create(&website("stranger")).await;
    let errors = Arc::new(Mutex::new(Vec::new()));
    let seen = errors.clone();
    let stranger = server.get::<Website>("shop/stranger").await.unwrap();
    let (reconciler, record) = does(move |site: Arc<Website>, cx: Context<Website>| {
        let (seen, stranger) = (seen.clone(), stranger.clone());
        async move {
            if site.name_any() == "a" {
                cx.patch_status(&stranger, status(3)).await?;
                let applied = cx.apply(website("stranger")).await;
                seen.lock().unwrap().push(applied.map(|_| ()));
            }
            Ok(Action::await_change())
        }
    });
    let _running = spawn(&server, Controller::new(reconciler));
    server.create(&website("a")).await;
    record.reaches(2).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let found = server.get::<Website>("shop/stranger").await.unwrap();
    assert!(found.owner_references().is_empty());
    let errors = errors.lock().unwrap();
    assert!(matches!(errors[0], Err(WriteError::NotControlled { .. })), "{errors:?}");
}

#[tokio::test(start_paused = true)]
async fn a_childs_name_reaches_no_other_path() {
    let server = shop().await;
    server.create(&website("a")).await;
    let errors = Arc::new(Mutex::new(Vec::new()));
    let seen = errors.clone();
    let (reconciler, record) = does(move |_: Arc<Website>, cx: Context<Website>| {
        let seen = seen.clone();
        async move {
            for name in ["a/status", "..", "a?dryRun=All", "a b", "ü"] {
                let error = cx.apply(config_map(name)).await.expect_err("no such name");
                seen.lock().unwrap().push(error.to_string());
            }
            Ok(Action::await_change())
        }
    });
    let _running = spawn(&server, Controller::new(reconciler));
    quiet(&record, 1).await;
    for error in errors.lock().unwrap().iter() {
        assert!(!error.contains("connection"), "{error}");
        assert!(error.contains("ConfigMap shop/"), "{error}");
    }
    assert!(server.list::<ConfigMap>("shop").await.iter().all(|map| map.name_any() == "kube-root-ca.crt"));
    let asked = server.requests().list();
    assert!(asked.iter().all(|request| request.subresource.is_empty()), "{asked:#?}");
}

// ---- panics ----

/// An error that panics when it is formatted.
struct Bomb;

impl fmt::Debug for Bomb {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("looked at")
    }
}

impl fmt::Display for Bomb {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("looked at")
    }
}

impl std::error::Error for Bomb {}

/// Panics everywhere but in the future that it returns.
struct Panicker {
    record: Record,
}

#[derive(Debug)]
enum Broken {
    Shown,
    Asked,
}

impl From<Broken> for Box<dyn std::error::Error + Send + Sync> {
    fn from(_: Broken) -> Self {
        Box::new(Bomb)
    }
}

impl Reconciler<ConfigMap> for Panicker {
    type Error = Broken;

    fn reconcile(
        &self,
        _: Arc<ConfigMap>,
        cx: &Context<ConfigMap>,
    ) -> impl Future<Output = Result<Action, Broken>> + Send {
        self.record.start(cx);
        let run = self.record.len();
        assert!(run != 1, "before there is a future");
        async move {
            match run {
                2 => Err(Broken::Asked),
                3 => Err(Broken::Shown),
                _ => Ok(Action::await_change()),
            }
        }
    }

    fn is_terminal(error: &Broken) -> bool {
        assert!(matches!(error, Broken::Shown), "asked");
        false
    }
}

// C1
#[tokio::test(start_paused = true)]
async fn a_panic_anywhere_in_the_users_code_is_an_error_of_its_run() {
    let server = shop().await;
    server.create(&config_map("a")).await;
    let record = Record::default();
    let panicker = Panicker { record: record.clone() };
    let _running = spawn(&server, Controller::new(panicker).namespace("shop"));
    record.reaches(4).await;
    server.create(&config_map("b")).await;
    record.reaches(5).await;
}

// C1
#[tokio::test(start_paused = true)]
async fn a_propagated_panic_ends_a_manager_that_runs_until_a_signal() {
    let server = shop().await;
    server.create(&config_map("a")).await;
    let (reconciler, _) = does(|_: Arc<ConfigMap>, _: Context<ConfigMap>| async move { panic!("as asked") });
    let controller = Controller::new(reconciler).namespace("shop").panics(Panics::Propagate);
    let run = tokio::spawn(Manager::new(server.client()).controller(controller).run());
    let ended = tokio::time::timeout(Duration::from_secs(60), run).await.expect("it goes on");
    assert!(ended.unwrap_err().is_panic());
}

// ---- stopping ----

/// Notes when a run is dropped.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn endless() -> (Does<ConfigMap>, Record, Arc<AtomicBool>) {
    let dropped = Arc::new(AtomicBool::new(false));
    let flag = dropped.clone();
    let (reconciler, record) = does(move |_: Arc<ConfigMap>, _: Context<ConfigMap>| {
        let dropped = Dropped(flag.clone());
        async move {
            let _dropped = dropped;
            std::future::pending().await
        }
    });
    (reconciler, record, dropped)
}

// C18
#[tokio::test(start_paused = true)]
async fn a_run_that_outlives_the_grace_period_is_gone_when_the_stop_returns() {
    let server = shop().await;
    server.create(&config_map("a")).await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let (reconciler, record, dropped) = endless();
    let client = server.client();
    tokio::task::yield_now().await;
    let before = tasks();
    let controller = Controller::new(reconciler).namespace("shop");
    let manager = Manager::new(client.clone()).controller(controller);
    let running = manager.grace_period(Duration::from_secs(5)).spawn();
    record.reaches(1).await;
    let error = running.stop().await.unwrap_err();
    assert!(dropped.load(Ordering::SeqCst), "it still runs");
    assert!(error.to_string().contains("grace period"), "{error}");
    // The task behind the manager's client ends when it runs next.
    tokio::task::yield_now().await;
    assert!(tasks() <= before, "{} tasks are left of {before}", tasks());
}

// C18
#[tokio::test(start_paused = true)]
async fn a_run_that_outlives_a_dropped_manager_ends_with_the_grace_period() {
    let server = shop().await;
    server.create(&config_map("a")).await;
    let (reconciler, record, dropped) = endless();
    let controller = Controller::new(reconciler).namespace("shop");
    let manager = Manager::new(server.client()).controller(controller);
    let running = manager.grace_period(Duration::from_secs(5)).spawn();
    record.reaches(1).await;
    drop(running);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!dropped.load(Ordering::SeqCst), "what runs may end");
    server.create(&config_map("b")).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(dropped.load(Ordering::SeqCst), "a hanging run was left behind");
    assert_eq!(record.len(), 1);
}

// ---- errors ----

#[derive(Debug, thiserror::Error)]
enum Own {
    #[error(transparent)]
    Write(#[from] WriteError),
}

// C8
#[tokio::test(start_paused = true)]
async fn a_conflict_is_no_failure_however_it_is_wrapped() {
    use anyhow::Context as _;
    let server = shop().await;
    let (reconciler, record) = does(|site: Arc<Website>, cx: Context<Website>| async move {
        if cx.attempt() > 1 {
            anyhow::bail!("it was counted");
        }
        if site.status.is_none() {
            let api = Api::<Website>::namespaced(cx.client().clone(), "shop");
            let theirs: Value = json!({ "status": { "replicas": 40, "readyReplicas": 0 } });
            api.patch_status("a", &PatchParams::default(), &Patch::Merge(theirs)).await?;
            let written = cx.patch_status(&site, status(5)).await.map_err(Own::from);
            written.context("while something else").context("went on")?;
        }
        Ok(Action::await_change())
    });
    let _running = spawn(&server, Controller::new(reconciler));
    server.create(&website("a")).await;
    record.reaches(2).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(record.starts().iter().all(|start| start.attempt == 1), "{:?}", record.starts());
}

// ---- everything at once ----

/// A client whose requests and answers take their time: events overtake answers.
fn slow(client: kube::Client, seed: u64) -> kube::Client {
    let dice = Arc::new(Mutex::new(SmallRng::seed_from_u64(seed)));
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (client, dice) = (client.clone(), dice.clone());
        let pause = move || {
            let pause = dice.lock().unwrap().random_range(0..30);
            tokio::time::sleep(Duration::from_millis(pause))
        };
        async move {
            pause().await;
            let answer = client.send(request).await;
            pause().await;
            answer
        }
    });
    kube::Client::new(service, "shop")
}

/// Does something unexpected to one of the sites; what is not there is left alone.
async fn meddle(server: &ApiServer, dice: &mut SmallRng) {
    let name = format!("site-{}", dice.random_range(0..5));
    let sites = Api::<Website>::namespaced(server.client(), "shop");
    let deployments = Api::<Deployment>::namespaced(server.client(), "shop");
    let edit = Patch::Merge(json!({ "spec": { "replicas": dice.random_range(0..50) } }));
    let theirs = Patch::Merge(json!({ "status": { "replicas": 77, "readyReplicas": 7 } }));
    let (with, faults) = (PatchParams::default(), server.faults());
    match dice.random_range(0..40) {
        0 => drop(sites.delete(&name, &Default::default()).await),
        1 => drop(deployments.delete(&name, &Default::default()).await),
        2 | 20..28 => drop(deployments.patch(&name, &with, &edit).await),
        3 | 28..34 => drop(sites.patch_status(&name, &with, &theirs).await),
        4 => drop(faults.on(Verb::Watch, "websites").once().then(Fault::Cut)),
        5 => drop(faults.on(Verb::Watch, "deployments").once().then(Fault::Cut)),
        6 => server.compact(),
        7 => drop(faults.on_any_write().once().then(Fault::CommitThenDrop)),
        8..20 => drop(sites.patch(&name, &with, &edit).await),
        _ => drop(sites.create(&Default::default(), &website(&name)).await),
    }
}

// C24 C27 C29 W9
#[tokio::test(start_paused = true)]
async fn whatever_happens_in_whatever_order_all_ends_right_and_at_rest() {
    for seed in 20..23 {
        let server = shop().await;
        let runs = Arc::new(AtomicUsize::new(0));
        let (reconciler, record) = does(move |site: Arc<Website>, cx: Context<Website>| {
            let run = runs.fetch_add(1, Ordering::SeqCst) as i32;
            async move {
                cx.patch_status(&site, WebsiteStatus { replicas: -1, ready_replicas: run }).await?;
                let mut child = deployment_for(&site);
                child.annotations_mut().insert("run".into(), run.to_string());
                cx.apply(child).await?;
                let replicas = site.spec.replicas;
                cx.patch_status(&site, WebsiteStatus { replicas, ready_replicas: run }).await?;
                Ok(Action::await_change())
            }
        });
        let controller = Controller::new(reconciler).owns::<Deployment>().workers(3);
        let _running = Manager::new(slow(server.client(), seed)).controller(controller).spawn();
        let mut dice = SmallRng::seed_from_u64(seed);
        for _ in 0..150 {
            meddle(&server, &mut dice).await;
            tokio::time::sleep(Duration::from_millis(dice.random_range(0..200))).await;
        }
        server.faults().clear();
        tokio::time::sleep(Duration::from_secs(300)).await;
        let runs = record.len();
        assert!(runs > 10, "seed {seed}: nothing much happened in {runs} runs");
        for site in server.list::<Website>("shop").await {
            let key = format!("shop/{}", site.name_any());
            let child =
                server.get::<Deployment>(&key).await.unwrap_or_else(|| panic!("seed {seed}: no {key}"));
            let wanted = site.spec.replicas;
            assert_eq!(child.spec.unwrap().replicas, Some(wanted), "seed {seed}: the child of {key}");
            assert_eq!(site.status.unwrap().replicas, wanted, "seed {seed}: the status of {key}");
        }
        tokio::time::sleep(Duration::from_secs(300)).await;
        assert_eq!(record.len(), runs, "seed {seed}: it does not come to rest");
    }
}
