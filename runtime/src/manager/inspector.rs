//! A look into a running manager, for health checks, debug pages and tests.

use std::{
    any::TypeId,
    collections::BTreeSet,
    sync::{Arc, OnceLock, Weak},
};

use parking_lot::Mutex;

use super::{
    debug_report::{DebugReport, LeaderReport, ProgramReport, SearchReport, ServerReport},
    health::{self, HealthReport, ProgramChecks},
    process::ManagerProcess,
};
#[cfg(feature = "webhooks")]
use crate::informer::{SyncPhase, SyncState};
use crate::{
    clock::Moment,
    controller::{ControllerCore, ControllerReport, KeyReport, KeyReports, Why},
    informer::Watched,
    object::ObjectKey,
};

/// Most keys of each sort that a report lists.
const LISTED: usize = 100;

/// Reports the state of a manager, and why an object is not being reconciled; clones share the manager.
///
/// Created before the start, it sees controllers once they run. It keeps neither them nor their caches alive: if one
/// has ended, the report says so. Each report is a snapshot, and may be outdated when it is read.
///
/// ```
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use watchkeeper::prelude::*;
/// # fn inspected(manager: &Manager) {
/// let inspector = manager.inspector(); // before `run`, which takes the manager
/// // "configmaps is not reconciling shop/a: backs off for 12s more after 4 failures in a row; .."
/// println!("{}", inspector.find("shop/a"));
/// println!("{}", inspector.readiness());
/// # }
/// ```
///
/// The book has more: [all answers of `why`](https://github.com/watchkeeper/watchkeeper/blob/main/book/src/explain/queue.md#why-is-this-object-not-reconciled).
#[derive(Clone, Default)]
pub struct Inspector {
    pub(super) manager: Arc<InspectedManager>,
}

#[derive(Default)]
pub(super) struct InspectedManager {
    controllers: Mutex<Vec<StartedController>>,
    /// The sets of controllers that do not know yet where they work.
    undecided: Mutex<BTreeSet<Arc<str>>>,
    process: OnceLock<ManagerProcess>,
    pub(super) health_checks: ProgramChecks,
    pub(super) readiness_checks: ProgramChecks,
}

/// A controller that was started, and what is left of it.
struct StartedController {
    name: Arc<str>,
    reconciles: TypeId,
    controller: Weak<ControllerCore>,
    /// Whether readiness does not depend on it.
    is_of_fleet: bool,
}

impl StartedController {
    /// Returns how the controller stands to all objects of a name; it has an answer, whether or not there is one.
    fn reports_by_name(&self, name: &str) -> Vec<KeyReport> {
        let found = self.controller.upgrade().map(|controller| controller.find(name)).unwrap_or_default();
        match found.is_empty() {
            true => vec![self.report(&ObjectKey::cluster(name))],
            false => found.iter().map(|key| self.report(key)).collect(),
        }
    }

    fn report(&self, key: &ObjectKey) -> KeyReport {
        match self.controller.upgrade() {
            Some(controller) => controller.report(key),
            None => KeyReport {
                key: key.clone(),
                controller: self.name.clone(),
                why: Why::Stopped,
                reason: None,
                last_error: None,
                reads: Vec::new(),
            },
        }
    }
}

impl Inspector {
    /// Returns how each controller of a kind stands to a key; none, where the kind is not reconciled.
    pub fn why<K: Watched>(&self, key: &ObjectKey) -> KeyReports {
        let of_kind = |known: &&StartedController| known.reconciles == TypeId::of::<K>();
        let reports =
            self.manager.controllers.lock().iter().filter(of_kind).map(|known| known.report(key)).collect();
        KeyReports::new(reports)
    }

    /// Returns whether the process works, as `/healthz` does: if not, it should be restarted.
    ///
    /// It fails if a replica leads without renewing its Lease, if an informer has ended by a panic, or if a
    /// [check](super::Manager::health_check) of the program's own fails.
    pub fn health(&self) -> HealthReport {
        let mut checks = health::of_process(self.manager.process.get());
        checks.extend(self.manager.health_checks.run());
        HealthReport { probe: "healthz", checks }
    }

    /// Returns whether the manager does its work, as `/readyz` does: each check that fails is named.
    ///
    /// It fails if a cache has not synced, if a controller has stopped, and if a readiness check fails. Caches of fleets,
    /// and caches whose objects this program converts, do not count. A replica that stands by is ready. One that has not started, or stops, is not.
    pub fn readiness(&self) -> HealthReport {
        let status = |known: &StartedController| (known.name.clone(), known.controller.upgrade());
        let controllers = self.manager.controllers.lock();
        let statuses: Vec<_> = controllers.iter().filter(|known| !known.is_of_fleet).map(status).collect();
        drop(controllers);
        let mut checks = health::readiness_of(self.manager.process.get(), &statuses);
        checks.extend(self.manager.readiness_checks.run());
        HealthReport { probe: "readyz", checks }
    }

