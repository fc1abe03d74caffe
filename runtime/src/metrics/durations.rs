//! A histogram as plain numbers, for code that counts under its own lock.

use std::time::Duration;

use prometheus_client::encoding::{MetricEncoder, NoLabelSet};

/// The number of upper bounds: powers of ten from ten nanoseconds to a thousand seconds.
const BOUNDS: usize = 12;

/// Counts durations by their order of magnitude, in the buckets of controller-runtime's queue metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Durations {
    buckets: [u64; BOUNDS + 1],
    nanos: u128,
}

impl Durations {
    /// Counts one duration.
    #[inline]
    pub(crate) fn observe(&mut self, duration: Duration) {
        let nanos = duration.as_nanos();
        self.buckets[bucket_of(nanos)] += 1;
        self.nanos += nanos;
    }

    /// Returns how many durations were counted so far.
    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    pub(crate) fn encode(&self, mut encoder: MetricEncoder<'_>) -> std::fmt::Result {
        let bounds = (1..=BOUNDS).map(|power| 10f64.powi(power as i32) / 1e9).chain([f64::INFINITY]);
        let buckets: Vec<_> = bounds.zip(self.buckets).collect();
        encoder.encode_histogram::<NoLabelSet>(self.nanos as f64 / 1e9, self.count(), &buckets, None)
    }
}

/// Returns the first bucket whose bound is not below the duration.
#[inline]
fn bucket_of(nanos: u128) -> usize {
    let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
    (nanos.saturating_sub(1).checked_ilog10().unwrap_or(0) as usize).min(BOUNDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Q13
    #[test]
    fn a_duration_counts_in_the_first_bucket_that_is_not_below_it() {
        for (nanos, bucket) in [
            (0, 0),
            (1, 0),
            (10, 0),
            (11, 1),
            (100, 1),
            (101, 2),
            (1_000_000_000_000, 11),
            (1_000_000_000_001, 12),
            (u128::MAX, 12),
        ] {
            assert_eq!(bucket_of(nanos), bucket, "{nanos}");
        }
    }
}
