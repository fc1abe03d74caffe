//! Reads the body of a list in chunks: items come out as they are complete.
//!
//! What is held at any time is the unfinished item, and the list without its items, which is read at the end.

use bytes::{Buf, BytesMut};
use serde::Deserialize;

use super::{
    cut::Cutter,
    error::ListWatchError,
    json::{self, NotJson, Raw, is_blank, raw, text_or_empty},
    scrub,
    status::StatusParts,
};

/// Most bytes that a list without its items may take.
const LARGEST_ENVELOPE: usize = 1 << 20;

/// Splits a list into its items, over as many chunks as it takes.
#[derive(Debug)]
pub(super) struct ListBody {
    /// What has come and has not been dealt with yet.
    buffer: BytesMut,
    /// Finds the end of the item that the buffer begins with.
    cutter: Cutter,
    place: ListPlace,
    envelope: Envelope,
    /// Most bytes of an item.
    largest: usize,
}

/// Where in the list the next byte is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ListPlace {
    Envelope,
    /// Before the first item, or the end of a list without items.
    FirstItem,
    FetchedItem,
    AfterItem,
}

/// What a list says about itself.
#[derive(Debug, PartialEq)]
pub(super) struct ListHead {
    pub(super) resource_version: String,
    pub(super) continue_token: Option<String>,
}

impl ListBody {
    pub(super) fn new(largest: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            cutter: Cutter::default(),
            place: ListPlace::Envelope,
            envelope: Envelope::default(),
            largest,
        }
    }

    /// Takes a chunk, and returns every item that is now complete; the caller checks that it is JSON.
    pub(super) fn feed(
        &mut self,
        chunk: &[u8],
        mut item: impl FnMut(&str) -> Result<(), NotJson>,
    ) -> Result<(), ListWatchError> {
        self.buffer.extend_from_slice(chunk);
        while self.step(&mut item)? {}
        Ok(())
    }

    /// Reads on; returns whether more can be read from what has come.
    fn step(&mut self, item: &mut impl FnMut(&str) -> Result<(), NotJson>) -> Result<bool, ListWatchError> {
        if self.place == ListPlace::Envelope {
            let (read, at_items) = self.envelope.read(&self.buffer)?;
            self.buffer.advance(read);
            if at_items {
                self.place = ListPlace::FirstItem;
            }
            return Ok(at_items);
        }
        let blanks = self.buffer.iter().take_while(|byte| is_blank(byte)).count();
        self.buffer.advance(blanks);
        let Some(&next) = self.buffer.first() else { return Ok(false) };
        match (self.place, next) {
            (ListPlace::FirstItem | ListPlace::AfterItem, b']') => self.place = ListPlace::Envelope,
            (ListPlace::AfterItem, b',') => {
                self.buffer.advance(1);
                self.place = ListPlace::FetchedItem;
            }
            (ListPlace::AfterItem, _) => return Err(not_json()),
            _ => return self.item(item),
        }
        Ok(true)
    }

    fn item(&mut self, item: &mut impl FnMut(&str) -> Result<(), NotJson>) -> Result<bool, ListWatchError> {
        let end = self.cutter.end(&self.buffer);
        if end.unwrap_or(self.buffer.len()) > self.largest {
            return Err(ListWatchError::TooLarge { what: "an object of the list", limit: self.largest });
        }
        let Some(end) = end else { return Ok(false) };
        let text = std::str::from_utf8(&self.buffer[..end]).ok().filter(|text| !text.is_empty());
        item(text.ok_or_else(not_json)?).map_err(|NotJson| not_json())?;
        self.cutter = Cutter::default();
        self.buffer.advance(end);
        self.place = ListPlace::AfterItem;
        Ok(true)
    }

    /// Ends the body and returns what the list says about itself.
    pub(super) fn finish(self) -> Result<ListHead, ListWatchError> {
        match self.place {
            ListPlace::Envelope => self.envelope.head(),
            _ => Err(ListWatchError::CutShort),
        }
    }
}

