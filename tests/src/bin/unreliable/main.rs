//! Runs operators behind a proxy that fails half of all requests, and checks that each change is reconciled.
//!
//! ```text
//! unreliable run [--seeds 12] [--first 1] [--seconds 600] [--replicas 1] [--go PROGRAM]
//! unreliable stop [--rounds 10]                  stops leaders whose runs block, by one signal and by two
//! unreliable operator NAME NAMESPACE [BLOCK]     one replica, by KUBECONFIG; runs block for BLOCK seconds
//! ```
//!
//! `run` and `stop` use the real kube-apiserver that `WATCHKEEPER_KUBE_APISERVER` names, else the embedded server. Each
//! seed is a namespace with an operator, a proxy and a visitor of its own; all run at once. `--go` runs that program in
//! place of `unreliable operator`, with the same arguments.

#![expect(clippy::print_stdout, reason = "the report is the point")]

mod operator;
mod proxy;
mod replica;
mod stop;
mod visitor;

use std::{path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use anyhow::Context as _;
use kube::Client;
use watchkeeper::{Manager, reflector::ReflectorConfig};
use watchkeeper_tests::{
    Website,
    backend::{KubeApiserver, Server, User, binaries},
};

/// What the command line asks for.
struct Asked {
    seeds: u64,
    first: u64,
    seconds: u64,
    replicas: usize,
    rounds: usize,
    go: Option<PathBuf>,
}

impl Asked {
    fn read(words: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let mut asked = Self { seeds: 12, first: 1, seconds: 600, replicas: 1, rounds: 10, go: None };
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let value = words.next().with_context(|| format!("{word} needs a value"))?;
            match word.as_str() {
                "--seeds" => asked.seeds = value.parse()?,
                "--first" => asked.first = value.parse()?,
                "--seconds" => asked.seconds = value.parse()?,
                "--replicas" => asked.replicas = value.parse()?,
                "--rounds" => asked.rounds = value.parse()?,
                "--go" => asked.go = Some(value.into()),
                _ => anyhow::bail!("{word} is not an option"),
            }
        }
        Ok(asked)
    }
}

/// The server that all seeds share, and a client without a proxy.
struct Stage {
    server: Server,
    client: Client,
}

impl Stage {
    async fn set() -> anyhow::Result<Self> {
        let server = match binaries() {
            Some(binaries) => Server::KubeApiserver(Arc::new(KubeApiserver::start(binaries).await)),
            None => Server::embedded().await,
        };
        let config = kube::Config::from_custom_kubeconfig(
            serde_json::from_str(&server.kubeconfig_text(User::Admin))?,
            &Default::default(),
        )
        .await?;
        let client = watchkeeper::manager::client(config)?;
        Manager::new(client.clone()).install_crd::<Website>().await?;
        println!("server: {}", if binaries().is_some() { "kube-apiserver" } else { "embedded" });
        Ok(Self { server, client })
    }

    /// Makes a manager for the visitor, without a proxy.
    fn manager(&self) -> Manager {
        Manager::with_config(self.client.clone(), ReflectorConfig::default())
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let result = Box::pin(dispatch()).await;
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("failed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn dispatch() -> anyhow::Result<bool> {
    let mut words = std::env::args().skip(1);
    match words.next().as_deref() {
        Some("operator") => {
            let (name, namespace) = (words.next().context("a name")?, words.next().context("a namespace")?);
            let block = words.next().map(|text| text.parse()).transpose()?.map(Duration::from_secs);
            operator::run(name, namespace, block).await?;
            Ok(true)
        }
        Some("run") => run(Asked::read(words)?).await,
        Some("stop") => stop::run(&Stage::set().await?, Asked::read(words)?.rounds).await,
        _ => anyhow::bail!("say `run`, `stop` or `operator NAME NAMESPACE`"),
    }
}

/// Runs all seeds at once, and reports each.
async fn run(asked: Asked) -> anyhow::Result<bool> {
    let stage = Stage::set().await?;
    let view = visitor::View::of(&stage).await?;
    let seeds = asked.first..asked.first + asked.seeds;
    let visits = seeds.map(|seed| visitor::visit(&stage, &view, &asked, seed));
    let outcomes = futures::future::join_all(visits).await;
    let mut good = true;
    println!(
        "seed replicas changes late open median_s p90_s max_s overlaps runs restarts requests failed cut"
    );
    for outcome in outcomes {
        let outcome = outcome?;
        good &= outcome.is_good();
        println!("{outcome}");
    }
    Ok(good)
}
