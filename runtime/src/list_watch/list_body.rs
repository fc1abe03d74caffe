//! Reads the body of a list in chunks: items come out as they are complete.
//!
//! What is kept at any time is the unfinished item, and the few members that describe the list.

use bytes::{Buf, BytesMut};

use super::{
    cut::Cutter,
    error::ListWatchError,
    json::{Json, is_spelled},
    places::{Finder, Places},
    scan::{Malformed, Scan, is_blank},
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
    /// Reads the value that the buffer begins with.
    finder: Finder,
    place: Place,
    /// The kept members as an object, still without its closing bracket.
    envelope: String,
    items: ItemsMember,
    /// How items begin that are cut out and no more.
    usual: Vec<String>,
    cutter: Cutter,
    /// Most bytes of an item.
    largest: usize,
}

/// An item of a list.
pub(super) enum ItemText<'a> {
    /// Well-formed, with its places.
    Checked(&'a str, &'a Places),
    /// Cut out where it ends if it is well-formed.
    Usual(&'a str),
}

/// Where in the document the next token stands.
#[derive(Debug)]
enum Place {
    Start,
    /// Before the first key, or the end of a document without members.
    FirstKey,
    Key,
    /// After a key, before its colon.
    Colon(Member),
    Value(Member),
    /// After the value of a member.
    AfterMember,
    /// Before the first item, or the end of a list without items.
    FirstItem,
    Item,
    AfterItem,
    End,
}

#[derive(Debug)]
enum Member {
    Items,
    /// Its key, as it stands.
    Kept(String),
    /// Checked, and dropped.
    Dropped,
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

#[cfg(test)]
impl ItemText<'_> {
    fn text(&self) -> &str {
        match self {
            Self::Checked(text, _) | Self::Usual(text) => text,
        }
    }
}

fn unreadable(what: &str) -> ListWatchError {
    ListWatchError::Unreadable(what.to_owned())
}

/// Whether another token can be read from what has come.
enum Progress {
    Made,
    NeedsMore,
}

impl ListBody {
    /// Reads a list; items that begin in a usual way are left to be checked by whoever decodes them.
    pub(super) fn new(largest: usize, usual: Vec<String>) -> Self {
        Self {
            usual,
            cutter: Cutter::default(),
            buffer: BytesMut::new(),
            finder: Finder::default(),
            place: Place::Start,
            envelope: "{".to_owned(),
            items: ItemsMember::NotMet,
            largest,
        }
    }

