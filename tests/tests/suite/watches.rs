//! What triggers a controller besides its own kind: mappings, predicates, sources, several namespaces.

use futures::{SinkExt, StreamExt, channel::mpsc};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, Service, ServicePort, ServiceSpec};
use kube::core::ObjectMeta;
use serde_json::json;
use watchkeeper::prelude::*;
use watchkeeper::{
    controller::Why,
    informer::{Dynamic, Metadata},
    leader_election::LeaderElection,
    list_watch::ListOptions,
    object::Kind,
};
use watchkeeper_apiserver::{ApiServer, Fault, Verb};
use watchkeeper_tests::{Looker, Record, Website, website};

async fn shop() -> ApiServer {
    ApiServer::in_memory().crd::<Website>().namespace("shop").start().await
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() }
}

fn config_map(name: &str) -> ConfigMap {
    ConfigMap { metadata: named(name), ..ConfigMap::default() }
}

fn service_for(name: &str, map: &str) -> Service {
    let metadata = ObjectMeta { labels: Some([("for".to_owned(), map.to_owned())].into()), ..named(name) };
    let ports = vec![ServicePort { port: 80, ..ServicePort::default() }];
    let spec = ServiceSpec { ports: Some(ports), ..ServiceSpec::default() };
    Service { metadata, spec: Some(spec), ..Service::default() }
}

/// Maps an object to the one that its label names.
fn for_whom(object: &impl Object) -> Vec<ObjectKey> {
    let meta = object.meta();
    let name = meta.labels.as_ref().and_then(|labels| labels.get("for"));
    let namespace = meta.namespace.clone().unwrap_or_default();
    name.map(|name| ObjectKey::new(namespace, name)).into_iter().collect()
}

/// Notes each run, and does nothing else.
fn noting(record: &Record) -> Controller<ConfigMap, impl Reconciler<ConfigMap> + use<>> {
    let record = record.clone();
    Controller::from_fn(move |_: Arc<ConfigMap>, cx: Context<ConfigMap>| {
        let record = record.clone();
        async move {
            record.start(&cx);
            Ok::<_, watchkeeper::Error>(Action::await_change())
        }
    })
}

async fn follow_a_service(server: &ApiServer, record: &Record) {
    let seen = record.len();
    server.create(&service_for("s", "a")).await;
    record.reaches(seen + 1).await;
    assert_eq!(record.last_reason(), "related:services");
    server.patch_merge::<Service>("shop/s", json!({ "metadata": { "labels": { "for": "b" } } })).await;
    record.reaches(seen + 3).await;
    server.delete::<Service>("shop/s").await;
    record.reaches(seen + 4).await;
    server.create(&service_for("t", "nobody")).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut moved = record.names()[seen + 1..seen + 3].to_vec();
    moved.sort();
    assert_eq!(record.names()[seen], "a");
    assert_eq!(moved, ["a", "b"], "the old and the new one");
    assert_eq!(record.names()[seen + 3..], ["b"], "what the last state mapped to, and nobody else");
}

// C16
#[tokio::test(start_paused = true)]
async fn a_mapping_wakes_what_the_old_and_the_new_state_map_to_and_a_deletion_the_last() {
    let server = shop().await;
    server.create(&config_map("a")).await;
    server.create(&config_map("b")).await;
    for form in ["typed", "metadata", "dynamic"] {
        let record = Record::default();
        let controller = noting(&record).namespace("shop");
        let controller = match form {
            "typed" => controller.watches::<Service>(for_whom),
            "metadata" => controller.watches::<Metadata<Service>>(for_whom),
            _ => controller.watch(Watch::of(Dynamic::new(Kind::of::<Service>())).mapped(for_whom)),
        };
        let running = Manager::new(server.client()).controller(controller).spawn();
        record.reaches(2).await;
        follow_a_service(&server, &record).await;
        running.stop().await.unwrap();
        server.delete::<Service>("shop/t").await;
    }
}

