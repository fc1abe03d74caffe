//! Rules: which requests, how often.

use super::action::Action;
use super::matcher::{Matcher, Verbs, When};
use super::registry::{Armed, Faults};
use crate::route::Verb;

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

    /// Matches clients whose `User-Agent` contains this text.
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
