//! An operator: one Deployment a Website, kept right whatever happens to it.
//!
//! ```text
//! cargo run --example website                           on an API server inside the process, until Ctrl-C
//! cargo run --example website -- --demo                 with a scripted visitor, and a summary of what came true
//! cargo run --example website -- --cluster [--demo]     on the cluster of KUBECONFIG, or the pod's
//! cargo run --example website -- --http 127.0.0.1:8080  with probes, metrics and http://127.0.0.1:8080/debug
//! cargo run --example website -- --crd                  prints the CRD of the kind
//! cargo run --example website -- --rbac                 prints the role that the operator needs
//! ```
//!
//! On a cluster it leads by the Lease `websites`, so that several replicas may run: `deploy/` has their manifests.

#![expect(clippy::print_stdout, reason = "an example says what it does")]

#[path = "website/demo.rs"]
mod demo;
#[path = "website/journal.rs"]
mod journal;
#[path = "website/operator.rs"]
mod operator;
#[path = "website/summary.rs"]
mod summary;

use std::{io::IsTerminal, process::ExitCode};

use clap::Parser;
use kube::{Api, Client, api::PostParams};
use watchkeeper::{LeaderElection, manager::Rules, prelude::*};
use watchkeeper_examples::Place;

use journal::Journal;
use operator::{Website, WebsiteSpec, operator};

/// Keeps one Deployment a Website.
#[derive(Parser)]
struct Arguments {
    /// Use the cluster of KUBECONFIG, or of the pod's service account, rather than an API server inside the process.
    #[arg(long)]
    cluster: bool,
    /// Let a scripted visitor come by, and say what came true.
    #[arg(long)]
    demo: bool,
    /// Print the CRD of the kind, for `kubectl apply -f -`, and end.
    #[arg(long, exclusive = true)]
    crd: bool,
    /// Print the role that the operator needs, for `kubectl apply -f -`, and end.
    #[arg(long, conflicts_with_all = ["cluster", "demo", "crd"])]
    rbac: bool,
    /// The namespace of the Lease by which one replica leads: that of the pod, or of the context, unless said.
    #[arg(long)]
    namespace: Option<String>,
    /// Serve /healthz, /readyz, /metrics and /debug at an address, such as 127.0.0.1:8080 or :8080.
    #[arg(long, value_name = "ADDRESS")]
    http: Option<String>,
    /// How many seconds the demo may take.
    #[arg(long, default_value_t = 30)]
    timeout: u64,
}

#[tokio::main]
async fn main() -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env();
    tracing_subscriber::fmt()
        .with_env_filter(filter.unwrap_or_else(|_| "warn,watchkeeper=info,kube_client=off".into()))
        .with_target(false)
        .with_ansi(std::io::stdout().is_terminal())
        .init();
    match run(Arguments::parse()).await {
        Ok(code) => code,
        Err(error) => {
            println!("failed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    if arguments.crd {
        print!("{}", serde_yaml_ng::to_string(&Website::crd())?);
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.rbac {
        print!("{}", rules(arguments.namespace.as_deref().unwrap_or("default"))?);
        return Ok(ExitCode::SUCCESS);
    }
    let place = match arguments.cluster {
        true => Place::cluster().await?,
        false => Place::embedded().await?,
    };
    let journal = Arc::new(Journal::default());
    let mut manager = operator(place.client.clone(), journal.clone());
    if arguments.cluster && !arguments.demo {
        let namespace = arguments.namespace.unwrap_or_else(|| place.client.default_namespace().to_owned());
        manager = elected(manager, &namespace);
    }
    if let Some(address) = arguments.http {
        println!("HTTP at {address}: /healthz, /readyz, /metrics; /debug for this machine alone");
        manager = manager.http(address);
    }
    manager.install_crd::<Website>().await?;
    println!("websites.web.example.dev is served");
    if arguments.demo {
        return demo::run(&place, manager, &journal, Duration::from_secs(arguments.timeout)).await;
    }
    journal.speak();
    if let Some(kubeconfig) = &place.kubeconfig {
        welcome(&place.client).await?;
        println!("join in: export KUBECONFIG={} KUBECACHEDIR=$(mktemp -d)", kubeconfig.display());
        println!("         kubectl get websites -w");
    }
    println!("Ctrl-C ends it");
    manager.run().await?;
    Ok(ExitCode::SUCCESS)
}

/// Elects a leader among several replicas.
fn elected(manager: Manager, namespace: &str) -> Manager {
    manager.leader_election(LeaderElection::new("websites").namespace(namespace))
}

/// Prints the permissions that the operator needs, without a server.
fn rules(namespace: &str) -> anyhow::Result<Rules> {
    let nowhere = Client::try_from(kube::Config::new("http://127.0.0.1".parse()?))?;
    let manager = elected(operator(nowhere, Arc::default()), namespace);
    Ok(manager.rules().with_name("websites").with_crd::<Website>())
}

/// Creates a first site, so that there is something to see.
async fn welcome(client: &Client) -> anyhow::Result<()> {
    let spec = WebsiteSpec { domain: "hello.example".into(), tags: vec!["first".into()], replicas: 2 };
    let sites = Api::<Website>::namespaced(client.clone(), "default");
    sites.create(&PostParams::default(), &Website::new("hello", spec)).await?;
    Ok(())
}

#[cfg(all(test, feature = "embedded"))]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use watchkeeper::prelude::*;
    use watchkeeper_trials::Trials;

    use super::{Website, WebsiteSpec, operator};

    // T1 T2 T3
    #[test]
    fn whatever_happens_a_site_ends_right() {
        let site = |name: &str| {
            let spec = WebsiteSpec { domain: format!("{name}.example"), tags: Vec::new(), replicas: 2 };
            Website::new(name, spec)
        };
        Trials::of(|client| operator(client, Arc::default()).run())
            .crd::<Website>()
            .visitor(async move |visit| {
                visit.create(&site("a")).await;
                visit.edit::<Website>("a", |site| site.spec.replicas = 3).await;
                let ready = serde_json::json!({ "replicas": 3, "readyReplicas": 3 });
                visit.patch_status::<Deployment>("a", ready).await;
                visit.create(&site("b")).await;
                visit.delete::<Website>("a").await;
            })
            .check();
    }

    // W20 P7
    #[tokio::test]
    async fn the_manifests_have_the_role_that_the_operator_prints() {
        let printed = super::rules("websites").unwrap().to_string();
        let kept = include_str!("deploy/rbac.yaml");
        let remedy = "cargo run --example website -- --rbac --namespace websites >examples/deploy/rbac.yaml";
        assert!(kept == printed, "{remedy}\n{printed}");
    }
}
