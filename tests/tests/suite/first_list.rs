//! A first list of many objects: every controller runs each of them once, whatever it filters.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ObjectMeta;
use serde_json::json;
use watchkeeper::{controller::Why, prelude::*};
use watchkeeper_apiserver::ApiServer;
use watchkeeper_tests::Record;

const MAPS: usize = 300;

async fn full_shop() -> ApiServer {
    let server = ApiServer::in_memory().namespace("shop").namespace("mall").start().await;
    for at in 0..MAPS {
        let (name, namespace) = (Some(format!("map-{at:03}")), Some("shop".to_owned()));
        let metadata = ObjectMeta { name, namespace, ..Default::default() };
        server.create(&ConfigMap { metadata, ..Default::default() }).await;
    }
    server
}

fn recorded(name: &str, record: &Record) -> Controller<ConfigMap, impl Reconciler<ConfigMap> + use<>> {
    let record = record.clone();
    let controller = Controller::from_fn(move |_: Arc<ConfigMap>, cx: Context<ConfigMap>| {
        record.start(&cx);
        async { anyhow::Ok(Action::await_change()) }
    });
    controller.named(name)
}

fn number(map: &ConfigMap) -> usize {
    map.name_any().trim_start_matches("map-").parse().unwrap()
}

fn of(new: Option<&ConfigMap>) -> usize {
    new.map_or(MAPS, number)
}

fn names(wanted: impl Fn(usize) -> bool) -> Vec<String> {
    (0..MAPS).filter(|at| wanted(*at)).map(|at| format!("map-{at:03}")).collect()
}

fn sorted(record: &Record) -> Vec<String> {
    let mut names = record.names();
    names.sort();
    names
}

// C17
#[tokio::test(start_paused = true)]
async fn each_controller_runs_what_its_predicate_lets_pass_once_also_where_that_panics() {
    let server = full_shop().await;
    let [all, odd, fragile, narrow] = std::array::from_fn(|_| Record::default());
    let manager = Manager::new(server.client())
        .controller(recorded("all", &all))
        .controller(recorded("odd", &odd).predicate(Predicate::new(|_, new| of(new) % 2 == 1)))
        .controller(recorded("fragile", &fragile).predicate(Predicate::new(|_, new| {
            assert!(of(new) != 200, "no predicate for this");
            true
        })))
        .controller(recorded("narrow", &narrow).namespace("shop").namespace("mall"));
    let _running = manager.spawn();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(sorted(&all), names(|_| true));
    assert_eq!(sorted(&odd), names(|at| at % 2 == 1));
    assert_eq!(sorted(&fragile), names(|at| at != 200));
    assert_eq!(sorted(&narrow), names(|_| true), "behind the door of its namespace");
    for record in [&all, &odd, &narrow] {
        assert!(record.starts().iter().all(|start| start.reason == Some(Reason::InitialList)));
    }
}

// Q3 C12
#[tokio::test(start_paused = true)]
async fn what_changes_before_its_turn_runs_once_sooner_and_for_the_change() {
    let server = full_shop().await;
    let record = Record::default();
    let started = record.clone();
    let slow = Controller::from_fn(move |_: Arc<ConfigMap>, cx: Context<ConfigMap>| {
        started.start(&cx);
        async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            anyhow::Ok(Action::await_change())
        }
    });
    let running = Manager::new(server.client()).controller(slow).spawn();
    record.reaches(3).await;
    let (waits, runs) = (ObjectKey::new("shop", "map-250"), ObjectKey::new("shop", "map-000"));
    let report = running.why::<ConfigMap>(&waits).remove(0);
    assert_eq!((report.why, report.reason), (Why::Queued, Some(Reason::InitialList)));
    server.patch_merge::<ConfigMap>("shop/map-250", json!({ "data": { "k": "v" } })).await;
    server.patch_merge::<ConfigMap>("shop/map-250", json!({ "data": { "k": "w" } })).await;
    server.delete::<ConfigMap>("shop/map-251").await;
    record.reaches(6).await;
    assert!(record.names()[3..6].contains(&"map-250".to_owned()), "{:?}", record.names());
    assert_eq!(running.why::<ConfigMap>(&runs)[0].why, Why::AwaitsChange);
    tokio::time::sleep(Duration::from_secs(400)).await;
    assert_eq!(sorted(&record), names(|at| at != 251), "each once, but for what is gone");
    let changed = record.starts().into_iter().filter(|start| start.reason != Some(Reason::InitialList));
    assert_eq!(changed.count(), 1);
}
