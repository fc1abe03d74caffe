//! Sessions: the webhook answers that one request has received, and those that it waits for.

use std::time::Duration;

use serde_json::Value;

/// The most calls for one request: an object that changes all the time would never end.
const MOST_CALLS: usize = 200;

/// A call to be made.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    /// A call without its uid: equal calls have equal answers.
    pub(crate) key: String,
    /// The webhook's `clientConfig`.
    pub(crate) client: Value,
    /// The review to send.
    pub(crate) review: Value,
    /// How long an answer may take.
    pub(crate) timeout: Duration,
}

/// The answer to a call: a review, or the reason why it failed.
pub(crate) type Answer = Result<Value, String>;

/// The state that one request keeps from one attempt to the next.
#[derive(Debug, Default)]
pub(crate) struct Session {
    answers: Vec<(Call, Answer)>,
    wanted: Vec<Call>,
    warnings: Vec<String>,
    /// The letters behind a `generateName`.
    pub(crate) suffix: Option<String>,
    /// The uid of a new object.
    pub(crate) uid: Option<String>,
    /// The moment of the write.
    pub(crate) now: Option<String>,
}

impl Session {
    /// Returns the answer to a call and its uid; `None` requests the call.
    pub(crate) fn answer(&mut self, call: Call) -> Option<(String, Answer)> {
        let there = self.answers.iter().find(|(made, _)| made.key == call.key);
        match there {
            Some((made, answer)) => {
                let uid = made.review["request"]["uid"].as_str().unwrap_or_default().to_owned();
                Some((uid, answer.clone()))
            }
            None => {
                self.wanted.push(call);
                None
            }
        }
    }

    /// Takes the calls to make; `None` if there were too many already.
    pub(crate) fn take_wanted(&mut self) -> Vec<Call> {
        let wanted = std::mem::take(&mut self.wanted);
        if self.answers.len() + wanted.len() > MOST_CALLS { Vec::new() } else { wanted }
    }

    /// Notes the answers to calls.
    pub(crate) fn answered(&mut self, answers: Vec<(Call, Answer)>) {
        self.answers.extend(answers);
        self.warnings.clear();
    }

    /// Adds a text for a `Warning` header.
    pub(crate) fn warn(&mut self, text: &str) {
        self.warnings.push(text.to_owned());
    }

    /// Returns the texts for `Warning` headers.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }
}
