//! A server that comes back with an older state is followed, without anybody's help.

#![expect(clippy::print_stdout, reason = "how long each healing took is the point")]

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicI32, Ordering},
};

use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::core::ObjectMeta;
use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};
use tokio::time::{Instant, sleep};
use watchkeeper::prelude::*;
use watchkeeper_tests::{
    Keeper, Made, Website, WebsiteStatus,
    backend::{Gateway, Stage, User},
    deployment_for, website,
};

use crate::harness::tests;

tests! {
    Own: a_backup_restored_under_a_running_operator_is_followed_within_seconds,
        no_child_is_made_for_a_site_that_a_restored_server_does_not_know;
}

/// The environment variable that says how often a backup is restored, at another moment each time.
const RESTORES: &str = "WATCHKEEPER_RESTORES";

/// How often it is restored where nobody says.
const USUAL: u64 = 2;

/// How soon after the server is ready, and the way to it open, all must be right.
const HEALED: Duration = Duration::from_secs(3);

/// How soon caches and children must be right.
const WITHIN: Duration = Duration::from_secs(15);

/// How many versions the restored state is behind, at least.
const AHEAD: usize = 60;

// R43
async fn a_backup_restored_under_a_running_operator_is_followed_within_seconds(stage: Stage) {
    let (kit, gateway) = (stage.kit(), Gateway::default());
    let manager = stage.manager_through(&gateway).await;
    let (sites, children) = (manager.lister::<Website>(), manager.lister::<Deployment>());
    let controller = Controller::new(Keeper::default()).owns::<Deployment>();
    let _running = manager.controller(controller).spawn();
    for name in ["kept", "lost-child", "gone"] {
        kit.create(&website(name)).await;
        kit.eventually::<Deployment>(name, |d| d.is_some()).await;
    }
    let backup = stage.server.back_up().await;

    // What the backup knows nothing of.
    kit.delete::<Website>("gone").await;
    kit.create(&website("late")).await;
    kit.eventually::<Deployment>("late", |d| d.is_some()).await;
    for n in 0..AHEAD {
        let metadata = ObjectMeta { name: Some(format!("other-{n}")), ..ObjectMeta::default() };
        kit.create(&ConfigMap { metadata, ..ConfigMap::default() }).await;
    }

    gateway.close();
    stage.server.restore(backup).await;
    assert!(kit.get::<Website>("late").await.is_none(), "the older state is back");
    kit.delete::<Deployment>("lost-child").await;
    kit.create(&website("new")).await;
    gateway.open();

    let back = Instant::now();
    loop {
        let (there, made) = (kit.list::<Website>(&stage.namespace).await, kit.list::<Deployment>("*").await);
        let here = made.iter().filter(|child| child.namespace().as_deref() == Some(&*stage.namespace));
        let names: Vec<_> = here.map(|child| child.name_any()).collect();
        let wanted = ["gone", "kept", "lost-child", "new"];
        let right = wanted.iter().all(|name| names.iter().any(|made| made == name))
            && versions(there.iter()) == versions(sites.list().iter().map(|site| &**site))
            && versions(made.iter()) == versions(children.list().iter().map(|child| &**child));
        if right {
            break;
        }
        assert!(back.elapsed() < WITHIN, "children {names:?}; the cache holds {:?}", children.list().len());
        sleep(Duration::from_millis(100)).await;
    }
    let lost = stage.log.lines_with(&["lost its history"]);
    assert!(lost.len() >= 2, "both kinds notice: {lost:?}");
}

fn versions<'a, K: Object + 'a>(objects: impl Iterator<Item = &'a K>) -> BTreeMap<String, String> {
    let version = |object: &K| object.meta().resource_version.clone().unwrap_or_default();
    objects.map(|object| (ObjectKey::of(object).to_string(), version(object))).collect()
}

/// An operator that writes all the time: a status each 50 ms.
struct Busy {
    round: AtomicI32,
}

impl Reconciler<Website> for Busy {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, site: Arc<Website>, cx: &Context<Website>) -> Result<Action, Self::Error> {
        let ready_replicas = self.round.fetch_add(1, Ordering::Relaxed);
        cx.apply(deployment_for(&site)).await?;
        cx.patch_status(&site, WebsiteStatus { replicas: 0, ready_replicas }).await?;
        Ok(Action::requeue_after(Duration::from_millis(50)))
    }
}

