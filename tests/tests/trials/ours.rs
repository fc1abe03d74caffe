//! The project's own operators hold whatever happens.

use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::core::ObjectMeta;
use serde_json::json;
use watchkeeper::{Lister, controller::owners_of, prelude::*, reflector::ReflectorConfig};
use watchkeeper_tests::{Keeper, Website, WebsiteStatus, deployment_for, website};
use watchkeeper_trials::{Event, ForeignChange, Trials, Trouble, Visit, Whose};

use crate::oracle::{self, Watched};

/// How many workers a controller has that is looked at.
const WORKERS: usize = 4;

/// A manager that draws what is random from a seed, so that a trial is the same each time.
fn manager(client: kube::Client) -> Manager {
    Manager::with_config(client, ReflectorConfig { seed: Some(1), ..ReflectorConfig::default() })
}

async fn a_site_comes_changes_and_goes(visit: Visit) {
    visit.create(&website("a")).await;
    visit.edit::<Website>("a", |site| site.spec.replicas = 3).await;
    visit.patch_status::<Deployment>("a", json!({ "replicas": 3, "readyReplicas": 1 })).await;
    visit.create(&website("b")).await;
    visit.delete::<Website>("a").await;
}

/// Tries a controller of sites under what must hold of every run.
fn tried<R, C>(controller: C) -> Trials
where
    R: Reconciler<Website>,
    C: Fn(&Manager) -> Controller<Website, R> + Send + Sync + 'static,
{
    Trials::of(move |client| {
        let manager = manager(client);
        oracle::begin(&manager);
        let controller = controller(&manager).workers(WORKERS);
        manager.controller(controller).run()
    })
    .crd::<Website>()
    .namespace("shop")
    .visitor(a_site_comes_changes_and_goes)
    .claim(oracle::holds)
    .pairs(20)
}

/// A reconciler of sites that have Deployments, looked at.
fn looked_at<R>(reconciler: R, manager: &Manager) -> Watched<R> {
    Watched::new(reconciler, WORKERS).of_deployments(manager.lister::<Deployment>())
}

// T10 C24 C27
#[test]
fn a_site_ends_right_whatever_happens() {
    tried(|manager| Controller::new(looked_at(Keeper::default(), manager)).owns::<Deployment>())
        .claim_of_changes(oracle::follows)
        .pairs(40)
        .check();
}

/// Keeps a site's Deployment, and releases its domain at its end.
struct Releases;

impl Reconciler<Website> for Releases {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, site: Arc<Website>, cx: &Context<Website>) -> Result<Action, Self::Error> {
        let deployment = cx.apply(deployment_for(&site)).await?;
        let has = deployment.status.unwrap_or_default();
        let status = WebsiteStatus {
            replicas: has.replicas.unwrap_or_default(),
            ready_replicas: has.ready_replicas.unwrap_or_default(),
        };
        cx.patch_status(&site, status).await?;
        Ok(Action::requeue_after(Duration::from_secs(5)))
    }

    async fn cleanup(&self, _: Arc<Website>, _: &Context<Website>) -> Result<Cleanup, Self::Error> {
        Ok(Cleanup::Done)
    }
}

// T10 C11 C24
#[test]
fn a_site_with_a_finalizer_ends_right_whatever_happens() {
    tried(|manager| {
        Controller::new(looked_at(Releases, manager))
            .owns::<Deployment>()
            .finalizer("web.example.dev/domain")
            .rate_limit(RateLimit::per_second(2).burst(3))
    })
    .claim_of_changes(oracle::follows)
    .claim_of_changes(oracle::keeps_to(2.0, 3.0))
    .check();
}

/// Keeps one map that all sites share.
struct Shares;

impl Reconciler<Website> for Shares {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, _: Arc<Website>, cx: &Context<Website>) -> Result<Action, Self::Error> {
        let metadata = ObjectMeta { name: Some("shared".to_owned()), ..ObjectMeta::default() };
        let data = Some([("text".to_owned(), "for all".to_owned())].into());
        cx.apply(ConfigMap { metadata, data, ..ConfigMap::default() }).uncontrolled().await?;
        Ok(Action::await_change())
    }
}

#[test]
fn a_shared_child_ends_right_whatever_happens() {
    // What has no controller is taken as it is: whoever else makes it, or edits it, is obeyed.
    let not_of_the_child = |trouble| match trouble {
        Trouble::Stranger(
            ForeignChange::EditsSpec
            | ForeignChange::EditsMuch
            | ForeignChange::TakesTheName
            | ForeignChange::Remakes,
            whose,
            _,
        ) => whose == Whose::Owners,
        _ => true,
    };
    tried(|_| Controller::new(Watched::new(Shares, WORKERS)).watches::<ConfigMap>(owners_of::<Website, _>))
        .only(not_of_the_child)
        .check();
}

