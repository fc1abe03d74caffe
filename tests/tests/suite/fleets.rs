//! Clusters that come and go while the manager runs.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicUsize, Ordering},
    task::Poll,
};

use futures::{
    StreamExt,
    channel::mpsc::{UnboundedSender, unbounded},
    stream,
};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{CustomResource, config::AuthInfo, core::ObjectMeta};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::{sleep, timeout};
use watchkeeper::{
    Running,
    controller::Why,
    leader_election::LeaderElection,
    manager::{Fleet, FleetCluster},
    prelude::*,
    reflector::ReflectorConfig,
};
use watchkeeper_apiserver::{ApiServer, Fault, Verb};
use watchkeeper_tests::Record;

const SOON: Duration = Duration::from_secs(5);

async fn cluster() -> ApiServer {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    server.create(&secret("a")).await;
    server
}

fn secret(name: &str) -> Secret {
    let metadata = ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
    Secret { metadata, ..Secret::default() }
}

/// Keeps a ConfigMap for each Secret of its cluster.
struct Keeps {
    cluster: String,
    record: Record,
}

impl Reconciler<Secret> for Keeps {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, secret: Arc<Secret>, cx: &Context<Secret>) -> Result<Action, Self::Error> {
        self.record.note(ObjectKey::new(self.cluster.as_str(), secret.name_any()), cx.attempt());
        let metadata = ObjectMeta { name: secret.metadata.name.clone(), ..ObjectMeta::default() };
        let data = Some([("cluster".to_owned(), self.cluster.clone())].into());
        cx.apply(ConfigMap { metadata, data, ..ConfigMap::default() }).await?;
        Ok(Action::await_change())
    }
}

type Changes = UnboundedSender<(String, Option<kube::Client>)>;

/// Gives a manager a fleet that follows what is sent.
fn fleet(manager: &Manager) -> (Changes, Record) {
    let ((changes, received), record) = (unbounded(), Record::default());
    let recorded = record.clone();
    let make = move |cluster: &FleetCluster| {
        let keeps = Keeps { cluster: cluster.name().to_owned(), record: recorded.clone() };
        Controller::new(keeps).named("keeper").owns::<ConfigMap>()
    };
    manager.fleet(Fleet::stream(received)).controller(make);
    (changes, record)
}

fn send(changes: &Changes, name: &str, client: Option<kube::Client>) {
    changes.unbounded_send((name.to_owned(), client)).unwrap();
}

/// Starts a replica of an elected program that has one cluster.
fn replica(hub: &ApiServer, one: &ApiServer, name: &str) -> (Running, Record, Changes) {
    let election = LeaderElection::new("fleet").identity(name).namespace("shop");
    let manager = Manager::new(hub.client()).leader_election(election);
    let (changes, record) = fleet(&manager);
    send(&changes, "one", Some(one.client()));
    (manager.spawn(), record, changes)
}

fn ran(record: &Record, cluster: &str) -> usize {
    record.starts().iter().filter(|start| start.key.namespace() == Some(cluster)).count()
}

async fn kept(server: &ApiServer, name: &str) -> bool {
    server.get::<ConfigMap>(&format!("shop/{name}")).await.is_some()
}

