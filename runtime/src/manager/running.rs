//! A manager that runs, and how it stops.

use std::{mem, panic::resume_unwind, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use tokio::{
    runtime::Handle,
    task::{JoinHandle, JoinSet},
    time::{Instant, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;

use crate::{
    clock::after,
    controller::{Controller, KeyReports, Plan, RunningController, Terms, Watch},
    error::Error,
    informer::{InformerBuilder, Marker, Watched},
    leader_election::Candidate,
    object::ObjectKey,
    shards::Member,
};

use super::{
    Inspector,
    campaign::Campaign,
    controller_set::{ControllerSet, SetSupply},
    end::{ManagerEnd, ending_all_by_a_panic},
    fleet::{Connect, Fleet},
    process::{self, Clusters},
    serve::Served,
    supply::{ControllerStops, ControllerSupply},
    tasks::{Task, WorkInFlight},
};

/// How long aborted reconciles may take to be dropped; only one that blocks its thread takes longer.
pub(super) const ABORT: Duration = Duration::from_secs(1);

/// A manager that runs in the background; dropping it stops everything without waiting.
///
/// Reconciles that run when it is dropped may go on for the grace period, and are then aborted.
///
/// ```
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use watchkeeper::prelude::*;
/// # async fn test(manager: Manager) -> Result<(), watchkeeper::Error> {
/// let running = manager.spawn();
/// println!("{}", running.why::<ConfigMap>(&ObjectKey::new("shop", "a")));
/// running.stop().await
/// # }
/// ```
///
/// The book has more: [debug an operator](https://github.com/watchkeeper/watchkeeper/blob/main/book/src/how-to/debug.md).
#[must_use = "dropping it stops the manager"]
pub struct Running {
    end: ManagerEnd,
    controllers: JoinSet<Result<(), Error>>,
    failed: Option<Error>,
    inspector: Inspector,
    campaign: Option<JoinHandle<()>>,
    terms: Terms,
    stops: ControllerStops,
    /// Cancelled once there is work that does not wait for the caches of the first controllers.
    has_more: CancellationToken,
    /// What controllers get that are added; `None` if the manager could not be started.
    supply: Option<Arc<ControllerSupply>>,
    in_flight: WorkInFlight,
    pub(super) served: Served,
    /// The flight recorder, which writes until nothing runs.
    pub(super) recording: Option<JoinHandle<()>>,
    #[cfg(feature = "webhooks")]
    pub(super) webhooks: Option<crate::webhook::Webhooks>,
}

impl Running {
    pub(super) fn start(
        end: ManagerEnd,
        planned: Vec<RunningController>,
        tasks: Vec<Task>,
        candidate: Option<(Candidate, Option<Member>)>,
        inspector: Inspector,
        supply: impl Into<Option<ControllerSupply>>,
        served: Served,
    ) -> Self {
        let supply = supply.into().map(Arc::new);
        let leftovers = supply.as_ref().map(|supply| supply.leftovers.clone()).unwrap_or_default();
        let (stop, grace_period, has_more) = (end.stop.clone(), end.grace_period, CancellationToken::new());
        let tasks: Vec<_> = tasks.into_iter().map(|task| task.noting(&leftovers)).collect();
        let in_flight = WorkInFlight::new(inspector.clone(), &tasks, leftovers);
        let (campaign, terms) = match candidate {
            None => (None, Terms::endless(&stop)),
            Some(candidate) => {
                // A leader's task waits for no cache.
                if tasks.iter().any(Task::leads) {
                    has_more.cancel();
                }
                let waits = planned.iter().map(|controller| controller.core().waits.clone()).collect();
                let (more, in_flight) = (has_more.clone(), in_flight.clone());
                let (campaign, terms) =
                    Campaign::new(candidate, waits, more, stop.clone(), grace_period, in_flight);
                (Some(tokio::spawn(campaign.run())), terms)
            }
        };
        let mut running = Self {
            end,
            controllers: JoinSet::new(),
            failed: None,
            inspector,
            campaign,
            has_more,
            terms,
            stops: ControllerStops::default(),
            supply,
            in_flight,
            served,
            recording: None,
            #[cfg(feature = "webhooks")]
            webhooks: None,
        };
        planned.into_iter().for_each(|controller| running.launch(controller));
        for task in tasks {
            let attended = task.attend(stop.clone(), running.terms.clone());
            running.controllers.spawn(running.end.live.track_future(attended));
        }
        running.end.live.close();
        running
    }

    fn launch(&mut self, controller: RunningController) {
        let name = controller.core().settings.name.clone();
        let (stop, ended) = self.stops.add(name.clone(), &self.end.stop);
        let (inspector, all, alone) = (self.inspector.clone(), self.end.stop.clone(), stop.clone());
        let run = ending_all_by_a_panic(controller, self.terms.clone(), stop, self.end.clone());
        let run = async move {
            let _ended = ended.drop_guard();
            let result = run.await;
            // The removal may have given up waiting. The name is free only after this.
            if alone.finish.is_cancelled() && !all.finish.is_cancelled() {
                inspector.remove(&name);
            }
            result
        };
        self.controllers.spawn(self.end.live.track_future(run));
    }

    /// Runs the controllers of a set, as they come and go.
    pub(super) fn attend(&mut self, set: ControllerSet, client: &kube::Client) {
        let Some(manager) = self.set_supply(client) else { return };
        self.has_more.cancel();
        self.inspector.decided(set.plan().name(), false);
        let (stop, ended) = self.stops.add(set.plan().name().clone(), &self.end.stop);
        let attended = async move {
            let _ended = ended.drop_guard();
            set.attend(manager, stop).await
        };
        self.controllers.spawn(self.end.live.track_future(attended));
    }

    /// Runs controllers for the clusters of a fleet, as they come and go.
    pub(super) fn attend_fleet(&mut self, fleet: Fleet, client: &kube::Client, connect: Connect) {
        let Some(manager) = self.set_supply(client) else { return };
        self.has_more.cancel();
        let attended = fleet.attend(manager, connect, self.end.stop.child());
        self.controllers.spawn(self.end.live.track_future(attended.map(Ok)));
    }

    fn set_supply(&self, client: &kube::Client) -> Option<SetSupply> {
        Some(SetSupply {
            supply: self.supply.clone()?,
            clusters: self.end.clusters.clone(),
            inspector: self.inspector.clone(),
            terms: self.terms.clone(),
            end: self.end.clone(),
            client: client.clone(),
        })
    }

    /// Adds a controller while the manager runs.
    ///
    /// It gets what those get that were there from the start: shared informers, which list nothing again that is cached
    /// already, the gate of leadership, metrics, a place in `why`, on the debug page and in `/readyz`. If a controller of
    /// its name ended within the last minutes, its caches must first show what that one may have written.
    /// [`Manager::rules`](super::Manager::rules) does not know it: the role must allow what it does, lists and watches
    /// included. A kind's CRD must be installed before.
    ///
    /// ```
    /// # use watchkeeper::prelude::*;
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # struct Notes;
    /// # impl Reconciler<ConfigMap> for Notes {
    /// #     type Error = watchkeeper::Error;
    /// #     async fn reconcile(&self, _: Arc<ConfigMap>, _: &Context<ConfigMap>) -> Result<Action, Self::Error> {
    /// #         Ok(Action::await_change())
    /// #     }
    /// # }
    /// # async fn switch(running: &mut watchkeeper::Running) -> Result<(), watchkeeper::Error> {
    /// running.add(Controller::new(Notes).named("notes"))?;
    /// running.remove("notes").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A controller of that name runs ([`Error::DuplicateController`]), a setting is refused, or the manager could not be
    /// started, or stops. Nothing has changed then.
    pub fn add<K: Marker, R>(&mut self, controller: Controller<K, R>) -> Result<(), Error> {
        self.add_plan(controller.plan())
    }

    fn add_plan(&mut self, plan: Plan) -> Result<(), Error> {
        let clusters = &self.end.clusters;
        let supply = self.supply.as_ref().filter(|_| !self.end.stop.finish.is_cancelled());
        let Some(supply) = supply else {
            let name = plan.name();
            return Err(Error::other(format!(
                "the controller {name} can't be added: the manager does not run"
            )));
        };
        self.stops.refuse(plan.name())?;
        process::check(clusters.others(), std::slice::from_ref(&plan))?;
        let controller = plan.prepare(&supply.env(clusters.own().factory(), &[]))?;
        self.inspector.add(controller.core());
        clusters.start();
        let is_another = self.stops.had(&controller.core().settings.name);
        self.launch(if is_another { controller.after_another() } else { controller });
        self.has_more.cancel();
        Ok(())
    }

    /// Stops a controller and removes it; the others go on.
    ///
    /// Its runs end first, for which they have the grace period; then they are dropped. Queued keys are dropped. Informers
    /// that nobody else uses end. Nothing is cleaned up in the cluster: objects keep the controller's finalizer and what it
    /// made. Its counters stay in the metrics as they are. Its name is free again.
    ///
    /// If the future is dropped, the controller ends all the same. A run that blocks its thread can't be dropped: the
    /// controller is shown as stopped, and its name is taken, until that run has ended.
    ///
    /// # Errors
    /// No controller has this name. Or a run outlived the grace period and was aborted ([`Error::PastGracePeriod`]): the
    /// controller is removed then as well, or, if the run blocks its thread, once that has ended. Until then `/readyz` fails.
    pub async fn remove(&mut self, name: &str) -> Result<(), Error> {
        let is_known = self.stops.knows(name);
        let stopped = self.stops.stop(name, self.end.grace_period, ABORT).await;
        // One of a fleet or of a set is shown under a name of its own, and goes on.
        if is_known && !self.stops.knows(name) {
            self.inspector.remove(name);
        }
        // An election that waits for the first controllers holds their informers.
        if is_known && self.stops.is_empty() {
            self.has_more.cancel();
        }
        stopped
    }

    #[cfg(feature = "webhooks")]
    pub(super) fn with_webhooks(mut self, webhooks: Option<crate::webhook::Webhooks>) -> Self {
        self.webhooks = webhooks;
        self
    }

    /// Returns one that could not be started.
    pub(super) fn failed(error: Error, clusters: Clusters) -> Self {
        clusters.stop();
        let (end, served) = (ManagerEnd::new(clusters, Duration::ZERO), Served::default());
        let inspector = Inspector::default();
        let mut running = Self::start(end, Vec::new(), Vec::new(), None, inspector, None, served);
        running.failed = Some(error);
        running
    }

    /// Reads a kind from the shared cache, also one that nobody watched so far: it begins at once, and fills.
    ///
    /// Empty until its first list is through: to wait for that, ask for the [`informer`](Self::informer).
    pub fn lister<W: Watched<DynamicType = ()>>(&self) -> W::Lister {
        self.informer::<W>().lister()
    }

    /// Asks for a kind's shared informer while the manager runs; it starts when it is built.
    ///
    /// If an equal query is watched already, this is the same informer, and nothing is listed again. It ends with the
    /// manager, or sooner, once nobody uses it: who asked for it, its listers, its handlers. No controller waits for it,
    /// but `/readyz` names it until it has synced. [`Manager::rules`](super::Manager::rules) does not
    /// know it: the role must allow `list` and `watch` of the kind. If the manager could not be started, or a
    /// controller's panic ended it, the informer is over at once.
    ///
    /// ```
    /// # use watchkeeper::{Running, prelude::*};
    /// # use k8s_openapi::api::core::v1::Secret;
    /// # async fn count(running: &Running) -> Result<usize, watchkeeper::informer::NotSynced> {
    /// let secrets = running.informer::<Secret>().namespace("shop").build();
    /// secrets.wait_for_sync(Duration::from_secs(30)).await?;
    /// let count = secrets.lister().list().len();
    /// # Ok(count)
    /// # }
    /// ```
    pub fn informer<W: Watched<DynamicType = ()>>(&self) -> InformerBuilder<W> {
        self.end.clusters.own().informer()
    }

    /// Asks for the shared informer of a [`Watch`], as [`informer`](Self::informer) does.
    pub fn informer_of<W: Watched>(&self, watch: Watch<W>) -> InformerBuilder<W> {
        watch.cluster.clone().unwrap_or_else(|| self.end.clusters.own().clone()).informer_of(watch)
    }

    /// Returns the address at which HTTP is served, if any.
    #[cfg(feature = "http")]
    pub fn http_address(&self) -> Option<std::net::SocketAddr> {
        self.served.serving.as_ref().map(|serving| serving.address)
    }

    /// Returns a service that answers the same, for an HTTP server of your own; `None` if the start failed.
    #[cfg(feature = "http")]
    pub fn http_service(&self) -> Option<super::HttpService> {
        self.served.service.clone()
    }

    /// Returns how each controller of a kind stands to a key: why it is not being reconciled.
    pub fn why<K: Watched>(&self, key: &ObjectKey) -> KeyReports {
        self.inspector.why::<K>(key)
    }

    /// Returns what answers the same, and more, also after this is gone.
    pub fn inspector(&self) -> Inspector {
        self.inspector.clone()
    }

    /// Stops: running reconciles end, queued keys are dropped, watches are closed, no task is left.
    ///
    /// Takes at most the grace period, a second for what is dropped then, a second for HTTP answers under way, and one for the
    /// flight recorder, whatever reconciles and handlers do.
    ///
    /// # Errors
    /// Whatever kept the manager from starting, or made a controller give up; else [`Error::PastGracePeriod`] if
    /// a reconcile outlived the grace period and was aborted, or [`Error::HandlerPastGracePeriod`] if a handler did.
    ///
    /// # Panics
    /// With the panic of a reconciler whose controller says `Panics::Propagate`.
    pub async fn stop(self) -> Result<(), Error> {
        self.end().await
    }

    /// Boxed: so it is compiled here, once, and not in each program that awaits it.
    fn end(mut self) -> BoxFuture<'static, Result<(), Error>> {
        Box::pin(async move {
            let period = self.end.grace_period;
            let until = after(Instant::now(), period.saturating_add(ABORT));
            self.end.stop.finish.cancel();
            let mut late = None;
            if timeout(period, self.join()).await.is_err() {
                late = self.in_flight.named();
                self.end.stop.abort.cancel();
                if timeout_at(until, self.join()).await.is_err() {
                    late.get_or_insert_with(|| "one that can't be named".to_owned());
                }
            }
            let campaign = self.campaign.take();
            let given_up = async {
                if let Some(mut campaign) = campaign
                    && timeout_at(until, &mut campaign).await.is_err()
                {
                    campaign.abort();
                }
            };
            let silent = timeout_at(until, self.end.clusters.shutdown());
            let ((), silent) = tokio::join!(given_up, silent);
            let late = late.or_else(|| self.in_flight.leftovers.named());
            self.served.stop().await;
            if let Some(recording) = self.recording.take() {
                let _the_disk_may_be_slow = timeout(ABORT, recording).await;
            }
            let stopped = match (late, silent) {
                (Some(reconciles), _) => Err(Error::PastGracePeriod { period, reconciles }),
                (None, Err(_)) => Err(Error::HandlerPastGracePeriod { period }),
                (None, Ok(())) => Ok(()),
            };
            // Why a controller gave up says more than what its end waited for.
            self.failed.take().map_or(stopped, Err)
        })
    }

    /// Waits until a controller gives up or a task fails, or until all controllers and tasks have ended.
    ///
    /// Controllers end only when the manager stops, or by a propagated panic. Without controllers and tasks it returns at
    /// once.
    ///
    /// # Errors
    /// Whatever kept the manager from starting, made a controller give up, or failed in a task. The others continue.
    ///
    /// # Panics
    /// With the panic of a reconciler whose controller says `Panics::Propagate`.
    pub async fn ended(&mut self) -> Result<(), Error> {
        while self.failed.is_none() && self.next_end().await {}
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Waits until one more has ended; returns whether there was one.
    async fn next_end(&mut self) -> bool {
        let Some(ended) = self.controllers.join_next().await else { return false };
        match ended {
            Ok(Err(error)) => {
                self.failed.get_or_insert(error);
            }
            Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
            Ok(Ok(())) | Err(_) => {}
        }
        true
    }

    async fn join(&mut self) {
        while self.next_end().await {}
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end.stop.finish.cancel();
        self.end.clusters.stop();
        let (mut controllers, mut served) = (mem::take(&mut self.controllers), mem::take(&mut self.served));
        if controllers.is_empty() {
            return;
        }
        // Without a runtime nothing can be waited for: dropping the set aborts what is in it.
        if let Ok(runtime) = Handle::try_current() {
            let end = self.end.clone();
            runtime.spawn(async move {
                end.all().await;
                while controllers.join_next().await.is_some() {}
                served.stop().await;
            });
        }
    }
}

impl_debug!(Running, this => controllers: this.controllers.len());
