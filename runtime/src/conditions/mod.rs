//! Conditions of a status: what is true of an object, since when, and as of which generation.
//!
//! Kubernetes' own form: `metav1.Condition` in a list with one element a type, of which each writer sets its own.

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

/// What a message may hold; a longer one is cut.
const LONGEST_MESSAGE: usize = 32_768;
/// The type of the condition that sums up the others.
const READY: &str = "Ready";

/// Whether what a condition's type names is so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionStatus {
    /// It is.
    True,
    /// It is not.
    False,
    /// Nobody knows at present.
    Unknown,
}

impl ConditionStatus {
    /// Returns the text that stands in objects.
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

/// One statement on an object, for [`Conditions::set`].
///
/// The reason is one word in CamelCase that programs compare, the message is for people.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a condition counts once it is set"]
pub struct Condition {
    type_: String,
    status: ConditionStatus,
    reason: String,
    message: String,
    observed_generation: Option<i64>,
}

impl Condition {
    /// States something by a type of one's own: `Condition::new("Available", ready > 0, "Serving", "..")`.
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

    /// States `Ready`: all that was asked for is there.
    pub fn ready(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(READY, ConditionStatus::True, reason, message)
    }

    /// States that it is not `Ready`.
    pub fn not_ready(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(READY, ConditionStatus::False, reason, message)
    }

    /// States that nobody knows whether it is `Ready`.
    pub fn unknown(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(READY, ConditionStatus::Unknown, reason, message)
    }

    /// Says of which object: its generation is the observed one.
    ///
    /// `kubectl wait` and the like take a condition of an older generation for outdated.
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
/// /// What is there.
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
/// Begin with the status that the object has, so that conditions which others set stay. In a definition it is a list
/// of type `map` by `type`, with the bounds that Kubernetes gives conditions: the server refuses a reason that is no
/// word.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "Option<Vec<MetaCondition>>")]
pub struct Conditions(Vec<MetaCondition>);

impl Conditions {
    /// Sets a condition; the others stay as they are.
    ///
    /// The transition time is now if the status is another one than before, or new; else it stays. Now is what the
    /// [system's clock](WallClock::system) says, which follows tokio's where that is paused.
    pub fn set(&mut self, condition: Condition) {
        let now = Timestamp::try_from(WallClock::system().now()).unwrap_or(Timestamp::UNIX_EPOCH);
        self.set_at(condition, now);
    }

    /// Sets a condition, as [`set`](Self::set) does, at a time that somebody else tells.
    pub fn set_at(&mut self, condition: Condition, now: Timestamp) {
        // As servers keep it: what is read again equals what was written.
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

    /// Removes a condition; one that is not there is removed already.
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
            "description": "What is true of the object, since when, and as of which generation.",
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