// P31
#[tokio::test(start_paused = true)]
async fn controllers_run_for_each_cluster_from_its_coming_to_its_leaving() {
    let (hub, one, two) = (cluster().await, cluster().await, cluster().await);
    let manager = Manager::new(hub.client());
    let (changes, record) = fleet(&manager);
    let metrics = manager.metrics();
    let running = manager.spawn();
    send(&changes, "one", Some(one.client()));
    sleep(SOON).await;
    send(&changes, "two", Some(two.client()));
    sleep(SOON).await;
    assert_eq!((ran(&record, "one"), ran(&record, "two")), (1, 1));
    assert!(kept(&one, "a").await && kept(&two, "a").await && !kept(&hub, "a").await);
    let map = one.get::<ConfigMap>("shop/a").await.unwrap();
    assert_eq!(map.metadata.managed_fields.unwrap()[0].manager.as_deref(), Some("keeper"));
    let why = running.why::<Secret>(&ObjectKey::new("shop", "a"));
    let names: Vec<_> = why.iter().map(|report| report.controller.to_string()).collect();
    assert_eq!(names, ["one/keeper", "two/keeper"]);

    send(&changes, "one", None);
    sleep(SOON).await;
    assert_eq!((one.watches("secrets").open(), two.watches("secrets").open()), (0, 1));
    assert_eq!(running.why::<Secret>(&ObjectKey::new("shop", "a")).len(), 1);
    let page = metrics.encode();
    assert!(
        !page.contains("\"one/") && page.contains("\"two/keeper\"") && page.contains("\"two/secrets\""),
        "{page}"
    );
    one.create(&secret("b")).await;
    two.create(&secret("b")).await;
    sleep(SOON).await;
    assert!(!kept(&one, "b").await && kept(&two, "b").await);

    // It comes back, and another client takes the place of one that is there.
    send(&changes, "one", Some(one.client()));
    let three = cluster().await;
    send(&changes, "two", Some(three.client()));
    sleep(2 * SOON).await;
    assert!(kept(&one, "b").await && kept(&three, "a").await);
    assert_eq!(two.watches("secrets").open(), 0);
    // A name that can't be one is left out; nothing else suffers.
    send(&changes, "No Name", Some(two.client()));
    drop(changes);
    sleep(SOON).await;
    one.create(&secret("c")).await;
    sleep(SOON).await;
    assert!(kept(&one, "c").await);
    running.stop().await.unwrap();
    assert_eq!((one.watches("secrets").open(), three.watches("secrets").open()), (0, 0));
}

// P31
#[tokio::test(start_paused = true)]
async fn a_controller_of_a_cluster_may_watch_one_of_the_managers_and_clusters_stay_when_the_stream_ends() {
    let (hub, other, one, two) = (cluster().await, cluster().await, cluster().await, cluster().await);
    let manager = Manager::new(hub.client());
    let (settings, record) = (manager.cluster("settings", other.client()), Record::default());
    let recorded = record.clone();
    let make = move |cluster: &FleetCluster| {
        let keeps = Keeps { cluster: cluster.name().to_owned(), record: recorded.clone() };
        let watch = Watch::<ConfigMap>::new().in_cluster(&settings);
        Controller::new(keeps).watch(watch.mapped(|map| vec![ObjectKey::new("shop", map.name_any())]))
    };
    // It must not be polled once it has ended.
    let mut clusters =
        VecDeque::from([("one", Some(one.client())), ("two", Some(two.client())), ("two", None)]);
    let changes = stream::poll_fn(move |_| {
        let change = clusters.pop_front().map(|(name, client)| Some((name.to_owned(), client)));
        Poll::Ready(change.unwrap_or_else(|| {
            assert!(clusters.capacity() > 0, "it is polled after its end");
            clusters = VecDeque::new();
            None
        }))
    });
    manager.fleet(Fleet::stream(changes)).controller(make);
    let running = manager.spawn();
    sleep(SOON).await;
    assert_eq!((ran(&record, "one"), other.watches("configmaps").open()), (1, 1));
    let metadata = ObjectMeta { name: Some("a".into()), ..ObjectMeta::default() };
    other.create(&ConfigMap { metadata, ..ConfigMap::default() }).await;
    sleep(SOON).await;
    assert_eq!(ran(&record, "one"), 2);
    running.stop().await.unwrap();
}

