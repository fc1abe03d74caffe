//! From keys in a queue to runs of a reconciler.
//!
//! A [`Controller`] names what feeds it: the reconciled kind, the kinds it [`owns`](Controller::owns) and
//! [`watches`](Controller::watches), other [sources](Controller::source). Every change of these, as the informers
//! apply it, is mapped to keys; a key's own writes enqueue nothing; foreign changes do, unless a predicate leaves them out.
//! N workers take keys from the queue, whose gate is the controller's rate limit: **over any window of length w, the user's code (`reconcile`, `cleanup`
//! and each `deleted`) is started at most burst + rate × w times, whatever caused it**. No two runs of one key overlap. A
//! panic is an error of its run.
//!
//! Not promised: that every intermediate state is seen (runs look at the present), nor any order between keys.
//!
//! What misbehaves has a defined end: a reconciler that never returns keeps its worker, and its key, until
//! [`deadline`](Controller::deadline) or the grace period of a stop ends it; what it spawned and forgot is not
//! waited for (but a leader keeps its Lease for as long as that holds a clone of its [`Context`], within the grace
//! period), and its panics are not contained; a delay of [`Duration::MAX`] means until
//! something changes.
//!
//! [`Duration::MAX`]: std::time::Duration::MAX

mod action;
mod leftovers;
mod reconciler;
mod predicate;
mod patience;
mod watch;
mod enqueue;
mod reads;
mod context;
mod stream_source;
mod error;
mod failure;
mod settings;
mod recent;
mod report;
mod term;
mod waits;
mod trace;
mod sources;
mod core;
mod run;
mod worker;
mod doubts;
mod share;
mod running;
mod plan;
mod kube_rs;
mod builder;

#[cfg(test)]
mod tests;

pub(crate) use self::core::ControllerCore;
pub use crate::keys::{LastError, Reason, Why};
pub use action::{Action, Cleanup, Terminal};
pub use builder::Controller;
pub use context::Context;
pub use error::ControllerError;
pub use failure::Panics;
pub(crate) use leftovers::Leftovers;
pub(crate) use plan::{ControllerEnv, Plan};
pub use predicate::Predicate;
#[cfg(feature = "http")]
pub(crate) use recent::RunReport;
#[doc(hidden)]
pub use reconciler::FromFn;
pub use reconciler::Reconciler;
pub(crate) use report::{ControllerPhase, ControllerReport, KeyPlace};
#[cfg(feature = "http")]
pub(crate) use report::{KeyGroup, KeyLine, QueueDepths};
pub use report::{KeyReport, KeyReports};
pub(crate) use running::RunningController;
pub(crate) use sources::CachePart;
pub(crate) use term::{Stop, Term, TermHold, Terms};
pub(crate) use trace::FindTraceId;
pub(crate) use waits::Waits;
pub use watch::{Cluster, Watch, owners_of};
