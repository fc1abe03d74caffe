//! Whether a cache holds what the server holds now: asked when a term of leadership begins.
//!
//! A watch that is quiet, and one that lags, look alike. So the server is asked for its version, by a consistent read; a
//! cache that does not show it soon lists anew. Where versions are unknown or can't be compared (an aggregated API may write
//! them otherwise) a cache is taken as it is.

use std::{sync::Arc, time::Duration};

use futures::future::{BoxFuture, join_all};
use tokio::time::sleep;

use super::{core::InformerCore, reflector_task::AskLatest, reliability::Reliability};
use crate::{
    delta_fifo::Extent,
    object::{Kind, Object, Version},
    reflector::Server,
    store::VersionNotReached,
};

/// How long a watch may take to show what the server has.
const SHOWS_WITHIN: Duration = Duration::from_secs(2);
/// How soon a question that was not answered is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// No limit: a list that fails is tried again.
const EVER: Duration = Duration::from_secs(30 * 365 * 86_400);

/// Ends once every part of a cache holds at least what the server held when this was asked.
pub(super) fn current<K: Object>(core: &InformerCore<K>) -> BoxFuture<'_, ()> {
    let cache = core.indexer.lister();
    let shows = move |version, within| -> BoxFuture<'static, Result<(), VersionNotReached>> {
        let cache = cache.clone();
        Box::pin(async move { cache.wait_for_version(version, within).await })
    };
    let asked = Asked {
        kind: &core.kind,
        reliability: &core.reliability,
        latest: &core.latest,
        shows: Box::new(shows),
    };
    asked.all_current()
}

/// A cache whose type is forgotten: what asks is compiled once, not for each kind.
struct Asked<'a> {
    kind: &'a Kind,
    reliability: &'a Reliability,
    /// Of each extent.
    latest: &'a [(Extent, Arc<AskLatest>)],
    /// Waits until the cache shows a version, for so long at most.
    shows: Box<Shows>,
}

type Shows = dyn Fn(Version, Duration) -> BoxFuture<'static, Result<(), VersionNotReached>> + Send + Sync;

impl<'a> Asked<'a> {
    fn all_current(self) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            join_all(self.latest.iter().map(|(extent, latest)| self.part_current(extent, latest))).await;
        })
    }

    async fn part_current(&self, extent: &Extent, latest: &Arc<AskLatest>) {
        let (kind, server) = (self.kind, self.reliability.server());
        loop {
            let losses = server.losses();
            let Some(version) = told(kind, latest).await else {
                tracing::debug!(%kind, "can't tell whether the cache is current: it is taken as it is");
                return;
            };
            if (self.shows)(version, SHOWS_WITHIN).await.is_ok() {
                return;
            }
            tracing::info!(%kind, %version, "the cache does not show the latest version: listing {kind} anew");
            self.reliability.list_anew(extent);
            tokio::select! {
                _ = (self.shows)(version, EVER) => return,
                // The versions of before mean nothing any more.
                () = lost_again(server, losses) => {}
            }
        }
    }
}

async fn lost_again(server: &Server, known: u64) {
    let mut changes = server.changes();
    while server.losses() == known {
        changes.changed().await.expect("the server is held by the cache");
    }
}

/// Asks until the server answers: the version that it has, if that can be compared.
async fn told(kind: &Kind, latest: &Arc<AskLatest>) -> Option<Version> {
    loop {
        match latest().await {
            Ok(version) => return version,
            Err(error) if error.is_forbidden() || error.is_not_found() => return None,
            Err(error) => {
                tracing::warn!(%kind, %error, "can't ask how old the cache is: asking again");
                sleep(ASK_AGAIN).await;
            }
        }
    }
}