// P31
#[tokio::test(start_paused = true)]
async fn clusters_that_are_away_hold_up_no_other() {
    const CLUSTERS: usize = 100;
    let hub = cluster().await;
    let manager = Manager::new(hub.client());
    let (changes, record) = fleet(&manager);
    let running = manager.spawn();
    let mut servers = Vec::new();
    for number in 0..CLUSTERS {
        let server = cluster().await;
        if number % 10 == 0 {
            server.partition();
        }
        send(&changes, &format!("c{number}"), Some(server.client()));
        servers.push(server);
    }
    sleep(4 * SOON).await;
    let readiness = running.inspector().readiness();
    assert!(readiness.is_ok(), "{readiness}");
    for number in 0..CLUSTERS {
        let expected = if number % 10 == 0 { 0 } else { 1 };
        assert_eq!(ran(&record, &format!("c{number}")), expected, "c{number}");
    }
    let lists = |servers: &[ApiServer]| -> Vec<u64> {
        let steady = servers.iter().enumerate().filter(|(number, _)| number % 10 != 0);
        let asked = |server: &ApiServer, verb| server.requests().count(verb, "secrets");
        steady.map(|(_, server)| asked(server, Verb::List) + asked(server, Verb::Watch)).collect()
    };
    let before = lists(&servers);
    for round in 0..10 {
        for server in servers.iter().step_by(10) {
            if round % 2 == 0 { server.heal() } else { server.partition() }
        }
        let name = format!("r{round}");
        for (number, server) in servers.iter().enumerate().filter(|(number, _)| number % 10 != 0) {
            server.create(&secret(&name)).await;
            server.eventually::<ConfigMap>(&format!("shop/{name}"), |found| found.is_some()).await;
            assert_eq!(ran(&record, &format!("c{number}")), round + 2);
        }
        sleep(SOON).await;
    }
    assert_eq!(lists(&servers), before, "the others are neither listed nor watched again");
    servers.iter().for_each(ApiServer::heal);
    sleep(Duration::from_secs(120)).await;
    for (number, server) in servers.iter().enumerate() {
        assert!(kept(server, "a").await, "c{number}");
    }
    running.stop().await.unwrap();
}

// P31
#[tokio::test(start_paused = true)]
async fn only_the_replica_that_leads_works_in_the_clusters() {
    let (hub, one) = (cluster().await, cluster().await);
    let replica = |name: &str| replica(&hub, &one, name);
    let (first, of_first, _open) = replica("first");
    sleep(Duration::from_secs(20)).await;
    let (second, of_second, _open) = replica("second");
    sleep(SOON).await;
    assert_eq!((of_first.len(), of_second.len()), (1, 0));
    assert_eq!(one.watches("secrets").open(), 2, "both keep the caches");
    first.stop().await.unwrap();
    one.create(&secret("b")).await;
    sleep(SOON).await;
    assert!(kept(&one, "b").await);
    assert_eq!(ran(&of_second, "one"), 2);
    second.stop().await.unwrap();
}

// P31 L9
#[tokio::test(start_paused = true)]
async fn a_new_leader_works_in_a_cluster_on_caches_that_show_what_was_there() {
    let (hub, one) = (cluster().await, cluster().await);
    let replica = |name: &str| replica(&hub, &one, name);
    let (first, _, _open) = replica("first");
    sleep(Duration::from_secs(20)).await;
    let (second, of_second, _open) = replica("second");
    sleep(SOON).await;
    // Its watch stays open but delivers nothing more.
    one.faults().on(Verb::Watch, "secrets").always().then(Fault::Status(500));
    one.faults().watches("secrets").hold();
    one.create(&secret("b")).await;
    first.stop().await.unwrap();
    // It asks the server, sees that it shows too little, and lists again.
    sleep(Duration::from_secs(20)).await;
    assert_eq!(ran(&of_second, "one"), 2);
    second.stop().await.unwrap();
}

// P31 C35
#[tokio::test(start_paused = true)]
async fn a_key_of_a_cluster_waits_for_a_watch_that_was_cut() {
    let (hub, one) = (cluster().await, cluster().await);
    let manager = Manager::new(hub.client());
    let (changes, _) = fleet(&manager);
    let running = manager.spawn();
    send(&changes, "one", Some(one.client()));
    sleep(Duration::from_secs(60)).await;
    let _blind = one.faults().on_reads("secrets").then(Fault::Status(503));
    one.faults().on(Verb::Watch, "secrets").once().then(Fault::Reset);
    sleep(Duration::from_secs(1)).await;
    one.delete::<ConfigMap>("shop/a").await;
    sleep(Duration::from_secs(1)).await;
    let why = running.why::<Secret>(&ObjectKey::new("shop", "a")).remove(0).why;
    assert!(matches!(why, Why::AwaitsCaches { .. }), "{why}");
    one.eventually::<ConfigMap>("shop/a", |map| map.is_some()).await;
    running.stop().await.unwrap();
}

