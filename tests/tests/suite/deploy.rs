//! The manifests of `examples/deploy`: a server takes them, they fit together, and what they ask of metrics exists.

use std::{
    collections::BTreeSet,
    fs,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use http::Request;
use regex::Regex;
use serde::Deserialize as _;
use serde_json::{Value, json};
use watchkeeper_apiserver::ApiServer;
use watchkeeper_tests::exposition::families;

use crate::metrics::everything;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/deploy").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn documents(path: &str) -> Vec<Value> {
    let text = read(path);
    let documents = serde_yaml_ng::Deserializer::from_str(&text);
    documents
        .map(|document| Value::deserialize(document).unwrap_or_else(|error| panic!("{path}: {error}")))
        .collect()
}

/// Every manifest that the kustomization lists, in its order.
fn manifests() -> Vec<(String, Value)> {
    let listed = documents("kustomization.yaml").remove(0)["resources"].as_array().unwrap().clone();
    let files = listed.into_iter().map(|file| file.as_str().unwrap().to_owned());
    files
        .flat_map(|file| documents(&file).into_iter().map(move |document| (file.clone(), document)))
        .collect()
}

fn kind<'a>(manifests: &'a [(String, Value)], kind: &str) -> &'a Value {
    let found = manifests.iter().find(|(_, document)| document["kind"] == kind);
    &found.unwrap_or_else(|| panic!("no {kind}")).1
}

/// Where an object of a kind is created.
fn collection(object: &Value) -> String {
    let resource = match object["kind"].as_str().unwrap() {
        "NetworkPolicy" => "networkpolicies".to_owned(),
        other => format!("{}s", other.to_ascii_lowercase()),
    };
    let version = object["apiVersion"].as_str().unwrap();
    let root = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{root}/namespaces/{namespace}/{resource}"),
        None => format!("{root}/{resource}"),
    }
}

// P7
#[tokio::test(start_paused = true)]
async fn a_server_takes_every_manifest_as_it_is() {
    let server = ApiServer::in_memory().start().await;
    let client = server.client();
    let (mut taken, mut not_served) = (BTreeSet::new(), BTreeSet::new());
    for (file, object) in manifests() {
        // Strict: a field that the kind does not have is an error.
        let uri = format!("{}?fieldValidation=Strict", collection(&object));
        let request = Request::post(uri).header("content-type", "application/json");
        let request = request.body(object.to_string().into_bytes()).unwrap();
        let kind = object["kind"].as_str().unwrap().to_owned();
        match client.request::<Value>(request).await {
            Ok(_) => drop(taken.insert(kind)),
            Err(kube::Error::Api(status)) if status.code == 404 => drop(not_served.insert(kind)),
            Err(error) => panic!("{file}: {error}"),
        }
    }
    for kind in [
        "Namespace",
        "ServiceAccount",
        "ClusterRole",
        "Role",
        "ClusterRoleBinding",
        "RoleBinding",
        "Deployment",
    ] {
        assert!(taken.contains(kind), "{kind}: {not_served:?}");
    }
}

