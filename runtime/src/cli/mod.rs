//! An operator's program: its commands, logging and exit status, around a function that builds the manager.

mod options;
mod why;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    io::{self, IsTerminal, Write},
    path::Path,
    process::ExitCode,
    time::Duration,
};

use serde_json::json;
use tokio::runtime::{Builder, Runtime};
use tracing_subscriber::{filter::Targets, layer::SubscriberExt, util::SubscriberInitExt};

use self::options::{CliCommand, MOST_USED_PORT, MadeManifests, RunOptions, parse};
use crate::{
    error::Error,
    manager::{Http, Manager, Manifests, Rehearsal, write_documents},
};

/// The exit status of a command that failed.
const FAILED: u8 = 1;
/// The exit status of a rehearsal after which something would be written.
const WOULD_WRITE: u8 = 2;
/// The exit status of a command that can't be read; as `sysexits.h` has it.
const NOT_READ: u8 = 64;

/// A program's name, and its version: `"websites"`, or `("websites", env!("CARGO_PKG_VERSION"))`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    name: String,
    version: Option<String>,
}

impl From<&str> for Program {
    fn from(name: &str) -> Self {
        Self { name: name.to_owned(), version: None }
    }
}

impl From<(&str, &str)> for Program {
    fn from((name, version): (&str, &str)) -> Self {
        Self { name: name.to_owned(), version: Some(version.to_owned()) }
    }
}

/// What a program's function makes of a manager.
type Build<'a> = Box<dyn FnOnce(Manager) -> Manager + 'a>;

/// Runs an operator's program: does what its command line says.
///
/// | Command | Does |
/// |---|---|
/// | `run`, or none | runs the operator, with logging, signals, and probes at `:8080` |
/// | `crd` | prints the CRDs of the kinds |
/// | `rbac` | prints the least roles |
/// | `manifests` | prints everything that a cluster needs: YAML, `--kustomize DIR`, or a chart by `--helm DIR` |
/// | `rehearse` | runs against the cluster without a write until it is at rest, and prints what it would change |
/// | `why KIND KEY` | asks the running operator why it does not reconcile an object |
///
/// The function gets a manager, and adds what the program is made of. For commands that print, the manager is
/// [offline](Manager::offline), so these need no cluster and no kubeconfig. Those that run find the cluster as
/// [`Manager::infer`] does.
///
/// `run` logs to the standard error, as text or as JSON (`--log-format json`). `RUST_LOG` filters by targets and levels,
/// such as `info,watchkeeper=debug`. A subscriber that the program has set before stays. The exit status is 0 after a stop
/// by a signal, 1 after an error, and 64 for a command line that can't be read. That of `rehearse` is 0 if nothing would be
/// written, 2 if something would, and 1 if it did not come to rest, a signal stopped it, or runs failed. After a second
/// signal see [`Manager::run`].
///
/// ```no_run
/// use watchkeeper::prelude::*;
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # struct Noted;
/// # impl Reconciler<ConfigMap> for Noted {
/// #     type Error = watchkeeper::Error;
/// #     async fn reconcile(&self, _: Arc<ConfigMap>, _: &Context<ConfigMap>) -> Result<Action, Self::Error> {
/// #         Ok(Action::await_change())
/// #     }
/// # }
///
/// fn main() -> std::process::ExitCode {
///     watchkeeper::cli("notes", |manager| {
///         manager.leader_election("notes").controller(Controller::new(Noted))
///     })
/// }
/// ```
pub fn cli(program: impl Into<Program>, manager: impl FnOnce(Manager) -> Manager) -> ExitCode {
    run(&program.into(), Box::new(manager), std::env::args_os().skip(1))
}

fn run(program: &Program, build: Build<'_>, arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let name = &program.name;
    let command = match parse(name, arguments) {
        Ok(command) => command,
        Err(problem) => {
            complain(&format!("{name}: {problem}\nTry `{name} --help`."));
            return NOT_READ.into();
        }
    };
    match program.obey(command, build) {
        Ok(status) => status,
        Err(Failure::Usage(problem)) => {
            complain(&format!("{name}: {problem}"));
            NOT_READ.into()
        }
        Err(Failure::Error(error)) => {
            complain(&format!("{name}: {error:?}"));
            FAILED.into()
        }
    }
}

/// Why a command did not succeed.
enum Failure {
    /// It can't be done as it was said.
    Usage(String),
    Error(Error),
}

impl<E: Into<Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

impl Program {
    fn obey(&self, command: CliCommand, build: Build<'_>) -> Result<ExitCode, Failure> {
        if let CliCommand::Rehearse { at_most, logs_json } = command {
            // The report says what each write would change.
            log(logs_json, "warn")?;
            let rehearsal = block_on(rehearse(at_most, build))?;
            print(&rehearsal.to_string())?;
            return Ok(match (rehearsal.is_whole(), rehearsal.would_write()) {
                (false, _) => FAILED.into(),
                (true, true) => WOULD_WRITE.into(),
                (true, false) => ExitCode::SUCCESS,
            });
        }
        self.do_or_print(command, build).map(|()| ExitCode::SUCCESS)
    }

