//! Clients of one version that create, change, read, list, watch and delete, and count what fails.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::StreamExt;
use kube::{
    Api, Client,
    api::{
        ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent,
        WatchParams,
    },
};
use serde_json::json;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};

use crate::program::MOST;

/// The time between two calls of a client.
const PACE: Duration = Duration::from_millis(40);
/// How long a call is repeated that the server refuses for a moment (429), as every client does.
const PATIENCE: Duration = Duration::from_secs(30);

/// What all clients have seen.
#[derive(Default)]
pub(crate) struct Tally {
    calls: AtomicU64,
    events: AtomicU64,
    failures: Mutex<Vec<String>>,
}

impl Tally {
    /// Returns the numbers of calls and of events so far.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.calls.load(Ordering::Relaxed), self.events.load(Ordering::Relaxed))
    }

    pub(crate) fn failures(&self) -> Vec<String> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn failed(&self, what: String) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }
}

/// The clients of one version.
pub(crate) struct Load {
    tasks: Vec<JoinHandle<()>>,
}

impl Load {
    pub(crate) fn start(
        client: &Client,
        version: &'static str,
        field: &'static str,
        tally: &Arc<Tally>,
    ) -> Self {
        let kind = ApiResource {
            group: "rollouts.example.dev".into(),
            version: version.into(),
            api_version: format!("rollouts.example.dev/{version}"),
            kind: "Website".into(),
            plural: "websites".into(),
        };
        let one = Visitor {
            sites: Api::default_namespaced_with(client.clone(), &kind),
            kind,
            version,
            field,
            tally: tally.clone(),
        };
        let (writer, watcher) = (one.clone(), one);
        let tasks = vec![
            tokio::spawn(async move { writer.write().await }),
            tokio::spawn(async move { watcher.watch().await }),
        ];
        Self { tasks }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

#[derive(Clone)]
struct Visitor {
    sites: Api<DynamicObject>,
    kind: ApiResource,
    version: &'static str,
    /// The field of the replicas.
    field: &'static str,
    tally: Arc<Tally>,
}

impl Visitor {
    /// Does a call until the server does not put it off any more, and counts it.
    async fn call<T, F: Future<Output = kube::Result<T>>>(
        &self,
        what: &str,
        call: impl Fn() -> F,
    ) -> Option<T> {
        let begun = Instant::now();
        self.tally.calls.fetch_add(1, Ordering::Relaxed);
        loop {
            match call().await {
                Ok(answer) => return Some(answer),
                Err(kube::Error::Api(status)) if status.code == 429 && begun.elapsed() < PATIENCE => {
                    sleep(Duration::from_secs(1)).await;
                }
                Err(error) => {
                    self.tally.failed(format!("{} {what}: {error}", self.version));
                    return None;
                }
            }
        }
    }

    async fn write(self) {
        for round in 0_u64.. {
            let name = format!("{}-{}", self.version, round % 20);
            let wanted = i64::try_from(round % 7).unwrap_or_default();
            let object = DynamicObject::new(&name, &self.kind).data(json!({"spec": {self.field: wanted}}));
            let made = self
                .call("create", || async { self.sites.create(&PostParams::default(), &object).await })
                .await;
            if made.is_some_and(|made| made.data["spec"][self.field] != wanted.max(1)) {
                self.tally.failed(format!("{} create: no default", self.version));
            }
            sleep(PACE).await;
            let change = Patch::Merge(json!({"spec": {self.field: wanted + 1}}));
            self.call("patch", || async { self.sites.patch(&name, &PatchParams::default(), &change).await })
                .await;
            sleep(PACE).await;
            let read = self.call("get", || self.sites.get(&name)).await;
            if read.is_some_and(|read| read.data["spec"][self.field] != wanted + 1) {
                self.tally.failed(format!("{} get: another value", self.version));
            }
            sleep(PACE).await;
            self.call("list", || async { self.sites.list(&ListParams::default()).await }).await;
            sleep(PACE).await;
            let wrong = Patch::Merge(json!({"spec": {self.field: MOST + 1}}));
            // The refusal is the answer.
            let refused = self.call("refused patch", || async {
                match self.sites.patch(&name, &PatchParams::default(), &wrong).await {
                    Err(kube::Error::Api(status)) if status.code == 422 => Ok(true),
                    answer => answer.map(|_| false),
                }
            });
            if refused.await == Some(false) {
                self.tally.failed(format!("{}: a wrong patch is allowed", self.version));
            }
            sleep(PACE).await;
            let all = DeleteParams::default();
            self.call("delete", || async { self.sites.delete(&name, &all).await.map(drop) }).await;
            sleep(PACE).await;
        }
    }

    async fn watch(self) {
        let mut version = String::new();
        loop {
            if version.is_empty() {
                let listed =
                    self.call("list", || async { self.sites.list(&ListParams::default()).await }).await;
                version = listed.and_then(|list| list.metadata.resource_version).unwrap_or_default();
            }
            let from = version.clone();
            let watched = self.call("watch", || async {
                self.sites.watch(&WatchParams::default().timeout(60), &from).await
            });
            let Some(events) = watched.await else { continue };
            let mut events = std::pin::pin!(events);
            while let Some(event) = events.next().await {
                self.tally.events.fetch_add(1, Ordering::Relaxed);
                match event {
                    Ok(
                        WatchEvent::Added(object)
                        | WatchEvent::Modified(object)
                        | WatchEvent::Deleted(object),
                    ) => {
                        if object
                            .types
                            .as_ref()
                            .is_none_or(|types| types.api_version != self.kind.api_version)
                        {
                            self.tally.failed(format!("{} watch: another version", self.version));
                        }
                        version = object.metadata.resource_version.unwrap_or(version);
                    }
                    Ok(WatchEvent::Bookmark(mark)) => version = mark.metadata.resource_version,
                    Ok(WatchEvent::Error(status)) if status.code == 410 => {
                        version.clear();
                        break;
                    }
                    Ok(WatchEvent::Error(status)) => {
                        self.tally.failed(format!("{} watch: {status:?}", self.version))
                    }
                    // The server ends watches when a definition changes.
                    Err(_) => break,
                }
            }
        }
    }
}
