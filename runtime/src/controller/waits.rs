//! The caches that a controller waits for before it runs keys, and the gate that they make.

use std::{collections::HashSet, sync::Arc, time::Duration};

use futures::{
    FutureExt,
    future::{join_all, select_all},
};

use super::watch::Place;
use crate::{
    informer::{AnyInformer, SyncPhase, SyncState, TermStart},
    keys::{Gate, ReadCache, SourceId},
    object::{ObjectKey, Version},
    reflector::Server,
    shards::ShownVersions,
};

/// How long a watch may take to show what another replica's has shown.
const SHOWS_WITHIN: Duration = Duration::from_secs(2);

/// The informers that a controller waits for before it runs keys.
#[derive(Default)]
pub(crate) struct Waits {
    /// The cluster that the controller works in; `None`: the manager's own.
    pub(super) cluster: Option<Arc<str>>,
    /// The namespaces whose keys also wait for caches of their own; empty with one cache for all.
    pub(super) namespaces: Vec<Arc<str>>,
    /// The informers, and whose keys wait for each: those of a namespace, or all.
    pub(super) awaited: Vec<(Place, AnyInformer)>,
    /// The whole caches that feed the controller, as all replicas name them, by [`SourceId`].
    pub(super) fed_by: Vec<Option<String>>,
}

impl Waits {
    pub(super) fn new(
        cluster: Option<Arc<str>>,
        namespaces: Vec<Arc<str>>,
        awaited: Vec<(Place, AnyInformer)>,
        feeding: &[AnyInformer],
    ) -> Self {
        let name = |fed: &AnyInformer| {
            let (_, informer) = awaited.iter().find(|(_, informer)| informer.is_same(fed))?;
            informer.cached().filter(|_| !informer.is_part())
        };
        let fed_by = feeding.iter().map(name).collect();
        Self { cluster, namespaces, awaited, fed_by }
    }

    /// Returns whether an informer's objects are in the cluster that the controller works in.
    fn is_here(&self, informer: &AnyInformer) -> bool {
        informer.cluster() == self.cluster
    }

    fn of(&self, place: Option<&str>) -> impl Iterator<Item = &AnyInformer> {
        let awaited = self.awaited.iter().filter(move |(of, _)| of.as_deref() == place);
        awaited.map(|(_, informer)| informer)
    }

    /// Makes the gate that keeps keys from running while a cache of this server is in doubt.
    pub(super) fn gate(&self, server: Server) -> Gate {
        let here = self.awaited.iter().filter(|(_, informer)| self.is_here(informer));
        let caches = here.map(|(of, informer)| {
            let (kind, informer) = (informer.kind().clone(), informer.clone());
            ReadCache { kind, of: of.clone(), doubt: Box::new(move || informer.reliability().doubt()) }
        });
        Gate::new(server, caches.collect())
    }

    /// A new leader has to see what the last one wrote: that is here, and nothing in another cluster, which may be away.
    async fn ready_as(&self, informer: &AnyInformer, start: Option<&TermStart>) {
        match start {
            Some(start) if self.is_here(informer) => informer.current(start).await,
            _ => informer.synced().await,
        }
    }

    /// Ends when the caches of a namespace, or those that every key waits for, have synced, or are as fresh as a term
    /// needs them.
    pub(super) async fn ready(&self, place: Option<&str>, start: Option<&TermStart>) {
        join_all(self.of(place).map(|informer| self.ready_as(informer, start))).await;
    }

    /// Ends when the caches that keys of some namespaces wait for, and that have synced, are as fresh as a term needs them.
    /// Keys of the others wait for them anyway.
    pub(super) async fn fresh(&self, start: &TermStart, is_in: impl Fn(&str) -> bool) {
        let is_awaited = |of: &Place, informer: &AnyInformer| {
            of.as_deref().is_none_or(|namespace| is_in(namespace) && informer.has_synced())
        };
        let awaited = self.awaited.iter().filter(|(of, informer)| is_awaited(of, informer));
        let fresh = awaited.map(|(_, informer)| async move {
            match informer.is_part() {
                true => informer.listed_anew().await,
                false => self.ready_as(informer, Some(start)).await,
            }
        });
        join_all(fresh).await;
    }

