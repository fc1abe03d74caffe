//! Serves bytes as a server's answer, and reads them as watchkeeper does.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Request, Response};
use http_body_util::StreamBody;
use kube::client::Body;
use tokio::runtime::Runtime;
use tower::service_fn;
use watchkeeper::{
    list_watch::{
        ClientListWatch, ItemForm, ListOptions, ListPage, ListWatchError, ListerWatcher, WatchEvent,
    },
    object::{Kind, Object, Scope},
};

/// How an answer comes: in chunks of a size, decoded at once or taken as bytes.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// Bytes a chunk.
    pub chunk: usize,
    /// What becomes of objects.
    pub form: ItemForm,
}

/// What a watch brought, and how it ended.
pub type Events<K> = Vec<Result<WatchEvent<K>, ListWatchError>>;

/// A server that gives one answer after the other, on a runtime of its own.
pub struct Reader {
    runtime: Runtime,
    client: kube::Client,
    answer: Arc<Mutex<Answer>>,
}

#[derive(Clone, Debug, Default)]
struct Answer {
    code: u16,
    body: Bytes,
    chunk: usize,
}

impl Reader {
    /// Starts a server.
    pub fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = runtime.expect("a runtime without I/O needs nothing");
        let answer = Arc::new(Mutex::new(Answer::default()));
        let client = {
            let (_entered, answer) = (runtime.enter(), answer.clone());
            let service = service_fn(move |_: Request<Body>| {
                let Answer { code, body, chunk } =
                    answer.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let size = chunk.clamp(1, body.len().max(1));
                let chunks: Vec<_> = (0..body.len())
                    .step_by(size)
                    .map(|at| body.slice(at..body.len().min(at + size)))
                    .map(|chunk| Ok::<_, Infallible>(http_body::Frame::data(chunk)))
                    .collect();
                let answer = Response::builder().status(code).body(StreamBody::new(stream::iter(chunks)));
                async move { answer }
            });
            kube::Client::new(service, "default")
        };
        Self { runtime, client, answer }
    }

    /// Reads an answer as a list.
    ///
    /// # Errors
    /// As the list fails.
    pub fn listed<K: Object>(
        &self,
        kind: &Kind,
        (code, body): (u16, &[u8]),
        manner: Manner,
    ) -> Result<ListPage<K>, ListWatchError> {
        let source = self.source::<K>(kind, (code, body), manner);
        self.runtime.block_on(source.list(&ListOptions::default()))
    }

    /// Reads an answer as a watch.
    ///
    /// # Errors
    /// As the watch fails to open.
    pub fn watched<K: Object>(
        &self,
        kind: &Kind,
        (code, body): (u16, &[u8]),
        manner: Manner,
    ) -> Result<Events<K>, ListWatchError> {
        let source = self.source::<K>(kind, (code, body), manner);
        self.runtime.block_on(async { Ok(source.watch(&ListOptions::default()).await?.collect().await) })
    }

    fn source<K: Object>(
        &self,
        kind: &Kind,
        (code, body): (u16, &[u8]),
        manner: Manner,
    ) -> ClientListWatch<K> {
        let answer = Answer { code, body: Bytes::copy_from_slice(body), chunk: manner.chunk };
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = answer;
        ClientListWatch::new(self.client.clone(), kind.clone()).item_form(manner.form)
    }
}

/// A namespaced kind.
pub fn kind(group: &str, version: &str, kind: &str) -> Kind {
    Kind {
        group: group.to_owned().into(),
        version: version.to_owned().into(),
        kind: kind.to_owned().into(),
        plural: format!("{}s", kind.to_lowercase()).into(),
        scope: Scope::Namespaced,
    }
}
