//! A harbor whose rules the API server evaluates.

use watchkeeper::{prelude::*, webhook::Policy};

#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "harbor.example.dev", version = "v1", kind = "Pier", namespaced)]
struct PierSpec {
    quay: String,
    berths: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    light: Option<String>,
}

/// A pier stays where it is.
fn quay_is_immutable() -> Policy<Pier> {
    Policy::new("quay-is-immutable")
        .rule("object.spec.quay == oldObject.spec.quay", "spec.quay is immutable")
        .only_updates()
}

/// A long pier has a light.
fn long_piers_have_lights() -> Policy<Pier> {
    Policy::new("long-piers-have-lights")
        .variable("long", "object.spec.berths > 12")
        .sets(
            "variables.long && !has(object.spec.light) ?
            Object{spec: Object.spec{light: 'white'}} : Object{}",
        )
}

struct Wardens;

impl Reconciler<Pier> for Wardens {
    type Error = watchkeeper::Error;

    async fn reconcile(
        &self,
        _: Arc<Pier>,
        _: &Context<Pier>,
    ) -> Result<Action, Self::Error> {
        Ok(Action::await_change())
    }
}

#[tokio::main]
async fn main() -> Result<(), watchkeeper::Error> {
    tracing_subscriber::fmt().init();
    Manager::infer()
        .await?
        .kind::<Pier>()
        .policy(quay_is_immutable())
        .policy(long_piers_have_lights())
        .controller(Controller::new(Wardens))
        .run()
        .await
}

#[cfg(test)]
mod tests {
    use watchkeeper::webhook::{Change, Review, Validator};
    use watchkeeper_apiserver::ApiServer;

    use super::*;

    struct QuayIsImmutable;

    impl Validator<Pier> for QuayIsImmutable {
        async fn validate(&self, change: Change<'_, Pier>, review: &mut Review) {
            if change.old().is_some_and(|old| old.spec.quay != change.object().spec.quay)
            {
                review.field("spec.quay").forbidden("is immutable");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_policy_and_the_validator_agree() {
        let server = ApiServer::in_memory().crd::<Pier>().start().await;
        quay_is_immutable().agrees_with(QuayIsImmutable, server.client()).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_pier_gets_a_light() {
        let server = ApiServer::in_memory().crd::<Pier>().start().await;
        let manager = Manager::new(server.client()).policy(long_piers_have_lights());
        let running = manager.controller(Controller::new(Wardens)).spawn();
        tokio::time::sleep(Duration::from_secs(5)).await;
        let spec = PierSpec { quay: "north".to_owned(), berths: 20, light: None };
        let piers: kube::Api<Pier> = kube::Api::default_namespaced(server.client());
        let made = piers
            .create(&Default::default(), &Pier::new("east", spec))
            .await
            .expect("a pier");
        assert_eq!(made.spec.light.as_deref(), Some("white"));
        running.stop().await.expect("a clean stop");
    }
}
