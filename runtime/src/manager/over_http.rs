//! HTTP, as a manager's users ask for it.

use std::net::SocketAddr;

use super::{Http, HttpService, Manager, Running};

impl Manager {
    /// Serves `/healthz`, `/readyz`, `/metrics` and `/debug` at an address; see [`manager::http`](super::http).
    ///
    /// In a pod, as [`infer`](Self::infer) finds out, that is `:8080` unless said otherwise here; elsewhere nothing is
    /// served unless asked for. `/debug` is shown to this machine alone, unless [`Http`] says otherwise. The port is
    /// taken first of all at the start, and given up last of all at the stop; one that is in use, or an address
    /// that is none, ends the start with [`Error::Http`](crate::Error::Http).
    ///
    /// ```no_run
    /// # use watchkeeper::prelude::*;
    /// # async fn run() -> Result<(), watchkeeper::Error> {
    /// Manager::infer().await?.http("0.0.0.0:8080").run().await
    /// # }
    /// ```
    pub fn http(mut self, http: impl Into<Http>) -> Self {
        self.serve.http = Some(http.into());
        self
    }

    /// Returns what answers the same, for a server of the program's own.
    ///
    /// It keeps to what [`http`](Self::http) was given so far; [`Http::off`] serves nothing else.
    pub fn http_service(&self) -> HttpService {
        self.serve.service(&self.inspector, &self.metrics, &self.direct)
    }
}

impl Running {
    /// Returns where HTTP is served, if it is.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.served.serving.as_ref().map(|serving| serving.address)
    }

    /// Returns what answers the same, for a server of the program's own; `None` where nothing was started.
    pub fn http_service(&self) -> Option<HttpService> {
        self.served.service.clone()
    }
}
