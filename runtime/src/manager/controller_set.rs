//! Controllers that come and go by themselves: while their kinds are served, or in the namespaces that match.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    mem,
    panic::resume_unwind,
    sync::Arc,
    time::Duration,
};

use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use k8s_openapi::api::core::v1::Namespace;
use tokio::{
    sync::{Notify, watch},
    task::{JoinError, JoinSet},
    time::{sleep, timeout},
};

use super::{
    Inspector,
    end::{ManagerEnd, ending_all_by_a_panic},
    process::{self, Clusters},
    supply::ControllerSupply,
};
use crate::{
    controller::{ControllerError, Plan, RunningController, Stop, Terms},
    error::Error,
    informer::SharedInformer,
    list_watch::Keeps,
    object::{Kind, ObjectKey, Scope},
    users_code::contained,
};

/// How often the server is asked whether it serves a kind.
const EVERY: Duration = Duration::from_secs(5);
/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// A kind is gone once it is missing this often in a row: API servers learn of a definition one after the other.
const MISSES: u32 = 3;
/// How long to wait before the server is asked again about a kind that is missing.
const AGAIN: Duration = Duration::from_secs(1);

/// Who is to run: each is a part of its controller's name.
type Members = BTreeSet<Arc<str>>;

/// Makes a controller of a set.
type Make = Box<dyn FnMut() -> Plan + Send>;

/// The controllers that one function makes.
pub(super) struct ControllerSet {
    /// The first one. It says which name, kinds and permissions they all have.
    first: Plan,
    make: Make,
    wanted: Wanted,
}

/// Which of the set are to run.
enum Wanted {
    /// One, while the server serves its kinds.
    WhileServed,
    /// One for each of these namespaces.
    In(Box<SharedInformer<Namespace>>),
}

/// What controllers that come and go get of their manager.
#[derive(Clone)]
pub(super) struct SetSupply {
    pub(super) supply: Arc<ControllerSupply>,
    pub(super) clusters: Clusters,
    pub(super) inspector: Inspector,
    pub(super) terms: Terms,
    pub(super) end: ManagerEnd,
    /// A client that does not depend on leadership.
    pub(super) client: kube::Client,
}

impl ControllerSet {
    pub(super) fn while_served(mut make: Make) -> Self {
        Self { first: make(), make, wanted: Wanted::WhileServed }
    }

    pub(super) fn in_namespaces(mut make: Make, namespaces: SharedInformer<Namespace>) -> Self {
        Self { first: make(), make, wanted: Wanted::In(Box::new(namespaces)) }
    }

    /// Returns what its controllers have in common.
    pub(super) fn plan(&self) -> &Plan {
        &self.first
    }

    /// Runs controllers until the manager stops, or one of them gives up: then the others of the set end as well.
    ///
    /// # Errors
    /// Why that one gave up, or could not be started.
    pub(super) async fn attend(self, manager: SetSupply, stop: Stop) -> Result<(), Error> {
        let mut ends = JoinSet::new();
        let mut result = self.follow(&manager, &stop, &mut ends).await;
        stop.finish.cancel();
        while let Some(ended) = ends.join_next().await {
            result = result.and(manager.ended(ended).map(drop));
        }
        result
    }

