//! Events: what a watch sends, one at a time.

use bytes::Bytes;

/// The kind of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum EventType {
    /// An object came, or entered the selection.
    Added,
    /// An object changed.
    Modified,
    /// An object went, or left the selection.
    Deleted,
    /// Only a version.
    Bookmark,
    /// A `Status`; the stream ends after it.
    Error,
}

/// The part of a watch that an event belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The state it begins with, and the end of that.
    Initial,
    /// The following lines.
    Live,
}

impl EventType {
    /// Returns whether it carries an object.
    pub(crate) fn is_change(self) -> bool {
        matches!(self, Self::Added | Self::Modified | Self::Deleted)
    }

    /// Returns the word on the wire.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
            Self::Bookmark => "BOOKMARK",
            Self::Error => "ERROR",
        }
    }
}

/// One event as sent: a line of JSON with its newline, or a binary frame with its length.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// The bytes, newline or length included.
    pub(crate) bytes: Bytes,
    /// The event's kind.
    pub(crate) event: EventType,
    /// The version of the object in it; 0 for errors.
    pub(crate) version: u64,
    /// The part of the watch.
    pub(crate) phase: Phase,
}
