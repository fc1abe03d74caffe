//! What is wrong with a data file, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

/// Why a data file can't be used, or not be written.
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
        /// What was tried, e.g. `write`.
        what: &'static str,
        /// The file it was tried on.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is something else.
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
    /// The file was changed or cut short by something else than an unfinished write.
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
        /// Which part of the file the record belongs to.
        place: DamagedPart,
        /// What does not fit.
        why: String,
    },
    /// An earlier sync failed, so what is on disk is not known.
    #[error(
        "cannot write {}: an earlier sync failed ({earlier}), so what is on disk is not known; restart the server",
        path.display()
    )]
    Unknown {
        /// The data file.
        path: PathBuf,
        /// What the system said then.
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
    /// The snapshot: without its end nothing can be loaded.
    Snapshot,
    /// The changes after it: those before the damage can be kept.
    Log,
}

/// Says how to go on with what is before a damaged record.
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
    /// Makes an error of what the system said.
    pub(super) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }
}
