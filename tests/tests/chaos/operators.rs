//! An operator whose watches are all down while its children go: what is missing is back soon after the server is.

use std::{collections::BTreeMap, fmt::Write as _};

use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::core::ObjectMeta;
use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};
use serde_json::json;
use tokio::time::{Instant, sleep};
use watchkeeper::{Lister, Running, prelude::*, reflector::ReflectorConfig};
use watchkeeper_apiserver::{ApiServer, Fault, Restart};
use watchkeeper_tests::{Keeper, Made, Website, website};

use crate::seeds::{Verdict, each, paused};

/// How soon after the server's return everything must be right.
///
/// The outages last less than ten seconds, so that the longest wait before a watch is opened again, which doubles
/// from one to two times 0.8 s, is under thirteen; the rest is one list and the writes.
const HEALED: Duration = Duration::from_secs(15);

/// How often the state is looked at while it heals.
const LOOK: Duration = Duration::from_millis(100);

/// How many versions others make, at most, between a backup and the state that it replaces.
///
/// Versions are assigned again after a restore, and the operator's own writes would use up only few of them.
const AHEAD: usize = 60;

/// How the server comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Return {
    WithoutHistory,
    Restored,
}

/// An operator at work, its server, and what is to be looked at.
struct Shop {
    server: ApiServer,
    keeper: Keeper,
    sites: <Website as Watched>::Lister,
    children: Lister<Deployment>,
    _running: Running,
    script: String,
    started: Instant,
}

impl Shop {
    async fn open(seed: u64) -> Self {
        let server = ApiServer::in_memory().seed(seed).crd::<Website>().namespace("shop").start().await;
        let keeper = Keeper::default();
        let config = ReflectorConfig { seed: Some(seed), ..ReflectorConfig::default() };
        let manager = Manager::with_config(server.client(), config);
        let (sites, children) = (manager.lister::<Website>(), manager.lister::<Deployment>());
        let controller = Controller::new(keeper.clone()).owns::<Deployment>();
        let _running = manager.controller(controller).spawn();
        Self { server, keeper, sites, children, _running, script: String::new(), started: Instant::now() }
    }

    fn note(&mut self, what: impl std::fmt::Display) {
        // Writing to a String does not fail.
        let _ = writeln!(self.script, "  {:>8.3} {what}", self.started.elapsed().as_secs_f64());
    }

    async fn create(&mut self, name: &str) {
        self.note(format_args!("create {name}"));
        self.server.create(&website(name)).await;
    }

    /// Breaks everything, and lets nothing through until the rule is disarmed.
    fn break_off(&mut self, dice: &mut SmallRng) -> watchkeeper_apiserver::faults::Armed {
        let faults = self.server.faults().on_any("*");
        let down = match dice.random_range(0..4) {
            0 => faults.then(Fault::Cut),
            1 => faults.then(Fault::Status(502)),
            2 => faults.then(Fault::Status(504)),
            _ => faults.then(Fault::Status(503)),
        };
        self.server.restart(Restart::Keep);
        self.note("every connection breaks, and none is made");
        down
    }

    /// Lists what is not as it must be, on the server and in the caches.
    async fn wrongs(&self) -> Vec<String> {
        let sites = self.server.list::<Website>("shop").await;
        let children = self.server.list::<Deployment>("shop").await;
        let mut wrongs = Vec::new();
        for site in &sites {
            let (name, uid) = (site.name_any(), site.uid());
            let child = children.iter().find(|child| child.name_any() == name);
            let owner =
                child.and_then(|child| child.owner_references().first().map(|owner| owner.uid.clone()));
            let replicas = child.and_then(|child| child.spec.as_ref()?.replicas);
            if owner != uid || replicas != Some(site.spec.replicas) {
                wrongs.push(format!("the child of {name} has {replicas:?} replicas and owner {owner:?}"));
            }
        }
        wrongs.extend(differs(
            "websites",
            versions(sites.iter()),
            &versions(self.sites.list().iter().map(|o| &**o)),
        ));
        let cached = self.children.list();
        wrongs.extend(differs(
            "deployments",
            versions(children.iter()),
            &versions(cached.iter().map(|o| &**o)),
        ));
        wrongs
    }

    /// Waits until all is right, and tells how long it took.
    async fn heals(&mut self, within: Duration) -> Result<Duration, Vec<String>> {
        let began = Instant::now();
        loop {
            let wrongs = self.wrongs().await;
            if wrongs.is_empty() {
                self.note(format_args!("right after {:?}", began.elapsed()));
                return Ok(began.elapsed());
            }
            if began.elapsed() > within {
                return Err(wrongs);
            }
            sleep(LOOK).await;
        }
    }

    /// Deletes and edits children, and perhaps sites, behind the operator's back.
    async fn meddle(&mut self, dice: &mut SmallRng) {
        let children = self.server.list::<Deployment>("shop").await;
        let victim = dice.random_range(0..children.len());
        for (at, child) in children.iter().enumerate() {
            let key = format!("shop/{}", child.name_any());
            match dice.random_range(0..6) {
                _ if at == victim => self.delete(&key).await,
                0..2 => self.delete(&key).await,
                2 => {
                    self.note(format_args!("scale {key} to 9"));
                    self.server.patch_merge::<Deployment>(&key, json!({ "spec": { "replicas": 9 } })).await;
                }
                3 => {
                    let replicas = dice.random_range(1..8);
                    self.note(format_args!("ask for {replicas} at {key}"));
                    let spec = json!({ "spec": { "replicas": replicas } });
                    self.server.patch_merge::<Website>(&key, spec).await;
                }
                _ => {}
            }
        }
    }

