//! Ends the process if work outlasts its term, also if that blocks each thread of the runtime.

use std::{
    convert::Infallible,
    io,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use tokio::runtime::Handle;

use super::{gate::TermGate, settings::Timing};
use crate::object::ObjectKey;

/// How often the clocks are read at least, since one may have jumped.
const LOOK: Duration = Duration::from_secs(1);
/// If so much more time has passed than was waited for, the process did not run, or a clock was set.
const LATE: Duration = Duration::from_millis(500);

/// Held for as long as anything of a term runs. What still holds it when another replica may soon lead ends the process.
pub(crate) struct TermWatch {
    _ended: mpsc::Sender<Infallible>,
}

/// What looks at a term, on a thread of its own: the runtime's threads may all be blocked.
pub(super) struct Overrun {
    pub(super) gate: Arc<TermGate>,
    pub(super) timing: Timing,
    pub(super) lease: ObjectKey,
    /// What a test has called instead of an end of the process.
    pub(super) tell: Option<fn(&str)>,
}

impl Overrun {
    /// Begins to look; `who` names what runs.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(super) fn watch<N>(self, who: N) -> io::Result<TermWatch>
    where
        N: Fn() -> Option<String> + Send + 'static,
    {
        let (ended, held) = mpsc::channel();
        let runtime = Handle::current();
        let look = move || {
            // The clock may be a paused one.
            let _entered = runtime.enter();
            // A process that did not run until now may have learnt of it in the same moment.
            if self.outlasts(&held) && goes_on(&held, look_once_more(&self.timing)) {
                self.end(who);
            }
        };
        thread::Builder::new().name("watchkeeper-term".to_owned()).spawn(look)?;
        Ok(TermWatch { _ended: ended })
    }

    /// Waits until nothing runs any more, or for too long. Returns whether something still runs.
    fn outlasts(&self, held: &mpsc::Receiver<Infallible>) -> bool {
        let mut looks = Looks::default();
        loop {
            let unrenewed = self.gate.unrenewed();
            if unrenewed >= self.timing.renew {
                self.gate.jumped.notify_waiters();
            }
            let left = looks.left(&self.timing, unrenewed, self.gate.closed_for());
            if left.is_zero() {
                return true;
            }
            if !goes_on(held, left) {
                return false;
            }
        }
    }

    /// Ends the process. What names the work and logs it may be blocked itself, and is not waited for for long.
    fn end(self, who: impl Fn() -> Option<String> + Send + 'static) {
        let within = look_once_more(&self.timing);
        let (named, name) = mpsc::channel();
        let say = move || {
            let who = who().unwrap_or_else(|| "something that can't be named".to_owned());
            let lease = self.lease;
            tracing::error!(
                %lease, "the term is over, and {who} runs on: the process ends, before another leads"
            );
            let _ = named.send(who);
        };
        let name = match thread::Builder::new().spawn(say) {
            Ok(_) => name.recv_timeout(within).ok(),
            Err(_) => None,
        };
        match self.tell {
            None => std::process::abort(),
            Some(tell) => tell(name.as_deref().unwrap_or("something that can't be named")),
        }
    }
}

/// Returns whether something still runs after a time.
fn goes_on(held: &mpsc::Receiver<Infallible>, within: Duration) -> bool {
    matches!(held.recv_timeout(within), Err(mpsc::RecvTimeoutError::Timeout))
}

/// What earlier looks at a term showed.
#[derive(Default)]
struct Looks {
    unrenewed: Duration,
    /// How long the last one was to wait.
    waited: Duration,
    /// What the runtime still has to learn of the end, and to drop what runs.
    patience: Duration,
    was_late: bool,
}

impl Looks {
    /// Returns how long to wait for the next look; zero: what runs must end now.
    fn left(&mut self, timing: &Timing, unrenewed: Duration, closed: Option<Duration>) -> Duration {
        // What runs is dropped once the term is over, and ends in this time.
        let dropped_within = timing.overrun().saturating_sub(timing.expiry());
        self.patience = self.patience.saturating_sub(unrenewed.saturating_sub(self.unrenewed));
        if unrenewed < self.unrenewed {
            self.was_late = false;
        } else if unrenewed > self.unrenewed + self.waited + LATE && !self.was_late {
            // The runtime learns of it only now as well: within the lease there may be less time for that.
            self.was_late = true;
            // The last look, and the time to name what runs, come after that.
            let last = timing.lease.saturating_sub(2 * look_once_more(timing));
            let within = match unrenewed < timing.lease {
                true => last.saturating_sub(unrenewed),
                false => Duration::MAX,
            };
            self.patience = (LOOK + dropped_within).min(within);
        }
        let due = timing.overrun().saturating_sub(unrenewed);
        let due = closed.map_or(due, |closed| due.min(dropped_within.saturating_sub(closed)));
        (self.unrenewed, self.waited) = (unrenewed, due.max(self.patience).min(LOOK));
        self.waited
    }
}

/// Returns how long the last look may take; to name what runs may take as long.
fn look_once_more(timing: &Timing) -> Duration {
    timing.lease.saturating_sub(timing.overrun()) / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    /// Looks at a term of the usual times when it was not renewed for so long; returns when what runs must end.
    fn ends(looks: &[f64], closed: Option<f64>) -> Option<f64> {
        let timing = Timing { lease: seconds(15.0), renew: seconds(10.0), retry: seconds(2.0) };
        let mut all = Looks::default();
        looks.iter().copied().find(|at| {
            let closed = closed.and_then(|since| (at - since >= 0.0).then(|| seconds(at - since)));
            all.left(&timing, seconds(*at), closed).is_zero()
        })
    }

    // L5
    #[test]
    fn what_outlasts_a_term_ends_before_another_replica_may_lead() {
        let each_second = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0];
        let and = |more: &[f64]| [&each_second, more].concat();
        assert_eq!(ends(&and(&[13.75, 14.0]), None), Some(13.75));
        assert_eq!(ends(&[0.0, 1.0, 2.0, 0.3, 1.3], None), None, "it was renewed");
        // Another replica took the Lease after three seconds: what runs had time to be dropped.
        assert_eq!(ends(&[0.0, 1.0, 2.0, 3.0, 4.0, 4.25, 5.0], Some(3.0)), Some(4.25));
        // A look that is late does not let it run on into the time of another replica.
        assert_eq!(ends(&and(&[14.35, 14.375, 15.0]), None), Some(14.375));
        assert_eq!(ends(&and(&[14.9]), None), Some(14.9));
        // A process that was stopped for a minute drops what runs first, and has that time once.
        assert_eq!(ends(&[0.0, 1.0, 61.0, 62.0, 63.0, 63.25], None), Some(63.25));
        assert_eq!(ends(&[0.0, 1.0, 61.0, 63.0, 65.0, 67.0], None), Some(65.0));
        assert_eq!(ends(&[0.0, 1.0, 61.0, 0.2, 1.2, 70.0, 71.0], None), None, "it was renewed between");
    }
}
