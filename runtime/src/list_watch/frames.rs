//! Reads the body of a watch: splits it into lines, and each line into an event.

use std::collections::VecDeque;

use kube::core::Status;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    InitialEventsMark, WatchEvent,
    decode::{Decoded, Decoder},
    error::ListWatchError,
    item::FetchedItem,
    json::{self, Raw, decoded, lenient, raw},
    status::StatusParts,
};
use crate::object::Object;

/// How long a line may be for its memory to be used again.
const LONG_LINE: usize = 64 << 10;

/// What a frame comes to: an event, or the error that ends the stream.
pub(super) type DecodedEvent<K> = Result<WatchEvent<K>, ListWatchError>;

/// Splits the body of a watch into frames, one a line, and decodes them.
#[derive(Debug)]
pub(super) struct Frames {
    decoder: EventDecoder,
    /// Most bytes of a line.
    largest: usize,
    /// The line that has not ended yet.
    rest: Vec<u8>,
}

impl Frames {
    pub(super) fn new(decoder: Decoder, largest: usize) -> Self {
        Self { decoder: EventDecoder(decoder), largest, rest: Vec::new() }
    }

    /// Takes a chunk, and appends what the lines that are complete now come to.
    ///
    /// Nothing follows an error.
    pub(super) fn feed<K: Object>(&mut self, chunk: &[u8], events: &mut VecDeque<DecodedEvent<K>>) {
        let (chunk, too_large) = self.admitted(chunk);
        let (lines, rest) = match memchr::memrchr(b'\n', chunk) {
            Some(last) => (Some(&chunk[..last]), &chunk[last + 1..]),
            None => (None, chunk),
        };
        match lines {
            None => {}
            Some(lines) if self.rest.is_empty() => self.decoder.lines(lines, events),
            Some(lines) => {
                self.rest.extend_from_slice(lines);
                self.decoder.lines(&self.rest, events);
                self.forget_rest();
            }
        }
        if matches!(events.back(), Some(Err(_))) {
            return;
        }
        match too_large {
            None => self.rest.extend_from_slice(rest),
            Some(error) => {
                self.rest = Vec::new();
                events.push_back(Err(error));
            }
        }
    }

    /// Takes a chunk, and appends the lines that are complete now to a block that is decoded elsewhere.
    ///
    /// # Errors
    /// A line is too large; those before it are in the block.
    pub(super) fn gather(&mut self, chunk: &[u8], block: &mut Vec<u8>) -> Result<(), ListWatchError> {
        let (chunk, too_large) = self.admitted(chunk);
        match memchr::memrchr(b'\n', chunk) {
            None => self.rest.extend_from_slice(chunk),
            Some(last) => {
                block.extend_from_slice(&self.rest);
                self.forget_rest();
                block.extend_from_slice(&chunk[..=last]);
                self.rest.extend_from_slice(&chunk[last + 1..]);
            }
        }
        too_large.map_or(Ok(()), Err)
    }

    /// Forgets a line that has been dealt with, and frees its memory if it was unusually long.
    fn forget_rest(&mut self) {
        match self.rest.capacity() > LONG_LINE {
            true => self.rest = Vec::new(),
            false => self.rest.clear(),
        }
    }

    /// Cuts a chunk before the first line that is too large.
    fn admitted<'c>(&self, chunk: &'c [u8]) -> (&'c [u8], Option<ListWatchError>) {
        let (mut start, mut carried) = (0, self.rest.len());
        for end in memchr::memchr_iter(b'\n', chunk).chain([chunk.len()]) {
            if carried + (end - start) > self.largest {
                return (
                    &chunk[..start],
                    Some(ListWatchError::TooLarge { what: "an event", limit: self.largest }),
                );
            }
            (start, carried) = (end + 1, 0);
        }
        (chunk, None)
    }

    pub(super) fn decoder(&self) -> &EventDecoder {
        &self.decoder
    }

    /// Ends the body: a last line needs no line break, but must be whole.
    pub(super) fn finish<K: Object>(&mut self) -> Option<DecodedEvent<K>> {
        let line = std::mem::take(&mut self.rest);
        let line = json::trimmed(&line);
        match serde_json::from_slice::<&RawValue>(line) {
            Err(_) if line.is_empty() => None,
            Err(error) if error.is_eof() => Some(Err(ListWatchError::CutShort)),
            _ => self.decoder.event(line),
        }
    }
}

/// A line, member by member.
#[derive(Default, Deserialize)]
#[serde(default)]
struct EventLine<'a> {
    #[serde(borrow, deserialize_with = "raw", rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow, deserialize_with = "raw")]
    object: Raw<'a>,
}

/// Decodes lines into events.
#[derive(Clone, Debug)]
pub(super) struct EventDecoder(Decoder);

