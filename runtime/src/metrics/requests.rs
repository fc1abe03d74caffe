//! The metrics of clients' requests, under the name of client-go.

use std::sync::Arc;

use http::{Method, StatusCode};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use super::registered::added;

/// The code of a request without a response, as client-go writes it.
const NO_ANSWER: &str = "<error>";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    code: String,
    host: Arc<str>,
    method: &'static str,
}

/// The metrics of clients.
#[derive(Clone, Debug)]
pub(crate) struct RequestMetrics {
    total: Family<RequestLabels, Counter>,
}

impl RequestMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let help = "Requests to the API server by status code, method and host";
        Self { total: added(registry, "rest_client_requests", help) }
    }

    /// Counts a request. The host is `None` if the client does not say it, and the code without a response.
    pub(crate) fn ended(&self, method: &Method, host: Option<Arc<str>>, code: Option<StatusCode>) {
        let code = code.map_or_else(|| NO_ANSWER.to_owned(), |code| code.as_str().to_owned());
        let of =
            RequestLabels { code, host: host.unwrap_or_else(|| "unknown".into()), method: known(method) };
        self.total.get_or_create(&of).inc();
    }
}

/// Returns the method, or `other` for one that HTTP does not define, since a program may send any.
fn known(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}
