//! Loading: parses the bytes of a data file, completely or not at all.

use std::path::Path;

use serde_json::Value;

use super::entry::Entry;
use super::error::{DamagedPart, DataError};
use super::frame::{FoundFrame, FrameKind, read};
use crate::object;

/// The first line of a file, but for the format's number.
const TITLE: &str = "watchkeeper-apiserver data ";

/// The format that is read and written.
const FORMAT: u32 = 1;

/// Returns the first line of a file.
pub(super) fn title() -> String {
    format!("{TITLE}{FORMAT}\n")
}

/// An entry and its offset.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Line {
    /// The offset of its record, in bytes from the start of the file.
    offset: u64,
    /// The number of its record, the first is 1.
    record: u64,
    /// The part of the file that it belongs to.
    place: DamagedPart,
    /// The entry.
    pub(crate) entry: Entry<'static>,
}

impl Line {
    /// Takes the entry out, and gives how to say that it doesn't fit.
    pub(crate) fn open(self, path: &Path) -> (Entry<'static>, impl Fn(String) -> DataError + '_) {
        let Self { offset, record, place, entry } = self;
        (entry, move |why| DataError::Damaged { path: path.to_owned(), offset, record, place, why })
    }
}

/// The content of a data file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Loaded {
    /// The version of the snapshot.
    pub(crate) version: u64,
    /// How often a server was started on the file.
    pub(crate) started: u64,
    /// The snapshot's objects and facts.
    pub(crate) snapshot: Vec<Line>,
    /// The changes after it, oldest first.
    pub(crate) log: Vec<Line>,
    /// The length of the snapshot, in bytes.
    pub(super) snapshot_length: u64,
    /// The end of the last whole record, in bytes.
    pub(crate) end: u64,
    /// The bytes of an unfinished write after that.
    pub(crate) unfinished: u64,
}

/// Reads a whole file.
///
/// # Errors
/// The error and its place.
pub(super) fn load(path: &Path, bytes: &[u8]) -> Result<Loaded, DataError> {
    let start = first_line(path, bytes)?;
    let mut reader = FileReader { path, bytes, at: start, record: 0, place: DamagedPart::Snapshot };
    let mut loaded = Loaded::default();
    reader.snapshot(&mut loaded)?;
    let mut version = loaded.version;
    loop {
        match read(bytes, reader.at) {
            FoundFrame::Nothing => break,
            FoundFrame::Unfinished => {
                loaded.unfinished = (bytes.len() - reader.at) as u64;
                break;
            }
            FoundFrame::Frame(FrameKind::Log, payload) => {
                reader.record += 1;
                for line in reader.lines(&bytes[payload.clone()])? {
                    reader.follows(&line.entry, &mut version)?;
                    match line.entry {
                        Entry::Started(times) => loaded.started = times,
                        _ => loaded.log.push(line),
                    }
                }
                reader.at = payload.end;
            }
            FoundFrame::Frame(..) => return Err(reader.next_damaged("part of a second snapshot")),
            FoundFrame::Damage(why) => return Err(reader.next_damaged(why)),
        }
    }
    loaded.end = reader.at as u64;
    Ok(loaded)
}

fn first_line(path: &Path, bytes: &[u8]) -> Result<usize, DataError> {
    let line = bytes.iter().take(64).position(|byte| *byte == b'\n');
    let line = line.and_then(|end| std::str::from_utf8(&bytes[..end]).ok());
    let found = line.and_then(|line| line.strip_prefix(TITLE));
    match found {
        None => Err(DataError::NotData { path: path.to_owned() }),
        Some(found) if found == FORMAT.to_string() => Ok(TITLE.len() + found.len() + 1),
        Some(found) => {
            Err(DataError::Format { path: path.to_owned(), found: found.to_owned(), known: FORMAT })
        }
    }
}

struct FileReader<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    at: usize,
    record: u64,
    place: DamagedPart,
}

impl FileReader<'_> {
    /// Reads the snapshot; it was put in place whole, so no part of it may be missing.
    fn snapshot(&mut self, loaded: &mut Loaded) -> Result<(), DataError> {
        loop {
            let (kind, payload) = match read(self.bytes, self.at) {
                FoundFrame::Frame(kind, payload) => (kind, payload),
                FoundFrame::Damage(why) => return Err(self.next_damaged(why)),
                FoundFrame::Nothing | FoundFrame::Unfinished => {
                    return Err(self.next_damaged("the file ends inside of its snapshot"));
                }
            };
            self.record += 1;
            let lines = self.lines(&self.bytes[payload.clone()])?;
            match kind {
                FrameKind::Snapshot => loaded.snapshot.extend(lines),
                FrameKind::Log => return Err(self.damaged("a change inside of the snapshot")),
                FrameKind::End => {
                    let [Line { entry: Entry::End { version, started, entries }, .. }] = lines[..] else {
                        return Err(self.damaged("a snapshot's end that says something else"));
                    };
                    if entries != loaded.snapshot.len() as u64 {
                        let there = loaded.snapshot.len();
                        return Err(self.damaged(format!("{entries} entries are due, and {there} are there")));
                    }
                    (loaded.version, loaded.started) = (version, started);
                    self.at = payload.end;
                    self.place = DamagedPart::Log;
                    loaded.snapshot_length = self.at as u64;
                    return Ok(());
                }
            }
            self.at = payload.end;
        }
    }

    fn lines(&self, payload: &[u8]) -> Result<Vec<Line>, DataError> {
        let lines = payload.split_inclusive(|byte| *byte == b'\n');
        let parsed = lines.map(|line| {
            let entry = serde_json::from_slice(line)
                .map_err(|error| self.damaged(format!("a line is not a valid entry: {error}")))?;
            Ok(Line { offset: self.at as u64, record: self.record, place: self.place, entry })
        });
        parsed.collect()
    }

    /// Checks that a change is the next one: each takes one version.
    fn follows(&self, entry: &Entry<'_>, version: &mut u64) -> Result<(), DataError> {
        let found = match entry {
            Entry::Put { object, .. } => version_of(object).unwrap_or(0),
            Entry::Delete { version, .. } => *version,
            Entry::End { .. } => return Err(self.damaged("the end of a snapshot among changes")),
            Entry::Compacted(_) | Entry::Fact(_) | Entry::Started(_) => return Ok(()),
        };
        *version += 1;
        if found == *version {
            return Ok(());
        }
        Err(self.damaged(format!("version {version} is due, and {found} is there")))
    }

    fn damaged(&self, why: impl Into<String>) -> DataError {
        DataError::Damaged {
            path: self.path.to_owned(),
            offset: self.at as u64,
            record: self.record,
            place: self.place,
            why: why.into(),
        }
    }

    fn next_damaged(&mut self, why: &'static str) -> DataError {
        self.record += 1;
        self.damaged(why)
    }
}

/// Reads the version of an object.
pub(super) fn version_of(object: &Value) -> Option<u64> {
    object::text(object, "resourceVersion").parse().ok()
}
