//! Changes: versions of objects, and what led from one to the next.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use serde_json::Value;
use tokio::time::Instant;

/// Names one way an object is written: a served version and a shape of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FormKey {
    /// The served version's own number.
    pub(crate) served: u64,
    /// Which of its shapes.
    pub(crate) shape: u8,
}

/// Bytes made once for each form and shared by all who ask.
#[derive(Debug)]
pub(crate) struct FormCache<K>(Mutex<Vec<(K, Bytes)>>);

impl<K> Default for FormCache<K> {
    fn default() -> Self {
        Self(Mutex::new(Vec::new()))
    }
}

impl<K: PartialEq> FormCache<K> {
    /// Gives the bytes of a form, making them the first time.
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

/// One version of one object; never changed.
#[derive(Debug)]
pub(crate) struct Stored {
    /// The storage key, `namespace/name` or the name.
    pub(crate) key: Arc<str>,
    /// The version that wrote it.
    pub(crate) version: u64,
    /// The object, `resourceVersion` included.
    pub(crate) value: Value,
    /// Its encoded forms.
    pub(crate) forms: FormCache<FormKey>,
}

/// What a change did to its object.
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
    /// What it did.
    pub(crate) kind: ChangeKind,
    /// The new state; for a deletion the last state at the deletion's version.
    pub(crate) object: Arc<Stored>,
    /// The state before.
    pub(crate) previous: Option<Arc<Stored>>,
    /// Encoded event lines, by form and event type.
    pub(crate) lines: FormCache<(FormKey, u8)>,
}