    async fn follow(self, manager: &SetSupply, stop: &Stop, ends: &mut JoinSet<Ended>) -> Result<(), Error> {
        let Self { first, mut make, wanted } = self;
        let definition = &first.definition;
        if matches!(wanted, Wanted::In(_)) && definition.kind.scope == Scope::Cluster {
            let (name, kind) = (definition.settings.name.to_string(), &definition.kind);
            let problem = format!("{kind} are in no namespace: add it with `controller`");
            return Err(ControllerError::Refused { name, problem }.into());
        }
        let place = if let Wanted::In(_) = &wanted { Place::Namespace } else { Place::All };
        let name = first.name().clone();
        let kinds = first.definition.kinds().cloned().collect();
        let (mut members, mut share) = match wanted {
            Wanted::WhileServed => (while_served(manager.client.clone(), name.clone(), kinds), None),
            Wanted::In(namespaces) => (matching(*namespaces), NamespaceShare::of(&manager.supply)),
        };
        let manager = &match &share {
            // Its namespace is this replica's as a whole.
            Some(_) => manager.without_part(),
            None => manager.clone(),
        };
        let (mut first, mut wanted, mut running) = (Some(first), Members::new(), BTreeMap::<_, Stop>::new());
        loop {
            tokio::select! {
                biased;
                () = stop.finish.cancelled() => return Ok(()),
                Some(ended) = ends.join_next() => drop(running.remove(&manager.ended(ended)?)),
                Some(now) = members.next() => wanted = now,
                () = NamespaceShare::changed(&mut share) => {}
            }
            let is_held = |member: &Arc<str>| share.as_ref().is_none_or(|share| share.holds(member));
            let mut wanted: Members = wanted.iter().filter(|member| is_held(member)).cloned().collect();
            for (_, gone) in running.iter().filter(|(member, _)| !wanted.contains(*member)) {
                gone.finish.cancel();
            }
            // One that is wanted again waits until it has ended.
            wanted.retain(|member| !running.contains_key(member));
            for member in wanted {
                let plan = first.take().or_else(|| contained(&mut make));
                let mut plan = plan.ok_or_else(|| panicked(&name))?;
                place.put(&mut plan, &member);
                let (controller, stop) = (manager.prepare(plan)?, stop.child());
                ends.spawn(manager.run(member.clone(), controller, stop.clone()));
                running.insert(member, stop);
            }
            // Its first members are shown by now.
            manager.inspector.decided(&name, true);
        }
    }
}

/// The namespaces that are this replica's, if each caches its part alone.
struct NamespaceShare {
    keeps: Keeps,
    changes: watch::Receiver<()>,
}

impl NamespaceShare {
    fn of(supply: &ControllerSupply) -> Option<Self> {
        // By name, each replica has a part of every namespace.
        let (slots, part) =
            supply.slots.as_ref().filter(|slots| !slots.of().by_name).zip(supply.part.as_ref())?;
        Some(Self { keeps: part.keeps.clone(), changes: slots.changes() })
    }

    /// Returns whether this replica has anything to do with a namespace. Its slot may have come, or be about to leave.
    fn holds(&self, namespace: &str) -> bool {
        self.keeps.keeps(&ObjectKey::new(namespace, ""))
    }

    async fn changed(share: &mut Option<Self>) {
        match share {
            // Its sender lasts as long as the manager.
            Some(share) => drop(share.changes.changed().await),
            None => pending().await,
        }
    }
}

fn panicked(name: &str) -> Error {
    Error::other(format!("the function that makes the controller {name} panicked"))
}

/// Where a controller of a set works.
#[derive(Clone, Copy)]
enum Place {
    All,
    Namespace,
}

impl Place {
    /// Restricts a controller to its namespace, which its name shows; its writes and events do not.
    fn put(self, plan: &mut Plan, member: &Arc<str>) {
        let settings = &mut plan.definition.settings;
        if let Self::Namespace = self {
            let name = format!("{}/{member}", settings.name).into();
            settings.author = Some(mem::replace(&mut settings.name, name));
            settings.namespaces = vec![member.clone()];
        }
    }
}

/// How a controller of a set ended: who, the controller's name, and why it gave up.
type Ended = (Arc<str>, Arc<str>, Result<(), Error>);

impl SetSupply {
    /// Returns it for controllers that keep to what is this replica's anyway.
    fn without_part(&self) -> Self {
        let supply = ControllerSupply { part: None, ..(*self.supply).clone() };
        Self { supply: Arc::new(supply), ..self.clone() }
    }

    fn prepare(&self, plan: Plan) -> Result<RunningController, Error> {
        process::check(self.clusters.others(), std::slice::from_ref(&plan))?;
        let controller = plan.prepare(&self.supply.env(self.clusters.own().factory(), &[]))?;
        self.inspector.add(controller.core());
        self.clusters.start();
        Ok(controller)
    }

    /// Runs a controller until it is stopped. Its runs have the grace period to end.
    fn run(
        &self,
        member: Arc<str>,
        controller: RunningController,
        stop: Stop,
    ) -> impl Future<Output = Ended> + Send + 'static {
        let name = controller.core().settings.name.clone();
        let (grace_period, one) = (self.end.grace_period, stop.clone());
        let run = ending_all_by_a_panic(controller, self.terms.clone(), stop, self.end.clone());
        async move { (member, name, one.within(grace_period, run).await) }
    }

    /// Takes away what shows a controller that has ended; returns who it was.
    ///
    /// # Errors
    /// Why it gave up.
    fn ended(&self, ended: Result<Ended, JoinError>) -> Result<Arc<str>, Error> {
        let (member, name, ended) = ended.unwrap_or_else(|error| resume_unwind(error.into_panic()));
        ended?;
        self.inspector.remove(&name);
        // One that has no member's name will come again under the same name.
        if !member.is_empty() {
            self.supply.metrics.shared.reconcile.forget(&name);
        }
        Ok(member)
    }
}

