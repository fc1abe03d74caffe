//! Everything that a controller knows of its keys.
//!
//! There is one [`KeyTable`] for each controller, under one lock: why a key is to run, what holds it back and until when,
//! its run, its own writes and what it waits for after them, its budget, its failures, deletions that are yet to be
//! handled. The work queue schedules the keys. Workers, sources, the writer, and the answer to "why does it not run?" are
//! views of the table.

mod sources;
mod reason;
mod why;
mod expectation;
mod gate;
mod budget;
mod tombstones;
mod writes;
mod record;
mod feeds;
mod read_nodes;
mod reads;
mod unsynced;
mod slots;
mod table;
mod shared;

#[cfg(test)]
mod tests;

pub(crate) use budget::{RunCost, StormLimit};
pub(crate) use expectation::{CachedState, Caches, Expectation};
pub(crate) use feeds::FeedId;
pub(crate) use gate::{Gate, ReadCache};
pub(crate) use read_nodes::ReadKind;
pub(crate) use reads::{ReadChange, ReadState, RunningReader, WokenKeys};
pub use reason::Reason;
pub(crate) use record::{HoldReason, RunActivity, RunDone};
pub(crate) use shared::Keys;
pub(crate) use slots::AdmittedSlots;
pub(crate) use sources::SourceId;
pub(crate) use table::KeyTable;
pub(crate) use tombstones::Tombstone;
pub use why::{LastError, Why};
pub(crate) use writes::AT_MOST as OWN_WRITES_AT_MOST;
pub(crate) use writes::{LastAnswer, ObjectId, OverdueWrite, StatusSeen, object_id};
