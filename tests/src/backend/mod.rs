//! What the end-to-end suite runs on: the embedded server, or a real kube-apiserver.

mod gateway;
mod kube_apiserver;
mod stage;

use std::{path::PathBuf, sync::Arc, time::Duration};

use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};
use kube::{
    Client, Config,
    client::ClientBuilder,
    config::{KubeConfigOptions, Kubeconfig},
};
use watchkeeper_apiserver::{ApiServer, Kit, OverHttp, Restart, Verb};
use watchkeeper_examples::{CutLayer, Cuts};

pub use gateway::Gateway;
pub use kube_apiserver::KubeApiserver;
pub use stage::{Heard, Log, Stage};

/// The environment variable that names the folder of the real server's binaries.
pub const BINARIES: &str = "WATCHKEEPER_KUBE_APISERVER";

/// Which server a test runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Backend {
    /// The embedded server, over TLS.
    Embedded,
    /// A real kube-apiserver, over TLS.
    KubeApiserver,
}

impl Backend {
    /// Returns the name that reports use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::KubeApiserver => "kube-apiserver",
        }
    }
}

/// Returns the folder of the real server's binaries, where the environment names one.
pub fn binaries() -> Option<PathBuf> {
    std::env::var_os(BINARIES).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Who talks to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// May do everything.
    Admin,
    /// May do what [`Server::allow_viewer`] says.
    Viewer,
}

impl User {
    fn token(self) -> &'static str {
        match self {
            Self::Admin => "admin-token",
            Self::Viewer => "viewer-token",
        }
    }
}

/// A server under way; one handle may be shared by tests.
#[derive(Debug)]
pub enum Server {
    /// In this process.
    Embedded(Box<ApiServer<OverHttp>>),
    /// In a process of its own.
    KubeApiserver(Arc<KubeApiserver>),
}

impl Server {
    /// Starts an embedded server.
    ///
    /// # Panics
    /// When it can't listen.
    pub async fn embedded() -> Self {
        let server = ApiServer::http().start().await.expect("loopback has a free port");
        Self::Embedded(Box::new(server))
    }

    /// Builds a client whose watches can be cut, for a user, with a default namespace.
    ///
    /// # Panics
    /// When the kubeconfig can't be used.
    pub async fn client(&self, user: User, namespace: &str) -> (Client, Cuts) {
        let config = config_of(self.kubeconfig(user), namespace).await;
        let cuts = Cuts::default();
        let builder = ClientBuilder::try_from(config).expect("a client can be built of it");
        (builder.with_layer(&CutLayer::new(cuts.clone())).build(), cuts)
    }

    /// Builds a client of the administrator's that reaches the server through a gateway.
    ///
    /// # Panics
    /// When the kubeconfig can't be used.
    pub async fn client_through(&self, gateway: &Gateway, namespace: &str) -> Client {
        let config = config_of(self.kubeconfig(User::Admin), namespace).await;
        ClientBuilder::try_from(config).expect("a client can be built of it").with_layer(gateway).build()
    }

    /// Writes a user's kubeconfig as a process of its own reads it.
    ///
    /// # Panics
    /// Never: a kubeconfig is JSON as well.
    pub fn kubeconfig_text(&self, user: User) -> String {
        serde_json::to_string(&self.kubeconfig(user)).expect("a kubeconfig is JSON as well")
    }

    fn kubeconfig(&self, user: User) -> Kubeconfig {
        let mut kubeconfig = match self {
            Self::Embedded(server) => server.kubeconfig(),
            Self::KubeApiserver(server) => server.kubeconfig(),
        };
        for auth in kubeconfig.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
            auth.token = Some(user.token().to_owned().into());
        }
        kubeconfig
    }

    /// Forgets the history up to now.
    ///
    /// A kube-apiserver goes on serving the past from its own cache for some seconds, or until it restarts.
    pub async fn compact(&self) {
        match self {
            Self::Embedded(server) => server.compact(),
            Self::KubeApiserver(server) => server.compact().await,
        }
    }

    /// Restarts the server on its data, and returns when it is ready again.
    pub async fn restart(&self) {
        match self {
            Self::Embedded(server) => server.restart(Restart::Keep),
            Self::KubeApiserver(server) => server.restart().await,
        }
    }

    /// Remembers the state as it is now, for [`restore`](Server::restore); only the last such state is kept.
    ///
    /// A kube-apiserver restarts for it.
    pub async fn back_up(&self) -> Backup {
        match self {
            Self::Embedded(server) => Backup::Version(server.resource_version()),
            Self::KubeApiserver(server) => {
                server.back_up().await;
                Backup::Copy
            }
        }
    }

    /// Puts an older state back, and returns when the server is ready again.
    ///
    /// # Panics
    /// When the state is another server's.
    pub async fn restore(&self, backup: Backup) {
        match (self, backup) {
            (Self::Embedded(server), Backup::Version(version)) => server.restart(Restart::At(version)),
            (Self::KubeApiserver(server), Backup::Copy) => server.restore().await,
            (server, backup) => panic!("{backup:?} is not a backup of {server:?}"),
        }
    }

    /// Lets the viewer list and watch a resource of the core group in a namespace.
    ///
    /// The embedded server knows no namespaces here: it allows the resource in all of them.
    pub async fn allow_viewer(&self, admin: &Kit, resource: &str) {
        match self {
            Self::Embedded(server) => {
                for verb in [Verb::List, Verb::Watch] {
                    server.allow("viewer", verb, resource);
                }
            }
            Self::KubeApiserver(_) => bind_viewer(admin, resource).await,
        }
    }
}

/// A state that a server can be brought back to.
#[derive(Clone, Copy, Debug)]
pub enum Backup {
    /// The embedded server's state at a version.
    Version(u64),
    /// A copy of a kube-apiserver's data.
    Copy,
}

/// The group of what says who may do what.
const GROUP: &str = "rbac.authorization.k8s.io";

/// Lets the viewer list and watch by a Role and its RoleBinding.
async fn bind_viewer(admin: &Kit, resource: &str) {
    let name = format!("read-{resource}");
    let role = Role {
        metadata: named(&name),
        rules: Some(vec![PolicyRule {
            api_groups: Some(vec![String::new()]),
            resources: Some(vec![resource.to_owned()]),
            verbs: vec!["list".to_owned(), "watch".to_owned()],
            ..PolicyRule::default()
        }]),
    };
    admin.create(&role).await;
    let binding = RoleBinding {
        metadata: named(&name),
        role_ref: RoleRef { api_group: Some(GROUP.to_owned()), kind: "Role".to_owned(), name },
        subjects: Some(vec![Subject {
            api_group: Some(GROUP.to_owned()),
            kind: "User".to_owned(),
            name: "viewer".to_owned(),
            namespace: None,
        }]),
    };
    admin.create(&binding).await;
}

fn named(name: &str) -> kube::core::ObjectMeta {
    kube::core::ObjectMeta { name: Some(name.to_owned()), ..Default::default() }
}

async fn config_of(kubeconfig: Kubeconfig, namespace: &str) -> Config {
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.expect("a server writes a kubeconfig that can be used");
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_secs(5));
    namespace.clone_into(&mut config.default_namespace);
    config
}
