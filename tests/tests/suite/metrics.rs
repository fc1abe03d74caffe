//! Metrics: exactly the names of controller-runtime and client-go, and our own.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use k8s_openapi::api::{apps::v1::Deployment, coordination::v1::Lease, core::v1::ConfigMap};
use kube::core::ObjectMeta;
use regex::Regex;
use tokio::time::sleep;
use watchkeeper::{
    LeaderElection,
    leader_election::LeaderState,
    metrics::Metrics,
    prelude::*,
    prometheus_client::metrics::counter::Counter,
    webhook::{Change, Review, Validator, Webhooks},
};
use watchkeeper_apiserver::{ApiServer, Fault, Restart, Verb};
use watchkeeper_tests::{
    Keeper, Looker, Website, assert_snapshot, does,
    exposition::{Family, families, sum},
    website,
};

/// What controller-runtime has and we have not.
const MISSING: [(&str, &str); 8] = [
    ("certwatcher_read_certificate_total", "certificates are the program's own by default; the log tells"),
    ("certwatcher_read_certificate_errors_total", "the same"),
    (
        "controller_runtime_conversion_webhook_panics_total",
        "in watchkeeper_webhook_decisions_total, as failed",
    ),
    ("controller_runtime_webhook_panics_total", "the same"),
    ("go_*", "of Go's runtime"),
    (
        "process_network_receive_bytes_total",
        "of the pod's network, which the kubelet tells: container_network_*",
    ),
    ("process_network_transmit_bytes_total", "the same"),
    ("process_virtual_memory_max_bytes", "has been without a limit on every machine for decades"),
];

/// What both have, and ours differs in.
const DIFFERENT: [(&str, &str); 0] = [];

/// Prefixes of what we have and controller-runtime has not.
const EXTRA: [(&str, &str); 5] = [
    ("controller_runtime_webhook_", "of controller-runtime, which shows them once there is a webhook"),
    ("informer_", "of client-go, for programs that name their informers; controller-runtime names none"),
    ("leader_election_slowpath_total", "of controller-runtime, which shows it once there was one"),
    ("reflector_", "of client-go, in which nobody counts them"),
    ("watchkeeper_", "our own"),
];

