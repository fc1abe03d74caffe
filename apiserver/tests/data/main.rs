//! The data file against the server's binary: killed in the middle of writes, on a full disk, used twice.
//!
//! `DATA_KILLS` is the number of times the server is killed, 3 unless set; each time it is given 10,000 writes.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};

const WRITES: usize = 10_000;
const WRITERS: usize = 16;

/// A folder of its own, gone at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("data-e2e-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn data(&self) -> PathBuf {
        self.0.join("state")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _left = std::fs::remove_dir_all(&self.0);
    }
}

/// The binary under way; it is killed when this goes.
struct Server {
    process: Child,
    says: String,
    kubeconfig: PathBuf,
}

impl Server {
    fn start(folder: &Path, data: &Path) -> Self {
        let binary = env!("CARGO_BIN_EXE_watchkeeper-apiserver");
        Self::try_start(Command::new(binary), folder, data).unwrap_or_else(|said| panic!("no server: {said}"))
    }

    /// Starts it; gives what it says when it doesn't come up.
    fn try_start(mut command: Command, folder: &Path, data: &Path) -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let kubeconfig = folder.join(format!("kubeconfig-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        command.args(["--listen", "127.0.0.1:0", "--kubeconfig"]).arg(&kubeconfig).arg("--data").arg(data);
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        if lines.next().transpose().unwrap().as_deref() != Some("ready") {
            let mut said = String::new();
            process.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            process.wait().unwrap();
            return Err(said);
        }
        let says: Vec<String> = lines.by_ref().take(3).map(Result::unwrap).collect();
        Ok(Self { process, says: says.join("\n"), kubeconfig })
    }

    async fn client(&self) -> Client {
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig).unwrap();
        let mut config =
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        config.default_retry = false;
        Client::try_from(config).unwrap()
    }

    async fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client().await, "default")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _gone = self.process.kill();
        let _ended = self.process.wait();
    }
}

fn map(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map.data = Some(BTreeMap::from([("text".to_owned(), "x".repeat(200))]));
    map
}

/// What has been acknowledged: names with uid and version.
type Acknowledged = Arc<Mutex<BTreeMap<String, (String, String)>>>;

fn identity(map: &ConfigMap) -> (String, String) {
    (map.metadata.uid.clone().unwrap(), map.metadata.resource_version.clone().unwrap())
}

/// Creates objects until the server is gone or all are written.
async fn write(maps: Api<ConfigMap>, round: u32, next: Arc<AtomicUsize>, acknowledged: Acknowledged) {
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= WRITES {
            return;
        }
        let name = format!("r{round}-{number}");
        match maps.create(&PostParams::default(), &map(&name)).await {
            Ok(made) => drop(acknowledged.lock().unwrap().insert(name, identity(&made))),
            Err(_) => return,
        }
    }
}

// A2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_loses_nothing_it_has_acknowledged() {
    let rounds: u32 =
        std::env::var("DATA_KILLS").map_or(3, |text| text.parse().expect("DATA_KILLS is a number"));
    let folder = Folder::new();
    let acknowledged = Acknowledged::default();
    let (mut killed_in_the_middle, mut cut) = (0, 0);
    for round in 0..rounds {
        // A file of its own every tenth time, so that it doesn't only grow.
        if round % 10 == 0 {
            let _none = std::fs::remove_file(folder.data());
            acknowledged.lock().unwrap().clear();
        }
        let mut server = Server::start(&folder.0, &folder.data());
        let before = acknowledged.lock().unwrap().len();
        let next = Arc::new(AtomicUsize::new(0));
        let maps = server.maps().await;
        let writers: Vec<_> = (0..WRITERS)
            .map(|_| tokio::spawn(write(maps.clone(), round, next.clone(), acknowledged.clone())))
            .collect();
        // Another moment each time: by the number of writes, as machines differ.
        let moment = before + 50 + (round as usize * 7919) % 3000;
        while acknowledged.lock().unwrap().len() < moment
            && !writers.iter().all(tokio::task::JoinHandle::is_finished)
        {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        server.process.kill().unwrap();
        server.process.wait().unwrap();
        for writer in writers {
            writer.await.unwrap();
        }
        killed_in_the_middle += usize::from(next.load(Ordering::Relaxed) < WRITES);
        let again = Server::start(&folder.0, &folder.data());
        cut += usize::from(again.says.contains("unfinished write"));
        let there: BTreeMap<String, (String, String)> = again
            .maps()
            .await
            .list(&ListParams::default())
            .await
            .unwrap()
            .into_iter()
            .map(|map| (map.metadata.name.clone().unwrap(), identity(&map)))
            .collect();
        let acknowledged = acknowledged.lock().unwrap();
        let missing: Vec<_> = acknowledged.iter().filter(|(name, id)| there.get(*name) != Some(id)).collect();
        assert!(
            missing.is_empty(),
            "round {round}: {} of {} are missing: {missing:?}",
            missing.len(),
            acknowledged.len()
        );
        eprintln!(
            "round {round}: killed after {} writes, all {} there",
            acknowledged.len() - before,
            acknowledged.len()
        );
    }
    eprintln!(
        "{rounds} kills, {killed_in_the_middle} in the middle of writes, {cut} unfinished records cut off, nothing missing"
    );
    assert_eq!(killed_in_the_middle, rounds as usize);
}

