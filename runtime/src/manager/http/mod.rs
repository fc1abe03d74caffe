//! The HTTP side of a manager: probes, metrics, and a page that says why.
//!
//! | Path | Answers |
//! |---|---|
//! | `/healthz` | 200 while the process is fit to go on, 503 once it had better be started anew |
//! | `/readyz` | 200 once every cache has synced, else 503; names each that has not |
//! | `/metrics` | all metrics, as OpenMetrics text |
//! | `/debug` | a page for people, and the same as JSON (`?format=json`); `?key=shop/a` says why an object is not reconciled |
//!
//! Why a check fails, and since when, both probes say to those only who may see `/debug`: errors name objects, users and
//! servers. All others get its name. The log says why too.
//!
//! Probes take `?verbose`, `?exclude=NAME`, and the name of one check as a further part of the path, as those of
//! Kubernetes do. All paths take `GET` and `HEAD`.
//!
//! # What a client can't do
//!
//! Connections are bounded in number, heads in size and time, requests and connections in time. Where another connection
//! is one too many, one is closed: of the address that holds the most, the one whose last request is the longest ago.
//! So neither slow nor many clients keep a probe from its answer. What keeps it is a runtime whose threads are blocked,
//! and that is what a liveness probe is for.
//!
//! With [`Http::tls`] the same bounds hold: a TLS handshake takes up a connection, and may take as long as a head.

mod settings;
mod origin;
mod table;
mod desk;
mod access;
mod answers;
mod page;
mod service;
#[cfg(any(feature = "ring", feature = "aws-lc-rs"))]
mod certificates;
mod tls;
mod server;

#[doc(hidden)]
pub use origin::Peer;
pub use service::HttpService;
pub use settings::Http;

pub(super) use server::{Bound, Serving};
pub(super) use settings::IN_A_POD;