    /// Says what caches must show before others run the keys: the highest version of an object that each of these shows,
    /// or is still to show because a run wrote it.
    pub(super) fn shown(&self, written: impl IntoIterator<Item = (SourceId, Version)>) -> ShownVersions {
        let written = written.into_iter();
        let written =
            written.filter_map(|(source, version)| Some((self.fed_by.get(source.0)?.clone()?, version.0)));
        let whole = self.awaited.iter().filter(|(_, informer)| !informer.is_part());
        let shown = whole.filter_map(|(_, informer)| {
            Some((informer.cached()?, informer.newest().map_or(0, |newest| newest.0)))
        });
        let mut versions = ShownVersions::new();
        for (name, version) in shown.chain(written) {
            let highest = versions.entry(name).or_default();
            *highest = version.max(*highest);
        }
        versions
    }

    /// Ends when all caches that have synced show what those of another replica showed; if that takes long, when they are
    /// as fresh as a term needs them.
    pub(super) async fn as_fresh_as(&self, shown: &ShownVersions, start: &TermStart) {
        let awaited = self.awaited.iter().filter(|(of, informer)| of.is_none() || informer.has_synced());
        let fresh = awaited.map(|(_, informer)| async move {
            if informer.is_part() {
                return informer.listed_anew().await;
            }
            let version = informer.cached().and_then(|name| shown.get(&name).copied());
            let is_fresh = match version {
                Some(version) => informer.shows(Version(version), SHOWS_WITHIN).await,
                // A program of another version may not have had this cache.
                None => false,
            };
            if !is_fresh {
                self.ready_as(informer, Some(start)).await;
            }
        });
        join_all(fresh).await;
    }

    /// Lists again what holds this replica's part alone: so the caches forget what is not in it any more.
    pub(super) async fn forget_others(&self) {
        let parts = self.awaited.iter().filter(|(_, informer)| informer.is_part() && informer.has_synced());
        join_all(parts.map(|(_, informer)| informer.listed_anew())).await;
    }

    /// Ends when keys could run, if only those of one namespace.
    pub(crate) async fn any_could_run(&self) {
        self.ready(None, None).await;
        if !self.namespaces.is_empty() {
            let synced = self.namespaces.iter().map(|namespace| self.ready(Some(namespace), None).boxed());
            select_all(synced).await;
        }
    }

    pub(super) async fn all_synced(&self) {
        join_all(self.awaited.iter().map(|(_, informer)| informer.synced())).await;
    }

    /// Names what is waited for, each once.
    pub(super) fn names(&self) -> String {
        let mut names: Vec<_> = self.awaited.iter().map(|(_, informer)| informer.state().name()).collect();
        let mut seen = HashSet::new();
        names.retain(|name| seen.insert(name.clone()));
        names.join(", ")
    }

    /// Returns the informers that have not synced, and why.
    pub(super) fn lagging(&self) -> Vec<SyncState> {
        lagging(self.awaited.iter().map(|(_, informer)| informer))
    }

    /// Returns those that a key waits for.
    pub(super) fn lagging_for(&self, key: &ObjectKey) -> Vec<SyncState> {
        let own = key.namespace().into_iter().flat_map(|namespace| self.of(Some(namespace)));
        lagging(self.of(None).chain(own))
    }
}

fn lagging<'a>(informers: impl Iterator<Item = &'a AnyInformer>) -> Vec<SyncState> {
    informers.filter(|informer| !informer.has_synced()).map(|informer| informer.state()).collect()
}

/// Says of each informer why it has not synced, in one line.
pub(super) fn explained(lagging: &[SyncState]) -> Vec<String> {
    let mut lines: Vec<_> =
        lagging.iter().map(|state| format!("{} ({})", state.name(), why(state))).collect();
    lines.dedup();
    lines
}

fn why(state: &SyncState) -> String {
    match (&state.failure, state.phase) {
        (Some(failure), _) => failure.to_string(),
        (None, SyncPhase::Stopped) => "its informer was stopped".to_owned(),
        (None, _) => "its first list is not through".to_owned(),
    }
}
