//! Every order in which an own write, its reply, its event, a stranger's edit and a broken watch can come.

#![expect(clippy::print_stdout, reason = "how many cases there were is the point")]

use std::{collections::BTreeMap, sync::Mutex};

use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tokio::sync::watch;
use watchkeeper::{Lister, prelude::*};
use watchkeeper_apiserver::ApiServer;
use watchkeeper_tests::{Website, WebsiteStatus, deployment_for, gates::Gates, owned_by, website};

/// What the run under test writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    /// The status of the reconciled object.
    Status,
    /// A child of another kind.
    Child,
    /// A child of the reconciled kind: a key of its own.
    OwnKind,
}

/// What somebody else does to the object that the run writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stranger {
    Nobody,
    /// Changes something else in it.
    Edits,
    /// Writes the same, so that the run's own write changes nothing if it comes later.
    WritesTheSame,
}

/// What happens to the watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Break {
    None,
    /// Watches are cut, and resume at their last version.
    Cut,
    /// Watches are cut and the events in between are lost, so everything is listed again.
    Relist,
}

/// One thing that happens; the first four in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The run sends its write.
    Sends,
    /// The server takes it.
    Commits,
    /// The reply comes.
    Replies,
    /// The run ends.
    Ends,
    /// The stranger acts.
    Stranger,
    /// The events that are under way come.
    Events,
    /// The watches break.
    Breaks,
}

const OWN: [Step; 4] = [Step::Sends, Step::Commits, Step::Replies, Step::Ends];

#[derive(Clone, Debug)]
struct Case {
    written: Written,
    stranger: Stranger,
    breaks: Break,
    order: Vec<Step>,
}

/// Every order of some steps, among them the run's own in theirs.
fn orders(extras: &[Step]) -> Vec<Vec<Step>> {
    let mut all = vec![OWN.to_vec()];
    for extra in extras {
        let insert = |order: Vec<Step>| {
            (0..=order.len()).map(move |at| {
                let mut order = order.clone();
                order.insert(at, *extra);
                order
            })
        };
        all = all.into_iter().flat_map(insert).collect();
    }
    all
}

fn cases(written: Written) -> Vec<Case> {
    let mut all = Vec::new();
    for stranger in [Stranger::Nobody, Stranger::Edits, Stranger::WritesTheSame] {
        for breaks in [Break::None, Break::Cut, Break::Relist] {
            let mut extras = vec![Step::Events];
            extras.extend((stranger != Stranger::Nobody).then_some(Step::Stranger));
            extras.extend((breaks != Break::None).then_some(Step::Breaks));
            all.extend(orders(&extras).into_iter().map(|order| Case { written, stranger, breaks, order }));
        }
    }
    all
}

/// A fault in the operator that a checker of interleavings must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plant {
    None,
    /// It writes past its context: nobody knows these writes as its own.
    ForeignWrites,
    /// It hears nothing of its child.
    DeafToChild,
}

/// A place in the reconciler that is open or shut.
#[derive(Debug)]
struct Valve(watch::Sender<bool>);

impl Valve {
    fn new() -> Arc<Self> {
        Arc::new(Self(watch::Sender::new(true)))
    }

    fn set(&self, open: bool) {
        self.0.send_replace(open);
    }

    async fn pass(&self) {
        self.0.subscribe().wait_for(|open| *open).await.unwrap();
    }
}

/// What a run knew when it began.
#[derive(Clone, Debug)]
struct Seen {
    key: String,
    /// The version of the object that the run may write.
    target: u64,
}

/// Writes one thing a run, and notes what it knew.
struct Writer {
    written: Written,
    plant: Plant,
    deployments: Lister<Deployment>,
    sites: <Website as Watched>::Lister,
    seen: Arc<Mutex<Vec<Seen>>>,
    before: Arc<Valve>,
    after: Arc<Valve>,
}

fn version_of(object: &impl kube::Resource) -> u64 {
    object.meta().resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or_default()
}

fn child_site(site: &Website) -> Website {
    let mut child = website("ax");
    child.spec.replicas = site.spec.replicas;
    child
}

fn wanted_status(site: &Website) -> WebsiteStatus {
    WebsiteStatus { replicas: site.spec.replicas, ready_replicas: 0 }
}

impl Reconciler<Website> for Writer {
    type Error = anyhow::Error;

