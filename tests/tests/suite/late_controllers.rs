//! Controllers that are added to a manager that runs and removed from it, or come and go by themselves.

use std::{collections::BTreeMap, future::pending};

use k8s_openapi::{
    api::core::v1::{ConfigMap, Namespace, Secret},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{CustomResourceExt, core::ObjectMeta};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};
use watchkeeper::{Error, leader_election::LeaderElection, prelude::*};
use watchkeeper_apiserver::{ApiServer, Fault, Verb};
use watchkeeper_tests::{Does, Record, Website, does, website};

const SOON: Duration = Duration::from_secs(5);

async fn shop() -> ApiServer {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    server.create(&map("a")).await;
    server.create(&secret("a")).await;
    server
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() }
}

fn map(name: &str) -> ConfigMap {
    ConfigMap { metadata: named(name), ..ConfigMap::default() }
}

fn secret(name: &str) -> Secret {
    Secret { metadata: named(name), ..Secret::default() }
}

fn controller<K: Watched<DynamicType = ()>>(name: &str) -> (Controller<K, Does<K>>, Record) {
    let (reconciler, record) = does(|_, _| async { Ok(Action::await_change()) });
    (Controller::new(reconciler).named(name), record)
}

// P28
#[tokio::test(start_paused = true)]
async fn one_that_is_added_works_and_one_that_is_removed_stops_alone() {
    let server = shop().await;
    let (maps, of_maps) = controller::<ConfigMap>("maps");
    let mut running = Manager::new(server.client()).controller(maps).spawn();
    sleep(SOON).await;
    let lists = server.requests().list().len();
    let (secrets, of_secrets) = controller::<Secret>("secrets");
    running.add(secrets).unwrap();
    // What is cached already is not asked for again, although the server has moved on.
    server.create(&secret("later")).await;
    let asked = server.requests().count(Verb::List, "configmaps");
    let (again, of_again) = controller::<ConfigMap>("again");
    running.add(again).unwrap();
    sleep(SOON).await;
    assert_eq!((of_secrets.len(), of_again.len()), (2, 1));
    assert_eq!(server.requests().count(Verb::Watch, "configmaps"), 1, "{lists} before");
    assert_eq!(server.requests().count(Verb::List, "configmaps"), asked);
    assert_eq!(running.why::<Secret>(&ObjectKey::new("shop", "a")).len(), 1);
    assert!(running.inspector().readiness().is_ok());

    running.remove("secrets").await.unwrap();
    server.create(&secret("b")).await;
    server.create(&map("b")).await;
    sleep(SOON).await;
    assert_eq!((of_secrets.len(), of_again.len(), of_maps.len()), (2, 2, 2));
    assert_eq!(running.why::<Secret>(&ObjectKey::new("shop", "a")).len(), 0);
    assert_eq!(server.watches("secrets").open(), 0, "nobody reads Secrets any more");

    // One that was there from the start goes as well; its name is free.
    running.remove("maps").await.unwrap();
    let (maps, of_new) = controller::<ConfigMap>("maps");
    running.add(maps).unwrap();
    sleep(SOON).await;
    assert_eq!((of_maps.len(), of_new.len()), (2, 2));
    running.stop().await.unwrap();
    assert_eq!(server.watches("configmaps").open(), 0);
}

// P28
#[tokio::test(start_paused = true)]
async fn what_is_refused_changes_nothing() {
    let server = shop().await;
    let (maps, record) = controller::<ConfigMap>("maps");
    let mut running = Manager::new(server.client()).controller(maps).spawn();
    let same = running.add(controller::<Secret>("maps").0).unwrap_err();
    assert!(matches!(&same, Error::DuplicateController(name) if name == "maps"), "{same}");
    let none = running.add(controller::<Secret>("none").0.workers(0)).unwrap_err();
    assert!(none.to_string().contains("zero workers"), "{none}");
    let unknown = running.remove("other").await.unwrap_err().to_string();
    assert!(unknown.contains("\"other\"") && unknown.ends_with("maps"), "{unknown}");
    sleep(SOON).await;
    assert_eq!((record.len(), server.requests().count(Verb::Watch, "secrets")), (1, 0));
    running.stop().await.unwrap();
    // A manager that could not start takes none.
    let twice = || controller::<ConfigMap>("twice").0;
    let mut failed = Manager::new(server.client()).controller(twice()).controller(twice()).spawn();
    let refused = failed.add(controller::<Secret>("late").0).unwrap_err().to_string();
    assert!(refused.contains("late") && refused.contains("does not run"), "{refused}");
    assert!(failed.stop().await.is_err());
}