fn manifest(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Allows everything.
struct Lenient;

impl Validator<Deployment> for Lenient {
    async fn validate(&self, _: Change<'_, Deployment>, _: &mut Review) {}
}

/// Runs an operator until it has shown every metric there is, and scrapes it.
pub(crate) async fn everything() -> String {
    let server = ApiServer::in_memory().crd::<Website>().namespace("shop").start().await;
    server.faults().on(Verb::List, "websites").once().then(Fault::Status(500));
    server.faults().on(Verb::Watch, "websites").once().then(Fault::Status(500));
    server.create(&website("a")).await;
    let manager = Manager::new(server.client())
        .leader_election(LeaderElection::new("sites").namespace("shop"))
        .kind::<Website>()
        .webhooks(Webhooks::new("127.0.0.1:0").service("default", "sites").validates::<Deployment>(Lenient))
        .migrate_storage::<Website>()
        .controller(Controller::new(Keeper::default()).owns::<Deployment>());
    let metrics = manager.metrics();
    let running = manager.spawn();
    server.webhooks(&running);
    server.eventually::<Deployment>("shop/a", |child| child.is_some()).await;
    // The server knows the webhook by then, and does not call it about its own namespace.
    sleep(Duration::from_secs(60)).await;
    server.create(&website("b")).await;
    server.eventually::<Deployment>("shop/b", |child| child.is_some()).await;
    let page = metrics.encode();
    running.stop().await.unwrap();
    page
}

/// The families of the Go program, by name; behind each its type, labels and buckets.
fn of_controller_runtime() -> BTreeMap<String, String> {
    let text = fs::read_to_string(manifest("controller-runtime/families.txt")).unwrap();
    let split = |line: &str| {
        let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
        (name.to_owned(), rest.to_owned())
    };
    text.lines().filter(|line| !line.starts_with("# ")).map(split).collect()
}

/// Whether two families read the same; bounds are numbers, however they are written.
fn same(ours: &Family, theirs: &str) -> bool {
    let ours = ours.to_string();
    let (mut ours, mut theirs) = (ours.split(' '), theirs.split(' '));
    let alike = |one: &str, other: &str| match (one.parse::<f64>(), other.parse::<f64>()) {
        (Ok(one), Ok(other)) => (one / other - 1.0).abs() < 1e-9,
        _ => one == other,
    };
    let pairs = ours.by_ref().zip(theirs.by_ref()).all(|(one, other)| alike(one, other));
    pairs && ours.next().is_none() && theirs.next().is_none()
}

// P3
#[tokio::test(start_paused = true)]
async fn names_types_labels_and_buckets_are_those_of_a_controller_runtime_program() {
    let (ours, theirs) = (families(&everything().await), of_controller_runtime());
    let explained =
        |table: &[(&'static str, &str)]| table.iter().map(|(name, _)| *name).collect::<BTreeSet<_>>();
    let missing: BTreeSet<_> =
        theirs.keys().map(String::as_str).filter(|name| !ours.contains_key(*name)).collect();
    assert_eq!(missing, explained(&MISSING), "what controller-runtime has and we have not");
    let extra = ours.keys().filter(|name| !theirs.contains_key(*name));
    let unexplained: Vec<_> =
        extra.clone().filter(|name| !EXTRA.iter().any(|(prefix, _)| name.starts_with(prefix))).collect();
    assert!(unexplained.is_empty(), "what we have and controller-runtime has not: {unexplained:#?}");
    for (prefix, why) in EXTRA {
        assert!(extra.clone().any(|name| name.starts_with(prefix)), "{prefix} ({why}) is not extra");
    }
    let both = ours.iter().filter_map(|(name, ours)| Some((name, ours, theirs.get(name)?)));
    let different = both.filter(|(_, ours, theirs)| !same(ours, theirs));
    let different: Vec<_> =
        different.map(|(name, ours, theirs)| format!("{name}\n  {ours}\n  {theirs}")).collect();
    assert_eq!(different.len(), DIFFERENT.len(), "ours, and controller-runtime's: {different:#?}");
}

/// The chapter of the book, with the table as it should be.
fn chapter(families: &BTreeMap<String, Family>) -> String {
    const MARKS: [&str; 2] =
        ["<!-- the table is written by tests/tests/suite/metrics.rs -->\n", "<!-- end of the table -->\n"];
    let text = fs::read_to_string(manifest("../book/src/reference/metrics.md")).unwrap();
    let (before, rest) = text.split_once(MARKS[0]).expect("the table begins");
    let (_, after) = rest.split_once(MARKS[1]).expect("the table ends");
    let mut table = "| Name | Type | Labels | What it says |\n|---|---|---|---|\n".to_owned();
    for (name, Family { shape, labels, help, .. }) in families {
        let labels = labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        table += &format!("| `{name}` | {shape} | {labels} | {} |\n", help.trim_end_matches('.'));
    }
    format!("{before}{}{table}{}{after}", MARKS[0], MARKS[1])
}

// P3
#[tokio::test(start_paused = true)]
async fn the_book_lists_every_metric() {
    assert_snapshot("../book/src/reference/metrics.md", &chapter(&families(&everything().await)));
}

// What nothing has counted yet is not shown, and would be missing from the table unseen.
#[tokio::test(start_paused = true)]
async fn every_metric_that_the_source_names_is_shown() {
    let shown = families(&everything().await);
    let name = Regex::new(
        r#""((?:controller_runtime|leader_election|rest_client|reflector|informer|watchkeeper)_[a-z_]+)""#,
    )
    .unwrap();
    let mut named = 0;
    for file in fs::read_dir(manifest("../runtime/src/metrics")).unwrap() {
        let code = fs::read_to_string(file.unwrap().path()).unwrap();
        let code = code.split("#[cfg(test)]").next().unwrap();
        for found in name.captures_iter(code) {
            let (found, counted) = (found[1].to_owned(), format!("{}_total", &found[1]));
            assert!(shown.contains_key(&found) || shown.contains_key(&counted), "{found} was never shown");
            named += 1;
        }
    }
    assert!(named > 30, "{named} names were found: the pattern is out of date");
}

/// Counts the lines of a scrape with this many objects.
async fn lines_with(objects: usize) -> usize {
    let server = ApiServer::in_memory().crd::<Website>().namespace("shop").start().await;
    for number in 0..objects {
        server.create(&website(&format!("site-{number}"))).await;
    }
    let keeper = Keeper::default();
    let manager =
        Manager::new(server.client()).controller(Controller::new(keeper.clone()).owns::<Deployment>());
    let metrics = manager.metrics();
    let running = manager.spawn();
    keeper.record.reaches(objects).await;
    sleep(Duration::from_secs(60)).await;
    running.stop().await.unwrap();
    metrics.encode().lines().count()
}

// P3
#[tokio::test(start_paused = true)]
async fn a_scrape_is_as_long_whatever_the_number_of_objects() {
    assert_eq!(lines_with(3).await, lines_with(300).await);
}

// P3
#[tokio::test(start_paused = true)]
async fn the_master_status_is_what_leadership_says() {
    let server = ApiServer::in_memory().crd::<Website>().namespace("shop").start().await;
    let replica = |name: &str| {
        let election = LeaderElection::new("sites").namespace("shop").identity(name);
        let manager = Manager::new(server.client()).leader_election(election);
        let manager = manager.controller(Controller::new(Looker::default()));
        (manager.metrics(), manager.leadership().unwrap(), manager.spawn())
    };
    let status = |metrics: &Metrics| {
        let page = metrics.encode();
        assert_eq!(families(&page)["leader_election_master_status"].samples.len(), 1);
        sum(&page, "leader_election_master_status", &[("name", "sites")])
    };
    let (first, mut leads, running) = replica("first");
    assert_eq!(status(&first), 0.0);
    while leads.changed().await != LeaderState::Leads {}
    assert_eq!(status(&first), 1.0);
    let (second, mut takes_over, stands_by) = replica("second");
    sleep(Duration::from_secs(30)).await;
    assert_eq!((status(&first), status(&second)), (1.0, 0.0));
    let slow =
        |metrics: &Metrics| sum(&metrics.encode(), "leader_election_slowpath_total", &[("name", "sites")]);
    assert_eq!(slow(&first), 0.0);
    server.faults().on(Verb::Update, "leases").once().then(Fault::Status(409));
    sleep(Duration::from_secs(5)).await;
    assert_eq!((slow(&first), slow(&second)), (1.0, 0.0), "a conflict makes the leader read");
    running.stop().await.unwrap();
    while takes_over.changed().await != LeaderState::Leads {}
    assert_eq!((status(&first), status(&second)), (0.0, 1.0));
    // Somebody takes its Lease, and never renews it.
    let taken = serde_json::json!({ "spec": { "holderIdentity": "third" } });
    server.patch_merge::<Lease>("shop/sites", taken).await;
    while !matches!(takes_over.changed().await, LeaderState::StandsBy { .. }) {}
    assert_eq!(status(&second), 0.0, "who has lost its term leads no more");
    while takes_over.changed().await != LeaderState::Leads {}
    assert_eq!(status(&second), 1.0);
    drop(stands_by);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(status(&second), 0.0, "who is gone leads no more");
}

// P3
#[tokio::test(start_paused = true)]
async fn requests_are_counted_as_the_server_counts_them() {
    let server = ApiServer::in_memory().crd::<Website>().namespace("shop").start().await;
    let refused = server.faults().on(Verb::Patch, "deployments").times(3).then(Fault::Status(429));
    server.create(&website("a")).await;
    let keeper = Keeper::default();
    let manager = Manager::new(server.client()).controller(Controller::new(keeper).owns::<Deployment>());
    let metrics = manager.metrics();
    let before = server.requests().list().len();
    let running = manager.spawn();
    server.eventually::<Deployment>("shop/a", |child| child.is_some()).await;
    running.stop().await.unwrap();
    drop(refused);
    let sent = server.requests().list().split_off(before);
    let patched = |code: u16| {
        let of = sent.iter().filter(|one| one.verb == Some(Verb::Patch) && one.status == Some(code));
        of.count() as f64
    };
    let page = metrics.encode();
    for code in [429, 201, 200] {
        let labels = [("method", "PATCH"), ("code", &*code.to_string()), ("host", "unknown")];
        assert_eq!(sum(&page, "rest_client_requests_total", &labels), patched(code), "{code}");
    }
    assert!(patched(429) == 3.0 && patched(201) == 1.0);
}

// P3
#[tokio::test(start_paused = true)]
async fn what_panics_what_waits_and_lost_history_are_counted() {
    let server = ApiServer::in_memory().crd::<Website>().namespace("shop").start().await;
    server.create(&website("a")).await;
    let metadata =
        ObjectMeta { name: Some("map".into()), namespace: Some("shop".into()), ..ObjectMeta::default() };
    let (reconciler, _) = does(|_: Arc<Website>, _: Context<Website>| async {
        Ok(Action::requeue_after(Duration::from_secs(3600)))
    });
    let controller = Controller::new(reconciler).watches::<ConfigMap>(|_| panic!("a mapping"));
    let manager = Manager::new(server.client()).controller(controller);
    let metrics = manager.metrics();
    let informer = manager.informer::<ConfigMap>().build();
    let _panics = informer.handler().on_add(|_, _| panic!("a handler")).register();
    let _running = manager.spawn();
    informer.wait_for_sync(Duration::from_secs(5)).await.unwrap();
    let backup = server.resource_version();
    server.create(&ConfigMap { metadata, ..ConfigMap::default() }).await;
    sleep(Duration::from_secs(10)).await;
    let count = |name: &str, labels: &[(&str, &str)]| sum(&metrics.encode(), name, labels);
    assert_eq!(count("watchkeeper_informer_panics_total", &[("name", "configmaps")]), 2.0);
    let keys = |state: &str| {
        let labels = [("name", "websites.web.example.dev"), ("state", state)];
        count("watchkeeper_workqueue_keys", &labels)
    };
    let states = ["delayed", "held", "awaits_retry_token", "awaits_change", "in_flight"];
    assert_eq!(states.map(keys), [1.0, 0.0, 0.0, 0.0, 0.0]);
    let epochs = || count("watchkeeper_reflector_epochs_total", &[("name", "configmaps")]);
    assert_eq!(epochs(), 0.0);
    server.restart(Restart::At(backup));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(epochs(), 1.0);
}

// P3
#[tokio::test(start_paused = true)]
async fn a_program_adds_metrics_of_its_own() {
    let server = ApiServer::in_memory().namespace("shop").start().await;
    let refused = Counter::<u64>::default();
    let manager = Manager::new(server.client()).registry(|registry| {
        registry.register("domains_refused", "Domains that were refused", refused.clone())
    });
    let metrics = manager.metrics();
    refused.inc_by(3);
    let page = metrics.encode();
    assert!(page.contains("domains_refused_total 3\n"), "{page}");
    assert_eq!(sum(&page, "domains_refused_total", &[]), 3.0);
}

/// Runs a Go program of `tests/controller-runtime`.
fn go(program: &str, kubeconfig: Option<&Path>, input: Option<&Path>) -> std::process::Output {
    let mut command = Command::new("go");
    command.args(["run", program]).current_dir(manifest("controller-runtime")).stderr(Stdio::inherit());
    if let Some(path) = kubeconfig {
        command.env("KUBECONFIG", path);
    }
    command.stdin(input.map_or_else(Stdio::null, |path| fs::File::open(path).unwrap().into()));
    command.output().expect("go runs")
}

/// A file that is gone with this.
struct Temporary(PathBuf);

impl Temporary {
    fn with(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        fs::write(&path, text).unwrap();
        Self(path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

// P3
#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds a Go program, for a minute or more"]
async fn the_families_that_are_kept_are_those_of_a_controller_runtime_program() {
    let server = ApiServer::http().start().await.unwrap();
    let kubeconfig = Temporary::with("families", &server.kubeconfig_yaml());
    let printed =
        tokio::task::spawn_blocking(move || go("./families", Some(&kubeconfig.0), None)).await.unwrap();
    assert!(printed.status.success(), "{printed:?}");
    let head = "# What a controller of controller-runtime shows once it has run; kept by tests/tests/suite/metrics.rs.\n";
    assert_snapshot(
        "controller-runtime/families.txt",
        &format!("{head}{}", String::from_utf8(printed.stdout).unwrap()),
    );
}

// P3
#[tokio::test(start_paused = true)]
#[ignore = "builds a Go program, for a minute or more"]
async fn prometheus_own_linter_has_nothing_against_our_metrics() {
    // The linter reads the older text format, in which the family of a counter has the name of its samples.
    let counter = Regex::new("(?m)^# HELP (.+?) (.*)\n# TYPE .+ counter$").unwrap();
    let page = everything().await.replace("# EOF\n", "");
    let page = counter.replace_all(&page, "# HELP ${1}_total $2\n# TYPE ${1}_total counter");
    let page = Temporary::with("metrics", &page);
    let printed = go("./promlint", None, Some(&page.0));
    let problems = String::from_utf8_lossy(&printed.stdout).into_owned();
    assert!(printed.status.success() && problems.is_empty(), "{problems}");
}
