//! Rewrites what older versions stored, so that these versions can go.
//!
//! An API server stores an object in the storage version when it is written. So each object is written as it was read. An
//! object that somebody else writes meanwhile needs nothing more. After all are written, the older versions leave
//! `status.storedVersions`. A run that ends early begins again: what it has written costs the server a comparison.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::objects::RawObjects;
use crate::{manager::Stopping, plain::plain};

/// Objects of one page.
const PAGE: usize = 200;
/// The time between two writes.
const PACE: Duration = Duration::from_millis(20);
/// How long to wait after a failure.
const AFTER_FAILURE: Duration = Duration::from_secs(30);
/// How often it is looked whether anything is to be migrated.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Migrates the objects of one kind.
#[derive(Clone)]
pub(super) struct Migration {
    pub(super) objects: RawObjects,
    /// The name of the definition.
    pub(super) name: String,
}

impl Migration {
    /// Migrates whenever something is stored in an older version.
    pub(super) async fn run(self, stopping: Stopping) -> Result<(), kube::Error> {
        tokio::select! {
            () = stopping.wait() => {}
            () = self.repeat() => {}
        }
        Ok(())
    }

    async fn repeat(&self) {
        loop {
            let wait = match self.once().await {
                Ok(()) => LOOK_EVERY,
                Err(error) => {
                    let name = &self.name;
                    tracing::warn!(crd = %name, %error, "objects can't be migrated; trying again in {AFTER_FAILURE:?}");
                    AFTER_FAILURE
                }
            };
            sleep(wait).await;
        }
    }

    /// Migrates all objects, if the definition says that some are stored in an older version.
    async fn once(&self) -> Result<(), kube::Error> {
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{}", self.name);
        let Some(mut definition) = self.objects.read(&path).await? else { return Ok(()) };
        let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
        let storage = versions.clone().find(|version| version["storage"] == true);
        let Some(storage) = storage.map(|version| version["name"].clone()) else { return Ok(()) };
        let wanted = json!([storage]);
        if definition["status"]["storedVersions"] == wanted {
            return Ok(());
        }
        let spec = &definition["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
        let namespaced = spec["scope"] == "Namespaced";
        let base = format!("/apis/{group}/{}", text(&storage));
        let (begun, mut written) = (Instant::now(), 0_usize);
        tracing::info!(crd = %self.name, to = %plain(&text(&storage)), "migrating what older versions stored");
        let mut token = String::new();
        loop {
            let query = format!("limit={PAGE}&continue={token}");
            let page = match self.objects.read(&format!("{base}/{plural}?{query}")).await {
                Ok(Some(page)) => page,
                Ok(None) => return Ok(()),
                // A large kind takes longer than a token lasts. The new one goes on at the present state: what was created
                // since is stored in the new version.
                Err(kube::Error::Api(status)) if status.code == 410 && !token.is_empty() => {
                    let next = status.metadata.as_ref().and_then(|metadata| metadata.continue_.clone());
                    token = next.filter(|next| !next.is_empty()).ok_or(kube::Error::Api(status))?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            for object in page["items"].as_array().into_iter().flatten() {
                let (name, namespace) =
                    (text(&object["metadata"]["name"]), text(&object["metadata"]["namespace"]));
                let place = if namespaced { format!("namespaces/{namespace}/") } else { String::new() };
                let mut object = object.clone();
                // Items of a list may leave out what the list says.
                object["apiVersion"] = format!("{group}/{}", text(&storage)).into();
                object["kind"] = spec["names"]["kind"].clone();
                // `false`: somebody else has written it.
                written += usize::from(
                    self.objects.rewrite(&format!("{base}/{place}{plural}/{name}"), &object).await?,
                );
                sleep(PACE).await;
            }
            token = text(&page["metadata"]["continue"]);
            if token.is_empty() {
                break;
            }
            tracing::info!(crd = %self.name, written, "still migrating");
        }
        // If the definition has changed meanwhile, another version may be the storage version: it begins again.
        definition["status"]["storedVersions"] = wanted;
        if self.objects.rewrite(&format!("{path}/status"), &definition).await? {
            tracing::info!(crd = %self.name, written, took = ?begun.elapsed(), "all objects are migrated");
        }
        Ok(())
    }
}
