//! One replica of an operator that writes its name into every ConfigMap, again and again: for tests that kill it.
//!
//! ```text
//! replica NAME NAMESPACE CLOCK [shares]      with KUBECONFIG in the environment
//! ```
//!
//! With `shares`, replicas share the maps out that are labelled so. Otherwise one of them leads, and writes the map `writes`.
//!
//! CLOCK is a file that holds by how many seconds its wall clock is off. Each state of its election is a line on its
//! standard output.

#![expect(clippy::print_stdout, reason = "the test reads it")]

use std::{
    fs,
    sync::atomic::{AtomicU64, Ordering},
    time::UNIX_EPOCH,
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Config,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tokio::time::sleep;
use watchkeeper::{
    Sharding,
    clock::WallClock,
    leader_election::{LeaderElection, LeaderState},
    manager::client,
    prelude::*,
    reflector::ReflectorConfig,
};

/// How long it rests between two writes.
const PAUSE: Duration = Duration::from_millis(100);
/// The same where replicas share many objects.
const SHARED_PAUSE: Duration = Duration::from_millis(250);
/// Counts the runs.
static RUNS: AtomicU64 = AtomicU64::new(0);

#[tokio::main]
async fn main() -> Result<(), watchkeeper::Error> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let mut words: Vec<String> = std::env::args().collect();
    let shares = words.pop_if(|word| word == "shares").is_some();
    let [_, name, namespace, file] = words.try_into().map_err(|_| "three words")?;
    let system = WallClock::system();
    let clock = WallClock::custom(move || {
        let off =
            fs::read_to_string(&file).ok().and_then(|text| text.trim().parse::<i64>().ok()).unwrap_or(0);
        let by = Duration::from_secs(off.unsigned_abs());
        if off < 0 { system.now() - by } else { system.now() + by }
    });
    let config = Config::infer().await.map_err(watchkeeper::Error::other)?;
    let manager =
        Manager::with_config(client(config)?, ReflectorConfig { clock, ..ReflectorConfig::default() });
    let election = LeaderElection::new("replicas").namespace(&*namespace).identity(&*name);
    let manager = match shares {
        true => manager.sharded(Sharding::from(election).by_name()),
        false => manager.leader_election(election),
    };
    if let Some(mut leadership) = manager.leadership() {
        tokio::spawn(async move {
            loop {
                match leadership.changed().await {
                    LeaderState::Leads => println!("leads"),
                    LeaderState::StandsBy { .. } => println!("stands by"),
                    state => println!("{state:?}"),
                }
            }
        });
    }
    let pause = if shares { SHARED_PAUSE } else { PAUSE };
    let maps = Api::<ConfigMap>::namespaced(manager.client().clone(), &namespace);
    let written = Controller::from_fn(async move |map: Arc<ConfigMap>, _: Context<ConfigMap>| {
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        for _ in 0..if shares { 2 } else { 1 } {
            // By the system's clock, whatever the test does to the one of the election.
            let begun = WallClock::system().now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
            let by = json!({"data": {"by": name, "begun": begun.to_string(), "run": run.to_string()}});
            maps.patch(&map.name_any(), &PatchParams::default(), &Patch::Merge(by)).await?;
            sleep(pause).await;
        }
        Ok::<_, watchkeeper::Error>(Action::requeue_after(pause))
    });
    let written =
        written.namespace(namespace).workers(if shares { 64 } else { 1 }).deadline(Duration::from_secs(10));
    let written = match shares {
        true => written.label_selector("shared"),
        false => written.field_selector("metadata.name=writes"),
    };
    let written = written.map_err(watchkeeper::Error::other)?;
    manager.controller(written).run().await
}
