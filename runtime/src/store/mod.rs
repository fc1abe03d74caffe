//! Keeps what was read, in immutable snapshots: one [`Indexer`] writes, any number of [`Lister`]s read.
//!
//! A read works on the snapshot that was current when it began: readers never block the writer, the writer never
//! blocks readers, and one `list` sees one moment. Objects, indexes, marks of unreadable objects and versions
//! change together, in one published snapshot. A write copies the paths that it changes, and shares the rest with earlier
//! snapshots.

mod cow_map;
mod selector;
mod label_filter;
mod decoded;
mod cached_object;
mod index;
mod snapshot;
mod objects;
mod lister;
mod indexer;
mod reflected;

#[cfg(test)]
mod tests;

pub use cached_object::CachedObject;
pub use index::{DuplicateIndex, IndexDefinition, IndexValue};
pub use indexer::{Indexer, WriteBatch};
pub(crate) use lister::Missing;
pub use lister::{Lister, Lookup, NamespaceLister, VersionNotReached};
pub use objects::{Iter, Objects};
pub use reflected::Reflected;
pub use selector::{FieldSelector, InvalidSelector, Selector};