/// Says how the server comes back, as a client sees it.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// The proxy answers 502 as long as nobody listens; then 503 and whatever else a server says that starts.
    AtOnce,
    /// The proxy lets requests through some time after the start began.
    WhileItStarts(Duration),
    /// The proxy lets requests through some time after the server is ready.
    Later(Duration),
}

impl Way {
    fn drawn(dice: &mut SmallRng) -> Self {
        let moment = Duration::from_millis(dice.random_range(0..4_000));
        match dice.random_range(0..4) {
            0 => Self::AtOnce,
            1 | 2 => Self::WhileItStarts(moment),
            _ => Self::Later(moment / 2),
        }
    }
}

// R43 C35 R49
async fn no_child_is_made_for_a_site_that_a_restored_server_does_not_know(stage: Stage) {
    let (kit, gateway) = (stage.kit(), Gateway::default());
    let manager = stage.manager_through(&gateway).await;
    let (sites, children) = (manager.lister::<Website>(), manager.lister::<Deployment>());
    let controller = Controller::new(Busy { round: AtomicI32::default() }).owns::<Deployment>();
    let _running = manager.controller(controller).spawn();
    kit.create(&website("kept")).await;
    kit.eventually::<Deployment>("kept", |d| d.is_some()).await;
    let backup = stage.server.back_up().await;
    let restores = std::env::var(RESTORES).ok().and_then(|text| text.parse().ok()).unwrap_or(USUAL);
    for round in 0..restores {
        let mut dice = SmallRng::seed_from_u64(round);
        // Now few versions are lost, now many.
        for n in 0..dice.random_range(1..4) {
            let late = format!("late-{n}");
            kit.create(&website(&late)).await;
            kit.eventually::<Deployment>(&late, |d| d.is_some()).await;
        }
        sleep(Duration::from_millis(dice.random_range(0..1_500))).await;
        let way = Way::drawn(&mut dice);
        if !matches!(way, Way::AtOnce) {
            gateway.close();
        }
        let opened = async {
            if let Way::WhileItStarts(after) = way {
                sleep(after).await;
                gateway.open();
            }
        };
        let (admin, _) = stage.server.client(User::Admin, &stage.namespace).await;
        let known =
            kit.list::<Deployment>(&stage.namespace).await.iter().filter_map(|child| child.uid()).collect();
        let made = Made::from_now(admin.clone(), &stage.namespace).but(known);
        tokio::join!(stage.server.restore(backup), opened);
        let parents = parents(&admin, &stage.namespace).await;
        assert_eq!(parents.len(), 1, "the older state is back");
        if let Way::Later(after) = way {
            sleep(after).await;
        }
        gateway.open();
        let back = Instant::now();
        loop {
            let there: Vec<_> = sites.list().iter().filter_map(|site| site.uid()).collect();
            let owned = children.list().iter().map(|child| child.name_any()).collect::<Vec<_>>();
            if there == parents && owned == ["kept"] {
                break;
            }
            assert!(
                back.elapsed() < HEALED,
                "round {round}, {way:?}: the caches hold {} sites, {owned:?}",
                there.len()
            );
            sleep(Duration::from_millis(10)).await;
        }
        println!(
            "restored {round:>2} {way:?}: healed {:?} after the server was ready and in reach",
            back.elapsed()
        );
        // What would come late.
        sleep(Duration::from_secs(2)).await;
        assert_eq!(made.without_parent(&parents), Vec::<String>::new(), "round {round}, {way:?}");
    }
}

/// Reads which sites there are, as soon as the server tells: one that is ready may still ask for patience.
async fn parents(admin: &kube::Client, namespace: &str) -> Vec<String> {
    let api = kube::Api::<Website>::namespaced(admin.clone(), namespace);
    loop {
        match api.list(&Default::default()).await {
            Ok(list) => return list.items.iter().filter_map(|site| site.uid()).collect(),
            Err(_) => sleep(Duration::from_millis(20)).await,
        }
    }
}
