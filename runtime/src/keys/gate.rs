//! Holds a controller's keys while caches that they read can't be relied on.
//!
//! After a server lost its history, half a restored view is worse than none: it makes children for parents that no
//! longer exist. So no key runs until every cache has been compared with what is left. And a key whose cache lost its
//! watch to the connection waits a moment for it: the server that comes back may be another one.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use futures::future::BoxFuture;
use tokio::{sync::watch, time::sleep_until};

use crate::{
    object::{Kind, ObjectKey},
    reflector::{Doubt, DoubtCause, Server},
};

/// No change count.
const NEVER: u64 = u64::MAX;

/// A cache that a controller reads.
pub(crate) struct ReadCache {
    pub(crate) kind: Kind,
    /// The namespace whose keys alone read it; `None`: all do.
    pub(crate) of: Option<Arc<str>>,
    pub(crate) doubt: Box<dyn Fn() -> Option<Doubt> + Send + Sync>,
}

/// Which keys of a controller may run and write.
pub(crate) struct Gate {
    server: Server,
    caches: Vec<ReadCache>,
    /// The server's change count when no cache was in doubt: as long as it stays, none is.
    open_at: AtomicU64,
}

impl Gate {
    /// Guards a controller that reads these caches, all of one server.
    pub(crate) fn new(server: Server, caches: Vec<ReadCache>) -> Self {
        Self { server, caches, open_at: AtomicU64::new(NEVER) }
    }

    /// Waits until a key may run, or until nothing keeps all keys from running.
    pub(crate) fn opened<'a>(&'a self, key: Option<&'a ObjectKey>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let mut changes = self.changes();
            while let Some(doubt) = self.doubt(key) {
                tokio::select! {
                    biased;
                    changed = changes.changed() => changed.expect("the server is held here"),
                    () = sleep_until(doubt.until) => {}
                }
            }
        })
    }

    /// Lists what is in doubt.
    pub(crate) fn doubts(&self) -> Vec<(&Kind, Doubt)> {
        self.caches.iter().filter_map(|cache| Some((&cache.kind, (cache.doubt)()?))).collect()
    }

    /// Counts the reported losses of the server's history.
    pub(crate) fn losses(&self) -> u64 {
        self.server.losses()
    }

    /// Follows what may close or open the gate; but for that, time alone opens it.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.server.changes()
    }

    /// Says why a key must not run for now, if so; without a key, why none must. Of several doubts it is the one that lasts
    /// longest.
    pub(crate) fn doubt(&self, key: Option<&ObjectKey>) -> Option<Doubt> {
        let now = self.server.change_count();
        if self.open_at.load(Ordering::Acquire) == now {
            return None;
        }
        let (mut open, mut longest) = (true, None::<Doubt>);
        for cache in &self.caches {
            let Some(doubt) = (cache.doubt)() else { continue };
            open = false;
            // Lost history concerns every key; a watch that is lost, those that read its cache.
            let concerns = match (doubt.cause, &cache.of) {
                (DoubtCause::WatchCut, Some(namespace)) => {
                    key.is_some_and(|key| key.namespace() == Some(&**namespace))
                }
                _ => true,
            };
            if concerns && longest.is_none_or(|longest| longest.until < doubt.until) {
                longest = Some(doubt);
            }
        }
        if open {
            self.open_at.store(now, Ordering::Release);
        }
        longest
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Mutex, time::Duration};

    use tokio::time::Instant;

    use super::*;
    use crate::object::Scope;

    type Set = Arc<Mutex<Option<Doubt>>>;

    fn cache(of: Option<&str>) -> (ReadCache, Set) {
        let kind = Kind {
            group: "".into(),
            version: "v1".into(),
            kind: "Pod".into(),
            plural: "pods".into(),
            scope: Scope::Namespaced,
        };
        let doubt = Set::default();
        let shown = doubt.clone();
        let shown = move || shown.lock().unwrap().filter(|doubt| Instant::now() < doubt.until);
        (ReadCache { kind, of: of.map(Arc::from), doubt: Box::new(shown) }, doubt)
    }

    fn set(server: &Server, cache: &Set, doubt: Option<(DoubtCause, u64)>) {
        let until = |seconds| Instant::now() + Duration::from_secs(seconds);
        *cache.lock().unwrap() = doubt.map(|(cause, seconds)| Doubt { cause, until: until(seconds) });
        server.note_change();
    }

    // C35
    #[tokio::test(start_paused = true)]
    async fn a_key_waits_for_its_own_caches_and_after_lost_history_for_all() {
        let server = Server::default();
        let ((shop, of_shop), (farm, of_farm)) = (cache(Some("shop")), cache(Some("farm")));
        let gate = Gate::new(server.clone(), vec![shop, farm]);
        let key = ObjectKey::new("shop", "a");
        assert_eq!(gate.doubt(Some(&key)), None);
        set(&server, &of_farm, Some((DoubtCause::WatchCut, 5)));
        assert_eq!(gate.doubt(Some(&key)), None);
        assert!(gate.doubt(Some(&ObjectKey::new("farm", "a"))).is_some());
        gate.opened(None).await;
        set(&server, &of_shop, Some((DoubtCause::WatchCut, 5)));
        assert_eq!(gate.doubt(Some(&key)).unwrap().cause, DoubtCause::WatchCut);
        set(&server, &of_shop, None);
        set(&server, &of_farm, Some((DoubtCause::HistoryLost, 5)));
        assert_eq!(gate.doubt(Some(&key)).unwrap().cause, DoubtCause::HistoryLost);
    }

    // C35
    #[tokio::test(start_paused = true)]
    async fn who_waits_goes_on_when_the_cache_is_back_or_when_its_time_is_over() {
        let server = Server::default();
        let (pods, of_pods) = cache(None);
        let gate = Arc::new(Gate::new(server.clone(), vec![pods]));
        let began = Instant::now();
        set(&server, &of_pods, Some((DoubtCause::WatchCut, 5)));
        let waiting = tokio::spawn({
            let gate = gate.clone();
            async move { gate.opened(None).await }
        });
        tokio::time::sleep(Duration::from_secs(2)).await;
        set(&server, &of_pods, None);
        waiting.await.unwrap();
        assert_eq!(began.elapsed(), Duration::from_secs(2));
        set(&server, &of_pods, Some((DoubtCause::HistoryLost, 60)));
        gate.opened(Some(&ObjectKey::new("shop", "a"))).await;
        assert_eq!(began.elapsed(), Duration::from_secs(62));
    }
}
