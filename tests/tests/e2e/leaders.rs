//! Two replicas, each a process: the leader is killed, stopped, frozen and woken, its clock set, its connection cut.

#![expect(clippy::print_stdout, reason = "times are worth a line")]

use std::{
    fs,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, UNIX_EPOCH},
};

use futures::TryStreamExt;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::ConfigMap};
use kube::{
    Api, ResourceExt,
    api::{WatchEvent, WatchParams},
    core::ObjectMeta,
};
use serde_json::json;
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use watchkeeper::clock::WallClock;
use watchkeeper_tests::{
    backend::{Stage, User},
    cable::Passes,
};

use crate::{harness::tests, link::Link};

tests! {
    Shared: a_leader_that_is_killed_is_followed_by_another, a_leader_that_stops_hands_over_within_two_seconds,
            a_leader_that_was_frozen_past_its_lease_writes_nothing_when_it_wakes,
            a_leader_whose_clock_is_set_leads_on_or_again, a_leader_that_is_cut_off_is_followed_by_another,
            a_leader_whose_requests_are_lost_is_followed_by_another,
            a_leader_whose_answers_are_lost_is_followed_by_another;
}

/// A process, killed when it is dropped.
pub(crate) struct Replica {
    pub(crate) child: Child,
    clock: PathBuf,
    states: watch::Receiver<String>,
}

impl Replica {
    fn start(stage: &Stage, name: &str) -> Self {
        Self::start_by(stage, name, &stage.server.kubeconfig_text(User::Admin))
    }

    fn start_by(stage: &Stage, name: &str, way: &str) -> Self {
        Self::start_as(stage, name, way, None)
    }

