//! The registry: active rules, open streams, and fired faults.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::action::{Action, Effect, ListToken};
use super::edit::Edit;
use super::firing::Firing;
use super::flow::{Graft, Pace, Plant, Tap};
use super::interrupt::{Interrupt, Interrupted};
use super::matcher::{FiringCount, Matcher, Verbs, When};
use super::reply::Versions;
use super::stale::Staleness;
use crate::read::expired_page;
use crate::route::{RequestInfo, Verb};

/// The number of firings remembered.
const REMEMBERED: usize = 10_000;

/// Writes and clears fault rules; a clone is the same registry.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    registry: Arc<Mutex<FaultRegistry>>,
    /// Moves when a stream opens, closes or passes an event.
    news: Arc<watch::Sender<()>>,
}

#[derive(Debug, Default)]
struct FaultRegistry {
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
    count: FiringCount,
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
    /// Starts a rule about one verb on one resource, by its plural; `"*"` is any.
    pub fn on(&self, verb: Verb, resource: &str) -> Rule {
        Rule::new(self.clone(), Verbs::One(verb), resource)
    }

    /// Starts a rule about every verb on one resource, by its plural; `"*"` is any.
    pub fn on_any(&self, resource: &str) -> Rule {
        Rule::new(self.clone(), Verbs::Any, resource)
    }

    /// Starts a rule about gets, lists and watches of one resource, by its plural; `"*"` is any.
    pub fn on_reads(&self, resource: &str) -> Rule {
        Rule::new(self.clone(), Verbs::Reads, resource)
    }

    /// Starts a rule about every request there is, discovery and health included.
    pub fn on_everything(&self) -> Rule {
        Rule::new(self.clone(), Verbs::Everything, "*")
    }

    /// Starts a rule about every write of every resource.
    pub fn on_any_write(&self) -> Rule {
        Rule::new(self.clone(), Verbs::Writes, "*")
    }

    /// Returns the handle by which the watches of one resource, by its plural, are stopped and stepped.
    #[must_use]
    pub fn watches(&self, resource: &str) -> Watches {
        Watches::new(self.clone(), resource)
    }

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
        let mut rule =
            ArmedRule { id, matcher, action, count: FiringCount::new(when), healed: Healed::default() };
        let FaultRegistry { streams, rules, log, .. } = &mut *registry;
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
        let FaultRegistry { rules, log, .. } = &mut *registry;
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
        let FaultRegistry { rules, log, streams, credits, .. } = &mut *registry;
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

    fn lock(&self) -> MutexGuard<'_, FaultRegistry> {
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
                if *token == ListToken::Absent {
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

/// A rule being written; [`then`](Rule::then) arms it.
///
/// Without a count it fires at every match.
#[derive(Debug)]
#[must_use = "a rule does nothing before its last call, `then`"]
pub struct Rule {
    faults: Faults,
    matcher: Matcher,
    when: When,
}

impl Rule {
    fn new(faults: Faults, verbs: Verbs, resource: &str) -> Self {
        let resource = (resource != "*").then(|| resource.to_owned());
        Self { faults, matcher: Matcher { resource, ..Matcher::of(verbs) }, when: When::default() }
    }

    pub(super) fn from_parts(faults: Faults, matcher: Matcher, when: When) -> Self {
        Self { faults, matcher, when }
    }

    /// Matches requests in this namespace alone; requests across all namespaces don't match.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.matcher.namespace = Some(namespace.into());
        self
    }

    /// Matches requests about this object alone, field selectors on `metadata.name` included.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.matcher.name = Some(name.into());
        self
    }

    /// Matches this subresource alone; an empty one is the object itself.
    pub fn subresource(mut self, subresource: impl Into<String>) -> Self {
        self.matcher.subresource = Some(subresource.into());
        self
    }

    /// Matches clients whose `User-Agent` holds this text.
    pub fn user_agent(mut self, part: impl Into<String>) -> Self {
        self.matcher.user_agent = Some(part.into());
        self
    }

    /// Matches requests that ask for this `resourceVersion` alone; `"0"` is any state, an empty one the newest.
    pub fn resource_version(mut self, version: impl Into<String>) -> Self {
        self.matcher.resource_version = Some(version.into());
        self
    }

    /// Fires at the first match, then never again.
    pub fn once(self) -> Self {
        self.times(1)
    }

    /// Fires `n` times, then never again.
    pub fn times(mut self, n: u64) -> Self {
        self.when.limit = Some(n);
        self
    }

    /// Fires at the `n`-th match alone, counted from 1.
    pub fn nth(mut self, n: u64) -> Self {
        self.when.skip = n.saturating_sub(1);
        self.when.limit = Some(1);
        self
    }

    /// Fires at every `n`-th match, the `n`-th first.
    pub fn every(mut self, n: u64) -> Self {
        self.when.every = Some(n.max(1));
        self
    }

    /// Fires at every match; so it does without saying.
    pub fn always(mut self) -> Self {
        self.when.skip = 0;
        self.when.every = None;
        self.when.limit = None;
        self
    }

    /// Fires with this chance, from 0 to 1, at each match.
    ///
    /// Equal seeds and equal requests give equal firings; the seed is 0 unless set.
    pub fn probability(mut self, p: f64) -> Self {
        self.when.probability = Some(p.clamp(0.0, 1.0));
        self
    }

    /// Sets the seed of [`probability`](Rule::probability).
    pub fn seed(mut self, seed: u64) -> Self {
        self.when.seed = seed;
        self
    }

    /// Arms the rule: from here on it acts, also on streams that are open.
    pub fn then(self, action: impl Into<Action>) -> Armed {
        self.faults.arm(self.matcher, self.when, action.into())
    }
}

/// The watches of one resource, `"*"` all: those open and those to come.
///
/// A stream that is held sends nothing, bookmarks included; what it holds back goes on later.
#[derive(Clone, Debug)]
pub struct Watches {
    faults: Faults,
    resource: String,
}

impl Watches {
    fn new(faults: Faults, resource: &str) -> Self {
        Self { faults, resource: resource.to_owned() }
    }

    /// Returns the number of streams that are open.
    #[must_use]
    pub fn open(&self) -> usize {
        self.faults.taps(&self.resource).len()
    }

    /// Returns the number of events that have passed on the streams that are open now; bookmarks don't count.
    #[must_use]
    pub fn passed(&self) -> u64 {
        self.faults.taps(&self.resource).iter().map(|tap| tap.events()).sum()
    }

    /// Holds everything back from now on.
    pub fn hold(&self) {
        self.faults.set_credit(&self.resource, |_| Some(0));
    }

    /// Lets `n` more events pass on each stream that is held, then holds it again.
    pub fn release(&self, n: u32) {
        self.faults.set_credit(&self.resource, |credit| credit.map(|credit| credit.saturating_add(n)));
    }

    /// Lets everything go on.
    pub fn resume(&self) {
        self.faults.set_credit(&self.resource, |_| None);
    }

    /// Waits until at least `n` streams are open.
    pub async fn wait_for(&self, n: usize) {
        self.wait(|watches| watches.open() >= n).await;
    }

    /// Waits until at least `n` events have [passed](Watches::passed).
    pub async fn wait_passed(&self, n: u64) {
        self.wait(|watches| watches.passed() >= n).await;
    }

    async fn wait(&self, done: impl Fn(&Self) -> bool) {
        let mut news = self.faults.news();
        while !done(self) {
            // The sender lives in `self`.
            if news.changed().await.is_err() {
                return;
            }
        }
    }
}
