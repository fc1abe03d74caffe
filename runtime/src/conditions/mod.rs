//! Conditions of a status: what is true of an object, since when, and for which generation.
//!
//! They have the form that Kubernetes uses: a list of `metav1.Condition` with one element per type. Each writer sets its
//! own types.

use std::{borrow::Cow, ops::Deref};

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition as MetaCondition, Time},
    jiff::{Timestamp, TimestampRound, Unit},
};
use kube::Resource as _;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, Serializer};

use crate::{
    clock::WallClock,
    object::{AsObject, cut_to},
};

/// The longest message; a longer one is cut.
const LONGEST_MESSAGE: usize = 32_768;
/// The type of the condition that sums up the others.
const READY: &str = "Ready";

/// Whether the statement of a condition is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionStatus {
    /// It is true.
    True,
    /// It is false.
    False,
    /// It is not known at present.
    Unknown,
}

impl ConditionStatus {
    /// Returns the text that objects have.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for ConditionStatus {
    fn from(is_so: bool) -> Self {
        if is_so { Self::True } else { Self::False }
    }
}

/// One statement about an object, for [`Conditions::set`].
///
/// The reason is one CamelCase word that programs compare. The message is for people.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a condition has no effect until it is set"]
pub struct Condition {
    type_: String,
    status: ConditionStatus,
    reason: String,
    message: String,
    observed_generation: Option<i64>,
}

impl Condition {
    /// Makes a condition of any type: `Condition::new("Available", ready > 0, "Serving", "..")`.
    pub fn new(
        type_: impl Into<String>,
        status: impl Into<ConditionStatus>,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            type_: type_.into(),
            status: status.into(),
            reason: reason.into(),
            message: cut_to(message.into(), LONGEST_MESSAGE),
            observed_generation: None,
        }
    }

    /// Makes the condition `Ready` with the status `True`: the object is as it was asked for.
    pub fn ready(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(READY, ConditionStatus::True, reason, message)
    }

    /// Makes the condition `Ready` with the status `False`.
    pub fn not_ready(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(READY, ConditionStatus::False, reason, message)
    }

    /// Makes the condition `Ready` with the status `Unknown`.
    pub fn unknown(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(READY, ConditionStatus::Unknown, reason, message)
    }

    /// Sets the observed generation to that of an object.
    ///
    /// `kubectl wait` and other tools treat a condition with an older generation as outdated.
    pub fn of<Form>(mut self, object: &impl AsObject<Form>) -> Self {
        self.observed_generation = object.as_object().meta().generation;
        self
    }

    fn into_meta(self, since: Time) -> MetaCondition {
        MetaCondition {
            last_transition_time: since,
            message: self.message,
            observed_generation: self.observed_generation,
            reason: self.reason,
            status: self.status.as_str().to_owned(),
            type_: self.type_,
        }
    }
}

/// The conditions of a status: a field of your status type.
///
/// ```
/// use watchkeeper::{conditions::{Condition, Conditions}, prelude::*};
///
/// /// The state of a website.
/// #[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
/// struct WebsiteStatus {
///     #[serde(default)]
///     conditions: Conditions,
/// }
///
/// let mut status = WebsiteStatus::default(); // in a reconciler: `site.status.clone().unwrap_or_default()`
/// status.conditions.set(Condition::not_ready("Waiting", "1 of 3 pods are ready"));
/// let since = status.conditions[0].last_transition_time.clone();
/// status.conditions.set(Condition::not_ready("Waiting", "2 of 3 pods are ready"));
/// assert_eq!(status.conditions[0].last_transition_time, since, "it did not flip");
/// assert!(!status.conditions.is_true("Ready"));
/// ```
///
/// Start from the status that the object has, so that conditions of other writers stay. In a CRD this is a list of type
/// `map` with the key `type`, with the limits that Kubernetes has for conditions: for example, the server refuses a reason
/// that is not one word.
///
/// The book has more: [status, conditions, events](https://github.com/watchkeeper/watchkeeper/blob/main/book/src/tutorial/status.md).
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "Option<Vec<MetaCondition>>")]
pub struct Conditions(Vec<MetaCondition>);

