//! Rules: which requests, how often.

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use super::action::Action;
use super::registry::{Armed, Faults};
use crate::route::{RequestInfo, Verb};

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

/// Which requests a rule is about; what is not set matches all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Matcher {
    pub(super) verbs: Verbs,
    pub(super) resource: Option<String>,
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
    pub(super) subresource: Option<String>,
    pub(super) user_agent: Option<String>,
    pub(super) resource_version: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verbs {
    /// Every request, those of no resource included.
    Everything,
    Any,
    Reads,
    Writes,
    One(Verb),
}

/// How often a rule fires.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct When {
    /// Matches let pass first.
    pub(super) skip: u64,
    /// Of the matches after that, each this many-th counts.
    pub(super) every: Option<u64>,
    /// Firings after which the rule is spent.
    pub(super) limit: Option<u64>,
    /// The chance of each firing.
    pub(super) probability: Option<f64>,
    /// The seed of the chances.
    pub(super) seed: u64,
}

impl Rule {
    pub(super) fn new(faults: Faults, verbs: Verbs, resource: &str) -> Self {
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

impl Matcher {
    /// Matches these verbs on everything.
    pub(super) fn of(verbs: Verbs) -> Self {
        Self {
            verbs,
            resource: None,
            namespace: None,
            name: None,
            subresource: None,
            user_agent: None,
            resource_version: None,
        }
    }

    pub(super) fn matches(&self, info: &RequestInfo, user_agent: &str) -> bool {
        if self.verbs == Verbs::Everything {
            return true;
        }
        let Some(verb) = info.verb else { return false };
        let verbs = match self.verbs {
            Verbs::Everything | Verbs::Any => true,
            Verbs::Reads => !verb.writes(),
            Verbs::Writes => verb.writes(),
            Verbs::One(one) => one == verb,
        };
        let same = |wanted: &Option<String>, is: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| is == Some(wanted))
        };
        verbs
            && same(&self.resource, Some(&info.resource))
            && same(&self.namespace, info.namespace.as_deref())
            && same(&self.name, info.name.as_deref())
            && same(&self.subresource, Some(&info.subresource))
            && same(&self.resource_version, Some(&info.version_asked))
            && self.user_agent.as_deref().is_none_or(|part| user_agent.contains(part))
    }

    /// Writes the matcher as it stands in a test.
    pub(super) fn script(&self) -> String {
        let resource = self.resource.as_deref().unwrap_or("*");
        let mut out = match self.verbs {
            Verbs::One(verb) => format!("on(Verb::{verb:?}, {resource:?})"),
            Verbs::Everything => "on_everything()".to_owned(),
            Verbs::Any => format!("on_any({resource:?})"),
            Verbs::Reads => format!("on_reads({resource:?})"),
            Verbs::Writes => "on_any_write()".to_owned(),
        };
        let parts = [
            ("namespace", &self.namespace),
            ("name", &self.name),
            ("subresource", &self.subresource),
            ("user_agent", &self.user_agent),
            ("resource_version", &self.resource_version),
        ];
        for (call, value) in parts {
            if let Some(value) = value {
                out += &format!(".{call}({value:?})");
            }
        }
        out
    }
}

/// The running count of one rule.
#[derive(Debug)]
pub(super) struct Count {
    when: When,
    dice: SmallRng,
    seen: u64,
    fired: u64,
}

impl Count {
    pub(super) fn new(when: When) -> Self {
        Self { when, dice: SmallRng::seed_from_u64(when.seed), seen: 0, fired: 0 }
    }

    /// Takes note of one match and tells whether the rule fires at it.
    pub(super) fn fires(&mut self) -> bool {
        if self.when.limit.is_some_and(|limit| self.fired >= limit) {
            return false;
        }
        self.seen += 1;
        if self.seen <= self.when.skip {
            return false;
        }
        if self.when.every.is_some_and(|n| !(self.seen - self.when.skip).is_multiple_of(n)) {
            return false;
        }
        let lucky = self.when.probability.is_none_or(|p| self.dice.random_bool(p));
        self.fired += u64::from(lucky);
        lucky
    }

    /// Gives the number of matches so far.
    pub(super) fn seen(&self) -> u64 {
        self.seen
    }

    pub(super) fn fired(&self) -> u64 {
        self.fired
    }
}
