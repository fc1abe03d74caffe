//! The manifests of `examples/deploy`, as a server takes them and as kubectl renders them.

#![expect(clippy::print_stdout, reason = "what was not tried is worth a line")]

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use http::Request;
use serde::Deserialize as _;
use serde_json::Value;
use watchkeeper::{
    prelude::*,
    webhook::{Change, Defaulter, Review, Validator, Webhooks},
};
use watchkeeper_tests::backend::{Server, Stage, binaries};

use crate::harness::tests;

tests! {
    Shared: every_manifest_is_taken_strictly, what_kubectl_renders_is_taken_too, what_an_operator_prints_is_taken_too;
}

/// What a server must take; the embedded one serves no more of them than these.
const EVERYWHERE: [&str; 7] =
    ["ClusterRole", "ClusterRoleBinding", "Deployment", "Namespace", "Role", "RoleBinding", "ServiceAccount"];
/// What a kube-apiserver serves besides.
const REAL: [&str; 3] = ["NetworkPolicy", "PodDisruptionBudget", "Service"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/deploy").canonicalize().unwrap()
}

fn documents(text: &str) -> Vec<Value> {
    let documents = serde_yaml_ng::Deserializer::from_str(text);
    documents.map(|document| Value::deserialize(document).unwrap()).collect()
}

/// Every manifest that the kustomization lists.
fn listed() -> Vec<Value> {
    let read = |file: &str| fs::read_to_string(folder().join(file)).unwrap();
    let kustomization = documents(&read("kustomization.yaml")).remove(0);
    let files = kustomization["resources"].as_array().unwrap();
    files.iter().flat_map(|file| documents(&read(file.as_str().unwrap()))).collect()
}

/// Where objects of a kind are created, in the test's own namespace.
fn collection(object: &Value, namespace: &str) -> String {
    let resource = match object["kind"].as_str().unwrap() {
        "NetworkPolicy" => "networkpolicies".to_owned(),
        other => format!("{}s", other.to_ascii_lowercase()),
    };
    let version = object["apiVersion"].as_str().unwrap();
    let root = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    match object["metadata"]["namespace"].as_str() {
        Some(_) => format!("{root}/namespaces/{namespace}/{resource}"),
        None => format!("{root}/{resource}"),
    }
}

/// Lets a server judge an object, strictly, and keep nothing of it; `false` where it does not serve the kind.
async fn is_taken(stage: &Stage, object: &Value) -> bool {
    let mut object = object.clone();
    if let Some(namespace) = object["metadata"].get_mut("namespace") {
        *namespace = stage.namespace.as_str().into();
    }
    let uri = format!("{}?fieldValidation=Strict&dryRun=All", collection(&object, &stage.namespace));
    let request = Request::post(uri).header("content-type", "application/json");
    let request = request.body(object.to_string().into_bytes()).unwrap();
    match stage.client.request::<Value>(request).await {
        Ok(_) => true,
        Err(kube::Error::Api(status)) if status.code == 404 => false,
        Err(error) => panic!("{} {}: {error}", object["kind"], object["metadata"]["name"]),
    }
}

/// Lets a server judge all, and checks that it served what it should.
async fn are_taken(stage: &Stage, objects: &[Value]) {
    let mut taken = BTreeSet::new();
    for object in objects {
        if is_taken(stage, object).await {
            taken.insert(object["kind"].as_str().unwrap());
        }
    }
    let real = matches!(stage.server, Server::KubeApiserver(_));
    let wanted = EVERYWHERE.iter().chain(REAL.iter().filter(|_| real));
    let missing: Vec<_> = wanted.filter(|kind| !taken.contains(**kind)).collect();
    assert!(missing.is_empty(), "not taken: {missing:?}; taken: {taken:?}");
}

// P7
async fn every_manifest_is_taken_strictly(stage: Stage) {
    let mut listed = listed();
    are_taken(&stage, &listed).await;
    // A judge that takes anything proves nothing.
    let deployment = listed.iter_mut().find(|object| object["kind"] == "Deployment").unwrap();
    deployment["spec"]["template"]["spec"]["containers"][0]["readinessProb"] = Value::Null;
    deployment["metadata"]["namespace"] = stage.namespace.as_str().into();
    let uri = format!("{}?fieldValidation=Strict&dryRun=All", collection(deployment, &stage.namespace));
    let request = Request::post(uri).header("content-type", "application/json");
    let request = request.body(deployment.to_string().into_bytes()).unwrap();
    let refused = stage.client.request::<Value>(request).await.unwrap_err().to_string();
    assert!(refused.contains("unknown field") && refused.contains("readinessProb"), "{refused}");
}

