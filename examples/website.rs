//! An operator: one Deployment a Website, kept right whatever happens to it.
//!
//! ```text
//! cargo run --example website                       on an API server inside the process, until Ctrl-C
//! cargo run --example website -- --demo             with a scripted visitor, and a summary of what came true
//! cargo run --example website -- --cluster [--demo] on the current context of KUBECONFIG
//! ```

#![expect(clippy::print_stdout, reason = "an example says what it does")]

#[path = "website/demo.rs"]
mod demo;
#[path = "website/journal.rs"]
mod journal;
#[path = "website/summary.rs"]
mod summary;

use std::{collections::BTreeMap, io::IsTerminal, process::ExitCode};

use clap::Parser;
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec},
        core::v1::{Container, PodSpec, PodTemplateSpec},
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};
use kube::{Api, Client, api::PostParams};
use watchkeeper::prelude::*;
use watchkeeper_examples::Place;

use journal::Journal;

/// The finalizer that keeps a site until its domain is released.
const FINALIZER: &str = "web.example.dev/domain";
/// How many reconciles may start: over any window of `w` seconds, at most `BURST + RATE × w`.
const RATE: u32 = 50;
/// What may start at once.
const BURST: u32 = 100;
/// How long a site that is right is left alone.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// A website: one Deployment a site.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "web.example.dev", version = "v1", kind = "Website", namespaced, status = "WebsiteStatus")]
#[serde(rename_all = "camelCase")]
pub struct WebsiteSpec {
    /// Where the site is served: `WebsiteLister::by_domain` finds it.
    #[informer(index)]
    pub domain: String,
    /// What the site is about: each is an index value of `WebsiteLister::by_tag`.
    #[serde(default)]
    #[informer(index = "by_tag")]
    pub tags: Vec<String>,
    /// How many pods serve it.
    pub replicas: i32,
}

/// What the site's Deployment has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebsiteStatus {
    /// Pods there are.
    #[serde(default)]
    pub replicas: i32,
    /// Pods that serve.
    #[serde(default)]
    pub ready_replicas: i32,
}

impl From<&Deployment> for WebsiteStatus {
    fn from(deployment: &Deployment) -> Self {
        let status = deployment.status.clone().unwrap_or_default();
        Self {
            replicas: status.replicas.unwrap_or_default(),
            ready_replicas: status.ready_replicas.unwrap_or_default(),
        }
    }
}

/// Keeps websites right.
struct Websites {
    journal: Arc<Journal>,
}

impl Reconciler<Website> for Websites {
    type Error = anyhow::Error;

    async fn reconcile(&self, site: Arc<Website>, cx: &Context<Website>) -> Result<Action, Self::Error> {
        self.journal.started(cx.key());
        let deployment = cx.apply(deployment_for(&site)).await?;
        cx.patch_status(&site, WebsiteStatus::from(&deployment)).await?;
        self.journal.kept(&site, &deployment);
        self.journal.promised(cx.key(), LOOK_AGAIN);
        Ok(Action::requeue_after(LOOK_AGAIN))
    }

    async fn cleanup(&self, site: Arc<Website>, cx: &Context<Website>) -> Result<Cleanup, Self::Error> {
        self.journal.started(cx.key());
        self.journal.released(&site.spec.domain);
        Ok(Cleanup::Done)
    }
}

/// Says which Deployment a site wants.
fn deployment_for(site: &Website) -> Deployment {
    let labels = BTreeMap::from([("site".to_owned(), site.name_any())]);
    let container = Container {
        name: "web".to_owned(),
        image: Some("registry.example.dev/web:1".to_owned()),
        ..Container::default()
    };
    Deployment {
        metadata: ObjectMeta { name: site.metadata.name.clone(), ..ObjectMeta::default() },
        spec: Some(DeploymentSpec {
            replicas: Some(site.spec.replicas),
            selector: LabelSelector { match_labels: Some(labels.clone()), ..LabelSelector::default() },
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta { labels: Some(labels), ..ObjectMeta::default() }),
                spec: Some(PodSpec { containers: vec![container], ..PodSpec::default() }),
            },
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    }
}

/// The operator: the manager of one controller.
fn operator(client: Client, journal: Arc<Journal>) -> Manager {
    Manager::new(client).controller(
        Controller::new(Websites { journal })
            .owns::<Deployment>()
            .finalizer(FINALIZER)
            .workers(8)
            .rate_limit(RateLimit::per_second(RATE).burst(BURST)),
    )
}

/// Keeps one Deployment a Website.
#[derive(Parser)]
struct Arguments {
    /// Use the current context of KUBECONFIG rather than an API server inside the process.
    #[arg(long)]
    cluster: bool,
    /// Let a scripted visitor come by, and say what came true.
    #[arg(long)]
    demo: bool,
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
    let place = match arguments.cluster {
        true => Place::cluster().await?,
        false => Place::embedded().await?,
    };
    let journal = Arc::new(Journal::default());
    let manager = operator(place.client.clone(), journal.clone());
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

/// Creates a first site, so that there is something to see.
async fn welcome(client: &Client) -> anyhow::Result<()> {
    let spec = WebsiteSpec { domain: "hello.example".into(), tags: vec!["first".into()], replicas: 2 };
    let sites = Api::<Website>::namespaced(client.clone(), "default");
    sites.create(&PostParams::default(), &Website::new("hello", spec)).await?;
    Ok(())
}