    /// Takes a chunk, and hands over every item that is complete now.
    pub(super) fn feed(
        &mut self,
        chunk: &[u8],
        mut item: impl FnMut(ItemText<'_>),
    ) -> Result<(), ListWatchError> {
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
        envelope.push('}');
        let said = Json::part(&envelope);
        if status::is_status(said) {
            return Err(ListWatchError::from_status(status::read_status(said)));
        }
        if self.items == ItemsMember::NotMet {
            return Err(unreadable("it is no list: it has no items"));
        }
        match said.text_or_none("kind").as_deref() {
            Some("Table") => return Err(unreadable("it is a Table")),
            Some(_) => {}
            None => return Err(unreadable("its kind is no text")),
        }
        let metadata = said.member("metadata").ok_or_else(|| unreadable("it has no metadata"))?;
        let text = |name| {
            let text = metadata.is_object().then(|| metadata.text_or_none(name)).flatten();
            text.ok_or_else(|| unreadable("its metadata are not those of a list"))
        };
        let (resource_version, continue_token) = (text("resourceVersion")?, text("continue")?);
        let continue_token = Some(continue_token).filter(|token| !token.is_empty());
        Ok(ListHead { resource_version, continue_token })
    }

    fn step(&mut self, item: &mut impl FnMut(ItemText<'_>)) -> Result<Progress, ListWatchError> {
        let blanks = self.buffer.iter().take_while(|byte| is_blank(**byte)).count();
        self.buffer.advance(blanks);
        let Some(&next) = self.buffer.first() else { return Ok(Progress::NeedsMore) };
        match (std::mem::replace(&mut self.place, Place::Start), next) {
            (Place::Start, b'{') => self.token(Place::FirstKey),
            (Place::Start, _) => Err(unreadable("it is no JSON object")),
            (Place::FirstKey | Place::AfterMember, b'}') => self.token(Place::End),
            (Place::FirstKey | Place::Key, b'"') => self.key(),
            (Place::Colon(member), b':') => self.token(Place::Value(member)),
            (Place::Value(Member::Items), b'[') if self.items == ItemsMember::NotMet => {
                self.items = ItemsMember::Met;
                self.token(Place::FirstItem)
            }
            (Place::Value(Member::Items), b'n') if self.items == ItemsMember::NotMet => {
                self.items = ItemsMember::Met;
                self.value(Member::Dropped)
            }
            (Place::Value(Member::Items), _) => Err(unreadable("its items are no array")),
            (Place::Value(member), _) => self.value(member),
            (Place::AfterMember, b',') => self.token(Place::Key),
            (Place::FirstItem | Place::AfterItem, b']') => self.token(Place::AfterMember),
            (Place::FirstItem | Place::Item, _) => self.item(item),
            (Place::AfterItem, b',') => self.token(Place::Item),
            (Place::End, _) => Err(unreadable("something follows the list")),
            (Place::FirstKey | Place::Key | Place::Colon(_) | Place::AfterMember | Place::AfterItem, _) => {
                Err(unreadable(NO_JSON))
            }
        }
    }

    fn token(&mut self, place: Place) -> Result<Progress, ListWatchError> {
        self.buffer.advance(1);
        self.place = place;
        Ok(Progress::Made)
    }

    fn key(&mut self) -> Result<Progress, ListWatchError> {
        let Some((end, _)) = self.end_of_value()? else {
            self.check_envelope(0)?;
            self.place = Place::Key;
            return Ok(Progress::NeedsMore);
        };
        let key = text(&self.buffer[..end])?;
        let name = key.strip_prefix('"').and_then(|key| key.strip_suffix('"')).unwrap_or_default();
        let member = if is_spelled(name, "items") {
            Member::Items
        } else if KEPT.iter().any(|kept| is_spelled(name, kept)) {
            Member::Kept(key.to_owned())
        } else {
            Member::Dropped
        };
        self.buffer.advance(end);
        self.place = Place::Colon(member);
        Ok(Progress::Made)
    }

    fn value(&mut self, member: Member) -> Result<Progress, ListWatchError> {
        let key = if let Member::Kept(key) = &member { key.len() } else { 0 };
        let Some((end, _)) = self.end_of_value()? else {
            self.check_envelope(key)?;
            self.place = Place::Value(member);
            return Ok(Progress::NeedsMore);
        };
        let value = text(&self.buffer[..end])?;
        if let Member::Kept(key) = member {
            if self.envelope.len() + key.len() + value.len() > LARGEST_ENVELOPE {
                return Err(ENVELOPE_TOO_LARGE);
            }
            if self.envelope.len() > 1 {
                self.envelope.push(',');
            }
            self.envelope.extend([&key, ":", value]);
        }
        self.buffer.advance(end);
        self.place = Place::AfterMember;
        Ok(Progress::Made)
    }

    fn item(&mut self, item: &mut impl FnMut(ItemText<'_>)) -> Result<Progress, ListWatchError> {
        let end = match self.is_usual() {
            Some(true) => self.cutter.end(&self.buffer).map(|end| (end, None)),
            Some(false) => self.end_of_value()?.map(|(end, places)| (end, Some(places))),
            None => None,
        };
        if end.map_or(self.buffer.len(), |(end, _)| end) > self.largest {
            return Err(ListWatchError::TooLarge { what: "an object of the list", limit: self.largest });
        }
        let Some((end, places)) = end else {
            self.place = Place::Item;
            return Ok(Progress::NeedsMore);
        };
        let text = text(&self.buffer[..end])?;
        item(match &places {
            Some(places) => ItemText::Checked(text, places),
            None => ItemText::Usual(text),
        });
        self.cutter = Cutter::default();
        self.buffer.advance(end);
        self.place = Place::AfterItem;
        Ok(Progress::Made)
    }

    /// Tells whether the item that the buffer begins with does so in a usual way; `None` while it may.
    fn is_usual(&self) -> Option<bool> {
        let begins = |opening: &String| self.buffer.starts_with(opening.as_bytes());
        let may = |opening: &String| opening.as_bytes().starts_with(&self.buffer);
        match self.usual.iter().any(begins) {
            true => Some(true),
            false => (!self.usual.iter().any(may)).then_some(false),
        }
    }

    /// Refuses to hold more of what stands beside the items than it may take.
    fn check_envelope(&self, key: usize) -> Result<(), ListWatchError> {
        let held = self.envelope.len() + key + self.buffer.len();
        if held > LARGEST_ENVELOPE { Err(ENVELOPE_TOO_LARGE) } else { Ok(()) }
    }

    /// Finds the end of the value that the buffer begins with, and what stands where in it.
    fn end_of_value(&mut self) -> Result<Option<(usize, Places)>, ListWatchError> {
        match self.finder.scan(&self.buffer) {
            Ok(Scan::Ends(end)) => Ok(Some((end, std::mem::take(&mut self.finder).found()))),
            Ok(Scan::GoesOn) => Ok(None),
            Err(Malformed) => Err(unreadable(NO_JSON)),
        }
    }
}

const NO_JSON: &str = "it is no JSON";

/// Says that a list is none because an item of it is no JSON.
pub(super) fn malformed() -> ListWatchError {
    unreadable(NO_JSON)
}

fn text(bytes: &[u8]) -> Result<&str, ListWatchError> {
    std::str::from_utf8(bytes).map_err(|_| unreadable(NO_JSON))
}

#[cfg(test)]
mod tests;