impl EventDecoder {
    /// Decodes lines, one an event; nothing follows an error.
    pub(super) fn lines<K: Object>(&self, lines: &[u8], events: &mut impl Extend<DecodedEvent<K>>) {
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', lines).chain([lines.len()]) {
            let line = &lines[start..end];
            start = end + 1;
            let Some(event) = self.event(line) else { continue };
            let ended = event.is_err();
            events.extend([event]);
            if ended {
                return;
            }
        }
    }

    fn event<K: Object>(&self, line: &[u8]) -> Option<DecodedEvent<K>> {
        let line = json::trimmed(line);
        if line.is_empty() {
            return None;
        }
        let Ok(line) = std::str::from_utf8(line) else { return Some(Err(not_json())) };
        if let Some((event, object)) = usual(line)
            && let Ok(decoded) = self.0.decode(object)
        {
            return Some(Ok(of_object(event, decoded)));
        }
        Some(self.unusual(line))
    }

    /// Decodes a line member by member, whatever their order, and says what is wrong with it.
    fn unusual<K: Object>(&self, line: &str) -> DecodedEvent<K> {
        let EventLine { kind, object } = json::object(line).or_else(|_| match json::check(line) {
            Ok(()) => Ok(EventLine::default()),
            Err(_) => Err(not_json()),
        })?;
        let (Some(kind), Some(object)) = (decoded::<String>(kind), object) else {
            return match StatusParts::of(line).filter(StatusParts::is_status) {
                Some(status) => Ok(WatchEvent::Error(Box::new(status.into_status()))),
                None => Err(ListWatchError::Unreadable("a line of the stream is not an event".to_owned())),
            };
        };
        let object = object.get();
        let item = |event| Ok(of_object(event, self.0.decode(object).map_err(|_| not_json())?));
        match kind.as_str() {
            "ADDED" => item(WatchEvent::Added),
            "MODIFIED" => item(WatchEvent::Modified),
            "DELETED" => item(WatchEvent::Deleted),
            "BOOKMARK" => Ok(bookmark(object)),
            "ERROR" => Ok(WatchEvent::Error(Box::new(error_status(object)))),
            _ => Ok(WatchEvent::Unexpected("an event of an unknown type".to_owned())),
        }
    }
}

fn not_json() -> ListWatchError {
    ListWatchError::Unreadable("a line of the stream is not JSON".to_owned())
}

/// Makes an event of an item.
type MakeEvent<K> = fn(FetchedItem<K>) -> WatchEvent<K>;

fn of_object<K>(event: MakeEvent<K>, decoded: Decoded<K>) -> WatchEvent<K> {
    match decoded {
        Decoded::Item(item) => event(item),
        Decoded::OfAnotherKind(found) => {
            WatchEvent::Unexpected(format!("an event with an object of another kind: {}", found.error))
        }
    }
}

/// Cuts a line as API servers write them: the type first, then what is to be an object, and nothing else.
fn usual<K>(line: &str) -> Option<(MakeEvent<K>, &str)> {
    let rest = line.strip_prefix("{\"type\":\"")?;
    let (kind, rest) = rest.split_once("\",\"object\":")?;
    let event: MakeEvent<K> = match kind {
        "ADDED" => WatchEvent::Added,
        "MODIFIED" => WatchEvent::Modified,
        "DELETED" => WatchEvent::Deleted,
        _ => return None,
    };
    Some((event, rest.strip_suffix('}')?))
}

/// What is read of a bookmark.
#[derive(Default, Deserialize)]
#[serde(default)]
struct BookmarkObject {
    #[serde(deserialize_with = "lenient")]
    metadata: Option<BookmarkMetadata>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct BookmarkMetadata {
    #[serde(deserialize_with = "lenient")]
    resource_version: Option<String>,
    #[serde(deserialize_with = "lenient")]
    annotations: Option<BookmarkAnnotations>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct BookmarkAnnotations {
    #[serde(deserialize_with = "lenient", rename = "k8s.io/initial-events-end")]
    initial_events_end: Option<String>,
}

/// Reads a bookmark leniently: servers fill it with whatever the kind requires.
fn bookmark<K>(object: &str) -> WatchEvent<K> {
    let metadata = json::object::<BookmarkObject>(object).unwrap_or_default().metadata.unwrap_or_default();
    let Some(resource_version) = metadata.resource_version else {
        return WatchEvent::Unexpected("a bookmark without a resource version".to_owned());
    };
    let end = metadata.annotations.and_then(|annotations| annotations.initial_events_end);
    let initial_events = match end.as_deref() {
        Some("true") => InitialEventsMark::End,
        _ => InitialEventsMark::Absent,
    };
    WatchEvent::Bookmark { resource_version, initial_events }
}

fn error_status(object: &str) -> Status {
    match StatusParts::of(object).filter(|status| status.is_status() || status.has_code()) {
        Some(status) => status.into_status(),
        None => {
            Status::failure("the server sent an error without saying which", "InternalError").with_code(500)
        }
    }
}

#[cfg(test)]
mod tests;
