//! The custom object that is listed and watched: 1.7 KB as a server sends it, a third of it managedFields.

use std::borrow::Borrow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use watchkeeper::{Informer, kube::CustomResource};

/// Where gadgets are served.
pub(crate) const PATH: &str = "/apis/bench.example.dev/v1/gadgets";
/// How many gadgets share a namespace.
pub(crate) const A_NAMESPACE: usize = 1_000;
/// How many gadgets share a place.
pub(crate) const A_PLACE: usize = 10;
/// How many replicas a small gadget has.
pub(crate) const REPLICAS: usize = 3;
/// The version of the first list; events follow it.
pub(crate) const LISTED: u64 = 1_000_000_000;

/// What a gadget is to be.
#[derive(CustomResource, Informer, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "bench.example.dev", version = "v1", kind = "Gadget", namespaced, status = "GadgetStatus")]
#[serde(rename_all = "camelCase")]
pub(crate) struct GadgetSpec {
    /// Ten gadgets each share one.
    #[informer(index)]
    pub(crate) place: String,
    pub(crate) image: String,
    pub(crate) replicas: i64,
    pub(crate) command: Vec<String>,
    pub(crate) settings: Vec<Setting>,
    /// When the server sent this state: wall time in nanoseconds, 0 where nobody measures it.
    pub(crate) sent: u64,
}

/// A named value.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
pub(crate) struct Setting {
    pub(crate) name: String,
    pub(crate) value: String,
}

/// What a gadget is.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GadgetStatus {
    pub(crate) ready_replicas: i64,
    pub(crate) observed_generation: i64,
    pub(crate) phase: String,
    pub(crate) message: String,
}

/// The same as it is declared where it is to be kept as bytes.
pub(crate) mod compact {
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};
    use watchkeeper::{Informer, kube::CustomResource};

    use super::{GadgetStatus, Setting};

    /// What a gadget is to be.
    #[derive(CustomResource, Informer, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "bench.example.dev", version = "v1", kind = "Gadget", namespaced, status = "GadgetStatus")]
    #[serde(rename_all = "camelCase")]
    #[informer(compact)]
    pub(crate) struct GadgetSpec {
        #[informer(index)]
        place: String,
        image: String,
        replicas: i64,
        command: Vec<String>,
        settings: Vec<Setting>,
        sent: u64,
    }
}

/// Names the namespace of a gadget.
pub(crate) fn namespace(at: usize) -> String {
    format!("team-{:04}", at / A_NAMESPACE)
}

/// Names a gadget.
pub(crate) fn name(at: usize) -> String {
    format!("gadget-{at:07}")
}

/// Returns which gadget has a name; allocates nothing, so that it may be asked of each change.
pub(crate) fn number(name: &str) -> Option<usize> {
    name.strip_prefix("gadget-")?.parse().ok()
}

/// Names the place of a gadget.
pub(crate) fn place(at: usize) -> String {
    format!("place-{:06}", at / A_PLACE)
}

/// Makes a gadget with little in it, for what reads memory alone.
pub(crate) fn small(at: usize) -> Gadget {
    let labels = [("app".to_owned(), "gadget".to_owned()), ("shard".to_owned(), format!("s{:02}", at % 100))];
    let metadata = ObjectMeta {
        name: Some(name(at)),
        namespace: Some(namespace(at)),
        resource_version: Some((at + 1).to_string()),
        labels: Some(labels.into()),
        ..ObjectMeta::default()
    };
    let spec = GadgetSpec {
        place: place(at),
        image: String::new(),
        replicas: REPLICAS as i64,
        command: Vec::new(),
        settings: Vec::new(),
        sent: 0,
    };
    Gadget { metadata, spec, status: None }
}

/// Adds up a field of some gadgets, which proves that all of them were read.
pub(crate) fn replicas<G: Borrow<Gadget>>(gadgets: impl IntoIterator<Item = G>) -> usize {
    gadgets.into_iter().map(|gadget| gadget.borrow().spec.replicas as usize).sum()
}

/// Writes a gadget as the server does.
pub(crate) fn json(at: usize, version: u64, sent: u64) -> String {
    let (name, namespace, machine, shard) = (name(at), namespace(at), at / A_PLACE, at % 100);
    format!(
        r#"{{"apiVersion":"bench.example.dev/v1","kind":"Gadget","metadata":{{"name":"{name}","namespace":"{namespace}","uid":"5c2f5d0e-7d3b-4b8e-9a55-{at:012x}","resourceVersion":"{version}","generation":3,"creationTimestamp":"2026-01-15T08:30:00Z","labels":{{"app.kubernetes.io/name":"gadget","app.kubernetes.io/part-of":"bench","shard":"s{shard:02}"}},"annotations":{{"example.dev/contact":"team@example.dev","example.dev/note":"made by a bench, {name}","example.dev/about":"turns what it is given, writes down every turn, and reports to its machine once an hour"}},"ownerReferences":[{{"apiVersion":"bench.example.dev/v1","kind":"Machine","name":"machine-{machine:06}","uid":"9b1c7f34-0a2d-4c61-8f0e-{machine:012x}","controller":true,"blockOwnerDeletion":true}}],"managedFields":[{{"manager":"bench-operator","operation":"Apply","apiVersion":"bench.example.dev/v1","time":"2026-01-15T08:30:00Z","fieldsType":"FieldsV1","fieldsV1":{{"f:metadata":{{"f:labels":{{"f:app.kubernetes.io/name":{{}},"f:shard":{{}}}}}},"f:spec":{{"f:place":{{}},"f:image":{{}},"f:replicas":{{}},"f:settings":{{}}}}}}}},{{"manager":"bench-status","operation":"Update","apiVersion":"bench.example.dev/v1","time":"2026-01-15T08:31:00Z","fieldsType":"FieldsV1","subresource":"status","fieldsV1":{{"f:status":{{"f:phase":{{}},"f:readyReplicas":{{}}}}}}}}]}},"spec":{{"place":"place-{machine:06}","image":"registry.example.dev/gadgets/turner:v1.{shard}.0","replicas":3,"command":["/usr/bin/turner","--port=8080"],"settings":[{{"name":"MODE","value":"production"}},{{"name":"LEVEL","value":"level-{shard}"}},{{"name":"REGION","value":"europe-west-1"}},{{"name":"TIMEOUT","value":"30s"}}],"sent":{sent}}},"status":{{"readyReplicas":3,"observedGeneration":3,"phase":"Ready","message":"all replicas are ready"}}}}"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_served_is_a_gadget_of_about_1700_bytes() -> Result<(), serde_json::Error> {
        let text = json(123_456, LISTED, 7);
        let gadget: Gadget = serde_json::from_str(&text)?;
        assert_eq!((gadget.spec.sent, gadget.metadata.name.as_deref()), (7, Some("gadget-0123456")));
        assert!((1_650..1_750).contains(&text.len()), "{}", text.len());
        Ok(())
    }
}
