//! The errors of a data file, and their remedies.

use std::io;
use std::path::{Path, PathBuf};

/// Why a data file can't be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// Another server has the file.
    #[error("cannot use {}: another server has it open; stop that one, or choose another file", path.display())]
    InUse {
        /// The data file.
        path: PathBuf,
    },
    /// The system refused something.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// The operation, e.g. `write`.
        what: &'static str,
        /// The file it was tried on.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file has another format.
    #[error(
        "{} is not a data file of this server; choose another path, a file that is not there is made", path.display()
    )]
    NotData {
        /// The file.
        path: PathBuf,
    },
    /// The file is of a format that this server doesn't read.
    #[error(
        "{} has format {found}, and this server reads format {known}; use the server that wrote it, or another file",
        path.display()
    )]
    Format {
        /// The data file.
        path: PathBuf,
        /// The format it has.
        found: String,
        /// The format this server reads and writes.
        known: u32,
    },
    /// The file was changed or truncated by something other than an unfinished write.
    #[error(
        "{} is damaged at byte {offset}, in record {record}: {why}; nothing was loaded. Restore a copy, or move the \
         file away to begin empty{}", path.display(), remedy(path, *offset, *place)
    )]
    Damaged {
        /// The data file.
        path: PathBuf,
        /// The offset of the record, in bytes from the start of the file.
        offset: u64,
        /// The number of the record, the first is 1.
        record: u64,
        /// The part of the file with the record.
        place: DamagedPart,
        /// The mismatch.
        why: String,
    },
    /// An earlier sync failed, so the content of the disk is unknown.
    #[error(
        "cannot write {}: an earlier sync failed ({earlier}), so what is on disk is not known; restart the server",
        path.display()
    )]
    Unknown {
        /// The data file.
        path: PathBuf,
        /// The system's error at that time.
        earlier: String,
    },
    /// The server has stopped.
    #[error("cannot write {}: the server has stopped", path.display())]
    Closed {
        /// The data file.
        path: PathBuf,
    },
}

/// A part of a data file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DamagedPart {
    /// The snapshot: without its end the file can't be loaded.
    Snapshot,
    /// The changes after it: those before the damage can be kept.
    Log,
}

/// Describes how to keep the records before a damaged one.
fn remedy(path: &Path, offset: u64, place: DamagedPart) -> String {
    match place {
        DamagedPart::Snapshot => String::new(),
        DamagedPart::Log => format!(
            ", or keep what is before it, and lose all that was written later: copy the file, then \
             `truncate --size {offset} {}`",
            quoted(path)
        ),
    }
}

/// Quotes a path for a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

impl DataError {
    /// Wraps an error of the system.
    pub(super) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }
}
