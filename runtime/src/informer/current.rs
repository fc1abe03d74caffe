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
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{FutureExt, future::join_all};
use parking_lot::Mutex;
use tokio::{
    sync::OnceCell,
    time::{sleep, timeout},
};

use super::core::InformerCore;
use crate::{
    delta_fifo::Extent,
    list_watch::AnySource,
    object::{Kind, Version},
    reflector::{Fault, Server},
};

/// How long a watch may take to show what the server has.
const SHOWS_WITHIN: Duration = Duration::from_secs(2);
/// How long an answer may take.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
/// How soon a question that was not answered is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// How soon a part that does not come up to date is asked by itself, and then again and again.
const ASK_ITSELF: Duration = Duration::from_secs(10);

/// The latest version of a kind, once somebody has asked for it; `None`: no version is known that can be compared.
type Latest = Arc<OnceCell<Option<Version>>>;

/// One for each server: a manager may work in several clusters.
type LatestOfServers = Vec<(Server, Latest)>;

/// What is asked when a term begins.
///
/// A term that goes on where the last one of the same process ended goes on with this as well: nobody else has worked
/// since, so that what was brought up to date stays so.
#[derive(Default)]
pub(crate) struct TermStart {
    /// Tells terms apart.
    term: Arc<()>,
    /// By kind, and by how often the server had lost its history when it was asked.
    versions: Mutex<HashMap<(Kind, u64), LatestOfServers>>,
    told: AtomicBool,
}

impl TermStart {
    fn version(&self, kind: &Kind, server: &Server, losses: u64) -> Latest {
        let mut versions = self.versions.lock();
        let of_kind = versions.entry((kind.clone(), losses)).or_default();
        // A cluster of a fleet may go and come again, and be another server then.
        if let Some((_, latest)) = of_kind.iter().find(|(known, _)| known.is_same(server)) {
            return latest.clone();
        }
        of_kind.retain(|(known, _)| known.is_shared());
        of_kind.push((server.clone(), Latest::default()));
        of_kind.last().map(|(_, latest)| latest.clone()).unwrap_or_default()
    }

    /// Logs once that caches are listed again; which ones, for those who debug.
    fn tell(&self, kind: &Kind, version: Version) {
        if !self.told.swap(true, Ordering::Relaxed) {
            tracing::info!("a new term: listing the kinds again whose caches do not show the latest version");
        }
        tracing::debug!(%kind, %version, "the cache does not show the latest version: listing {kind} again");
    }
}

/// Ends once every part of a cache holds at least what the server held after a term began.
pub(super) async fn current(core: &InformerCore, start: &TermStart) {
    let up_to_date = {
        let mut current = core.current.lock();
        if !Arc::ptr_eq(&current.0, &start.term) {
            *current = (start.term.clone(), Arc::default());
        }
        current.1.clone()
    };
    let parts = || join_all(core.sources.iter().map(|part| part_current(core, start, part))).map(drop);
    up_to_date.get_or_init(parts).await;
}

async fn part_current(
    core: &InformerCore,
    start: &TermStart,
    (extent, source): &(Extent, Arc<dyn AnySource>),
) {
    let (kind, cache, server) = (&core.kind, core.indexer.lister(), &core.reliability.server);
    let mut is_told = false;
    loop {
        let losses = server.losses();
        let version = start.version(kind, server, losses);
        let version = match version.get_or_try_init(|| told(&**source)).await {
            Ok(Some(version)) => *version,
            // Only this part: another namespace may be readable.
            Ok(None) | Err(AskError::Refused) => {
                tracing::debug!(%kind, "can't tell whether the cache is current: it is taken as it is");
                return;
            }
            Err(AskError::Failed(error)) => {
                // A cluster of a fleet may be away for long.
                if !std::mem::replace(&mut is_told, true) {
                    tracing::warn!(kind = core.name(), %error, "can't ask how old the cache is: asking again");
                }
                sleep(ASK_AGAIN).await;
                continue;
            }
        };
        if timeout(SHOWS_WITHIN, cache.reaches(version, Some(extent))).await.is_ok() {
            return;
        }
        start.tell(kind, version);
        core.reliability.list_anew(extent);
        tokio::select! {
            () = cache.reaches(version, Some(extent)) => return,
            // Another part of the cache was asked: this one may not be readable any more.
            () = is_refused(&**source) => return,
            // The versions of before mean nothing any more.
            () = server.lost_after(losses) => {}
        }
    }
}

/// Ends once the server refuses to say what version a part of a cache has.
async fn is_refused(source: &dyn AnySource) {
    loop {
        sleep(ASK_ITSELF).await;
        if let Err(AskError::Refused) = told(source).await {
            tracing::debug!("a part of a cache can't be read any more: it is taken as it is");
            return;
        }
    }
}

/// Why the server did not say what version it has.
enum AskError {
    Refused,
    Failed(String),
}

/// Asks the server once for the version that it has; `None`: it can't be compared.
///
/// Other parts of the cache wait for the answer meanwhile, and ask by themselves after a failure.
async fn told(source: &dyn AnySource) -> Result<Option<Version>, AskError> {
    match timeout(ANSWERS_WITHIN, source.latest_version()).await {
        Ok(Ok(version)) => Ok(version.and_then(|version| version.parse().ok())),
        Ok(Err(error)) if Fault::of(&error).refuses() => Err(AskError::Refused),
        Ok(Err(error)) => Err(AskError::Failed(error.to_string())),
        Err(_) => Err(AskError::Failed(format!("no answer within {ANSWERS_WITHIN:?}"))),
    }
}
