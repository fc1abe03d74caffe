//! The data file: state that outlives the process, as a snapshot and a log of what came after it.
//!
//! A file is a line of text that names the format, then frames: those of a snapshot, its end, and one for each group of
//! changes. Each frame has two checksums, of its head and of its payload; a payload is lines of JSON. A snapshot is
//! written to a second file and renamed over the first, so it is whole or not there. A frame of changes is written and synced
//! before the next one begins, so only the last can be unfinished: that one is cut off. Anything else that does not
//! fit is damage, and nothing is loaded.

#[cfg(feature = "persistence")]
mod entry;
mod error;
#[cfg(feature = "persistence")]
mod file;
#[cfg(feature = "persistence")]
mod frame;
#[cfg(feature = "persistence")]
mod load;

#[cfg(test)]
mod tests;

pub use error::{DamagedPart, DataError};
#[cfg(feature = "persistence")]
pub(crate) use {
    entry::{Entry, Image},
    file::{DataFile, Opened},
    load::Loaded,
};
