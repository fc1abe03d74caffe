//! Events: what people read about an object.

use k8s_openapi::api::core::v1::ObjectReference;

use super::TypedObject;
use crate::object::{AsObject, Kind, ObjectKey, cut_to};

/// What Kubernetes lets a note hold, in bytes; a longer one is cut.
const LONGEST_NOTE: usize = 1_024;
/// What it lets a reason or an action hold.
const LONGEST_WORD: usize = 128;

/// How much an event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Weight {
    Normal,
    Warning,
}

impl Weight {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// Something that happened to an object, for `Context::event`: what `kubectl describe` and `kubectl events` show.
///
/// The reason is one word in CamelCase that programs compare, the note is for people. A note of more than 1,024
/// bytes is cut.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[must_use = "an event is sent once a context has it"]
pub struct Event {
    pub(super) weight: Weight,
    pub(super) reason: String,
    pub(super) note: String,
    pub(super) action: String,
    pub(super) related: Option<Referred>,
}

impl Event {
    /// Reports something that is as it should be.
    pub fn normal(reason: impl Into<String>, note: impl Into<String>) -> Self {
        Self::new(Weight::Normal, reason.into(), note.into())
    }

    /// Reports a problem.
    pub fn warning(reason: impl Into<String>, note: impl Into<String>) -> Self {
        Self::new(Weight::Warning, reason.into(), note.into())
    }

    fn new(weight: Weight, reason: String, note: String) -> Self {
        let (reason, note) = (word(reason), cut_to(note, LONGEST_NOTE));
        Self { weight, reason, note, action: "Reconcile".to_owned(), related: None }
    }

    /// Says what was being done, in one word of CamelCase: `Reconcile` unless it is said.
    pub fn action(mut self, action: impl Into<String>) -> Self {
        self.action = word(action.into());
        self
    }

    /// Names another object that it has to do with, such as the child that was made.
    pub fn related<Form, C: TypedObject>(mut self, object: &impl AsObject<Form, Object = C>) -> Self {
        let object = object.as_object();
        let uid = object.meta().uid.clone().unwrap_or_default();
        self.related = Some(Referred::new(&Kind::of::<C>(), &ObjectKey::of(object), uid));
        self
    }
}

/// Kubernetes refuses an empty one.
fn word(text: String) -> String {
    if text.is_empty() { "Unknown".to_owned() } else { cut_to(text, LONGEST_WORD) }
}

/// An object as events refer to it.
///
/// Without its version: the same of another version is the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Referred {
    api_version: String,
    kind: String,
    pub(super) key: ObjectKey,
    uid: String,
}

impl Referred {
    pub(crate) fn new(kind: &Kind, key: &ObjectKey, uid: String) -> Self {
        Self { api_version: kind.api_version(), kind: kind.kind.to_string(), key: key.clone(), uid }
    }

    pub(super) fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some(self.api_version.clone()),
            kind: Some(self.kind.clone()),
            name: Some(self.key.name().to_owned()),
            namespace: self.key.namespace().map(str::to_owned),
            uid: Some(self.uid.clone()).filter(|uid| !uid.is_empty()),
            ..ObjectReference::default()
        }
    }
}
