//! A program that is printed somewhere, run as a process of its own against the embedded server.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use k8s_openapi::{
    api::apps::v1::Deployment,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api,
    api::{ApiResource, DeleteParams, DynamicObject, PostParams},
};
use serde_json::json;
use tokio::time::Instant;
use watchkeeper_apiserver::{ApiServer, OverHttp};

/// A folder of its own, gone with this.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Makes an empty one.
    pub(crate) fn empty() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = env::temp_dir().join(format!("printed-{}-{count}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An operator's process, ended with this.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn websites() -> ApiResource {
    let (group, kind, plural) = ("web.example.dev", "Website", "websites");
    ApiResource {
        group: group.to_owned(),
        version: "v1".to_owned(),
        api_version: format!("{group}/v1"),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

/// Waits until the child is there, and is what it should be.
async fn child_is_there(server: &ApiServer<OverHttp>) {
    let replicas = |child: &Deployment| child.spec.as_ref().and_then(|spec| spec.replicas);
    server.eventually("default/a", |child| child.and_then(replicas) == Some(2)).await;
}

/// Runs an operator that keeps a Deployment for every Website against an embedded server: its definition is served, its child
/// is made, and made again.
///
/// Returns how long each took.
pub(crate) async fn runs(program: &Path, arguments: &[&str]) -> [Duration; 3] {
    let server = ApiServer::http().namespace("default").start().await.unwrap();
    let folder = Folder::empty();
    let kubeconfig = folder.path().join("kubeconfig");
    fs::write(&kubeconfig, server.kubeconfig_yaml()).unwrap();
    let mut began = Instant::now();
    let mut lap = || std::mem::replace(&mut began, Instant::now()).elapsed();
    let mut command = Command::new(program);
    let process = command.args(arguments).env("KUBECONFIG", &kubeconfig).stdout(Stdio::null()).spawn();
    let _process = Process(process.unwrap_or_else(|error| panic!("{}: {error}", program.display())));

    // The operator installs the definition; until then there is nothing to create.
    let resource = websites();
    let name = format!("{}.{}", resource.plural, resource.group);
    server.eventually(&name, |definition| definition.is_some_and(is_established)).await;
    let served = lap();
    let objects = Api::<DynamicObject>::namespaced_with(server.client(), "default", &resource);
    let spec = json!({ "spec": { "domain": "a.example", "replicas": 2 } });
    let object = DynamicObject::new("a", &resource).data(spec);
    objects.create(&PostParams::default(), &object).await.unwrap();
    child_is_there(&server).await;
    let made = lap();
    let deployments = Api::<Deployment>::namespaced(server.client(), "default");
    deployments.delete("a", &DeleteParams::default()).await.map(drop).unwrap();
    child_is_there(&server).await;
    let healed = lap();
    server.stop().await;
    [served, made, healed]
}

fn is_established(definition: &CustomResourceDefinition) -> bool {
    let status = definition.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Established" && one.status == "True"))
}
