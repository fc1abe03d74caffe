//! The environment of a test: a server, a namespace of its own, clients, and recorders.

use std::{
    fmt::{self, Write as _},
    io,
    sync::{Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::api::core::v1::Namespace;
use kube::{Client, core::ObjectMeta};
use tokio::sync::watch;
use watchkeeper::{
    backoff::BackoffSchedule,
    informer::{InformerBuilder, Registration},
    prelude::*,
    reflector::ReflectorConfig,
};
use watchkeeper_apiserver::Kit;
use watchkeeper_examples::Cuts;

use super::{Gateway, Server, User};
use crate::{Hearing, hear};

/// How long anything may take that a test waits for.
const PATIENCE: Duration = Duration::from_secs(45);

/// A server, a namespace of its own, and clients for it.
pub struct Stage {
    /// The server.
    pub server: Server,
    /// The namespace that is the test's own.
    pub namespace: String,
    /// Talks as the administrator; its watches can be cut.
    pub client: Client,
    /// Cuts the client's watches.
    pub cuts: Cuts,
    /// The runtime's log of this test.
    pub log: Log,
    kit: Kit,
}

impl Stage {
    /// Sets a stage on a server: makes the namespace and the clients.
    pub async fn set(server: Server, namespace: &str, log: Log) -> Self {
        let (client, cuts) = server.client(User::Admin, namespace).await;
        let kit = Kit::new(server.client(User::Admin, namespace).await.0).within(PATIENCE);
        let stage = Self { server, namespace: namespace.to_owned(), client, cuts, log, kit };
        stage.add_namespace(namespace).await;
        stage
    }

    /// Returns the kit, which writes past the cuts, to the test's namespace.
    pub fn kit(&self) -> &Kit {
        &self.kit
    }

    /// Makes a namespace.
    pub async fn add_namespace(&self, name: &str) {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        self.kit.create(&Namespace { metadata, ..Namespace::default() }).await;
    }

    /// Makes a factory of informers that try again quickly.
    pub fn factory(&self) -> SharedInformerFactory {
        SharedInformerFactory::with_config(self.client.clone(), brisk())
    }

    /// Makes a factory for the viewer.
    pub async fn viewers_factory(&self) -> SharedInformerFactory {
        let (client, _) = self.server.client(User::Viewer, &self.namespace).await;
        SharedInformerFactory::with_config(client, brisk())
    }

    /// Makes a manager whose requests go through a gateway, and whose informers try again quickly.
    pub async fn manager_through(&self, gateway: &Gateway) -> Manager {
        Manager::with_config(self.server.client_through(gateway, &self.namespace).await, brisk())
    }

    /// Makes a manager whose informers try again quickly.
    pub fn manager(&self) -> Manager {
        Manager::with_config(self.client.clone(), brisk())
    }

    /// Runs one controller in the test's namespace.
    pub fn run<K: Watched, R: Reconciler<K>>(&self, controller: Controller<K, R>) -> watchkeeper::Running {
        self.manager().controller(controller.namespace(&*self.namespace)).spawn()
    }

    /// Installs a custom resource, as operators do.
    ///
    /// # Panics
    /// When the server refuses it.
    pub async fn install<K: CustomResourceExt>(&self) {
        self.manager().install_crd::<K>().await.expect("the definition is sound");
    }
}

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stage").field("server", &self.server).field("namespace", &self.namespace).finish()
    }
}

/// Shortens every wait after a failure.
fn brisk() -> ReflectorConfig {
    let backoff = BackoffSchedule::doubling(Duration::from_millis(50), Duration::from_millis(400));
    ReflectorConfig { backoff, ..ReflectorConfig::default() }
}

/// One line per notification of a handler.
#[derive(Debug)]
pub struct Heard {
    lines: Arc<watch::Sender<Vec<String>>>,
    _registration: Registration,
}

impl Heard {
    /// Registers a handler that writes `+ name (origin)`, `~ name` and `- name (how it is known)`.
    pub fn by<W: Watched>(informer: InformerBuilder<W>) -> Self {
        Self::of(&informer.build())
    }

