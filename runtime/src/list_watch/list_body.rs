//! Reads the body of a list in chunks: items come out as they are complete.
//!
//! What is kept at any time is the unfinished item, and the few members that describe the list.

use bytes::{Buf, BytesMut};
use serde::Deserialize;

use super::{
    error::ListWatchError,
    json::{self, Scan, ValueScanner},
    status,
};

/// Most bytes that the members which describe a list may take together.
const LARGEST_ENVELOPE: usize = 1 << 20;

const ENVELOPE_TOO_LARGE: ListWatchError =
    ListWatchError::TooLarge { what: "what describes the list", limit: LARGEST_ENVELOPE };

/// The members that describe a list, or make up a Status.
const KEPT: [&str; 8] = ["apiVersion", "kind", "metadata", "status", "code", "message", "reason", "details"];

/// Splits a list into its items, over as many chunks as it takes.
#[derive(Debug)]
pub(super) struct ListBody {
    /// What has come and has not been dealt with yet.
    buffer: BytesMut,
    /// How much of the buffer has been scanned for the end of the present value.
    scanned: usize,
    scanner: ValueScanner,
    place: Place,
    /// The kept members as an object, still without its closing bracket.
    envelope: Vec<u8>,
    items: ItemsMember,
    /// Most bytes of an item.
    largest: usize,
}

/// Where in the document the next token stands.
#[derive(Debug)]
enum Place {
    Start,
    /// Before a key, or the end of the document where it has no members.
    Key,
    /// After a key, before its colon.
    Colon(Member),
    Value(Member),
    /// After the value of a member.
    AfterMember,
    /// Before an item, or the end of the items.
    Item,
    AfterItem,
    End,
}

#[derive(Debug)]
enum Member {
    Items,
    Kept(Vec<u8>),
    Skipped,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum ItemsMember {
    NotMet,
    Met,
}

/// What a list says about itself.
#[derive(Debug, PartialEq)]
pub(super) struct ListHead {
    pub(super) resource_version: String,
    pub(super) continue_token: Option<String>,
}

#[derive(Deserialize)]
struct Envelope {
    kind: Option<String>,
    metadata: Option<Metadata>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: Option<String>,
    #[serde(rename = "continue")]
    continue_token: Option<String>,
}

fn unreadable(what: &str) -> ListWatchError {
    ListWatchError::Unreadable(what.to_owned())
}

/// Says whether another token can be read from what has come.
enum Progress {
    Made,
    NeedsMore,
}

impl ListBody {
    pub(super) fn new(largest: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            scanned: 0,
            scanner: ValueScanner::default(),
            place: Place::Start,
            envelope: b"{".to_vec(),
            items: ItemsMember::NotMet,
            largest,
        }
    }

    /// Takes a chunk, and hands over every item that is complete now.
    pub(super) fn feed(&mut self, chunk: &[u8], mut item: impl FnMut(&[u8])) -> Result<(), ListWatchError> {
        self.buffer.extend_from_slice(chunk);
        while let Progress::Made = self.step(&mut item)? {}
        Ok(())
    }

    /// Ends the body and returns what the list says about itself.
    pub(super) fn finish(self) -> Result<ListHead, ListWatchError> {
        if !matches!(self.place, Place::End) {
            return Err(match self.place {
                Place::Start => unreadable("it is empty"),
                _ => ListWatchError::CutShort,
            });
        }
        let mut envelope = self.envelope;
        envelope.push(b'}');
        if status::is_status(&envelope) {
            return Err(ListWatchError::from_status(status::read_status(&envelope)));
        }
        if self.items == ItemsMember::NotMet {
            return Err(unreadable("it is no list: it has no items"));
        }
        let head: Envelope = serde_json::from_slice(&envelope)
            .map_err(|_| unreadable("its metadata are not those of a list"))?;
        if head.kind.as_deref() == Some("Table") {
            return Err(unreadable("it is a Table"));
        }
        let metadata = head.metadata.ok_or_else(|| unreadable("it has no metadata"))?;
        Ok(ListHead {
            resource_version: metadata.resource_version.unwrap_or_default(),
            continue_token: metadata.continue_token.filter(|token| !token.is_empty()),
        })
    }