// C17
#[tokio::test(start_paused = true)]
async fn generation_swallows_status_updates_and_wakes_for_the_specification() {
    let server = shop().await;
    server.create(&website("a")).await;
    let looker = Looker::default();
    let controller = Controller::new(looker.clone()).predicate(Predicate::generation());
    let _running = Manager::new(server.client()).controller(controller).spawn();
    looker.record.reaches(1).await;
    server.patch_status::<Website>("shop/a", json!({ "replicas": 1 })).await;
    server.patch_merge::<Website>("shop/a", json!({ "metadata": { "labels": { "k": "v" } } })).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(looker.record.len(), 1);
    server.patch_merge::<Website>("shop/a", json!({ "spec": { "replicas": 7 } })).await;
    looker.record.reaches(2).await;
    assert_eq!(looker.record.last_reason(), "changed");
}

/// Releases at once.
struct Releases(Record);

impl Reconciler<ConfigMap> for Releases {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, _: Arc<ConfigMap>, _: &Context<ConfigMap>) -> Result<Action, Self::Error> {
        Ok(Action::await_change())
    }

    async fn cleanup(&self, _: Arc<ConfigMap>, cx: &Context<ConfigMap>) -> Result<Cleanup, Self::Error> {
        self.0.start(cx);
        Ok(Cleanup::Done)
    }
}

// C17 C23
#[tokio::test(start_paused = true)]
async fn no_predicate_keeps_a_terminating_object_from_its_cleanup() {
    let server = shop().await;
    server.create(&config_map("a")).await;
    let cleaned = Record::default();
    let only_new = Predicate::new(|old: Option<&ConfigMap>, _| old.is_none());
    let controller = Controller::new(Releases(cleaned.clone()))
        .namespace("shop")
        .finalizer("example.dev/release")
        .predicate(only_new.and(Predicate::labels()));
    let _running = Manager::new(server.client()).controller(controller).spawn();
    let held = |map: Option<&ConfigMap>| map.is_some_and(|map| !map.finalizers().is_empty());
    server.eventually::<ConfigMap>("shop/a", held).await;
    server.delete::<ConfigMap>("shop/a").await;
    server.eventually::<ConfigMap>("shop/a", |map| map.is_none()).await;
    assert_eq!(cleaned.len(), 1);
}

// C17
#[tokio::test(start_paused = true)]
async fn predicates_of_what_feeds_a_controller_are_its_own() {
    let server = shop().await;
    server.create(&config_map("a")).await;
    server.create(&service_for("s", "a")).await;
    let record = Record::default();
    let annotated = Watch::<Service>::new().mapped(for_whom).only_if(Predicate::annotations());
    let controller = noting(&record).namespace("shop").watch(annotated);
    let _running = Manager::new(server.client()).controller(controller).spawn();
    record.reaches(1).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = record.len();
    server.patch_merge::<Service>("shop/s", json!({ "metadata": { "labels": { "more": "v" } } })).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(record.len(), before, "a label is not an annotation");
    server.patch_merge::<Service>("shop/s", json!({ "metadata": { "annotations": { "k": "v" } } })).await;
    record.reaches(before + 1).await;
    server.patch_merge::<ConfigMap>("shop/a", json!({ "data": { "k": "v" } })).await;
    record.reaches(before + 2).await;
}

// C19
#[tokio::test(start_paused = true)]
async fn a_source_is_held_up_while_its_keys_wait_and_loses_none() {
    const KEYS: usize = 1_000;
    let server = shop().await;
    for at in 0..KEYS {
        server.create(&config_map(&format!("map-{at}"))).await;
    }
    let record = Record::default();
    let (mut sender, receiver) = mpsc::channel(0);
    let never = Predicate::new(|_, _| false);
    let controller = noting(&record)
        .namespace("shop")
        .predicate(never)
        .rate_limit(RateLimit::per_second(10).burst(1))
        .source(receiver);
    let _running = Manager::new(server.client()).controller(controller).spawn();
    let sent = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = sent.clone();
    tokio::spawn(async move {
        for at in 0..KEYS {
            sender.send(ObjectKey::new("shop", format!("map-{at}"))).await.unwrap();
            counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
        std::future::pending::<()>().await;
    });
    record.reaches(100).await;
    let (sent_by_now, ran) = (sent.load(std::sync::atomic::Ordering::SeqCst), record.len());
    assert!(sent_by_now > ran, "the source is ahead");
    assert!(sent_by_now <= ran + 260, "{sent_by_now} were taken, and {ran} ran");
    record.reaches(KEYS).await;
    assert_eq!(record.last_reason(), "external_source");
    let mut names = record.names();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), KEYS);
}

