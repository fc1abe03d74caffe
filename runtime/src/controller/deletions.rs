//! What a worker does with deletions that the reconciler has yet to handle.

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    Reconciler,
    context::RunInfo,
    run::{Failure, FailureAction},
    starts::{Ready, Starts},
    tombstones::{DeletionRetry, Delivery, Tombstone},
    worker::ControllerCore,
};
use crate::{informer::Watched, object::ObjectKey};

impl<K: Watched, R: Reconciler<K>> ControllerCore<K, R> {
    /// Calls the reconciler for a deletion; one that keeps failing is given up, so that it holds up nothing for good.
    pub(super) async fn deliver_deletion(
        &self,
        run_info: &Arc<RunInfo>,
        tombstone: Tombstone<K::Object>,
        starts: &mut Starts<'_>,
    ) -> Result<Delivery, Failure> {
        let key = &run_info.key;
        if !self.is_gone(key, &tombstone, starts).await? {
            self.tombstones.close(key, &tombstone);
            return Ok(Delivery::Ended);
        }
        if starts.ready().await == Ready::Never {
            return Ok(Delivery::Stopped);
        }
        starts.pay();
        let cx = self.context(run_info, None);
        let called = self.call(|| self.reconciler.deleted(tombstone.last.deleted(), &cx));
        let Err(failure) = self.caught(run_info, called).await else {
            self.tombstones.close(key, &tombstone);
            return Ok(Delivery::Ended);
        };
        let retry = match failure.action {
            FailureAction::Terminal => {
                self.tombstones.close(key, &tombstone);
                DeletionRetry::GivenUp
            }
            // Nothing failed: it was computed from an old version, or nothing was sent.
            FailureAction::RetryUncounted | FailureAction::Overloaded(_) => DeletionRetry::Later,
            FailureAction::Retry | FailureAction::RetryAfter(_) => {
                self.tombstones.failed(key, &tombstone, Instant::now())
            }
        };
        match retry {
            DeletionRetry::Later => Err(failure),
            DeletionRetry::GivenUp => {
                let error = failure.report;
                self.metrics.deletions_dropped.inc();
                tracing::error!(error, "a deletion was not handled, and is given up");
                Ok(Delivery::Ended)
            }
        }
    }

    /// Distinguishes a deletion from an object that only left the selection: asks the server.
    async fn is_gone(
        &self,
        key: &ObjectKey,
        tombstone: &Tombstone<K::Object>,
        starts: &mut Starts<'_>,
    ) -> Result<bool, Failure> {
        if self.selection.is_everything() {
            return Ok(true);
        }
        starts.give_back();
        let found = self.base.writer.fetch(&self.target(key)).await?;
        let there = found.as_ref().and_then(|object| object["metadata"]["uid"].as_str());
        Ok(match (found.is_some(), tombstone.last.uid()) {
            (false, _) => true,
            (true, Some(gone)) => there != Some(gone),
            (true, None) => false,
        })
    }
}
