//! Reconcilers under unit test: a context made by hand, and no manager at all.

use std::convert::Infallible;

use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap, events::v1::Event as EventObject};
use kube::{Client, client::Body, core::ObjectMeta};
use serde_json::json;
use tokio::time::sleep;
use watchkeeper::{WriteError, informer::Dynamic, prelude::*};
use watchkeeper_apiserver::{ApiServer, Fault, Verb};
use watchkeeper_tests::{Keeper, Website, website};

async fn shop() -> ApiServer {
    ApiServer::in_memory().crd::<Website>().namespace("shop").start().await
}

// C40
#[tokio::test(start_paused = true)]
async fn a_reconciler_is_called_without_a_manager() {
    let server = shop().await;
    let site = Arc::new(server.create(&website("a")).await);
    let (keeper, cx) = (Keeper::default(), Context::without_manager(server.client(), &site));
    assert_eq!((cx.key(), cx.attempt(), cx.reason()), (&ObjectKey::new("shop", "a"), 1, &Reason::Changed));
    assert_eq!(keeper.reconcile(site.clone(), &cx).await.unwrap(), Action::await_change());

    let made = server.get::<Deployment>("shop/a").await.unwrap();
    let owner = &made.metadata.owner_references.unwrap()[0];
    assert_eq!(Some(&owner.uid), site.metadata.uid.as_ref());
    let manager = made.metadata.managed_fields.unwrap()[0].manager.clone();
    assert_eq!(manager.as_deref(), Some("websites.web.example.dev"), "as for a controller without a name");
    assert!(server.get::<Website>("shop/a").await.unwrap().status.is_some());

    // Nothing is known of the first call: no cache shows it.
    let site = Arc::new(server.get::<Website>("shop/a").await.unwrap());
    let cx = Context::without_manager(server.client(), &site);
    let _ = keeper.reconcile(site, &cx).await.unwrap();
    assert_eq!(server.requests().count(Verb::Patch, "deployments"), 2, "an apply is sent each time");
    assert_eq!(server.requests().count(Verb::Watch, "websites"), 0);
    assert_eq!(server.requests().count(Verb::List, "websites"), 0);
}

// C40
#[tokio::test(start_paused = true)]
async fn what_the_server_refuses_is_what_the_call_fails_with() {
    let server = shop().await;
    let site = Arc::new(server.create(&website("a")).await);
    server.faults().on(Verb::Patch, "deployments").once().then(Fault::Status(403));
    let cx = Context::without_manager(server.client(), &site);
    let error = Keeper::default().reconcile(site.clone(), &cx).await.unwrap_err();
    assert!(error.to_string().contains("shop/a"), "{error}");
    assert!(server.get::<Deployment>("shop/a").await.is_none());

    // The very next call comes through: nothing paces it.
    let _ = Keeper::default().reconcile(site, &cx).await.unwrap();
    assert!(server.get::<Deployment>("shop/a").await.is_some());

    let unread = website("b");
    let cx = Context::<Website>::without_manager(server.client(), &unread);
    let map = ConfigMap {
        metadata: ObjectMeta { name: Some("b".into()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    };
    let refused = cx.apply(map).await.unwrap_err();
    assert!(matches!(refused, WriteError::OwnerGone { .. }), "{refused:?}");
}

// C40
#[tokio::test(start_paused = true)]
async fn events_are_sent_beside_the_call_and_when_the_context_is_dropped() {
    let server = shop().await;
    let site = server.create(&website("a")).await;
    let cx = Context::<Website>::without_manager(server.client(), &site);
    cx.event(Event::warning("Refused", "the domain is taken"));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(server.list::<EventObject>("shop").await.len(), 1);
    cx.event(Event::warning("Late", "just before the end"));
    drop(cx);
    sleep(Duration::from_secs(1)).await;
    let events = server.list::<EventObject>("shop").await;
    let mut reasons: Vec<_> = events.iter().filter_map(|event| event.reason.as_deref()).collect();
    reasons.sort_unstable();
    assert_eq!(reasons, ["Late", "Refused"]);
    assert!(events.iter().all(|event| event.regarding.as_ref().unwrap().uid == site.metadata.uid));
}

/// Deletes a ConfigMap of the same name, and asks for it once its site is gone.
struct Farewell;

impl Reconciler<Website> for Farewell {
    type Error = WriteError;

    async fn reconcile(&self, _: Arc<Website>, _: &Context<Website>) -> Result<Action, WriteError> {
        Ok(Action::await_change())
    }

    async fn cleanup(&self, site: Arc<Website>, cx: &Context<Website>) -> Result<Cleanup, WriteError> {
        match cx.get_opt::<ConfigMap>(&ObjectKey::of(&*site)).await? {
            Some(map) => cx.delete(&map).await.map(|_| Cleanup::Done),
            None => Ok(Cleanup::Done),
        }
    }

    async fn deleted(&self, _: Deleted<Website>, cx: &Context<Website>) -> Result<(), WriteError> {
        cx.get::<ConfigMap>(cx.key()).await.map(|_| ())
    }
}

// C40
#[tokio::test(start_paused = true)]
async fn cleanup_and_deleted_are_called_so_too() {
    let server = shop().await;
    let site = Arc::new(server.create(&website("a")).await);
    let metadata =
        ObjectMeta { name: Some("a".into()), namespace: Some("shop".into()), ..ObjectMeta::default() };
    server.create(&ConfigMap { metadata, ..ConfigMap::default() }).await;
    let cx = Context::without_manager(server.client(), &site);
    assert!(matches!(Farewell.cleanup(site.clone(), &cx).await, Ok(Cleanup::Done)));
    assert!(server.get::<ConfigMap>("shop/a").await.is_none());
    let cx = Context::without_manager_deleted(server.client(), &ObjectKey::of(&*site));
    let error = Farewell.deleted(Deleted::Final(site), &cx).await.unwrap_err();
    assert!(error.is_not_found(), "{error}");
}

// C40
#[tokio::test(start_paused = true)]
async fn a_mock_and_a_kind_of_run_time_do() {
    let answers = tower::service_fn(|request: http::Request<Body>| async move {
        let found = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": request.uri().path().rsplit('/').next().unwrap(), "namespace": "shop"},
        });
        Ok::<_, Infallible>(http::Response::new(Body::from(found.to_string().into_bytes())))
    });
    let client = Client::new(answers, "shop");
    let marker = Dynamic::new(watchkeeper::object::Kind::of::<ConfigMap>());
    let object = serde_json::from_value::<kube::core::DynamicObject>(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "shop", "uid": "1"},
    }));
    let cx = Context::without_manager_for(marker, client, &object.unwrap());
    assert_eq!(cx.key().to_string(), "shop/a");
    let found: ConfigMap = cx.get(&ObjectKey::new("shop", "other")).await.unwrap();
    assert_eq!(found.name_any(), "other");
}
