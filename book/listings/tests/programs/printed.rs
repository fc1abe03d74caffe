//! A program that is printed somewhere, run as a process of its own against the embedded server.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::ConfigMap},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api,
    api::{ApiResource, DeleteParams, DynamicObject, PostParams},
};
use serde_json::{Value, json};
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

/// What an operator looks after.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Printed {
    /// README's operator: a Deployment for every Website.
    Websites,
    /// The book's operator: a ConfigMap for every Greeting.
    Greetings,
}

impl Printed {
    fn resource(self) -> ApiResource {
        let (group, kind, plural) = match self {
            Self::Websites => ("web.example.dev", "Website", "websites"),
            Self::Greetings => ("cards.example.dev", "Greeting", "greetings"),
        };
        ApiResource {
            group: group.to_owned(),
            version: "v1".to_owned(),
            api_version: format!("{group}/v1"),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
        }
    }

    fn spec(self) -> Value {
        match self {
            Self::Websites => json!({ "spec": { "domain": "a.example", "replicas": 2 } }),
            Self::Greetings => json!({ "spec": { "who": "Ada", "language": "en" } }),
        }
    }

    /// Waits until the child is there, and is what it should be.
    async fn child_is_there(self, server: &ApiServer<OverHttp>) {
        match self {
            Self::Websites => {
                let replicas = |child: &Deployment| child.spec.as_ref().and_then(|spec| spec.replicas);
                server.eventually("default/a", |child| child.and_then(replicas) == Some(2)).await;
            }
            Self::Greetings => {
                let says =
                    |child: &ConfigMap| child.data.as_ref().is_some_and(|data| data["text"] == "Hello, Ada!");
                server.eventually("default/a-card", |child| child.is_some_and(says)).await;
            }
        }
    }

    async fn delete_child(self, server: &ApiServer<OverHttp>) {
        let (client, params) = (server.client(), DeleteParams::default());
        match self {
            Self::Websites => {
                Api::<Deployment>::namespaced(client, "default").delete("a", &params).await.map(drop)
            }
            Self::Greetings => {
                Api::<ConfigMap>::namespaced(client, "default").delete("a-card", &params).await.map(drop)
            }
        }
        .unwrap();
    }

    /// Runs a program against an embedded server: its definition is served, its child is made, and made again.
    ///
    /// Returns how long each took.
    pub(crate) async fn runs(self, program: &Path, arguments: &[&str]) -> [Duration; 3] {
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
        let resource = self.resource();
        let name = format!("{}.{}", resource.plural, resource.group);
        server.eventually(&name, |definition| definition.is_some_and(is_established)).await;
        let served = lap();
        let objects = Api::<DynamicObject>::namespaced_with(server.client(), "default", &resource);
        let object = DynamicObject::new("a", &resource).data(self.spec());
        objects.create(&PostParams::default(), &object).await.unwrap();
        self.child_is_there(&server).await;
        let made = lap();
        self.delete_child(&server).await;
        self.child_is_there(&server).await;
        let healed = lap();
        server.stop().await;
        [served, made, healed]
    }
}

fn is_established(definition: &CustomResourceDefinition) -> bool {
    let status = definition.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Established" && one.status == "True"))
}
