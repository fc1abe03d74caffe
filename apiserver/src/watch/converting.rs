//! Converting: objects of a watch are turned into its version before they are sent.

use std::sync::Arc;
use std::task::{Context, Poll};

use super::{Pending, WatchStream};
use crate::conversion::{convert, is_missing};
use crate::status::Status;
use crate::store::Stored;

impl WatchStream {
    /// Converts pending changes to the watched version; a failure of the webhook ends the stream.
    pub(super) fn poll_converted(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.encoder.served.conversion.is_none() {
            return Poll::Ready(());
        }
        if self.converting.is_none() {
            let mut objects: Vec<Arc<Stored>> = Vec::new();
            for pending in &self.pending {
                match pending {
                    Pending::State(stored) => objects.push(stored.clone()),
                    Pending::Change(change) => {
                        objects.push(change.object.clone());
                        objects.extend(change.previous.clone());
                    }
                    Pending::EndOfState(_) | Pending::Error(_) => {}
                }
            }
            objects.retain(|stored| is_missing(&self.encoder.served, stored));
            if objects.is_empty() {
                return Poll::Ready(());
            }
            let (caller, served) = (self.caller.clone(), self.encoder.served.clone());
            self.converting = Some(Box::pin(async move { convert(&caller, &served, &objects).await }));
        }
        let Some(converting) = &mut self.converting else { return Poll::Ready(()) };
        let Poll::Ready(converted) = converting.as_mut().poll(cx) else { return Poll::Pending };
        self.converting = None;
        if let Err(why) = converted {
            self.pending.clear();
            self.pending.push_back(Pending::Error(Box::new(Status::internal(why))));
        }
        Poll::Ready(())
    }
}
