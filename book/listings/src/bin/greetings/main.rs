//! Keeps a ConfigMap for every Greeting.

#[cfg(test)]
mod controllers;
#[cfg(test)]
mod health;
#[cfg(test)]
mod replicas;
#[cfg(test)]
mod trials;
#[cfg(test)]
mod tried;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use tracing_subscriber::EnvFilter;
use watchkeeper::prelude::*;

/// Somebody who is to be greeted.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "cards.example.dev", version = "v1", kind = "Greeting", namespaced)]
#[kube(status = "GreetingStatus")]
struct GreetingSpec {
    /// Who is greeted.
    who: String,
    /// The language of the greeting; `GreetingLister::by_language` finds it.
    #[informer(index)]
    language: String,
}

/// The state of a greeting.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct GreetingStatus {
    /// The ConfigMap that holds the text.
    card: String,
}

/// Keeps one ConfigMap for every greeting.
struct Greetings;

impl Reconciler<Greeting> for Greetings {
    type Error = watchkeeper::Error;

    async fn reconcile(
        &self,
        greeting: Arc<Greeting>,
        cx: &Context<Greeting>,
    ) -> Result<Action, Self::Error> {
        let card = cx.apply(card_for(&greeting)).await?;
        cx.patch_status(&greeting, GreetingStatus { card: card.name_any() }).await?;
        Ok(Action::await_change())
    }
}

fn card_for(greeting: &Greeting) -> ConfigMap {
    let hello = if greeting.spec.language == "fr" { "Bonjour" } else { "Hello" };
    let text = format!("{hello}, {}!", greeting.spec.who);
    let mut card = ConfigMap {
        data: Some(BTreeMap::from([("text".to_owned(), text)])),
        ..ConfigMap::default()
    };
    card.metadata.name = Some(format!("{}-card", greeting.name_any()));
    card
}

#[tokio::main]
async fn main() -> Result<(), watchkeeper::Error> {
    // RUST_LOG says otherwise: RUST_LOG=watchkeeper=debug
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).init();

    let manager = Manager::infer().await?;
    manager.install_crd::<Greeting>().await?;
    manager.controller(Controller::new(Greetings).owns::<ConfigMap>()).run().await
}

#[cfg(test)]
mod tests {
    use watchkeeper_apiserver::{ApiServer, Fault, Verb};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_deleted_greeting_card_comes_back() {
        let server =
            ApiServer::in_memory().crd::<Greeting>().namespace("home").start().await;
        let controller = Controller::new(Greetings).owns::<ConfigMap>();
        let _running = Manager::new(server.client()).controller(controller).spawn();

        let spec = GreetingSpec { who: "Ada".into(), language: "en".into() };
        server.create(&Greeting::new("ada", spec)).await;
        server
            .eventually::<ConfigMap>("home/ada-card", |card| {
                text(card) == Some("Hello, Ada!")
            })
            .await;

        server.faults().on(Verb::Watch, "configmaps").once().then(Fault::Cut);
        server.delete::<ConfigMap>("home/ada-card").await;
        server
            .eventually::<ConfigMap>("home/ada-card", |card| {
                text(card) == Some("Hello, Ada!")
            })
            .await;
    }

    fn text(card: Option<&ConfigMap>) -> Option<&str> {
        card?.data.as_ref()?.get("text").map(String::as_str)
    }
}
