//! The requests that a rule matches, and how often it fires.

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use crate::route::{RequestInfo, Verb};

/// The requests that a rule matches; a field that is not set matches all.
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
    /// After that, only every n-th match counts.
    pub(super) every: Option<u64>,
    /// Firings after which the rule is spent.
    pub(super) limit: Option<u64>,
    /// The chance of each firing.
    pub(super) probability: Option<f64>,
    /// The seed of the chances.
    pub(super) seed: u64,
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

    /// Writes the matcher as code for a test.
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
pub(super) struct FiringCount {
    when: When,
    dice: SmallRng,
    seen: u64,
    fired: u64,
}

impl FiringCount {
    pub(super) fn new(when: When) -> Self {
        Self { when, dice: SmallRng::seed_from_u64(when.seed), seen: 0, fired: 0 }
    }

    /// Counts a match and returns whether the rule fires.
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

    /// Returns the number of matches so far.
    pub(super) fn seen(&self) -> u64 {
        self.seen
    }

    pub(super) fn fired(&self) -> u64 {
        self.fired
    }
}