    fn do_or_print(&self, command: CliCommand, build: Build<'_>) -> Result<(), Failure> {
        match command {
            CliCommand::Help => print(&options::help(&self.name)),
            CliCommand::Version => print(&self.versions()),
            CliCommand::Run(served) => {
                log(served.logs_json, "info")?;
                block_on(operate(served, build))
            }
            // It has an exit status of its own.
            CliCommand::Rehearse { .. } => Ok(()),
            CliCommand::Crd => self.offline(None, build, |manager| {
                let definitions = manager.definitions()?;
                print(&write_documents(&definitions.iter().map(|one| json!(one)).collect::<Vec<_>>()))
            }),
            CliCommand::Rbac { namespace } => self.offline(namespace, build, |manager| {
                print(&manager.rules().with_name(&self.name).to_string())
            }),
            CliCommand::Manifests { namespace, image, made } => self.offline(namespace, build, |manager| {
                let manifests = self.manifests(manager, image)?;
                match made {
                    MadeManifests::Yaml => print(&manifests.yaml()?),
                    MadeManifests::Kustomization(folder) => {
                        write(Path::new(&folder), &manifests.kustomize()?)
                    }
                    MadeManifests::Chart(folder) => write(Path::new(&folder), &manifests.helm()?),
                }
            }),
            CliCommand::Why { kind, key, http } => {
                let all = self.offline(None, build, |manager| Ok(manager.reconciled()))?;
                let controllers = why::controllers_of(&kind, &all).map_err(Failure::Usage)?;
                let address = http.unwrap_or_else(|| MOST_USED_PORT.to_owned());
                print(&block_on(why::ask(&self.name, &address, &key, &controllers))?)
            }
        }
    }

    /// Does something with a manager without a cluster.
    fn offline<T>(
        &self,
        namespace: Option<String>,
        build: Build<'_>,
        make: impl FnOnce(&Manager) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let runtime: Runtime = Builder::new_current_thread().enable_all().build()?;
        let _entered = runtime.enter();
        let manager = Manager::offline(namespace.unwrap_or_else(|| self.name.clone()));
        make(&build(manager))
    }

    fn manifests(&self, manager: &Manager, image: Option<String>) -> Result<Manifests, Error> {
        let manifests = manager.manifests()?.name(&self.name);
        let manifests = self.version.iter().fold(manifests, |manifests, version| manifests.version(version));
        Ok(image.into_iter().fold(manifests, |manifests, image| manifests.image(image)))
    }

    fn versions(&self) -> String {
        let version = self.version.iter().map(|version| format!(" {version}")).collect::<String>();
        format!("{}{version} (watchkeeper {})\n", self.name, env!("CARGO_PKG_VERSION"))
    }
}

/// Runs the operator until it is stopped.
async fn operate(served: RunOptions, build: Build<'_>) -> Result<(), Error> {
    let manager = Manager::infer().await?;
    // What the program itself says counts more than the default, and less than the command line.
    let manager = build(manager.http(options::DEFAULT_ADDRESS));
    let manager = match served.http {
        None => manager,
        Some(address) if address == "off" => manager.http(Http::off()),
        Some(address) => manager.http_at(address),
    };
    manager.run().await
}

/// Runs the operator without a write until it is at rest.
async fn rehearse(at_most: Duration, build: Build<'_>) -> Result<Rehearsal, Error> {
    build(Manager::infer().await?).http(Http::off()).rehearse_until_signal(at_most).await
}

/// Runs a command to its end. Threads that block then, and the tasks on them, do not hold up the process.
fn block_on<T, E: Into<Error>>(command: impl Future<Output = Result<T, E>>) -> Result<T, Failure> {
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(command);
    runtime.shutdown_background();
    done.map_err(Failure::from)
}

/// Logs to the standard error from now on.
fn log(as_json: bool, default: &str) -> Result<(), Failure> {
    let filter = std::env::var("RUST_LOG").ok().filter(|filter| !filter.trim().is_empty());
    let filter = filter.unwrap_or_else(|| default.to_owned());
    let targets = filter.parse::<Targets>().map_err(|error| {
        Failure::Usage(format!(
            "RUST_LOG is {filter:?}, which can't be read ({error}): write it as `info` or `info,watchkeeper=debug`"
        ))
    })?;
    let registry = tracing_subscriber::registry().with(targets);
    let layer = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    // If the program has set a subscriber of its own, that one stays.
    let _ = match as_json {
        true => registry.with(layer.json()).try_init(),
        false => registry.with(layer.with_ansi(io::stderr().is_terminal())).try_init(),
    };
    Ok(())
}

fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // The reader has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

fn complain(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// The templates of a chart that a program need not have.
const OPTIONAL_TEMPLATES: [&str; 2] = ["templates/webhooks.yaml", "templates/policies.yaml"];

/// Writes the files of manifests into a folder, which is made if it is not there.
fn write(folder: &Path, files: &BTreeMap<String, String>) -> Result<(), Failure> {
    for (name, text) in files {
        let path = folder.join(name);
        let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, text));
        written.map_err(|error| Error::other(format!("{} can't be written: {error}", path.display())))?;
        complain(&format!("wrote {}", path.display()));
    }
    // Helm installs whatever is among the templates.
    let is_chart = files.contains_key("Chart.yaml");
    for name in OPTIONAL_TEMPLATES.iter().filter(|name| is_chart && !files.contains_key(**name)) {
        let path = folder.join(name);
        if path.exists() {
            complain(&format!(
                "{} is still there, and Helm installs it: delete it if an earlier release printed it",
                path.display()
            ));
        }
    }
    Ok(())
}