/// Finds kubectl: next to the real server, or on the PATH.
fn kubectl() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = binaries().into_iter().chain(env::split_paths(&path));
    folders.map(|folder| folder.join("kubectl")).find(|program| program.is_file())
}

/// Lets kubectl render a kustomization, as `kubectl apply -k` does before it sends anything.
fn rendered(kubectl: &Path, kustomization: &Path) -> Vec<Value> {
    let done = Command::new(kubectl).arg("kustomize").arg(kustomization).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    documents(&String::from_utf8(done.stdout).unwrap())
}

/// A copy of the manifests, gone with this.
struct Copied(PathBuf);

impl Drop for Copied {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Copied {
    fn to(folder: PathBuf) -> Self {
        copy(&self::folder(), &folder);
        Self(folder)
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}

// P7
async fn what_kubectl_renders_is_taken_too(stage: Stage) {
    let Some(kubectl) = kubectl() else {
        println!("  kubectl is missing: nothing is rendered");
        return;
    };
    let plain = rendered(&kubectl, &folder());
    assert_eq!(plain.len(), listed().len());
    are_taken(&stage, &plain).await;

    // As the comment in the kustomization says for clusters with Prometheus and Grafana.
    let copied = Copied::to(env::temp_dir().join(format!("deploy-{}", stage.namespace)));
    let file = copied.0.join("kustomization.yaml");
    let text = fs::read_to_string(&file).unwrap();
    let with_monitoring = text.replace("# components:\n#   - monitoring\n", "components:\n  - monitoring\n");
    assert_ne!(with_monitoring, text);
    fs::write(&file, with_monitoring).unwrap();
    let monitored = rendered(&kubectl, &copied.0);
    let kinds = |kind: &str| monitored.iter().filter(|object| object["kind"] == kind).count();
    assert_eq!((kinds("PrometheusRule"), kinds("ServiceMonitor"), kinds("ConfigMap")), (1, 1, 1));
    let dashboard = monitored.iter().find(|object| object["kind"] == "ConfigMap").unwrap();
    assert!(is_taken(&stage, dashboard).await);
    let text = dashboard["data"]["dashboard.json"].as_str().unwrap();
    assert!(serde_json::from_str::<Value>(text).unwrap()["panels"].is_array());
}

/// A shelf, which only its manifests know.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "printed.example.dev", version = "v1", kind = "Shelf", plural = "shelfs", namespaced)]
struct ShelfSpec {
    /// What is on it: "books", 'boxes', or
    /// anything else: # yes.
    #[serde(default)]
    holds: Vec<String>,
}

struct Anything;

impl Validator<Shelf> for Anything {
    async fn validate(&self, _: Change<'_, Shelf>, _: &mut Review) {}
}

impl Defaulter<Shelf> for Anything {
    fn default(&self, _: &mut Shelf, _: &watchkeeper::webhook::Request) {}
}

impl Reconciler<Shelf> for Anything {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, _: Arc<Shelf>, _: &Context<Shelf>) -> Result<Action, Self::Error> {
        Ok(Action::await_change())
    }
}

async fn what_an_operator_prints_is_taken_too(stage: Stage) {
    let manager = Manager::offline("printed")
        .kind::<Shelf>()
        .webhooks(Webhooks::new(":9443").defaults::<Shelf>(Anything).validates::<Shelf>(Anything))
        .leader_election("shelfs")
        .controller(Controller::new(Anything).owns::<k8s_openapi::api::core::v1::ConfigMap>());
    let manifests = manager.manifests().unwrap().name("printed");
    let printed = documents(&manifests.yaml().unwrap());
    assert_eq!(printed.len(), 11);
    for object in &printed {
        assert!(is_taken(&stage, object).await, "{} is not served", object["kind"]);
    }
    let Some(kubectl) = kubectl() else {
        println!("    kubectl: NOT RUN, there is none");
        return;
    };
    let folder = Copied(env::temp_dir().join(format!("printed-{}", stage.namespace)));
    fs::create_dir_all(&folder.0).unwrap();
    for (name, text) in manifests.kustomize().unwrap() {
        fs::write(folder.0.join(name), text).unwrap();
    }
    let names = |objects: &[Value]| -> BTreeSet<String> { objects.iter().map(Value::to_string).collect() };
    assert_eq!(names(&rendered(&kubectl, &folder.0)), names(&printed));
}
