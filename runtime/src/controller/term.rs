//! The times in which a controller may work: one without an end, or one after the other under leader election.

use std::{sync::Arc, time::Duration};

use tokio::{sync::watch, time::sleep};
use tokio_util::{sync::CancellationToken, task::task_tracker::TaskTrackerToken};

use crate::{informer::TermStart, leader_election::TermWatch, shards::Slots};

/// How a controller is asked to stop.
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    /// Nothing starts any more; what runs may end.
    pub(crate) finish: CancellationToken,
    /// What runs is dropped. Cancels `finish` too.
    pub(crate) abort: CancellationToken,
}

impl Stop {
    pub(crate) fn new() -> Self {
        let abort = CancellationToken::new();
        Self { finish: abort.child_token(), abort }
    }

    /// Makes one that ends with this one, and can end alone.
    pub(crate) fn child(&self) -> Self {
        Self { finish: self.finish.child_token(), abort: self.abort.child_token() }
    }

    /// Waits until a run has ended. After `finish` it has the grace period to end by itself; then `abort` is cancelled.
    pub(crate) async fn within<T>(&self, grace_period: Duration, run: impl Future<Output = T>) -> T {
        let overdue = async {
            self.finish.cancelled().await;
            sleep(grace_period).await;
        };
        tokio::pin!(run);
        tokio::select! {
            biased;
            ended = &mut run => ended,
            () = overdue => {
                self.abort.cancel();
                run.await
            }
        }
    }
}

/// A time in which work may be done.
#[derive(Clone)]
pub(crate) struct Term {
    pub(crate) stop: Stop,
    /// Caches must have shown what the server held after this. Others may have written until then.
    ///
    /// `None` without an election: what it held at some moment since the start is enough.
    pub(crate) start: Option<Arc<TermStart>>,
    /// The part of the work that is this replica's; `None`: all of it.
    pub(crate) slots: Option<Slots>,
    /// Held for as long as anything of the term runs.
    pub(super) held: Option<Arc<TermHold>>,
}

/// What is held for as long as anything of a term runs: others learn that it does.
pub(crate) struct TermHold {
    _working: TaskTrackerToken,
    _watch: Option<TermWatch>,
}

impl TermHold {
    pub(crate) fn new(working: TaskTrackerToken, watch: Option<TermWatch>) -> Self {
        Self { _working: working, _watch: watch }
    }
}

impl Term {
    /// The time of a process that is not elected.
    pub(crate) fn endless(stop: &Stop) -> Self {
        Self { stop: stop.clone(), start: None, slots: None, held: None }
    }

    /// A part of it, which can end before.
    pub(crate) fn part(&self) -> Self {
        Self { stop: self.stop.child(), ..self.clone() }
    }

    /// A term that was won; stopping waits until it is dropped.
    pub(crate) fn won(stop: Stop, start: Arc<TermStart>, slots: Option<Slots>, held: TermHold) -> Self {
        Self { stop, start: Some(start), slots, held: Some(Arc::new(held)) }
    }
}

/// Follows the terms of a process.
#[derive(Clone)]
pub(crate) struct Terms {
    present: watch::Receiver<Option<Term>>,
    /// Whether what works is this replica's as a whole, if replicas share the work.
    is_whole: bool,
}

impl Terms {
    pub(crate) fn of(present: watch::Receiver<Option<Term>>) -> Self {
        Self { present, is_whole: false }
    }

    /// Follows the same terms for what is this replica's as a whole.
    pub(crate) fn whole(self) -> Self {
        Self { is_whole: true, ..self }
    }

    /// Returns the one term of a process that is not elected.
    pub(crate) fn endless(stop: &Stop) -> Self {
        Self::of(watch::channel(Some(Term::endless(stop))).1)
    }

    /// Waits for the next term; `None` once the process stops.
    pub(crate) async fn next(&mut self, stop: &Stop) -> Option<Term> {
        loop {
            let term = self.present.borrow_and_update().clone();
            if stop.finish.is_cancelled() {
                return None;
            }
            if let Some(term) = term.filter(|term| !term.stop.finish.is_cancelled()) {
                let slots = term.slots.clone().filter(|_| !self.is_whole);
                return Some(Term { slots, ..term });
            }
            tokio::select! {
                biased;
                () = stop.finish.cancelled() => return None,
                changed = self.present.changed() => if changed.is_err() {
                    stop.finish.cancelled().await;
                }
            }
        }
    }
}
