//! Servers to measure: this process's own, or one in another process, over its socket.

use std::{
    env, fs,
    io::{self, BufRead, BufReader},
    path::PathBuf,
    process::{Child, ChildStdin, Command, Stdio},
};

use anyhow::Context as _;
use serde_json::Value;
use tokio::time::Instant;
use watchkeeper::kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use watchkeeper_apiserver::{ApiServer, Builder, InMemory};

use crate::{
    job::{Job, Mode, Side},
    kube_apiserver,
};

/// Ends a command when the input ends, and waits for that.
const MINDER: &str = r#"trap : INT TERM HUP; "$@" 2>/dev/null & minded=$!; exec >/dev/null; read -r _; kill "$minded"; wait "$minded""#;

/// A server under way, and a client of it.
pub(crate) struct Place {
    pub(crate) client: Client,
    /// Of a server in another process.
    pub(crate) kubeconfig: Option<PathBuf>,
    pub(super) memory: Option<ApiServer<InMemory>>,
    _process: Option<Process>,
}

/// A process that ends with its input.
struct Process {
    child: Child,
    input: Option<ChildStdin>,
}

impl Drop for Process {
    fn drop(&mut self) {
        self.input.take();
        let _ = self.child.wait();
    }
}

impl Place {
    /// Starts the server that a job asks for, with a definition if need be; tells the seconds until it could be asked.
    pub(crate) async fn start(job: &Job, crd: Option<Value>) -> anyhow::Result<(Self, f64)> {
        let began = Instant::now();
        if (job.side, job.mode) != (Side::ApiServer, Mode::Socket) && job.side != Side::KubeApiserver {
            let server = in_memory(job.mode, crd).start().await;
            let took = began.elapsed().as_secs_f64();
            let client = match job.mode {
                Mode::Roles => server.client_as("worker"),
                _ => server.client(),
            };
            return Ok((Self { client, kubeconfig: None, memory: Some(server), _process: None }, took));
        }
        let (process, kubeconfig) = match job.side {
            Side::KubeApiserver => {
                let program = kube_apiserver::program().map_err(anyhow::Error::msg)?;
                spawn(Command::new("sh").args(["-c", MINDER, "minder"]).arg(program))?
            }
            _ => spawn(Command::new(env::current_exe()?).arg("serve-kubernetes"))?,
        };
        let took = began.elapsed().as_secs_f64();
        let read = Kubeconfig::read_from(&kubeconfig)?;
        let mut config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
        config.default_retry = false;
        let (client, kubeconfig) = (Client::try_from(config)?, Some(kubeconfig));
        Ok((Self { client, kubeconfig, memory: None, _process: Some(process) }, took))
    }
}

fn in_memory(mode: Mode, crd: Option<Value>) -> Builder<watchkeeper_apiserver::ForMemory> {
    let builder = ApiServer::in_memory();
    let builder = match crd {
        Some(crd) => builder.crd_object(crd),
        None => builder,
    };
    if mode == Mode::Roles { builder.rbac() } else { builder }
}

/// Starts a server that prints where its kubeconfig is.
fn spawn(command: &mut Command) -> anyhow::Result<(Process, PathBuf)> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (input, output) = (child.stdin.take(), child.stdout.take().context("no output")?);
    let process = Process { child, input };
    for line in BufReader::new(output).lines() {
        if let Some(path) = line?.strip_prefix("KUBECONFIG=") {
            return Ok((process, PathBuf::from(path)));
        }
    }
    anyhow::bail!("the server ended before it was ready")
}

/// Serves the embedded API server over TLS until standard input ends; prints where the kubeconfig is.
pub(crate) fn serve() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let server = runtime.block_on(ApiServer::http().start())?;
    let path = env::temp_dir().join(format!("watchkeeper-bench-{}.kubeconfig", std::process::id()));
    fs::write(&path, server.kubeconfig_yaml())?;
    println!("KUBECONFIG={}", path.display());
    io::stdin().lock().lines().for_each(drop);
    runtime.block_on(server.stop());
    fs::remove_file(path)?;
    Ok(())
}
