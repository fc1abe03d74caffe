//! What else could happen to an operator on kube's own runtime, tried out.
//!
//! ```text
//! cargo run --example trials               finds what is wrong, and tells how it came
//! cargo run --example trials -- --mended   the same operator without the mistake holds
//! ```

#![expect(clippy::print_stdout, reason = "an example says what it does")]

use std::{process::ExitCode, sync::Arc, time::Duration};

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{Patch, PatchParams},
    runtime::{Controller, controller::Action, watcher},
};
use serde_json::json;
use watchkeeper_trials::{Event, Trials, Trouble};

/// What the operator does after an error.
#[derive(Clone, Copy)]
enum AfterErrors {
    /// It waits until something changes: the mistake.
    Waits,
    /// It tries again.
    TriesAgain,
}

struct Operator {
    client: Client,
    after_errors: AfterErrors,
}

/// Keeps a copy of each ConfigMap that has the label `copy`.
async fn reconcile(source: Arc<ConfigMap>, operator: Arc<Operator>) -> Result<Action, kube::Error> {
    let namespace = source.namespace().unwrap_or_default();
    let name = format!("{}-copy", source.name_any());
    let copy = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": source.data,
        "metadata": { "name": name, "ownerReferences": [source.controller_owner_ref(&())] },
    });
    let maps = Api::<ConfigMap>::namespaced(operator.client.clone(), &namespace);
    maps.patch(&name, &PatchParams::apply("copier").force(), &Patch::Apply(copy)).await?;
    Ok(Action::await_change())
}

async fn run(client: Client, after_errors: AfterErrors) {
    let maps = Api::<ConfigMap>::all(client.clone());
    let policy = |_, _: &kube::Error, operator: Arc<Operator>| match operator.after_errors {
        AfterErrors::Waits => Action::await_change(),
        AfterErrors::TriesAgain => Action::requeue(Duration::from_secs(1)),
    };
    Controller::new(maps.clone(), watcher::Config::default().labels("copy=yes"))
        .owns(maps, watcher::Config::default())
        .run(reconcile, policy, Arc::new(Operator { client, after_errors }))
        .for_each(|_| std::future::ready(()))
        .await;
}

fn source(name: &str) -> ConfigMap {
    let mut map = ConfigMap { data: Some([("text".into(), "one".into())].into()), ..ConfigMap::default() };
    map.metadata.name = Some(name.to_owned());
    map.metadata.labels = Some([("copy".into(), "yes".into())].into());
    map
}

fn trials(after_errors: AfterErrors) -> Trials {
    Trials::of(move |client| run(client, after_errors))
        .visitor(async |visit| {
            visit.create(&source("a")).await;
            visit.patch::<ConfigMap>("a", json!({ "data": { "text": "two" } })).await;
            visit.create(&source("b")).await;
            visit.delete::<ConfigMap>("a").await;
        })
        // This operator takes over whoever has the name, and what nobody owns any more it does not watch; kube's
        // runtime does not notice that a server went back to an older state.
        .only(|trouble| match trouble {
            Trouble::Server(event) => event != Event::Restored,
            trouble => !matches!(trouble, Trouble::Stranger(..)),
        })
        .pairs(20)
}

fn main() -> ExitCode {
    let after_errors = match std::env::args().any(|argument| argument == "--mended") {
        true => AfterErrors::TriesAgain,
        false => AfterErrors::Waits,
    };
    let report = trials(after_errors).run();
    println!("{report}");
    for failure in &report.failures {
        println!("\n{failure}");
    }
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    // T4
    #[test]
    fn the_mistake_is_found_and_the_mended_operator_holds() {
        let found = trials(AfterErrors::Waits).run().failures;
        assert_eq!(found.len(), 1);
        trials(AfterErrors::TriesAgain).check();
    }
}
