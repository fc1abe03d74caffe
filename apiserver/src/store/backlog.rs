//! The backlog: what is written and not on disk yet, for servers that keep their state.

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

/// How far what is on disk has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Durable {
    /// The newest version that is on disk.
    pub(crate) version: u64,
    /// Counts how often versions were taken back; what was open before shows what never was.
    pub(crate) era: u64,
}

/// What a store has to be kept.
#[derive(Debug)]
pub(super) struct Backlog {
    pub(super) entries: Vec<Unsaved>,
    /// Whether the entries say too little: versions went back.
    pub(super) whole: bool,
    pub(super) durable: watch::Sender<Durable>,
}

/// What is to be written next.
#[derive(Debug)]
pub(crate) struct Batch {
    /// What came since the last one, oldest first.
    pub(crate) entries: Vec<Unsaved>,
    /// Whether only a snapshot says it all.
    pub(crate) whole: bool,
    /// The newest version in it.
    pub(crate) version: u64,
    /// How often versions had been taken back when it was taken.
    pub(super) era: u64,
}
