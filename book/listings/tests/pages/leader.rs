//! The timeline of two replicas: drawn from a run in which a leader is killed, and another one is stopped.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use k8s_openapi::api::{coordination::v1::Lease, core::v1::ConfigMap};
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use watchkeeper::{
    Running,
    clock::WallClock,
    leader_election::{LeaderElection, LeaderState, Leadership},
    prelude::*,
    reflector::ReflectorConfig,
};
use watchkeeper_apiserver::ApiServer;

use super::{
    marked::{assert_is, read},
    svg::{picture, stroke, text},
};

const PAGE: &str = "book/src/explain/leadership.md";
const PICTURE: &str = "book/src/pictures/leaders.svg";

/// When the first leader is killed, when it starts again, when its successor is stopped, and when the run ends.
const KILLED: u64 = 10;
const BACK: u64 = 30;
const STOPPED: u64 = 40;
const END: u64 = 48;

/// What happened, and when.
#[derive(Clone, Debug, PartialEq)]
enum Seen {
    /// A replica wrote the Lease.
    Writes(&'static str),
    Leads(&'static str),
    Ends(&'static str),
}

/// The notes of a run.
#[derive(Clone, Debug)]
struct Notes {
    begun: Instant,
    seen: Arc<Mutex<Vec<(Duration, Seen)>>>,
}

impl Notes {
    fn take(&self, seen: Seen) {
        let at = self.begun.elapsed();
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).push((at, seen));
    }
}

/// A replica that can be killed: from then on nothing leaves it.
struct Replica {
    running: Running,
    leadership: Leadership,
    alive: Arc<AtomicBool>,
}

impl Replica {
    fn starts(server: &ApiServer, name: &'static str, notes: &Notes) -> Self {
        let alive = Arc::new(AtomicBool::new(true));
        let begun = notes.begun;
        let clock = WallClock::custom(move || std::time::UNIX_EPOCH + begun.elapsed());
        let config = ReflectorConfig { clock, seed: Some(7), ..ReflectorConfig::default() };
        let client = connected(server.client(), name, notes.clone(), alive.clone());
        let election = LeaderElection::new("websites").namespace("shop").identity(name);
        let manager = Manager::with_config(client, config).leader_election(election);
        let leadership = manager.leadership().unwrap();
        let controller = Controller::from_fn(async |_: Arc<ConfigMap>, _: Context<ConfigMap>| {
            Ok::<_, watchkeeper::Error>(Action::await_change())
        });
        let running = manager.controller(controller).spawn();
        tokio::spawn(follows(leadership.clone(), name, notes.clone(), alive.clone()));
        Self { running, leadership, alive }
    }

    async fn leads(&mut self) {
        let leads = async { while self.leadership.changed().await != LeaderState::Leads {} };
        timeout(Duration::from_secs(60), leads).await.expect("it leads");
    }

    fn dies(self) {
        self.alive.store(false, Ordering::SeqCst);
        // What is left of it is dropped when the test ends.
        std::mem::forget(self.running);
    }
}

/// A client that notes writes of the Lease, and whose requests go nowhere once the replica is dead.
fn connected(client: kube::Client, name: &'static str, notes: Notes, alive: Arc<AtomicBool>) -> kube::Client {
    let namespace = client.default_namespace().to_owned();
    let service = tower::service_fn(move |request| {
        let (client, notes, alive) = (client.clone(), notes.clone(), alive.clone());
        async move {
            if !alive.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            let writes = writes_lease(&request);
            let reply = client.send(request).await;
            if writes && reply.as_ref().is_ok_and(|reply| reply.status().is_success()) {
                notes.take(Seen::Writes(name));
            }
            reply
        }
    });
    kube::Client::new(service, namespace)
}

fn writes_lease(request: &http::Request<kube::client::Body>) -> bool {
    request.method() != http::Method::GET && request.uri().path().contains("/leases/")
}

/// Notes when a replica leads, and when its term is over.
async fn follows(mut leadership: Leadership, name: &'static str, notes: Notes, alive: Arc<AtomicBool>) {
    let mut leads = false;
    loop {
        let now = leadership.changed().await == LeaderState::Leads;
        if now != leads && alive.load(Ordering::SeqCst) {
            notes.take(if now { Seen::Leads(name) } else { Seen::Ends(name) });
        }
        leads = now;
    }
}

/// Makes the Lease one that was released, so that nobody waits for the first term.
async fn released(server: &ApiServer) {
    let lease: Lease = serde_json::from_value(json!({
        "metadata": {"name": "websites", "namespace": "shop"},
        "spec": {"holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 0},
    }))
    .unwrap();
    server.create(&lease).await;
}

async fn run() -> Vec<(Duration, Seen)> {
    let server = ApiServer::in_memory().seed(7).namespace("shop").start().await;
    released(&server).await;
    let notes = Notes { begun: Instant::now(), seen: Arc::default() };
    let at = |seconds| sleep_until(notes.begun + Duration::from_secs(seconds));
    let mut first = Replica::starts(&server, "first", &notes);
    first.leads().await;
    let mut second = Replica::starts(&server, "second", &notes);
    at(KILLED).await;
    first.dies();
    second.leads().await;
    at(BACK).await;
    let mut back = Replica::starts(&server, "first", &notes);
    at(STOPPED).await;
    second.running.stop().await.unwrap();
    back.leads().await;
    at(END).await;
    let seen = notes.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
    back.running.stop().await.unwrap();
    sleep(Duration::from_secs(1)).await;
    seen
}

/// The terms: who, from when, and until when.
fn terms(seen: &[(Duration, Seen)]) -> Vec<(&'static str, f64, f64)> {
    let mut terms: Vec<(&str, f64, f64)> = Vec::new();
    for (at, what) in seen {
        match what {
            Seen::Leads(name) => terms.push((name, at.as_secs_f64(), END as f64)),
            Seen::Ends(name) => {
                let last = terms.iter_mut().rfind(|(who, ..)| who == name).unwrap();
                last.2 = at.as_secs_f64();
            }
            Seen::Writes(_) => {}
        }
    }
    // A dead replica says nothing of its end.
    terms[0].2 = KILLED as f64;
    terms
}

/// Where a second is.
fn x(seconds: f64) -> f64 {
    (240.0 + 84.0 * seconds).round() / 10.0
}

fn row(name: &str) -> f64 {
    if name == "first" { 44.0 } else { 118.0 }
}

fn draw(seen: &[(Duration, Seen)]) -> String {
    let terms = terms(seen);
    let mut body = String::new();
    for name in ["first", "second"] {
        body += &text(4.0, row(name) - 8.0, "s", &format!("{name} replica"));
    }
    // Before its term a replica stands by.
    for (began, (name, from, _)) in [0, 0, BACK].into_iter().zip(&terms) {
        let way = format!("M{} {}H{}", x(began as f64), row(name) + 11.0, x(*from));
        body += &stroke(&way, " stroke-dasharray=\"2 4\"");
    }
    for (name, from, to) in &terms {
        let (y, from, to) = (row(name), x(*from), x(*to));
        body += &format!(
            "<rect x=\"{from}\" y=\"{y}\" width=\"{:.1}\" height=\"22\" fill=\"currentColor\" opacity=\".3\"/>\n",
            to - from
        );
        body += &text((from + to) / 2.0, y + 16.0, "s m", "leads");
    }
    for (at, what) in seen {
        if let Seen::Writes(name) = what {
            let (at, y) = (x(at.as_secs_f64()), row(name) + 22.0);
            body += &stroke(&format!("M{at} {y}v9"), "");
        }
    }
    let (killed, stopped) = (x(KILLED as f64), x(STOPPED as f64));
    let (cross, end) = (row("first") + 5.0, row("second"));
    body += &stroke(&format!("M{} {cross}l12 12m0 -12l-12 12", killed - 6.0), " stroke-width=\"3\"");
    body += &text(killed + 12.0, row("first") + 16.0, "s", "killed");
    body += &text(stopped + 8.0, end + 16.0, "s", "stopped");
    body += &stroke(&format!("M{} 178H{}", x(0.0), x(END as f64)), "");
    for second in (0..=END).step_by(10) {
        let at = x(second as f64);
        body += &stroke(&format!("M{at} 173v10"), "");
        body += &text(at, 200.0, "s m", &format!("{second} s"));
    }
    body += &text(4.0, 228.0, "s", "Short lines: writes of the Lease. Dots: it stands by.");
    let title = "Two replicas: one leader is killed, the next is stopped";
    picture(title, 238, &body)
}

/// How long nobody led, after the kill and after the stop.
fn gaps(seen: &[(Duration, Seen)]) -> (f64, f64) {
    let terms = terms(seen);
    (terms[1].1 - KILLED as f64, terms[2].1 - STOPPED as f64)
}

#[tokio::test(start_paused = true)]
async fn the_timeline_of_two_replicas_is_that_of_a_run() {
    let seen = run().await;
    let who: Vec<&str> = terms(&seen).iter().map(|(who, ..)| *who).collect();
    assert_eq!(who, ["first", "second", "first"], "{seen:#?}");
    assert_is(PICTURE, &draw(&seen));
    let (killed, stopped) = gaps(&seen);
    let said = format!("{killed:.1} s after the kill, and {stopped:.1} s after the stop");
    let page = read(PAGE).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(page.contains(&said), "{PAGE} does not say: {said}");
}
