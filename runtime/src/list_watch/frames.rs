//! Reads the body of a watch: cuts it into lines, and makes an event of each.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    InitialEventsMark, WatchEvent,
    decode::{Decoder, NotAnObject},
    decode_pool::ROOM_FOR_A_TASK,
    error::ListWatchError,
    item::AnyItem,
    json::{self, Raw, decoded, is_blank},
    read::ObjectParts,
    status::{status_of, status_of_error},
};
use crate::{flight_recorder::LineRecorder, object::AnyObject};

/// The annotation of the bookmark that closes the initial events.
pub(super) const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// What a line comes to: an event, or the error that ends the stream.
pub(super) type DecodedEvent = Result<AnyEvent, ListWatchError>;

type AnyEvent = WatchEvent<dyn AnyObject>;

/// Cuts a body into whole lines, over as many chunks as it takes.
#[derive(Debug)]
pub(super) struct Lines {
    /// What has come and was not taken.
    text: Vec<u8>,
    /// How much of that are whole lines.
    pub(super) whole: usize,
    /// Most bytes of a line.
    largest: usize,
    spare: SpareBuffer,
}

/// A buffer whose lines are decoded. An allocator takes long for buffers of this size, compared with decoding their lines.
#[derive(Clone, Debug, Default)]
pub(super) struct SpareBuffer(Arc<Mutex<Vec<u8>>>);

impl SpareBuffer {
    /// Keeps a buffer for what comes next, unless it is large.
    pub(super) fn keep(&self, mut buffer: Vec<u8>) {
        if buffer.capacity() <= 2 * ROOM_FOR_A_TASK {
            buffer.clear();
            *self.0.lock() = buffer;
        }
    }

    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.0.lock())
    }
}

impl Lines {
    /// Reads lines up to a limit in bytes into the spare buffer, if there is one.
    pub(super) fn new(largest: usize, spare: SpareBuffer) -> Self {
        Self { text: Vec::new(), whole: 0, largest, spare }
    }

    /// Adds a chunk.
    pub(super) fn add(&mut self, chunk: &[u8]) {
        let before = self.text.len();
        self.text.extend_from_slice(chunk);
        if let Some(last) = memchr::memrchr(b'\n', chunk) {
            self.whole = before + last + 1;
        }
        // The rest of a line that is too long is not waited for: it is refused as it is decoded.
        if self.text.len() - self.whole > self.largest {
            self.whole = self.text.len();
        }
    }

    /// Takes the whole lines that have come.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let whole = std::mem::take(&mut self.whole);
        let mut next = self.spare.take();
        next.extend_from_slice(&self.text[whole..]);
        self.text.truncate(whole);
        std::mem::replace(&mut self.text, next)
    }

    /// Ends the body: a last line needs no line break.
    ///
    /// # Errors
    /// It is not whole.
    pub(super) fn finish(&mut self) -> Result<(), ListWatchError> {
        let last = &self.text[self.whole..];
        match serde_json::from_slice::<&RawValue>(last) {
            Err(error) if error.is_eof() && !last.iter().all(is_blank) => Err(ListWatchError::CutShort),
            _ => {
                self.whole = self.text.len();
                Ok(())
            }
        }
    }
}

/// A line, member by member.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct EventLine<'a> {
    #[serde(rename = "type")]
    kind: Raw<'a>,
    object: Raw<'a>,
}

/// Decodes lines into events.
#[derive(Clone, Debug)]
pub(super) struct EventDecoder {
    pub(super) decoder: Decoder,
    /// Most bytes of a line.
    pub(super) largest: usize,
}

impl EventDecoder {
    /// Decodes lines, one an event, each when it is asked for. Their buffer is kept for what comes next.
    ///
    /// A list of the events would be large enough for glibc to sort its free memory, once for each buffer.
    pub(super) fn events(
        self,
        lines: Vec<u8>,
        spare: SpareBuffer,
        recorder: Option<LineRecorder>,
    ) -> impl Iterator<Item = DecodedEvent> {
        let (mut lines, mut start) = (lines, 0);
        std::iter::from_fn(move || {
            while let Some(line) = next_line(&lines, &mut start) {
                if !line.iter().all(is_blank) {
                    // Here, because the line is about to be read in any case.
                    if let Some(recorder) = &recorder {
                        recorder.line(line);
                    }
                    return Some(self.event(line));
                }
            }
            spare.keep(std::mem::take(&mut lines));
            None
        })
    }

