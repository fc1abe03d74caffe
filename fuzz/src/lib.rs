//! Serves bytes as a server's answer, and reads them as watchkeeper does.

use std::convert::Infallible;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Request, Response};
use http_body_util::StreamBody;
use k8s_openapi::api::core::v1::Pod;
use kube::client::Body;
use tower::service_fn;
use watchkeeper::{
    list_watch::{ClientListWatch, ItemForm, ListOptions, ListerWatcher},
    object::{Kind, Scope},
};

/// How an answer comes: in chunks of a size, decoded at once or taken as bytes.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// Bytes a chunk.
    pub chunk: usize,
    /// What becomes of objects.
    pub form: ItemForm,
}

impl Manner {
    /// Everything in one chunk.
    pub const WHOLE: Self = Self { chunk: usize::MAX, form: ItemForm::Typed };
}

/// What was read, as text: equal answers read equal.
pub fn listed(code: u16, body: &[u8], manner: Manner) -> String {
    read(code, body, manner, async |source| match source.list(&ListOptions::default()).await {
        Ok(page) => format!("{page:?}"),
        Err(error) => format!("{error}"),
    })
}

/// What was watched, as text.
pub fn watched(code: u16, body: &[u8], manner: Manner) -> String {
    read(code, body, manner, async |source| match source.watch(&ListOptions::default()).await {
        Ok(events) => format!("{:?}", events.collect::<Vec<_>>().await),
        Err(error) => format!("{error}"),
    })
}

fn read(code: u16, body: &[u8], manner: Manner, ask: impl AsyncFnOnce(ClientListWatch<Pod>) -> String) -> String {
    let body = Bytes::copy_from_slice(body);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime without I/O needs nothing").block_on(async {
        let service = service_fn(move |_: Request<Body>| {
            let body = body.clone();
            let size = manner.chunk.clamp(1, body.len().max(1));
            let chunks: Vec<_> = (0..body.len())
                .step_by(size)
                .map(|at| Ok::<_, Infallible>(http_body::Frame::data(body.slice(at..body.len().min(at + size)))))
                .collect();
            let answer = Response::builder().status(code).body(StreamBody::new(stream::iter(chunks)));
            async move { answer }
        });
        let kind = Kind {
            group: "".into(),
            version: "v1".into(),
            kind: "Pod".into(),
            plural: "pods".into(),
            scope: Scope::Namespaced,
        };
        let client = kube::Client::new(service, "default");
        ask(ClientListWatch::new(client, kind).item_form(manner.form)).await
    })
}
