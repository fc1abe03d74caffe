//! The file itself: locked, appended to, replaced.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use super::entry::{Entry, Image, lines};
use super::error::DataError;
use super::frame::{self, FrameKind};
use super::load::{Loaded, load, title};

/// The most bytes of a frame's payload, but for one large entry.
const PART: usize = 4 << 20;

/// A log shorter than this is never too long, in bytes.
const SHORT: u64 = 4 << 20;

/// A data file in use; dropping it lets others have it.
#[derive(Debug)]
pub(crate) struct DataFile {
    /// The path of the file itself: a link to it is followed once, at the start.
    path: PathBuf,
    /// Locked as long as it is open, also if it was opened by a symbolic link.
    file: File,
    /// The end of the last synced record.
    length: u64,
    /// The length at which a snapshot is needed.
    limit: u64,
    /// The error of a failed sync.
    unknown: Option<String>,
}

/// The content at opening.
#[derive(Debug)]
pub(crate) enum Opened {
    /// No file, or an empty one: [`DataFile::replace`] comes first.
    New(DataFile),
    /// A file with data.
    Old(DataFile, Loaded),
}

impl DataFile {
    /// Opens a file, cutting off an unfinished write; one that is not there is made.
    ///
    /// # Errors
    /// The file is in use, damaged, of another format or can't be opened; it has not changed.
    pub(crate) fn open(path: &Path) -> Result<Opened, DataError> {
        let (mut file, path) = locked(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(DataError::io("read", &path))?;
        if bytes.is_empty() {
            return Ok(Opened::New(Self { path, file, length: 0, limit: 0, unknown: None }));
        }
        let loaded = load(&path, &bytes)?;
        let (length, limit) = (loaded.end, twice(loaded.snapshot_length));
        let mut old = Self { path, file, length, limit, unknown: None };
        if loaded.unfinished > 0 {
            tracing::warn!(
                path = %old.path.display(), at = loaded.end, bytes = loaded.unfinished,
                "the last record is incomplete and no client has seen it: it is cut off"
            );
            let cut = old.file.set_len(loaded.end).and_then(|()| old.file.sync_all());
            cut.map_err(DataError::io("cut the unfinished record off", &old.path))?;
        }
        old.file.seek(SeekFrom::Start(old.length)).map_err(DataError::io("read", &old.path))?;
        Ok(Opened::Old(old, loaded))
    }

    /// Makes every write fail, as if the disk were removed.
    #[cfg(test)]
    pub(crate) fn take_away_writing(&mut self) {
        self.file = File::open(&self.path).expect("it can be read");
    }

    /// Returns the path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the log is longer than what a snapshot would take.
    pub(crate) fn is_outgrown(&self) -> bool {
        self.length > self.limit
    }

    /// Writes entries; when it returns, they are on disk.
    ///
    /// # Errors
    /// The entries are not stored, and the file ends where it did. After a failed sync, all later writes fail.
    pub(crate) fn append<'a>(
        &mut self,
        entries: impl IntoIterator<Item = Entry<'a>>,
    ) -> Result<(), DataError> {
        if let Some(earlier) = self.unknown.clone() {
            return Err(DataError::Unknown { path: self.path.clone(), earlier });
        }
        let before = self.length;
        let mut frame = Vec::new();
        for part in lines(entries, PART) {
            frame.clear();
            frame::write(&mut frame, FrameKind::Log, &part);
            if let Err(error) = self.append_frame(&frame) {
                self.go_back(before);
                return Err(error);
            }
        }
        Ok(())
    }

    fn append_frame(&mut self, frame: &[u8]) -> Result<(), DataError> {
        self.file.write_all(frame).map_err(DataError::io("write", &self.path))?;
        if let Err(source) = self.file.sync_data() {
            // The system may now consider the pages clean, so another sync would prove nothing.
            self.unknown = Some(source.to_string());
            return Err(DataError::Io { what: "sync", path: self.path.clone(), source });
        }
        self.length += frame.len() as u64;
        Ok(())
    }