/// Follows the namespaces that an informer shows.
fn matching(namespaces: SharedInformer<Namespace>) -> BoxStream<'static, Members> {
    let changed = Arc::new(Notify::new());
    let (came, went) = (changed.clone(), changed.clone());
    let handler = namespaces.handler().on_add(move |_, _| came.notify_one());
    let registration = handler.on_delete(move |_| went.notify_one()).register();
    let following = (namespaces, registration, changed, false);
    let members = stream::unfold(following, |mut following| async {
        // The first list of all, also where none matches; then each change.
        match mem::replace(&mut following.3, true) {
            // One that is stopped never syncs.
            false if following.0.wait_for_sync(Duration::MAX).await.is_err() => pending().await,
            false => {}
            true => following.2.notified().await,
        }
        let found = following.0.lister().list();
        let named = found.iter().filter_map(|namespace| namespace.metadata.name.as_deref().map(Arc::from));
        Some((named.collect(), following))
    });
    members.boxed()
}

/// Follows whether the server serves kinds: one member while it serves them all.
fn while_served(client: kube::Client, name: Arc<str>, kinds: Vec<Kind>) -> BoxStream<'static, Members> {
    let served = ServedKinds { client, name, kinds, is_served: None, misses: 0 };
    let members = stream::unfold(served, |mut served| async move {
        let is_served = served.changed().await;
        let member = is_served.then(|| Arc::from("")).into_iter();
        Some((member.collect(), served))
    });
    members.boxed()
}

/// What is known of the kinds that a controller waits for.
struct ServedKinds {
    client: kube::Client,
    name: Arc<str>,
    kinds: Vec<Kind>,
    /// `None`: nothing was said yet.
    is_served: Option<bool>,
    /// How often in a row a kind was missing.
    misses: u32,
}

impl ServedKinds {
    /// Waits until the answer differs from the last one.
    async fn changed(&mut self) -> bool {
        let mut wait = if self.is_served.is_some() { EVERY } else { Duration::ZERO };
        loop {
            sleep(wait).await;
            wait = EVERY;
            let missing = match timeout(PATIENCE, self.missing()).await {
                Ok(Ok(missing)) => missing,
                // A server that does not answer says nothing about its kinds.
                failed => {
                    tracing::debug!(controller = %self.name, ?failed, "the server does not say what it serves");
                    continue;
                }
            };
            self.misses = if missing.is_some() { self.misses + 1 } else { 0 };
            let controller = &*self.name;
            match (missing, self.is_served) {
                (None, Some(true)) | (Some(_), Some(false)) => continue,
                (Some(_), Some(true)) if self.misses < MISSES => {
                    wait = AGAIN;
                    continue;
                }
                (None, None) => {}
                (None, Some(false)) => {
                    tracing::info!(controller, "{controller} starts: its kinds are served")
                }
                (Some(kind), None) => {
                    tracing::info!(
                        controller,
                        "{controller} starts once {kind} is served: its CRD is not installed"
                    );
                }
                (Some(kind), Some(true)) => {
                    tracing::info!(controller, "{controller} stops until {kind} is served again");
                }
            }
            self.is_served = Some(self.misses == 0);
            return self.misses == 0;
        }
    }

    /// Returns a kind that the server does not serve.
    async fn missing(&self) -> kube::Result<Option<Kind>> {
        for kind in &self.kinds {
            let (group, version) = (&*kind.group, &*kind.version);
            let resources = match group {
                "" => self.client.list_core_api_resources(version).await,
                _ => self.client.list_api_group_resources(&format!("{group}/{version}")).await,
            };
            let is_listed = match resources {
                Ok(list) => list.resources.iter().any(|one| one.name == *kind.plural),
                Err(kube::Error::Api(status)) if status.code == 404 => false,
                Err(error) => return Err(error),
            };
            if !is_listed {
                return Ok(Some(kind.clone()));
            }
        }
        Ok(None)
    }
}
