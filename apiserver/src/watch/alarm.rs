//! Alarms: times that a stream waits for while it does other work.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

/// A time that a stream waits for; polling it again is cheap.
#[derive(Debug)]
pub(super) struct Alarm {
    sleep: Pin<Box<Sleep>>,
    /// The waker to call then.
    listed: Option<Waker>,
}

impl Alarm {
    /// Waits for so long.
    pub(super) fn after(time: Duration) -> Self {
        Self { sleep: Box::pin(sleep(time)), listed: None }
    }

    /// Waits until the time comes.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let listed = self.listed.as_ref().is_some_and(|listed| listed.will_wake(cx.waker()));
        if listed && !self.sleep.is_elapsed() {
            return Poll::Pending;
        }
        let there = self.sleep.as_mut().poll(cx);
        self.listed = there.is_pending().then(|| cx.waker().clone());
        there
    }

    /// Waits for so long once more.
    pub(super) fn again(&mut self, time: Duration) {
        self.sleep.as_mut().reset(Instant::now() + time);
        self.listed = None;
    }
}
