//! One replica: a Deployment for each website of a namespace. It prints the start and end of each run.

use std::{
    io::Write as _,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, UNIX_EPOCH},
};

use k8s_openapi::api::apps::v1::Deployment;
use kube::Config;
use watchkeeper::{
    clock::WallClock, leader_election::LeaderElection, manager::client, prelude::*,
    reflector::ReflectorConfig,
};
use watchkeeper_tests::{Website, WebsiteStatus, deployment_for};

/// The finalizer of the operator.
const FINALIZER: &str = "web.example.dev/domain";

pub(crate) async fn run(name: String, namespace: String, block: Option<Duration>) -> anyhow::Result<()> {
    watchkeeper_tests::log_to_stderr();
    let client = client(Config::infer().await?)?;
    let election = LeaderElection::new("unreliable").namespace(&*namespace).identity(&*name);
    let controller = Controller::new(Sites { block })
        .namespace(namespace)
        .owns::<Deployment>()
        .finalizer(FINALIZER)
        .workers(8)
        .rate_limit(RateLimit::per_second(50).burst(100));
    let manager = Manager::with_config(client, ReflectorConfig::default()).leader_election(election);
    manager.controller(controller).run().await?;
    Ok(())
}

struct Sites {
    block: Option<Duration>,
}

impl Reconciler<Website> for Sites {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, site: Arc<Website>, cx: &Context<Website>) -> Result<Action, Self::Error> {
        let at_work = AtWork::on(cx.key());
        if let Some(block) = self.block {
            let held = cx.clone();
            let blocking = tokio::task::spawn_blocking(move || {
                #[expect(clippy::disallowed_methods, reason = "the work is meant to block a thread")]
                std::thread::sleep(block);
                drop((at_work, held));
            });
            blocking.await.map_err(watchkeeper::Error::other)?;
            return Ok(Action::requeue_after(Duration::from_secs(1)));
        }
        let deployment = cx.apply(deployment_for(&site)).await?;
        let status = deployment.status.unwrap_or_default();
        let status = WebsiteStatus {
            replicas: status.replicas.unwrap_or_default(),
            ready_replicas: status.ready_replicas.unwrap_or_default(),
        };
        cx.patch_status(&site, status).await?;
        Ok(Action::await_change())
    }

    async fn cleanup(&self, _: Arc<Website>, cx: &Context<Website>) -> Result<Cleanup, Self::Error> {
        let _at_work = AtWork::on(cx.key());
        Ok(Cleanup::Done)
    }
}

/// Prints the start and the end of work on a key.
struct AtWork(u64);

impl AtWork {
    fn on(key: &ObjectKey) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        say(&format!("begin {id} {} {key}", now()));
        Self(id)
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        say(&format!("end {} {} -", self.0, now()));
    }
}

fn say(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

fn now() -> u128 {
    WallClock::system().now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros()
}
