//! A Kubernetes API server inside the process, for examples, tests and development.
//!
//! The same core answers in memory, as a tower service behind a `kube::Client`, and over TLS on loopback for any
//! client, `kubectl` included. In memory it lives on tokio's clock alone: under paused time hours pass at once.
//!
//! ```no_run
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use watchkeeper_apiserver::{ApiServer, Fault, Verb};
//!
//! # async fn example() {
//! let server = ApiServer::in_memory().namespace("shop").start().await;
//! let client = server.client();                                     // what the code under test gets
//! server.faults().on(Verb::Watch, "configmaps").once().then(Fault::Cut);
//! server.create(&ConfigMap::default()).await;
//! server.eventually::<ConfigMap>("shop/made-by-the-code", |found| found.is_some()).await;
//! assert_eq!(server.requests().count(Verb::List, "configmaps"), 1);
//! # }
//! ```
//!
//! What a test of an operator rarely needs is behind a cargo feature; `full` turns all of them on:
//!
//! | Feature | Adds |
//! |---|---|
//! | `cel` | rules in CEL: `x-kubernetes-validations`, match conditions of webhooks |
//! | `tls` | [`ApiServer::http`]: TLS on loopback, HTTP/2, the control port; webhooks that listen on a port |
//! | `rbac` | [`Builder::rbac`]: roles and bindings decide |
//! | `persistence` | [`Builder::data`]: the state outlives the process |
//! | `tables` | lists as `kubectl get` asks for them |
//! | `openapi` | OpenAPI documents |
//! | `protobuf` | bodies in protobuf |
//! | `program` | the binary, with all of these |
//!
//! What needs a missing feature is refused with the name of the feature.
//!
//! It is not a cluster: no kubelet, no scheduler, no workload controllers. Objects are stored, watched, defaulted,
//! validated and collected; nothing runs them.

#![cfg_attr(
    not(feature = "full"),
    allow(dead_code, unused_imports, rustdoc::broken_intra_doc_links, reason = "features use the rest")
)]

mod status;

mod object;

mod limits;

mod json_error;

mod identity;

mod facts;

#[cfg_attr(not(feature = "protobuf"), path = "without/proto.rs")]
mod proto;

mod clock;

mod selector;

mod schema;

mod apply;

mod patch;

mod table;

mod store;

mod kinds;

mod route;

mod negotiate;

#[cfg(feature = "openapi")]
mod openapi;

mod session;

mod call;

mod state;

mod conversion;

mod encode;

mod read;

mod watch;

mod authz;

mod flow_control;

mod admission;

mod write;

mod gc;

mod namespaces;

mod bootstrap;

mod crd;

mod data;

mod discovery;

mod core;

pub mod faults;

mod tokens;

mod service;

#[cfg(feature = "tls")]
mod compression;

mod start_error;

#[cfg(feature = "tls")]
mod http;

#[cfg(feature = "tls")]
mod control;

pub mod kit;

mod server;

#[doc(hidden)]
pub mod inside;

pub use crate::call::WebhookService;
pub use crate::clock::Clock;
pub use crate::core::{Restart, Restored};
pub use crate::data::{DamagedPart, DataError};
pub use crate::faults::{Fault, Faults, Lag, Requests};
pub use crate::kit::Kit;
pub use crate::route::Verb;
pub use crate::server::{ApiServer, Builder, ForMemory, InMemory};
#[cfg(feature = "tls")]
pub use crate::server::{ForHttp, OverHttp};
pub use crate::start_error::StartError;
