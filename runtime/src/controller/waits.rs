//! The caches that a controller waits for before it runs keys, and the gate that they make.

use std::{collections::HashSet, sync::Arc};

use futures::{
    FutureExt,
    future::{join_all, select_all},
};

use super::{synced::Synced, term::TermFreshness};
use crate::{
    keys::{Gate, ReadCache},
    object::ObjectKey,
    reflector::Server,
};

/// The informers that a controller waits for before it runs keys.
#[derive(Debug)]
pub(crate) struct Waits {
    /// Every key waits for these.
    pub(crate) common: Vec<Arc<dyn Synced>>,
    /// The keys of a namespace wait for its own besides; empty with one cache for all.
    pub(crate) by_namespace: Vec<OfNamespace>,
}

/// Makes the gate that keeps keys from running while a cache of this server is in doubt.
pub(crate) fn gate(waits: &Waits, server: Server) -> Gate {
    let read = |of: Option<&Arc<str>>, informer: &Arc<dyn Synced>| {
        let (kind, of, informer) = (informer.kind(), of.cloned(), informer.clone());
        ReadCache { kind, of, doubt: Box::new(move || informer.doubt()) }
    };
    let own = waits.by_namespace.iter().flat_map(|(of, own)| own.iter().map(move |cache| (Some(of), cache)));
    let caches = waits.common.iter().map(|cache| (None, cache)).chain(own);
    let caches = caches.filter(|(_, cache)| cache.cluster().is_none());
    Gate::new(server, caches.map(|(of, cache)| read(of, cache)).collect())
}

/// A namespace, and the informers that its keys wait for.
type OfNamespace = (Arc<str>, Vec<Arc<dyn Synced>>);

impl Waits {
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<dyn Synced>> {
        self.common.iter().chain(self.by_namespace.iter().flat_map(|(_, own)| own))
    }

    /// Ends when those that every key waits for have synced, or are as fresh as a term needs them.
    pub(crate) async fn common_ready(&self, freshness: &TermFreshness) {
        join_all(self.common.iter().map(|informer| ready(informer, freshness))).await;
    }

    /// Ends when keys could run, if only those of one namespace.
    pub(crate) async fn any_could_run(&self) {
        self.common_ready(&TermFreshness::Synced).await;
        if self.by_namespace.is_empty() {
            return;
        }
        let own = self.by_namespace.iter();
        let synced = own.map(|(_, own)| join_all(own.iter().map(|informer| informer.synced())).boxed());
        select_all(synced).await;
    }

    pub(crate) async fn all_synced(&self) {
        join_all(self.all().map(|informer| informer.synced())).await;
    }

    /// Names the kinds, each once.
    pub(crate) fn kinds(&self) -> Vec<String> {
        let mut kinds: Vec<_> = self.all().map(|informer| informer.name()).collect();
        let mut seen = HashSet::new();
        kinds.retain(|kind| seen.insert(kind.clone()));
        kinds
    }

    pub(crate) fn all_lagging_have_failed(&self) -> bool {
        self.all()
            .filter(|informer| !informer.has_synced())
            .all(|informer| informer.state().failure.is_some())
    }

    /// Names who has not synced, and why.
    pub(crate) fn lagging(&self) -> Vec<String> {
        lagging(self.all())
    }

    /// Names the informers that a key waits for, and why.
    pub(crate) fn lagging_for(&self, key: &ObjectKey) -> Vec<String> {
        let own = self.by_namespace.iter().filter(|(namespace, _)| Some(&**namespace) == key.namespace());
        lagging(self.common.iter().chain(own.flat_map(|(_, own)| own)))
    }

    /// Calls a function for each namespace once its caches have synced, or are as fresh as a term needs them.
    pub(crate) async fn by_namespace_ready(&self, freshness: &TermFreshness, tell: impl Fn(&Arc<str>)) {
        join_all(self.by_namespace.iter().map(async |(namespace, own)| {
            join_all(own.iter().map(|informer| ready(informer, freshness))).await;
            tell(namespace);
        }))
        .await;
    }
}

/// A new leader has to see what the last one wrote: that is here, and nothing in another cluster, which may be away.
async fn ready(informer: &Arc<dyn Synced>, freshness: &TermFreshness) {
    match freshness {
        TermFreshness::Current(start) if informer.cluster().is_none() => informer.current(start).await,
        TermFreshness::Current(_) | TermFreshness::Synced => informer.synced().await,
    }
}

fn lagging<'a>(informers: impl Iterator<Item = &'a Arc<dyn Synced>>) -> Vec<String> {
    let lag = informers.filter(|informer| !informer.has_synced());
    let mut names: Vec<_> = lag.map(|informer| format!("{} ({})", informer.name(), informer.why())).collect();
    names.dedup();
    names
}
