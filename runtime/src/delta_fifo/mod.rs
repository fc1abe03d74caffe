//! Hands what reflectors read to the one consumer that applies it, in order and in batches.
//!
//! Producers never wait: a [`FifoSink`] is what a reflector writes to, one for each extent (a namespace, or all)
//! that a cache is made of. The consumer pops batches. The queue never asks what is cached: a whole list travels
//! as one delta, and the consumer works out what is missing from it. An object that a transform fails on travels
//! as unreadable; its original stays behind, and every resync tries it again.

mod transform;
mod hidden;
mod queue;

#[cfg(test)]
mod tests;

#[doc(hidden)]
pub use queue::Batch;
pub use queue::{DeltaFifo, FifoSink};
#[doc(hidden)]
pub use transform::{Transform, TransformOutcome, Transformed};

pub(crate) use transform::decoded;

use std::{collections::HashSet, fmt, sync::Arc};

use crate::{
    list_watch::FetchedItem,
    object::{Object, ObjectKey},
    reflector::List,
};

/// Which part of a cache a reflector fills.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Extent {
    /// All of it.
    All,
    /// One namespace.
    Namespace(Arc<str>),
}

impl Extent {
    /// Returns whether a key lies within.
    pub fn holds(&self, key: &ObjectKey) -> bool {
        match self {
            Self::All => true,
            Self::Namespace(namespace) => key.namespace() == Some(namespace),
        }
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("everywhere"),
            Self::Namespace(namespace) => write!(f, "in namespace {namespace}"),
        }
    }
}

/// One step from what was known to what is.
///
/// Added and modified are one: whether an object is new is known where it is cached, not where it is read.
#[derive(Debug)]
pub enum Delta<K> {
    /// Added or changed.
    Upserted(FetchedItem<K>),
    /// Deleted; the item is the last state.
    Deleted(FetchedItem<K>),
    /// A whole list: what it does not hold is gone.
    Replaced(List<K>),
    /// Nothing changed up to this version.
    Reached(String),
    /// Every known object is to be shown again, except those that had a delta pending when that was asked for.
    ///
    /// The last of its batch. What a list changes that was pending then is left out too: the consumer knows.
    Sync(Sync),
}

/// What a resync shows, and to whom.
#[derive(Debug)]
#[doc(hidden)]
pub struct Sync {
    /// Who asked.
    pub audience: Audience,
    pub(super) pending: HashSet<ObjectKey>,
}

impl Sync {
    /// Returns whether a key had nothing pending, and so is shown.
    pub fn shows(&self, key: &ObjectKey) -> bool {
        !self.pending.contains(key)
    }

    /// Returns the keys that had something pending, and so are not shown.
    pub fn into_pending(self) -> HashSet<ObjectKey> {
        self.pending
    }
}

/// The receivers of a resync.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[doc(hidden)]
pub enum Audience {
    /// Handlers whose own resync period is over.
    Due,
    /// Everybody.
    All,
}

/// A delta, and the extent it belongs to.
#[derive(Debug)]
pub struct DeltaEntry<K> {
    /// Where it holds.
    pub extent: Extent,
    /// What happened.
    pub delta: Delta<K>,
}

impl<K: Object> DeltaEntry<K> {
    fn key(&self) -> Option<ObjectKey> {
        match &self.delta {
            Delta::Upserted(item) | Delta::Deleted(item) => item.key(),
            Delta::Replaced(_) | Delta::Reached(_) | Delta::Sync(_) => None,
        }
    }
}