    pub(crate) fn start_as(stage: &Stage, name: &str, way: &str, word: Option<&str>) -> Self {
        let folder =
            std::env::temp_dir().join(format!("replica-{}-{}-{name}", std::process::id(), stage.namespace));
        fs::create_dir_all(&folder).unwrap();
        let (kubeconfig, clock) = (folder.join("kubeconfig"), folder.join("clock"));
        fs::write(&kubeconfig, way).unwrap();
        fs::write(&clock, "0").unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_replica"))
            .args([name, &stage.namespace])
            .arg(&clock)
            .args(word)
            .env("KUBECONFIG", kubeconfig)
            .stdout(Stdio::piped())
            .stderr(fs::File::create(folder.join("log")).unwrap())
            .spawn()
            .unwrap();
        let (said, states) = watch::channel(String::new());
        let output = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            output.lines().map_while(Result::ok).for_each(|line| drop(said.send_replace(line)));
        });
        Self { child, clock, states }
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    async fn comes_to(&mut self, state: &str) {
        let reached = self.states.wait_for(|line| line == state);
        tokio::time::timeout(Duration::from_secs(60), reached)
            .await
            .unwrap_or_else(|_| panic!("never {state}"))
            .unwrap();
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(folder) = self.clock.parent() {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

/// A write, as the server's history has it.
#[derive(Clone, Debug)]
struct Write {
    seen: Instant,
    by: String,
    /// When its run began to send it, in milliseconds since 1970.
    begun: u128,
}

/// Who wrote, in the order of the server's history.
#[derive(Clone, Default)]
struct History {
    writers: Arc<Mutex<Vec<Write>>>,
}

impl History {
    /// Follows the map that both write, from its beginning.
    async fn of(stage: &Stage) -> Self {
        let map = ConfigMap {
            metadata: ObjectMeta { name: Some("writes".into()), ..Default::default() },
            ..Default::default()
        };
        let mut version = stage.kit().create(&map).await.resource_version().unwrap();
        let (client, _) = stage.server.client(User::Admin, &stage.namespace).await;
        let maps = Api::<ConfigMap>::default_namespaced(client);
        let history = Self::default();
        let writers = history.writers.clone();
        tokio::spawn(async move {
            loop {
                let params = WatchParams::default().fields("metadata.name=writes").timeout(290);
                let mut events = Box::pin(maps.watch(&params, &version).await.unwrap());
                while let Some(event) = events.try_next().await.unwrap() {
                    if let WatchEvent::Modified(map) = event {
                        version = map.resource_version().unwrap();
                        let data = map.data.unwrap_or_default();
                        let by = data.get("by").cloned().unwrap_or_default();
                        let begun =
                            data.get("begun").and_then(|begun| begun.parse().ok()).unwrap_or_default();
                        writers.lock().unwrap().push(Write { seen: Instant::now(), by, begun });
                    }
                }
            }
        });
        history
    }

    /// Names who wrote one after the other.
    fn reigns(&self) -> Vec<String> {
        let mut names: Vec<_> = self.writers.lock().unwrap().iter().map(|write| write.by.clone()).collect();
        names.dedup();
        names
    }

    fn count(&self, name: &str) -> usize {
        self.writers.lock().unwrap().iter().filter(|write| write.by == name).count()
    }

    /// Returns what somebody wrote last.
    fn last(&self, name: &str) -> Write {
        let writers = self.writers.lock().unwrap();
        writers.iter().rev().find(|write| write.by == name).unwrap().clone()
    }

    /// Lists what somebody wrote after another had begun.
    fn after(&self, began: &str, by: &str) -> Vec<Write> {
        let writers = self.writers.lock().unwrap();
        let later = writers.iter().skip_while(|write| write.by != began);
        later.filter(|write| write.by == by).cloned().collect()
    }

    /// Waits until somebody has written so often more.
    async fn goes_on(&self, name: &str, more: usize) -> Instant {
        let (wanted, began) = (self.count(name) + more, Instant::now());
        while self.count(name) < wanted {
            assert!(began.elapsed() < Duration::from_secs(60), "{name} does not write");
            sleep(Duration::from_millis(20)).await;
        }
        self.last(name).seen
    }
}

/// Two replicas; the first one leads and writes.
async fn two(stage: &Stage) -> (Replica, Replica, History) {
    two_by(stage, &stage.server.kubeconfig_text(User::Admin)).await
}

/// The same, where the first has a way to the server of its own.
async fn two_by(stage: &Stage, way: &str) -> (Replica, Replica, History) {
    let lease: Lease = serde_json::from_value(json!({
        "metadata": {"name": "replicas", "labels": {"team": "x"}},
        "spec": {"holderIdentity": "", "leaseDurationSeconds": 1},
    }))
    .unwrap();
    // Released, so that nobody waits for the first term.
    stage.kit().create(&lease).await;
    let history = History::of(stage).await;
    let mut one = Replica::start_by(stage, "one", way);
    one.comes_to("leads").await;
    history.goes_on("one", 3).await;
    let mut two = Replica::start(stage, "two");
    two.comes_to("stands by").await;
    sleep(Duration::from_secs(3)).await;
    assert_eq!(history.reigns(), ["one"]);
    (one, two, history)
}

/// Returns the time of day in milliseconds since 1970.
pub(crate) fn now() -> u128 {
    WallClock::system().now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()
}

fn took(what: &str, since: Instant, until: Instant) -> Duration {
    let took = until - since;
    println!("  {what}: {took:?}");
    took
}

async fn a_leader_that_is_killed_is_followed_by_another(stage: Stage) {
    let (one, mut two, history) = two(&stage).await;
    let killed = Instant::now();
    one.signal("-KILL");
    two.comes_to("leads").await;
    let leads = took("killed: the other leads", killed, Instant::now());
    history.goes_on("two", 5).await;
    assert!((Duration::from_secs(12)..Duration::from_secs(20)).contains(&leads), "{leads:?}");
    assert_eq!(history.reigns(), ["one", "two"]);
}

// L12
async fn a_leader_that_stops_hands_over_within_two_seconds(stage: Stage) {
    let (mut one, mut two, history) = two(&stage).await;
    let stopped = Instant::now();
    one.signal("-TERM");
    two.comes_to("leads").await;
    let leads = took("stopped: the other leads", stopped, Instant::now());
    history.goes_on("two", 5).await;
    assert!(leads < Duration::from_secs(2), "{leads:?}");
    assert_eq!(history.reigns(), ["one", "two"]);
    assert!(one.child.wait().unwrap().success());
    // Renewals say nothing of who manages which field: the server still knows who made the Lease.
    let lease: Lease = stage.kit().get("replicas").await.unwrap();
    let managers = serde_json::to_string(&lease.metadata.managed_fields).unwrap();
    assert!(["f:team", "f:renewTime"].iter().all(|field| managers.contains(field)), "{managers}");
}

async fn a_leader_that_was_frozen_past_its_lease_writes_nothing_when_it_wakes(stage: Stage) {
    let (mut one, mut two, history) = two(&stage).await;
    let frozen = Instant::now();
    one.signal("-STOP");
    let stopped = now();
    two.comes_to("leads").await;
    took("frozen: the other leads", frozen, Instant::now());
    history.goes_on("two", 20).await;
    one.signal("-CONT");
    one.comes_to("stands by").await;
    history.goes_on("two", 50).await;
    // What had passed the gate when the process was stopped leaves it when it wakes: no gate can know. Nothing else does.
    let late = history.after("two", "one");
    assert!(late.len() <= 1 && late.iter().all(|write| write.begun <= stopped), "{late:?} after {stopped}");
}

async fn a_leader_whose_clock_is_set_leads_on_or_again(stage: Stage) {
    let (one, _two, history) = two(&stage).await;
    for off in ["-600", "600"] {
        let set = Instant::now();
        fs::write(&one.clock, off).unwrap();
        sleep(Duration::from_secs(3)).await;
        let again = history.goes_on("one", 10).await;
        took(&format!("clock off by {off} s: it leads again"), set, again);
    }
    assert_eq!(history.reigns(), ["one"]);
}

/// Cuts the leader off, and lets it find out when it can again.
async fn cut_off(stage: &Stage, passes: Passes, longest: Duration) {
    let (link, way) = Link::in_front_of(&stage.server.kubeconfig_text(User::Admin)).await;
    let (mut one, mut two, history) = two_by(stage, &way).await;
    let cut = Instant::now();
    link.set(passes);
    two.comes_to("leads").await;
    let leads = took(&format!("{passes:?} passes: the other leads"), cut, Instant::now());
    let last = history.last("one").seen;
    println!(
        "  {passes:?} passes: the last write of the first came {:?} after the cut",
        last.saturating_duration_since(cut)
    );
    history.goes_on("two", 20).await;
    link.set(Passes::Both);
    one.comes_to("stands by").await;
    history.goes_on("two", 50).await;
    assert_eq!(history.reigns(), ["one", "two"], "{:?}", history.after("two", "one"));
    assert!((Duration::from_secs(12)..longest).contains(&leads), "{leads:?}");
}

// L5 L6
async fn a_leader_that_is_cut_off_is_followed_by_another(stage: Stage) {
    cut_off(&stage, Passes::Nothing, Duration::from_secs(20)).await;
}

// L5 L6
async fn a_leader_whose_requests_are_lost_is_followed_by_another(stage: Stage) {
    cut_off(&stage, Passes::RepliesAlone, Duration::from_secs(20)).await;
}

// L5 L6
async fn a_leader_whose_answers_are_lost_is_followed_by_another(stage: Stage) {
    // What it asked for in vain holds the Lease as if it had been told.
    cut_off(&stage, Passes::RequestsAlone, Duration::from_secs(35)).await;
}