#[tokio::test]
async fn a_second_server_on_the_same_file_is_refused() {
    let folder = Folder::new();
    let first = Server::start(&folder.0, &folder.data());
    assert!(first.says.contains("state:    kept in") && !first.says.contains("in memory"), "{}", first.says);
    let binary = Command::new(env!("CARGO_BIN_EXE_watchkeeper-apiserver"));
    let said = Server::try_start(binary, &folder.0, &folder.data()).err().unwrap();
    assert!(said.contains("another server has it open"), "{said}");
    first.maps().await.create(&PostParams::default(), &map("a")).await.unwrap();
    drop(first);
    let second = Server::start(&folder.0, &folder.data());
    second.maps().await.get("a").await.unwrap();
}

#[tokio::test]
async fn a_terminated_server_leaves_a_snapshot() {
    let folder = Folder::new();
    let mut server = Server::start(&folder.0, &folder.data());
    let maps = server.maps().await;
    for _ in 0..20 {
        maps.create(&PostParams::default(), &map("a")).await.unwrap();
        maps.delete("a", &kube::api::DeleteParams::default()).await.unwrap();
    }
    let length = || std::fs::metadata(folder.data()).unwrap().len();
    let before = length();
    Command::new("kill").arg(server.process.id().to_string()).status().unwrap();
    assert!(server.process.wait().unwrap().success());
    assert!(length() < before, "{} of {before} bytes", length());
    let again = Server::start(&folder.0, &folder.data());
    assert!(again.says.contains("objects at version"), "{}", again.says);
}

/// A limit on the size of files stands for a full disk: the system refuses to write on.
// A4
#[tokio::test]
async fn a_full_disk_refuses_writes_and_loses_none() {
    let folder = Folder::new();
    let mut command = Command::new("sh");
    command.arg("-c").arg("trap '' XFSZ; ulimit -f 128; exec \"$0\" \"$@\"");
    command.arg(env!("CARGO_BIN_EXE_watchkeeper-apiserver"));
    let server =
        Server::try_start(command, &folder.0, &folder.data()).unwrap_or_else(|said| panic!("{said}"));
    let maps = server.maps().await;
    let (mut written, mut refused) = (Vec::new(), 0);
    for number in 0..400 {
        let name = format!("m{number}");
        match maps.create(&PostParams::default(), &map(&name)).await {
            Ok(_) => written.push(name),
            Err(kube::Error::Api(status)) => {
                assert_eq!(status.code, 500, "{status:?}");
                assert!(
                    status.message.contains(&format!("cannot write {}", folder.data().display())),
                    "{status:?}"
                );
                assert!(maps.get_opt(&name).await.unwrap().is_none(), "what is refused is not there");
                refused += 1;
                if refused == 3 {
                    break;
                }
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refused == 3 && !written.is_empty(), "{} written, {refused} refused", written.len());
    let there = maps.list(&ListParams::default()).await.unwrap().items.len();
    assert_eq!(there, written.len());
    drop(server);
    // With room again all that was acknowledged is there, and writes go on.
    let again = Server::start(&folder.0, &folder.data());
    let maps = again.maps().await;
    assert_eq!(maps.list(&ListParams::default()).await.unwrap().items.len(), written.len());
    maps.create(&PostParams::default(), &map("more")).await.unwrap();
}

#[test]
fn a_place_that_cannot_be_written_is_named() {
    let folder = Folder::new();
    for place in [folder.0.join("missing/state"), PathBuf::from("/proc/state"), folder.0.clone()] {
        let binary = Command::new(env!("CARGO_BIN_EXE_watchkeeper-apiserver"));
        let said = Server::try_start(binary, &folder.0, &place).err().unwrap();
        assert!(said.contains(&place.display().to_string()), "{said}");
    }
}
