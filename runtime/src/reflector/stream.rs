//! Reads a stream in batches, under an alarm that it can't delay.

use std::{future::poll_fn, pin::Pin, task::Poll, time::Duration};

use futures::{Stream, StreamExt};
use tokio::{
    task::coop::consume_budget,
    time::{Instant, Sleep},
};

/// Most events that the store gets at once.
const BATCH: usize = 256;

/// How often an open stream is checked for what only time shows. A quiet informer wakes up this often.
const LOOK: Duration = Duration::from_secs(30);

/// Whether a stream may bring more.
pub(super) enum Flow {
    GoesOn,
    Ended,
}

/// Waits for events, up to a batch, or for the alarm: then it returns `None`.
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
                // What came before the end is taken first; the next poll sees the end again.
                Poll::Ready(None) if batch.is_empty() => return Poll::Ready(Flow::Ended),
                Poll::Pending if batch.is_empty() => return Poll::Pending,
                Poll::Ready(None) | Poll::Pending => break,
            }
        }
        Poll::Ready(Flow::GoesOn)
    });
    // The alarm comes first: a stream that is always ready must not delay it.
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
