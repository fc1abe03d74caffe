//! One program: it runs an operator with a webhook, and prints what a cluster needs for it.
//!
//! ```text
//! cargo run --example program -- --help
//! cargo run --example program -- manifests                  all objects as YAML
//! cargo run --example program -- manifests --helm chart     a chart of Helm, in the folder `chart`
//! cargo run --example program -- rehearse                   on the current context: what it would write
//! ```
//!
//! What prints needs no cluster. The rest uses the one that kubectl would use.

use k8s_openapi::api::core::v1::ConfigMap;
use watchkeeper::{
    prelude::*,
    webhook::{Change, Review, Validator, Webhooks},
};

/// A recipe: its steps, one after the other.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "kitchen.example.dev", version = "v1", kind = "Recipe", namespaced)]
struct RecipeSpec {
    #[informer(index)] // RecipeLister::by_dish("soup")
    dish: String,
    steps: Vec<String>,
}

/// Keeps a page for every recipe.
struct Cook;

impl Reconciler<Recipe> for Cook {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, recipe: Arc<Recipe>, cx: &Context<Recipe>) -> Result<Action, Self::Error> {
        let mut page = ConfigMap::default();
        page.metadata.name = Some(recipe.name_any());
        page.data = Some([("steps".to_owned(), recipe.spec.steps.join("\n"))].into());
        cx.apply(page).await?;
        Ok(Action::await_change())
    }
}

/// A dish has one recipe.
struct OneForEach(RecipeLister);

impl Validator<Recipe> for OneForEach {
    async fn validate(&self, change: Change<'_, Recipe>, review: &mut Review) {
        let recipe = change.object();
        if self
            .0
            .by_dish(&recipe.spec.dish)
            .iter()
            .any(|other| ObjectKey::of(&**other) != ObjectKey::of(recipe))
        {
            review.field("spec.dish").duplicate(&recipe.spec.dish);
        }
    }
}

fn main() -> std::process::ExitCode {
    watchkeeper::cli(("recipes", env!("CARGO_PKG_VERSION")), |manager| {
        let rule = OneForEach(manager.lister::<Recipe>());
        manager
            .kind::<Recipe>()
            .webhooks(Webhooks::new(":9443").validates::<Recipe>(rule))
            .leader_election("recipes")
            .controller(Controller::new(Cook).owns::<ConfigMap>())
    })
}
