//! Sources other than the API server: streams of keys to run.

use std::sync::Arc;

use futures::{
    Stream, StreamExt,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use tokio::sync::{Mutex, Semaphore};

use super::enqueue::Enqueuer;
use crate::{
    object::ObjectKey,
    users_code::{contained, contained_in},
};

/// How many keys of one source may wait for a run: the source is not asked for more.
const WAITING_PER_SOURCE: usize = 256;

/// A stream of keys, listened to while the controller works; clones are one.
#[derive(Clone)]
pub(crate) struct StreamSource(Arc<Mutex<BoxStream<'static, ObjectKey>>>);

impl StreamSource {
    pub(crate) fn new(keys: impl Stream<Item = ObjectKey> + Send + 'static) -> Self {
        // The next term asks again, also if it has ended.
        Self(Arc::new(Mutex::new(keys.fuse().boxed())))
    }

    /// Queues what the stream says, until it ends.
    pub(crate) fn listen(self, name: Arc<str>, enqueuer: Enqueuer) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            // Between two terms the one that listened may not be gone yet.
            let mut keys = self.0.lock().await;
            if contained_in(pump(&mut keys, enqueuer)).await.is_none() {
                let panicked = std::mem::replace(&mut *keys, stream::empty().boxed());
                contained(|| drop(panicked));
                tracing::error!(controller = %name, "an external source panicked: it is not listened to any more");
            } else {
                tracing::debug!(controller = %name, "an external source has ended");
            }
        })
    }
}

async fn pump(keys: &mut BoxStream<'static, ObjectKey>, enqueuer: Enqueuer) {
    let room = Arc::new(Semaphore::new(WAITING_PER_SOURCE));
    // Room first: what can't be queued stays with the source.
    while let Ok(permit) = room.clone().acquire_owned().await {
        let Some(key) = keys.next().await else { return };
        enqueuer.keys.table().add_external(key, permit);
    }
}
