//! The registry: active rules, open streams, and fired faults.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::action::{Action, Effect, Token};
use super::edit::Edit;
use super::firing::Firing;
use super::flow::{Graft, Pace, Plant, Tap};
use super::interrupt::{Interrupt, Interrupted};
use super::matcher::{Count, Matcher, When};
use super::reply::Versions;
use super::stale::Staleness;
use crate::read::expired_page;
use crate::route::{RequestInfo, Verb};

/// The number of firings remembered.
const REMEMBERED: usize = 10_000;

/// Writes and clears fault rules; a clone is the same registry.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    registry: Arc<Mutex<Registry>>,
    /// Moves when a stream opens, closes or passes an event.
    news: Arc<watch::Sender<()>>,
}

#[derive(Debug, Default)]
struct Registry {
    rules: Vec<ArmedRule>,
    armed: u64,
    streams: BTreeMap<u64, Arc<Tap>>,
    opened: u64,
    /// How many events new watches of a resource may pass.
    credits: BTreeMap<String, u32>,
    log: VecDeque<Firing>,
}

#[derive(Debug)]
struct ArmedRule {
    id: u64,
    matcher: Matcher,
    action: Action,
    count: Count,
    /// Dropped with the rule; those who wait for it then continue.
    healed: Healed,
}

/// Releases all waiters when it is dropped, in the order in which they came.
#[derive(Debug, Default)]
struct Healed(CancellationToken);

impl Drop for Healed {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// The decision about one request.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// It is served; the grafts go into its answer.
    Serve(Vec<Graft>),
    /// It is answered so.
    Reply(Response<Bytes>),
    /// Its connection breaks.
    Drop(Interrupted),
    /// It is served, and its connection breaks.
    ServeThenDrop,
    /// It is carried out, and answered once the sender of this is dropped, or after some time.
    ServeThenHold(CancellationToken, Option<Duration>),
    /// It is carried out once the sender of this is dropped.
    Hold(CancellationToken),
}

impl Faults {
    /// Disarms all rules and lets everything that is held back go on.
    ///
    /// The log stays.
    pub fn clear(&self) {
        let (rules, streams) = {
            let mut registry = self.lock();
            registry.credits.clear();
            (std::mem::take(&mut registry.rules), registry.streams.values().cloned().collect::<Vec<_>>())
        };
        drop(rules);
        for tap in streams {
            tap.release_all();
        }
    }

    /// Lists the last 10,000 firings, oldest first.
    #[must_use]
    pub fn log(&self) -> Vec<Firing> {
        self.lock().log.iter().cloned().collect()
    }

    /// Writes the fired faults as code that, in a test, fires them again.
    #[must_use]
    pub fn script(&self) -> String {
        self.lock().log.iter().map(|firing| format!("{firing}\n")).collect()
    }

    /// Returns the number of streams that are open.
    #[must_use]
    pub fn open_streams(&self) -> usize {
        self.lock().streams.values().filter(|tap| tap.is_watch()).count()
    }

    pub(super) fn arm(&self, matcher: Matcher, when: When, action: Action) -> Armed {
        let mut registry = self.lock();
        registry.armed += 1;
        let id = registry.armed;
        let mut rule = ArmedRule { id, matcher, action, count: Count::new(when), healed: Healed::default() };
        let Registry { streams, rules, log, .. } = &mut *registry;
        for tap in streams.values().filter(|tap| tap.is_watch()) {
            rule.plant_in(tap, log);
        }
        rules.push(rule);
        Armed { faults: self.clone(), id }
    }

    /// Decides about a request that has just come; `version` gives the server's.
    pub(crate) fn judge(
        &self,
        info: &RequestInfo,
        user_agent: &str,
        version: impl FnOnce() -> u64,
    ) -> Verdict {
        if self.lock().rules.is_empty() {
            return Verdict::Serve(Vec::new());
        }
        // The server's own lock is not taken under that of the rules.
        let version = version();
        let mut registry = self.lock();
        let Registry { rules, log, .. } = &mut *registry;
        let versions = Versions { asked: info.version_asked.parse().unwrap_or(0), current: version };
        let mut grafts = Vec::new();
        for rule in rules.iter_mut() {
            if !rule.offer(info, user_agent) {
                continue;
            }
            if let Some(verdict) = rule.verdict(info, versions) {
                note(log, Firing::at(rule.script(), info, version));
                return verdict;
            }
            let Some((graft, firing)) = rule.graft(versions) else { continue };
            if let Some(script) = firing {
                note(log, Firing::at(script, info, version));
            }
            grafts.push(graft);
            if rule.action.decides() {
                break;
            }
        }
        Verdict::Serve(grafts)
    }

    /// Opens a stream to the rules; those armed after `judged` get their say now.
    pub(crate) fn open(&self, tap: Tap, judged: u64) -> (u64, Arc<Tap>) {
        let tap = Arc::new(tap);
        let mut registry = self.lock();
        registry.opened += 1;
        let id = registry.opened;
        let Registry { rules, log, streams, credits, .. } = &mut *registry;
        for rule in rules.iter_mut().filter(|rule| rule.id > judged) {
            rule.plant_in(&tap, log);
        }
        if let Some(credit) =
            credits.get(&tap.info().resource).or(credits.get("*")).filter(|_| tap.is_watch())
        {
            tap.set_credit(|_| Some(*credit));
        }
        streams.insert(id, Arc::clone(&tap));
        drop(registry);
        self.told();
        (id, tap)
    }

    pub(super) fn close(&self, stream: u64) {
        self.lock().streams.remove(&stream);
        self.told();
    }

    /// Wakes the waiters.
    pub(super) fn told(&self) {
        // A waiter subscribes before it looks, so it can't miss what came before.
        if self.news.receiver_count() > 0 {
            self.news.send_replace(());
        }
    }