// P31
#[tokio::test(start_paused = true)]
async fn a_controller_of_a_cluster_reads_what_its_watch_covers() {
    let (hub, one) = (cluster().await, cluster().await);
    let (manager, record) = (Manager::new(hub.client()), Record::default());
    let noted = record.clone();
    manager.fleet(Fleet::stream(stream::iter([("one".to_owned(), Some(one.client()))]))).controller(
        move |_| {
            let (watch, noted) = (Watch::<ConfigMap>::new().named("defaults"), noted.clone());
            let read = watch.clone();
            Controller::from_fn(move |secret: Arc<Secret>, cx: Context<Secret>| {
                cx.lister_of(&read).list();
                noted.note(ObjectKey::cluster(secret.name_any()), cx.attempt());
                async { Ok::<_, watchkeeper::Error>(Action::await_change()) }
            })
            .watch(watch)
        },
    );
    let running = manager.spawn();
    sleep(SOON).await;
    assert_eq!(record.names(), ["a"]);
    running.stop().await.unwrap();
}

// P31
#[tokio::test(start_paused = true)]
async fn a_function_that_panics_leaves_out_its_cluster_alone() {
    let (hub, one, two) = (cluster().await, cluster().await, cluster().await);
    let manager = Manager::new(hub.client());
    let ((changes, received), record) = (unbounded(), Record::default());
    let recorded = record.clone();
    manager.fleet(Fleet::stream(received)).controller(move |cluster: &FleetCluster| {
        assert_ne!(cluster.name(), "one");
        Controller::new(Keeps { cluster: cluster.name().to_owned(), record: recorded.clone() })
    });
    let running = manager.spawn();
    send(&changes, "one", Some(one.client()));
    send(&changes, "two", Some(two.client()));
    sleep(SOON).await;
    assert_eq!((ran(&record, "one"), ran(&record, "two")), (0, 1));
    running.stop().await.unwrap();
}

/// Makes a Secret with a kubeconfig for a server that nobody reaches.
fn kubeconfig(name: &str, user: &str) -> Secret {
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
         contexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n\
         clusters: [{{name: a, cluster: {{server: 'http://127.0.0.1:1'}}}}]\n\
         users: [{{name: a, user: {{{user}}}}}]\n"
    );
    let mut secret = secret(name);
    secret.metadata.labels = Some([("watchkeeper.dev/kubeconfig".to_owned(), "".to_owned())].into());
    secret.string_data = Some([("kubeconfig".to_owned(), text)].into());
    secret
}

// P31
#[tokio::test(start_paused = true)]
async fn clusters_are_found_in_secrets_with_the_label() {
    let hub = cluster().await;
    let manager = Manager::new(hub.client());
    let (made, record) = (Arc::new(AtomicUsize::new(0)), Record::default());
    let counted = made.clone();
    manager.fleet(Fleet::kubeconfig_secrets("shop")).controller(move |cluster: &FleetCluster| {
        counted.fetch_add(1, Ordering::Relaxed);
        let keeps = Keeps { cluster: cluster.name().to_owned(), record: record.clone() };
        Controller::new(keeps).named("keeper")
    });
    assert!(manager.rules().to_string().contains("secrets"), "the hub's Secrets are read");
    let running = manager.spawn();
    let names = || -> Vec<String> {
        let why = running.why::<Secret>(&ObjectKey::new("shop", "a"));
        why.iter().map(|report| report.controller.to_string()).collect()
    };
    hub.create(&kubeconfig("north", "token: a")).await;
    hub.create(&kubeconfig("south", "token: a")).await;
    hub.create(&kubeconfig("outside", "exec: {command: sh, apiVersion: client.authentication.k8s.io/v1}"))
        .await;
    let without = Secret { string_data: None, ..kubeconfig("empty", "") };
    hub.create(&without).await;
    sleep(SOON).await;
    assert_eq!(
        (names(), made.load(Ordering::Relaxed)),
        (vec!["north/keeper".into(), "south/keeper".into()], 2)
    );
    assert!(running.inspector().readiness().is_ok(), "nobody waits for a cluster that is away");
    // Another label changes nothing; another kubeconfig does; without the Secret the cluster leaves.
    hub.patch_merge::<Secret>("shop/north", json!({"metadata": {"labels": {"a": "b"}}})).await;
    sleep(SOON).await;
    assert_eq!(made.load(Ordering::Relaxed), 2);
    let token = kubeconfig("north", "token: b").string_data;
    hub.patch_merge::<Secret>("shop/north", json!({"stringData": token})).await;
    hub.delete::<Secret>("shop/south").await;
    sleep(SOON).await;
    assert_eq!((names(), made.load(Ordering::Relaxed)), (vec!["north/keeper".into()], 3));
    running.stop().await.unwrap();
}