// C19
#[tokio::test(start_paused = true)]
async fn a_source_that_panics_or_ends_takes_nobody_down() {
    let server = shop().await;
    server.create(&config_map("a")).await;
    let record = Record::default();
    let key = ObjectKey::new("shop", "a");
    let broken = futures::stream::iter([0, 1]).map(|at| match at {
        0 => ObjectKey::new("shop", "nobody"),
        _ => panic!("the source breaks"),
    });
    let delayed = futures::stream::once(async move {
        tokio::time::sleep(Duration::from_secs(60)).await;
        key
    });
    let controller = noting(&record).namespace("shop").source(broken).source(delayed);
    let running = Manager::new(server.client()).controller(controller).spawn();
    record.reaches(2).await;
    assert_eq!(record.last_reason(), "external_source");
    server.patch_merge::<ConfigMap>("shop/a", json!({ "data": { "k": "v" } })).await;
    record.reaches(3).await;
    running.stop().await.unwrap();
}

// C19 C38
#[tokio::test(start_paused = true)]
async fn a_source_goes_on_for_open_namespaces_however_many_of_its_keys_wait_for_a_shut_one() {
    let server = ApiServer::in_memory().namespace("closed").namespace("shop").start().await;
    server.kit().in_namespace("shop").create(&config_map("a")).await;
    server.kit().in_namespace("closed").create(&config_map("map-7")).await;
    server.faults().on_any("secrets").namespace("closed").always().then(Fault::Status(403));
    let record = Record::default();
    let (mut sender, receiver) = mpsc::channel(0);
    let controller = noting(&record)
        .namespace("shop")
        .namespace("closed")
        .predicate(Predicate::new(|_, _| false))
        .watches::<Secret>(|_| Vec::new())
        .source(receiver);
    let _running = Manager::new(server.client()).controller(controller).spawn();
    let all_sent = tokio::spawn(async move {
        for at in 0..1_000 {
            sender.send(ObjectKey::new("closed", format!("map-{at}"))).await.unwrap();
        }
        sender.send(ObjectKey::new("shop", "a")).await.unwrap();
        sender
    });
    record.reaches(1).await;
    let _sender = all_sent.await.unwrap();
    assert_eq!(record.names(), ["a"]);
    server.faults().clear();
    record.reaches(2).await;
    assert_eq!((record.names()[1].as_str(), record.last_reason()), ("map-7", "external_source".to_owned()));
}

// C33 C38
#[tokio::test(start_paused = true)]
async fn a_namespace_whose_lists_hang_holds_up_no_other() {
    let server = ApiServer::in_memory().namespace("hangs").namespace("shop").start().await;
    server.kit().in_namespace("shop").create(&config_map("a")).await;
    server.kit().in_namespace("hangs").create(&config_map("b")).await;
    server.faults().on_any("configmaps").namespace("hangs").always().then(Fault::Silence);
    let record = Record::default();
    let controller = noting(&record).namespace("hangs").namespace("shop");
    let running = Manager::new(server.client()).controller(controller).spawn();
    record.reaches(1).await;
    for change in 2..=5 {
        tokio::time::sleep(Duration::from_secs(40)).await;
        let shop = server.kit().in_namespace("shop");
        shop.patch_merge::<ConfigMap>("shop/a", json!({ "data": { "k": change.to_string() } })).await;
        record.reaches(change).await;
    }
    assert!(record.names().iter().all(|name| name == "a"));
    server.faults().clear();
    record.reaches(6).await;
    running.stop().await.unwrap();
}

