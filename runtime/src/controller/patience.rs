//! Notices user's code that is slow while an informer waits for it.

use std::{
    fmt::Display,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use tokio::time::Instant;

/// How long a call may take before it counts as slow.
const SLOW: Duration = Duration::from_millis(10);
/// So many slow calls in a row are reported. One alone may only have waited for a processor.
const IN_A_ROW: u32 = 4;
/// No wait for a processor takes this long: one such call is reported.
const VERY_SLOW: Duration = Duration::from_secs(1);

/// Watches the mapping and the predicate of one feed.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    slow_in_a_row: AtomicU32,
}

impl Patience {
    /// Calls the user's code, and reports it if it is slow.
    pub(super) fn watch<T>(&self, kind: &impl Display, call: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let answer = call();
        let taken = began.elapsed();
        if self.is_worth_a_line(taken) {
            tracing::warn!(
                %kind,
                ?taken,
                "a controller's mapping or predicate is slow: until it returns, nobody sees changes of this kind; let it \
                 read listers, and move the rest into the reconciler"
            );
        }
        answer
    }

    /// Takes note of a call; while calls stay slow, each line takes twice as many of them.
    fn is_worth_a_line(&self, taken: Duration) -> bool {
        if taken <= SLOW {
            self.slow_in_a_row.store(0, Ordering::Relaxed);
            return false;
        }
        let slow = self.slow_in_a_row.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        taken >= VERY_SLOW || slow >= IN_A_ROW && slow.is_power_of_two()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // C52
    #[test]
    fn code_is_called_slow_after_four_slow_calls_in_a_row_or_one_of_a_second() {
        let (quick, slow) = (Duration::from_millis(1), Duration::from_millis(21));
        let lines = |calls: &[Duration]| {
            let patience = Patience::default();
            calls.iter().filter(|taken| patience.is_worth_a_line(**taken)).count()
        };
        assert_eq!(lines(&[slow; 3]), 0, "it may have waited for a processor");
        assert_eq!(lines(&[slow, slow, slow, quick, slow, slow, slow]), 0);
        assert_eq!(lines(&[slow; 4]), 1);
        assert_eq!(lines(&[slow; 100]), 5, "seldom again while it goes on");
        assert_eq!(lines(&[quick, Duration::from_secs(1)]), 1);
    }
}