    /// Removes everything from an offset on.
    fn go_back(&mut self, length: u64) {
        let back = self.file.set_len(length).and_then(|()| self.file.seek(SeekFrom::Start(length)));
        if let Err(error) = back {
            self.unknown.get_or_insert_with(|| error.to_string());
        }
        self.length = length;
    }

    /// Replaces the content by a snapshot; when it returns, the snapshot is on disk.
    ///
    /// # Errors
    /// The file is as it was.
    pub(crate) fn replace(&mut self, image: &Image) -> Result<(), DataError> {
        if let Some(earlier) = self.unknown.clone() {
            return Err(DataError::Unknown { path: self.path.clone(), earlier });
        }
        let new = sibling(&self.path, ".new");
        let written =
            write_snapshot(&new, image).map_err(DataError::io("write", &new)).and_then(|(file, length)| {
                std::fs::rename(&new, &self.path).map_err(DataError::io("replace", &self.path))?;
                Ok((file, length))
            });
        let (file, length) = match written {
            Ok(written) => written,
            Err(error) => {
                // The next snapshot overwrites it.
                let _left = std::fs::remove_file(&new);
                self.limit = twice(self.length);
                return Err(error);
            }
        };
        (self.file, self.length, self.limit) = (file, length, twice(length));
        sync_folder(&self.path)
            .inspect_err(|error| self.unknown = Some(error.to_string()))
            .map_err(DataError::io("sync the folder of", &self.path))
    }
}

/// Returns the length at which what a length was once has doubled; short logs may grow at first.
fn twice(length: u64) -> u64 {
    length + length.max(SHORT)
}

fn write_snapshot(path: &Path, image: &Image) -> io::Result<(File, u64)> {
    // What a crash has left there is of no use, and a link that somebody else has put there is not followed.
    let _none = std::fs::remove_file(path);
    let mut file = options().create_new(true).open(path)?;
    // It is locked before anyone can open it by its new name.
    file.try_lock()?;
    let mut bytes = title().into_bytes();
    let mut length = 0;
    for part in lines(image.entries(), PART) {
        frame::write(&mut bytes, FrameKind::Snapshot, &part);
        file.write_all(&bytes)?;
        length += bytes.len() as u64;
        bytes.clear();
    }
    for part in lines([image.end()], PART) {
        frame::write(&mut bytes, FrameKind::End, &part);
    }
    file.write_all(&bytes)?;
    file.sync_all()?;
    Ok((file, length + bytes.len() as u64))
}

/// Makes a rename last.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// Names a file in the same folder as another.
fn sibling(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Returns how files with data are opened: for reading and writing, by their owner alone.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Opens a file and locks it; creates it if it is missing. Returns its path with all links resolved.
///
/// The lock is on the file itself and not on a name, so a symbolic link is safe. A hard link is not: a snapshot is
/// renamed over the file, and the link still leads to the old one.
fn locked(path: &Path) -> Result<(File, PathBuf), DataError> {
    loop {
        let file = options().create(true).truncate(false).open(path).map_err(DataError::io("open", path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(DataError::InUse { path: path.to_owned() }),
            Err(TryLockError::Error(source)) => {
                return Err(DataError::Io { what: "lock", path: path.to_owned(), source });
            }
        }
        let real = std::fs::canonicalize(path).map_err(DataError::io("open", path))?;
        // A server that was about to stop may have put a snapshot in its place.
        if is_at(&file, &real).map_err(DataError::io("open", path))? {
            return Ok((file, real));
        }
    }
}

/// Returns whether a file is the one that a path leads to.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt as _;

    let (this, that) = (file.metadata()?, std::fs::metadata(path)?);
    Ok((this.dev(), this.ino()) == (that.dev(), that.ino()))
}

/// Returns whether a file is the one that a path leads to: an open file can't be replaced.
#[cfg(not(unix))]
fn is_at(_: &File, _: &Path) -> io::Result<bool> {
    Ok(true)
}
