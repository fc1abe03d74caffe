//! Mistakes that are found out at the start.

use std::{env, fs, path::Path, time::Duration};

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Secret};
use watchkeeper::{Error, manager::Http, prelude::*};
use watchkeeper_apiserver::{ApiServer, Fault, Verb};
use watchkeeper_tests::{Keeper, Website};

use crate::{Mistake, paused};

/// Starts one controller; returns why it does not run.
fn refused(change: impl FnOnce(Controller<Website, Keeper>) -> Controller<Website, Keeper>) -> String {
    paused(async {
        let server = ApiServer::in_memory().crd::<Website>().start().await;
        let controller = change(Controller::new(Keeper::default()));
        let mut running = Manager::new(server.client()).controller(controller).spawn();
        shown(running.ended().await.unwrap_err())
    })
}

/// As `main` shows it that returns it.
pub(crate) fn shown(error: Error) -> String {
    format!("Error: {error:?}")
}

async fn installing(server: &ApiServer) -> String {
    shown(Manager::new(server.client()).install_crd::<Website>().await.unwrap_err())
}

pub(crate) fn mistakes() -> Vec<Mistake> {
    let mut found = settings();
    found.extend([
        ("Two controllers have one name", twice()),
        ("The CRD may not be installed (403)", forbidden_definition()),
        ("The CRD is not established in time", not_established()),
        ("The CRD is invalid (422)", invalid_definition()),
        ("A cache does not sync within the sync timeout", not_synced()),
        ("A reconcile outlives the grace period of a stop", past_grace_period()),
        ("A selector does not parse", selector()),
    ]);
    found.extend(certificates());
    found.extend(clusters());
    found
}

fn settings() -> Vec<Mistake> {
    let zero = Duration::ZERO;
    vec![
        ("A rate limit of zero", refused(|it| it.rate_limit(RateLimit::per_second(0)))),
        ("A burst of zero", refused(|it| it.rate_limit(RateLimit::per_second(5).burst(0)))),
        ("A storm limit of zero", refused(|it| it.storm_limit(RateLimit::per_second(0)))),
        ("No workers", refused(|it| it.workers(0))),
        ("Too many workers", refused(|it| it.workers(1_000_000))),
        ("A deadline of zero", refused(|it| it.deadline(zero))),
        ("A sync timeout of zero", refused(|it| it.sync_timeout(zero))),
        ("A namespace that can't be one", refused(|it| it.namespace("My_Shop"))),
        ("A finalizer without a domain", refused(|it| it.finalizer("domain"))),
        ("A name that can't be a field manager", refused(|it| it.named("my controller"))),
        ("A field manager that can't be one", refused(|it| it.field_manager("my controller"))),
    ]
}

fn twice() -> String {
    paused(async {
        let server = ApiServer::in_memory().crd::<Website>().start().await;
        let one = || Controller::new(Keeper::default());
        let mut running = Manager::new(server.client()).controller(one()).controller(one()).spawn();
        shown(running.ended().await.unwrap_err())
    })
}

fn forbidden_definition() -> String {
    paused(async {
        let server = ApiServer::in_memory().start().await;
        let said = "customresourcedefinitions.apiextensions.k8s.io \"websites.web.example.dev\" is forbidden: User \
                    \"operator\" cannot patch resource \"customresourcedefinitions\" in API group \
                    \"apiextensions.k8s.io\" at the cluster scope";
        let refuses = server.faults().on(Verb::Patch, "customresourcedefinitions").always();
        refuses.then(Fault::Status(403).message(said));
        installing(&server).await
    })
}

fn not_established() -> String {
    paused(async {
        let server = ApiServer::in_memory().establish_delay(Duration::from_secs(3_600)).start().await;
        installing(&server).await
    })
}

