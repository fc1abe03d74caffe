//! Reads a stream in batches, under an alarm that it can't put off.

use std::{future::poll_fn, pin::Pin, task::Poll, time::Duration};

use futures::{Stream, StreamExt};
use tokio::{
    task::coop::consume_budget,
    time::{Instant, Sleep},
};

/// Most events that are handed to the store at once.
const BATCH: usize = 256;

/// How often an open stream is checked for what time alone tells: so often a quiet informer wakes.
const LOOK: Duration = Duration::from_secs(30);

/// Whether a stream may bring more.
pub(super) enum Flow {
    GoesOn,
    Ended,
}

/// Waits for events, or for the alarm: then it is `None`. What has come already is taken at once, up to a batch.
pub(super) async fn next_batch<T>(
    stream: &mut (impl Stream<Item = T> + Unpin),
    batch: &mut Vec<T>,
    alarm: Pin<&mut Sleep>,
) -> Option<Flow> {
    // A stream that is always ready must let others run, and cancellation be seen.
    consume_budget().await;
    let events = poll_fn(|cx| {
        while batch.len() < BATCH {
            match stream.poll_next_unpin(cx) {
                Poll::Ready(Some(event)) => batch.push(event),
                // What came before the end is taken first; the end will be there to be seen again.
                Poll::Ready(None) if batch.is_empty() => return Poll::Ready(Flow::Ended),
                Poll::Pending if batch.is_empty() => return Poll::Pending,
                Poll::Ready(None) | Poll::Pending => break,
            }
        }
        Poll::Ready(Flow::GoesOn)
    });
    // The alarm first: a stream that always has something must not put it off.
    tokio::select! {
        biased;
        () = alarm => None,
        flow = events => Some(flow),
    }
}

/// Sets the alarm to the next look, or to an earlier time that matters.
pub(super) fn set_alarm(alarm: Pin<&mut Sleep>, until: Option<Instant>) {
    let now = Instant::now();
    let look = if alarm.is_elapsed() { now + LOOK } else { alarm.deadline() };
    let wanted = until.filter(|until| *until > now).map_or(look, |until| until.min(look));
    if wanted != alarm.deadline() {
        alarm.reset(wanted);
    }
}

/// What a stream that is open tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The list.
    List,
    /// Changes.
    Watch,
}
