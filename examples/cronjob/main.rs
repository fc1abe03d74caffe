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
#[cfg(test)]
#[cfg(feature = "embedded")]
mod mistakes;
mod rules;
mod schedule;
#[cfg(test)]
#[cfg(feature = "embedded")]
mod tests;
mod v1;
mod v2;

use watchkeeper::webhook::Webhooks;

use controller::operator;

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