/// Creates a child whose name the server chooses, where it sees none, and removes what is too many.
struct Names {
    children: Lister<ConfigMap>,
}

impl Reconciler<Website> for Names {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, site: Arc<Website>, cx: &Context<Website>) -> Result<Action, Self::Error> {
        let uid = site.metadata.uid.as_deref();
        let owned =
            |map: &&Arc<ConfigMap>| map.owner_references().iter().any(|owner| Some(&*owner.uid) == uid);
        let all = self.children.list();
        let mut owned = all.iter().filter(owned).filter(|map| map.metadata.deletion_timestamp.is_none());
        if owned.next().is_none() {
            let generate_name = Some(format!("{}-", site.name_any()));
            let metadata = ObjectMeta { generate_name, ..ObjectMeta::default() };
            cx.create(ConfigMap { metadata, ..ConfigMap::default() }).await?;
        }
        for surplus in owned {
            cx.delete(surplus).await?;
        }
        Ok(Action::await_change())
    }
}

#[test]
fn a_child_of_a_generated_name_ends_right_whatever_happens() {
    Trials::of(|client| {
        let manager = manager(client);
        oracle::begin(&manager);
        let names = Names { children: manager.lister::<ConfigMap>() };
        manager.controller(Controller::new(Watched::new(names, 1)).owns::<ConfigMap>().workers(1)).run()
    })
    .crd::<Website>()
    .namespace("shop")
    .visitor(a_site_comes_changes_and_goes)
    .claim(oracle::holds)
    // Data that nobody wrote nobody restores.
    .only(|trouble| {
        !matches!(trouble, Trouble::Stranger(ForeignChange::EditsSpec | ForeignChange::EditsMuch, ..))
    })
    .pairs(20)
    .check();
}

/// A group of sites, each of which has children of its own.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "web.example.dev", version = "v1", kind = "Estate", namespaced, status = "EstateStatus")]
struct EstateSpec {
    sites: Vec<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct EstateStatus {
    #[serde(default)]
    conditions: Conditions,
}

/// Keeps a site for each name, and says in a condition how many there are.
struct Estates;

impl Reconciler<Estate> for Estates {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, estate: Arc<Estate>, cx: &Context<Estate>) -> Result<Action, Self::Error> {
        for name in &estate.spec.sites {
            cx.apply(website(name)).await?;
        }
        let mut status = estate.status.clone().unwrap_or_default();
        let condition = Condition::ready("Built", format!("{} sites", estate.spec.sites.len()));
        status.conditions.set(condition.of(&estate));
        cx.patch_status(&estate, status).await?;
        Ok(Action::await_change())
    }
}

#[test]
fn owners_of_owners_end_right_whatever_happens() {
    Trials::of(|client| {
        let manager = manager(client);
        oracle::begin(&manager);
        manager
            .controller(Controller::new(Estates).owns::<Website>())
            .controller(
                Controller::new(Watched::new(Keeper::default(), WORKERS))
                    .owns::<Deployment>()
                    .workers(WORKERS),
            )
            .run()
    })
    .crd::<Estate>()
    .crd::<Website>()
    .namespace("shop")
    .visitor(async |visit: Visit| {
        visit.create(&Estate::new("west", EstateSpec { sites: vec!["a".into(), "b".into()] })).await;
        visit.create(&Estate::new("east", EstateSpec { sites: vec!["c".into()] })).await;
        visit.delete::<Estate>("west").await;
    })
    // After a restore others write so much that versions pass those of the caches: no version shows what was lost.
    .only(|trouble| trouble != Trouble::Server(Event::Restored))
    .claim(oracle::holds)
    .pairs(20)
    .check();
}

#[test]
fn two_replicas_end_right_whatever_happens() {
    let replica = |client: kube::Client, name: &str| {
        let election = watchkeeper::LeaderElection::new("sites").namespace("shop").identity(name);
        let controller = Controller::new(Keeper::default()).owns::<Deployment>();
        manager(client).leader_election(election).controller(controller).run()
    };
    Trials::of(move |client| {
        let both = (replica(client.clone(), "one"), replica(client, "two"));
        async move { futures::join!(both.0, both.1) }
    })
    .crd::<Website>()
    .namespace("shop")
    .visitor(a_site_comes_changes_and_goes)
    .pairs(20)
    .check();
}
