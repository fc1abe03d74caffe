//! Installing the definition of a custom resource: what an operator does before it starts.

use std::{future::Future, time::Duration};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, CustomResourceExt, ResourceExt,
    api::{Patch, PatchParams},
};

use super::Manager;
use crate::error::Error;

/// How long a definition may take until it is served.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is looked at meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(50);

impl Manager {
    /// Installs, or updates, the definition of a custom resource, and waits until it is served.
    ///
    /// A forced server-side apply as field manager `watchkeeper`: what the definition says is taken over, and what it
    /// leaves unsaid stays with whoever set it.
    ///
    /// # Errors
    /// [`Error::Client`] where the server refuses it; [`Error::Definition`] where it is not served within
    /// 30 s.
    pub fn install_crd<K: CustomResourceExt>(
        &self,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<K> {
        // Not the manager but its client goes along: the future may be sent to another thread.
        install(self.client.clone(), K::crd())
    }
}

async fn install(client: Client, definition: CustomResourceDefinition) -> Result<(), Error> {
    let name = definition.name_any();
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    let who = PatchParams::apply("watchkeeper").force();
    api.patch(&name, &who, &Patch::Apply(&definition)).await?;
    let ready = async {
        established(&api, &name).await?;
        served(&client, &definition).await
    };
    tokio::time::timeout(PATIENCE, ready).await.unwrap_or_else(|_| {
        Err(Error::Definition { name, why: format!("not established and served within {PATIENCE:?}") })
    })
}

/// Waits until the objects of every version can be watched.
///
/// A server says that a definition is established a moment before it serves it (404), and then refuses to watch
/// while its cache fills (429). Only a list that its cache answers tells: at any version, and with a selector.
async fn served(client: &Client, definition: &CustomResourceDefinition) -> Result<(), Error> {
    let spec = &definition.spec;
    for version in spec.versions.iter().filter(|version| version.served) {
        let query = "resourceVersion=0&fieldSelector=metadata.name%3Dnone";
        let path = format!("/apis/{}/{}/{}?{query}", spec.group, version.name, spec.names.plural);
        loop {
            let request = http::Request::get(&path).body(Vec::new()).expect("names make a path");
            match client.request_text(request).await {
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 429 | 503) => {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
                // Whoever may not list may still install.
                Ok(_) | Err(kube::Error::Api(_)) => break,
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

async fn established(api: &Api<CustomResourceDefinition>, name: &str) -> Result<(), Error> {
    loop {
        let found = api.get(name).await?;
        let conditions = found.status.and_then(|status| status.conditions).unwrap_or_default();
        let says =
            |kind: &str, status: &str| conditions.iter().find(|c| c.type_ == kind && c.status == status);
        if says("Established", "True").is_some() {
            return Ok(());
        }
        if let Some(refused) = says("NamesAccepted", "False") {
            let why = refused.message.clone().unwrap_or_default();
            return Err(Error::Definition { name: name.to_owned(), why });
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
