//! The HTTP side of a manager: probes, metrics, and a page that says why.
//!
//! | Path | Answers |
//! |---|---|
//! | `/healthz` | 200 while the process works, 503 if it should be restarted |
//! | `/readyz` | 200 if caches have synced, controllers have not stopped, and all added checks pass; else 503 |
//! | `/metrics` | all metrics, as OpenMetrics text |
//! | `/debug` | a page for people, and the same as JSON (`?format=json`); `?key=shop/a` says why an object is not reconciled |
//! | `/debug/recording` | what the [flight recorder](crate::FlightRecorder) keeps; 404 if there is none |
//!
//! Both probes say why a check fails, and since when, only to clients that may see `/debug`: errors name objects, users
//! and servers. All others get the name of the check. The log also says why.
//!
//! Probes accept `?verbose`, `?exclude=NAME`, and the name of one check as a further part of the path, like those of
//! Kubernetes. All paths accept `GET` and `HEAD`.
//!
//! # What a client can't do
//!
//! The number of connections is limited, and so are the size and time of a request's head and the time of requests and
//! connections. If one connection too many comes, the one that has been inactive for longest is closed. So neither slow
//! nor many clients keep a probe from its answer. Only a runtime whose threads are blocked does, and a liveness probe is
//! there to find that.
//!
//! The same limits hold with [`Http::tls`]: a TLS handshake counts as a connection, and may take as long as a head.

mod settings;
mod access;
mod page;
mod service;
#[cfg(any(feature = "ring", feature = "aws-lc-rs"))]
mod tls;
mod server;

pub use service::HttpService;
#[doc(hidden)]
pub use service::Peer;
pub use settings::Http;

#[cfg(feature = "webhooks")]
pub(super) use server::PortLimits;
pub(super) use server::{Bound, Serving};
pub(super) use settings::IN_A_POD;

/// Stands in for TLS if it is not built in.
#[cfg(not(any(feature = "ring", feature = "aws-lc-rs")))]
mod tls {
    use futures::future::BoxFuture;

    use super::settings::{TlsFiles, Unusable};

    #[derive(Clone)]
    pub(super) enum Tls {}

    impl Tls {
        pub(super) async fn accept<S>(&self, _: S) -> std::io::Result<S> {
            match *self {}
        }
    }

    pub(super) fn load(_: &TlsFiles) -> Result<(Tls, BoxFuture<'static, ()>), Unusable> {
        Err((
            "TLS is not built in: give watchkeeper the cargo feature `ring` or `aws-lc-rs`".to_owned(),
            None,
        ))
    }
}
