//! The embedded API server alone, for `kubectl` and for tools that run beside it.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Parser;
use serde::Deserialize as _;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use watchkeeper_apiserver::{ApiServer, StartError};

/// A Kubernetes API server for development and tests: storage, watches and custom resources, no workloads.
#[derive(Debug, Parser)]
#[command(name = "watchkeeper-apiserver", version)]
struct Options {
    /// The loopback address to serve on; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:6443", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Where to write the kubeconfig.
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// A folder of custom resource definitions (*.yaml, *.yml, *.json) to serve from the start.
    #[arg(long, value_name = "DIR")]
    crd: Option<PathBuf>,
    /// A loopback address for compaction, faults and the request recorder, without TLS.
    #[arg(long, value_name = "ADDRESS")]
    control: Option<SocketAddr>,
}

/// Why the server did not come up.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("cannot {what} {}: {source}", path.display())]
    File { what: &'static str, path: PathBuf, source: std::io::Error },
    #[error("cannot read {} as YAML or JSON: {source}", path.display())]
    Definition { path: PathBuf, source: serde_yaml_ng::Error },
    #[error("cannot take signals: {0}")]
    Signals(std::io::Error),
}

#[tokio::main]
async fn main() -> std::process::ExitCode {
    match run(Options::parse()).await {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(failure) => {
            // Nobody is left to tell when standard error is gone.
            let _told = writeln!(std::io::stderr(), "watchkeeper-apiserver: {failure}");
            std::process::ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> Result<(), Failure> {
    let mut builder = ApiServer::http().listen(options.listen);
    if let Some(address) = options.control {
        builder = builder.control(address);
    }
    if let Some(folder) = &options.crd {
        for definition in definitions(folder)? {
            builder = builder.crd_object(definition);
        }
    }
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::Signals)?;
    let server = builder.start().await?;
    write(&options.kubeconfig, &server.kubeconfig_yaml())?;
    if let Some(url) = server.control_url() {
        write(&options.kubeconfig.with_file_name("control-url"), &url)?;
    }
    // A reader that has gone away is no reason to stop serving.
    let _told = writeln!(std::io::stdout(), "ready").and_then(|()| std::io::stdout().flush());
    tokio::select! {
        _ = terminate.recv() => {}
        interrupted = tokio::signal::ctrl_c() => interrupted.map_err(Failure::Signals)?,
    }
    server.stop().await;
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|source| Failure::File {
        what: "write",
        path: path.to_owned(),
        source,
    })
}

/// Reads the definitions of a folder, in the order of file names.
fn definitions(folder: &Path) -> Result<Vec<Value>, Failure> {
    let failed = |source| Failure::File { what: "read", path: folder.to_owned(), source };
    let entries = std::fs::read_dir(folder).map_err(failed)?;
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>().map_err(failed)?;
    paths.sort();
    let wanted = |path: &PathBuf| {
        path.extension()
            .is_some_and(|extension| ["yaml", "yml", "json"].iter().any(|wanted| extension == *wanted))
    };
    let mut found = Vec::new();
    for path in paths.into_iter().filter(wanted) {
        let text = std::fs::read_to_string(&path).map_err(|source| Failure::File {
            what: "read",
            path: path.clone(),
            source,
        })?;
        for document in serde_yaml_ng::Deserializer::from_str(&text) {
            let value = Value::deserialize(document)
                .map_err(|source| Failure::Definition { path: path.clone(), source })?;
            if value["kind"] == "CustomResourceDefinition" {
                found.push(value);
            }
        }
    }
    Ok(found)
}
