//! The content of a server at its start: namespaces and CRDs.

use serde_json::{Value, json};

use crate::kit::{DEADLINE, Kit, ObservedScope, Observer};
use crate::start_error::StartError;

/// The content of a server at its start.
#[derive(Clone, Debug, Default)]
pub(super) struct Setup {
    pub(super) namespaces: Vec<String>,
    pub(super) crds: Vec<Value>,
}

impl Setup {
    /// The default namespace: the only one added, otherwise `default`.
    pub(super) fn namespace(&self) -> String {
        match self.namespaces.as_slice() {
            [one] => one.clone(),
            _ => "default".to_owned(),
        }
    }

    pub(super) async fn install(&self, kit: &Kit, there: There) -> Result<(), StartError> {
        for name in &self.namespaces {
            let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
            post(kit, "/api/v1/namespaces", &namespace)
                .await
                .map(drop)
                .map_err(|message| StartError::Namespace { name: name.clone(), message })?;
        }
        for crd in &self.crds {
            let name = crd["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            install_crd(kit, &name, crd, there).await.map_err(|message| StartError::Crd { name, message })?;
        }
        Ok(())
    }
}

/// What to do with a CRD that already exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum There {
    /// It stays as it is.
    Stays,
    /// It is replaced by the builder's: it is from an earlier run.
    Updated,
}

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

async fn install_crd(kit: &Kit, name: &str, crd: &Value, there: There) -> Result<(), String> {
    if post(kit, CRDS, crd).await? == Posted::There && there == There::Updated {
        update_crd(kit, name, crd).await?;
    }
    let mut observer = Observer::new(kit.client_ref().clone(), ObservedScope::one(CRDS.to_owned(), name));
    let established = observer.until(DEADLINE, |objects| {
        let conditions = objects.first()?["status"]["conditions"].as_array()?;
        conditions.iter().any(|c| c["type"] == "Established" && c["status"] == "True").then_some(())
    });
    established.await.map_err(|error| {
        let seen = observer.objects().first().map(|crd| crd["status"]["conditions"].to_string());
        let why = error.failure.or(seen).unwrap_or_default();
        format!("not established within {DEADLINE:?}: {why}")
    })
}

/// Replaces a CRD from an earlier run by the builder's.
async fn update_crd(kit: &Kit, name: &str, crd: &Value) -> Result<(), String> {
    let path = format!("{CRDS}/{name}?fieldManager=watchkeeper-apiserver");
    let request = http::Request::patch(path)
        .header(http::header::CONTENT_TYPE, "application/merge-patch+json")
        .body(json!({ "spec": crd["spec"] }).to_string().into_bytes())
        .map_err(|error| error.to_string())?;
    let patched = kit.client_ref().request::<Value>(request).await;
    patched.map(drop).map_err(|error| error.to_string())
}

/// The result of a request to create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Posted {
    Made,
    There,
}

/// Creates an object; one of the same name may be there already.
async fn post(kit: &Kit, path: &str, object: &Value) -> Result<Posted, String> {
    let request = http::Request::post(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(object.to_string().into_bytes())
        .map_err(|error| error.to_string())?;
    match kit.client_ref().request::<Value>(request).await {
        Ok(_) => Ok(Posted::Made),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(Posted::There),
        Err(error) => Err(error.to_string()),
    }
}
