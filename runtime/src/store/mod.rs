//! Keeps what was read, in immutable snapshots: one [`Indexer`] writes, any number of [`Lister`]s read.
//!
//! A read works on the snapshot that was current when it began: readers never block the writer, the writer never
//! blocks readers, and one `list` sees one moment. Objects, indexes, marks of unreadable objects and versions
//! change together, in one published snapshot. A write changes a second copy of the tables, which is published then.

mod cow_map;
mod selector;
mod decoded;
mod cached_object;
mod index;
mod snapshot;
mod spare;
mod objects;
mod reads;
mod lister;
mod indexer;
mod reflected;

#[cfg(test)]
mod tests;

#[doc(hidden)]
pub use cached_object::CachedObject;
#[doc(hidden)]
pub use index::DuplicateIndex;
pub use index::{IndexDefinition, IndexValue};
pub use indexer::Indexer;
#[doc(hidden)]
pub use lister::VersionNotReached;
pub use lister::{Lister, Lookup, NamespaceLister};
#[doc(hidden)]
pub use objects::Iter;
pub use objects::Objects;
pub use reflected::Reflected;
pub use selector::{FieldSelector, InvalidSelector, Selector};
#[doc(hidden)]
pub use snapshot::WriteBatch;

pub(crate) use cached_object::StoredType;
pub(crate) use index::ObjectIndex;
pub(crate) use lister::AnyLister;
pub(crate) use reads::{PickCheck, ReadAspect, ReadPart, ReadSet, ReadTracker};