/// A list without its items, as far as it has come.
#[derive(Debug, Default)]
struct Envelope {
    text: Vec<u8>,
    depth: usize,
    quoted: bool,
    escaped: bool,
    /// Where the last string began.
    string: usize,
    /// Whether a colon followed it, outside all values.
    is_key: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct EnvelopeParts<'a> {
    #[serde(borrow, deserialize_with = "raw")]
    kind: Raw<'a>,
    #[serde(borrow, deserialize_with = "raw")]
    metadata: Raw<'a>,
    #[serde(borrow, deserialize_with = "raw")]
    items: Raw<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct ListMetadata<'a> {
    #[serde(borrow, deserialize_with = "raw")]
    resource_version: Raw<'a>,
    #[serde(borrow, deserialize_with = "raw", rename = "continue")]
    continue_token: Raw<'a>,
}

impl Envelope {
    /// Takes bytes up to the items' opening bracket; returns how many, and whether that was met.
    fn read(&mut self, bytes: &[u8]) -> Result<(usize, bool), ListWatchError> {
        for (read, byte) in bytes.iter().enumerate() {
            let opens_items = *byte == b'[' && !self.quoted && self.is_key && self.key_is_items();
            self.take(*byte);
            if opens_items {
                return Ok((read + 1, true));
            }
        }
        match self.text.len() > LARGEST_ENVELOPE {
            true => {
                Err(ListWatchError::TooLarge { what: "what describes the list", limit: LARGEST_ENVELOPE })
            }
            false => Ok((bytes.len(), false)),
        }
    }

    fn take(&mut self, byte: u8) {
        match (self.quoted, byte) {
            (true, _) if self.escaped => self.escaped = false,
            (true, b'\\') => self.escaped = true,
            (true, b'"') => self.quoted = false,
            (true, _) => {}
            (false, b'"') => (self.quoted, self.is_key, self.string) = (true, false, self.text.len()),
            (false, b':') => self.is_key = self.depth == 1,
            (false, b'{' | b'[') => (self.depth, self.is_key) = (self.depth + 1, false),
            (false, b'}' | b']') => (self.depth, self.is_key) = (self.depth.saturating_sub(1), false),
            (false, _) => {}
        }
        self.text.push(byte);
    }

    fn key_is_items(&self) -> bool {
        let colon = self.text.iter().rposition(|byte| *byte == b':');
        let key =
            colon.and_then(|colon| serde_json::from_slice::<String>(&self.text[self.string..colon]).ok());
        key.as_deref() == Some("items")
    }

    /// Reads what the list says about itself; its items were checked one by one.
    fn head(&self) -> Result<ListHead, ListWatchError> {
        let text = std::str::from_utf8(&self.text).map_err(|_| not_json())?;
        if text.trim().is_empty() {
            return Err(unreadable("it is empty"));
        }
        let parts = json::object::<EnvelopeParts<'_>>(text).map_err(|error| match error.is_eof() {
            true => ListWatchError::CutShort,
            false => unreadable(&format!("it is not a list: {}", scrub::without_content(&error))),
        })?;
        let status = StatusParts::of(text).filter(StatusParts::is_status);
        if let Some(status) = status {
            return Err(ListWatchError::from_status(status.into_status()));
        }
        match parts.items.map(|items| items.get().as_bytes()[0]) {
            None => return Err(unreadable("it is not a list: it has no items")),
            Some(b'[' | b'n') => {}
            Some(_) => return Err(unreadable("its items are not an array")),
        }
        match text_or_empty(parts.kind).as_deref() {
            Some("Table") => return Err(unreadable("it is a Table")),
            Some(_) => {}
            None => return Err(unreadable("its kind is not text")),
        }
        let metadata = parts.metadata.ok_or_else(|| unreadable("it has no metadata"))?;
        let metadata: ListMetadata<'_> = json::object(metadata.get()).map_err(|_| unreadable(NO_METADATA))?;
        let text = |member| text_or_empty(member).ok_or_else(|| unreadable(NO_METADATA));
        Ok(ListHead {
            resource_version: text(metadata.resource_version)?,
            continue_token: Some(text(metadata.continue_token)?).filter(|token| !token.is_empty()),
        })
    }
}

const NO_METADATA: &str = "its metadata are not those of a list";

fn unreadable(what: &str) -> ListWatchError {
    ListWatchError::Unreadable(what.to_owned())
}

/// Reports a list as invalid because a part of it is not valid JSON.
pub(super) fn not_json() -> ListWatchError {
    unreadable("it is not JSON")
}

#[cfg(test)]
mod tests;
