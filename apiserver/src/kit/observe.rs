//! Watching a few objects: the present state after every change.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use futures::{AsyncBufReadExt as _, Stream, StreamExt as _};
use http::Request;
use serde_json::Value;

/// The pause before a list or watch that failed is tried again.
const PAUSE: Duration = Duration::from_millis(50);

/// The objects to watch.
#[derive(Clone, Debug)]
pub(crate) struct ObservedScope {
    path: String,
    name: Option<String>,
}

impl ObservedScope {
    /// One object by name; the path is its collection's.
    pub(crate) fn one(path: String, name: &str) -> Self {
        Self { path, name: Some(name.to_owned()) }
    }

    /// A whole collection.
    pub(crate) fn all(path: String) -> Self {
        Self { path, name: None }
    }

    fn uri(&self, query: &str) -> String {
        match &self.name {
            Some(name) => format!("{}?fieldSelector=metadata.name%3D{name}&{query}", self.path),
            None => format!("{}?{query}", self.path),
        }
    }
}

/// Why a wait ended without success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WaitError {
    /// Why the objects could not be read at the end, if so.
    pub(crate) failure: Option<String>,
}

type Lines = Pin<Box<dyn Stream<Item = std::io::Result<String>> + Send>>;

/// Follows the objects of a scope.
pub(crate) struct Observer {
    client: kube::Client,
    scope: ObservedScope,
    objects: BTreeMap<String, Value>,
    version: String,
    state: ObserverState,
    failure: Option<String>,
}

enum ObserverState {
    Unknown,
    Listed,
    Watching(Lines),
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").field("scope", &self.scope).finish_non_exhaustive()
    }
}

impl Observer {
    pub(crate) fn new(client: kube::Client, scope: ObservedScope) -> Self {
        let (objects, version) = (BTreeMap::new(), String::new());
        Self { client, scope, objects, version, state: ObserverState::Unknown, failure: None }
    }

    /// Returns the objects last seen, in key order.
    pub(crate) fn objects(&self) -> Vec<Value> {
        self.objects.values().cloned().collect()
    }

    /// Evaluates the objects at first and after every change, until there is an answer or the time is over.
    pub(crate) async fn until<T>(
        &mut self,
        time: Duration,
        mut ask: impl FnMut(&[Value]) -> Option<T>,
    ) -> Result<T, WaitError> {
        let waiting = async {
            loop {
                self.changed().await;
                if let Some(answer) = ask(&self.objects()) {
                    return answer;
                }
            }
        };
        match tokio::time::timeout(time, waiting).await {
            Ok(answer) => Ok(answer),
            Err(_) => Err(WaitError { failure: self.failure.clone() }),
        }
    }

    /// Returns once at first, and then after each change.
    async fn changed(&mut self) {
        loop {
            let step = match &mut self.state {
                ObserverState::Unknown => self.look().await.map(|()| true),
                ObserverState::Listed => self.watch().await.map(|()| false),
                ObserverState::Watching(lines) => match lines.next().await {
                    Some(Ok(line)) => Ok(self.take(&line)),
                    Some(Err(_)) | None => {
                        self.state = ObserverState::Unknown;
                        Ok(false)
                    }
                },
            };
            match step {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => {
                    self.failure = Some(format!("it can't be watched: {error}"));
                    self.state = ObserverState::Unknown;
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn look(&mut self) -> Result<(), kube::Error> {
        let list: Value = self.client.request(self.request("")).await?;
        self.failure = None;
        self.version = list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        let items = list["items"].as_array().cloned().unwrap_or_default();
        self.objects = items.into_iter().map(|item| (key(&item), item)).collect();
        self.state = ObserverState::Listed;
        Ok(())
    }

    async fn watch(&mut self) -> Result<(), kube::Error> {
        let query = format!("watch=true&allowWatchBookmarks=true&resourceVersion={}", self.version);
        let lines = self.client.request_stream(self.request(&query)).await?.lines();
        self.state = ObserverState::Watching(Box::pin(lines));
        Ok(())
    }

    /// Takes one line; true when an object has changed.
    fn take(&mut self, line: &str) -> bool {
        let mut event: Value = serde_json::from_str(line).unwrap_or_default();
        let object = event["object"].take();
        match event["type"].as_str() {
            Some("ADDED" | "MODIFIED") => {
                self.objects.insert(key(&object), object);
                true
            }
            Some("DELETED") => self.objects.remove(&key(&object)).is_some(),
            Some("BOOKMARK") => false,
            _ => {
                self.state = ObserverState::Unknown;
                false
            }
        }
    }

    fn request(&self, query: &str) -> Request<Vec<u8>> {
        Request::get(self.scope.uri(query)).body(Vec::new()).expect("paths and names of objects make a URI")
    }
}

fn key(object: &Value) -> String {
    let part = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
    format!("{}/{}", part("namespace"), part("name"))
}
