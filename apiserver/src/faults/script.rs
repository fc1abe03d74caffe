//! Rules as JSON, for those who steer the server from outside.

use serde::Deserialize;

use super::action::{Action, Fault, Interruption};
use super::desk::{Armed, Faults};
use super::rule::{Matcher, Rule, Verbs, When};
use crate::route::Verb;

/// A rule in JSON.
///
/// ```json
/// {"verb": "watch", "resource": "configmaps", "namespace": "a", "nth": 2,
///  "fault": {"cut": {"afterEvents": 3, "atByte": 17}}}
/// ```
///
/// - `verb`: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, `write` (every
///   write) or `any`, which is also what its absence means;
/// - `resource` (the plural), `namespace`, `name`, `subresource`, `userAgent` (a part of it): what is absent
///   matches all;
/// - `times`, `nth`, `probability` and `seed`: how often; each match when all are absent;
/// - `fault`: one of `{"cut": {"afterEvents": N, "atByte": N}}`, `{"silence": {…}}` with the same places,
///   `{"status": {"code": 429, "retryAfter": 2, "text": true, "message": "…"}}`, `{"commitThenDrop": {}}`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RuleScript {
    #[serde(default)]
    verb: VerbWord,
    resource: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    subresource: Option<String>,
    user_agent: Option<String>,
    times: Option<u64>,
    nth: Option<u64>,
    probability: Option<f64>,
    seed: Option<u64>,
    fault: FaultScript,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum VerbWord {
    #[default]
    Any,
    Write,
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
enum FaultScript {
    Cut(PlaceScript),
    Silence(PlaceScript),
    Status(StatusScript),
    CommitThenDrop {},
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct PlaceScript {
    after_events: u32,
    at_byte: Option<usize>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StatusScript {
    code: u16,
    retry_after: Option<u32>,
    #[serde(default)]
    text: bool,
    message: Option<String>,
}

impl RuleScript {
    /// Arms the rule.
    pub fn arm(self, faults: &Faults) -> Armed {
        let matcher = Matcher {
            verbs: self.verb.into(),
            resource: self.resource.filter(|plural| plural != "*"),
            namespace: self.namespace,
            name: self.name,
            subresource: self.subresource,
            user_agent: self.user_agent,
        };
        let when = When { probability: self.probability, seed: self.seed.unwrap_or(0), ..When::default() };
        let mut rule = Rule::from_parts(faults.clone(), matcher, when);
        if let Some(nth) = self.nth {
            rule = rule.nth(nth);
        }
        if let Some(times) = self.times {
            rule = rule.times(times);
        }
        rule.then(self.fault)
    }
}

impl From<VerbWord> for Verbs {
    fn from(word: VerbWord) -> Self {
        match word {
            VerbWord::Any => Self::Any,
            VerbWord::Write => Self::Writes,
            VerbWord::Get => Self::One(Verb::Get),
            VerbWord::List => Self::One(Verb::List),
            VerbWord::Watch => Self::One(Verb::Watch),
            VerbWord::Create => Self::One(Verb::Create),
            VerbWord::Update => Self::One(Verb::Update),
            VerbWord::Patch => Self::One(Verb::Patch),
            VerbWord::Delete => Self::One(Verb::Delete),
            VerbWord::DeleteCollection => Self::One(Verb::DeleteCollection),
        }
    }
}

impl From<FaultScript> for Action {
    fn from(script: FaultScript) -> Self {
        match script {
            FaultScript::Cut(place) => place.at(Fault::Cut).into(),
            FaultScript::Silence(place) => place.at(Fault::Silence).into(),
            FaultScript::CommitThenDrop {} => Fault::CommitThenDrop,
            FaultScript::Status(script) => {
                let mut reply = Fault::Status(script.code);
                if let Some(seconds) = script.retry_after {
                    reply = reply.retry_after(seconds);
                }
                if let Some(message) = script.message {
                    reply = reply.message(message);
                }
                if script.text { reply.text().into() } else { reply.into() }
            }
        }
    }
}

impl PlaceScript {
    fn at(self, interruption: Interruption) -> Interruption {
        let interruption = interruption.after_events(self.after_events);
        match self.at_byte {
            Some(byte) => interruption.at_byte(byte),
            None => interruption,
        }
    }
}
