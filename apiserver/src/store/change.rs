//! Changes: versions of objects, and what led from one to the next.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use serde::ser::{SerializeMap as _, Serializer as _};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;

use super::recent::{Recent, SeenTicket};
use super::resource_id::ResourceId;
use crate::limits;
use crate::selector::TextFilter;

/// Names one way an object is written: a served version and a shape of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FormKey {
    /// The served version's own number.
    pub(crate) served: u64,
    /// The shape.
    pub(crate) shape: u8,
}

/// Bytes made once for each form and shared by all readers.
#[derive(Debug)]
pub(crate) struct FormCache<K>(Mutex<Vec<(K, Bytes)>>);

impl<K> Default for FormCache<K> {
    fn default() -> Self {
        Self(Mutex::new(Vec::new()))
    }
}

impl<K: PartialEq> FormCache<K> {
    /// Drops all bytes; they are made again on demand.
    pub(super) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Returns the bytes of a form, making them the first time.
    pub(crate) fn get(&self, key: K, make: impl FnOnce() -> Bytes) -> Bytes {
        let mut forms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, bytes)) = forms.iter().find(|(k, _)| *k == key) {
            return bytes.clone();
        }
        let bytes = make();
        forms.push((key, bytes.clone()));
        bytes
    }
}

/// The lines of one change, each made once for all followers of its form.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// The form that was requested first: most followers share one.
    first: OnceLock<(LineKey, Bytes)>,
    others: FormCache<LineKey>,
}

/// A form, and the number of an event's type.
type LineKey = (FormKey, u8);

impl Lines {
    /// Returns the line of a form, making it the first time.
    pub(crate) fn get(&self, key: LineKey, make: impl Fn() -> Bytes) -> Bytes {
        let (first, bytes) = self.first.get_or_init(|| (key, make()));
        if *first == key { bytes.clone() } else { self.others.get(key, make) }
    }
}

/// The kind and version that objects carry, once for all that carry the same.
#[derive(Debug, PartialEq)]
pub(super) struct Head {
    api_version: Option<Value>,
    kind: Option<Value>,
}

impl Head {
    /// Reads them from an object.
    pub(super) fn of(value: &Value) -> Self {
        Self { api_version: value.get("apiVersion").cloned(), kind: value.get("kind").cloned() }
    }

    /// Returns whether an object carries the same.
    pub(super) fn is_of(&self, value: &Value) -> bool {
        self.api_version.as_ref() == value.get("apiVersion") && self.kind.as_ref() == value.get("kind")
    }
}

/// How often the server itself reads an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// On demand.
    Seldom,
    /// Together with requests for other versions: its value is at hand.
    EveryTurn,
}

impl Use {
    /// Adds a resource's form.
    pub(super) fn of(id: &ResourceId) -> Self {
        match &*id.group {
            "rbac.authorization.k8s.io" | "admissionregistration.k8s.io" | "apiextensions.k8s.io" => {
                Self::EveryTurn
            }
            "" if &*id.plural == "namespaces" => Self::EveryTurn,
            _ => Self::Seldom,
        }
    }
}

/// One version of one object; never changed.
#[derive(Debug)]
pub(crate) struct Stored {
    /// The storage key, `namespace/name` or the name.
    pub(crate) key: Arc<str>,
    /// The version that wrote it.
    pub(crate) version: u64,
    /// Its encoded forms besides the text.
    pub(crate) forms: FormCache<FormKey>,
    text: Box<[u8]>,
    head: Arc<Head>,
    ticket: SeenTicket,
    /// The value of an object that is read often, or nested too deeply to be parsed again.
    pinned: Option<Arc<Value>>,
    recent: Arc<Recent>,
    /// The conversions by webhooks, by the number of the served version.
    converted: OnceLock<Box<Mutex<Converted>>>,
}

type Converted = Vec<(u64, Arc<Value>)>;

impl Stored {
    /// Keeps an object, `resourceVersion` included.
    pub(super) fn new(
        (key, version): (Arc<str>, u64),
        value: Value,
        head: Arc<Head>,
        use_of_it: Use,
        recent: &Arc<Recent>,
    ) -> Self {
        let (text, value) = (text(&value), Arc::new(value));
        let pinned = (use_of_it == Use::EveryTurn || is_deeper(&value, limits::DEPTH)).then(|| value.clone());
        let ticket = SeenTicket::default();
        if pinned.is_none() {
            recent.keep(&ticket, value, text.len());
        }
        Self {
            key,
            version,
            forms: FormCache::default(),
            text,
            head,
            ticket,
            pinned,
            recent: recent.clone(),
            converted: OnceLock::new(),
        }
    }

    /// Returns the object, `resourceVersion` included.
    pub(crate) fn value(&self) -> Arc<Value> {
        if let Some(value) = &self.pinned {
            return value.clone();
        }
        if let Some(value) = self.recent.get(&self.ticket) {
            return value;
        }
        let value = Arc::new(self.parse());
        self.recent.keep(&self.ticket, value.clone(), self.text.len());
        value
    }

