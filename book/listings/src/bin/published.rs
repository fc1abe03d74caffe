//! Publishes pages, and says of each how it is.

#![expect(clippy::print_stdout, reason = "`--rbac` prints the role, for kubectl")]

#[cfg(test)]
#[path = "tried/published.rs"]
mod tried;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use watchkeeper::{prelude::*, writes::Use};

/// A page that is to be published.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "press.example.dev", version = "v1", kind = "Page", namespaced)]
#[kube(status = "PageStatus")]
struct PageSpec {
    text: String,
    /// The secret that opens the printer.
    password: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct PageStatus {
    #[serde(default)]
    conditions: Conditions,
}

struct Press;

impl Reconciler<Page> for Press {
    type Error = watchkeeper::Error;

    async fn reconcile(
        &self,
        page: Arc<Page>,
        cx: &Context<Page>,
    ) -> Result<Action, Self::Error> {
        // What others say in it stays.
        let mut status = page.status.clone().unwrap_or_default();
        let password = ObjectKey::cluster(&page.spec.password);
        let condition = match cx.get_opt::<Secret>(&password).await? {
            None => {
                cx.event(Event::warning(
                    "NoPassword",
                    format!("the Secret {} does not exist", page.spec.password),
                ));
                Condition::not_ready("NoPassword", "the printer can't be opened")
            }
            Some(_) => {
                cx.apply(sheet_for(&page)).await?;
                Condition::ready("Published", "the page is in its ConfigMap")
            }
        };
        status.conditions.set(condition.of(&page));
        cx.patch_status(&page, status).await?;
        Ok(Action::requeue_after(Duration::from_secs(60)))
    }
}

fn sheet_for(page: &Page) -> ConfigMap {
    let metadata =
        kube::core::ObjectMeta { name: page.metadata.name.clone(), ..Default::default() };
    let data = [("text".to_owned(), page.spec.text.clone())].into();
    ConfigMap { metadata, data: Some(data), ..ConfigMap::default() }
}

#[tokio::main]
async fn main() -> Result<(), watchkeeper::Error> {
    tracing_subscriber::fmt().init();
    let controller = Controller::new(Press)
        .owns::<ConfigMap>()
        .uses::<Secret>(Use::Get)
        .records_events();
    let manager = Manager::infer().await?.controller(controller);
    match std::env::args().nth(1).as_deref() {
        Some("--rbac") => print!("{}", manager.rules()),
        Some("--dry-run") => manager.dry_run().run().await?,
        _ => manager.run().await?,
    }
    Ok(())
}
