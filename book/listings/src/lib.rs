//! The listings of the book: what a chapter shows is compiled and run here.

pub mod controllers;

// ANCHOR: resource
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use watchkeeper::prelude::*;

/// A greeting, to be written on a card.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "cards.example.dev", version = "v1", kind = "Greeting", namespaced, status = "GreetingStatus")]
pub struct GreetingSpec {
    /// Who is greeted.
    pub who: String,
    /// In which language: `GreetingLister::by_language` finds it.
    #[informer(index)]
    pub language: String,
}

/// What became of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct GreetingStatus {
    /// The ConfigMap on which it is written.
    pub card: String,
}
// ANCHOR_END: resource

// ANCHOR: reconciler
/// Keeps a ConfigMap for every greeting.
#[derive(Debug)]
pub struct Greetings;

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
    let mut card =
        ConfigMap { data: Some(BTreeMap::from([("text".to_owned(), text)])), ..ConfigMap::default() };
    card.metadata.name = Some(format!("{}-card", greeting.name_any()));
    card
}
// ANCHOR_END: reconciler

// ANCHOR: main
/// Runs the operator on the cluster that kubectl would use, until Ctrl-C.
///
/// # Errors
/// There is no cluster, or it refuses the definition.
pub async fn run() -> Result<(), watchkeeper::Error> {
    let manager = Manager::infer().await?;
    manager.install_crd::<Greeting>().await?;
    manager.controller(Controller::new(Greetings).owns::<ConfigMap>()).run().await
}
// ANCHOR_END: main

#[cfg(test)]
// ANCHOR: test
mod tests {
    use super::*;
    use watchkeeper_apiserver::{ApiServer, Fault, Verb};

    #[tokio::test(start_paused = true)]
    async fn a_deleted_greeting_card_comes_back() {
        let server = ApiServer::in_memory().crd::<Greeting>().namespace("home").start().await;
        let controller = Controller::new(Greetings).owns::<ConfigMap>();
        let _running = Manager::new(server.client()).controller(controller).spawn();

        let spec = GreetingSpec { who: "Ada".into(), language: "en".into() };
        server.create(&Greeting::new("ada", spec)).await;
        server.eventually::<ConfigMap>("home/ada-card", |card| text(card) == Some("Hello, Ada!")).await;

        server.faults().on(Verb::Watch, "configmaps").once().then(Fault::Cut);
        server.delete::<ConfigMap>("home/ada-card").await;
        server.eventually::<ConfigMap>("home/ada-card", |card| text(card) == Some("Hello, Ada!")).await;
    }

    fn text(card: Option<&ConfigMap>) -> Option<&str> {
        card?.data.as_ref()?.get("text").map(String::as_str)
    }
}
// ANCHOR_END: test