    fn event(&self, line: &[u8]) -> DecodedEvent {
        if line.len() > self.largest {
            return Err(ListWatchError::TooLarge { what: "an event", limit: self.largest });
        }
        let line = std::str::from_utf8(line).map_err(|_| not_json())?;
        if let Some((event, object)) = usual(line) {
            if let Some(version) = self.decoder.dropped(object) {
                return Ok(WatchEvent::Dropped(version));
            }
            if let Ok(item) = self.decoder.decode(object) {
                return Ok(event(item));
            }
        }
        self.unusual(line)
    }

    /// Decodes a line member by member, whatever their order, and says what is wrong with it.
    fn unusual(&self, line: &str) -> DecodedEvent {
        let EventLine { kind, object } = json::object(line).or_else(|_| match json::check(line) {
            Ok(()) => Ok(EventLine::default()),
            Err(_) => Err(not_json()),
        })?;
        let (Some(kind), Raw(Some(object))) = (decoded::<String>(kind), object) else {
            let status = status_of(line).map(|status| WatchEvent::Error(Box::new(status)));
            let not_event = || ListWatchError::Unreadable("a line of the stream is not an event".to_owned());
            return status.ok_or_else(not_event);
        };
        let object = object.get();
        let item = |event: MakeEvent| match self.decoder.decode(object) {
            Ok(item) => Ok(self.decoder.dropped(object).map_or_else(|| event(item), WatchEvent::Dropped)),
            Err(NotAnObject::NotJson) => Err(not_json()),
            Err(NotAnObject::OfAnotherKind(found)) => {
                let what = format!("an event with an object of another kind: {}", found.error);
                Ok(WatchEvent::Unexpected(what))
            }
        };
        match kind.as_str() {
            "ADDED" => item(WatchEvent::Added),
            "MODIFIED" => item(WatchEvent::Modified),
            "DELETED" => item(WatchEvent::Deleted),
            "BOOKMARK" => Ok(bookmark(object)),
            "ERROR" => Ok(WatchEvent::Error(Box::new(status_of_error(object)))),
            _ => Ok(WatchEvent::Unexpected("an event of an unknown type".to_owned())),
        }
    }
}

/// Returns the line that begins at a place, and moves that behind it.
pub(super) fn next_line<'l>(lines: &'l [u8], start: &mut usize) -> Option<&'l [u8]> {
    let rest = lines.get(*start..).filter(|rest| !rest.is_empty())?;
    let line = &rest[..memchr::memchr(b'\n', rest).unwrap_or(rest.len())];
    *start += line.len() + 1;
    Some(line)
}

fn not_json() -> ListWatchError {
    ListWatchError::Unreadable("a line of the stream is not JSON".to_owned())
}

/// Makes an event of an item.
type MakeEvent = fn(AnyItem) -> AnyEvent;

/// Cuts a line as API servers write them: the type first, then what is to be an object, and nothing else.
fn usual(line: &str) -> Option<(MakeEvent, &str)> {
    let rest = line.strip_prefix("{\"type\":\"")?;
    let (kind, rest) = rest.split_once("\",\"object\":")?;
    let event: MakeEvent = match kind {
        "ADDED" => WatchEvent::Added,
        "MODIFIED" => WatchEvent::Modified,
        "DELETED" => WatchEvent::Deleted,
        _ => return None,
    };
    Some((event, rest.strip_suffix('}')?))
}

/// Reads a bookmark leniently: servers fill it with whatever the kind requires.
fn bookmark(object: &str) -> AnyEvent {
    let metadata = ObjectParts::of(object).unwrap_or_default().metadata;
    let Some(resource_version) = metadata.resource_version() else {
        return WatchEvent::Unexpected("a bookmark without a resource version".to_owned());
    };
    let annotations: BTreeMap<String, &RawValue> = decoded(metadata.annotations).unwrap_or_default();
    let initial_events = match annotations.get(INITIAL_EVENTS_END).map(|value| value.get()) {
        Some("\"true\"") => InitialEventsMark::End,
        _ => InitialEventsMark::Absent,
    };
    WatchEvent::Bookmark { resource_version, initial_events }
}

#[cfg(test)]
mod tests;