impl Conditions {
    /// Sets a condition; the others stay as they are.
    ///
    /// If the condition is new or its status changes, the transition time becomes now; otherwise it stays. Now is the time of
    /// the [system's clock](WallClock::system), which follows tokio's clock if that is paused.
    pub fn set(&mut self, condition: Condition) {
        let now = Timestamp::try_from(WallClock::system().now()).unwrap_or(Timestamp::UNIX_EPOCH);
        self.set_at(condition, now);
    }

    /// Sets a condition like [`set`](Self::set), at a given time.
    pub fn set_at(&mut self, condition: Condition, now: Timestamp) {
        // Servers keep whole seconds, so what is read again equals what was written.
        let whole = now.round(TimestampRound::new().smallest(Unit::Second).mode(DOWN)).unwrap_or(now);
        match self.0.iter_mut().find(|current| current.type_ == condition.type_) {
            Some(current) => {
                let flips = current.status != condition.status.as_str();
                let since = if flips { Time(whole) } else { current.last_transition_time.clone() };
                *current = condition.into_meta(since);
            }
            None => self.0.push(condition.into_meta(Time(whole))),
        }
    }

    /// Removes a condition, if it is there.
    pub fn remove(&mut self, type_: &str) {
        self.0.retain(|current| current.type_ != type_);
    }

    /// Finds a condition.
    pub fn get(&self, type_: &str) -> Option<&MetaCondition> {
        self.0.iter().find(|current| current.type_ == type_)
    }

    /// Returns whether a condition is there and says `True`.
    pub fn is_true(&self, type_: &str) -> bool {
        self.says(type_, ConditionStatus::True)
    }

    /// Returns whether a condition is there and says `False`.
    pub fn is_false(&self, type_: &str) -> bool {
        self.says(type_, ConditionStatus::False)
    }

    fn says(&self, type_: &str, status: ConditionStatus) -> bool {
        self.get(type_).is_some_and(|current| current.status == status.as_str())
    }
}

const DOWN: k8s_openapi::jiff::RoundMode = k8s_openapi::jiff::RoundMode::Floor;

impl Deref for Conditions {
    type Target = [MetaCondition];

    fn deref(&self) -> &[MetaCondition] {
        &self.0
    }
}

impl From<Vec<MetaCondition>> for Conditions {
    fn from(conditions: Vec<MetaCondition>) -> Self {
        Self(conditions)
    }
}

/// A list that is null is empty.
impl From<Option<Vec<MetaCondition>>> for Conditions {
    fn from(conditions: Option<Vec<MetaCondition>>) -> Self {
        Self(conditions.unwrap_or_default())
    }
}

impl Serialize for Conditions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl JsonSchema for Conditions {
    fn schema_name() -> Cow<'static, str> {
        "Conditions".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Conditions of the object: what is true, since when, and for what generation.",
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
            "items": {
                "type": "object",
                "required": ["lastTransitionTime", "message", "reason", "status", "type"],
                "properties": {
                    "type": {
                        "description": "What is stated, in CamelCase, or as example.com/CamelCase.",
                        "type": "string",
                        "maxLength": 316,
                        "pattern": concat!(
                            r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?",
                            r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                        ),
                    },
                    "status": {
                        "description": "Whether it is so.",
                        "type": "string",
                        "enum": ["True", "False", "Unknown"],
                    },
                    "observedGeneration": {
                        "description": "The generation of the object that this was found of.",
                        "type": "integer",
                        "format": "int64",
                        "minimum": 0,
                    },
                    "lastTransitionTime": {
                        "description": "Since when the status is what it is.",
                        "type": "string",
                        "format": "date-time",
                    },
                    "reason": {
                        "description": "Why, in one word of CamelCase.",
                        "type": "string",
                        "minLength": 1,
                        "maxLength": 1024,
                        "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                    },
                    "message": {
                        "description": "Why, for people.",
                        "type": "string",
                        "maxLength": LONGEST_MESSAGE,
                    },
                },
            },
        })
    }
}

#[cfg(test)]
mod tests;
