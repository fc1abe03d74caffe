//! A reconciler that does what a closure says.

use std::{fmt, sync::Arc};

use futures::future::BoxFuture;
use watchkeeper::prelude::*;

use crate::Record;

/// What a run comes to.
pub type Done = anyhow::Result<Action>;

type Run<K> = dyn Fn(Arc<<K as Watched>::Object>, Context<K>) -> BoxFuture<'static, Done> + Send + Sync;

/// Does what a closure says, and records that it ran; clones share both.
pub struct Does<K: Watched> {
    record: Record,
    run: Arc<Run<K>>,
}

impl<K: Watched> Clone for Does<K> {
    fn clone(&self) -> Self {
        Self { record: self.record.clone(), run: self.run.clone() }
    }
}

impl<K: Watched> Reconciler<K> for Does<K> {
    type Error = anyhow::Error;

    async fn reconcile(&self, object: Arc<K::Object>, cx: &Context<K>) -> Done {
        self.record.start(cx);
        (self.run)(object, cx.clone()).await
    }
}

impl<K: Watched> fmt::Debug for Does<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Does").field("record", &self.record).finish_non_exhaustive()
    }
}

/// Makes a reconciler of a closure; the record shows its runs.
pub fn does<K: Watched, F, Fut>(run: F) -> (Does<K>, Record)
where
    F: Fn(Arc<K::Object>, Context<K>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Done> + Send + 'static,
{
    let record = Record::default();
    let run: Arc<Run<K>> = Arc::new(move |object, cx| Box::pin(run(object, cx)));
    (Does { record: record.clone(), run }, record)
}