// P28
#[tokio::test(start_paused = true)]
async fn a_removed_controller_ends_its_runs_within_the_grace_period() {
    let server = shop().await;
    let manager = Manager::new(server.client()).grace_period(Duration::from_secs(10));
    let mut running = manager.spawn();
    let slow = does(|_: Arc<ConfigMap>, _: Context<ConfigMap>| async {
        sleep(Duration::from_secs(8)).await;
        Ok(Action::await_change())
    });
    running.add(Controller::new(slow.0).named("slow")).unwrap();
    let stuck = does(|_: Arc<ConfigMap>, _: Context<ConfigMap>| pending());
    running.add(Controller::new(stuck.0).named("stuck")).unwrap();
    let (other, record) = controller::<ConfigMap>("other");
    running.add(other).unwrap();
    sleep(SOON).await;
    assert_eq!((slow.1.len(), stuck.1.len()), (1, 1));
    let began = Instant::now();
    running.remove("slow").await.unwrap();
    assert_eq!(began.elapsed(), Duration::from_secs(3));
    let began = Instant::now();
    let late = running.remove("stuck").await.unwrap_err();
    assert!(matches!(&late, Error::PastGracePeriod { reconciles, .. } if reconciles == "stuck"), "{late}");
    assert_eq!(began.elapsed(), Duration::from_secs(10));
    // The other one goes on.
    server.create(&map("b")).await;
    sleep(SOON).await;
    assert_eq!(record.len(), 2);
    running.stop().await.unwrap();
}

// P28
#[tokio::test(start_paused = true)]
async fn a_removal_that_nobody_waits_for_keeps_the_name_until_the_runs_have_ended() {
    let server = shop().await;
    let mut running = Manager::new(server.client()).grace_period(Duration::from_secs(10)).spawn();
    let slow = || {
        does(|_: Arc<ConfigMap>, _: Context<ConfigMap>| async {
            sleep(Duration::from_secs(8)).await;
            Ok(Action::await_change())
        })
    };
    let (first, second) = (slow(), slow());
    running.add(Controller::new(first.0).named("slow")).unwrap();
    sleep(Duration::from_secs(2)).await;
    assert!(timeout(Duration::from_secs(1), running.remove("slow")).await.is_err(), "it waits for the run");
    // Two workers would be on one key.
    let refused = running.add(Controller::new(second.0).named("slow")).unwrap_err();
    assert!(matches!(&refused, Error::DuplicateController(name) if name == "slow"), "{refused}");
    running.remove("slow").await.unwrap();
    assert!(running.inspector().readiness().is_ok());
    let third = slow();
    running.add(Controller::new(third.0).named("slow")).unwrap();
    sleep(SOON).await;
    assert_eq!((first.1.len(), third.1.len()), (1, 1));
    running.stop().await.unwrap();
}

// P28
#[tokio::test(start_paused = true)]
async fn the_name_of_a_controller_that_gave_up_is_free() {
    let server = shop().await;
    let (sites, _) = controller::<Website>("late");
    let mut running = Manager::new(server.client()).controller(sites.sync_timeout(SOON)).spawn();
    let error = running.ended().await.unwrap_err();
    assert!(matches!(error, Error::Controller(_)), "{error}");
    let (maps, record) = controller::<ConfigMap>("late");
    running.add(maps).unwrap();
    sleep(SOON).await;
    assert_eq!(record.len(), 1);
    assert!(running.inspector().readiness().is_ok(), "{}", running.inspector().readiness());
    running.remove("late").await.unwrap();
    running.stop().await.unwrap();
}