// P31
#[tokio::test(start_paused = true)]
async fn two_controllers_of_one_name_and_one_that_comes_too_late_are_left_out() {
    let (hub, one) = (cluster().await, cluster().await);
    let manager = Manager::new(hub.client());
    let ((changes, received), record) = (unbounded(), Record::default());
    let fleet = manager.fleet(Fleet::stream(received));
    let add = |name: &'static str| {
        let record = record.clone();
        fleet.controller(move |cluster: &FleetCluster| {
            let keeps = Keeps { cluster: cluster.name().to_owned(), record: record.clone() };
            Controller::new(keeps).named(name)
        });
    };
    add("keeper");
    add("keeper");
    let mut running = manager.spawn();
    sleep(SOON).await;
    add("late");
    send(&changes, "one", Some(one.client()));
    sleep(SOON).await;
    assert_eq!(ran(&record, "one"), 1);
    // It can't be removed alone, and is shown as before.
    running.remove("one/keeper").await.unwrap_err();
    assert_eq!(running.why::<Secret>(&ObjectKey::new("shop", "a")).len(), 1);
    running.stop().await.unwrap();
}

// H10
#[tokio::test(start_paused = true)]
async fn replicas_that_share_the_work_share_the_clusters() {
    let hub = cluster().await;
    let mut members = Vec::new();
    for _ in 0..8 {
        members.push(cluster().await);
    }
    let mut replicas = Vec::new();
    for seed in 0..2 {
        let config = ReflectorConfig { seed: Some(seed), ..ReflectorConfig::default() };
        let manager = Manager::with_config(hub.client(), config).sharded("hub");
        let (changes, record) = fleet(&manager);
        for (at, member) in members.iter().enumerate() {
            send(&changes, &format!("member-{at}"), Some(member.client()));
        }
        replicas.push((manager.spawn(), record, changes));
    }
    sleep(Duration::from_secs(30)).await;
    let watched =
        |members: &[ApiServer]| members.iter().map(|m| m.watches("secrets").open()).collect::<Vec<_>>();
    assert_eq!(watched(&members), [1; 8], "each cluster is one replica's");
    let parts =
        replicas.iter().map(|(running, ..)| running.why::<Secret>(&ObjectKey::new("shop", "a")).len());
    let parts: Vec<_> = parts.collect();
    assert!(parts.iter().all(|part| *part > 0) && parts.iter().sum::<usize>() == 8, "{parts:?}");
    for member in &members {
        assert!(kept(member, "a").await);
    }

    // What the first had moves to the second, cluster by cluster.
    let (first, record, _changes) = replicas.remove(0);
    let ran = record.starts().len();
    first.stop().await.unwrap();
    sleep(SOON).await;
    assert_eq!(watched(&members), [1; 8]);
    for member in &members {
        member.create(&secret("b")).await;
    }
    sleep(SOON).await;
    for member in &members {
        assert!(kept(member, "b").await);
    }
    assert_eq!(record.starts().len(), ran);
}

// P31
#[tokio::test]
async fn what_a_fleet_needs_in_its_clusters_is_printed() {
    let manager = Manager::offline("hub");
    let fleet = manager.fleet(Fleet::kubeconfig_secrets("fleet-system"));
    fleet.controller(|_| Controller::new(Keeps { cluster: String::new(), record: Record::default() }));
    let (here, there) = (manager.rules().to_string(), fleet.rules().to_string());
    assert!(here.contains("secrets") && !here.contains("patch"), "{here}");
    assert!(
        there.contains("secrets") && !there.contains("patch") && !there.contains("fleet-system"),
        "{there}"
    );
    fleet.controller(|_| {
        let keeps = Keeps { cluster: String::new(), record: Record::default() };
        Controller::new(keeps).named("owner").owns::<ConfigMap>()
    });
    let there = fleet.rules().to_string();
    assert!(there.contains("configmaps") && there.contains("patch"), "{there}");
}

