//! An operator's process, and when it was at work on which key.

use std::{
    collections::HashMap,
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, UNIX_EPOCH},
};

use anyhow::Context as _;
use tokio::time::{Instant, sleep};
use watchkeeper::clock::WallClock;

/// A period of work on a key, in microseconds since 1970; without an end it is still running.
#[derive(Clone, Debug)]
pub(crate) struct Stretch {
    pub(crate) key: String,
    pub(crate) begun: u128,
    pub(crate) ended: Option<u128>,
}

/// The output of a replica about its work.
#[derive(Clone, Debug, Default)]
pub(crate) struct Work(Arc<Mutex<HashMap<(u32, String), Stretch>>>);

impl Work {
    fn hear(&self, process: u32, line: &str) {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        let [what, id, at, key] = words[..] else { return };
        let Ok(at) = at.parse() else { return };
        let mut stretches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match what {
            "begin" => {
                let stretch = Stretch { key: key.into(), begun: at, ended: None };
                stretches.insert((process, id.into()), stretch);
            }
            "end" => {
                if let Some(stretch) = stretches.get_mut(&(process, id.into())) {
                    stretch.ended = Some(at);
                }
            }
            _ => {}
        }
    }

    /// Ends the work of a process that has exited.
    fn ended(&self) {
        let now = WallClock::system().now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        let mut stretches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stretches.values_mut().for_each(|stretch| stretch.ended = stretch.ended.or(Some(now)));
    }

    pub(crate) fn stretches(&self) -> Vec<Stretch> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

/// Counts pairs of stretches of two replicas on one key that overlap.
pub(crate) fn overlaps(one: &[Stretch], other: &[Stretch]) -> usize {
    let before = |a: &Stretch, b: &Stretch| a.ended.is_some_and(|ended| ended <= b.begun);
    let overlap = |a: &Stretch, b: &Stretch| a.key == b.key && !before(a, b) && !before(b, a);
    one.iter().map(|a| other.iter().filter(|b| overlap(a, b)).count()).sum()
}

/// How long after its end a process is started again: the kubelet's first delay is up to 10 s.
const RESTARTS_AFTER: Duration = Duration::from_secs(5);

/// A replica; dropping it kills the process.
pub(crate) struct Replica {
    command: Command,
    child: Child,
    folder: PathBuf,
    pub(crate) work: Work,
    pub(crate) restarts: usize,
    /// When the process was seen to have ended.
    ended: Option<Instant>,
}

/// Starts the process, and reads its output.
fn spawn(command: &mut Command, folder: &Path, work: &Work) -> anyhow::Result<Child> {
    let log = fs::File::options().create(true).append(true).open(folder.join("log"))?;
    let mut child = command.stdout(Stdio::piped()).stderr(log).spawn()?;
    let (heard, output) = (work.clone(), child.stdout.take().context("it was asked for")?);
    let process = child.id();
    thread::spawn(move || {
        BufReader::new(output).lines().map_while(Result::ok).for_each(|line| heard.hear(process, &line))
    });
    Ok(child)
}

impl Replica {
    /// Starts a process that uses a kubeconfig.
    pub(crate) fn start(
        program: Option<&Path>,
        name: &str,
        namespace: &str,
        kubeconfig: &str,
        block: Option<u64>,
    ) -> anyhow::Result<Self> {
        let folder =
            std::env::temp_dir().join(format!("unreliable-{}-{namespace}-{name}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let file = folder.join("kubeconfig");
        fs::write(&file, kubeconfig)?;
        let mut command = match program {
            Some(program) => Command::new(program),
            None => {
                let mut command = Command::new(std::env::current_exe()?);
                command.arg("operator");
                command
            }
        };
        command.args([name, namespace]).args(block.map(|seconds| seconds.to_string()));
        command.env("KUBECONFIG", file);
        let work = Work::default();
        let child = spawn(&mut command, &folder, &work)?;
        Ok(Self { command, child, folder, work, restarts: 0, ended: None })
    }

    /// Starts the process again a while after it has ended, as a kubelet does.
    pub(crate) fn keep_alive(&mut self) -> anyhow::Result<()> {
        match self.ended {
            None if self.child.try_wait()?.is_some() => {
                self.ended = Some(Instant::now());
                self.work.ended();
            }
            Some(ended) if ended.elapsed() >= RESTARTS_AFTER => {
                (self.restarts, self.ended) = (self.restarts + 1, None);
                self.child = spawn(&mut self.command, &self.folder, &self.work)?;
            }
            _ => {}
        }
        Ok(())
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    pub(crate) fn signal(&self, signal: &str) -> anyhow::Result<()> {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status()?;
        anyhow::ensure!(sent.success(), "kill {signal} failed");
        Ok(())
    }

    /// Waits until the process has ended, at most so long.
    pub(crate) async fn ends(&mut self, within: Duration) -> anyhow::Result<Option<ExitStatus>> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status));
            }
            if began.elapsed() > within {
                return Ok(None);
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::env::var_os("KEEP_LOGS").is_none() {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}
