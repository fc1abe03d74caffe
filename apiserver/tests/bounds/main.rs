//! Hostile bodies against the server's binary: no body may end it, keep others waiting or fill the memory.
//!
//! `cargo test -p watchkeeper-apiserver --test bounds -- --seconds 600 --seed 7 --server ../target/release/watchkeeper-apiserver`
//! runs for ten minutes; without arguments it is a few seconds. The same seed sends the same bodies. The server is killed
//! with SIGKILL now and then, and must come back with all that it has acknowledged.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod bodies;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::Parser;
use http::{Method, Request, header};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use serde_json::Value;
use tokio::time::Instant;

use bodies::{Sent, next, prepare};

/// The most memory of the server, in KiB.
const MEMORY: u64 = 512 * 1024;

/// How many clients send at the same time.
const CLIENTS: u64 = 2;

/// How long the server runs until it is killed.
const LIFE: Duration = Duration::from_secs(30);

/// Sends hostile bodies to a server.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// How long.
    #[arg(long, default_value_t = 6)]
    seconds: u64,
    /// What to send: equal numbers send the same.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The server's binary.
    #[arg(long, default_value = env!("CARGO_BIN_EXE_watchkeeper-apiserver"))]
    server: PathBuf,
    /// How long an answer may take, in milliseconds; the server of a debug build is slow.
    #[arg(long, default_value_t = if cfg!(debug_assertions) { 60_000 } else { 2_000 })]
    patience: u64,
}

