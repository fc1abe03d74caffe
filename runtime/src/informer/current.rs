//! Whether a cache holds what the server holds now: asked when a term of leadership begins.
//!
//! A watch that is quiet, and one that lags, look alike. So the server is asked for its version, by a consistent read; a
//! cache that does not show it soon is listed again. Where versions are unknown or can't be compared (an aggregated API may
//! write them otherwise) a cache is taken as it is.
//!
//! Controllers share caches, and several caches hold parts of one kind: a [`TermStart`] has each kind's version asked for
//! once, and each cache brought up to it once, whichever controllers wait for that.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use tokio::{sync::OnceCell, time::sleep};

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
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// No limit: a list that fails is tried again.
const EVER: Duration = Duration::from_secs(30 * 365 * 86_400);

/// Any cache.
type Cache = dyn Send + Sync;

/// Set once a cache is up to date.
type UpToDate = Arc<OnceCell<()>>;

/// The latest version of a kind, once somebody has asked for it.
type Latest = Arc<OnceCell<Version>>;

/// What is asked when a term begins.
///
/// A term that goes on where the last one of the same process ended goes on with this as well: nobody else has worked
/// since, so that what was brought up to date stays so.
#[derive(Default)]
pub(crate) struct TermStart {
    /// By kind, and by how often the server had lost its history when it was asked.
    versions: Mutex<HashMap<(Kind, u64), Latest>>,
    /// Keyed by address; the weak reference keeps another cache from getting the same one.
    caches: Mutex<HashMap<usize, (Weak<Cache>, UpToDate)>>,
    told: AtomicBool,
}

impl TermStart {
    fn version(&self, kind: &Kind, losses: u64) -> Arc<OnceCell<Version>> {
        let mut versions = self.versions.lock();
        versions.entry((kind.clone(), losses)).or_default().clone()
    }

    fn cache<C: Send + Sync + 'static>(&self, cache: &Arc<C>) -> UpToDate {
        let mut caches = self.caches.lock();
        let address = Arc::as_ptr(cache) as usize;
        let of_cache = || (Arc::downgrade(cache) as Weak<Cache>, Arc::default());
        caches.entry(address).or_insert_with(of_cache).1.clone()
    }

    /// Says once that caches are listed again; which ones, for those who debug.
    fn tell(&self, kind: &Kind, version: Version) {
        if !self.told.swap(true, Ordering::Relaxed) {
            tracing::info!("a new term: listing the kinds again whose caches do not show the latest version");
        }
        tracing::debug!(%kind, %version, "the cache does not show the latest version: listing {kind} again");
    }
}

impl fmt::Debug for TermStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TermStart").finish_non_exhaustive()
    }
}

/// Ends once every part of a cache holds at least what the server held after a term began.
pub(super) async fn current<K: Object>(core: &Arc<InformerCore<K>>, start: &TermStart) {
    start.cache(core).get_or_init(|| ask(core, start)).await;
}

fn ask<'a, K: Object>(core: &'a InformerCore<K>, start: &'a TermStart) -> BoxFuture<'a, ()> {
    let cache = core.indexer.lister();
    let shows = move |version, within| -> BoxFuture<'static, Result<(), VersionNotReached>> {
        let cache = cache.clone();
        Box::pin(async move { cache.wait_for_version(version, within).await })
    };
    let asked = CurrencyCheck {
        start,
        kind: &core.kind,
        reliability: &core.reliability,
        latest: &core.latest,
        shows: Box::new(shows),
    };
    asked.all_current()
}

/// A cache whose type is forgotten: what asks is compiled once, not for each kind.
struct CurrencyCheck<'a> {
    start: &'a TermStart,
    kind: &'a Kind,
    reliability: &'a Reliability,
    /// The latest version of each extent.
    latest: &'a [(Extent, Arc<AskLatest>)],
    /// Waits until the cache shows a version, for so long at most.
    shows: Box<Shows>,
}

type Shows = dyn Fn(Version, Duration) -> BoxFuture<'static, Result<(), VersionNotReached>> + Send + Sync;

impl<'a> CurrencyCheck<'a> {
    fn all_current(self) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            join_all(self.latest.iter().map(|(extent, latest)| self.part_current(extent, latest))).await;
        })
    }

    async fn part_current(&self, extent: &Extent, latest: &Arc<AskLatest>) {
        let (kind, server) = (self.kind, self.reliability.server());
        loop {
            let losses = server.losses();
            let version = self.start.version(kind, losses);
            let Ok(&version) = version.get_or_try_init(|| told(kind, latest)).await else {
                tracing::debug!(%kind, "can't tell whether the cache is current: it is taken as it is");
                return;
            };
            if (self.shows)(version, SHOWS_WITHIN).await.is_ok() {
                return;
            }
            self.start.tell(kind, version);
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

/// No version is known that can be compared.
struct Unknown;

/// Asks until the server answers: the version that it has, if that can be compared.
async fn told(kind: &Kind, latest: &Arc<AskLatest>) -> Result<Version, Unknown> {
    loop {
        match latest().await {
            Ok(version) => return version.ok_or(Unknown),
            Err(error) if error.is_forbidden() || error.is_not_found() => return Err(Unknown),
            Err(error) => {
                tracing::warn!(%kind, %error, "can't ask how old the cache is: asking again");
                sleep(ASK_AGAIN).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // L9
    #[test]
    fn all_who_wait_for_a_cache_share_one_update() {
        let (start, cache) = (TermStart::default(), Arc::new(()));
        start.cache(&cache).set(()).expect("nobody has brought it up to date");
        assert!(start.cache(&cache).initialized());
    }

    // L9
    #[test]
    fn a_cache_is_not_taken_for_one_that_is_gone() {
        let start = TermStart::default();
        for number in 0..100_u64 {
            // The allocator gives the address of the last one again, if it may.
            let cache = Arc::new(number);
            start.cache(&cache).set(()).expect("nobody has brought this cache up to date");
        }
    }
}
