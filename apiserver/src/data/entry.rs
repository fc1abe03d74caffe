//! Entries: one change or fact, a line of JSON.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::store::{ChangeKind, ResourceId, Stored, Unsaved};

/// One line of a data file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) enum Entry<'a> {
    /// An object as it was written.
    Put { group: Cow<'a, str>, plural: Cow<'a, str>, key: Cow<'a, str>, object: Cow<'a, Value> },
    /// An object's end, at a version.
    Delete { group: Cow<'a, str>, plural: Cow<'a, str>, key: Cow<'a, str>, version: u64 },
    /// History up to a version is forgotten.
    Compacted(u64),
    /// A fact that is not part of an object.
    Fact(Cow<'a, Value>),
    /// The server was started; counts its starts.
    Started(u64),
    /// The end of a snapshot.
    End { version: u64, started: u64, entries: u64 },
}

impl<'a> Entry<'a> {
    fn object(id: &'a ResourceId, stored: &'a Stored) -> Self {
        Self::Put {
            group: Cow::Borrowed(&id.group),
            plural: Cow::Borrowed(&id.plural),
            key: Cow::Borrowed(&stored.key),
            object: Cow::Owned(Value::clone(&stored.value())),
        }
    }
}

impl<'a> From<&'a Unsaved> for Entry<'a> {
    fn from(unsaved: &'a Unsaved) -> Self {
        match unsaved {
            Unsaved::Change(id, change) => match change.kind {
                ChangeKind::Put => Self::object(id, &change.object),
                ChangeKind::Delete => Self::Delete {
                    group: Cow::Borrowed(&id.group),
                    plural: Cow::Borrowed(&id.plural),
                    key: Cow::Borrowed(&change.object.key),
                    version: change.version,
                },
            },
            Unsaved::Compacted(version) => Self::Compacted(*version),
            Unsaved::Fact(fact) => Self::Fact(Cow::Borrowed(fact)),
        }
    }
}

/// The whole state at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Image {
    /// The newest version.
    pub(crate) version: u64,
    /// How often a server was started on the file.
    pub(crate) started: u64,
    /// Every object.
    pub(crate) objects: Vec<(ResourceId, Arc<Stored>)>,
    /// What is kept in addition to the objects.
    pub(crate) facts: Vec<Value>,
}

impl Image {
    /// Returns the lines of the snapshot, its end left out.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let facts = self.facts.iter().map(|fact| Entry::Fact(Cow::Borrowed(fact)));
        self.objects.iter().map(|(id, stored)| Entry::object(id, stored)).chain(facts)
    }

    /// Returns the end of the snapshot.
    pub(super) fn end(&self) -> Entry<'static> {
        let entries = self.objects.len() + self.facts.len();
        Entry::End { version: self.version, started: self.started, entries: entries as u64 }
    }
}

/// Writes entries as lines, in parts of at most about `most` bytes.
pub(crate) fn lines<'a>(
    entries: impl IntoIterator<Item = Entry<'a>>,
    most: usize,
) -> impl Iterator<Item = Vec<u8>> {
    let mut entries = entries.into_iter();
    std::iter::from_fn(move || {
        let mut part = Vec::new();
        for entry in entries.by_ref() {
            serde_json::to_writer(&mut part, &entry).expect("an entry is JSON, and memory takes it");
            part.push(b'\n');
            if part.len() >= most {
                break;
            }
        }
        (!part.is_empty()).then_some(part)
    })
}
