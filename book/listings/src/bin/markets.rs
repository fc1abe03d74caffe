//! A market whose stalls have two versions, defaults, and rules.

use watchkeeper::{
    prelude::*,
    webhook::{Change, Defaulter, Request, Review, Validator, Webhooks},
};

/// A stall: the hub, which is stored.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "market.example.dev", version = "v1", kind = "Stall", namespaced)]
#[informer(versions(v1alpha1::Stall))]
struct StallSpec {
    #[informer(index)]
    #[serde(default)]
    goods: String,
    places: Places,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
struct Places {
    least: u16,
    most: u16,
}

mod v1alpha1 {
    use super::*;

    /// A stall as it was first.
    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(
        group = "market.example.dev",
        version = "v1alpha1",
        kind = "Stall",
        namespaced
    )]
    pub(crate) struct StallSpec {
        #[serde(default)]
        goods: String,
        places: u16,
    }

    impl From<Stall> for super::Stall {
        fn from(Stall { metadata, spec }: Stall) -> Self {
            let places = Places { least: spec.places, most: spec.places };
            Self { metadata, spec: super::StallSpec { goods: spec.goods, places } }
        }
    }

    impl From<super::Stall> for Stall {
        fn from(super::Stall { metadata, spec }: super::Stall) -> Self {
            Self {
                metadata,
                spec: StallSpec { goods: spec.goods, places: spec.places.least },
            }
        }
    }
}

struct Usual;

impl Defaulter<Stall> for Usual {
    fn default(&self, stall: &mut Stall, _: &Request) {
        if stall.spec.goods.is_empty() {
            stall.spec.goods = "bread".to_owned();
        }
    }
}

/// No two stalls sell the same.
struct Rules(StallLister);

impl Validator<Stall> for Rules {
    async fn validate(&self, change: Change<'_, Stall>, review: &mut Review) {
        let StallSpec { goods, places } = &change.object().spec;
        if let Change::Update { old, new } = change
            && old.spec.goods != new.spec.goods
        {
            review.field("spec.goods").forbidden("is immutable");
        }
        let own = ObjectKey::of(change.object());
        let sold = self.0.by_goods(goods);
        if sold.iter().any(|other| ObjectKey::of(&**other) != own) {
            review.field("spec.goods").duplicate(goods);
        }
        if places.most < places.least {
            review
                .field("spec.places.most")
                .invalid(places.most, "must not be less than `least`");
        }
    }
}

struct Wardens;

impl Reconciler<Stall> for Wardens {
    type Error = watchkeeper::Error;

    async fn reconcile(
        &self,
        _: Arc<Stall>,
        _: &Context<Stall>,
    ) -> Result<Action, Self::Error> {
        Ok(Action::await_change())
    }
}

#[tokio::main]
async fn main() -> Result<(), watchkeeper::Error> {
    tracing_subscriber::fmt().init();
    let manager = Manager::infer().await?;
    let rules = Rules(manager.lister::<Stall>());
    let webhooks =
        Webhooks::new(":9443").defaults::<Stall>(Usual).validates::<Stall>(rules);
    manager
        .kind::<Stall>()
        .webhooks(webhooks)
        .migrate_storage::<Stall>()
        .leader_election("markets")
        .controller(Controller::new(Wardens))
        .run()
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_version_loses_anything() {
        watchkeeper::versions::conversions_round_trip::<Stall>();
    }
}