fn invalid_definition() -> String {
    paused(async {
        let server = ApiServer::in_memory().start().await;
        let said = "CustomResourceDefinition.apiextensions.k8s.io \"websites.web.example.dev\" is invalid: \
                    spec.versions[0].schema.openAPIV3Schema: Required value: schemas are required";
        let refuses = server.faults().on(Verb::Patch, "customresourcedefinitions").always();
        refuses.then(Fault::Status(422).message(said));
        installing(&server).await
    })
}

fn not_synced() -> String {
    paused(async {
        let server = ApiServer::in_memory().start().await;
        let controller = Controller::new(Keeper::default()).owns::<Deployment>();
        let controller = controller.sync_timeout(Duration::from_secs(20));
        let config = watchkeeper::reflector::ReflectorConfig { seed: Some(7), ..Default::default() };
        let mut running = Manager::with_config(server.client(), config).controller(controller).spawn();
        shown(running.ended().await.unwrap_err())
    })
}

fn past_grace_period() -> String {
    paused(async {
        let server = ApiServer::in_memory().crd::<Website>().namespace("shop").start().await;
        let stuck = Controller::from_fn(async |_: Arc<Website>, _: Context<Website>| {
            tokio::time::sleep(Duration::from_secs(3_600)).await;
            Ok::<_, Error>(Action::await_change())
        });
        let running = Manager::new(server.client()).controller(stuck).spawn();
        server.create(&watchkeeper_tests::website("a")).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        shown(running.stop().await.unwrap_err())
    })
}

fn certificates() -> Vec<Mistake> {
    let folder = env::temp_dir().join(format!("mistakes-tls-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (certificate, key) = (folder.join("tls.crt"), folder.join("tls.key"));
    fs::write(&certificate, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    fs::write(&key, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n").unwrap();
    let refused = |certificate: &Path, key: &Path| {
        paused(async {
            let server = ApiServer::in_memory().start().await;
            let http = Http::on("127.0.0.1:0").tls(certificate, key);
            let mut running = Manager::new(server.client()).http(http).spawn();
            shown(running.ended().await.unwrap_err()).replace(&folder.display().to_string(), "<folder>")
        })
    };
    let found = vec![
        ("HTTP's certificate is not there", refused(&folder.join("no-such.crt"), &key)),
        ("HTTP's certificate and key are swapped", refused(&key, &certificate)),
        ("HTTP's key can't be used", refused(&certificate, &key)),
    ];
    fs::remove_dir_all(&folder).unwrap();
    found
}

fn clusters() -> Vec<Mistake> {
    let refused = |add: fn(&Manager, Controller<Website, Keeper>) -> Controller<Website, Keeper>| {
        paused(async {
            let server = ApiServer::in_memory().crd::<Website>().start().await;
            let manager = Manager::new(server.client());
            let controller = add(&manager, Controller::new(Keeper::default()));
            let mut running = manager.controller(controller).spawn();
            shown(running.ended().await.unwrap_err())
        })
    };
    vec![
        (
            "Two clusters have one name",
            refused(|manager, controller| {
                manager.cluster("hub", manager.client().clone());
                manager.cluster("hub", manager.client().clone());
                controller
            }),
        ),
        (
            "A cluster's name can't be one",
            refused(|manager, controller| {
                manager.cluster("The hub", manager.client().clone());
                controller
            }),
        ),
        (
            "A controller reads from another manager's cluster",
            refused(|manager, controller| {
                let other = Manager::new(manager.client().clone());
                let hub = other.cluster("hub", manager.client().clone());
                controller.watch(Watch::<Secret>::new().in_cluster(&hub))
            }),
        ),
        (
            "A controller owns objects of another cluster",
            refused(|manager, controller| {
                let hub = manager.cluster("hub", manager.client().clone());
                controller.watch(Watch::<Secret>::new().in_cluster(&hub).owned())
            }),
        ),
    ]
}

fn selector() -> String {
    paused(async {
        let server = ApiServer::in_memory().start().await;
        let manager = Manager::new(server.client());
        manager.informer::<Secret>().label_selector("tier in (gold").unwrap_err().to_string()
    })
}