    pub(super) fn news(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    /// Lists the open watches of a resource, oldest first.
    pub(super) fn taps(&self, resource: &str) -> Vec<Arc<Tap>> {
        let of = |tap: &&Arc<Tap>| tap.is_watch() && (resource == "*" || tap.info().resource == resource);
        self.lock().streams.values().filter(of).cloned().collect()
    }

    /// Changes how many events the watches of a resource, open or to come, may pass.
    pub(super) fn set_credit(&self, resource: &str, set: impl Fn(Option<u32>) -> Option<u32>) {
        let mut registry = self.lock();
        match set(registry.credits.get(resource).copied()) {
            Some(credit) => drop(registry.credits.insert(resource.to_owned(), credit)),
            None => drop(registry.credits.remove(resource)),
        }
        drop(registry);
        for tap in self.taps(resource) {
            tap.set_credit(&set);
        }
    }

    /// Returns the number of rules ever armed, for [`open`](Faults::open).
    pub(crate) fn armed(&self) -> u64 {
        self.lock().armed
    }

    pub(crate) fn note(&self, firing: Firing) {
        note(&mut self.lock().log, firing);
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn note(log: &mut VecDeque<Firing>, firing: Firing) {
    tracing::info!(target: "watchkeeper_apiserver::faults", "{firing}");
    if log.len() == REMEMBERED {
        log.pop_front();
    }
    log.push_back(firing);
}

impl ArmedRule {
    /// Offers a new request; true when the rule fires at it.
    fn offer(&mut self, info: &RequestInfo, user_agent: &str) -> bool {
        self.action.concerns(info) && self.matcher.matches(info, user_agent) && self.count.fires()
    }

    /// Offers an open stream, and plants what the rule has for it.
    fn plant_in(&mut self, tap: &Tap, log: &mut VecDeque<Firing>) {
        if !self.action.acts_on_streams() || !self.offer(tap.info(), tap.user_agent()) {
            return;
        }
        let asked = tap.info().version_asked.parse().unwrap_or(0);
        let version = tap.version();
        if let Some((graft, firing)) = self.graft(Versions { asked, current: version }) {
            if let Some(script) = firing {
                note(log, Firing::at(script, tap.info(), version));
            }
            tap.plant(graft);
        }
    }

    /// Makes what goes into an answer, and the line for the log if it acts at once.
    fn graft(&self, versions: Versions) -> Option<(Graft, Option<String>)> {
        let (id, script) = (self.id, self.script());
        Some(match &self.action.0 {
            Effect::Interrupt(stop) => (Graft::Stop(Plant::new(*stop, id, script)), None),
            Effect::Say(saying) => {
                (Graft::Stop(Plant::saying(saying, saying.line(versions), id, script)), None)
            }
            Effect::Distort(distortion) => {
                (Graft::Edit(Edit::new(*distortion, id, self.count.seen(), script)), None)
            }
            Effect::Drip(drip) => (Graft::Pace(Pace::new(*drip, id, script)), None),
            Effect::Stale(staleness) => {
                let view = staleness.view(self.count.fired())?;
                (Graft::View(id, view), Some(self.script_with(&Staleness::script_of(view))))
            }
            Effect::EndlessList => (Graft::Endless(script), None),
            Effect::Bump => (Graft::Bump, Some(script)),
            Effect::Reply(_)
            | Effect::ExpiredToken(_)
            | Effect::CommitThenDrop
            | Effect::CommitThenHold(_) => return None,
        })
    }

    /// Decides about a request that is not simply served.
    fn verdict(&self, info: &RequestInfo, versions: Versions) -> Option<Verdict> {
        let watching = info.verb == Some(Verb::Watch);
        Some(match &self.action.0 {
            Effect::Interrupt(stop) if stop.immediate() => match stop.kind {
                Interrupt::Cut => Verdict::Drop(Interrupted::Cut),
                Interrupt::Reset => Verdict::Drop(Interrupted::Reset),
                Interrupt::Silence if watching => return None,
                Interrupt::Silence => Verdict::Hold(self.healed.0.clone()),
            },
            Effect::Reply(reply) => Verdict::Reply(reply.to_response(versions)),
            Effect::ExpiredToken(token) => {
                let mut status = expired_page(&info.go_on);
                if *token == Token::Absent {
                    status.go_on = None;
                }
                Verdict::Reply(status.to_response())
            }
            Effect::CommitThenDrop => Verdict::ServeThenDrop,
            Effect::CommitThenHold(held) => Verdict::ServeThenHold(self.healed.0.clone(), held.time),
            _ => return None,
        })
    }

    /// Writes the line that fires at this very match again.
    fn script(&self) -> String {
        self.script_with(&self.action.script())
    }

    fn script_with(&self, action: &str) -> String {
        format!("faults.{}.nth({}).then({action});", self.matcher.script(), self.count.seen())
    }
}

/// An armed rule; dropping this leaves it armed.
#[derive(Clone, Debug)]
pub struct Armed {
    faults: Faults,
    id: u64,
}

impl Armed {
    /// Returns the number of times the rule has fired; 0 once it is disarmed.
    #[must_use]
    pub fn fired(&self) -> u64 {
        let registry = self.faults.lock();
        registry.rules.iter().find(|rule| rule.id == self.id).map_or(0, |rule| rule.count.fired())
    }

    /// Removes the rule and releases what it holds back.
    pub fn disarm(self) {
        let streams: Vec<_> = {
            let mut registry = self.faults.lock();
            registry.rules.retain(|rule| rule.id != self.id);
            registry.streams.values().cloned().collect()
        };
        for tap in streams {
            tap.release(self.id);
        }
    }
}