// C38
#[tokio::test(start_paused = true)]
async fn a_leader_works_in_the_namespaces_that_it_can_read() {
    for is_silent in [false, true] {
        let server = ApiServer::in_memory().namespace("closed").namespace("shop").start().await;
        server.kit().in_namespace("shop").create(&config_map("a")).await;
        server.kit().in_namespace("closed").create(&config_map("b")).await;
        let closed = server.faults().on_any("configmaps").namespace("closed").always();
        match is_silent {
            false => closed.then(Fault::Status(403)),
            true => closed.then(Fault::Silence),
        };
        let record = Record::default();
        let controller = noting(&record).namespace("closed").namespace("shop");
        let lease = LeaderElection::new("maps").namespace("shop");
        let running = Manager::new(server.client()).leader_election(lease).controller(controller).spawn();
        record.reaches(1).await;
        assert_eq!(record.names(), ["a"]);
        server.faults().clear();
        record.reaches(2).await;
        running.stop().await.unwrap();
    }
}

// I22
#[tokio::test(start_paused = true)]
async fn what_runs_read_is_the_whole_kind_although_the_program_asked_for_a_part_or_another_type() {
    let server = shop().await;
    server.create(&website("a")).await;
    let data = Some([("a".to_owned(), "1".to_owned())].into());
    server.create(&ConfigMap { data, ..config_map("there") }).await;
    for asked in ["a namespace", "metadata", "a transform", "a hook"] {
        let manager = Manager::new(server.client());
        let informer = || manager.informer::<ConfigMap>();
        let _asked: Box<dyn std::any::Any> = match asked {
            "a namespace" => Box::new(informer().namespace("kube-system").lister()),
            "metadata" => Box::new(manager.lister::<Metadata<ConfigMap>>()),
            "a transform" => Box::new(informer().transform(|map| map.data = None).lister()),
            _ => {
                let selects = |options: &mut ListOptions| options.label_selector = Some("tier=gold".into());
                Box::new(informer().options_hook(selects).lister())
            }
        };
        let (reconciler, record) =
            watchkeeper_tests::does(|_: Arc<Website>, cx: Context<Website>| async move {
                let found = cx.lister::<ConfigMap>().get(&ObjectKey::new("shop", "there"));
                assert!(found.is_some_and(|found| found.data.is_some()));
                Ok(Action::await_change())
            });
        let controller = Controller::new(reconciler).reads::<ConfigMap>();
        let running = manager.controller(controller).spawn();
        record.reaches(1).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(record.len(), 1, "it failed with {asked}");
        running.stop().await.unwrap();
    }
}

// C33
#[tokio::test(start_paused = true)]
async fn with_one_cache_a_namespace_a_key_waits_for_its_own() {
    let server = ApiServer::in_memory().namespace("closed").namespace("shop").start().await;
    server.kit().in_namespace("shop").create(&config_map("a")).await;
    let elsewhere = server.kit().in_namespace("closed");
    elsewhere.create(&config_map("b")).await;
    server.faults().on_any("secrets").namespace("closed").always().then(Fault::Status(403));
    let record = Record::default();
    let controller = noting(&record)
        .namespace("shop")
        .namespace("closed")
        .watches::<Secret>(|_| Vec::new())
        .watches::<Namespace>(|_| Vec::new());
    let running = Manager::new(server.client()).controller(controller).spawn();
    record.reaches(1).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(record.names(), ["a"]);
    let report = running.why::<ConfigMap>(&ObjectKey::new("closed", "b")).remove(0);
    let Why::BlockedOnSync(whom) = report.why else { panic!("{report:?}") };
    assert_eq!(whom.len(), 1);
    assert!(whom[0].starts_with("secrets") && whom[0].contains("403"), "{whom:?}");
    server.faults().clear();
    record.reaches(2).await;
    assert_eq!(record.names(), ["a", "b"]);
    elsewhere.patch_merge::<ConfigMap>("closed/b", json!({ "data": { "k": "v" } })).await;
    record.reaches(3).await;
    assert_eq!(server.requests().of(Verb::Watch, "namespaces").len(), 1, "cluster-scoped: one cache");
}
