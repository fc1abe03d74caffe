//! Kubernetes controllers in Rust: shared informers with typed indexes, a rate-limited work queue, a reconcile loop.
//!
//! An operator is a type that implements [`Reconciler`], a [`Controller`] that says what it watches, and a [`Manager`]
//! that runs it:
//!
//! ```no_run
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use watchkeeper::prelude::*;
//!
//! /// A greeting: one ConfigMap per object.
//! #[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
//! #[kube(group = "example.dev", version = "v1", kind = "Greeting", namespaced)]
//! struct GreetingSpec {
//!     #[informer(index)] // GreetingLister::by_language("en")
//!     language: String,
//! }
//!
//! struct Greetings;
//!
//! impl Reconciler<Greeting> for Greetings {
//!     type Error = watchkeeper::Error;
//!
//!     async fn reconcile(&self, greeting: Arc<Greeting>, cx: &Context<Greeting>) -> Result<Action, Self::Error> {
//!         let mut child = ConfigMap::default();
//!         child.metadata.name = Some(greeting.name_any());
//!         child.data = Some([("language".to_owned(), greeting.spec.language.clone())].into());
//!         cx.apply(child).await?; // server-side apply, owned by `greeting`; no request if nothing would change
//!         Ok(Action::await_change())
//!     }
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), watchkeeper::Error> {
//!     let controller = Controller::new(Greetings).owns::<ConfigMap>().workers(8);
//!     Manager::infer().await?.controller(controller).run().await
//! }
//! ```
//!
//! # Where to look
//!
//! | You want to | Use |
//! |---|---|
//! | write an operator | [`Reconciler`], [`Context`], [`Action`], [`Controller`], [`Manager`]; all are in the [`prelude`] |
//! | find cached objects by a field | `#[derive(Informer)]` with `#[informer(index)]`, then [`Lister`] |
//! | watch objects without a controller | [`SharedInformerFactory`], [`SharedInformer`], [`EventHandler`](informer::EventHandler) |
//! | watch a kind that is known only at run time, or only its metadata | [`Dynamic`](informer::Dynamic), [`Metadata`](informer::Metadata), [`Compact`](informer::Compact) |
//! | use the queue for your own work | [`WorkQueue`], [`RateLimit`], the rate limiters in [`workqueue`] |
//! | list and watch something that is not Kubernetes | [`ListerWatcher`](list_watch::ListerWatcher), [`Assembly`](informer::Assembly) |
//! | know why an object is not reconciled | [`Running::why`], [`Inspector`](manager::Inspector) |
//! | answer probes, serve metrics and a debug page | [`Manager::http`]; [`HttpService`](manager::HttpService) for your own server |
//! | scrape metrics, or add some | [`Metrics`](metrics::Metrics), [`Manager::registry`] |
//! | see a run as a trace | [`Manager::trace_id`] |
//!
//! # Cargo features
//!
//! | Feature | Default | Adds |
//! |---|---|---|
//! | `http` | yes | [`Manager::http`]: probes, metrics and the debug page |
//! | `ring` | yes | TLS by rustls with ring |
//! | `aws-lc-rs` | no | TLS by rustls with aws-lc; used rather than `ring` if both are on |
//! | `openssl` | no | TLS by OpenSSL, for the client; used only if `ring` and `aws-lc-rs` are off |
//! | `webhooks` | no | webhooks, policies, certificates; turns `http` on; needs `ring` or `aws-lc-rs` |
//! | `cli` | no | a program with commands and logging; turns `webhooks` on |
//!
//! # Versions
//!
//! It needs Rust 1.89 or later, kube 5 and k8s-openapi 0.29. kube is part of the API. Your program chooses the version of
//! Kubernetes for its types by a feature of k8s-openapi, such as `v1_36`.
//!
//! # Read on
//!
//! The book has [a tutorial, how-to guides, explanations and reference][book]. Come from [kube-rs] or [controller-runtime];
//! read [what it does not do, and why][limits]; look up [errors and log lines][errors].
//!
//! [book]: https://github.com/watchkeeper/watchkeeper/blob/main/book/src/introduction.md
//! [kube-rs]: https://github.com/watchkeeper/watchkeeper/blob/main/book/src/coming-from/kube-rs.md
//! [controller-runtime]: https://github.com/watchkeeper/watchkeeper/blob/main/book/src/coming-from/controller-runtime.md
//! [limits]: https://github.com/watchkeeper/watchkeeper/blob/main/book/src/explain/limits.md
//! [errors]: https://github.com/watchkeeper/watchkeeper/blob/main/book/src/reference/errors.md

// Declared in the order in which data flows. A module imports only modules that are declared above it.

// vocabulary
#[macro_use]
mod derived;
mod plain;
pub mod object;
mod api_request;
mod chain;
mod users_code;
#[cfg(test)]
mod counted;
pub mod backoff;
pub mod clock;
pub mod conditions;
pub mod metrics;
mod flight_recorder;
// replicas
pub mod leader_election;
pub mod shards;
// fetch
pub mod list_watch;
pub mod reflector;
// cache
pub mod delta_fifo;
pub mod store;
pub mod informer;
// work
pub mod workqueue;
mod keys;
pub mod writes;
pub mod controller;
#[cfg_attr(not(feature = "webhooks"), doc(hidden))]
pub mod versions;
// process
pub mod error;
#[cfg(feature = "webhooks")]
pub mod webhook;
pub mod manager;
#[cfg(feature = "cli")]
mod cli;

#[doc(hidden)]
pub mod __private;
pub mod prelude;

#[cfg(feature = "cli")]
pub use cli::{Program, cli};
pub use controller::{Action, Cleanup, Context, Controller, Panics, Reconciler, Terminal};
pub use error::Error;
pub use flight_recorder::FlightRecorder;
pub use informer::{SharedInformer, SharedInformerFactory, Watched};
pub use leader_election::LeaderElection;
pub use manager::{Manager, Running};
pub use object::{Object, ObjectKey};
pub use shards::Sharding;
pub use store::Lister;
pub use watchkeeper_macros::Informer;
pub use workqueue::{RateLimit, WorkQueue};
pub use writes::WriteError;

// The public types are made of types of these crates, so use these versions.
pub use {k8s_openapi, kube, prometheus_client};
