//! Replicas that share the work, each a process: frozen and woken, killed, stopped, and joined by others.

#![expect(clippy::print_stdout, reason = "times are worth a line")]

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt,
    api::{WatchEvent, WatchParams},
    core::ObjectMeta,
};
use tokio::time::{Instant, sleep};
use watchkeeper_tests::{
    backend::{Stage, User},
    cable::Passes,
};

use crate::{
    harness::tests,
    leaders::{Replica, now},
    link::Link,
};

tests! {
    Shared: processes_never_work_on_one_key_at_a_time;
}

/// So many that each of three replicas has some: the slots are shared out by chance.
const MAPS: usize = 36;

/// A write, as the server's history has it.
#[derive(Clone, Debug)]
struct Write {
    seen: Instant,
    by: String,
    run: String,
    /// When its run began to send it, in milliseconds since 1970.
    begun: u128,
}

/// The writes of each map, in the order of the server's history.
#[derive(Clone, Default)]
struct History(Arc<Mutex<BTreeMap<String, Vec<Write>>>>);

impl History {
    /// Makes the maps, and follows them.
    async fn of(stage: &Stage) -> Self {
        let mut version = String::new();
        for at in 0..MAPS {
            let labels = Some([("shared".to_owned(), String::new())].into());
            let metadata = ObjectMeta { name: Some(format!("map-{at}")), labels, ..ObjectMeta::default() };
            let map = ConfigMap { metadata, ..ConfigMap::default() };
            version = stage.kit().create(&map).await.resource_version().unwrap();
        }
        let (client, _) = stage.server.client(User::Admin, &stage.namespace).await;
        let (maps, history) = (Api::<ConfigMap>::default_namespaced(client), Self::default());
        let writes = history.0.clone();
        tokio::spawn(async move {
            loop {
                let params = WatchParams::default().labels("shared").timeout(290);
                let mut events = Box::pin(maps.watch(&params, &version).await.unwrap());
                while let Some(event) = events.try_next().await.unwrap() {
                    let WatchEvent::Modified(map) = event else { continue };
                    version = map.resource_version().unwrap();
                    let data = map.data.clone().unwrap_or_default();
                    let text = |name: &str| data.get(name).cloned().unwrap_or_default();
                    let begun = text("begun").parse().unwrap_or_default();
                    let write = Write { seen: Instant::now(), by: text("by"), run: text("run"), begun };
                    writes.lock().unwrap().entry(map.name_any()).or_default().push(write);
                }
            }
        });
        history
    }

    /// Returns who wrote each map last.
    fn owners(&self) -> Vec<String> {
        self.0.lock().unwrap().values().filter_map(|writes| Some(writes.last()?.by.clone())).collect()
    }

    /// Waits until these replicas, and nobody else, work on the maps. Returns how long that took.
    async fn works<const COUNT: usize>(&self, names: [&str; COUNT]) -> Duration {
        let (began, wanted) = (Instant::now(), BTreeSet::from(names.map(str::to_owned)));
        loop {
            let owners = self.owners();
            if owners.len() == MAPS && owners.iter().cloned().collect::<BTreeSet<_>>() == wanted {
                return began.elapsed();
            }
            assert!(began.elapsed() < Duration::from_secs(90), "{names:?} should work: {owners:?}");
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Checks that no run wrote after another one had begun, but for what had left a process when it was frozen.
    fn check(&self, frozen: &[(&str, u128)]) {
        for (map, writes) in &*self.0.lock().unwrap() {
            let (mut over, mut last) = (BTreeSet::new(), None);
            for write in writes {
                let run = (write.by.clone(), write.run.clone());
                let was_sent = |(who, at): &&(&str, u128)| *who == write.by && write.begun <= *at;
                if over.contains(&run) {
                    let late = frozen.iter().find(was_sent);
                    assert!(late.is_some(), "{map}: {write:?} after {last:?} began");
                    continue;
                }
                if last.as_ref() != Some(&run) {
                    over.extend(last.replace(run));
                }
            }
        }
    }

    /// Returns the longest time in which nobody wrote some map, since a moment.
    fn longest_gap(&self, since: Instant) -> Duration {
        let histories = self.0.lock().unwrap();
        let gaps = histories.values().flat_map(|writes| {
            let seen: Vec<_> = writes.iter().map(|write| write.seen).filter(|seen| *seen >= since).collect();
            seen.windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<_>>()
        });
        gaps.max().unwrap_or_default()
    }
}

// H2 H3 H5
async fn processes_never_work_on_one_key_at_a_time(stage: Stage) {
    let history = History::of(&stage).await;
    let way = stage.server.kubeconfig_text(User::Admin);
    let (link, through) = Link::in_front_of(&way).await;
    let start = |name: &str, way: &str| Replica::start_as(&stage, name, way, Some("shares"));
    let (one, two) = (start("one", &way), start("two", &through));
    println!("  the first start took {:?}", history.works(["one", "two"]).await);

    // Frozen past its term. Meanwhile another one joins.
    let stopped = now();
    one.signal("-STOP");
    let three = start("three", &way);
    println!("  frozen: the others went on with its maps after {:?}", history.works(["two", "three"]).await);
    one.signal("-CONT");
    println!("  woken: it has its part again after {:?}", history.works(["one", "two", "three"]).await);

    // Cut off: what it asks arrives, and it hears nothing of it. Then it is killed.
    link.set(Passes::RequestsAlone);
    println!("  cut off: the others went on after {:?}", history.works(["one", "three"]).await);
    two.signal("-KILL");
    link.set(Passes::Both);

    // Killed: its part moves once its Lease was not renewed for its duration, 15 s.
    let four = start("four", &way);
    println!("  joined: it has its part after {:?}", history.works(["one", "three", "four"]).await);
    four.signal("-KILL");
    let after = history.works(["one", "three"]).await;
    println!("  killed: the others went on after {after:?}");
    // Within 17 s, unless the machine is busy.
    assert!(after < Duration::from_secs(22), "{after:?}");

    // Stopped: its part moves at once.
    let since = Instant::now();
    three.signal("-TERM");
    println!("  stopped: the other went on after {:?}", history.works(["one"]).await);
    sleep(Duration::from_secs(1)).await;
    let gap = history.longest_gap(since);
    println!("  stopped: no map was left alone for longer than {gap:?}");
    // A machine that is busy takes longer than the sixth of a second that it takes otherwise; a lease duration is 15 s.
    assert!(gap < Duration::from_secs(8), "{gap:?}");
    history.check(&[("one", stopped)]);
}
