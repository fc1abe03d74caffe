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
pub use transform::{Transform, Transformed};

pub(crate) use transform::named;

use std::{fmt, sync::Arc};

use crate::{
    list_watch::FetchedItem,
    object::ObjectKey,
    reflector::{FetchReport, List},
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
pub enum Delta<K: ?Sized> {
    /// Added or changed.
    Upserted(FetchedItem<K>),
    /// Deleted; the item is the last state.
    Deleted(FetchedItem<K>),
    /// A whole list: what it does not hold is gone.
    Replaced(List<K>),
    /// Nothing changed up to this version.
    Reached(String),
    /// What the reflector reported after everything that comes before this.
    Reported(FetchReport),
    /// Every known object is to be shown again, except those that changed after that was asked for.
    Sync,
}
