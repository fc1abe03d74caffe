//! What is made on a server, by its own history.

use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, Client,
    api::{ListParams, WatchEvent, WatchParams},
};
use tokio::{task::JoinHandle, time::Duration};

/// How long to wait before a server is asked again.
const PAUSE: Duration = Duration::from_millis(5);

/// Every Deployment that there is on a server at any time, even if it is gone again at once.
#[derive(Debug)]
pub struct Made {
    children: Arc<Mutex<Vec<Deployment>>>,
    /// The UIDs of those that count for nothing.
    known: Vec<String>,
    task: JoinHandle<()>,
}

impl Made {
    /// Follows a namespace from the first answer of the server on, until dropped.
    pub fn from_now(client: Client, namespace: &str) -> Self {
        let children = Arc::new(Mutex::new(Vec::new()));
        let (seen, api) = (children.clone(), Api::<Deployment>::namespaced(client, namespace));
        let follow = async move {
            loop {
                // Whoever restarts the server need not wait until it is ready.
                if let Ok(list) = api.list(&ListParams::default()).await {
                    let version = list.metadata.resource_version.unwrap_or_default();
                    seen.lock().unwrap_or_else(PoisonError::into_inner).extend(list.items);
                    follow(&api, version, &seen).await;
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        Self { children, known: Vec::new(), task: tokio::spawn(follow) }
    }

    /// Leaves out the children with these UIDs: a server that is about to stop shows them still.
    pub fn but(mut self, known: Vec<String>) -> Self {
        self.known = known;
        self
    }

    /// Names those whose owner is none of the UIDs.
    pub fn without_parent(&self, parents: &[String]) -> Vec<String> {
        let children = self.children.lock().unwrap_or_else(PoisonError::into_inner);
        let owned = |child: &Deployment| {
            let owners = child.metadata.owner_references.iter().flatten();
            owners.into_iter().any(|owner| parents.contains(&owner.uid))
        };
        let known = |child: &Deployment| child.metadata.uid.iter().any(|uid| self.known.contains(uid));
        children
            .iter()
            .filter(|child| !owned(child) && !known(child))
            .filter_map(|child| child.metadata.name.clone())
            .collect()
    }

    /// Counts all there were.
    pub fn len(&self) -> usize {
        self.children.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Returns whether there never was one.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow(api: &Api<Deployment>, version: String, seen: &Mutex<Vec<Deployment>>) {
    let Ok(stream) = api.watch(&WatchParams::default(), &version).await else { return };
    let mut stream = std::pin::pin!(stream);
    while let Some(Ok(event)) = stream.next().await {
        if let WatchEvent::Added(child) = event {
            seen.lock().unwrap_or_else(PoisonError::into_inner).push(child);
        }
    }
}