    fn step(&mut self, item: &mut impl FnMut(&[u8])) -> Result<Progress, ListWatchError> {
        if self.scanned == 0 && !self.scanner.has_begun() {
            let blanks = self.buffer.iter().take_while(|byte| json::is_blank(**byte)).count();
            self.buffer.advance(blanks);
        }
        let Some(&next) = self.buffer.first() else { return Ok(Progress::NeedsMore) };
        match (std::mem::replace(&mut self.place, Place::Start), next) {
            (Place::Start, b'{') => self.token(Place::Key),
            (Place::Start, _) => Err(unreadable("it is no JSON object")),
            (Place::Key, b'}') | (Place::AfterMember, b'}') => self.token(Place::End),
            (Place::Key, b'"') => self.key(),
            (Place::Colon(member), b':') => self.token(Place::Value(member)),
            (Place::Value(Member::Items), b'[') if self.items == ItemsMember::NotMet => {
                self.items = ItemsMember::Met;
                self.token(Place::Item)
            }
            (Place::Value(Member::Items), b'n') if self.items == ItemsMember::NotMet => {
                self.items = ItemsMember::Met;
                self.value(Member::Skipped)
            }
            (Place::Value(Member::Items), _) => Err(unreadable("its items are no array")),
            (Place::Value(member), _) => self.value(member),
            (Place::AfterMember, b',') => self.token(Place::Key),
            (Place::Item, b']') | (Place::AfterItem, b']') => self.token(Place::AfterMember),
            (Place::Item, _) => self.item(item),
            (Place::AfterItem, b',') => self.token(Place::Item),
            (Place::End, _) => Err(unreadable("something follows the list")),
            (Place::Key | Place::Colon(_) | Place::AfterMember | Place::AfterItem, _) => {
                Err(unreadable("it is no JSON"))
            }
        }
    }

    fn token(&mut self, place: Place) -> Result<Progress, ListWatchError> {
        self.buffer.advance(1);
        self.place = place;
        Ok(Progress::Made)
    }

    fn key(&mut self) -> Result<Progress, ListWatchError> {
        let Some(end) = self.end_of_value()? else {
            self.check_envelope(0)?;
            self.place = Place::Key;
            return Ok(Progress::NeedsMore);
        };
        let raw = self.buffer.split_to(end);
        let name = raw.strip_prefix(b"\"").and_then(|raw| raw.strip_suffix(b"\"")).unwrap_or_default();
        let member = if json::key_is(name, "items") {
            Member::Items
        } else if KEPT.iter().any(|kept| json::key_is(name, kept)) {
            Member::Kept(raw.to_vec())
        } else {
            Member::Skipped
        };
        self.place = Place::Colon(member);
        Ok(Progress::Made)
    }

    fn value(&mut self, member: Member) -> Result<Progress, ListWatchError> {
        let Some(end) = self.end_of_value()? else {
            match &member {
                Member::Skipped => {
                    self.buffer.clear();
                    // What comes next still belongs to this value: the scanner remembers where it stands.
                    self.scanned = 0;
                }
                Member::Kept(key) => self.check_envelope(key.len())?,
                Member::Items => {}
            }
            self.place = Place::Value(member);
            return Ok(Progress::NeedsMore);
        };
        let value = self.buffer.split_to(end);
        if let Member::Kept(key) = member {
            if self.envelope.len() + key.len() + value.len() > LARGEST_ENVELOPE {
                return Err(ENVELOPE_TOO_LARGE);
            }
            if self.envelope.len() > 1 {
                self.envelope.push(b',');
            }
            self.envelope.extend_from_slice(&key);
            self.envelope.push(b':');
            self.envelope.extend_from_slice(&value);
        }
        self.place = Place::AfterMember;
        Ok(Progress::Made)
    }

    fn item(&mut self, item: &mut impl FnMut(&[u8])) -> Result<Progress, ListWatchError> {
        let end = self.end_of_value()?;
        if end.unwrap_or(self.buffer.len()) > self.largest {
            return Err(ListWatchError::TooLarge { what: "an object of the list", limit: self.largest });
        }
        let Some(end) = end else {
            self.place = Place::Item;
            return Ok(Progress::NeedsMore);
        };
        item(json::trimmed(&self.buffer[..end]));
        self.buffer.advance(end);
        self.place = Place::AfterItem;
        Ok(Progress::Made)
    }

    /// Refuses to hold more of what describes the list than it may take.
    fn check_envelope(&self, key: usize) -> Result<(), ListWatchError> {
        let held = self.envelope.len() + key + self.buffer.len();
        if held > LARGEST_ENVELOPE { Err(ENVELOPE_TOO_LARGE) } else { Ok(()) }
    }

    fn end_of_value(&mut self) -> Result<Option<usize>, ListWatchError> {
        let begun = self.scanner.has_begun();
        match self.scanner.scan(&self.buffer[self.scanned..]) {
            Scan::Ends(ahead) => {
                let end = self.scanned + ahead;
                self.scanned = 0;
                if end == 0 && !begun { Err(unreadable("it is no JSON")) } else { Ok(Some(end)) }
            }
            Scan::GoesOn => {
                self.scanned = self.buffer.len();
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests;