    /// Returns an object that is [of use at every turn](Use::EveryTurn); null for others.
    pub(crate) fn pinned(&self) -> &Value {
        self.pinned.as_deref().unwrap_or(&Value::Null)
    }

    /// Returns the version that it is written in.
    pub(crate) fn api_version(&self) -> Option<&str> {
        self.head.api_version.as_ref()?.as_str()
    }

    /// Returns the conversion by a webhook to a served version.
    pub(crate) fn converted(&self, served: u64) -> Option<Arc<Value>> {
        let all = self.converted.get()?.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().find(|(id, _)| *id == served).map(|(_, value)| value.clone())
    }

    /// Stores the conversion by a webhook.
    pub(crate) fn note_converted(&self, served: u64, value: Value) {
        let all = self.converted.get_or_init(Box::default);
        all.lock().unwrap_or_else(PoisonError::into_inner).push((served, Arc::new(value)));
    }

    /// Returns the length of its JSON, in bytes.
    pub(super) fn length(&self) -> usize {
        self.text.len()
    }

    /// Returns its JSON without the opening brace, `kind` and `apiVersion`.
    pub(crate) fn tail(&self) -> &[u8] {
        &self.text[1..]
    }

    /// Returns the metadata that is selected by: name, namespace and labels, under `metadata`.
    ///
    /// Cheaper than the whole value, if that is not at hand.
    pub(crate) fn outline(&self) -> Arc<Value> {
        if let Some(value) = self.pinned.clone().or_else(|| self.recent.get(&self.ticket)) {
            return value;
        }
        // This text was written as JSON; deeply nested values are kept.
        let outline: Outline = serde_json::from_slice(&self.text).unwrap_or_default();
        Arc::new(serde_json::to_value(outline).unwrap_or_default())
    }

    /// Returns whether its labels may match a selector, by searching its text.
    pub(crate) fn may_fit(&self, filter: &TextFilter) -> bool {
        filter.passes(&self.text)
    }

    fn parse(&self) -> Value {
        let mut value: Value = serde_json::from_slice(&self.text).expect("it was written as JSON");
        if let Some(map) = value.as_object_mut() {
            let Head { api_version, kind } = &*self.head;
            for (name, given) in [("apiVersion", api_version), ("kind", kind)] {
                if let Some(given) = given {
                    map.insert(name.to_owned(), given.clone());
                }
            }
        }
        value
    }
}

fn is_deeper(value: &Value, than: usize) -> bool {
    match (value, than.checked_sub(1)) {
        (Value::Object(_) | Value::Array(_), None) => true,
        (Value::Object(map), Some(rest)) => map.values().any(|value| is_deeper(value, rest)),
        (Value::Array(list), Some(rest)) => list.iter().any(|value| is_deeper(value, rest)),
        _ => false,
    }
}

/// The fields of an object that selectors read.
#[derive(Default, Deserialize, Serialize)]
struct Outline {
    #[serde(default)]
    metadata: OutlineMetadata,
}

#[derive(Default, Deserialize, Serialize)]
struct OutlineMetadata {
    name: Option<Value>,
    namespace: Option<Value>,
    labels: Option<Value>,
}

/// Writes an object without its `kind` and `apiVersion`.
fn text(value: &Value) -> Box<[u8]> {
    let mut out = Vec::with_capacity(1024);
    if without_type(value, &mut out).is_err() {
        out = b"{}".to_vec();
    }
    // A copy of the right size: unused capacity would stay allocated as long as the text.
    Box::from(&out[..])
}

/// Writes an object from behind its `kind` and `apiVersion` to its end.
pub(crate) fn tail(value: &Value) -> Bytes {
    Bytes::from(text(value)).slice(1..)
}

/// Writes a map without `apiVersion` and `kind`.
fn without_type(value: &Value, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
    let mut serializer = serde_json::Serializer::new(out);
    let mut map = serializer.serialize_map(None)?;
    for (key, value) in value.as_object().into_iter().flatten() {
        if key != "apiVersion" && key != "kind" {
            map.serialize_entry(key, value)?;
        }
    }
    map.end()
}

/// The kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ChangeKind {
    /// Wrote it.
    Put,
    /// Removed it.
    Delete,
}

/// One change of one object.
#[derive(Debug)]
pub(crate) struct Change {
    /// The version of the change.
    pub(crate) version: u64,
    /// The moment of it.
    pub(crate) at: Instant,
    /// The kind of change.
    pub(crate) kind: ChangeKind,
    /// The new state; for a deletion the last state at the deletion's version.
    pub(crate) object: Arc<Stored>,
    /// The state before.
    pub(crate) previous: Option<Arc<Stored>>,
    /// Encoded event lines, by form and event type.
    pub(crate) lines: Lines,
}
