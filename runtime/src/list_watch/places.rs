//! Finds where an object says who and of what type it is, in the pass that checks it.

use std::ops::Range;

use super::{
    cut::deepest,
    json::{self, Json},
    scan::{Malformed, Scan, Scanner, Visitor},
};

/// Deepest nesting that `serde_json` reads.
const DEEPEST: usize = 127;

/// Most bytes of an object whose places fit into a `Span`.
pub(super) const LARGEST: usize = u32::MAX as usize;

/// Where in the text of an object its type and metadata stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Places {
    pub(super) api_version: Span,
    pub(super) kind: Span,
    pub(super) metadata: Span,
    pub(super) name: Span,
    pub(super) namespace: Span,
    pub(super) uid: Span,
    pub(super) version: Span,
    pub(super) labels: Span,
    pub(super) owners: Span,
    /// managedFields, with the comma that goes with them.
    pub(super) managed_fields: Span,
    /// Why nothing may be made of the object, though it is well-formed.
    pub(super) refused: Option<Refused>,
}

/// Why a well-formed object is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It says twice who or what it is: readers may disagree.
    Ambiguous,
    /// It is nested deeper than `serde_json` goes.
    TooDeep,
}

/// A value's place in a text; an empty one stands for what is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    start: u32,
    end: u32,
}

impl Span {
    fn new(start: usize, end: usize) -> Self {
        Self { start: short(start), end: short(end) }
    }

    pub(super) fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    pub(super) fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// Returns the value, where there is one.
    pub(super) fn of(self, text: &str) -> Option<Json<'_>> {
        (!self.is_empty()).then(|| Json::part(&text[self.range()]))
    }

    /// Leaves out the quotes of a string.
    pub(super) fn unquoted(self) -> Self {
        Self { start: self.start + 1, end: self.end - 1 }
    }

    /// Moves it to where it is once a part of the text is left out.
    fn without(self, left_out: Self) -> Self {
        let moved = |at: u32| if at >= left_out.end { at - (left_out.end - left_out.start) } else { at };
        Self { start: moved(self.start), end: moved(self.end) }
    }
}