    /// Registers such a handler with an informer.
    pub fn of<W: Watched>(informer: &SharedInformer<W>) -> Self {
        let lines = Arc::new(watch::Sender::new(Vec::new()));
        let (added, updated, deleted) = (lines.clone(), lines.clone(), lines.clone());
        let push = |lines: &watch::Sender<Vec<String>>, line| lines.send_modify(|lines| lines.push(line));
        let registration = informer
            .handler()
            .on_add(move |object, origin| push(&added, format!("+ {} ({origin})", name(&*object))))
            .on_update(move |_, object| push(&updated, format!("~ {}", name(&*object))))
            .on_delete(move |gone| {
                let how = match &gone {
                    Deleted::Final(_) => "told",
                    Deleted::Inferred(_) => "inferred",
                    Deleted::Undecoded { .. } => "undecoded",
                };
                push(&deleted, format!("- {} ({how})", gone.key().name()));
            })
            .register();
        Self { lines, _registration: registration }
    }

    /// Returns the lines so far.
    pub fn lines(&self) -> Vec<String> {
        self.lines.borrow().clone()
    }

    /// Waits until exactly these lines have come.
    ///
    /// # Panics
    /// As soon as it can't hold any more, or after a while, with what was recorded.
    pub async fn comes_to(&self, wanted: &[&str]) {
        let mut lines = self.lines.subscribe();
        let reached = lines.wait_for(|lines| lines.len() >= wanted.len());
        // The check gives a better message than the wait.
        let _ = tokio::time::timeout(PATIENCE, reached).await;
        assert_eq!(self.lines(), wanted);
    }

    /// Waits until these lines have come, in any order.
    ///
    /// # Panics
    /// After a while, with what came.
    pub async fn comes_to_any_order_of(&self, wanted: &[&str]) {
        let mut lines = self.lines.subscribe();
        let reached = lines.wait_for(|lines| lines.len() >= wanted.len());
        let _ = tokio::time::timeout(PATIENCE, reached).await;
        let (mut came, mut wanted) = (self.lines(), wanted.to_vec());
        came.sort();
        wanted.sort_unstable();
        assert_eq!(came, wanted);
    }
}

fn name(object: &impl Object) -> String {
    object.meta().name.clone().unwrap_or_default()
}

/// The log as text.
#[derive(Clone, Debug, Default)]
pub struct Log {
    text: Arc<Mutex<String>>,
    grown: Arc<watch::Sender<()>>,
}

impl Log {
    /// Takes what this thread logs, until the guard goes.
    pub fn take(&self) -> Hearing {
        let log = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter("watchkeeper=debug")
            .with_ansi(false)
            .with_writer(move || log.clone())
            .finish();
        hear(subscriber)
    }

    /// Returns the lines that hold all of these parts.
    pub fn lines_with(&self, parts: &[&str]) -> Vec<String> {
        let text = self.text();
        text.lines().filter(|line| parts.iter().all(|part| line.contains(part))).map(str::to_owned).collect()
    }

    /// Waits for a line that holds all of these parts.
    ///
    /// # Panics
    /// After a while.
    pub async fn says(&self, parts: &[&str]) {
        let mut grown = self.grown.subscribe();
        let said = async {
            while self.lines_with(parts).is_empty() {
                grown.changed().await.expect("the log outlives the wait");
            }
        };
        assert!(tokio::time::timeout(PATIENCE, said).await.is_ok(), "no line says {parts:?}");
    }

    /// Returns the last lines.
    pub fn tail(&self, lines: usize) -> String {
        let text = self.text();
        let all: Vec<_> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].iter().fold(String::new(), |mut tail, line| {
            // Writing to a String does not fail.
            let _ = writeln!(tail, "    {line}");
            tail
        })
    }

    fn text(&self) -> MutexGuard<'_, String> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text().push_str(&String::from_utf8_lossy(bytes));
        self.grown.send_replace(());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