    async fn reconcile(&self, site: Arc<Website>, cx: &Context<Website>) -> anyhow::Result<Action> {
        let key = ObjectKey::new("shop", "a");
        let target = match self.written {
            _ if cx.key() != &key => version_of(&*site),
            Written::Status => version_of(&*site),
            Written::Child => self.deployments.get(&key).map_or(0, |child| version_of(&*child)),
            Written::OwnKind => {
                self.sites.get(&ObjectKey::new("shop", "ax")).map_or(0, |it| version_of(&*it))
            }
        };
        self.seen.lock().unwrap().push(Seen { key: cx.key().to_string(), target });
        if cx.key() != &key {
            return Ok(Action::await_change());
        }
        self.before.pass().await;
        match self.written {
            Written::Status if self.plant == Plant::ForeignWrites => {
                let api = Api::<Website>::namespaced(cx.client().clone(), "shop");
                let patch = Patch::Merge(json!({ "status": wanted_status(&site) }));
                api.patch_status("a", &PatchParams::default(), &patch).await?;
            }
            Written::Status => cx.patch_status(&site, wanted_status(&site)).await?,
            Written::Child => drop(cx.apply(deployment_for(&site)).await?),
            Written::OwnKind => drop(cx.apply(child_site(&site)).await?),
        }
        self.after.pass().await;
        Ok(Action::await_change())
    }
}

/// Long enough for what is under way to arrive, short enough to end no wait.
const MOMENT: Duration = Duration::from_millis(20);
/// Long enough for a broken watch to be open again.
const REOPENED: Duration = Duration::from_secs(2);

struct Play {
    server: ApiServer,
    gates: Arc<Gates>,
    seen: Arc<Mutex<Vec<Seen>>>,
    before: Arc<Valve>,
    after: Arc<Valve>,
    written: Written,
}

impl Play {
    async fn target(&self) -> u64 {
        match self.written {
            Written::Status => version_of(&self.server.get::<Website>("shop/a").await.unwrap()),
            Written::Child => version_of(&self.server.get::<Deployment>("shop/a").await.unwrap()),
            Written::OwnKind => version_of(&self.server.get::<Website>("shop/ax").await.unwrap()),
        }
    }

    async fn edit(&self) {
        let note = json!({ "metadata": { "annotations": { "stranger": "was here" } } });
        match self.written {
            Written::Status => drop(self.server.patch_merge::<Website>("shop/a", note).await),
            Written::Child => drop(self.server.patch_merge::<Deployment>("shop/a", note).await),
            Written::OwnKind => drop(self.server.patch_merge::<Website>("shop/ax", note).await),
        }
    }

    /// Writes what the run writes, as another instance of the operator would.
    async fn write_the_same(&self) {
        let site = self.server.get::<Website>("shop/a").await.unwrap();
        let mut owner = owned_by(&site);
        owner.block_owner_deletion = Some(true);
        let owners = || Some(vec![owner.clone()]);
        let with = PatchParams::apply("websites.web.example.dev").force();
        match self.written {
            Written::Status => {
                let status = serde_json::to_value(wanted_status(&site)).unwrap();
                self.server.patch_status::<Website>("shop/a", status).await;
            }
            Written::Child => {
                let api = Api::<Deployment>::namespaced(self.server.client(), "shop");
                let mut child = deployment_for(&site);
                child.metadata.owner_references = owners();
                api.patch("a", &with, &Patch::Apply(&child)).await.unwrap();
            }
            Written::OwnKind => {
                let api = Api::<Website>::namespaced(self.server.client(), "shop");
                let mut child = child_site(&site);
                child.metadata.owner_references = owners();
                api.patch("ax", &with, &Patch::Apply(&child)).await.unwrap();
            }
        }
    }

    /// Does one step; returns the version that a stranger made, if one did.
    async fn step(&self, step: Step, case: &Case) -> Option<u64> {
        let mut made = None;
        match step {
            Step::Sends => self.before.set(true),
            Step::Commits => self.gates.let_write_in(),
            Step::Replies => self.gates.let_reply_out(),
            Step::Ends => {
                self.gates.let_writes_pass();
                self.after.set(true);
            }
            Step::Events => {
                self.gates.let_events_pass();
                tokio::time::sleep(MOMENT).await;
                self.gates.hold_events();
            }
            Step::Breaks => {
                if case.breaks == Break::Relist {
                    self.server.compact();
                }
                self.gates.cut_watches();
                tokio::time::sleep(REOPENED).await;
            }
            Step::Stranger => {
                let before = self.target().await;
                match case.stranger {
                    Stranger::Edits => self.edit().await,
                    _ => self.write_the_same().await,
                }
                made = Some(self.target().await).filter(|after| *after != before);
            }
        }
        tokio::time::sleep(MOMENT).await;
        made
    }

    fn runs(&self, since: usize, key: &str) -> Vec<Seen> {
        let seen = self.seen.lock().unwrap();
        seen[since..].iter().filter(|run| run.key == key).cloned().collect()
    }
}

