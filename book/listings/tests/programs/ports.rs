//! The two published operators that the book ports, each as a process of its own, used through kubectl.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use tokio::time::{Instant, sleep};
use watchkeeper_apiserver::ApiServer;

use super::{
    kubectl::kubectls,
    printed::{Folder, Process},
    repository::{self, root, target},
};

/// How long the operator may take: a job is due each minute.
const PATIENCE: Duration = Duration::from_secs(75);

const DOCUMENT: &str = "{apiVersion: kube.rs/v1, kind: Document, metadata: {name: NAME}, \
    spec: {title: A, hide: true, content: B}}";
const CRON_JOB: &str = "{apiVersion: batch.tutorial.kubebuilder.io/VERSION, kind: CronJob, metadata: {name: NAME}, \
    spec: {schedule: SCHEDULE, jobTemplate: {spec: {template: {spec: {restartPolicy: OnFailure, \
    containers: [{name: a, image: b}]}}}}}}";

/// A shell with a kubectl that talks to the server of the test.
struct Shell<'a> {
    kubectl: &'a Path,
    kubeconfig: PathBuf,
    cache: PathBuf,
}

impl Shell<'_> {
    /// Types a line again and again, until what it prints contains a text.
    async fn types(&self, typed: &str, wanted: &str) {
        let begun = Instant::now();
        loop {
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("exec 2>&1\n{typed}")]).stdin(Stdio::null());
            shell.env("KUBECONFIG", &self.kubeconfig).env("KUBECACHEDIR", &self.cache);
            let first = self.kubectl.parent().map(PathBuf::from);
            let path = env::var_os("PATH").unwrap_or_default();
            shell.env("PATH", env::join_paths(first.into_iter().chain(env::split_paths(&path))).unwrap());
            let came = String::from_utf8(shell.output().unwrap().stdout).unwrap();
            if came.contains(wanted) {
                println!("  {:5.2} s  $ {typed}\n{}", begun.elapsed().as_secs_f32(), came.trim_end());
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "$ {typed}\nwanted: {wanted}\nit brings: {came}");
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Applies an object.
    async fn applies(&self, object: &str, wanted: &str) {
        self.types(&format!("echo '{object}' | kubectl apply -f -"), wanted).await;
    }

    /// Starts an operator; its log goes to a file.
    fn starts(&self, program: &mut Command, log: &Path) -> Process {
        program.env("KUBECONFIG", &self.kubeconfig).args(["--http", "off"]).stdin(Stdio::null());
        Process(program.stderr(fs::File::create(log).unwrap()).spawn().unwrap())
    }
}

/// Names the lines of a log that are worse than information. The program installs its CRD while it starts to watch.
fn complaints(log: &Path) -> Vec<String> {
    let log = fs::read_to_string(log).unwrap();
    let worse = |line: &&str| line.contains(" WARN ") || line.contains("ERROR");
    let worse = log
        .lines()
        .filter(worse)
        .filter(|line| !line.contains("is not served: install its CRD; trying again"));
    worse.map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds an example, and needs a kubectl"]
async fn both_ports_do_what_the_published_operators_do() {
    let Some(kubectl) = kubectls().pop() else {
        println!("ports: NOT RUN, there is no kubectl on the PATH, nor in $WATCHKEEPER_KUBE_APISERVER");
        return;
    };
    let mut cargo = repository::cargo(&root());
    let built = cargo.args(["build", "--quiet", "--example", "cronjob"]).status().unwrap();
    assert!(built.success());
    let server = ApiServer::http().namespace("default").start().await.unwrap();
    let folder = Folder::empty();
    let (kubeconfig, cache) = (folder.path().join("kubeconfig"), folder.path().join("cache"));
    fs::write(&kubeconfig, server.kubeconfig_yaml()).unwrap();
    let shell = Shell { kubectl: &kubectl, kubeconfig, cache };

    println!("controller-rs");
    let log = folder.path().join("documents.log");
    let running = shell.starts(&mut Command::new(env!("CARGO_BIN_EXE_documents")), &log);
    shell.applies(&DOCUMENT.replace("NAME", "samuel"), "document.kube.rs/samuel created").await;
    shell.types("kubectl get document samuel -o jsonpath='{.status.hidden}'", "true").await;
    shell.types("kubectl get events", "Hiding `samuel`").await;
    shell.types("kubectl delete document samuel", "\"samuel\" deleted").await;
    shell.types("kubectl get events", "Delete `samuel`").await;
    shell.types("kubectl get documents", "No resources found").await;
    assert_eq!(complaints(&log), [""; 0]);
    shell.applies(&DOCUMENT.replace("NAME", "illegal"), "document.kube.rs/illegal created").await;
    shell.types(&format!("cat {}", log.display()), "the document is illegal").await;
    drop(running);

    println!("CronJob");
    let log = folder.path().join("cronjob.log");
    let mut program = Command::new(target().join("debug/examples/cronjob"));
    program.env("WEBHOOKS_URL", "https://127.0.0.1:9443");
    let _running = shell.starts(&mut program, &log);
    let cron_job = |version: &str, name: &str, schedule: &str| {
        let object = CRON_JOB.replace("VERSION", version).replace("NAME", name);
        object.replace("SCHEDULE", schedule)
    };
    // Until the webhooks are known to the server, it would take this.
    let words = cron_job("v1", "words", "\"every day\"");
    let typed = format!("echo '{words}' | kubectl apply --dry-run=server -f -");
    shell.types(&typed, "has 2 fields; it needs five: minute, hour, day").await;
    shell.applies(&cron_job("v2", "report", "{minute: \"*/1\"}"), "report created").await;
    shell
        .types(
            "kubectl get cronjobs.v1.batch.tutorial.kubebuilder.io report -o jsonpath='{.spec.schedule}'",
            "*/1 * * * *",
        )
        .await;
    shell.types("kubectl get jobs", "report-").await;
    shell.types("kubectl delete cronjobs.batch.tutorial.kubebuilder.io report", "\"report\" deleted").await;
    shell.types("kubectl get jobs", "No resources found").await;
    assert_eq!(complaints(&log), [""; 0]);
    server.stop().await;
}
