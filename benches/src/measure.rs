//! The resources that a process has used, and the figures of a row.

use std::{collections::BTreeMap, fs};

use cpu_time::ProcessTime;

/// The measurements of one run of one side, by the name of the figure.
pub(crate) type Measures = BTreeMap<String, f64>;

/// Names figures: `measures([("wall", 1.0)])`.
pub(crate) fn measures<const N: usize>(figures: [(&str, f64); N]) -> Measures {
    figures.into_iter().map(|(name, figure)| (name.to_owned(), figure)).collect()
}

/// Returns the CPU seconds that this process has used, with those of threads that have ended.
pub(crate) fn cpu_seconds() -> f64 {
    ProcessTime::now().as_duration().as_secs_f64()
}

/// Returns the CPU seconds of child processes that have ended and been waited for, and of their children.
pub(crate) fn children_cpu_seconds() -> f64 {
    times(13) / 100.0
}

/// Adds two times of the kernel's, user's and system's, in hundredths of a second.
fn times(first: usize) -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    after_name.split_whitespace().skip(first).take(2).flat_map(str::parse::<f64>).sum()
}

/// The most megabytes that this process has ever held.
pub(crate) fn peak_megabytes() -> f64 {
    status("VmHWM:")
}

/// The megabytes that this process holds.
pub(crate) fn held_megabytes() -> f64 {
    status("VmRSS:")
}

fn status(field: &str) -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kilobytes: f64 =
        line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(f64::NAN);
    kilobytes * 1_024.0 / 1e6
}

/// Figures in order.
pub(crate) struct Sorted(Vec<f64>);

impl Sorted {
    pub(crate) fn new(mut figures: Vec<f64>) -> Self {
        figures.sort_by(f64::total_cmp);
        Self(figures)
    }

    /// The figure at this quantile; `NaN` without figures.
    pub(crate) fn at(&self, share: f64) -> f64 {
        let last = self.0.len().saturating_sub(1);
        self.0.get((share * last as f64).round() as usize).copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn median(&self) -> f64 {
        self.at(0.5)
    }

    pub(crate) fn least(&self) -> f64 {
        self.at(0.0)
    }

    pub(crate) fn most(&self) -> f64 {
        self.at(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_least_and_most() {
        let sorted = Sorted::new((0..=1_000).rev().map(f64::from).collect());
        assert_eq!(
            [sorted.least(), sorted.median(), sorted.at(0.99), sorted.most()],
            [0.0, 500.0, 990.0, 1000.0]
        );
        assert!(Sorted::new(Vec::new()).median().is_nan());
    }

    #[test]
    fn a_process_that_works_uses_cpu_and_memory() {
        let before = cpu_seconds();
        let work: Vec<u64> = (0..2_000_000).collect();
        assert_eq!(std::hint::black_box(&work).iter().sum::<u64>(), 1_999_999_000_000);
        assert!(cpu_seconds() > before);
        // In this order, because other tests make the process grow meanwhile.
        let held = held_megabytes();
        assert!(held > 1.0 && peak_megabytes() >= held);
    }
}
