//! Keeps one cache of each kind, and notifies handlers and observers of its changes.
//!
//! ```text
//! Reflector ─▶ InformerSink ─▶ DeltaFifo ─▶ Processor ─▶ Indexer ─▶ listers
//! (a task each)          transforms   (one task)  ├▶ observers, inline (controllers)
//!                                                 └▶ backlogs ─▶ handlers (a task each)
//! ```
//!
//! A [`SharedInformer`] is one list and one watch, whatever the number of its users; a [`SharedInformerFactory`]
//! hands out the same one for the same question. What is watched is said by a type that is [`Watched`].

mod change;
mod watched;
mod apply;
mod resync;
mod backlog;
mod handler;
mod registration;
mod sync_state;
mod report;
mod listener;
mod reliability;
mod reflector_task;
mod core;
mod current;
mod processor;
mod shared;
mod query;
mod factory;
mod assembly;

#[cfg(test)]
mod tests;

pub use assembly::Assembly;
#[doc(hidden)]
pub use assembly::AssemblyError;
pub use change::{AddOrigin, Deleted};
#[doc(hidden)]
pub use change::{CacheChange, Gone, Progress, ProgressVia, Via};
pub(crate) use current::TermStart;
pub use factory::{InformerBuilder, SharedInformerFactory};
pub use handler::EventHandler;
#[doc(hidden)]
pub use handler::Observer;
#[doc(hidden)]
pub use query::NameRefused;
pub use registration::Registration;
#[doc(hidden)]
pub use registration::{HandlerBacklog, HandlerRemoved, Registration as ObserverRegistration};
pub(crate) use report::InformerReport;
pub(crate) use shared::AnyInformer;
pub use shared::{HandlerBuilder, SharedInformer};
pub(crate) use sync_state::FailureCause;
pub(crate) use sync_state::name_of;
pub use sync_state::{FetchFailure, NotSynced, SyncPhase, SyncState};
#[doc(hidden)]
pub use watched::Marker;
pub use watched::{Compact, Dynamic, External, Metadata, Watched};