// P28 W3
#[tokio::test(start_paused = true)]
async fn one_that_is_removed_and_added_again_sees_what_it_wrote_before() {
    let server = shop().await;
    server.delete::<Secret>("shop/a").await;
    let named_by_the_server = || {
        let (reconciler, record) = does(|_: Arc<ConfigMap>, cx: Context<ConfigMap>| async move {
            if cx.owned::<Secret>().is_empty() {
                let metadata = ObjectMeta { generate_name: Some("a-".into()), ..ObjectMeta::default() };
                cx.create(Secret { metadata, ..Secret::default() }).await?;
            }
            Ok(Action::await_change())
        });
        (Controller::new(reconciler).named("maps").owns::<Secret>(), record)
    };
    // It keeps the cache.
    let mut running = Manager::new(server.client()).controller(controller::<Secret>("secrets").0).spawn();
    sleep(SOON).await;
    server.faults().on(Verb::Watch, "secrets").once().then(Fault::Silence);
    let (first, second) = (named_by_the_server(), named_by_the_server());
    running.add(first.0).unwrap();
    sleep(SOON).await;
    running.remove("maps").await.unwrap();
    running.add(second.0).unwrap();
    sleep(6 * SOON).await;
    let why = running.why::<ConfigMap>(&ObjectKey::new("shop", "a"));
    assert_eq!((first.1.len(), second.1.len()), (1, 1), "{why}");
    assert_eq!(server.list::<Secret>("shop").await.len(), 1);
    running.stop().await.unwrap();
}

// P28 W3
#[tokio::test(start_paused = true)]
async fn a_name_that_was_free_for_long_is_like_a_new_one() {
    let server = shop().await;
    let mut running = Manager::new(server.client()).controller(controller::<Secret>("keeps").0).spawn();
    running.add(controller::<Secret>("secrets").0).unwrap();
    for (free_for, is_asked) in [(SOON, true), (Duration::from_secs(600), false)] {
        sleep(SOON).await;
        running.remove("secrets").await.unwrap();
        server.create(&map(&format!("after-{}", free_for.as_secs()))).await;
        sleep(free_for).await;
        let lists = server.requests().count(Verb::List, "secrets");
        running.add(controller::<Secret>("secrets").0).unwrap();
        sleep(SOON).await;
        let asked = server.requests().count(Verb::List, "secrets") > lists;
        assert_eq!(asked, is_asked, "free for {free_for:?}");
    }
    running.stop().await.unwrap();
}

// P28 L10
#[tokio::test(start_paused = true)]
async fn an_election_lets_go_of_a_removed_controller_whose_caches_never_synced() {
    let server = shop().await;
    let (missing, _) = controller::<Website>("missing");
    let election = LeaderElection::new("elected").namespace("shop");
    let mut running = Manager::new(server.client()).leader_election(election).controller(missing).spawn();
    sleep(SOON * 6).await;
    assert!(server.requests().count(Verb::List, "websites") > 0);
    running.remove("missing").await.unwrap();
    sleep(SOON).await;
    let before = server.requests().count(Verb::List, "websites");
    sleep(SOON * 60).await;
    assert_eq!(server.requests().count(Verb::List, "websites"), before);
    assert!(running.inspector().readiness().is_ok(), "{}", running.inspector().readiness());
    running.stop().await.unwrap();
}

// P28
#[tokio::test(start_paused = true)]
async fn an_election_holds_no_cache_of_a_removed_controller_and_waits_for_no_missing_kind_alone() {
    let server = shop().await;
    let election = || LeaderElection::new("elected").namespace("shop");
    let (maps, of_maps) = controller::<ConfigMap>("maps");
    let mut running = Manager::new(server.client()).leader_election(election()).controller(maps).spawn();
    sleep(SOON * 6).await;
    assert_eq!((of_maps.len(), server.watches("configmaps").open()), (1, 1));
    running.remove("maps").await.unwrap();
    sleep(SOON).await;
    assert_eq!(server.watches("configmaps").open(), 0);
    running.stop().await.unwrap();

    // Nobody can reconcile a kind that is not served, and another controller can work.
    let (missing, _) = controller::<Website>("missing");
    let mut running = Manager::new(server.client()).leader_election(election()).controller(missing).spawn();
    sleep(SOON * 6).await;
    let asked = server.requests().count(Verb::Get, "leases");
    running.remove("mising").await.unwrap_err();
    sleep(SOON * 6).await;
    assert_eq!(server.requests().count(Verb::Get, "leases"), asked, "it could start nothing");
    let (secrets, of_secrets) = controller::<Secret>("secrets");
    running.add(secrets).unwrap();
    sleep(SOON * 6).await;
    assert_eq!(of_secrets.len(), 1);
    running.stop().await.unwrap();
}

