//! Sources beside the API server: streams of keys that are to run.

use std::{panic::AssertUnwindSafe, pin::pin, sync::Arc};

use futures::{FutureExt, Stream, StreamExt, future::BoxFuture, stream::BoxStream};
use tokio::sync::Semaphore;

use super::enqueue::Enqueuer;
use crate::{object::ObjectKey, writes::record::Verdict};

/// How many keys of one source may wait for a run: the source is not asked for more.
const WAITING_PER_SOURCE: usize = 256;

/// A stream of keys, not yet listened to.
pub(crate) struct StreamSource(BoxStream<'static, ObjectKey>);

impl StreamSource {
    pub(crate) fn new(keys: impl Stream<Item = ObjectKey> + Send + 'static) -> Self {
        Self(keys.boxed())
    }

    /// Queues what the stream says, until it ends.
    pub(crate) fn listen(self, name: Arc<str>, enqueuer: Enqueuer) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            if AssertUnwindSafe(pump(self.0, enqueuer)).catch_unwind().await.is_err() {
                tracing::error!(controller = %name, "an external source panicked: it is not listened to any more");
            } else {
                tracing::debug!(controller = %name, "an external source has ended");
            }
        })
    }
}

async fn pump(keys: BoxStream<'static, ObjectKey>, enqueuer: Enqueuer) {
    let room = Arc::new(Semaphore::new(WAITING_PER_SOURCE));
    let mut keys = pin!(keys);
    // Room first: what can't be queued stays with the source.
    while let Ok(permit) = room.clone().acquire_owned().await {
        let Some(key) = keys.next().await else { return };
        match enqueuer.writer.foreign_change(&key) {
            Verdict::Enqueue => enqueuer.queue.add_from_source(key, permit),
            // In flight: it runs again afterwards.
            Verdict::Own | Verdict::Deferred => {}
        }
    }
}
