//! A digest of labels: a few bits that tell most objects apart from those that a selector can match.

use std::hash::BuildHasher;

use foldhash::quality::FixedState;

/// Digests labels into 64 bits: a bit of another digest is missing only if one of its labels is.
///
/// It is kept next to each stored object, so that a scan does not touch most of what does not match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LabelFilter(u64);

impl LabelFilter {
    /// Digests one label into four bits, seldom fewer: few labels then look alike.
    pub(crate) fn of(key: &str, value: &str) -> Self {
        // The same in every run: labels made to collide only cost a scan what it saves.
        let hash = FixedState::with_seed(0).hash_one((key, value));
        Self([0, 6, 12, 18].iter().fold(0, |bits, shift| bits | 1 << (hash >> shift & 63)))
    }

    #[inline]
    pub(crate) fn holds(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl<'l> FromIterator<(&'l String, &'l String)> for LabelFilter {
    fn from_iter<I: IntoIterator<Item = (&'l String, &'l String)>>(labels: I) -> Self {
        Self(labels.into_iter().fold(0, |bits, (key, value)| bits | Self::of(key, value).0))
    }
}
