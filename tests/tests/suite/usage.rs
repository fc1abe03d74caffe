//! What users write in production, as the documentation has it: it compiles, and does what it says.

use std::sync::Mutex;

use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::core::ObjectMeta;
use serde_json::json;
use watchkeeper::prelude::*;
use watchkeeper_apiserver::ApiServer;
use watchkeeper_tests::Record;

/// A site that says of itself how it is.
#[derive(CustomResource, Informer, Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[kube(group = "prod.example.dev", version = "v1", kind = "Site", namespaced, status = "SiteStatus")]
struct SiteSpec {
    domain: String,
    /// The Secret that it reads.
    #[serde(default)]
    #[informer(index)]
    secret: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct SiteStatus {
    #[serde(default)]
    conditions: Conditions,
}

#[derive(Default)]
struct Sites {
    record: Record,
    passwords: Arc<Mutex<Vec<Secret>>>,
}

impl Reconciler<Site> for Sites {
    type Error = anyhow::Error;

    async fn reconcile(&self, site: Arc<Site>, cx: &Context<Site>) -> Result<Action, Self::Error> {
        let (key, mut status) = (ObjectKey::new("shop", "password"), site.status.clone().unwrap_or_default());
        let metadata = ObjectMeta { name: Some("farm".into()), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };

        cx.event(Event::warning("Refused", "the backend refused: quota"));
        status.conditions.set(Condition::not_ready("Waiting", "1 of 3 pods are ready").of(&site));
        let secret = cx.get::<Secret>(&key).await?;
        cx.apply(namespace).unowned().await?;
        cx.patch(&site, json!({"metadata": {"labels": {"seen": "yes"}}})).await?;

        cx.patch_status(&site, status).await?;
        self.passwords.lock().unwrap().push(secret);
        self.record.start(cx);
        Ok(Action::await_change())
    }
}

// W8 W14 W15 W16 W17
#[tokio::test(start_paused = true)]
async fn a_reconciler_in_production_is_written_as_the_documentation_has_it() {
    let server = ApiServer::in_memory().crd::<Site>().namespace("shop").start().await;
    let metadata = ObjectMeta { name: Some("password".into()), ..ObjectMeta::default() };
    server.create(&Secret { metadata, ..Secret::default() }).await;
    let sites = Sites::default();
    let (record, passwords) = (sites.record.clone(), sites.passwords.clone());
    let _running = Manager::new(server.client()).controller(Controller::new(sites)).spawn();
    server.create(&Site::new("a", SiteSpec { domain: "a.example".into(), ..SiteSpec::default() })).await;
    record.reaches(1).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let site = server.get::<Site>("shop/a").await.unwrap();
    assert_eq!(site.labels()["seen"], "yes");
    let ready = site.status.unwrap().conditions.get("Ready").cloned().unwrap();
    assert_eq!((&*ready.status, &*ready.reason, ready.observed_generation), ("False", "Waiting", Some(1)));
    assert!(server.get::<Namespace>("farm").await.is_some());
    assert_eq!(server.list::<k8s_openapi::api::events::v1::Event>("shop").await.len(), 1);
    assert_eq!((record.len(), passwords.lock().unwrap().len()), (1, 1), "its own writes wake nobody");
}

/// What `main` does with the manager that `Manager::infer` makes, in production.
async fn production(manager: Manager, reconciler: Sites) -> Result<(), watchkeeper::Error> {
    let sites = manager.lister::<Site>();
    let manager = manager
        .leader_election("websites") // a Lease of that name; workers run in one replica, caches in all
        .http("127.0.0.1:0") // /healthz /readyz /metrics; /debug stays on loopback unless asked
        .controller(
            Controller::new(reconciler)
                .owns::<Namespace>()
                .watches::<Secret>(move |secret| sites.by_secret(&secret.name_any()).keys())
                .backoff(ItemExponentialFailure::new(Duration::from_millis(100), Duration::from_secs(60)))
                .rate_limit(RateLimit::per_second(50).burst(100)),
        );
    manager.install_crd::<Site>().await?; // retried while the server is not there
    manager.run().await
}

// P6 L1
#[tokio::test(start_paused = true)]
async fn the_main_of_an_operator_in_production_is_written_as_the_documentation_has_it() {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    let metadata = ObjectMeta { name: Some("password".into()), ..ObjectMeta::default() };
    server.create(&Secret { metadata, ..Secret::default() }).await;
    let sites = Sites::default();
    let record = sites.record.clone();
    let script = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        let spec = SiteSpec { domain: "a.example".into(), secret: "password".into() };
        server.create(&Site::new("a", spec)).await;
        record.reaches(1).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        let before = record.len();
        server
            .patch_merge::<Secret>("shop/password", json!({"metadata": {"labels": {"changed": "yes"}}}))
            .await;
        record.reaches(before + 1).await;
    };
    tokio::select! {
        ended = production(Manager::new(server.client()), sites) => panic!("{ended:?}"),
        () = script => {}
    }
}
