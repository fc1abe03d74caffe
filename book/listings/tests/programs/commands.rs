//! The commands of the book's program, each as a process of its own.

use std::{
    io::Read as _,
    net::TcpListener,
    path::Path,
    process::{Command, Output, Stdio},
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, ListParams, PostParams},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use watchkeeper_apiserver::{ApiServer, OverHttp};

use super::printed::{Folder, Process};

/// How long a process may take to do its part.
const PATIENCE: Duration = Duration::from_secs(30);

/// The program, where no cluster can be found.
fn program(arguments: &[&str]) -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_program"));
    program.args(arguments).env_remove("KUBECONFIG").env_remove("RUST_LOG").env("HOME", "/nonexistent");
    program
}

fn output(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// Returns what a command prints that succeeds.
fn printed(arguments: &[&str]) -> String {
    let (code, out, err) = output(&mut program(arguments));
    assert_eq!(code, Some(0), "{arguments:?}: {err}");
    out
}

#[test]
fn what_prints_needs_no_cluster() {
    assert!(printed(&["--help"]).starts_with("Usage: notices [COMMAND]"));
    assert_eq!(
        printed(&["--version"]),
        format!("notices {0} (watchkeeper {0})\n", env!("CARGO_PKG_VERSION"))
    );
    assert!(printed(&["crd"]).contains("\n  name: notices.board.example.dev\n"));
    let roles = printed(&["rbac", "--namespace", "boards"]);
    assert!(
        roles.contains("kind: ClusterRole\n") && roles.contains("\n  namespace: \"boards\"\n"),
        "{roles}"
    );
    let manifests = printed(&["manifests", "--namespace=boards", "--image=registry.example.dev/notices"]);
    let image = format!("image: \"registry.example.dev/notices:{}\"", env!("CARGO_PKG_VERSION"));
    for wanted in ["kind: Namespace\n", "kind: Deployment\n", "\n  namespace: boards\n", &image] {
        assert!(manifests.contains(wanted), "{wanted}: {manifests}");
    }
    let folder = Folder::empty();
    let within = |name: &str| folder.path().join(name).display().to_string();
    printed(&["manifests", "--helm", &within("chart")]);
    printed(&["manifests", "--kustomize", &within("kustomization")]);
    for file in ["chart/Chart.yaml", "chart/templates/deployment.yaml", "kustomization/kustomization.yaml"] {
        assert!(folder.path().join(file).is_file(), "{file}");
    }
}

#[test]
fn what_is_wrong_is_named_with_the_remedy() {
    let wrong_filter = || {
        let mut program = program(&["run"]);
        program.env("RUST_LOG", "info,watchkeeper=loud");
        program
    };
    for (mut command, code, wanted) in [
        (program(&["walk"]), 64, "notices: unknown command \"walk\": the commands are run, crd, rbac,"),
        (program(&["crd", "--fast"]), 64, "notices: unknown option \"--fast\"\nTry `notices --help`."),
        (
            program(&["why", "Letter", "a"]),
            64,
            "notices: no controller reconciles \"Letter\": the kinds are Notice",
        ),
        (wrong_filter(), 64, "notices: RUST_LOG is \"info,watchkeeper=loud\", which can't be read"),
        (program(&[]), 1, "notices: no cluster is configured: KUBECONFIG is not set"),
        (
            program(&["manifests", "--image", "a b"]),
            1,
            "notices: the manifests can't be made: \"a b\" is not an image",
        ),
        (program(&["manifests", "--helm", "/proc/chart"]), 1, "notices: /proc/chart/"),
        (
            program(&["why", "notices", "shop/a", "--http", "127.0.0.1:1"]),
            1,
            "notices: the operator can't be asked at http://127.0.0.1:1: ",
        ),
    ] {
        let (found, out, err) = output(&mut command);
        assert_eq!((found, out.as_str()), (Some(code), ""), "{command:?}: {err}");
        assert!(err.starts_with(wanted), "{command:?}: {err}");
    }
}

fn notices(server: &ApiServer<OverHttp>) -> (Api<DynamicObject>, ApiResource) {
    let resource = ApiResource {
        group: "board.example.dev".to_owned(),
        version: "v1".to_owned(),
        api_version: "board.example.dev/v1".to_owned(),
        kind: "Notice".to_owned(),
        plural: "notices".to_owned(),
    };
    (Api::namespaced_with(server.client(), "default", &resource), resource)
}

/// Creates a notice, as soon as the server has the kind.
async fn post(server: &ApiServer<OverHttp>) {
    let (notices, resource) = notices(server);
    let notice = DynamicObject::new("a", &resource).data(json!({"spec": {"text": "Gone fishing"}}));
    let begun = Instant::now();
    while let Err(error) = notices.create(&PostParams::default(), &notice).await {
        assert!(begun.elapsed() < PATIENCE, "{error}");
        sleep(Duration::from_millis(50)).await;
    }
}

fn start(kubeconfig: &Path, arguments: &[&str]) -> Process {
    let mut program = program(arguments);
    Process(
        program.env("KUBECONFIG", kubeconfig).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap(),
    )
}

/// Asks a process to stop, as a kubelet does.
fn terminate(process: &Process) {
    let killed = Command::new("kill").arg("-TERM").arg(process.0.id().to_string()).status().unwrap();
    assert!(killed.success());
}

/// Waits for a process; returns its exit status, what it printed, and what it logged.
fn ended(mut process: Process) -> (Option<i32>, String, String) {
    let (mut printed, mut log) = (String::new(), String::new());
    process.0.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    process.0.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    (process.0.wait().unwrap().code(), printed, log)
}

/// Stops a process; returns its exit status, and what it logged.
fn stop(process: Process) -> (Option<i32>, String) {
    terminate(&process);
    let (code, _, log) = ended(process);
    (code, log)
}

#[tokio::test]
async fn it_runs_and_says_why_and_stops() {
    let server = ApiServer::http().namespace("default").start().await.unwrap();
    let folder = Folder::empty();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, server.kubeconfig_yaml()).unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let process = start(&kubeconfig, &["--http", &free, "--log-format", "json"]);
    post(&server).await;
    server.eventually::<ConfigMap>("default/a", |page| page.is_some()).await;
    // KIND is written as kubectl reads it.
    for kind in ["Notice", "notices", "notices.board.example.dev"] {
        let why = printed(&["why", kind, "default/b", "--http", &free]);
        assert_eq!(why.lines().count(), 1, "{why}");
        assert!(why.starts_with("notices.board.example.dev is not reconciling default/b: "), "{why}");
    }
    let (code, log) = stop(process);
    assert_eq!(code, Some(0), "{log}");
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().any(|line| line["fields"]["message"] == "stopped"), "{log}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rehearsal_prints_what_would_change_and_writes_nothing() {
    let server = ApiServer::http().namespace("default").start().await.unwrap();
    let folder = Folder::empty();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, server.kubeconfig_yaml()).unwrap();
    // An earlier release has installed the kind.
    let earlier = start(&kubeconfig, &["--http", "off"]);
    post(&server).await;
    server.eventually::<ConfigMap>("default/a", |page| page.is_some()).await;
    let (code, log) = stop(earlier);
    assert_eq!(code, Some(0), "{log}");
    server.delete::<ConfigMap>("default/a").await;
    let rehearsal = start(&kubeconfig, &["rehearse", "--log-format", "json"]);
    let (code, report, log) = ended(rehearsal);
    assert_eq!(code, Some(2), "{report}\n{log}");
    assert!(report.contains("would create 1 configmaps"), "{report}");
    assert_eq!(log, "");
    let maps = Api::<ConfigMap>::namespaced(server.client(), "default");
    assert_eq!(maps.list(&ListParams::default()).await.unwrap().items.len(), 0);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rehearsal_that_a_signal_stops_reports_what_it_has_seen() {
    let server = ApiServer::http().namespace("default").start().await.unwrap();
    let folder = Folder::empty();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, server.kubeconfig_yaml()).unwrap();
    // The kind is not there, and no rehearsal makes it: its cache is never filled.
    let rehearsal = start(&kubeconfig, &["rehearse"]);
    let asked = |path: &str| path.ends_with("/notices");
    let begun = Instant::now();
    while !server.requests().list().iter().any(|one| asked(&one.path) && one.status.is_some()) {
        assert!(begun.elapsed() < PATIENCE);
        sleep(Duration::from_millis(50)).await;
    }
    terminate(&rehearsal);
    let (code, report, log) = ended(rehearsal);
    assert_eq!(code, Some(1), "{report}\n{log}");
    assert!(report.contains("not all was at rest") && report.contains("a signal stopped it"), "{report}");
    server.stop().await;
}