/// What was seen.
#[derive(Default)]
struct Seen {
    /// By what was sent: how often, and the slowest answer.
    answers: BTreeMap<&'static str, (u64, Duration)>,
    codes: BTreeMap<u16, u64>,
    /// What the server has said that it keeps: by path, a hash of the last answer.
    made: BTreeMap<String, u64>,
    faults: Vec<String>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let folder = std::env::temp_dir().join(format!("bounds-e2e-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let seen = Arc::new(Mutex::new(Seen::default()));
    let (lives, peak) = runtime.block_on(run(&options, &folder, &seen));
    let _left = std::fs::remove_dir_all(&folder);
    let seen = seen.lock().unwrap();
    let requests: u64 = seen.answers.values().map(|(count, _)| count).sum();
    let slowest = seen.answers.values().map(|(_, slowest)| *slowest).max().unwrap_or_default();
    let mut text = format!(
        "bounds: {requests} requests, slowest answer {slowest:.0?}, peak memory {} MiB, {lives} lives, {} objects kept\n",
        peak / 1024,
        seen.made.len()
    );
    for (what, (count, slowest)) in &seen.answers {
        text += &format!("  {what}: {count}, slowest {slowest:.0?}\n");
    }
    text += &format!("  codes: {:?}\n", seen.codes);
    let any = |codes: std::ops::Range<u16>| seen.codes.range(codes).next().is_some();
    let judges = any(200..300) && any(400..500);
    if !judges {
        text += "  FAILED: the server takes everything, or nothing\n";
    }
    for fault in &seen.faults {
        text += &format!("  FAILED: {fault}\n");
    }
    // Nobody reads on when standard output is gone.
    let _told = std::io::stdout().write_all(text.as_bytes());
    if judges && seen.faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The binary under way; it is killed when this goes.
struct Server {
    process: Child,
    kubeconfig: PathBuf,
}

impl Server {
    fn start(binary: &Path, folder: &Path) -> Result<Self, String> {
        let kubeconfig = folder.join("kubeconfig");
        let mut command = Command::new(binary);
        command.args(["--listen", "127.0.0.1:0", "--kubeconfig"]).arg(&kubeconfig);
        command.arg("--data").arg(folder.join("state"));
        let log = std::fs::File::create(folder.join("log")).unwrap();
        let mut process = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line.trim() == "ready" {
            return Ok(Self { process, kubeconfig });
        }
        let _ended = process.wait();
        let mut said = String::new();
        std::fs::File::open(folder.join("log")).unwrap().read_to_string(&mut said).unwrap();
        Err(said)
    }

    async fn client(&self) -> Client {
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let mut config = config.unwrap();
        config.default_retry = false;
        Client::try_from(config).unwrap()
    }

    /// Returns the most memory that it has had, in KiB.
    fn peak(&self) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok()).unwrap_or(0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _gone = self.process.kill();
        let _ended = self.process.wait();
    }
}

/// Lets servers live and die until the time is over; gives how many, and the most memory that one has had.
async fn run(options: &Options, folder: &Path, seen: &Arc<Mutex<Seen>>) -> (u64, u64) {
    let end = Instant::now() + Duration::from_secs(options.seconds);
    let mut randoms: Vec<SmallRng> =
        (0..CLIENTS).map(|client| SmallRng::seed_from_u64(options.seed * CLIENTS + client)).collect();
    let (mut lives, mut peak) = (0, 0);
    loop {
        let mut server = match Server::start(&options.server, folder) {
            Ok(server) => server,
            Err(said) => {
                seen.lock().unwrap().faults.push(format!("the server does not start again: {said}"));
                return (lives, peak);
            }
        };
        lives += 1;
        let client = server.client().await;
        let lost = missing(&client, seen).await;
        if !lost.is_empty() {
            seen.lock().unwrap().faults.push(format!("lost after a restart: {lost:?}"));
        }
        if Instant::now() >= end || !seen.lock().unwrap().faults.is_empty() {
            return (lives, peak);
        }
        for (client_number, sent) in
            (0..CLIENTS).flat_map(|number| prepare(number).into_iter().map(move |sent| (number, sent)))
        {
            let code = send(&client, &sent, options, seen).await;
            assert!(
                matches!(code, Some(200 | 201 | 409)),
                "client {client_number}: {code:?} for {}",
                sent.path
            );
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        let until = end.min(Instant::now() + LIFE);
        let clients = randoms.drain(..).enumerate().map(|(number, mut random)| {
            let (client, options, seen) = (client.clone(), options.clone(), Arc::clone(seen));
            tokio::spawn(async move {
                while Instant::now() < until && seen.lock().unwrap().faults.is_empty() {
                    for sent in next(&mut random, number as u64) {
                        send(&client, &sent, &options, &seen).await;
                    }
                }
                random
            })
        });
        let clients: Vec<_> = clients.collect();
        for client in clients {
            randoms.push(client.await.unwrap());
        }
        peak = peak.max(server.peak());
        let mut seen = seen.lock().unwrap();
        if peak > MEMORY {
            seen.faults.push(format!("the server has taken {} MiB", peak / 1024));
        }
        if let Ok(Some(status)) = server.process.try_wait() {
            seen.faults.push(format!("the server has ended: {status}"));
        }
    }
}

/// Sends a body; gives the code of the answer.
async fn send(client: &Client, sent: &Sent, options: &Options, seen: &Mutex<Seen>) -> Option<u16> {
    let request = Request::builder()
        .method(sent.method.clone())
        .uri(&sent.path)
        .header(header::CONTENT_TYPE, sent.media)
        .body(Body::from(sent.body.clone()))
        .unwrap();
    let began = Instant::now();
    let patience = Duration::from_millis(options.patience);
    let answer = tokio::time::timeout(patience, async {
        let response = client.send(request).await.map_err(|error| error.to_string())?;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.map_err(|error| error.to_string())?;
        Ok::<_, String>((code, body.to_bytes()))
    });
    let answer = answer.await;
    let took = began.elapsed();
    let mut seen = seen.lock().unwrap();
    let (count, slowest) = seen.answers.entry(sent.what).or_default();
    *count += 1;
    *slowest = took.max(*slowest);
    let beginning = sent.beginning();
    match answer {
        Ok(Ok((code, body))) => {
            *seen.codes.entry(code).or_default() += 1;
            let said = String::from_utf8_lossy(&body[..body.len().min(1_000)]);
            // What a kube-apiserver answers with its etcd's refusal.
            if code >= 500 && !said.contains("etcdserver: request is too large") {
                seen.faults.push(format!("{code} for {}: {said}: {beginning}", sent.what));
            }
            if let Some((path, object)) = kept(sent, code, &body) {
                seen.made.insert(path, object);
            }
            Some(code)
        }
        Ok(Err(why)) => {
            seen.faults.push(format!("no answer to {}: {why}: {beginning}", sent.what));
            None
        }
        Err(_) => {
            seen.faults.push(format!("no answer to {} in {patience:?}: {beginning}", sent.what));
            None
        }
    }
}

/// Returns the path and a hash of what the server keeps after an answer.
fn kept(sent: &Sent, code: u16, answer: &[u8]) -> Option<(String, u64)> {
    if !matches!(code, 200 | 201) || sent.path.contains("dryRun") {
        return None;
    }
    let object: Value = serde_json::from_slice(answer).ok()?;
    let name = object["metadata"]["name"].as_str()?;
    let path = sent.path.split('?').next().unwrap_or_default();
    let path = match sent.method {
        Method::POST => format!("{path}/{name}"),
        _ => path.to_owned(),
    };
    Some((path, hash(object)))
}

/// Hashes an object without its status: the server itself writes the one of a definition.
fn hash(mut object: Value) -> u64 {
    let _gone = object.as_object_mut().and_then(|fields| fields.remove("status"));
    let mut hasher = DefaultHasher::new();
    object.to_string().hash(&mut hasher);
    hasher.finish()
}

/// Lists what was made and is not there as it was.
async fn missing(client: &Client, seen: &Mutex<Seen>) -> Vec<String> {
    let made = seen.lock().unwrap().made.clone();
    let mut missing = Vec::new();
    for (path, wanted) in made {
        let request = Request::get(&path).body(Vec::new()).unwrap();
        let found: Result<Value, _> = client.request(request).await;
        if found.map(hash).ok() != Some(wanted) {
            missing.push(path);
        }
    }
    missing
}
