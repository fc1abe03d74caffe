//! What a manager gives its controllers, and how they find the informers that they read.

use std::sync::Arc;

use super::{Leftovers, synced::Synced, trace::TraceIds, watch::Watch};
use crate::{
    informer::{SharedInformerFactory, Watched},
    metrics::Metrics,
    object::Scope,
    writes::Sender,
};

/// What a manager gives its controllers.
pub(crate) struct ControllerEnv<'a> {
    pub(crate) sender: &'a Sender,
    pub(crate) factory: &'a SharedInformerFactory,
    /// The informers that the program asked for.
    pub(crate) asked: &'a [Arc<dyn Synced>],
    pub(crate) metrics: &'a Metrics,
    /// Decides what is random; `None`: nobody knows.
    pub(crate) seed: Option<u64>,
    pub(crate) election: Election,
    /// Where work is noted that outlives its run.
    pub(crate) leftovers: &'a Arc<Leftovers>,
    pub(crate) writes: Writes,
    pub(crate) trace_ids: &'a TraceIds,
}

/// What becomes of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writes {
    /// They are sent.
    Sent,
    /// The server only tries them: no cache ever shows them.
    Tried,
}

/// Says whether there is one term of work, or one for each time that this replica leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Election {
    None,
    Held,
}

/// A namespace that is watched on its own; `None`: all at once.
pub(crate) type Place = Option<Arc<str>>;

/// An informer that keys wait for: those of its namespace, or all.
pub(crate) type Awaited = (Place, Arc<dyn Synced>);

/// Finds the informers of a kind that the program reads, asking for some if there is none.
pub(crate) type Read = Box<dyn FnOnce(&ControllerEnv<'_>, &[Place]) -> Vec<Awaited> + Send>;

pub(crate) fn read<W: Watched>(watch: Watch<W>) -> Read {
    if let Some(cluster) = &watch.cluster {
        let informer: Arc<dyn Synced> = Arc::new(cluster.feed(&watch));
        return Box::new(move |_, _| vec![(None, informer)]);
    }
    Box::new(move |env, places| {
        let kind = W::kind_of(watch.dynamic_type());
        let asked =
            env.asked.iter().filter(|informer| informer.kind() == kind && informer.cluster().is_none());
        let asked: Vec<Awaited> = asked.map(|informer| (None, informer.clone())).collect();
        if watch.narrowing().is_none() && !asked.is_empty() {
            return asked;
        }
        if watch.narrowing().namespace.is_some() {
            return vec![(None, Arc::new(watch.informer(env.factory, None)))];
        }
        let of = |place: &Place| -> Awaited {
            (place.clone(), Arc::new(watch.informer(env.factory, place.as_deref())))
        };
        places_of(kind.scope, places).iter().map(of).collect()
    })
}

/// A kind without namespaces is watched once.
pub(crate) fn places_of(scope: Scope, places: &[Place]) -> &[Place] {
    match scope {
        Scope::Namespaced => places,
        Scope::Cluster => &[None],
    }
}