/// A cluster of the cluster inventory API, as far as it matters here.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "multicluster.x-k8s.io",
    version = "v1alpha1",
    kind = "ClusterProfile",
    namespaced,
    status = "ClusterProfileStatus"
)]
#[serde(rename_all = "camelCase")]
struct ClusterProfileSpec {
    display_name: String,
}

#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ClusterProfileStatus {
    access_providers: Vec<AccessProvider>,
}

#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
struct AccessProvider {
    name: String,
    cluster: ProfiledCluster,
}

#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
struct ProfiledCluster {
    server: String,
}

/// Says that providers lead to a server that nobody reaches.
fn status(providers: &[&str], port: u16) -> serde_json::Value {
    let provider =
        |name: &&str| json!({"name": name, "cluster": {"server": format!("http://127.0.0.1:{port}")}});
    json!({"accessProviders": providers.iter().map(provider).collect::<Vec<_>>()})
}

// P31
#[tokio::test(start_paused = true)]
async fn clusters_of_an_inventory_come_with_their_access_and_leave_with_their_profile() {
    let hub = ApiServer::in_memory().crd::<ClusterProfile>().namespace("shop").start().await;
    let manager = Manager::new(hub.client());
    let (made, record) = (Arc::new(AtomicUsize::new(0)), Record::default());
    let counted = made.clone();
    let access = |provider: &str| match provider {
        "known" => Some(AuthInfo { token: Some("a".to_owned().into()), ..AuthInfo::default() }),
        "fails" => panic!("it fails"),
        _ => None,
    };
    let fleet = manager.fleet(Fleet::cluster_profiles("shop", access));
    fleet.controller(move |cluster: &FleetCluster| {
        counted.fetch_add(1, Ordering::Relaxed);
        let keeps = Keeps { cluster: cluster.name().to_owned(), record: record.clone() };
        Controller::new(keeps).named("keeper")
    });
    assert!(manager.rules().to_string().contains("clusterprofiles"), "the hub's profiles are read");
    let running = manager.spawn();
    let names = || -> Vec<String> {
        let why = running.why::<Secret>(&ObjectKey::new("shop", "a"));
        why.iter().map(|report| report.controller.to_string()).collect()
    };
    for name in ["north", "south", "unknown", "waits"] {
        let spec = ClusterProfileSpec { display_name: name.to_owned() };
        let mut profile = ClusterProfile::new(name, spec);
        profile.metadata.namespace = Some("shop".to_owned());
        hub.create(&profile).await;
    }
    sleep(SOON).await;
    assert_eq!((names(), made.load(Ordering::Relaxed)), (vec![], 0), "nobody says how to reach them");
    let patch = |name: &str, change| {
        let (hub, key) = (&hub, format!("shop/{name}"));
        async move { drop(hub.patch_merge::<ClusterProfile>(&key, change).await) }
    };
    let patch_status = |name: &str, change| {
        let (hub, key) = (&hub, format!("shop/{name}"));
        async move { drop(hub.patch_status::<ClusterProfile>(&key, change).await) }
    };
    patch_status("north", status(&["other", "fails", "known"], 1)).await;
    patch_status("south", status(&["known"], 1)).await;
    patch_status("unknown", status(&["other"], 1)).await;
    sleep(SOON).await;
    assert_eq!(
        (names(), made.load(Ordering::Relaxed)),
        (vec!["north/keeper".into(), "south/keeper".into()], 2)
    );
    assert!(running.inspector().readiness().is_ok(), "nobody waits for a cluster that is away");
    // Another name and another provider change nothing; another address does. Without access it leaves.
    patch("north", json!({"spec": {"displayName": "North"}})).await;
    patch_status("north", status(&["known", "other"], 1)).await;
    sleep(SOON).await;
    assert_eq!(made.load(Ordering::Relaxed), 2);
    patch_status("north", status(&["known"], 2)).await;
    patch_status("south", status(&[], 1)).await;
    sleep(SOON).await;
    assert_eq!((names(), made.load(Ordering::Relaxed)), (vec!["north/keeper".into()], 3));
    hub.delete::<ClusterProfile>("shop/north").await;
    sleep(SOON).await;
    assert_eq!(names(), [""; 0]);
    running.stop().await.unwrap();
}

