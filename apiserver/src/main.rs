//! The embedded API server as a program, for `kubectl` and other tools.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Parser;
use serde::Deserialize as _;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use watchkeeper_apiserver::{ApiServer, Restored, StartError};

/// The version that the server reports.
const KUBERNETES: &str = "v1.36.3";

/// A Kubernetes API server for development and tests: storage, watches and custom resources, no workloads.
#[derive(Debug, Parser)]
#[command(name = "watchkeeper-apiserver", version)]
struct Options {
    /// The loopback address to serve on; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:6443", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// The path of the kubeconfig to write.
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// A folder of custom resource definitions (*.yaml, *.yml, *.json) to serve from the start.
    #[arg(long, value_name = "DIR")]
    crd: Option<PathBuf>,
    /// The file that keeps the state; without it the state is lost when this process ends.
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// How requests are authorized. With RBAC by roles and bindings; otherwise only the administrator may do everything.
    #[arg(long, value_name = "MODE")]
    authorization_mode: Option<Mode>,
    /// Leave garbage and terminating namespaces alone, as kube-apiserver does without kube-controller-manager.
    #[arg(long)]
    no_controllers: bool,
    /// A loopback address for compaction, faults and the request recorder, without TLS.
    #[arg(long, value_name = "ADDRESS")]
    control: Option<SocketAddr>,
}

/// How requests are authorized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Mode {
    /// Roles and bindings.
    #[value(name = "RBAC")]
    Rbac,
}

/// Why the server did not start.
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
            // If standard error is closed, errors can't be reported.
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
    if options.authorization_mode == Some(Mode::Rbac) {
        builder = builder.rbac();
    }
    if options.no_controllers {
        builder = builder.without_controllers();
    }
    if let Some(path) = &options.data {
        builder = builder.data(path);
    }
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::Signals)?;
    let server = builder.start().await?;
    write(&options.kubeconfig, &server.kubeconfig_yaml())?;
    let control = server.control_url();
    if let Some(url) = &control {
        write(&options.kubeconfig.with_file_name("control-url"), url)?;
    }
    // `ready` comes first because scripts wait for it. The server goes on if the reader has closed the pipe.
    let state = state(options.data.as_deref(), server.restored());
    let text = format!("ready\n{}", greeting(&server.url(), &options.kubeconfig, &state, control.as_deref()));
    let _told = std::io::stdout().write_all(text.as_bytes()).and_then(|()| std::io::stdout().flush());
    tokio::select! {
        _ = terminate.recv() => {}
        interrupted = tokio::signal::ctrl_c() => interrupted.map_err(Failure::Signals)?,
    }
    server.stop().await;
    Ok(())
}

/// Describes the server's address, how to use it, and what it lacks.
fn greeting(url: &str, kubeconfig: &Path, state: &str, control: Option<&str>) -> String {
    let kubeconfig = std::path::absolute(kubeconfig).unwrap_or_else(|_| kubeconfig.to_owned());
    let mut text = format!(
        "Kubernetes {KUBERNETES} at {url}, objects only: nothing runs them\n\
         join in:  export KUBECONFIG={}\n\
         state:    {state}\n",
        kubeconfig.display()
    );
    if let Some(control) = control {
        text += &format!(
            "control:  {control}, also in the file control-url next to the kubeconfig\n\
             \x20         POST /compact   forget history, so that old watches are answered 410\n\
             \x20         POST /faults    arm a fault: the JSON is that of `RuleScript`\n\
             \x20         GET  /requests  the requests so far, as JSON\n"
        );
    }
    text
}

/// Describes where the state is kept, and what was found at the start.
fn state(data: Option<&Path>, restored: Option<&Restored>) -> String {
    let Some(path) = data else { return "in memory, gone when this process ends".to_owned() };
    let Some(restored) = restored else { return format!("kept in {}, which is new", path.display()) };
    let Restored { objects, resource_version, unfinished_bytes, end, .. } = restored;
    let mut text = format!("kept in {}: {objects} objects at version {resource_version}", path.display());
    if *unfinished_bytes > 0 {
        text += &format!(
            "; {unfinished_bytes} bytes of an unfinished write, at byte {end}, are cut off: no client had seen it"
        );
    }
    text
}

/// Writes a file that only its owner can read: a token is in it.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let failed = |source| Failure::File { what: "write", path: path.to_owned(), source };
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path).map_err(failed)?;
    // A file that was there keeps its mode when it is opened.
    #[cfg(unix)]
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600)).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_says_where_how_and_what_is_not_kept() {
        let memory = state(None, None);
        let text =
            greeting("https://127.0.0.1:6443", Path::new("/tmp/k"), &memory, Some("http://127.0.0.1:7000"));
        for part in
            ["v1.36.3 at https://127.0.0.1:6443", "export KUBECONFIG=/tmp/k", "in memory", "POST /faults"]
        {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(text.matches("in memory").count(), 1, "said once: {text}");
        assert!(!greeting("https://127.0.0.1:6443", Path::new("k"), &memory, None).contains("control"));
        assert!(!state(Some(Path::new("/tmp/d")), None).contains("in memory"));
    }

    #[cfg(unix)]
    #[test]
    fn files_with_a_token_are_their_owners_alone() {
        use std::os::unix::fs::PermissionsExt;

        let path = std::env::temp_dir().join(format!("kubeconfig-{}", std::process::id()));
        // An existing file that everyone may read.
        std::fs::write(&path, "old and long").expect("a file");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).expect("its mode");
        write(&path, "new").expect("it is written");
        assert_eq!(std::fs::read_to_string(&path).expect("it is there"), "new");
        let mode = std::fs::metadata(&path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::remove_file(path).expect("it goes");
    }
}
