//! Rolls out an operator that owns its API, under load, on a kube-apiserver: no call fails.
//!
//! ```text
//! rollouts run [ROLLOUTS]      installs, upgrades, migrates, rolls out ten times, rotates certificates, drops a version
//! rollouts program RELEASE NAME PORT PROBES URL      one replica, by KUBECONFIG
//! ```
//!
//! `run` uses the real kube-apiserver that `WATCHKEEPER_KUBE_APISERVER` names, else the embedded server. Clients of every
//! version that is served create, change, read, list, watch and delete all the time.

#![expect(clippy::print_stdout, reason = "the report is the point")]

mod kinds;
mod load;
mod program;
mod service;

use std::{fs, process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context as _, ensure};
use k8s_openapi::{
    ByteString, api::core::v1::Secret,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, Client, api::PostParams};
use serde_json::Value;
use tokio::time::{Instant, sleep};
use watchkeeper::clock::WallClock;
use watchkeeper_tests::backend::{KubeApiserver, Server, User, binaries};

use self::{
    load::{Load, Tally},
    program::Arguments,
    service::{Replicas, Service, Stage},
};

/// The name of the definition.
const WEBSITES: &str = "websites.rollouts.example.dev";
/// The name of the Secret.
const SECRET: &str = "websites.rollouts.example.dev-webhooks";