/// Writes into a map of the hub which clusters have a Secret of its name.
fn gathers(fleet: &Fleet) -> Controller<ConfigMap, impl Reconciler<ConfigMap>> {
    let secrets = fleet.view::<Secret>();
    let keys = secrets.keys(|cluster, secret| {
        assert!(cluster != "bad", "it fails");
        vec![ObjectKey::new("shop", secret.name_any())]
    });
    let gather = Controller::from_fn(move |map: Arc<ConfigMap>, cx: Context<ConfigMap>| {
        let secrets = secrets.clone();
        async move {
            let key = ObjectKey::new("shop", map.name_any());
            let has = |lister: &Lister<Secret>| lister.get(&key).is_some();
            let found = secrets.listers().into_iter().filter(|(_, lister)| lister.as_ref().is_some_and(has));
            let found: Vec<_> = found.map(|(name, _)| name.to_string()).collect();
            cx.patch(&map, json!({"data": {"clusters": found.join(" ")}})).await?;
            Ok::<_, watchkeeper::Error>(Action::await_change())
        }
    });
    gather.named("gather").source(keys)
}

// P31
#[tokio::test(start_paused = true)]
async fn a_controller_of_the_hub_sees_all_clusters() {
    let (hub, one, two) = (cluster().await, cluster().await, cluster().await);
    let map = |name: &str| ConfigMap { metadata: secret(name).metadata, ..ConfigMap::default() };
    hub.create(&map("a")).await;
    hub.create(&map("b")).await;
    let manager = Manager::new(hub.client());
    let (changes, received) = unbounded();
    let fleet = manager.fleet(Fleet::stream(received));
    let view = fleet.view::<Secret>();
    let running = manager.controller(gathers(&fleet)).spawn();
    let found = async |name: &str| {
        sleep(SOON).await;
        let map = hub.get::<ConfigMap>(&format!("shop/{name}")).await.unwrap();
        map.data.unwrap_or_default().get("clusters").cloned().unwrap_or_default()
    };
    assert!(fleet.rules().to_string().contains("secrets"));
    assert_eq!(found("a").await, "");
    send(&changes, "one", Some(one.client()));
    assert_eq!(found("a").await, "one");
    send(&changes, "two", Some(two.client()));
    assert_eq!((found("a").await, found("b").await), ("one two".to_owned(), String::new()));
    two.create(&secret("b")).await;
    assert_eq!(found("b").await, "two");
    one.delete::<Secret>("shop/a").await;
    assert_eq!(found("a").await, "two");
    // One that is away keeps what was cached; another goes on.
    two.partition();
    one.create(&secret("a")).await;
    assert_eq!((found("a").await, found("b").await), ("one two".to_owned(), "two".to_owned()));
    send(&changes, "two", None);
    assert_eq!((found("a").await, found("b").await), ("one".to_owned(), String::new()));
    // Nobody knows what a cluster has that was never reached.
    let away = cluster().await;
    away.partition();
    send(&changes, "away", Some(away.client()));
    assert_eq!(found("a").await, "one");
    let known = view.listers().into_iter().map(|(name, lister)| (name.to_string(), lister.is_some()));
    assert_eq!(known.collect::<Vec<_>>(), [("away".to_owned(), false), ("one".to_owned(), true)]);
    // A function that panics names nothing, and harms nobody.
    let bad = cluster().await;
    send(&changes, "bad", Some(bad.client()));
    one.create(&secret("b")).await;
    assert_eq!(found("b").await, "one");
    // Another stream begins with what is there.
    let late = view.keys(|cluster, secret| vec![ObjectKey::new(cluster, secret.name_any())]);
    let late = late.take(3).map(|key| key.to_string()).collect::<Vec<_>>();
    let late = timeout(SOON, late).await.expect("three keys");
    assert_eq!(late, ["bad/a", "one/a", "one/b"]);
    running.stop().await.unwrap();
}
