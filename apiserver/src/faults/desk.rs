//! The desk: armed rules, open streams, and what has fired.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::Response;
use tokio::sync::watch;

use super::action::{Action, Effect, Interrupt};
use super::rule::{Count, Matcher, Rule, Verbs, When};
use super::stream::{Plant, Tap};
use crate::route::{RequestInfo, Verb};

/// Writes and clears fault rules; a clone is the same desk.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    desk: Arc<Mutex<Desk>>,
}

#[derive(Debug, Default)]
struct Desk {
    rules: Vec<ArmedRule>,
    armed: u64,
    streams: BTreeMap<u64, Arc<Tap>>,
    opened: u64,
    log: Vec<Firing>,
}

#[derive(Debug)]
struct ArmedRule {
    id: u64,
    matcher: Matcher,
    action: Action,
    count: Count,
    /// Dropped with the rule: whoever waits for it goes on.
    healed: watch::Sender<()>,
}

/// What becomes of one request.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// It is served; the plants go into its answer.
    Serve(Vec<Plant>),
    /// It is answered so.
    Reply(Response<Bytes>),
    /// Its connection breaks.
    Drop,
    /// It is served, and its connection breaks.
    ServeThenDrop,
    /// It is served once the sender of this is gone.
    Hold(watch::Receiver<()>),
}

/// One firing of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Firing {
    /// The line that fires the same way at the same request again.
    pub script: String,
    /// The request it fired at, e.g. `watch deployments in shop`.
    pub request: String,
    /// The resource version the server, or the stream, had come to.
    pub version: u64,
}

impl fmt::Display for Firing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} // {} at version {}", self.script, self.request, self.version)
    }
}

impl Faults {
    /// Starts a rule about one verb on one resource, by its plural; `"*"` is any.
    pub fn on(&self, verb: Verb, resource: &str) -> Rule {
        Rule::new(self.clone(), Verbs::One(verb), resource)
    }

    /// Starts a rule about every verb on one resource, by its plural; `"*"` is any.
    pub fn on_any(&self, resource: &str) -> Rule {
        Rule::new(self.clone(), Verbs::Any, resource)
    }

    /// Starts a rule about every write of every resource.
    pub fn on_any_write(&self) -> Rule {
        Rule::new(self.clone(), Verbs::Writes, "*")
    }

    /// Disarms all rules and lets everything that is held back go on.
    ///
    /// The log stays.
    pub fn clear(&self) {
        let (rules, streams) = {
            let mut desk = self.lock();
            (std::mem::take(&mut desk.rules), desk.streams.values().cloned().collect::<Vec<_>>())
        };
        drop(rules);
        for tap in streams {
            tap.release_all();
        }
    }

    /// Lists what has fired, oldest first.
    #[must_use]
    pub fn log(&self) -> Vec<Firing> {
        self.lock().log.clone()
    }

    /// Writes what has fired as lines that, put into a test, fire alike.
    #[must_use]
    pub fn script(&self) -> String {
        self.lock().log.iter().map(|firing| format!("{firing}\n")).collect()
    }

    /// Gives the number of streams that are open.
    #[must_use]
    pub fn open_streams(&self) -> usize {
        self.lock().streams.values().filter(|tap| tap.info().verb == Some(Verb::Watch)).count()
    }

    pub(super) fn arm(&self, matcher: Matcher, when: When, action: Action) -> Armed {
        let mut desk = self.lock();
        desk.armed += 1;
        let id = desk.armed;
        let mut rule =
            ArmedRule { id, matcher, action, count: Count::new(when), healed: watch::Sender::new(()) };
        for tap in desk.streams.values().filter(|tap| tap.info().verb == Some(Verb::Watch)) {
            if let Some(plant) = rule.offer_stream(tap) {
                tap.plant(plant);
            }
        }
        desk.rules.push(rule);
        Armed { faults: self.clone(), id }
    }

