//! The backlog: changes that are not on disk yet, for servers that keep their state.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;

use super::change::Change;
use super::resource_id::ResourceId;

/// One thing to be kept.
#[derive(Clone, Debug)]
pub(crate) enum Unsaved {
    /// A change of an object.
    Change(ResourceId, Arc<Change>),
    /// History up to a version is forgotten.
    Compacted(u64),
    /// A fact that is not part of an object.
    Fact(Value),
}

/// The last version on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Durable {
    /// The newest version that is on disk.
    pub(crate) version: u64,
    /// Counts rollbacks; streams opened before one may have shown changes that were rolled back.
    pub(crate) era: u64,
}

/// The changes that must be saved.
#[derive(Debug)]
pub(super) struct Backlog {
    pub(super) entries: Vec<Unsaved>,
    /// Whether the entries say too little: versions went back.
    pub(super) whole: bool,
    pub(super) durable: watch::Sender<Durable>,
}

/// The next batch to write.
#[derive(Debug)]
pub(crate) struct Batch {
    /// The changes since the last batch, oldest first.
    pub(crate) entries: Vec<Unsaved>,
    /// Whether only a snapshot is complete.
    pub(crate) whole: bool,
    /// The newest version in it.
    pub(crate) version: u64,
    /// How often versions had been taken back when it was taken.
    pub(super) era: u64,
}
