//! Rules as JSON, for programs that control the server from outside.

use std::time::Duration;

use serde::Deserialize;

use super::action::{Action, Fault};
use super::distort::{Distortion, Events, Garble, Mark};
use super::interrupt::Interruption;
use super::matcher::{Matcher, Verbs, When};
use super::registry::{Armed, Faults, Rule};
use super::reply::{StatusReply, TooLarge};
use crate::route::Verb;
use crate::store::Lag;

/// A rule in JSON.
///
/// ```json
/// {"verb": "watch", "resource": "configmaps", "namespace": "a", "nth": 2,
///  "fault": {"cut": {"afterEvents": 3, "atByte": 17}}}
/// ```
///
/// - `verb`: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, `read` and `write`
///   (each of these), `everything` (also paths without a resource) or `any`, which is the default;
/// - `resource` (the plural), `namespace`, `name`, `subresource`, `userAgent` (a part of it), `resourceVersion`: what
///   is absent matches all;
/// - `times`, `nth`, `every`, `probability` and `seed`: how often; each match when all are absent;
/// - `fault`: one of those below, times in milliseconds.
///
/// | Fault | With |
/// |---|---|
/// | `cut`, `reset`, `silence` | `afterEvents`, `atByte`, `afterList: true`, `midLine: true` |
/// | `status` | `code`, `reason`, `message`, `retryAfter`, `text: true`; in a watch: `as: "event"` or `"line"`, `afterEvents`, `goOn: true` |
/// | `tooLarge` | `form`: `causeReason`, `causeMessage` or `message`; and all of `status` |
/// | `skip`, `duplicate`, `reorder` | `only`: `any`, `changes`, `added`, `modified`, `deleted`, `bookmarks`, `initialEnd`; `afterEvents`, `events`, `chance`, `seed` |
/// | `replay`, `coalesce`, `garble`, `endMark` | the same, and `n`; `window`; `how`: `json`, `type`, `kind`, `object`, `identity`; `mark`: `absent`, `false` |
/// | `drip` | `bytes`, `period` |
/// | `stale` | `lags`, a list of `{"versions": n}`, `{"time": ms}`, `{"frozen": version}`; `evenConsistent: true` |
/// | `commitThenHold` | `time` |
/// | `commitThenDrop`, `bump`, `expiredToken`, `expiredTokenForGood`, `endlessList` | |
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
    resource_version: Option<String>,
    times: Option<u64>,
    nth: Option<u64>,
    every: Option<u64>,
    probability: Option<f64>,
    seed: Option<u64>,
    fault: FaultScript,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum VerbWord {
    #[default]
    Any,
    Everything,
    Read,
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
    Reset(PlaceScript),
    Silence(PlaceScript),
    Status(StatusScript),
    TooLarge(StatusScript),
    Skip(DistortScript),
    Duplicate(DistortScript),
    Reorder(DistortScript),
    Replay(DistortScript),
    Coalesce(DistortScript),
    Garble(DistortScript),
    EndMark(DistortScript),
    Drip(DripScript),
    Stale(StaleScript),
    CommitThenHold(HoldScript),
    CommitThenDrop {},
    Bump {},
    ExpiredToken {},
    ExpiredTokenForGood {},
    EndlessList {},
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DripScript {
    bytes: usize,
    period: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StaleScript {
    lags: Vec<LagScript>,
    #[serde(default)]
    even_consistent: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct HoldScript {
    time: Option<u64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct PlaceScript {
    after_events: u32,
    at_byte: Option<usize>,
    after_list: bool,
    mid_line: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StatusScript {
    code: Option<u16>,
    form: Option<TooLarge>,
    reason: Option<String>,
    message: Option<String>,
    retry_after: Option<u32>,
    #[serde(default)]
    text: bool,
    #[serde(rename = "as")]
    inside: Option<InsideWord>,
    #[serde(default)]
    after_events: u32,
    #[serde(default)]
    go_on: bool,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
enum InsideWord {
    Event,
    Line,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct DistortScript {
    n: Option<u32>,
    window: Option<u64>,
    how: Option<Garble>,
    mark: Option<Mark>,
    only: Option<Events>,
    after_events: u32,
    events: Option<u32>,
    chance: Option<f64>,
    seed: u64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
enum LagScript {
    Versions(u64),
    Time(u64),
    Frozen(u64),
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
            resource_version: self.resource_version,
        };
        let when = When { probability: self.probability, seed: self.seed.unwrap_or(0), ..When::default() };
        let mut rule = Rule::from_parts(faults.clone(), matcher, when);
        if let Some(nth) = self.nth {
            rule = rule.nth(nth);
        }
        if let Some(every) = self.every {
            rule = rule.every(every);
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
            VerbWord::Everything => Self::Everything,
            VerbWord::Read => Self::Reads,
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
            FaultScript::Reset(place) => place.at(Fault::Reset).into(),
            FaultScript::Silence(place) => place.at(Fault::Silence).into(),
            FaultScript::Status(script) => script.said(Fault::Status(500)),
            FaultScript::TooLarge(script) => {
                let form = script.form.unwrap_or(TooLarge::CauseReason);
                script.said(Fault::TooLarge(form))
            }
            FaultScript::Skip(script) => {
                let events = script.only.unwrap_or(Events::Changes);
                script.told(Fault::Skip(events))
            }
            FaultScript::Duplicate(script) => script.told(Fault::Duplicate),
            FaultScript::Reorder(script) => script.told(Fault::Reorder),
            FaultScript::Replay(script) => script.told(Fault::Replay(script.n.unwrap_or(1))),
            FaultScript::Coalesce(script) => {
                script.told(Fault::Coalesce(milliseconds(script.window.unwrap_or(1_000))))
            }
            FaultScript::Garble(script) => script.told(Fault::Garble(script.how.unwrap_or(Garble::Object))),
            FaultScript::EndMark(script) => script.told(Fault::EndMark(script.mark.unwrap_or(Mark::Absent))),
            FaultScript::Drip(DripScript { bytes, period }) => Fault::Drip(bytes, milliseconds(period)),
            FaultScript::Stale(StaleScript { lags, even_consistent }) => {
                let stale = Fault::Replicas(lags.into_iter().map(Lag::from));
                if even_consistent { stale.even_consistent().into() } else { stale.into() }
            }
            FaultScript::CommitThenHold(HoldScript { time: None }) => Fault::CommitThenHold.into(),
            FaultScript::CommitThenHold(HoldScript { time: Some(time) }) => {
                Fault::CommitThenHold.lasting(milliseconds(time)).into()
            }
            FaultScript::CommitThenDrop {} => Fault::CommitThenDrop,
            FaultScript::Bump {} => Fault::Bump,
            FaultScript::ExpiredToken {} => Fault::ExpiredToken,
            FaultScript::ExpiredTokenForGood {} => Fault::ExpiredTokenForGood,
            FaultScript::EndlessList {} => Fault::EndlessList,
        }
    }
}

fn milliseconds(time: u64) -> Duration {
    Duration::from_millis(time)
}

impl From<LagScript> for Lag {
    fn from(script: LagScript) -> Self {
        match script {
            LagScript::Versions(n) => Self::Versions(n),
            LagScript::Time(time) => Self::Time(milliseconds(time)),
            LagScript::Frozen(version) => Self::Frozen(version),
        }
    }
}

impl StatusScript {
    fn said(self, mut reply: StatusReply) -> Action {
        if let Some(code) = self.code {
            reply = reply.code(code);
        }
        if let Some(seconds) = self.retry_after {
            reply = reply.retry_after(seconds);
        }
        if let Some(reason) = self.reason {
            reply = reply.reason(reason);
        }
        if let Some(message) = self.message {
            reply = reply.message(message);
        }
        if self.text {
            reply = reply.text();
        }
        let saying = match self.inside {
            None => return reply.into(),
            Some(InsideWord::Event) => reply.as_event(),
            Some(InsideWord::Line) => reply.as_line(),
        };
        let saying = saying.after_events(self.after_events);
        if self.go_on { saying.and_go_on().into() } else { saying.into() }
    }
}

impl DistortScript {
    fn told(&self, distortion: Distortion) -> Action {
        let mut distortion = distortion.after_events(self.after_events);
        if let Some(only) = self.only {
            distortion = distortion.only(only);
        }
        if let Some(events) = self.events {
            distortion = distortion.events(events);
        }
        if let Some(chance) = self.chance {
            distortion = distortion.chance(chance, self.seed);
        }
        distortion.into()
    }
}

impl PlaceScript {
    fn at(self, interruption: Interruption) -> Interruption {
        let mut interruption = interruption.after_events(self.after_events);
        if let Some(byte) = self.at_byte {
            interruption = interruption.at_byte(byte);
        }
        if self.after_list {
            interruption = interruption.after_list();
        }
        if self.mid_line { interruption.mid_line() } else { interruption }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(fault: &str) -> String {
        let rule: RuleScript = serde_json::from_str(&format!("{{\"fault\": {fault}}}")).unwrap();
        Action::from(rule.fault).script()
    }

    #[test]
    fn every_fault_can_be_told_in_json_and_reads_as_code() {
        let table = [
            (r#"{"reset": {"atByte": 9}}"#, "Fault::Reset.at_byte(9)"),
            (
                r#"{"cut": {"atByte": 10000, "afterList": true, "midLine": true}}"#,
                "Fault::Cut.at_byte(10000).after_list().mid_line()",
            ),
            (
                r#"{"status": {"code": 410, "reason": "Gone", "as": "event", "afterEvents": 2, "goOn": true}}"#,
                r#"Fault::Status(410).reason("Gone").as_event().after_events(2).and_go_on()"#,
            ),
            (r#"{"status": {"code": 500, "as": "line"}}"#, "Fault::Status(500).as_line()"),
            (r#"{"tooLarge": {"form": "message"}}"#, "Fault::TooLarge(TooLarge::Message)"),
            (
                r#"{"tooLarge": {"form": "causeMessage", "code": 429, "text": true}}"#,
                "Fault::TooLarge(TooLarge::CauseMessage).code(429).text()",
            ),
            (r#"{"skip": {"only": "initialEnd"}}"#, "Fault::Skip(Events::InitialEnd)"),
            (r#"{"duplicate": {"chance": 0.5, "seed": 3}}"#, "Fault::Duplicate.chance(0.5, 3)"),
            (r#"{"reorder": {"events": 1}}"#, "Fault::Reorder.events(1)"),
            (r#"{"replay": {"n": 3, "only": "deleted"}}"#, "Fault::Replay(3).only(Events::Deleted)"),
            (r#"{"coalesce": {"window": 50}}"#, "Fault::Coalesce(Duration::from_millis(50))"),
            (
                r#"{"garble": {"how": "identity", "afterEvents": 1}}"#,
                "Fault::Garble(Garble::Identity).after_events(1)",
            ),
            (r#"{"endMark": {"mark": "false"}}"#, "Fault::EndMark(Mark::False)"),
            (r#"{"drip": {"bytes": 7, "period": 100}}"#, "Fault::Drip(7, Duration::from_millis(100))"),
            (r#"{"stale": {"lags": [{"versions": 3}]}}"#, "Fault::Stale(Lag::Versions(3))"),
            (
                r#"{"stale": {"lags": [{"time": 20}, {"frozen": 4}], "evenConsistent": true}}"#,
                "Fault::Replicas([Lag::Time(Duration::from_millis(20)), Lag::Frozen(4)]).even_consistent()",
            ),
            (r#"{"commitThenHold": {}}"#, "Fault::CommitThenHold"),
            (r#"{"commitThenHold": {"time": 9}}"#, "Fault::CommitThenHold.lasting(Duration::from_millis(9))"),
            (r#"{"bump": {}}"#, "Fault::Bump"),
            (r#"{"expiredToken": {}}"#, "Fault::ExpiredToken"),
            (r#"{"expiredTokenForGood": {}}"#, "Fault::ExpiredTokenForGood"),
            (r#"{"endlessList": {}}"#, "Fault::EndlessList"),
        ];
        for (told, reads) in table {
            assert_eq!(script(told), reads);
        }
    }
}