/// Larger objects than [`LARGEST`] are refused before.
fn short(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

impl Places {
    /// Finds the places in a text that is known to be well-formed.
    pub(super) fn of(json: Json<'_>) -> Self {
        let mut finder = Finder::default();
        // A number alone has no end that is seen, and no places.
        let _ = finder.scan(json.as_str().as_bytes());
        finder.found()
    }

    /// Moves them to where they are once managedFields are left out.
    pub(super) fn without_managed_fields(self) -> Self {
        let moved = |span: Span| if span.is_empty() { span } else { span.without(self.managed_fields) };
        Self {
            api_version: moved(self.api_version),
            kind: moved(self.kind),
            metadata: moved(self.metadata),
            name: moved(self.name),
            namespace: moved(self.namespace),
            uid: moved(self.uid),
            version: moved(self.version),
            labels: moved(self.labels),
            owners: moved(self.owners),
            managed_fields: Span::default(),
            refused: self.refused,
        }
    }

    fn place(&mut self, member: Member) -> Option<&mut Span> {
        Some(match member {
            Member::ApiVersion => &mut self.api_version,
            Member::Kind => &mut self.kind,
            Member::Metadata => &mut self.metadata,
            Member::Name => &mut self.name,
            Member::Namespace => &mut self.namespace,
            Member::Uid => &mut self.uid,
            Member::Version => &mut self.version,
            Member::Labels => &mut self.labels,
            Member::Owners => &mut self.owners,
            Member::ManagedFields => &mut self.managed_fields,
            Member::Other => return None,
        })
    }
}

/// Returns whether a well-formed text is nested deeper than `serde_json` goes, which does not count what a type ignores.
pub(super) fn is_too_deep(json: &str) -> bool {
    let count = |bracket| memchr::memchr_iter(bracket, json.as_bytes()).count();
    count(b'{') + count(b'[') > DEEPEST && deepest(json.as_bytes()) > DEEPEST
}

/// Checks an object, and finds its places on the way; see [`Scanner`].
#[derive(Debug, Default)]
pub(super) struct Finder {
    scanner: Scanner,
    visitor: Found,
}

impl Finder {
    pub(super) fn scan(&mut self, text: &[u8]) -> Result<Scan, Malformed> {
        self.scanner.scan(text, &mut self.visitor)
    }

    pub(super) fn found(self) -> Places {
        let mut places = self.visitor.places;
        if self.scanner.deepest() > DEEPEST {
            places.refused.get_or_insert(Refused::TooDeep);
        }
        places
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Member {
    ApiVersion,
    Kind,
    Metadata,
    Name,
    Namespace,
    Uid,
    Version,
    Labels,
    Owners,
    ManagedFields,
    #[default]
    Other,
}

/// What has been found so far.
#[derive(Debug, Default)]
struct Found {
    places: Places,
    /// The member of the object that is being read, and that of its metadata.
    outer: Member,
    inner: Member,
    /// Where their values began.
    began: [usize; 2],
    /// Where the key of the present member of the metadata began.
    key: usize,
    /// Where the member of the metadata before it ended; 0 where there is none.
    before: usize,
    leading: Leading,
}

/// Whether managedFields stand first, with a comma behind them that goes with them.
#[derive(Debug, Default, PartialEq)]
enum Leading {
    #[default]
    No,
    Yes,
}

impl Visitor for Found {
    fn key(&mut self, level: usize, text: &[u8], key: Range<usize>) {
        match level {
            1 => self.outer = member(&text[key], Member::outer),
            2 if self.outer == Member::Metadata => {
                self.key = key.start - 1;
                if std::mem::take(&mut self.leading) == Leading::Yes {
                    self.places.managed_fields.end = short(self.key);
                }
                self.inner = member(&text[key], Member::inner);
            }
            _ => {}
        }
    }

    fn begins(&mut self, level: usize, at: usize) {
        if let Some(began) = level.checked_sub(1).and_then(|at| self.began.get_mut(at)) {
            *began = at;
        }
        if level == 1 {
            (self.inner, self.before, self.leading) = (Member::Other, 0, Leading::No);
        }
    }

    fn ends(&mut self, level: usize, at: usize) {
        let (member, span) = match level {
            1 => (self.outer, Span::new(self.began[0], at)),
            2 if self.outer == Member::Metadata => {
                let before = std::mem::replace(&mut self.before, at);
                match self.inner {
                    Member::ManagedFields if before == 0 => {
                        self.leading = Leading::Yes;
                        (self.inner, Span::new(self.key, at))
                    }
                    Member::ManagedFields => (self.inner, Span::new(before, at)),
                    inner => (inner, Span::new(self.began[1], at)),
                }
            }
            _ => return,
        };
        if let Some(place) = self.places.place(member)
            && !std::mem::replace(place, span).is_empty()
        {
            self.places.refused = Some(Refused::Ambiguous);
        }
    }
}

impl Member {
    /// Recognises a member of an object by its key.
    pub(super) fn outer(key: &[u8]) -> Self {
        match key {
            b"metadata" => Self::Metadata,
            b"apiVersion" => Self::ApiVersion,
            b"kind" => Self::Kind,
            _ => Self::Other,
        }
    }

    /// Recognises a member of an object's metadata by its key.
    pub(super) fn inner(key: &[u8]) -> Self {
        match key {
            b"name" => Self::Name,
            b"namespace" => Self::Namespace,
            b"uid" => Self::Uid,
            b"resourceVersion" => Self::Version,
            b"labels" => Self::Labels,
            b"ownerReferences" => Self::Owners,
            b"managedFields" => Self::ManagedFields,
            _ => Self::Other,
        }
    }

    /// Returns the bit that stands for it in a set; none for those that say nothing of who an object is.
    pub(super) fn bit(self) -> u16 {
        if self == Self::Other { 0 } else { 1 << self as u16 }
    }
}

/// Recognises a key as it stands between its quotes, which may be spelled with escapes.
fn member(key: &[u8], of: fn(&[u8]) -> Member) -> Member {
    let known = of(key);
    if known != Member::Other || !key.contains(&b'\\') {
        return known;
    }
    let key = std::str::from_utf8(key).ok().and_then(json::unescaped);
    key.map_or(Member::Other, |key| of(key.as_bytes()))
}

#[cfg(test)]
mod tests;
