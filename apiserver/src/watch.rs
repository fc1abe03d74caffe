//! Watches: changes of a collection as a stream of lines.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;

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

/// One event as sent: a line of JSON with its newline.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// The line, newline included.
    pub(crate) bytes: Bytes,
    /// The event's kind.
    pub(crate) event: EventType,
    /// The version of the object in it; 0 for errors.
    pub(crate) version: u64,
    /// True for the bookmark that ends the initial events.
    pub(crate) initial_end: bool,
}

/// The events of one watch; ends when the watch does.
#[derive(Debug)]
pub(crate) struct WatchStream;

impl Stream for WatchStream {
    type Item = Frame;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Frame>> {
        Poll::Ready(None)
    }
}
