//! What a selector asks of the digests of labels.

use super::selector::{Needed, Selector};
use crate::list_watch::LabelFilter;

/// What a selector asks of a digest: for each requirement that names values, one of these.
pub(super) struct SelectorFilter(Vec<Vec<LabelFilter>>);

impl SelectorFilter {
    pub(super) fn of(selector: &Selector) -> Self {
        let asked = selector.needed().filter_map(|(key, needed)| match needed {
            Needed::OneOf(values) => Some(values.iter().map(|value| LabelFilter::of(key, value)).collect()),
            Needed::Any => None,
        });
        Self(asked.collect())
    }

    /// Returns whether labels with this digest may match.
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
    }
}
