//! Reads the body of a list in chunks: items come out as they are complete.
//!
//! What is held at any time is the unfinished item, and the list without its items, which is read at the end.

use bytes::{Buf, BytesMut};
use serde::Deserialize;

use super::{
    error::ListWatchError,
    json::{self, NotJson, Raw, is_blank, text_or_empty},
    scrub,
    status::status_of,
};

/// Most bytes that a list without its items may take.
const LARGEST_ENVELOPE: usize = 1 << 20;
const ENVELOPE: &str = "what describes the list";

/// Splits a list into its items, over as many chunks as it takes.
#[derive(Debug)]
pub(super) struct ListBody {
    /// What has come and has not been dealt with yet.
    buffer: BytesMut,
    /// Finds the end of the value that the buffer begins with.
    cutter: Cutter,
    /// The list with a zero in place of each item; `serde_json` checks it at the end.
    envelope: Vec<u8>,
    in_items: bool,
    /// The last value outside the items was the string `items`.
    names_items: bool,
    /// How many items came.
    count: usize,
    /// Most bytes of an item.
    largest: usize,
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
            envelope: Vec::new(),
            in_items: false,
            names_items: false,
            count: 0,
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
        while let Some(&next) = self.buffer.first() {
            match self.is_punctuation(next) {
                true => self.punctuation(next),
                false if self.value(&mut item)? => {}
                false => break,
            }
            // A zero and a comma for each item do not count.
            if self.envelope.len() > LARGEST_ENVELOPE + 2 * self.count {
                return Err(ListWatchError::TooLarge { what: ENVELOPE, limit: LARGEST_ENVELOPE });
            }
        }
        Ok(())
    }

    /// Returns whether a byte does not begin an item, or a value outside the items.
    fn is_punctuation(&self, byte: u8) -> bool {
        let opens = match byte {
            b'{' => self.envelope.iter().all(is_blank),
            b'[' => self.names_items && !self.in_items,
            _ => false,
        };
        opens || is_blank(&byte) || matches!(byte, b',' | b':' | b'}' | b']')
    }

    fn punctuation(&mut self, byte: u8) {
        self.buffer.advance(1);
        match byte {
            b'[' => self.in_items = true,
            b']' => self.in_items = false,
            _ => {}
        }
        self.names_items &= byte != b',';
        if !(self.in_items && is_blank(&byte)) {
            self.envelope.push(byte);
        }
    }

    /// Takes the value that the buffer begins with, if all of it has come.
    fn value(&mut self, item: &mut impl FnMut(&str) -> Result<(), NotJson>) -> Result<bool, ListWatchError> {
        let end = self.cutter.end(&self.buffer);
        let (what, limit) = match self.in_items {
            true => ("an object of the list", self.largest),
            false => (ENVELOPE, LARGEST_ENVELOPE),
        };
        if end.unwrap_or(self.buffer.len()) > limit {
            return Err(ListWatchError::TooLarge { what, limit });
        }
        let Some(end) = end else { return Ok(false) };
        let value = &self.buffer[..end];
        if self.in_items {
            item(std::str::from_utf8(value).map_err(|_| not_json())?).map_err(|NotJson| not_json())?;
            self.envelope.push(b'0');
            self.count += 1;
        } else {
            self.names_items = serde_json::from_slice::<String>(value).is_ok_and(|text| text == "items");
            self.envelope.extend_from_slice(value);
        }
        self.cutter = Cutter::default();
        self.buffer.advance(end);
        Ok(true)
    }

    /// Ends the body and returns what the list says about itself; its items were checked one by one.
    pub(super) fn finish(&mut self) -> Result<ListHead, ListWatchError> {
        if !self.in_items {
            self.envelope.extend_from_slice(&self.buffer);
        }
        let text = std::str::from_utf8(&self.envelope).map_err(|_| not_json())?;
        if text.trim().is_empty() {
            return Err(unreadable("it is empty"));
        }
        let parts = json::object::<EnvelopeParts<'_>>(text).map_err(|error| match error.is_eof() {
            true => ListWatchError::CutShort,
            false => unreadable(&format!("it is not a list: {}", scrub::without_content(&error))),
        })?;
        let kind = text_or_empty(parts.kind);
        if let Some(status) = status_of(text).filter(|_| kind.as_deref() == Some("Status")) {
            return Err(ListWatchError::from_status(status));
        }
        match parts.items.0.map(|items| items.get().as_bytes()[0]) {
            None => return Err(unreadable("it is not a list: it has no items")),
            Some(b'[' | b'n') => {}
            Some(_) => return Err(unreadable("its items are not an array")),
        }
        match kind.as_deref() {
            Some("Table") => return Err(unreadable("it is a Table")),
            Some(_) => {}
            None => return Err(unreadable("its kind is not text")),
        }
        let metadata = parts.metadata.0.ok_or_else(|| unreadable("it has no metadata"))?;
        let metadata: ListMetadata<'_> = json::object(metadata.get()).map_err(|_| unreadable(NO_METADATA))?;
        let text = |member| text_or_empty(member).ok_or_else(|| unreadable(NO_METADATA));
        Ok(ListHead {
            resource_version: text(metadata.resource_version)?,
            continue_token: Some(text(metadata.continue_token)?).filter(|token| !token.is_empty()),
        })
    }
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct EnvelopeParts<'a> {
    kind: Raw<'a>,
    metadata: Raw<'a>,
    items: Raw<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct ListMetadata<'a> {
    resource_version: Raw<'a>,
    #[serde(rename = "continue")]
    continue_token: Raw<'a>,
}

/// Finds where a value ends if it is well-formed; `serde_json` checks that afterwards.
///
/// The text given starts where the value does, and grows from call to call.
#[derive(Debug, Default)]
pub(super) struct Cutter {
    at: usize,
    depth: usize,
    quoted: bool,
}

impl Cutter {
    /// Continues; `None` if the value goes on beyond the bytes given.
    pub(super) fn end(&mut self, text: &[u8]) -> Option<usize> {
        if !matches!(text.first()?, b'{' | b'[' | b'"') {
            return text.iter().position(|byte| is_blank(byte) || matches!(byte, b',' | b']' | b'}'));
        }
        while let Some(byte) = text.get(self.at) {
            match (self.quoted, byte) {
                (true, b'"') | (false, b'}' | b']') => {
                    self.depth = self.depth.saturating_sub(usize::from(!self.quoted));
                    self.quoted = false;
                    if self.depth == 0 {
                        return Some(self.at + 1);
                    }
                }
                // The byte that it escapes may not have come yet.
                (true, b'\\') => self.at += text.get(self.at + 1).map(|_| 1)?,
                (true, _) => {
                    let rest = &text[self.at..];
                    self.at += memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
                    continue;
                }
                (false, b'"') => self.quoted = true,
                (false, b'{' | b'[') => self.depth += 1,
                (false, _) => {}
            }
            self.at += 1;
        }
        None
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
