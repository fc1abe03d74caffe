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

mod name;
mod change;
mod watched;
mod latch;
mod apply;
mod listed;
mod observer;
mod notification;
mod resync;
mod notification_queue;
mod backlog;
mod handler;
mod registration;
mod sync_state;
mod report;
mod listener;
mod reliability;
mod command;
mod reflector_task;
mod core;
mod current;
mod processor;
mod start;
mod shared;
mod query;
mod builder;
mod factory;
mod assembly;

#[cfg(test)]
mod tests;

pub use assembly::{Assembly, AssemblyError};
pub use builder::InformerBuilder;
pub use change::{AddOrigin, Change, Deleted, Gone, Progress, ProgressVia, Via};
pub(crate) use current::TermStart;
pub use factory::SharedInformerFactory;
pub use handler::EventHandler;
pub use listed::{Accepted, Listed};
pub(crate) use name::name_of;
pub use observer::Observer;
pub use query::NameRefused;
pub use registration::{HandlerBacklog, HandlerRemoved, ObserverRegistration, Registration};
pub(crate) use reliability::Comparison;
pub use report::{FailureReport, InformerReport};
pub use shared::{HandlerBuilder, SharedInformer};
pub use sync_state::{FailureCause, FetchFailure, NotSynced, SyncPhase, SyncState};
pub use watched::{Compact, Dynamic, External, Form, Marker, Metadata, TypedScope, Watched, typed_kind};
