//! A few bits that tell most objects apart from those that a selector can match.

use std::hash::BuildHasher;

use foldhash::quality::FixedState;

use super::selector::{Needed, Selector};

/// Sums up labels in 64 bits: some of another sum are missing where some of its labels are.
///
/// Stands beside each stored object, so that a scan leaves most of what does not match untouched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LabelFilter(u64);

impl LabelFilter {
    /// Stands for labels that nobody looked at.
    pub(super) const ANY: Self = Self(u64::MAX);

    /// Sums up one label: four bits, seldom fewer. With few labels that lets least pass, and two of them seldom look alike.
    fn of(key: &str, value: &str) -> Self {
        // The same in every run: labels made to collide only cost a scan what it saves.
        let hash = FixedState::with_seed(0).hash_one((key, value));
        Self([0, 6, 12, 18].iter().fold(0, |bits, shift| bits | 1 << (hash >> shift & 63)))
    }

    #[inline]
    fn holds(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl<'l> FromIterator<(&'l String, &'l String)> for LabelFilter {
    fn from_iter<I: IntoIterator<Item = (&'l String, &'l String)>>(labels: I) -> Self {
        Self(labels.into_iter().fold(0, |bits, (key, value)| bits | Self::of(key, value).0))
    }
}

/// What a selector asks of a sum: for each requirement that names values, one of these.
pub(super) struct SelectorFilter(Vec<Vec<LabelFilter>>);

impl SelectorFilter {
    pub(super) fn of(selector: &Selector) -> Self {
        let asked = selector.needed().filter_map(|(key, needed)| match needed {
            Needed::OneOf(values) => Some(values.iter().map(|value| LabelFilter::of(key, value)).collect()),
            Needed::Any => None,
        });
        Self(asked.collect())
    }

    /// Returns whether labels with this sum can match; `true` is no promise.
    #[inline]
    pub(super) fn passes(&self, labels: LabelFilter) -> bool {
        self.0.iter().all(|one_of| one_of.iter().any(|asked| labels.holds(*asked)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn what_matches_passes_and_most_of_the_rest_does_not() {
        let labels = |n: usize| {
            let labels =
                [("app", "web".to_owned()), ("shard", format!("s{n}")), ("tier", format!("t{}", n % 5))];
            BTreeMap::from(labels.map(|(key, value)| (key.to_owned(), value)))
        };
        let objects: Vec<_> = (0..1_000).map(labels).collect();
        for (selector, most) in
            [("shard=s7", 10), ("app=web,shard in (s1,s2)", 20), ("shard", 1_000), ("", 1_000)]
        {
            let selector: Selector = selector.parse().unwrap();
            let filter = SelectorFilter::of(&selector);
            let passed: Vec<_> =
                objects.iter().filter(|labels| filter.passes(labels.iter().collect())).collect();
            let matching = objects.iter().filter(|labels| selector.matches(labels)).count();
            assert_eq!(passed.iter().filter(|labels| selector.matches(labels)).count(), matching);
            assert!(passed.len() <= most, "{} passed {selector}", passed.len());
        }
        assert!(SelectorFilter::of(&"shard=s7".parse().unwrap()).passes(LabelFilter::ANY));
    }
}
