//! A controller that is woken by more than its own children.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use watchkeeper::prelude::*;

use crate::{Greeting, Greetings};

/// Maps a secret to the greeting that its label names.
fn greeting_of(secret: &Secret) -> Vec<ObjectKey> {
    let named = secret.labels().get("greeting");
    named
        .map(|name| ObjectKey::new(secret.namespace().unwrap_or_default(), name))
        .into_iter()
        .collect()
}

/// Builds a controller that uses most of what can be said of one.
pub(crate) fn controller() -> Controller<Greeting, Greetings> {
    Controller::new(Greetings)
        .predicate(Predicate::generation().or(Predicate::labels()))
        .owns::<ConfigMap>()
        .watches::<Secret>(greeting_of)
        .workers(4)
        .rate_limit(RateLimit::per_second(20).burst(50))
        .deadline(Duration::from_secs(60))
}

/// Looks at every ConfigMap once a day, and at big ones once an hour.
pub(crate) fn inspection() -> Controller<ConfigMap, impl Reconciler<ConfigMap>> {
    Controller::from_fn(async |map: Arc<ConfigMap>, _: Context<ConfigMap>| {
        let big = map.data.as_ref().is_some_and(|data| data.len() > 100);
        let hours = if big { 1 } else { 24 };
        Ok::<_, watchkeeper::Error>(Action::requeue_after(Duration::from_secs(
            hours * 3_600,
        )))
    })
}

#[cfg(test)]
mod tests {
    use watchkeeper::controller::Why;
    use watchkeeper_apiserver::{ApiServer, Fault};

    use super::*;
    use crate::GreetingSpec;

    #[tokio::test(start_paused = true)]
    async fn a_greeting_says_why_it_waits() {
        let server =
            ApiServer::in_memory().crd::<Greeting>().namespace("home").start().await;
        server.faults().on_any("secrets").always().then(Fault::Status(403));
        let running = Manager::new(server.client())
            .controller(controller())
            .controller(inspection())
            .spawn();

        let spec = GreetingSpec { who: "Ada".into(), language: "en".into() };
        server.create(&Greeting::new("ada", spec)).await;
        tokio::time::sleep(Duration::from_secs(10)).await;

        let ada = ObjectKey::new("home", "ada");
        let report = running.why::<Greeting>(&ada).remove(0);
        assert!(matches!(report.why, Why::BlockedOnSync(_)), "{report:?}");
        assert!(report.why.to_string().contains("secrets"));

        server.faults().clear();
        server.eventually::<ConfigMap>("home/ada-card", |card| card.is_some()).await;
        assert_eq!(running.why::<Greeting>(&ada)[0].why, Why::AwaitsChange);
    }
}

#[cfg(test)]
mod without_a_manager {
    use watchkeeper_apiserver::ApiServer;

    use super::*;
    use crate::GreetingSpec;

    #[tokio::test(start_paused = true)]
    async fn a_greeting_gets_its_card() {
        let server =
            ApiServer::in_memory().crd::<Greeting>().namespace("home").start().await;
        let spec = GreetingSpec { who: "Ada".into(), language: "fr".into() };
        let ada = server.create(&Greeting::new("ada", spec)).await;

        let cx = Context::without_manager(server.client(), &ada);
        let action = Greetings
            .reconcile(Arc::new(ada), &cx)
            .await
            .expect("the server takes all writes");

        assert_eq!(action, Action::await_change());
        let card: ConfigMap =
            cx.get(&ObjectKey::new("home", "ada-card")).await.expect("it was applied");
        assert_eq!(card.data.unwrap_or_default()["text"], "Bonjour, Ada!");
    }

    #[tokio::test(start_paused = true)]
    async fn a_running_manager_hands_out_another_cache() {
        let server =
            ApiServer::in_memory().crd::<Greeting>().namespace("home").start().await;
        let mut secret = Secret::default();
        secret.metadata.name = Some("key".into());
        server.create(&secret).await;
        let running = Manager::new(server.client()).controller(inspection()).spawn();

        let secrets = running.informer::<Secret>().namespace("home").build();
        secrets.wait_for_sync(Duration::from_secs(30)).await.expect("they can be listed");
        assert_eq!(secrets.lister().list().len(), 1);
        // The controller's own cache.
        assert_eq!(running.lister::<ConfigMap>().list().len(), 0);
    }
}

#[cfg(test)]
mod another_cluster {
    use watchkeeper::manager::Cluster;
    use watchkeeper_apiserver::ApiServer;

    use super::*;
    use crate::GreetingSpec;

    /// Takes the text of each card from the hub's map of the same name.
    fn copying(hub: &Cluster) -> Controller<Greeting, impl Reconciler<Greeting>> {
        let there = hub.informer::<ConfigMap>().namespace("texts").lister();
        Controller::from_fn(move |greeting: Arc<Greeting>, cx: Context<Greeting>| {
            let text = there.get(&ObjectKey::new("texts", greeting.name_any()));
            async move {
                let mut card = ConfigMap::default();
                card.metadata.name = Some(greeting.name_any());
                card.data = text.and_then(|text| text.data.clone());
                cx.apply(card).await?;
                Ok::<_, watchkeeper::Error>(Action::await_change())
            }
        })
        .owns::<ConfigMap>()
        .watch(
            Watch::<ConfigMap>::new()
                .in_cluster(hub)
                .namespace("texts")
                .mapped(|text| vec![ObjectKey::new("home", text.name_any())]),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn what_changes_there_is_written_here() {
        let here =
            ApiServer::in_memory().crd::<Greeting>().namespace("home").start().await;
        let there = ApiServer::in_memory().namespace("texts").start().await;
        let manager = Manager::new(here.client());
        let hub = manager.cluster("hub", there.client());
        let _running = manager.controller(copying(&hub)).spawn();

        let spec = GreetingSpec { who: "Ada".into(), language: "en".into() };
        here.create(&Greeting::new("ada", spec)).await;
        let mut text = ConfigMap::default();
        text.metadata.name = Some("ada".into());
        text.data = Some([("text".to_owned(), "Hello from the hub".to_owned())].into());
        there.create(&text).await;
        here.eventually::<ConfigMap>("home/ada", |card| {
            card.is_some_and(|card| card.data == text.data)
        })
        .await;
    }
}
