//! Reads the body of a watch: splits it into lines, and each line into an event.

use std::collections::VecDeque;

use kube::core::Status;

use super::{
    InitialEventsMark, WatchEvent,
    decode::{Decoded, Decoder},
    error::ListWatchError,
    item::Item,
    json::{self, Flaw, Json},
    places::{Finder, Places},
    scan::Scan,
    status,
};
use crate::object::Object;

/// The annotation of the bookmark that closes the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// How long a line may be for its memory to be used again.
const LONG_LINE: usize = 64 << 10;

/// What a frame comes to: an event, or the error that ends the stream.
pub(super) type Event<K> = Result<WatchEvent<K>, ListWatchError>;

/// Splits the body of a watch into frames, one a line, and decodes them.
#[derive(Debug)]
pub(super) struct Frames {
    decoder: Decoder,
    /// Most bytes of a line.
    largest: usize,
    /// The line that has not ended yet.
    rest: Vec<u8>,
    /// Room for an object without what is not kept.
    stripped: String,
}

impl Frames {
    pub(super) fn new(decoder: Decoder, largest: usize) -> Self {
        Self { decoder, largest, rest: Vec::new(), stripped: String::new() }
    }

    /// Takes a chunk, and appends what the lines that are complete now come to.
    ///
    /// Nothing follows an error.
    pub(super) fn feed<K: Object>(&mut self, chunk: &[u8], events: &mut VecDeque<Event<K>>) {
        let (chunk, too_large) = self.admitted(chunk);
        let (lines, rest) = match memchr::memrchr(b'\n', chunk) {
            Some(last) => (Some(&chunk[..last]), &chunk[last + 1..]),
            None => (None, chunk),
        };
        match lines {
            None => {}
            Some(lines) if self.rest.is_empty() => self.decode(lines, events),
            Some(lines) => {
                let mut rest = std::mem::take(&mut self.rest);
                rest.extend_from_slice(lines);
                self.decode(&rest, events);
                self.rest = rest;
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

    /// Decodes lines that are complete.
    pub(super) fn decode<K: Object>(&mut self, lines: &[u8], events: &mut impl Extend<Event<K>>) {
        self.decoder.lines(lines, &mut self.stripped, events);
        if self.stripped.capacity() > LONG_LINE {
            self.stripped = String::new();
        }
    }

    /// Takes a chunk, and appends the lines that are complete now to a block, to be decoded elsewhere.
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

    /// Lets go of a line that has been dealt with; of its memory only where it was unusually long.
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

    pub(super) fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    /// Ends the body: a last line needs no line break, but must be whole.
    pub(super) fn finish<K: Object>(&mut self) -> Option<Event<K>> {
        let line = std::mem::take(&mut self.rest);
        let line = json::trimmed(&line);
        match Json::read(line) {
            Err(Flaw::CutShort) if line.is_empty() => None,
            Err(Flaw::CutShort) => Some(Err(ListWatchError::CutShort)),
            _ => self.decoder.event(line, &mut String::new()),
        }
    }
}

impl Decoder {
    /// Decodes lines, one an event; nothing follows an error.
    pub(super) fn lines<K: Object>(
        &self,
        lines: &[u8],
        stripped: &mut String,
        events: &mut impl Extend<Event<K>>,
    ) {
        let mut start = 0;
        let ends = memchr::memchr_iter(b'\n', lines).chain([lines.len()]);
        for end in ends {
            let line = &lines[start.min(end)..end];
            start = end + 1;
            let Some(event) = self.event(line, stripped) else { continue };
            let ended = event.is_err();
            events.extend([event]);
            if ended {
                return;
            }
        }
    }

    fn event<K: Object>(&self, line: &[u8], stripped: &mut String) -> Option<Event<K>> {
        let line = json::trimmed(line);
        if line.is_empty() {
            return None;
        }
        if let Some((event, object)) = usual(line) {
            if let Some(item) = std::str::from_utf8(object).ok().and_then(|text| self.decode_at_once(text)) {
                return Some(Ok(event(item)));
            }
            if let Some((object, places)) = well_formed(object) {
                return Some(self.of_object(object, &places, stripped, event));
            }
        }
        Some(match Json::read(line) {
            Ok(line) => self.unusual(line, stripped),
            Err(_) => Err(ListWatchError::Unreadable("a line of the stream is no JSON".to_owned())),
        })
    }

    /// Decodes a line member by member, whatever their order, and says what is wrong with it.
    fn unusual<K: Object>(&self, line: Json<'_>, stripped: &mut String) -> Event<K> {
        let (Some(kind), Some(object)) = (line.text_member("type"), line.member("object")) else {
            return match status::is_status(line) {
                true => Ok(WatchEvent::Error(Box::new(status::read_status(line)))),
                false => Err(ListWatchError::Unreadable("a line of the stream is no event".to_owned())),
            };
        };
        let mut item = |event| self.of_object(object.as_str(), &Places::of(object), stripped, event);
        match kind.as_str() {
            "ADDED" => item(WatchEvent::Added),
            "MODIFIED" => item(WatchEvent::Modified),
            "DELETED" => item(WatchEvent::Deleted),
            "BOOKMARK" => Ok(bookmark(object)),
            "ERROR" => Ok(WatchEvent::Error(Box::new(error_status(object)))),
            _ => Ok(WatchEvent::Unexpected("an event of an unknown type".to_owned())),
        }
    }

    fn of_object<K: Object>(
        &self,
        object: &str,
        places: &Places,
        stripped: &mut String,
        event: Wrap<K>,
    ) -> Event<K> {
        let decoded = match self.is_stripped(places) {
            true => self.decode(object, places),
            false => {
                stripped.clear();
                let places = self.push_stripped(object, places, stripped);
                self.decode(stripped, &places)
            }
        };
        Ok(match decoded {
            Decoded::Item(item) => event(item),
            Decoded::OfAnotherKind(found) => {
                WatchEvent::Unexpected(format!("an event with an object of another kind: {found}"))
            }
        })
    }
}

/// Makes an event of an item.
type Wrap<K> = fn(Item<K>) -> WatchEvent<K>;

/// Cuts a line as API servers write them: the type first, then what is to be an object, and nothing else.
fn usual<K>(line: &[u8]) -> Option<(Wrap<K>, &[u8])> {
    let rest = line.strip_prefix(b"{\"type\":\"")?;
    let (event, rest): (Wrap<K>, _) = match rest.first()? {
        b'A' => (WatchEvent::Added, rest.strip_prefix(b"ADDED")?),
        b'M' => (WatchEvent::Modified, rest.strip_prefix(b"MODIFIED")?),
        b'D' => (WatchEvent::Deleted, rest.strip_prefix(b"DELETED")?),
        _ => return None,
    };
    Some((event, rest.strip_prefix(b"\",\"object\":")?.strip_suffix(b"}")?))
}

/// Checks an object and finds its places, in one pass; `None` for what is no JSON, or more than one value.
fn well_formed(object: &[u8]) -> Option<(&str, Places)> {
    let mut finder = Finder::default();
    match finder.scan(object) {
        Ok(Scan::Ends(end)) if end == object.len() => {}
        _ => return None,
    }
    Some((std::str::from_utf8(object).ok()?, finder.found()))
}

/// Reads a bookmark leniently: servers fill it with whatever the kind requires.
fn bookmark<K>(object: Json<'_>) -> WatchEvent<K> {
    let metadata = object.member("metadata");
    let Some(resource_version) = metadata.and_then(|metadata| metadata.text_member("resourceVersion")) else {
        return WatchEvent::Unexpected("a bookmark without a resource version".to_owned());
    };
    let annotations = metadata.and_then(|metadata| metadata.member("annotations"));
    let end = annotations.and_then(|annotations| annotations.text_member(INITIAL_EVENTS_END));
    let initial_events = match end.as_deref() {
        Some("true") => InitialEventsMark::End,
        _ => InitialEventsMark::Absent,
    };
    WatchEvent::Bookmark { resource_version, initial_events }
}

fn error_status(object: Json<'_>) -> Status {
    if status::is_status(object) || object.member("code").is_some() {
        status::read_status(object)
    } else {
        Status::failure("the server sent an error without saying which", "InternalError").with_code(500)
    }
}

#[cfg(test)]
mod tests;
