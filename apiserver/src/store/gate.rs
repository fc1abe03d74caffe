//! Gates: streams show a change once it is on disk.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::watch;

use super::backlog::Durable;

/// What an open gate allows a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// Show its changes.
    Show,
    /// End: its changes were rolled back.
    End,
}

/// Holds the events of one stream back until they are on disk.
pub(crate) struct Gate {
    durable: watch::Receiver<Durable>,
    era: u64,
    waiting: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Gate {
    /// Makes the gate of a stream that begins now.
    pub(super) fn new(durable: watch::Receiver<Durable>) -> Self {
        let era = durable.borrow().era;
        Self { durable, era, waiting: None }
    }

    /// Waits until a version is on disk, or will never be.
    pub(crate) fn poll(&mut self, version: u64, cx: &mut Context<'_>) -> Poll<Pass> {
        let (now, era) = (*self.durable.borrow(), self.era);
        if now.era != era {
            return Poll::Ready(Pass::End);
        }
        if version <= now.version {
            self.waiting = None;
            return Poll::Ready(Pass::Show);
        }
        let durable = &self.durable;
        let waiting = self.waiting.get_or_insert_with(|| {
            let mut durable = durable.clone();
            Box::pin(async move {
                let there = |now: &Durable| now.era != era || now.version >= version;
                // The sender goes with the server, and the stream before it.
                let _gone = durable.wait_for(there).await;
            })
        });
        match waiting.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => {
                self.waiting = None;
                Poll::Ready(if self.durable.borrow().era == era { Pass::Show } else { Pass::End })
            }
        }
    }
}