// P7
#[test]
fn the_manifests_fit_together() {
    let manifests = manifests();
    let deployment = &kind(&manifests, "Deployment")["spec"];
    let (pod, labels) = (&deployment["template"]["spec"], &deployment["template"]["metadata"]["labels"]);
    assert_eq!(deployment["replicas"], 2);
    let selectors = [
        &deployment["selector"]["matchLabels"],
        &kind(&manifests, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        &kind(&manifests, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        &kind(&manifests, "Service")["spec"]["selector"],
    ];
    assert!(selectors.iter().all(|selector| *selector == labels), "{selectors:?}");
    let service_account = &kind(&manifests, "ServiceAccount")["metadata"];
    assert_eq!(pod["serviceAccountName"], service_account["name"]);
    for (bound, to) in [("ClusterRoleBinding", "ClusterRole"), ("RoleBinding", "Role")] {
        let binding = kind(&manifests, bound);
        assert_eq!(binding["roleRef"]["kind"], to);
        assert_eq!(binding["roleRef"]["name"], kind(&manifests, to)["metadata"]["name"]);
        assert_eq!(binding["subjects"][0]["name"], service_account["name"]);
        assert_eq!(binding["subjects"][0]["namespace"], service_account["namespace"]);
    }
    let container = &pod["containers"][0];
    for (probe, path) in [("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")] {
        assert_eq!(container[probe]["httpGet"], json!({ "path": path, "port": "http" }));
    }
    assert_eq!(container["ports"], json!([{ "name": "http", "containerPort": 8080 }]));
    // The image's entry point serves HTTP only with this argument.
    assert_eq!(container["args"], json!(["--http", ":8080"]));
    // What the restricted pod security standard asks for.
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
    assert_eq!(container["securityContext"]["capabilities"]["drop"], json!(["ALL"]));
    let namespace = &kind(&manifests, "Namespace")["metadata"];
    assert_eq!(namespace["labels"]["pod-security.kubernetes.io/enforce"], "restricted");
    let elsewhere = manifests.iter().map(|(_, document)| &document["metadata"]["namespace"]);
    assert!(elsewhere.filter(|one| one.is_string()).all(|one| *one == namespace["name"]));
}

/// A file of the template, for an operator named `op`.
fn of_the_template(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../template").join(path);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.replace("{{project-name}}", "op")
}

// P7
#[test]
fn the_template_pins_what_it_runs() {
    let (dockerfile, workflow) =
        (of_the_template("Dockerfile"), of_the_template(".github/workflows/ci.yaml"));
    let images: Vec<&str> = dockerfile.lines().filter_map(|line| line.strip_prefix("FROM ")).collect();
    let is_pinned = Regex::new(r"^[^ ]+(@sha256:[0-9a-f]{64}|:\d+\.\d+\.\d+[^ ]*)( AS \w+)?$").unwrap();
    assert!(images.len() == 2 && images.iter().all(|image| is_pinned.is_match(image)), "{images:?}");
    let is_pinned = Regex::new(r"@[0-9a-f]{40} # v\d").unwrap();
    let actions: Vec<&str> = workflow.lines().filter(|line| line.contains("uses: ")).collect();
    assert!(!actions.is_empty() && actions.iter().all(|action| is_pinned.is_match(action)), "{actions:?}");
}

/// The crates of a program with their features, as a build has them.
fn crates(program: &Path, edges: &str) -> BTreeSet<String> {
    let args = ["tree", "--offline", "--edges", edges, "--prefix", "none", "--format", "{p} [{f}]"];
    let output = Command::new(env!("CARGO")).args(args).current_dir(program).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
}

// P7
#[test]
fn a_test_of_the_template_builds_no_crate_again_that_its_build_has_built() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let program = std::env::temp_dir().join(format!("watchkeeper-template-{}", std::process::id()));
    fs::create_dir_all(program.join("src")).unwrap();
    fs::write(program.join("src/main.rs"), "fn main() {}").unwrap();
    fs::copy(root.join("Cargo.lock"), program.join("Cargo.lock")).unwrap();
    let root = root.canonicalize().unwrap();
    let here =
        |(name, folder): (&str, &str)| format!("{name} = {{ path = \"{}/{folder}\" }}\n", root.display());
    let crates_here = [
        ("watchkeeper", "runtime"),
        ("watchkeeper-apiserver", "apiserver"),
        ("watchkeeper-macros", "macros"),
    ];
    // Without a network: the crates here, in place of the repository.
    let git = "git = \"https://github.com/watchkeeper/watchkeeper\"";
    let manifest = of_the_template("Cargo.toml").replace(git, "version = \"0.1\"");
    let patched: String = crates_here.map(here).concat();
    fs::write(program.join("Cargo.toml"), format!("{manifest}\n[patch.crates-io]\n{patched}")).unwrap();
    let (built, tested) = (crates(&program, "no-dev"), crates(&program, "normal,build,dev"));
    fs::remove_dir_all(&program).unwrap();
    let again: Vec<&String> = built.difference(&tested).collect();
    assert!(built.len() > 100 && again.is_empty(), "{} crates, built again: {again:#?}", built.len());
}

/// The expressions of the rules and of the dashboard, with where each stands.
fn expressions() -> Vec<(String, String)> {
    fn collect(value: &Value, place: &str, found: &mut Vec<(String, String)>) {
        match value {
            Value::Object(fields) => {
                let title = ["alert", "title"].into_iter().find_map(|name| fields.get(name)?.as_str());
                let place = title.map_or_else(|| place.to_owned(), |title| format!("{place}: {title}"));
                for (name, value) in fields {
                    match (name.as_str(), value) {
                        ("expr", Value::String(expression)) => {
                            found.push((place.clone(), expression.clone()))
                        }
                        _ => collect(value, &place, found),
                    }
                }
            }
            Value::Array(values) => values.iter().for_each(|value| collect(value, place, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    collect(&documents("monitoring/rules.yaml")[0], "rules", &mut found);
    collect(&serde_json::from_str(&read("monitoring/dashboard.json")).unwrap(), "dashboard", &mut found);
    found
}

// P3
#[tokio::test(start_paused = true)]
async fn every_metric_and_label_that_rules_and_dashboard_ask_for_exists() {
    let shown = families(&everything().await);
    let selector = Regex::new(r"([a-z_]+)\{([^}]*)\}").unwrap();
    let grouped = Regex::new(r"by \(([a-z_, ]+)\)").unwrap();
    // What Prometheus adds to a target's samples.
    let added = ["namespace", "pod", "job", "instance", "le"];
    let (mut asked, mut expressions_seen) = (BTreeSet::new(), 0);
    for (place, expression) in expressions() {
        expressions_seen += 1;
        let mut labels: BTreeSet<String> = added.map(str::to_owned).into();
        for found in selector.captures_iter(&expression) {
            let name = &found[1];
            let family = ["", "_bucket", "_count", "_sum"]
                .into_iter()
                .find_map(|suffix| shown.get(name.strip_suffix(suffix)?))
                .unwrap_or_else(|| panic!("{place}: unknown metric {name}"));
            labels.extend(family.labels.iter().cloned());
            for matcher in found[2].split(',') {
                let label = matcher.split(['=', '!', '~']).next().unwrap().trim();
                assert!(labels.contains(label), "{place}: {name} has no label {label}");
            }
            asked.insert(name.to_owned());
        }
        for found in grouped.captures_iter(&expression) {
            for label in found[1].split(',').map(str::trim) {
                assert!(labels.contains(label), "{place}: nothing has a label {label}: {expression}");
            }
        }
        assert!(selector.is_match(&expression), "{place}: {expression} asks for nothing");
    }
    assert!(
        expressions_seen > 30 && asked.len() > 20,
        "{expressions_seen} expressions, {} metrics",
        asked.len()
    );
}

// P7
#[test]
#[ignore = "builds a Go program, for a minute or more"]
fn prometheus_reads_the_alert_rules() {
    let rules = documents("monitoring/rules.yaml").remove(0)["spec"].clone();
    let judged = |rules: &Value| {
        let mut command = Command::new("go");
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("controller-runtime/promrules");
        let child =
            command.args(["run", "."]).current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = child.spawn().unwrap();
        child.stdin.take().unwrap().write_all(rules.to_string().as_bytes()).unwrap();
        let done = child.wait_with_output().unwrap();
        (done.status.success(), String::from_utf8(done.stdout).unwrap())
    };
    let count = rules["groups"][0]["rules"].as_array().unwrap().len();
    assert_eq!(judged(&rules), (true, format!("rules: {count}\n")));
    // A judge that takes anything proves nothing.
    for (field, wrong) in [("expr", "sum by (name"), ("for", "soon"), ("severty", "high")] {
        let mut rules = rules.clone();
        rules["groups"][0]["rules"][0][field] = wrong.into();
        let (taken, said) = judged(&rules);
        assert!(!taken && !said.is_empty(), "{field}: {said}");
    }
}
