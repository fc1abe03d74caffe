//! A scripted visitor: creates sites, edits them, deletes what the operator made, and looks what comes of it.
//!
//! It works in a namespace of its own, which it removes however it ends. Where nobody runs Deployments, it plays
//! their part by patching the status.

use std::{process::ExitCode, time::Duration};

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Namespace};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::NamespaceResourceScope,
};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout_at};
use watchkeeper::prelude::*;
use watchkeeper_examples::{Cuts, Place};

use super::{
    journal::Journal,
    operator::{FINALIZER, LOOK_AGAIN, Website, WebsiteSpec},
    summary::{self, Seen},
};

/// How many sites the visitor creates.
const SITES: u32 = 12;
/// How often the visitor checks whether a condition holds.
const LOOK_EVERY: Duration = Duration::from_millis(40);
/// How long one change may take to come true.
const PATIENCE: Duration = Duration::from_secs(8);
/// How long the visitor needs to tidy up.
const TIDYING: Duration = Duration::from_secs(6);
/// How long to wait for a Deployment controller before the visitor plays its part.
const OTHERS: Duration = Duration::from_millis(1_500);

/// Runs the operator and the visitor side by side, and sums up.
pub(crate) async fn run(
    place: &Place,
    manager: Manager,
    journal: &Journal,
    limit: Duration,
) -> anyhow::Result<ExitCode> {
    let deadline = Instant::now() + limit.saturating_sub(TIDYING);
    let mut visitor = Visitor::arrive(place, deadline).await?;
    println!("a visitor comes to namespace {}", visitor.namespace);
    let running = manager.spawn();
    let interrupted = tokio::select! {
        () = visitor.visit() => false,
        _ = tokio::signal::ctrl_c() => true,
    };
    let tidied = tokio::time::timeout(TIDYING, visitor.leave()).await;
    running.stop().await?;
    if !matches!(tidied, Ok(Ok(()))) {
        visitor.seen.lost.push(format!("namespace {} could not be emptied", visitor.namespace));
    }
    if interrupted {
        println!("interrupted: the namespace is removed");
        return Ok(ExitCode::SUCCESS);
    }
    Ok(summary::print(&visitor.seen, &journal.figures(), SITES))
}

struct Visitor {
    client: Client,
    cuts: Cuts,
    namespace: String,
    sites: Api<Website>,
    deployments: Api<Deployment>,
    deadline: Instant,
    seen: Seen,
    plays_deployments: bool,
    embedded: bool,
}

fn site_name(at: u32) -> String {
    format!("site-{at}")
}

