//! What stands for the Service and its Deployment: replicas, and an address that leads to those that are ready.

use std::{
    fs,
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::Context as _;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::{Instant, sleep},
};
use watchkeeper_tests::raw::{code, get};

/// How long calls still reach a replica after its SIGTERM, as in a cluster.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(2);
/// How long a replica may take to be ready.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// How long it may take to end.
const ENDS_WITHIN: Duration = Duration::from_secs(120);

/// An address that leads each connection to one replica of several, in turn.
#[derive(Clone)]
pub(crate) struct Service {
    endpoints: Arc<Mutex<Vec<SocketAddr>>>,
    address: SocketAddr,
}

impl Service {
    pub(crate) async fn listen() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let service = Self { endpoints: Arc::default(), address: listener.local_addr()? };
        let (endpoints, next) = (service.endpoints.clone(), AtomicUsize::new(0));
        tokio::spawn(async move {
            while let Ok((mut caller, _)) = listener.accept().await {
                let known = endpoints.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let Some(to) = known.get(next.fetch_add(1, Ordering::Relaxed) % known.len().max(1)).copied()
                else {
                    continue;
                };
                tokio::spawn(async move {
                    if let Ok(mut replica) = TcpStream::connect(to).await {
                        let _ = tokio::io::copy_bidirectional(&mut caller, &mut replica).await;
                    }
                });
            }
        });
        Ok(service)
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    fn change(&self, change: impl FnOnce(&mut Vec<SocketAddr>)) {
        change(&mut self.endpoints.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// A replica's process; dropping it kills it.
pub(crate) struct Replica {
    child: Child,
    address: SocketAddr,
    probes: SocketAddr,
}

impl Replica {
    /// Starts a replica, and waits until it is ready.
    pub(crate) async fn start(release: u8, name: &str, stage: &Stage) -> anyhow::Result<Self> {
        let log = fs::File::create(stage.folder.join(format!("{name}.log")))?;
        let (address, probes) = (free_address()?, free_address()?);
        let child = Command::new(std::env::current_exe()?)
            .args(["program", &release.to_string(), name])
            .args([address.port().to_string(), probes.port().to_string(), stage.service.url()])
            .env("KUBECONFIG", &stage.kubeconfig)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?;
        let replica = Self { child, address, probes };
        let begun = Instant::now();
        while !replica.is_ready().await {
            anyhow::ensure!(begun.elapsed() < READY_WITHIN, "{name} is not ready: see its log");
            sleep(Duration::from_millis(200)).await;
        }
        stage.service.change(|endpoints| endpoints.push(address));
        Ok(replica)
    }

    async fn is_ready(&self) -> bool {
        get(self.probes, "localhost", "/readyz", "").await.is_ok_and(|answer| code(&answer) == 200)
    }

    /// Stops it as a kubelet does; its address goes a while later.
    async fn stop(mut self, service: Service) -> anyhow::Result<()> {
        let sent = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status()?;
        anyhow::ensure!(sent.success(), "kill failed");
        sleep(FORGOTTEN_AFTER).await;
        service.change(|endpoints| endpoints.retain(|address| *address != self.address));
        let begun = Instant::now();
        while self.child.try_wait()?.is_none() {
            anyhow::ensure!(begun.elapsed() < ENDS_WITHIN, "a replica does not end");
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where replicas are started.
pub(crate) struct Stage {
    pub(crate) service: Service,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) folder: PathBuf,
}

/// The replicas of a Deployment.
pub(crate) struct Replicas {
    running: Vec<Replica>,
    /// Those that were told to stop.
    stopping: Vec<JoinHandle<anyhow::Result<()>>>,
    started: usize,
}

impl Replicas {
    /// Starts the first replicas.
    pub(crate) async fn start(release: u8, stage: &Stage) -> anyhow::Result<Self> {
        let mut replicas = Self { running: Vec::new(), stopping: Vec::new(), started: 0 };
        for _ in 0..2 {
            replicas.add(release, stage).await?;
        }
        Ok(replicas)
    }

    async fn add(&mut self, release: u8, stage: &Stage) -> anyhow::Result<()> {
        self.started += 1;
        let name = format!("release-{release}-replica-{}", self.started);
        self.running.push(Replica::start(release, &name, stage).await.context(name)?);
        Ok(())
    }

    /// Replaces all, one after the other: each is stopped once its successor is ready. Nobody waits for its end.
    pub(crate) async fn roll(&mut self, release: u8, stage: &Stage) -> anyhow::Result<()> {
        for _ in 0..self.running.len() {
            self.add(release, stage).await?;
            let stop = self.running.remove(0).stop(stage.service.clone());
            self.stopping.push(tokio::spawn(stop));
        }
        Ok(())
    }

    /// Waits for the end of all that were told to stop.
    pub(crate) async fn have_stopped(&mut self) -> anyhow::Result<()> {
        for stopping in self.stopping.drain(..) {
            stopping.await??;
        }
        Ok(())
    }
}

/// Finds an address that nobody uses.
fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
