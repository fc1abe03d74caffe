//! Keeps a ConfigMap for each Note.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use watchkeeper::prelude::*;

/// Text to keep.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "bench.example.dev", version = "v1", kind = "Note", namespaced, status = "NoteStatus")]
struct NoteSpec {
    text: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct NoteStatus {
    kept: bool,
}

struct Notes;

impl Reconciler<Note> for Notes {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, note: Arc<Note>, cx: &Context<Note>) -> Result<Action, Self::Error> {
        let data = BTreeMap::from([("text".to_owned(), note.spec.text.clone())]);
        let metadata = ObjectMeta { name: Some(note.name_any()), ..ObjectMeta::default() };
        cx.apply(ConfigMap { metadata, data: Some(data), ..ConfigMap::default() }).await?;
        cx.patch_status(&note, NoteStatus { kept: true }).await?;
        tracing::info!("kept; waiting for a change");
        Ok(Action::await_change())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    tracing_subscriber::fmt().init();
    let controller = Controller::new(Notes).owns::<ConfigMap>();
    Manager::infer().await?.controller(controller).run().await?;
    Ok(())
}
