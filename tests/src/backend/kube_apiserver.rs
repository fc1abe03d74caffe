//! A real kube-apiserver in a process of its own, which ends with this one whatever happens.

use std::{
    fmt, fs,
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use http::Request;
use kube::{Client, Config, config::Kubeconfig};

/// How long a server may take until it is ready.
const PATIENCE: Duration = Duration::from_secs(90);

/// How often a server is launched whose port is somebody else's.
const LAUNCHES: u32 = 10;

/// The folder of etcd's data, in the server's own.
const DATA: &str = "etcd";
/// The folder of a copy of it.
const BACKUP: &str = "etcd-backup";

/// Runs a command, and ends it when the input says `keep`, or ends because the parent did.
///
/// The directory goes with it, unless the server is to come back. Only the command writes to the output, so that
/// its end is seen there.
const MINDER: &str = r#"
trap : INT TERM HUP
dir=$1; shift
"$@" 2>>"$dir/log" &
minded=$!
exec >/dev/null
word=
read -r word
kill "$minded" 2>/dev/null
wait "$minded"
[ "$word" = keep ] || rm -rf "$dir"
"#;

/// Whether a server's directory outlives its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Data {
    Keep,
    Remove,
}

/// A kube-apiserver with its data, perhaps with controllers; dropping it stops it and removes the data.
pub struct KubeApiserver {
    binaries: PathBuf,
    dir: PathBuf,
    kubeconfig: Kubeconfig,
    server: Mutex<Option<Minded>>,
    controllers: Mutex<Option<Minded>>,
}

/// A process under the minder.
struct Minded {
    minder: Child,
    input: ChildStdin,
}

impl Minded {
    /// Starts a command whose standard output is returned.
    fn start(dir: &Path, command: &[&str]) -> (Self, ChildStdout) {
        let mut minder = Command::new("sh")
            .args(["-c", MINDER, "minder"])
            .arg(dir)
            .args(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("there is a shell");
        let input = minder.stdin.take().expect("it was asked for");
        let output = minder.stdout.take().expect("it was asked for");
        (Self { minder, input }, output)
    }

    /// Ends the command, and waits for that.
    fn end(self, data: Data) {
        let Self { mut minder, mut input } = self;
        if data == Data::Keep {
            // A minder that is gone has ended its command.
            let _ = input.write_all(b"keep\n");
        }
        drop(input);
        let _ = minder.wait();
    }
}

impl KubeApiserver {
    /// Starts a server from a folder of binaries; returns when it is ready.
    ///
    /// # Panics
    /// When it is not ready in time, with the end of its log.
    pub async fn start(binaries: PathBuf) -> Self {
        let dir = std::env::temp_dir().join(format!("kube-apiserver-{:016x}", unique()));
        fs::create_dir_all(&dir).expect("the temporary folder can be written");
        let (server, kubeconfig) = launch(&binaries, &dir, 0).await;
        let (server, controllers) = (Mutex::new(Some(server)), Mutex::new(None));
        Self { binaries, dir, kubeconfig, server, controllers }
    }

    /// Starts kube-controller-manager for garbage collection and the deletion of namespaces.
    ///
    /// It collects kinds that are already served at once, and later kinds after half a minute.
    pub fn start_controllers(&self) {
        let program = self.binaries.join("kube-controller-manager");
        let kubeconfig = self.dir.join("kubeconfig");
        let dir = self.dir.join("controllers");
        fs::create_dir_all(&dir).expect("the temporary folder can be written");
        let command = [text(&program), "-kubeconfig", text(&kubeconfig)];
        let (minded, _) = Minded::start(&dir, &command);
        *lock(&self.controllers) = Some(minded);
    }

    pub(super) fn kubeconfig(&self) -> Kubeconfig {
        self.kubeconfig.clone()
    }

    /// Forgets the history up to now.
    pub(super) async fn compact(&self) {
        let url = fs::read_to_string(self.dir.join("control-url")).expect("a ready server wrote it");
        let config = Config::new(url.trim().parse().expect("it is an address"));
        let client = Client::try_from(config).expect("a plain client needs nothing");
        let request = Request::post("/compact").body(Vec::new()).expect("it is a request");
        client.request_text(request).await.expect("the control port compacts");
    }