/// Brings a site to rest, then starts the run under test and holds it before its write.
async fn prepared(written: Written, plant: Plant) -> (Play, watchkeeper::Running, usize) {
    let server = ApiServer::in_memory().crd::<Website>().namespace("shop").start().await;
    let (gates, client) = Gates::before(server.client());
    let manager = Manager::new(client);
    let (seen, before, after) = (Arc::default(), Valve::new(), Valve::new());
    let writer = Writer {
        written,
        plant,
        deployments: manager.lister::<Deployment>(),
        sites: manager.lister::<Website>(),
        seen: Arc::clone(&seen),
        before: before.clone(),
        after: after.clone(),
    };
    let controller = Controller::new(writer);
    let controller = match written {
        _ if plant == Plant::DeafToChild => controller,
        Written::OwnKind => controller.owns::<Website>(),
        _ => controller.owns::<Deployment>(),
    };
    let running = manager.controller(controller).spawn();
    server.create(&website("a")).await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    let baseline = seen.lock().unwrap().len();
    let play = Play { server, gates, seen, before, after, written };
    play.before.set(false);
    play.after.set(false);
    play.gates.hold_a_write();
    play.server.patch_merge::<Website>("shop/a", json!({ "spec": { "replicas": 5 } })).await;
    tokio::time::sleep(MOMENT).await;
    assert_eq!(play.runs(baseline, "shop/a").len(), 1, "the run under test has begun");
    play.gates.hold_events();
    (play, running, baseline)
}

/// Plays one case; says what is wrong with how it went.
async fn play(case: &Case, plant: Plant) -> Result<(), String> {
    let (play, _running, baseline) = prepared(case.written, plant).await;
    let mut stranger = None;
    for step in &case.order {
        stranger = play.step(*step, case).await.or(stranger);
    }
    play.gates.let_events_pass();
    tokio::time::sleep(Duration::from_secs(30)).await;
    let runs = play.runs(baseline, "shop/a");
    let knew = |version: u64| runs.iter().any(|run| run.target >= version);
    match stranger {
        Some(version) if !knew(version) => {
            return Err(format!("no run knew the stranger's version {version}: {runs:?}"));
        }
        None if case.breaks != Break::Relist && runs.len() != 1 => {
            return Err(format!("the own write alone made the key run again: {runs:?}"));
        }
        _ if runs.len() > 4 => return Err(format!("it ran and ran: {runs:?}")),
        _ => {}
    }
    let target = play.target().await;
    if case.written == Written::OwnKind && !play.runs(0, "shop/ax").iter().any(|run| run.target == target) {
        return Err(format!("the child was not reconciled at its version {target}"));
    }
    let replicas = match case.written {
        Written::Status => {
            play.server.get::<Website>("shop/a").await.unwrap().status.map(|status| status.replicas)
        }
        Written::Child => play.server.get::<Deployment>("shop/a").await.unwrap().spec.unwrap().replicas,
        Written::OwnKind => Some(play.server.get::<Website>("shop/ax").await.unwrap().spec.replicas),
    };
    match replicas {
        Some(5) => Ok(()),
        other => Err(format!("it ended as {other:?}")),
    }
}

async fn play_all(written: Written) {
    let cases = cases(written);
    let mut wrong = BTreeMap::new();
    for (at, case) in cases.iter().enumerate() {
        if let Err(what) = play(case, Plant::None).await {
            wrong.insert(at, (case, what));
        }
    }
    println!("{written:?}: {} interleavings", cases.len());
    assert!(
        wrong.is_empty(),
        "{} of {}: {:#?}",
        wrong.len(),
        cases.len(),
        wrong.values().take(5).collect::<Vec<_>>()
    );
}

// C24 C27 W3
#[tokio::test(start_paused = true)]
async fn every_interleaving_of_a_status_patch_wakes_for_strangers_and_for_nobody_else() {
    play_all(Written::Status).await;
}

// C24 C27 W3
#[tokio::test(start_paused = true)]
async fn every_interleaving_of_a_childs_apply_wakes_for_strangers_and_for_nobody_else() {
    play_all(Written::Child).await;
}

// C24 C27 C28 W3
#[tokio::test(start_paused = true)]
async fn every_interleaving_with_a_child_of_the_own_kind_reconciles_both() {
    play_all(Written::OwnKind).await;
}

/// Counts the cases of one stranger and unbroken watches that are found to go wrong with a fault planted.
async fn found(written: Written, stranger: Stranger, plant: Plant) -> (usize, usize) {
    let mut cases = cases(written);
    cases.retain(|case| case.stranger == stranger && case.breaks == Break::None);
    let mut wrong = 0;
    for case in &cases {
        wrong += usize::from(play(case, plant).await.is_err());
    }
    (wrong, cases.len())
}

#[tokio::test(start_paused = true)]
async fn own_writes_that_wake_their_writer_are_found() {
    let (wrong, all) = found(Written::Status, Stranger::Nobody, Plant::ForeignWrites).await;
    assert_eq!(wrong, all, "a write past the context wakes in every order");
}

#[tokio::test(start_paused = true)]
async fn strangers_that_wake_nobody_are_found() {
    let (wrong, all) = found(Written::Child, Stranger::Edits, Plant::DeafToChild).await;
    assert_eq!(wrong, all, "no run follows in any order");
}
