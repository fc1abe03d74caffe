//! Keeps a ConfigMap for each Note.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::StreamExt;
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Client, CustomResource, Resource, ResourceExt,
    api::{Patch, PatchParams},
    runtime::{Controller, controller::Action, watcher},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Text to keep.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "bench.example.dev", version = "v1", kind = "Note", namespaced, status = "NoteStatus")]
struct NoteSpec {
    text: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct NoteStatus {
    kept: bool,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Kube(#[from] kube::Error),
}

async fn reconcile(note: Arc<Note>, client: Arc<Client>) -> Result<Action, Error> {
    let namespace = note.namespace().unwrap_or_default();
    let data = BTreeMap::from([("text".to_owned(), note.spec.text.clone())]);
    let metadata = ObjectMeta {
        name: Some(note.name_any()),
        owner_references: note.controller_owner_ref(&()).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    };
    let map = ConfigMap { metadata, data: Some(data), ..ConfigMap::default() };
    let as_manager = PatchParams::apply("notes").force();
    let maps: Api<ConfigMap> = Api::namespaced((*client).clone(), &namespace);
    maps.patch(&note.name_any(), &as_manager, &Patch::Apply(&map)).await?;
    let notes: Api<Note> = Api::namespaced((*client).clone(), &namespace);
    let status = serde_json::json!({ "status": NoteStatus { kept: true } });
    notes.patch_status(&note.name_any(), &PatchParams::default(), &Patch::Merge(&status)).await?;
    tracing::info!("kept; waiting for a change");
    Ok(Action::await_change())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    tracing_subscriber::fmt().init();
    let client = Client::try_default().await?;
    Controller::new(Api::<Note>::all(client.clone()), watcher::Config::default())
        .owns(Api::<ConfigMap>::all(client.clone()), watcher::Config::default())
        .shutdown_on_signal()
        .run(reconcile, |_, _, _| Action::requeue(Duration::from_secs(5)), Arc::new(client))
        .for_each(|_| std::future::ready(()))
        .await;
    Ok(())
}