// P28
#[tokio::test(start_paused = true)]
async fn an_added_controller_works_only_while_its_replica_leads() {
    let server = shop().await;
    let replica = |name| {
        let election = LeaderElection::new("shop").identity(name).namespace("shop");
        Manager::new(server.client()).leader_election(election).spawn()
    };
    let mut first = replica("first");
    // Who creates a Lease leads only after its duration.
    sleep(Duration::from_secs(20)).await;
    let mut second = replica("second");
    sleep(SOON).await;
    let ((of_first, by_first), (of_second, by_second)) =
        (controller::<ConfigMap>("maps"), controller("maps"));
    first.add(of_first).unwrap();
    second.add::<ConfigMap, _>(of_second).unwrap();
    sleep(SOON).await;
    assert_eq!((by_first.len(), by_second.len()), (1, 0));
    first.stop().await.unwrap();
    sleep(SOON).await;
    assert_eq!((by_first.len(), by_second.len()), (1, 1));
    second.stop().await.unwrap();
}

/// The name of the definition of [`Website`].
const SITES: &str = "websites.web.example.dev";

/// Makes the same controller again and again, with one record.
fn same<K: Watched<DynamicType = ()>>() -> (impl FnMut() -> Controller<K, Does<K>> + Send + 'static, Record) {
    let (reconciler, record) = does(|_, _| async { Ok(Action::await_change()) });
    (move || Controller::new(reconciler.clone()), record)
}

// P29
#[tokio::test(start_paused = true)]
async fn a_controller_runs_for_as_long_as_its_kinds_are_served() {
    let server = shop().await;
    let (maps, of_maps) = controller::<ConfigMap>("maps");
    let (mut sites, of_sites) = same::<Website>();
    let manager = Manager::new(server.client()).controller(maps);
    let running = manager.controller_while_served(move || sites().owns::<ConfigMap>()).spawn();
    let inspector = running.inspector();
    sleep(SOON).await;
    // Others work, nothing fails, and nobody asks for what is not there.
    assert_eq!((of_maps.len(), of_sites.len()), (1, 0));
    assert!(inspector.readiness().is_ok(), "{}", inspector.readiness());
    assert_eq!(running.why::<Website>(&ObjectKey::new("shop", "a")).len(), 0);
    assert_eq!(server.requests().count(Verb::List, "websites"), 0);

    for life in 1..=2 {
        server.create(&Website::crd()).await;
        // The server takes a moment to serve it.
        sleep(Duration::from_secs(1)).await;
        server.create(&website("a")).await;
        sleep(2 * SOON).await;
        assert_eq!((of_maps.len(), of_sites.len()), (1, life), "in life {life}");
        assert_eq!(running.why::<Website>(&ObjectKey::new("shop", "a")).len(), 1);
        assert!(inspector.readiness().is_ok(), "{}", inspector.readiness());
        // A server that does not answer says nothing: the controller stays.
        server.partition();
        sleep(6 * SOON).await;
        server.heal();
        sleep(2 * SOON).await;
        assert_eq!(running.why::<Website>(&ObjectKey::new("shop", "a")).len(), 1);

        server.delete::<CustomResourceDefinition>(SITES).await;
        sleep(4 * SOON).await;
        assert_eq!(running.why::<Website>(&ObjectKey::new("shop", "a")).len(), 0);
        assert!(inspector.readiness().is_ok(), "{}", inspector.readiness());
        let asked = server.requests().list().len();
        sleep(4 * SOON).await;
        let asked = server.requests().list().split_off(asked);
        let of_sites = asked.iter().filter(|request| request.resource == "websites").count();
        assert_eq!(of_sites, 0, "nobody reads what is gone: {asked:?}");
    }
    server.create(&map("b")).await;
    sleep(SOON).await;
    assert_eq!(of_maps.len(), 2);
    running.stop().await.unwrap();
}