    /// Tells how all stands, as `/debug` does; with a key it also says how each controller stands to that.
    ///
    /// Asks the server for its version, for a second at most. A key is `namespace/name`, or a name alone.
    pub async fn debug_report(&self, key: Option<&str>) -> DebugReport {
        let search = key.map(|key| {
            let answers: Vec<_> = self.find(key).iter().map(ToString::to_string).collect();
            let none = || vec!["this manager runs no controller".to_owned()];
            SearchReport { key: key.to_owned(), answers: if answers.is_empty() { none() } else { answers } }
        });
        let process = self.manager.process.get();
        let version = match process {
            Some(process) => process.server_version().await,
            None => None,
        };
        DebugReport {
            at: Moment::now(),
            program: ProgramReport::new(process.map(|process| process.started)),
            server: ServerReport {
                url: process.and_then(|process| process.cluster.url.clone()),
                version,
                namespace: process.map(|process| process.client.default_namespace().to_owned()),
            },
            leadership: process.and_then(|process| {
                let leadership = process.leadership.as_ref()?;
                Some(LeaderReport::new(leadership, process.slots.as_ref()))
            }),
            health: self.health(),
            readiness: self.readiness(),
            search,
            controllers: self.overviews(LISTED),
            informers: process.map(|process| process.clusters.reports()).unwrap_or_default(),
        }
    }

    /// Tells how each controller that runs stands, with at most this number of keys of each sort.
    pub(super) fn overviews(&self, each: usize) -> Vec<ControllerReport> {
        self.live().iter().map(|controller| controller.overview(each)).collect()
    }

    /// Returns how each controller stands to a key, whatever it reconciles.
    ///
    /// The key is written `namespace/name`; a name alone is looked for in all namespaces.
    pub fn find(&self, key: &str) -> KeyReports {
        let of_one = |known: &StartedController| match key.trim().split_once('/') {
            Some((namespace, name)) => vec![known.report(&ObjectKey::new(namespace, name))],
            None => known.reports_by_name(key.trim()),
        };
        KeyReports::new(self.manager.controllers.lock().iter().flat_map(of_one).collect())
    }

    pub(super) fn begin(&self, process: ManagerProcess) {
        let _ = self.manager.process.set(process);
    }

    /// Returns whether all caches have synced that were started.
    #[cfg(feature = "webhooks")]
    pub(super) fn caches_have_synced(&self) -> bool {
        let is_synced = |state: &SyncState| state.phase != SyncPhase::Syncing;
        self.manager.process.get().is_some_and(|process| process.clusters.sync_states().iter().all(is_synced))
    }

    fn live(&self) -> Vec<Arc<ControllerCore>> {
        self.manager.controllers.lock().iter().filter_map(|known| known.controller.upgrade()).collect()
    }

    /// Names what runs, in one line; `None` if nothing does.
    pub(super) fn in_flight(&self) -> Option<String> {
        let running: Vec<_> = self.live().iter().filter_map(|controller| controller.in_flight()).collect();
        (!running.is_empty()).then(|| running.join(", "))
    }

    /// Notes whether it is known where the controllers of a set work.
    pub(super) fn decided(&self, set: &Arc<str>, is_decided: bool) {
        let mut undecided = self.manager.undecided.lock();
        match is_decided {
            true => undecided.remove(set),
            false => undecided.insert(set.clone()),
        };
    }

    /// Names the sets of controllers that do not know yet where they work.
    pub(super) fn undecided(&self) -> Vec<Arc<str>> {
        self.manager.undecided.lock().iter().cloned().collect()
    }

    pub(super) fn remove(&self, name: &str) {
        self.manager.controllers.lock().retain(|known| *known.name != *name);
    }

    /// Shows a controller, in the place of an ended one of this name.
    pub(super) fn add(&self, controller: &Arc<ControllerCore>) {
        self.show(controller, false);
    }

    /// Shows a controller of a cluster that comes and goes.
    pub(super) fn add_of_fleet(&self, controller: &Arc<ControllerCore>) {
        self.show(controller, true);
    }

    fn show(&self, controller: &Arc<ControllerCore>, is_of_fleet: bool) {
        let (name, reconciles) = (controller.settings.name.clone(), controller.reconciles);
        self.remove(&name);
        self.manager.controllers.lock().push(StartedController {
            name,
            reconciles,
            controller: Arc::downgrade(controller),
            is_of_fleet,
        });
    }
}

impl_debug!(Inspector, this => controllers: this.manager.controllers.lock().len());
