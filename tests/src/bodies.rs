//! A client that remembers what its writes carry.

use std::sync::{Arc, Mutex, PoisonError};

use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::Value;

/// A write that was sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Its method.
    pub method: Method,
    /// Its path and query.
    pub uri: String,
    /// What it carries; null where that is no JSON.
    pub body: Value,
}

/// The writes of one client; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Bodies(Arc<Mutex<Vec<Sent>>>);

impl Bodies {
    /// Remembers what a client's writes carry.
    pub fn of(client: kube::Client) -> (Self, kube::Client) {
        let (bodies, namespace) = (Self::default(), client.default_namespace().to_owned());
        let kept = bodies.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, kept) = (client.clone(), kept.clone());
            async move {
                if request.method() == Method::GET {
                    return client.send(request).await;
                }
                let (head, body) = request.into_parts();
                let bytes = body.collect().await?.to_bytes();
                let body = serde_json::from_slice(&bytes).unwrap_or_default();
                let sent = Sent { method: head.method.clone(), uri: head.uri.to_string(), body };
                kept.0.lock().unwrap_or_else(PoisonError::into_inner).push(sent);
                client.send(Request::from_parts(head, Body::from(bytes.to_vec()))).await
            }
        });
        (bodies, kube::Client::new(service, namespace))
    }

    /// Returns what was sent with a method, in order.
    pub fn with(&self, method: &Method) -> Vec<Sent> {
        let sent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sent.iter().filter(|one| one.method == *method).cloned().collect()
    }

    /// Counts all writes.
    pub fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Returns whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