    /// Stops the server, and starts it again on its data and its port.
    pub(super) async fn restart(&self) {
        self.restart_with(|_| Ok(())).await;
    }

    /// Keeps a copy of the data, taken while the server is stopped.
    pub(super) async fn back_up(&self) {
        self.restart_with(|dir| copy_folder(&dir.join(DATA), &dir.join(BACKUP))).await;
    }

    /// Stops the server, and starts it again on the copy of its data.
    pub(super) async fn restore(&self) {
        self.restart_with(|dir| {
            fs::remove_dir_all(dir.join(DATA))?;
            copy_folder(&dir.join(BACKUP), &dir.join(DATA))
        })
        .await;
    }

    /// Stops the server, does something with its folder, and starts it again on its port.
    async fn restart_with(&self, meanwhile: impl FnOnce(&Path) -> io::Result<()> + Send + 'static) {
        let (server, dir) = (lock(&self.server).take(), self.dir.clone());
        let stopped = tokio::task::spawn_blocking(move || {
            if let Some(server) = server {
                server.end(Data::Keep);
            }
            meanwhile(&dir)
        });
        stopped.await.expect("waiting does not panic").expect("the temporary folder can be written");
        let (server, _) = launch(&self.binaries, &self.dir, port_of(&self.kubeconfig)).await;
        *lock(&self.server) = Some(server);
    }
}

/// Copies a folder with all it holds.
fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let copy = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy_folder(&entry.path(), &copy)?,
            false => drop(fs::copy(entry.path(), copy)?),
        }
    }
    Ok(())
}

impl Drop for KubeApiserver {
    fn drop(&mut self) {
        for process in [&self.controllers, &self.server] {
            if let Some(minded) = lock(process).take() {
                minded.end(Data::Remove);
            }
        }
    }
}

impl fmt::Debug for KubeApiserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeApiserver").field("dir", &self.dir).finish_non_exhaustive()
    }
}

/// Starts the server's process, and waits for the line that says it is ready.
///
/// The port that was free a moment ago may be somebody's meanwhile, for the other end of a connection: then once more.
async fn launch(binaries: &Path, dir: &Path, port: u16) -> (Minded, Kubeconfig) {
    let program = binaries.join("kube-apiserver");
    let log = || fs::read_to_string(dir.join("log")).unwrap_or_default();
    let mut launches = 0;
    loop {
        launches += 1;
        // The log holds what earlier launches said as well.
        let said_before = log().len();
        let (minded, ready) = start(&program, dir, port).await;
        if let Some(path) = ready {
            return (minded, Kubeconfig::read_from(path).expect("a ready server wrote it"));
        }
        let log = log();
        let is_taken = log.get(said_before..).is_some_and(|said| said.contains("address already in use"));
        if is_taken && launches < LAUNCHES {
            minded.end(Data::Keep);
            continue;
        }
        let end: Vec<_> = log.lines().rev().take(20).collect();
        minded.end(Data::Remove);
        let end = end.into_iter().rev().collect::<Vec<_>>().join("\n");
        panic!("{} was not ready in time:\n{end}", program.display());
    }
}

/// Starts the server's process; returns its kubeconfig's path once it says that it is ready.
async fn start(program: &Path, dir: &Path, port: u16) -> (Minded, Option<String>) {
    let command = [text(program), "-dir", text(dir), "-port", &port.to_string()];
    let (minded, output) = Minded::start(dir, &command);
    let ready = tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        // Not readable is not ready, which the line tells.
        let _ = BufReader::new(output).read_line(&mut line);
        line
    });
    let line = tokio::time::timeout(PATIENCE, ready).await.ok().and_then(Result::ok).unwrap_or_default();
    (minded, line.trim().strip_prefix("KUBECONFIG=").map(str::to_owned))
}

/// Returns the port of a kubeconfig's server.
fn port_of(kubeconfig: &Kubeconfig) -> u16 {
    let cluster = kubeconfig.clusters.first().and_then(|named| named.cluster.as_ref());
    let server = cluster.and_then(|cluster| cluster.server.as_deref()).unwrap_or_default();
    server.rsplit(':').next().and_then(|port| port.parse().ok()).expect("the address has a port")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("the suite's paths are text")
}

fn lock(process: &Mutex<Option<Minded>>) -> std::sync::MutexGuard<'_, Option<Minded>> {
    process.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a number that no other start has.
fn unique() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}