// P29
#[tokio::test(start_paused = true)]
async fn a_set_has_a_name_like_any_controller() {
    let server = shop().await;
    let twice =
        || Manager::new(server.client()).controller_while_served(|| controller::<ConfigMap>("maps").0);
    let refused = twice().controller(controller::<Secret>("maps").0).spawn().stop().await.unwrap_err();
    assert!(matches!(&refused, Error::DuplicateController(name) if name == "maps"), "{refused}");
    let refused = twice().controller_while_served(|| controller::<Secret>("maps").0).spawn().stop().await;
    assert!(matches!(&refused, Err(Error::DuplicateController(name)) if name == "maps"), "{refused:?}");
    let mut running = twice().spawn();
    sleep(SOON).await;
    assert!(matches!(running.add(controller::<Secret>("maps").0), Err(Error::DuplicateController(_))));
    running.remove("maps").await.unwrap();
    assert_eq!(running.why::<ConfigMap>(&ObjectKey::new("shop", "a")).len(), 0);
    running.add(controller::<Secret>("maps").0).unwrap();
    running.stop().await.unwrap();
    // One that can't be started ends the manager, as any controller does.
    let manager = Manager::new(server.client());
    let mut running =
        manager.controller_while_served(|| controller::<ConfigMap>("none").0.workers(0)).spawn();
    let refused = running.ended().await.unwrap_err();
    assert!(refused.to_string().contains("zero workers"), "{refused}");
    drop(running.stop().await);
}

/// Makes a namespace with this label `tenant`.
fn tenant(name: &str, tenant: Option<&str>) -> Namespace {
    let labels = tenant.map(|tenant| BTreeMap::from([("tenant".to_owned(), tenant.to_owned())]));
    Namespace { metadata: ObjectMeta { labels, ..named(name) }, ..Namespace::default() }
}

fn map_in(namespace: &str, name: &str) -> ConfigMap {
    ConfigMap { metadata: ObjectMeta { namespace: Some(namespace.into()), ..named(name) }, ..map(name) }
}

// P30
#[tokio::test(start_paused = true)]
async fn a_controller_runs_in_each_namespace_that_matches() {
    let server = ApiServer::in_memory().start().await;
    for (name, label) in [("north", Some("gold")), ("south", Some("silver")), ("other", None)] {
        server.create(&tenant(name, label)).await;
        server.create(&map_in(name, "a")).await;
    }
    let (mut maps, record) = same::<ConfigMap>();
    let manager = Manager::new(server.client());
    let manager = manager.controller_in_namespaces("tenant in (gold, silver)", move || maps().named("maps"));
    let manager = manager.unwrap();
    let (metrics, needed) = (manager.metrics(), manager.rules().to_string());
    assert!(needed.contains("namespaces") && needed.contains("configmaps"), "{needed}");
    let running = manager.spawn();
    sleep(SOON).await;
    let ran =
        |namespace| record.starts().iter().filter(|start| start.key.namespace() == Some(namespace)).count();
    assert_eq!((ran("north"), ran("south"), ran("other")), (1, 1, 0));
    let why = running.why::<ConfigMap>(&ObjectKey::new("north", "a"));
    let names: Vec<_> = why.iter().map(|report| report.controller.to_string()).collect();
    assert_eq!(names, ["maps/north", "maps/south"]);
    let of_all =
        server.requests().list().iter().filter(|request| request.path == "/api/v1/configmaps").count();
    assert_eq!(of_all, 0, "each reads its own namespace");

    // One begins to match, one ceases to, one is new, and one goes.
    server.patch_merge::<Namespace>("other", json!({"metadata": {"labels": {"tenant": "gold"}}})).await;
    server.patch_merge::<Namespace>("south", json!({"metadata": {"labels": {"tenant": "lead"}}})).await;
    server.create(&tenant("west", Some("gold"))).await;
    server.create(&map_in("west", "a")).await;
    sleep(SOON).await;
    server.patch_merge::<ConfigMap>("south/a", json!({"data": {"changed": "yes"}})).await;
    server.patch_merge::<ConfigMap>("north/a", json!({"data": {"changed": "yes"}})).await;
    sleep(SOON).await;
    assert_eq!((ran("north"), ran("south"), ran("other"), ran("west")), (2, 1, 1, 1));
    server.patch_merge::<Namespace>("south", json!({"metadata": {"labels": {"tenant": "gold"}}})).await;
    sleep(SOON).await;
    assert_eq!(ran("south"), 2);
    server.delete::<Namespace>("west").await;
    sleep(SOON).await;
    assert_eq!(running.why::<ConfigMap>(&ObjectKey::new("west", "a")).len(), 3);
    let page = metrics.encode();
    assert!(!page.contains("maps/west") && page.contains("controller=\"maps/north\""), "{page}");
    assert!(running.inspector().readiness().is_ok());
    running.stop().await.unwrap();
    assert_eq!(server.watches("configmaps").open(), 0);
}

