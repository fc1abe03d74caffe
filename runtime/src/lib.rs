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
pub mod backoff;
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
