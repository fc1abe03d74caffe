//! What else could happen to an operator, tried out.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use watchkeeper::{prelude::*, reflector::ReflectorConfig};
use watchkeeper_trials::Trials;

use crate::{Greeting, GreetingSpec, GreetingStatus, Greetings, card_for};

/// Makes each card once, under a name that the server chooses, and notes that name.
pub(crate) struct Notes;

impl Reconciler<Greeting> for Notes {
    type Error = watchkeeper::Error;

    async fn reconcile(
        &self,
        greeting: Arc<Greeting>,
        cx: &Context<Greeting>,
    ) -> Result<Action, Self::Error> {
        if greeting.status.is_none() {
            let mut card = card_for(&greeting);
            card.metadata.generate_name =
                card.metadata.name.take().map(|name| format!("{name}-"));
            let card = cx.create(card).await?;
            cx.patch_status(&greeting, GreetingStatus { card: card.name_any() }).await?;
        }
        Ok(Action::await_change())
    }
}

/// Builds a manager with a seed, so that a trial is the same each time.
fn manager(client: Client) -> Manager {
    Manager::with_config(
        client,
        ReflectorConfig { seed: Some(1), ..ReflectorConfig::default() },
    )
}

/// Tries a reconciler of greetings.
pub(crate) fn trials<R: Reconciler<Greeting>>(
    reconciler: impl Fn() -> R + Send + Sync + 'static,
) -> Trials {
    Trials::of(move |client| {
        manager(client)
            .controller(Controller::new(reconciler()).owns::<ConfigMap>())
            .run()
    })
    .crd::<Greeting>()
    .namespace("home")
    .visitor(async |visit| {
        let ada = GreetingSpec { who: "Ada".into(), language: "en".into() };
        visit.create(&Greeting::new("ada", ada)).await;
    })
    .pairs(20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "configmaps home/ada-card-*: 2, not 1")]
    fn whatever_happens_a_greeting_has_one_card() {
        trials(|| Notes).check();
    }

    #[test]
    fn whatever_happens_a_greeting_has_its_card() {
        trials(|| Greetings).check();
    }
}
