//! What happens while nobody watches is found out afterwards.

use k8s_openapi::api::apps::v1::Deployment;
use watchkeeper::prelude::*;
use watchkeeper_apiserver::{ApiServer, Fault, Restart, Verb};
use watchkeeper_tests::{Keeper, Website, website};

async fn shop() -> ApiServer {
    ApiServer::in_memory().crd::<Website>().namespace("shop").start().await
}

fn operator(server: &ApiServer) -> (watchkeeper::Running, Keeper) {
    let keeper = Keeper::default();
    let controller = Controller::new(keeper.clone()).owns::<Deployment>();
    (Manager::new(server.client()).controller(controller).spawn(), keeper)
}

#[tokio::test(start_paused = true)]
async fn heals_a_deleted_child() {
    let server = shop().await;
    let _running = operator(&server);
    server.create(&website("a")).await;
    server.eventually::<Deployment>("shop/a", |d| d.is_some()).await;
    server.faults().on(Verb::Watch, "deployments").once().then(Fault::Cut);
    server.delete::<Deployment>("shop/a").await;
    server.eventually::<Deployment>("shop/a", |d| d.is_some()).await;
}

// C21
#[tokio::test(start_paused = true)]
async fn a_child_that_vanished_across_a_relist_still_wakes_its_owner() {
    let server = shop().await;
    let _running = operator(&server);
    server.create(&website("a")).await;
    server.eventually::<Deployment>("shop/a", |d| d.is_some()).await;
    let blind = server.faults().on(Verb::Watch, "deployments").always().then(Fault::Status(503));
    server.faults().on(Verb::Watch, "deployments").once().then(Fault::Cut);
    server.delete::<Deployment>("shop/a").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(server.get::<Deployment>("shop/a").await.is_none(), "healed without anybody watching?");
    server.compact();
    blind.disarm();
    server.eventually::<Deployment>("shop/a", |d| d.is_some()).await;
}

#[tokio::test(start_paused = true)]
async fn streams_that_break_off_in_the_middle_of_a_line_lose_nothing() {
    let server = shop().await;
    let (_running, keeper) = operator(&server);
    tokio::time::sleep(Duration::from_secs(1)).await;
    for kind in ["websites", "deployments"] {
        server.faults().on(Verb::Watch, kind).times(4).then(Fault::Cut.after_events(1).at_byte(40));
    }
    for name in ["a", "b", "c", "d", "e", "f"] {
        server.create(&website(name)).await;
        server.eventually::<Deployment>(&format!("shop/{name}"), |d| d.is_some()).await;
        server.delete::<Deployment>(&format!("shop/{name}")).await;
        server.eventually::<Deployment>(&format!("shop/{name}"), |d| d.is_some()).await;
    }
    assert!(server.faults().log().len() >= 4, "nothing was cut: {:?}", server.faults().log());
    let runs = keeper.record.len();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(keeper.record.len(), runs, "comes to rest");
}

#[tokio::test(start_paused = true)]
async fn an_operator_survives_restarts_of_its_server() {
    let server = shop().await;
    let (_running, keeper) = operator(&server);
    for (name, restart) in [("a", Restart::Keep), ("b", Restart::ForgetHistory)] {
        server.create(&website(name)).await;
        let key = format!("shop/{name}");
        server.eventually::<Deployment>(&key, |d| d.is_some()).await;
        server.restart(restart);
        server.delete::<Deployment>(&key).await;
        server.eventually::<Deployment>(&key, |d| d.is_some()).await;
    }
    let runs = keeper.record.len();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(keeper.record.len(), runs, "comes to rest");
}

// I8
#[tokio::test(start_paused = true)]
async fn a_list_that_only_confirms_the_cache_runs_nothing() {
    let server = shop().await;
    let (_running, keeper) = operator(&server);
    for name in ["a", "b", "c"] {
        server.create(&website(name)).await;
        server.eventually::<Deployment>(&format!("shop/{name}"), |d| d.is_some()).await;
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    let (runs, lists) = (keeper.record.len(), server.requests().total());
    server.restart(Restart::ForgetHistory);
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(server.requests().total() > lists, "nothing was listed again");
    assert_eq!(keeper.record.len(), runs, "the lists brought no news");
}

#[tokio::test(start_paused = true)]
async fn half_of_the_requests_answered_500_for_a_minute_leave_no_trace() {
    let server = shop().await;
    let (_running, keeper) = operator(&server);
    server.create(&website("a")).await;
    server.eventually::<Deployment>("shop/a", |d| d.is_some()).await;
    let storm = server.faults().on_any("deployments").probability(0.5).seed(7).then(Fault::Status(500));
    for _ in 0..12 {
        let _ = kube::Api::<Deployment>::namespaced(server.client(), "shop")
            .delete("a", &Default::default())
            .await;
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    storm.disarm();
    server.eventually::<Deployment>("shop/a", |d| d.is_some()).await;
    tokio::time::sleep(Duration::from_secs(1_200)).await;
    let before = keeper.record.len();
    server.delete::<Deployment>("shop/a").await;
    let asked = tokio::time::Instant::now();
    server.eventually::<Deployment>("shop/a", |d| d.is_some()).await;
    assert!(asked.elapsed() < Duration::from_secs(2), "as fast as before, not after {:?}", asked.elapsed());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(keeper.record.len() - before <= 2, "as cheap as before");
}
