//! What the answers of the server tell about the operator: what it made, changed and has seen.

use serde_json::Value;
use tokio::time::Instant;
use watchkeeper_apiserver::Verb;
use watchkeeper_apiserver::inside::{RequestInfo, object};

use crate::diff::{self, changed_fields};
use crate::harness::{DELETED, Harness, RunState};
use crate::hidden;
use crate::life::Version;
use crate::recording;
use crate::timeline::Actor;
use crate::world::{MACHINERY, seen_as};

/// How many requests of one kind about such objects a story shows.
const TOLD: u32 = 4;

/// A request, and who sent it.
pub(crate) struct Exchange<'a> {
    pub(crate) harness: &'a Harness,
    pub(crate) info: &'a RequestInfo,
    pub(crate) name: &'a str,
    pub(crate) body: &'a [u8],
    /// Actor tells of the answer.
    pub(crate) hears: Actor,
    /// The request was written by kube's own client.
    pub(crate) of_kube: bool,
}

impl Exchange<'_> {
    /// Records an answer; `version` and `before` are what the server had before.
    pub(crate) fn note(&self, code: u16, version: u64, before: Option<&Value>, answer: Option<&Value>) {
        let failed = code >= 400 && !(code == 404 && self.info.verb == Some(Verb::Get));
        let writes = self.info.verb.is_some_and(Verb::writes);
        let after = answer.filter(|_| writes && code < 300);
        let risen = |after: &Value| {
            object::text(after, "resourceVersion").parse::<u64>().is_ok_and(|now| now > version)
        };
        let deletes = matches!(self.info.verb, Some(Verb::Delete | Verb::DeleteCollection));
        let deleted = |after: &Value| {
            let of_all = after["items"].as_array().is_none_or(|items| !items.is_empty());
            deletes && (of_all || self.info.verb == Some(Verb::Delete))
        };
        let changed = after.is_some_and(|after| risen(after) || deleted(after));
        // Leader election and events are not what a trial judges.
        let is_machinery = MACHINERY.contains(&self.info.resource.as_str());
        if failed && !is_machinery {
            self.harness.disturb(|| format!("{} → {code}", self.name));
        }
        if changed && !is_machinery {
            self.harness.disturb(|| format!("{} changed something", self.name));
            self.harness.state().changes += 1;
        }
        if let Some(after) = after {
            self.wrote(before, after, changed, deletes);
            if changed {
                self.harness.written(&self.info.resource, before, after, version);
            }
        }
        let is_told = self.harness.state().tell && self.hears.is_operator();
        if changed && is_told && !is_machinery {
            let kind = |value: &Value| value["kind"].clone();
            let alike = before.is_none_or(|before| answer.is_some_and(|after| kind(after) == kind(before)));
            let lines = match after.filter(|_| !deletes) {
                Some(after) if alike => {
                    let not_recorded = self.harness.state().not_recorded.clone();
                    let shown =
                        |object| hidden::shown(&not_recorded, &self.info.group, &self.info.resource, object);
                    recording::effect(before.map(shown).as_ref(), &shown(after))
                }
                Some(_) => Vec::new(),
                None => vec!["- the whole object".to_owned()],
            };
            if !lines.is_empty() {
                self.harness.keep_effect(self.name, lines);
            }
        }
        let version = if self.hears == Actor::New { Version::New } else { Version::Old };
        let often = self.harness.state().count(&version.request(self.name)) > TOLD;
        if !(is_machinery && often && code < 300) {
            self.harness.tell(self.hears, || self.line(code, before, answer, changed));
        }
        if self.hears.is_operator() && code < 300 {
            self.saw(answer);
        }
    }

    /// Keeps what was made, what was sent, and whose it was.
    fn wrote(&self, before: Option<&Value>, after: &Value, changed: bool, deletes: bool) {
        let mut state = self.harness.state();
        if changed && self.hears.is_operator() {
            self.take_for_its_own(&mut state, before, after, deletes);
        }
        let uid = object::uid(after).to_owned();
        if before.is_none() && !deletes && !uid.is_empty() && self.info.subresource.is_empty() {
            state.made.insert(uid);
        } else if changed
            && let Some(before) = before
            && !state.made.contains(object::uid(before))
        {
            let resource = self.info.resource.clone();
            let fields = if deletes { vec![DELETED.to_owned()] } else { changed_fields(before, after) };
            // Which of the objects that a recording begins with are its own is not known: it may let go of them.
            let is_recorded = state.recorded.contains(object::uid(before));
            for field in fields.into_iter().filter(|field| !is_recorded || field != "metadata.finalizers") {
                state.write_foreign((resource.clone(), field), self.name);
            }
        } else if changed && self.info.verb == Some(Verb::DeleteCollection) {
            let items = after["items"].as_array().into_iter().flatten();
            let is_foreign = items.clone().any(|item| !state.made.contains(object::uid(item)));
            if is_foreign {
                state.write_foreign((self.info.resource.clone(), DELETED.to_owned()), self.name);
            }
        }
        if !deletes && let Some(sent) = read(self.body) {
            let key = object::key(object::namespace(after), object::name(after));
            let part = match self.info.subresource.as_str() {
                "" => String::new(),
                part => format!("/{part}"),
            };
            state.bodies.insert(format!("{} {key}{part}", self.info.resource), sent);
        }
    }

    /// Records a change that the operator knows to be its own.
    fn take_for_its_own(&self, state: &mut RunState, before: Option<&Value>, after: &Value, deletes: bool) {
        state.own.extend(object::text(after, "resourceVersion").parse::<u64>());
        state.deleted.extend(before.filter(|_| deletes).map(|gone| object::uid(gone).to_owned()));
    }

    /// Records what an answer has shown to the operator.
    fn saw(&self, answer: Option<&Value>) {
        let Some(answer) = answer else { return };
        let mut state = self.harness.state();
        if !state.tell {
            return;
        }
        let now = Instant::now();
        let one = [answer.clone()];
        let mut news = Vec::new();
        for item in answer["items"].as_array().map_or(&one[..], Vec::as_slice) {
            if let Some((key, version)) = seen_as(&self.info.resource, item) {
                let known = state.seen.insert(key.clone(), (version, now));
                if known.is_none_or(|(known, _)| known < version) {
                    news.push(format!("{key}, version {version}"));
                }
            }
        }
        if self.info.verb != Some(Verb::List) {
            return;
        }
        let is_last = object::text(answer, "continue").is_empty();
        if is_last {
            state.listed.insert(self.info.resource.clone());
        } else if self.of_kube && state.listed.contains(&self.info.resource) {
            drop(state);
            news.into_iter().for_each(|what| self.harness.paged(what));
        }
    }

    fn line(&self, code: u16, before: Option<&Value>, answer: Option<&Value>, changed: bool) -> String {
        let mut line = format!("{} → {code}", self.name);
        let writes = self.info.verb.is_some_and(Verb::writes);
        if let Some(answer) = answer {
            if code >= 400 {
                line += &format!(" {}", answer["message"].as_str().unwrap_or_default());
            } else if writes {
                let made = before.is_none() && self.info.name.is_none();
                let name = if made { format!(", made {}", object::name(answer)) } else { String::new() };
                let version = object::text(answer, "resourceVersion");
                line += &match changed {
                    true if version.is_empty() => ", gone".to_owned(),
                    true => format!("{name}, version {version}"),
                    false => ", nothing changed".to_owned(),
                };
            }
        }
        if let Some(before) = before.filter(|_| writes) {
            line += &self.staleness(before);
        }
        let deletes = matches!(self.info.verb, Some(Verb::Delete | Verb::DeleteCollection));
        // A subresource's own kind is not compared with its object.
        let alike = before.is_none_or(|before| answer.is_some_and(|after| after["kind"] == before["kind"]));
        if changed && !deletes && code < 300 && alike {
            for difference in diff::lines(before, answer) {
                line += &format!("\n{difference}");
            }
        }
        line
    }

    /// Says how far behind the operator's view of an object is.
    fn staleness(&self, before: &Value) -> String {
        let version = object::text(before, "resourceVersion").parse::<u64>().unwrap_or_default();
        let Some((key, _)) = seen_as(&self.info.resource, before) else { return String::new() };
        let state = self.harness.state();
        let since = state.written.get(&key).filter(|(last, _)| *last == version);
        let since =
            since.map_or(String::new(), |(_, at)| format!(", made {:.1} s ago", at.elapsed().as_secs_f64()));
        match state.seen.get(&key) {
            Some((known, _)) if *known < version => {
                format!("  [stale view: it knows version {known}; version {version} is there{since}]")
            }
            Some(_) => String::new(),
            None => {
                format!("  [stale view: it knows nothing of this object; version {version} is there{since}]")
            }
        }
    }
}

/// Reads what was sent: JSON, or YAML as applies may be.
pub(crate) fn read(body: &[u8]) -> Option<Value> {
    serde_json::from_slice(body).ok().or_else(|| serde_yaml_ng::from_slice(body).ok())
}
