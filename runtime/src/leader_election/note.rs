//! What a replica says in its Lease next to who holds it, and how it reads what other replicas say in theirs.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, future::ready, stream, stream::BoxStream};
use http::Request;
use kube::{
    api::{DeleteParams, ListParams, Preconditions, WatchEvent, WatchParams},
    core::request,
};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{Notify, watch};

use super::record::{GROUP_LABEL, NoteRecord, StoredLease, micros};
use crate::chain::one_line;

/// What this replica says in its Lease.
#[derive(Debug)]
pub(crate) struct LeaseNote {
    group: Arc<str>,
    text: Mutex<Arc<str>>,
    pub(super) changed: Notify,
    confirmed: watch::Sender<Option<Arc<str>>>,
}

impl LeaseNote {
    /// Makes an empty note of a replica in a group.
    pub(crate) fn new(group: Arc<str>) -> Self {
        Self { group, text: Mutex::new("".into()), changed: Notify::new(), confirmed: watch::channel(None).0 }
    }

    /// Changes what the Lease is to say. It is written soon.
    pub(crate) fn set(&self, text: &str) {
        let mut current = self.text.lock();
        if **current != *text {
            *current = text.into();
            self.changed.notify_one();
        }
    }

    /// Follows what the server confirmed.
    pub(crate) fn confirmed(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.confirmed.subscribe()
    }

    pub(super) fn record(&self) -> NoteRecord {
        NoteRecord { group: self.group.clone(), text: self.text.lock().clone() }
    }

    /// The server confirmed a write with this note.
    pub(super) fn wrote(&self, note: Option<&NoteRecord>) {
        let text = note.map(|note| note.text.clone());
        self.confirmed.send_if_modified(|confirmed| {
            let is_new = *confirmed != text;
            *confirmed = text;
            is_new
        });
    }
}

/// The Leases of a group, through a client that is not gated.
pub(crate) struct NotedLeases {
    pub(crate) client: kube::Client,
    pub(crate) namespace: String,
    pub(crate) group: Arc<str>,
}

/// One of them, as it was listed.
pub(crate) struct NotedLease {
    pub(crate) name: Arc<str>,
    pub(crate) note: Arc<str>,
    /// Changes with each write.
    pub(crate) version: String,
    /// For how long it lasts without a renewal, as it says.
    pub(crate) duration: Duration,
    pub(crate) is_released: bool,
    /// When it was renewed, as it says, in microseconds since 1970.
    pub(crate) renewed: i64,
    uid: Option<String>,
    resource_version: Option<String>,
}

impl NotedLeases {
    /// Lists the Leases as they are now, not as a cache of the server has them.
    ///
    /// # Errors
    /// Why the server did not answer, in one line.
    pub(crate) async fn list(&self) -> Result<Vec<NotedLease>, String> {
        let params = ListParams::default().labels(&self.selector());
        let mut listed = self.send(self.request().list(&params)).await?;
        let items = listed["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
        Ok(items.into_iter().map(NotedLease::of).collect())
    }

    /// Watches the Leases: what each of them says when it changes, by name. It ends with the watch, or if none can be opened.
    ///
    /// It tells when to [list](Self::list), and no more: what it shows may be old, and it may miss something.
    pub(crate) fn watch(&self) -> BoxStream<'static, (Arc<str>, Arc<str>)> {
        let params = WatchParams::default().labels(&self.selector());
        let (client, request) = (self.client.clone(), self.request().watch(&params, ""));
        let watched = async move {
            let events = client.request_events::<Value>(request.ok()?).await.ok()?;
            let events = events.take_while(|event| ready(event.is_ok()));
            Some(events.filter_map(|event| ready(event.ok().and_then(said_by))))
        };
        stream::once(watched).filter_map(ready).flatten().boxed()
    }

    /// Deletes a Lease if it is still as it was listed.
    ///
    /// # Errors
    /// Why it was not deleted, in one line.
    pub(crate) async fn delete(&self, lease: &NotedLease) -> Result<(), String> {
        let (uid, resource_version) = (lease.uid.clone(), lease.resource_version.clone());
        let params = DeleteParams {
            preconditions: Some(Preconditions { uid, resource_version }),
            ..DeleteParams::default()
        };
        self.send(self.request().delete(&lease.name, &params)).await.map(drop)
    }

    fn selector(&self) -> String {
        format!("{GROUP_LABEL}={}", self.group)
    }

    async fn send(&self, request: Result<Request<Vec<u8>>, request::Error>) -> Result<Value, String> {
        let request = request.map_err(|error| error.to_string())?;
        self.client.request::<Value>(request).await.map_err(|error| one_line(&error))
    }

    fn request(&self) -> kube::core::Request {
        kube::core::Request::new(format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.namespace))
    }
}

/// Returns what the Lease of an event says, by its name.
fn said_by(event: WatchEvent<Value>) -> Option<(Arc<str>, Arc<str>)> {
    match event {
        WatchEvent::Added(lease) | WatchEvent::Modified(lease) | WatchEvent::Deleted(lease) => {
            let NotedLease { name, note, .. } = NotedLease::of(lease);
            Some((name, note))
        }
        WatchEvent::Bookmark(_) | WatchEvent::Error(_) => None,
    }
}

impl NotedLease {
    fn of(lease: Value) -> Self {
        let text = |field: &str| lease["metadata"][field].as_str().map(str::to_owned);
        let (name, uid, resource_version) = (text("name"), text("uid"), text("resourceVersion"));
        let record = StoredLease::of(lease).record;
        Self {
            name: name.unwrap_or_default().into(),
            note: record.note.as_ref().map(|note| note.text.clone()).unwrap_or_default(),
            version: format!("{uid:?} {resource_version:?}"),
            duration: record.duration.unwrap_or_default(),
            is_released: record.is_released(),
            renewed: record.renewed.as_str().and_then(micros).unwrap_or_default(),
            uid,
            resource_version,
        }
    }
}
