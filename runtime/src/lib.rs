//! A Kubernetes controller runtime: shared informers, an honest work queue, controllers.
//!
//! Modules stand in the order in which data flows, and import only what stands above them:
//!
//! ```text
//! bytes ─▶ list_watch ─▶ reflector ─▶ delta_fifo ─▶ store ─▶ informer ─▶ workqueue ─▶ controller
//!          WatchEvent    ReflectorStore  Delta      Indexer  EventHandler  ObjectKey    Reconciler
//!                                                   Lister                    ▲            │ Action
//!                                                                             └────────────┘
//! ```

// vocabulary
pub mod object;
mod key_list;
pub mod backoff;
pub mod clock;
pub mod conditions;
pub mod metrics;
// fetch
pub mod list_watch;
pub mod reflector;
// cache
pub mod delta_fifo;
pub mod store;
pub mod informer;
// work
pub mod workqueue;
pub mod writes;
pub mod controller;
// process
pub mod error;
pub mod manager;

#[doc(hidden)]
pub mod __private;
pub mod prelude;

pub use controller::{Action, Cleanup, Context, Controller, Panics, Reconciler, Terminal};
pub use error::Error;
pub use informer::{SharedInformer, SharedInformerFactory, Watched};
pub use manager::{Manager, Running};
pub use object::{Object, ObjectKey};
pub use store::Lister;
pub use watchkeeper_macros::Informer;
pub use workqueue::{RateLimit, WorkQueue};
pub use writes::WriteError;

// What the public types are made of: use these versions.
pub use {k8s_openapi, kube};