impl Visitor {
    async fn arrive(place: &Place, deadline: Instant) -> anyhow::Result<Self> {
        let client = place.client.clone();
        let suffix = format!("{:x}{:04x}", std::process::id(), rand_suffix());
        let namespace = format!("watchkeeper-demo-{suffix}");
        let object = Namespace {
            metadata: kube::core::ObjectMeta { name: Some(namespace.clone()), ..Default::default() },
            ..Default::default()
        };
        Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &object).await?;
        Ok(Self {
            sites: Api::namespaced(client.clone(), &namespace),
            deployments: Api::namespaced(client.clone(), &namespace),
            client,
            cuts: place.cuts.clone(),
            namespace,
            deadline,
            seen: Seen::default(),
            plays_deployments: false,
            embedded: place.is_embedded(),
        })
    }

    async fn visit(&mut self) {
        self.create_sites().await;
        self.edit_sites().await;
        self.delete_a_child().await;
        self.delete_a_child_while_the_watch_is_cut().await;
        self.wait_for_requeues().await;
        self.delete_a_site().await;
    }

    async fn create_sites(&mut self) {
        println!("creates {SITES} sites");
        for at in 0..SITES {
            let spec = WebsiteSpec {
                domain: format!("{}.example", site_name(at)),
                tags: vec!["demo".to_owned()],
                replicas: 1 + (at % 3) as i32,
            };
            let created =
                self.sites.create(&PostParams::default(), &Website::new(&site_name(at), spec)).await;
            self.note(created.is_ok(), || format!("create {}", site_name(at)));
        }
        self.find_out_who_runs_deployments().await;
        for at in 0..SITES {
            if self.settled(at, 1 + (at % 3) as i32, "created").await {
                self.seen.sites_created += 1;
            }
        }
    }

    /// Plays the part of the Deployment controller only if the cluster has none.
    async fn find_out_who_runs_deployments(&mut self) {
        let deployments = self.deployments.clone();
        let observed = |deployment: &Deployment| {
            deployment.status.as_ref().is_some_and(|status| status.observed_generation.is_some())
        };
        let first = site_name(0);
        let by = (Instant::now() + OTHERS).min(self.deadline);
        let others = wait(&deployments, &first, by, |deployment| deployment.is_some_and(observed)).await;
        self.plays_deployments = !others;
        let who = if others { "somebody else runs" } else { "nobody runs: the visitor plays" };
        println!("Deployments {who} their part");
    }

    async fn edit_sites(&mut self) {
        println!("edits every site several times in a row");
        for round in 0..5 {
            for at in 0..SITES {
                let replicas = 2 + ((at + round) % 4) as i32;
                self.scale(at, replicas).await;
            }
        }
        for at in 0..SITES {
            if self.settled(at, 2 + ((at + 4) % 4) as i32, "edited").await {
                self.seen.edits_followed += 1;
            }
        }
    }

    async fn scale(&mut self, at: u32, replicas: i32) {
        let patch = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        let patched = self.sites.patch(&site_name(at), &PatchParams::default(), &patch).await;
        self.note(patched.is_ok(), || format!("edit {}", site_name(at)));
    }

    async fn delete_a_child(&mut self) {
        println!("deletes the Deployment of {}", site_name(1));
        if self.deleted_and_healed(1, || {}).await {
            self.seen.children_healed += 1;
        }
    }

    async fn delete_a_child_while_the_watch_is_cut(&mut self) {
        println!("cuts the watch of Deployments, and deletes the one of {}", site_name(2));
        self.cuts.cut("deployments");
        let cuts = self.cuts.clone();
        if self.deleted_and_healed(2, move || cuts.heal("deployments")).await {
            self.seen.children_healed_after_cut += 1;
        }
    }

    /// Deletes a Deployment and waits for another one in its place.
    async fn deleted_and_healed(&mut self, at: u32, then: impl FnOnce()) -> bool {
        let name = site_name(at);
        let uid = |deployment: &Deployment| deployment.metadata.uid.clone();
        let Ok(before) = self.deployments.get(&name).await else { return self.lose(format!("find {name}")) };
        let deleted = self.deployments.delete(&name, &DeleteParams::background()).await;
        sleep(LOOK_EVERY * 5).await;
        then();
        if deleted.is_err() {
            return self.lose(format!("delete the Deployment of {name}"));
        }
        let by = self.by();
        let other = |now: Option<&Deployment>| now.is_some_and(|now| uid(now) != uid(&before));
        let healed = wait(&self.deployments, &name, by, other).await;
        let replicas = before.spec.and_then(|spec| spec.replicas).unwrap_or_default();
        healed && self.settled(at, replicas, "healed").await || self.lose(format!("heal {name}"))
    }

    async fn wait_for_requeues(&self) {
        println!("waits for {LOOK_AGAIN:?}, in which every site is looked at again");
        let quiet = Instant::now() + LOOK_AGAIN + Duration::from_millis(1_200);
        tokio::time::sleep_until(quiet.min(self.deadline)).await;
    }

    async fn delete_a_site(&mut self) {
        let name = site_name(0);
        println!("deletes {name}");
        let deleted = self.sites.delete(&name, &DeleteParams::default()).await.is_ok();
        let by = self.by();
        match deleted && wait(&self.sites, &name, by, |site| site.is_none()).await {
            true => self.seen.sites_cleaned_up += 1,
            false => drop(self.lose(format!("delete {name}"))),
        }
        // A cluster's garbage collector takes up to half a minute to learn of a kind that was just installed.
        let collected = wait(&self.deployments, &name, by, |deployment| deployment.is_none()).await;
        match collected {
            true => self.seen.children_collected += 1,
            false if self.embedded => drop(self.lose(format!("collect the Deployment of {name}"))),
            false => println!("the cluster's garbage collector has not come by yet"),
        }
    }

    /// Waits until Deployment and status match the site; plays the Deployment controller if needed.
    async fn settled(&mut self, at: u32, replicas: i32, what: &str) -> bool {
        let (name, by) = (site_name(at), self.by());
        let wants = |deployment: &Deployment| {
            deployment.spec.as_ref().and_then(|spec| spec.replicas) == Some(replicas)
        };
        let follows = wait(&self.deployments, &name, by, |deployment| deployment.is_some_and(wants)).await;
        if follows && self.plays_deployments {
            let status = json!({ "status": { "replicas": replicas, "readyReplicas": replicas } });
            let patch = Patch::Merge(status);
            let played = self.deployments.patch_status(&name, &PatchParams::default(), &patch).await;
            self.note(played.is_ok(), || format!("play the Deployment of {name}"));
        }
        // In a real cluster the image may be missing: then they are never ready.
        let ready = |site: &Website| {
            let status = site.status.clone().unwrap_or_default();
            status.replicas == replicas && (!self.plays_deployments || status.ready_replicas == replicas)
        };
        let reported = follows && wait(&self.sites, &name, by, |site| site.is_some_and(ready)).await;
        reported || self.lose(format!("{name} {what}, wanting {replicas} replicas"))
    }

    fn by(&self) -> Instant {
        (Instant::now() + PATIENCE).min(self.deadline)
    }

    fn lose(&mut self, what: String) -> bool {
        self.seen.lost.push(what);
        false
    }

    fn note(&mut self, came_true: bool, what: impl FnOnce() -> String) {
        if !came_true {
            self.lose(what());
        }
    }

    /// Deletes the rest, waits for its cleanup, and removes the namespace.
    async fn leave(&self) -> anyhow::Result<()> {
        self.cuts.heal("deployments");
        self.sites.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        let by = Instant::now() + TIDYING / 2;
        while !self.sites.list(&ListParams::default()).await?.items.is_empty() {
            if Instant::now() >= by {
                self.strip_finalizers().await?;
            }
            sleep(LOOK_EVERY).await;
        }
        Api::<Namespace>::all(self.client.clone()).delete(&self.namespace, &DeleteParams::default()).await?;
        println!("the visitor has removed namespace {}", self.namespace);
        Ok(())
    }

    async fn strip_finalizers(&self) -> anyhow::Result<()> {
        println!("cleanup did not end: the visitor takes {FINALIZER} away");
        for site in self.sites.list(&ListParams::default()).await? {
            let patch = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
            self.sites.patch(&site.name_any(), &PatchParams::default(), &patch).await?;
        }
        Ok(())
    }
}

/// Looks at an object until it is as wanted, or until a deadline.
async fn wait<K>(api: &Api<K>, name: &str, by: Instant, wanted: impl Fn(Option<&K>) -> bool) -> bool
where
    K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let looking = async {
        loop {
            if let Ok(found) = api.get_opt(name).await
                && wanted(found.as_ref())
            {
                return;
            }
            sleep(LOOK_EVERY).await;
        }
    };
    timeout_at(by, looking).await.is_ok()
}

/// Four more digits, so that two visitors of one process number don't meet.
fn rand_suffix() -> u16 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id()) as u16
}
