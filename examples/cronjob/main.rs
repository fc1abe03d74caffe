//! Kubebuilder's CronJob tutorial on watchkeeper: two versions, defaults, rules, and a controller that starts jobs.
//!
//! ```text
//! cargo run --example cronjob -- --help
//! cargo run --example cronjob -- manifests --image registry.example.dev/cronjobs:1
//! WEBHOOKS_URL=https://127.0.0.1:9443 cargo run --example cronjob      on a cluster that reaches this machine
//! ```
//!
//! `README.md` shows next to each other what `kubectl` prints for each mistake, here and with the tutorial's Go program.

mod controller;
mod rules;
mod schedule;
#[cfg(all(test, feature = "embedded"))]
mod tests;
mod v1;
mod v2;

use k8s_openapi::api::batch::v1::Job;
use watchkeeper::{prelude::*, store::IndexDefinition, webhook::Webhooks};

use controller::{BY_CONTROLLER, CronJobs, controlled_by};
use rules::{Rules, Usual};
use v1::CronJob;

fn operator(manager: Manager, webhooks: Webhooks) -> Manager {
    let jobs = manager.informer::<Job>().build();
    let index = IndexDefinition::new(BY_CONTROLLER, controlled_by);
    jobs.add_index(index).expect("the only index of this name");
    manager
        .kind::<CronJob>()
        .webhooks(
            webhooks.defaults::<CronJob>(Usual).validates::<CronJob>(Rules).validates::<v2::CronJob>(Rules),
        )
        .leader_election("cronjobs")
        .controller(Controller::new(CronJobs::new(jobs.lister())).owns::<Job>())
}

/// The API server calls a Service, unless the environment names a URL.
fn webhooks() -> Webhooks {
    let webhooks = Webhooks::new(":9443");
    match std::env::var("WEBHOOKS_URL") {
        Ok(url) => webhooks.url(url),
        Err(_) => webhooks,
    }
}

fn main() -> std::process::ExitCode {
    watchkeeper::cli(("cronjobs", env!("CARGO_PKG_VERSION")), |manager| operator(manager, webhooks()))
}