#[tokio::main]
async fn main() -> ExitCode {
    match Box::pin(dispatch()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("failed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn dispatch() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["run"] => run(10).await,
        ["run", rollouts] => run(rollouts.parse()?).await,
        ["program", release, name, port, probes, url] => {
            let (release, port, probes) = (release.parse()?, port.parse()?, probes.parse()?);
            program::run(Arguments { release, name: name.into(), port, probes, url: url.into() }).await
        }
        _ => anyhow::bail!("say `run` or `program RELEASE NAME PORT PROBES URL`"),
    }
}

async fn run(rollouts: usize) -> anyhow::Result<()> {
    let server = match binaries() {
        Some(binaries) => Server::KubeApiserver(Arc::new(KubeApiserver::start(binaries).await)),
        None => Server::embedded().await,
    };
    println!("server: {}", if binaries().is_some() { "kube-apiserver" } else { "embedded" });
    let (client, _) = server.client(User::Admin, "default").await;
    let folder = std::env::temp_dir().join(format!("rollouts-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let kubeconfig = folder.join("kubeconfig");
    fs::write(&kubeconfig, server.kubeconfig_text(User::Admin))?;
    println!("logs: {}", folder.display());
    let stage = Stage { service: Service::listen().await?, kubeconfig, folder };
    let play = Play { client, stage, tally: Arc::new(Tally::default()), begun: Instant::now() };
    play.all(rollouts).await
}

/// What is played, and what has been seen.
struct Play {
    client: Client,
    stage: Stage,
    tally: Arc<Tally>,
    begun: Instant,
}

impl Play {
    async fn all(&self, rollouts: usize) -> anyhow::Result<()> {
        let mut replicas = Replicas::start(1, &self.stage).await?;
        self.until("v1alpha1 is served", async || Ok(self.versions().await?.0 == ["v1alpha1"])).await?;
        self.until("webhooks are called", async || self.is_configured().await).await?;
        sleep(Duration::from_secs(5)).await;
        let alpha = self.load("v1alpha1", "replicas");
        sleep(Duration::from_secs(10)).await;
        self.done("installed")?;

        replicas.roll(2, &self.stage).await?;
        self.until("three versions are served", async || Ok(self.versions().await?.0.len() == 3)).await?;
        sleep(Duration::from_secs(5)).await;
        let _rest = [self.load("v1beta1", "replicas"), self.load("v1", "scale")];
        self.done("upgraded")?;
        self.until("all is stored in v1", async || Ok(self.versions().await?.1 == ["v1"])).await?;
        self.done("migrated")?;

        for rollout in 1..=rollouts {
            replicas.roll(2, &self.stage).await?;
            sleep(Duration::from_secs(5)).await;
            self.done(&format!("rolled out {rollout}"))?;
        }
        replicas.have_stopped().await?;
        self.done("all earlier replicas have ended")?;

        let before = self.authority().await?;
        self.age().await?;
        self.until("two authorities are trusted", async || Ok(self.authority().await?.len() > before.len()))
            .await?;
        self.done("a new authority is published")?;
        self.until("the new one is served", async || Ok(self.secret().await?["next"].is_null())).await?;
        sleep(Duration::from_secs(30)).await;
        self.done("its certificate is served")?;
        self.forget().await?;
        self.until("the old one is dropped", async || {
            let now = self.authority().await?;
            Ok(!now.contains(&before) && now.len() < before.len() * 3 / 2)
        })
        .await?;
        sleep(Duration::from_secs(10)).await;
        self.done("the old authority is dropped")?;

        drop(alpha);
        replicas.roll(3, &self.stage).await?;
        self.until("v1alpha1 is gone", async || Ok(self.versions().await?.0.len() == 2)).await?;
        replicas.have_stopped().await?;
        self.done("v1alpha1 removed")?;
        let (calls, events) = self.tally.counts();
        println!("{calls} calls and {events} events without a failure");
        Ok(())
    }

    fn load(&self, version: &'static str, field: &'static str) -> Load {
        Load::start(&self.client, version, field, &self.tally)
    }

    /// Reports a step; a failed call ends the play.
    fn done(&self, what: &str) -> anyhow::Result<()> {
        let (calls, events) = self.tally.counts();
        let failures = self.tally.failures();
        let at = self.begun.elapsed().as_secs();
        println!("{at:>5} s  {what}: {calls} calls, {events} events, {} failed", failures.len());
        failures.iter().take(20).for_each(|failure| println!("         {failure}"));
        ensure!(failures.is_empty(), "{} calls failed", failures.len());
        Ok(())
    }

    async fn until(&self, what: &str, is_so: impl AsyncFn() -> anyhow::Result<bool>) -> anyhow::Result<()> {
        let begun = Instant::now();
        while !is_so().await? {
            ensure!(begun.elapsed() < Duration::from_secs(300), "not within five minutes: {what}");
            sleep(Duration::from_millis(500)).await;
        }
        Ok(())
    }

    /// Returns the versions that are served, and those in which objects may be stored.
    async fn versions(&self) -> anyhow::Result<(Vec<String>, Vec<String>)> {
        let definitions = Api::<CustomResourceDefinition>::all(self.client.clone());
        let Some(found) = definitions.get_opt(WEBSITES).await? else { return Ok(Default::default()) };
        let served = found.spec.versions.into_iter().map(|version| version.name).collect();
        Ok((served, found.status.and_then(|status| status.stored_versions).unwrap_or_default()))
    }

    async fn is_configured(&self) -> anyhow::Result<bool> {
        use k8s_openapi::api::admissionregistration::v1::{
            MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
        };
        let mutating = Api::<MutatingWebhookConfiguration>::all(self.client.clone()).get_opt(SECRET).await?;
        let validating =
            Api::<ValidatingWebhookConfiguration>::all(self.client.clone()).get_opt(SECRET).await?;
        let trusted = |bundle: Option<&ByteString>| bundle.is_some_and(|bundle| !bundle.0.is_empty());
        let mutates = mutating.and_then(|found| found.webhooks).into_iter().flatten();
        let validates = validating.and_then(|found| found.webhooks).into_iter().flatten();
        let bundles: Vec<_> = mutates
            .map(|hook| hook.client_config.ca_bundle)
            .chain(validates.map(|hook| hook.client_config.ca_bundle))
            .collect();
        Ok(bundles.len() == 2 && bundles.iter().all(|bundle| trusted(bundle.as_ref())))
    }

    fn secrets(&self) -> Api<Secret> {
        Api::default_namespaced(self.client.clone())
    }

    /// Returns what the Secret says of generations.
    async fn secret(&self) -> anyhow::Result<Value> {
        let data = self.secrets().get(SECRET).await?.data.context("it has data")?;
        Ok(serde_json::from_slice(&data["generations.json"].0)?)
    }

    /// Returns the authorities that the Secret says are trusted.
    async fn authority(&self) -> anyhow::Result<String> {
        let data = self.secrets().get(SECRET).await?.data.context("it has data")?;
        Ok(String::from_utf8(data["ca.crt"].0.clone())?)
    }

    /// Changes the times in the Secret.
    async fn turn(&self, change: impl Fn(&mut Value)) -> anyhow::Result<()> {
        loop {
            let mut secret = self.secrets().get(SECRET).await?;
            let data = secret.data.as_mut().context("it has data")?;
            let mut generations = serde_json::from_slice(&data["generations.json"].0)?;
            change(&mut generations);
            data.insert("generations.json".to_owned(), ByteString(generations.to_string().into_bytes()));
            match self.secrets().replace(SECRET, &PostParams::default(), &secret).await {
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                answer => return answer.map(drop).map_err(Into::into),
            }
        }
    }

    /// Makes the certificate as old as one that is replaced.
    async fn age(&self) -> anyhow::Result<()> {
        self.turn(|generations| {
            let made = generations["current"]["made"].as_i64().unwrap_or_default();
            generations["current"]["made"] = (made - 300 * 86_400).into();
        })
        .await
    }

    /// Makes it long ago that the old authority was replaced.
    async fn forget(&self) -> anyhow::Result<()> {
        let now = WallClock::system().now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
        self.turn(move |generations| generations["old"]["replaced"] = (now - 3_600).into()).await
    }
}