// P30
#[tokio::test(start_paused = true)]
async fn a_kind_that_is_in_no_namespace_has_no_controller_in_each() {
    let server = ApiServer::in_memory().start().await;
    let (mut namespaces, _) = same::<Namespace>();
    let make = move || namespaces().named("namespaces");
    let manager = Manager::new(server.client()).controller_in_namespaces("tenant", make).unwrap();
    let error = manager.run().await.unwrap_err().to_string();
    assert_eq!(error, "controller namespaces: namespaces are in no namespace: add it with `controller`");
}

// P30
#[tokio::test(start_paused = true)]
async fn one_of_a_namespace_ends_its_run_before_it_comes_again_and_keeps_its_field_manager() {
    let server = ApiServer::in_memory().start().await;
    server.create(&tenant("north", Some("gold"))).await;
    server.create(&map_in("north", "a")).await;
    let (reconciler, record) = does(|map: Arc<ConfigMap>, cx: Context<ConfigMap>| async move {
        sleep(Duration::from_secs(8)).await;
        let kept = ConfigMap { metadata: named(&format!("of-{}", map.name_any())), ..ConfigMap::default() };
        if !map.name_any().starts_with("of-") {
            cx.apply(kept).await?;
        }
        Ok(Action::await_change())
    });
    let make = move || Controller::new(reconciler.clone()).named("maps").owns::<ConfigMap>();
    let running = Manager::new(server.client()).controller_in_namespaces("tenant", make).unwrap().spawn();
    sleep(Duration::from_secs(2)).await;
    let label = |tenant: Option<&str>| json!({"metadata": {"labels": {"tenant": tenant}}});
    server.patch_merge::<Namespace>("north", label(None)).await;
    sleep(Duration::from_secs(1)).await;
    server.patch_merge::<Namespace>("north", label(Some("gold"))).await;
    sleep(Duration::from_secs(4)).await;
    assert_eq!(record.len(), 1, "the run from before has not ended");
    sleep(Duration::from_secs(60)).await;
    let kept = server.get::<ConfigMap>("north/of-a").await.expect("the run ended, and wrote");
    assert_eq!(kept.metadata.managed_fields.unwrap()[0].manager.as_deref(), Some("maps"));
    assert!(record.len() > 1);
    running.stop().await.unwrap();
}

// P30
#[tokio::test(start_paused = true)]
async fn a_function_that_panics_ends_the_manager_with_its_name() {
    let server = ApiServer::in_memory().start().await;
    server.create(&tenant("north", Some("gold"))).await;
    server.create(&tenant("south", Some("gold"))).await;
    let (mut made, mut maps) = (0, same::<ConfigMap>().0);
    let make = move || {
        made += 1;
        assert!(made < 2, "the user's");
        maps().named("maps")
    };
    let mut running = Manager::new(server.client()).controller_in_namespaces("tenant", make).unwrap().spawn();
    let error = running.ended().await.unwrap_err().to_string();
    assert!(error.contains("maps") && error.contains("panicked"), "{error}");
    drop(running.stop().await);
}
