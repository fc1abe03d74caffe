//! What controllers get of their manager, also those that are added later.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::{
    clock::after,
    controller::{CachePart, ControllerEnv, FindTraceId, Leftovers, Stop},
    error::Error,
    flight_recorder::Recording,
    informer::{AnyInformer, SharedInformerFactory},
    keys::OWN_WRITES_AT_MOST,
    metrics::Metrics,
    shards::Slots,
    writes::Sender,
};

/// What a manager gives its controllers.
#[derive(Clone)]
pub(super) struct ControllerSupply {
    pub(super) sender: Sender,
    pub(super) metrics: Metrics,
    pub(super) seed: Option<u64>,
    /// This replica's part of the work, if replicas share it.
    pub(super) slots: Option<Slots>,
    /// This replica's part of the objects, if caches hold no more.
    pub(super) part: Option<CachePart>,
    pub(super) is_elected: bool,
    pub(super) leftovers: Arc<Leftovers>,
    pub(super) is_dry_run: bool,
    pub(super) recorder: Option<Recording>,
    pub(super) trace_id: Option<FindTraceId>,
}

impl ControllerSupply {
    /// Returns it for controllers that write to another cluster.
    pub(super) fn sending(&self, sender: Sender) -> Self {
        Self { sender, ..self.clone() }
    }

    /// Returns it for controllers that read from this factory, and share what was asked for before.
    pub(super) fn env<'a>(
        &'a self,
        factory: &'a SharedInformerFactory,
        asked: &'a [AnyInformer],
    ) -> ControllerEnv<'a> {
        ControllerEnv {
            sender: &self.sender,
            factory,
            asked,
            metrics: &self.metrics,
            seed: self.seed,
            part: self.part.as_ref(),
            is_elected: self.is_elected,
            leftovers: &self.leftovers,
            is_dry_run: self.is_dry_run,
            recorder: self.recorder.as_ref(),
            trace_id: &self.trace_id,
        }
    }
}

/// How the controllers of a manager are stopped, by name.
#[derive(Default)]
pub(super) struct ControllerStops {
    all: HashMap<Arc<str>, ControllerStop>,
    /// Until when what a removed one wrote last may be in no cache.
    removed: HashMap<Arc<str>, Instant>,
}

struct ControllerStop {
    stop: Stop,
    ended: CancellationToken,
}

impl ControllerStops {
    /// Adds a controller; what is returned ends with the manager, or alone. The token is cancelled once it has ended.
    pub(super) fn add(&mut self, name: Arc<str>, manager: &Stop) -> (Stop, CancellationToken) {
        // Those that ended only after `stop` had given up waiting.
        self.all.retain(|_, one| !(one.stop.finish.is_cancelled() && one.ended.is_cancelled()));
        let (stop, ended) = (manager.child(), CancellationToken::new());
        self.all.insert(name, ControllerStop { stop: stop.clone(), ended: ended.clone() });
        (stop, ended)
    }

    /// Returns whether a controller has this name.
    pub(super) fn knows(&self, name: &str) -> bool {
        self.all.contains_key(name)
    }

    /// Returns whether another controller had this name: what it wrote last may be in no cache yet.
    pub(super) fn had(&self, name: &str) -> bool {
        self.knows(name) || self.removed.get(name).is_some_and(|until| *until > Instant::now())
    }

    /// Returns whether no controller has a name.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Refuses the name of a controller that has not ended.
    pub(super) fn refuse(&self, name: &str) -> Result<(), Error> {
        match self.all.get(name).is_some_and(|one| !one.ended.is_cancelled()) {
            true => Err(Error::DuplicateController(name.to_owned())),
            false => Ok(()),
        }
    }

    /// Stops a controller, and waits until it has ended: for the grace period, and for what is aborted then. Its name is
    /// free once it has ended, and not before, also if this is dropped.
    pub(super) async fn stop(&mut self, name: &str, period: Duration, abort: Duration) -> Result<(), Error> {
        let Some(ControllerStop { stop, ended }) = self.all.get(name) else {
            let mut names: Vec<_> = self.all.keys().map(|name| &**name).collect();
            names.sort_unstable();
            let known = names.join(", ");
            return Err(Error::other(format!("no controller is named {name:?}; those that run are {known}")));
        };
        let now = Instant::now();
        self.removed.retain(|_, until| *until > now);
        let until = after(now, period.saturating_add(abort));
        self.removed.insert(name.into(), after(until, OWN_WRITES_AT_MOST));
        stop.finish.cancel();
        let is_late = timeout(period, ended.cancelled()).await.is_err();
        if is_late {
            stop.abort.cancel();
            let _blocked = timeout_at(until, ended.cancelled()).await;
        }
        if ended.is_cancelled() {
            self.all.remove(name);
        }
        match is_late {
            false => Ok(()),
            true => Err(Error::PastGracePeriod { period, reconciles: name.to_owned() }),
        }
    }
}
