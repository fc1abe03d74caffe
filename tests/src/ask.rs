//! Sends requests to a manager's HTTP service, without a socket.

use std::net::SocketAddr;

use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use tower::{Service, ServiceExt};
use watchkeeper::manager::{HttpService, http::Peer};

/// An answer, as text.
#[derive(Clone, Debug)]
pub struct Told {
    /// Whether it is good.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its text.
    pub body: String,
}

impl Told {
    /// Returns a header; empty if it is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Reads the body as JSON.
    ///
    /// # Panics
    /// If it is not JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).expect("it is JSON")
    }
}

/// Sends a request from this machine.
pub async fn ask(service: &HttpService, path: &str) -> Told {
    ask_as(service, path, Some(([127, 0, 0, 1], 40_000).into()), &[("host", "localhost:8080")]).await
}

/// Sends a request with headers.
///
/// # Panics
/// If the path is invalid.
pub async fn ask_as(
    service: &HttpService,
    path: &str,
    peer: Option<SocketAddr>,
    headers: &[(&str, &str)],
) -> Told {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut request = request.body(()).expect("a path");
    if let Some(peer) = peer {
        request.extensions_mut().insert(Peer(peer));
    }
    let mut service = service.clone();
    let ready = ServiceExt::<Request<()>>::ready(&mut service).await;
    let answer = ready.unwrap_or_else(|never| match never {}).call(request).await;
    let (head, body) = answer.unwrap_or_else(|never| match never {}).into_parts();
    let bytes = body.collect().await.unwrap_or_else(|never| match never {}).to_bytes();
    let body = String::from_utf8(bytes.to_vec()).expect("it is text");
    Told { status: head.status, headers: head.headers, body }
}
