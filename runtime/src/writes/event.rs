//! Events: what people read about an object.

use super::{TypedObject, child::UniqueObject};
use crate::object::{AsObject, Kind, ObjectKey, cut_to};

/// What Kubernetes lets a note hold, in bytes; a longer one is cut.
const LONGEST_NOTE: usize = 1_024;
/// What it lets a reason or an action hold.
const LONGEST_WORD: usize = 128;

/// Something that happened to an object, for `Context::event`: what `kubectl describe` and `kubectl events` show.
///
/// The reason is one word in CamelCase that programs compare, the note is for people. A note of more than 1,024
/// bytes is cut.
///
/// ```
/// use watchkeeper::prelude::*;
///
/// let event = Event::warning("NoPassword", "the Secret key does not exist").action("Connecting");
/// # let _ = event;
/// ```
///
/// The book has more: [status, conditions, events](https://github.com/watchkeeper/watchkeeper/blob/main/book/src/tutorial/status.md).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[must_use = "an event is sent once a context has it"]
pub struct Event {
    /// `Normal` or `Warning`.
    pub(super) type_: &'static str,
    pub(super) reason: String,
    pub(super) note: String,
    pub(super) action: String,
    pub(super) related: Option<UniqueObject>,
}

impl Event {
    /// Reports something that is as it should be.
    pub fn normal(reason: impl Into<String>, note: impl Into<String>) -> Self {
        Self::new("Normal", reason.into(), note.into())
    }

    /// Reports a problem.
    pub fn warning(reason: impl Into<String>, note: impl Into<String>) -> Self {
        Self::new("Warning", reason.into(), note.into())
    }

    fn new(type_: &'static str, reason: String, note: String) -> Self {
        let (reason, note) = (word(reason), cut_to(note, LONGEST_NOTE));
        Self { type_, reason, note, action: "Reconcile".to_owned(), related: None }
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
        self.related = Some(UniqueObject { kind: Kind::of::<C>(), key: ObjectKey::of(object), uid });
        self
    }
}

/// Kubernetes refuses an empty one.
fn word(text: String) -> String {
    if text.is_empty() { "Unknown".to_owned() } else { cut_to(text, LONGEST_WORD) }
}