    /// Decides about a request that has just come; `version` is the server's.
    pub(crate) fn judge(&self, info: &RequestInfo, user_agent: &str, version: u64) -> Verdict {
        let mut desk = self.lock();
        let Some(index) = desk.rules.iter_mut().position(|rule| rule.offer(info, user_agent)) else {
            return Verdict::Serve(Vec::new());
        };
        let rule = &desk.rules[index];
        let watching = info.verb == Some(Verb::Watch);
        let verdict = match &rule.action.0 {
            Effect::CommitThenDrop => Verdict::ServeThenDrop,
            Effect::Reply(reply) => Verdict::Reply(reply.to_response()),
            Effect::Interrupt(interruption) => match interruption.kind {
                Interrupt::Cut if interruption.immediate() => Verdict::Drop,
                Interrupt::Silence if interruption.immediate() && !watching => {
                    Verdict::Hold(rule.healed.subscribe())
                }
                Interrupt::Cut | Interrupt::Silence => {
                    // It is logged once it acts.
                    return Verdict::Serve(vec![Plant::new(*interruption, rule.id, rule.script())]);
                }
            },
        };
        let firing = Firing { script: rule.script(), request: describe(info), version };
        desk.note(firing);
        verdict
    }

    /// Opens a stream to the rules; those armed after `judged` get their say now.
    pub(crate) fn open(&self, tap: Tap, judged: u64) -> (u64, Arc<Tap>) {
        let tap = Arc::new(tap);
        let mut desk = self.lock();
        desk.opened += 1;
        let id = desk.opened;
        for rule in desk.rules.iter_mut().filter(|rule| rule.id > judged) {
            if let Some(plant) = rule.offer_stream(&tap) {
                tap.plant(plant);
            }
        }
        desk.streams.insert(id, Arc::clone(&tap));
        (id, tap)
    }

    pub(super) fn close(&self, stream: u64) {
        self.lock().streams.remove(&stream);
    }

    /// Gives the number of rules ever armed, for [`open`](Faults::open).
    pub(crate) fn armed(&self) -> u64 {
        self.lock().armed
    }

    pub(super) fn note(&self, firing: Firing) {
        self.lock().note(firing);
    }

    fn lock(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Desk {
    fn note(&mut self, firing: Firing) {
        tracing::info!(target: "watchkeeper_apiserver::faults", "{firing}");
        self.log.push(firing);
    }
}

impl ArmedRule {
    /// Offers a new request; true when the rule fires at it.
    fn offer(&mut self, info: &RequestInfo, user_agent: &str) -> bool {
        let streams_only = self.action.interruption().is_some_and(|i| i.place.events > 0);
        (!streams_only || info.verb == Some(Verb::Watch))
            && self.matcher.matches(info, user_agent)
            && self.count.fires()
    }

    /// Offers an open stream; gives what to plant when the rule fires at it.
    fn offer_stream(&mut self, tap: &Tap) -> Option<Plant> {
        let interruption = self.action.interruption()?;
        let fires = self.matcher.matches(tap.info(), tap.user_agent()) && self.count.fires();
        fires.then(|| Plant::new(interruption, self.id, self.script()))
    }

    /// Writes the line that fires at this very match again.
    fn script(&self) -> String {
        let (matcher, action) = (self.matcher.script(), self.action.script());
        format!("faults.{matcher}.nth({}).then({action});", self.count.seen())
    }
}

/// An armed rule; dropping this leaves it armed.
#[derive(Clone, Debug)]
pub struct Armed {
    faults: Faults,
    id: u64,
}

impl Armed {
    /// Gives the number of times the rule has fired; 0 once it is disarmed.
    #[must_use]
    pub fn fired(&self) -> u64 {
        let desk = self.faults.lock();
        desk.rules.iter().find(|rule| rule.id == self.id).map_or(0, |rule| rule.count.fired())
    }

    /// Disarms the rule and lets go on what it holds back.
    pub fn disarm(self) {
        let streams: Vec<_> = {
            let mut desk = self.faults.lock();
            desk.rules.retain(|rule| rule.id != self.id);
            desk.streams.values().cloned().collect()
        };
        for tap in streams {
            tap.release(self.id);
        }
    }
}

/// Says in words what a request is about.
pub(super) fn describe(info: &RequestInfo) -> String {
    let Some(verb) = info.verb else { return info.path.clone() };
    let mut out = format!("{verb} {}", info.resource);
    if !info.subresource.is_empty() {
        out += &format!("/{}", info.subresource);
    }
    if let Some(name) = &info.name {
        out += &format!(" {name}");
    }
    if let Some(namespace) = &info.namespace {
        out += &format!(" in {namespace}");
    }
    out
}