    async fn delete(&mut self, key: &str) {
        self.note(format_args!("delete the child {key}"));
        self.server.delete::<Deployment>(key).await;
    }
}

fn versions<'a, K: Object + 'a>(objects: impl Iterator<Item = &'a K>) -> BTreeMap<String, String> {
    let version = |object: &K| object.meta().resource_version.clone().unwrap_or_default();
    objects.map(|object| (ObjectKey::of(object).to_string(), version(object))).collect()
}

fn differs(what: &str, server: BTreeMap<String, String>, cache: &BTreeMap<String, String>) -> Option<String> {
    (server != *cache).then(|| format!("{what}: the cache shows {cache:?}, the server {server:?}"))
}

/// One seed: a shop, two outages with meddling, and rest.
async fn outages(seed: u64, back: Return) -> (Verdict, Duration) {
    let mut dice = SmallRng::seed_from_u64(seed);
    let mut shop = Shop::open(seed).await;
    for site in 0..dice.random_range(2..6) {
        shop.create(&format!("site-{site}")).await;
    }
    let mut wrongs = shop.heals(Duration::from_secs(60)).await.err().unwrap_or_default();
    let (mut slowest, mut histories) = (Duration::ZERO, Vec::new());
    for round in 0..2 {
        sleep(Duration::from_millis(dice.random_range(0..90_000))).await;
        let backup = shop.server.resource_version();
        if back == Return::Restored {
            grow(&mut shop, &mut dice, round).await;
        }
        let down = shop.break_off(&mut dice);
        sleep(Duration::from_millis(dice.random_range(0..4_000))).await;
        if back == Return::WithoutHistory {
            shop.meddle(&mut dice).await;
        }
        sleep(Duration::from_millis(dice.random_range(0..4_000))).await;
        match back {
            Return::WithoutHistory => shop.server.restart(Restart::ForgetHistory),
            Return::Restored => shop.server.restart(Restart::At(backup)),
        }
        if back == Return::Restored {
            let sites = shop.server.list::<Website>("shop").await;
            let parents: Vec<_> = sites.iter().filter_map(|site| site.uid()).collect();
            histories.push((Made::from_now(shop.server.client(), "shop"), parents));
        }
        shop.note(format_args!("the server is back at version {}", shop.server.resource_version()));
        down.disarm();
        match shop.heals(HEALED).await {
            Ok(took) => slowest = slowest.max(took),
            Err(left) => wrongs.extend(left),
        }
        for (made, parents) in histories.drain(..) {
            let orphans = made.without_parent(&parents);
            wrongs.extend(
                (!orphans.is_empty()).then(|| format!("children of lost sites were made: {orphans:?}")),
            );
        }
    }
    let runs = shop.keeper.record.len();
    sleep(Duration::from_secs(600)).await;
    if shop.keeper.record.len() - runs > 4 {
        wrongs.push(format!("does not come to rest: {} runs more", shop.keeper.record.len() - runs));
    }
    wrongs.extend(shop.wrongs().await);
    (Verdict { wrongs, script: shop.script, trace: Vec::new() }, slowest)
}

/// Does what the backup will know nothing of: sites come and go, children change, and others write as well.
async fn grow(shop: &mut Shop, dice: &mut SmallRng, round: u32) {
    shop.create(&format!("late-{round}")).await;
    shop.meddle(dice).await;
    if dice.random_bool(0.5) {
        let gone = shop.server.list::<Website>("shop").await.swap_remove(0).name_any();
        shop.note(format_args!("delete the site {gone}"));
        shop.server.delete::<Website>(&format!("shop/{gone}")).await;
    }
    for n in 0..dice.random_range(0..=AHEAD) {
        let metadata = ObjectMeta { name: Some(format!("other-{round}-{n}")), ..ObjectMeta::default() };
        shop.server.create(&ConfigMap { metadata, ..ConfigMap::default() }).await;
    }
    sleep(Duration::from_millis(dice.random_range(0..30_000))).await;
}

fn all(what: &str, seeds: u64, back: Return) {
    let slowest = std::sync::Mutex::new(Duration::ZERO);
    each(what, seeds, |seed| {
        let (verdict, took) = paused(outages(seed, back));
        let mut slowest = slowest.lock().unwrap();
        *slowest = (*slowest).max(took);
        verdict
    });
    println!("{what}: the slowest healed within {:?} of the server's return", slowest.lock().unwrap());
}

// C21 R43
#[test]
fn operators_bring_back_children_that_went_while_nobody_watched() {
    all("operators", 200, Return::WithoutHistory);
}

// R43
#[test]
fn operators_follow_a_server_that_is_restored_to_an_older_state() {
    all("restored", 50, Return::Restored);
}
