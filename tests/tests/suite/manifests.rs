//! What `Manager::manifests` prints: a server takes it, the operator works with exactly that, and the forms agree.

use std::collections::BTreeMap;

use http::Request;
use k8s_openapi::api::{
    apps::v1::Deployment, coordination::v1::Lease, core::v1::ConfigMap, core::v1::Secret,
};
use kube::{Api, api::PostParams};
use regex::Regex;
use serde::Deserialize as _;
use serde_json::{Value, json};
use watchkeeper::{
    LeaderElection,
    manager::{Http, Manifests},
    prelude::*,
    webhook::{Change, Defaulter, Policy, Review, Validator, Webhooks},
};
use watchkeeper_apiserver::ApiServer;

/// A book, as the program reads it.
#[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "library.example.dev", version = "v1", kind = "Book", namespaced)]
#[informer(versions(v1alpha1::Book))]
struct BookSpec {
    /// A title, such as "{{ .Values.image }}: yes".
    title: String,
}

mod v1alpha1 {
    use super::*;

    /// A book as it was first.
    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "library.example.dev", version = "v1alpha1", kind = "Book", namespaced)]
    pub(crate) struct BookSpec {
        name: String,
    }

    impl From<Book> for super::Book {
        fn from(Book { metadata, spec }: Book) -> Self {
            Self { metadata, spec: super::BookSpec { title: spec.name } }
        }
    }

    impl From<super::Book> for Book {
        fn from(super::Book { metadata, spec }: super::Book) -> Self {
            Self { metadata, spec: BookSpec { name: spec.title } }
        }
    }
}

struct Rules;

impl Validator<Book> for Rules {
    async fn validate(&self, change: Change<'_, Book>, review: &mut Review) {
        if change.object().spec.title.is_empty() {
            review.field("spec.title").required();
        }
    }
}

impl Validator<Lease> for Rules {
    async fn validate(&self, _: Change<'_, Lease>, review: &mut Review) {
        review.refuse("no Lease is good enough");
    }
}

impl Defaulter<Book> for Rules {
    fn default(&self, _: &mut Book, _: &watchkeeper::webhook::Request) {}
}

/// Keeps a page for every book.
struct Librarian;

impl Reconciler<Book> for Librarian {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, book: Arc<Book>, cx: &Context<Book>) -> Result<Action, Self::Error> {
        let mut page = ConfigMap::default();
        page.metadata.name = Some(book.name_any());
        page.data = Some([("title".to_owned(), book.spec.title.clone())].into());
        cx.apply(page).await?;
        Ok(Action::await_change())
    }
}

/// What all operators here have.
fn idle(manager: Manager) -> Manager {
    manager.kind::<Book>().controller(Controller::new(Librarian).owns::<ConfigMap>())
}

fn webhooks(address: &str) -> Webhooks {
    Webhooks::new(address).defaults::<Book>(Rules).validates::<Book>(Rules).validates::<Lease>(Rules)
}

/// An operator that uses everything; its port is free for the test that runs it.
fn operator(manager: Manager, address: &str) -> Manager {
    let _settings = manager.informer::<Secret>().namespace("settings").lister();
    // Its Lease is in a namespace whose Leases are sent to its webhook.
    let election = LeaderElection::new("books").namespace("settings");
    let short =
        Policy::<Book>::new("titles-are-short").rule("size(object.spec.title) < 99", "the title is too long");
    idle(manager)
        .webhooks(webhooks(address))
        .policy(short)
        .migrate_storage::<Book>()
        .leader_election(election)
}

fn manifests() -> Manifests {
    let manager = operator(Manager::offline("ops"), ":9443");
    manager.manifests().unwrap().name("library").image("registry.example.dev:5000/library:1.2.0")
}

fn documents(text: &str) -> Vec<Value> {
    let documents = serde_yaml_ng::Deserializer::from_str(text);
    documents.map(|one| Value::deserialize(one).unwrap_or_else(|error| panic!("{error}: {text}"))).collect()
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    objects.iter().find(|object| object["kind"] == kind).unwrap_or_else(|| panic!("no {kind}"))
}

/// Where an object of a kind is created.
fn collection(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap().to_ascii_lowercase();
    let resource = kind.strip_suffix('y').map_or_else(|| format!("{kind}s"), |stem| format!("{stem}ies"));
    let version = object["apiVersion"].as_str().unwrap();
    let root = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{root}/namespaces/{namespace}/{resource}"),
        None => format!("{root}/{resource}"),
    }
}

/// Creates all objects, strictly.
async fn create_all(server: &ApiServer, objects: &[Value]) {
    for object in objects {
        let request = Request::post(format!("{}?fieldValidation=Strict", collection(object)))
            .header("content-type", "application/json")
            .body(object.to_string().into_bytes());
        let created = server.client().request::<Value>(request.unwrap()).await;
        created.unwrap_or_else(|error| panic!("{error}: {object:#}"));
    }
}

async fn found(server: &ApiServer, path: &str) -> Value {
    let path = format!("/apis/admissionregistration.k8s.io/v1/{path}/books.library.example.dev-webhooks");
    server.client().request(Request::get(path).body(Vec::new()).unwrap()).await.unwrap()
}

/// The webhooks of a configuration, without the authority that the program fills in.
fn without_authority(mut configuration: Value) -> (Value, bool) {
    let mut had_one = true;
    for webhook in configuration["webhooks"].as_array_mut().unwrap() {
        had_one &= webhook["clientConfig"].as_object_mut().unwrap().remove("caBundle").is_some();
    }
    (configuration["webhooks"].take(), had_one)
}

#[tokio::test(start_paused = true)]
async fn the_operator_works_with_exactly_what_is_printed() {
    let server = ApiServer::in_memory().namespace("settings").rbac().start().await;
    let objects = documents(&manifests().yaml().unwrap());
    create_all(&server, &objects).await;
    let printed = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"];
    let mut before = Vec::new();
    for path in printed {
        before.push(without_authority(found(&server, path).await).0);
    }

    let account = server.client_as("system:serviceaccount:ops:library");
    let send = tower::service_fn(move |request| {
        let account = account.clone();
        async move { account.send(request).await }
    });
    // In the program's own namespace, as in its pod.
    let running = operator(Manager::new(kube::Client::new(send, "ops")), "127.0.0.1:0").spawn();
    server.webhooks(&running);
    tokio::time::sleep(Duration::from_secs(120)).await;
    let books = Api::<v1alpha1::Book>::namespaced(server.client(), "default");
    let old: v1alpha1::Book = serde_json::from_value(json!({
        "apiVersion": "library.example.dev/v1alpha1", "kind": "Book", "metadata": {"name": "emma"},
        "spec": {"name": "Emma"},
    }))
    .unwrap();
    books.create(&PostParams::default(), &old).await.unwrap();
    let titled = |page: &ConfigMap| page.data.as_ref().is_some_and(|data| data["title"] == "Emma");
    server.eventually::<ConfigMap>("default/emma", |page| page.is_some_and(titled)).await;
    // A Lease of another program is refused, and its own one is not.
    let mut lease = Lease::default();
    lease.metadata.name = Some("another".to_owned());
    let leases = Api::<Lease>::namespaced(server.client(), "default");
    let refused = leases.create(&PostParams::default(), &lease).await.unwrap_err();
    assert!(refused.to_string().contains("no Lease is good enough"), "{refused}");
    for (path, before) in printed.iter().zip(before) {
        let (after, had_one) = without_authority(found(&server, path).await);
        assert_eq!((after, had_one), (before, true), "{path}: as the manager writes it");
    }
    let requests = server.requests().list();
    let own = requests.iter().filter(|one| one.user == "system:serviceaccount:ops:library");
    let forbidden: Vec<_> = own.filter(|one| one.status == Some(403)).collect();
    assert!(forbidden.is_empty(), "{forbidden:#?}");
    running.stop().await.unwrap();
}

#[tokio::test]
async fn what_is_printed_is_whole_and_the_same_each_time() {
    let text = manifests().yaml().unwrap();
    assert_eq!(text, manifests().yaml().unwrap());
    let objects = documents(&text);
    let kinds: Vec<&str> = objects.iter().map(|object| object["kind"].as_str().unwrap()).collect();
    let wanted = [
        "Namespace",
        "CustomResourceDefinition",
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
        "Role",
        "RoleBinding",
        "Service",
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "Deployment",
    ];
    assert_eq!(kinds, wanted);
    // The labels of a namespace that is not the program's own stay as they are.
    let shared = Manager::offline("default").controller(Controller::new(Pages)).manifests().unwrap();
    assert!(!shared.yaml().unwrap().contains("kind: Namespace\n"));
    let versions = of_kind(&objects, "CustomResourceDefinition")["spec"]["versions"].as_array().unwrap();
    assert_eq!(versions.len(), 2);
    let service = of_kind(&objects, "Service");
    let validating = of_kind(&objects, "ValidatingWebhookConfiguration");
    for webhook in validating["webhooks"].as_array().unwrap() {
        let client = &webhook["clientConfig"];
        assert_eq!(client["service"]["name"], service["metadata"]["name"]);
        assert_eq!(client["service"]["port"], service["spec"]["ports"][0]["port"]);
        assert_eq!(client.get("caBundle"), None);
        let own = &webhook["namespaceSelector"]["matchExpressions"][0];
        assert_eq!((&own["operator"], &own["values"]), (&json!("NotIn"), &json!(["ops"])));
    }
    let deployment = &of_kind(&objects, "Deployment")["spec"];
    assert_eq!(deployment["replicas"], 2);
    assert_eq!(deployment["strategy"]["rollingUpdate"]["maxUnavailable"], 0);
    let pod = &deployment["template"]["spec"];
    assert_eq!(service["spec"]["selector"], deployment["template"]["metadata"]["labels"]);
    let (container, grace) = (&pod["containers"][0], &pod["terminationGracePeriodSeconds"]);
    let ports = json!([{"name": "http", "containerPort": 8080}, {"name": "webhooks", "containerPort": 9443}]);
    assert_eq!((grace, &container["ports"]), (&json!(40), &ports));
    assert_eq!(container["image"], "registry.example.dev:5000/library:1.2.0");
    // What the restricted pod security standard asks for.
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    assert_eq!(container["securityContext"]["capabilities"]["drop"], json!(["ALL"]));
}

#[tokio::test]
async fn a_kustomization_has_the_same_objects() {
    let (plain, files) = (manifests().yaml().unwrap(), manifests().kustomize().unwrap());
    let listed = documents(&files["kustomization.yaml"]).remove(0)["resources"].clone();
    let listed: Vec<String> = serde_json::from_value(listed).unwrap();
    assert_eq!(listed.len() + 1, files.len(), "{listed:?}");
    let objects: Vec<Value> = listed.iter().flat_map(|file| documents(&files[file])).collect();
    assert_eq!(objects, documents(&plain));
}

/// Fills in a template as Helm does, and knows no expression but those that the chart has.
fn rendered(template: &str, values: &Value) -> String {
    let expression = Regex::new(r"\{\{ (.*?) \}\}").unwrap();
    let filled = expression.replace_all(template, |found: &regex::Captures<'_>| {
        let (expression, is_json) = match found[1].strip_prefix("toJson ") {
            Some(expression) => (expression, true),
            None => (&found[1], false),
        };
        let value = match expression {
            "\"{{\"" => return "{{".to_owned(),
            ".Release.Namespace" => json!("ops"),
            path => {
                let path = path.strip_prefix(".Values").unwrap_or_else(|| panic!("unknown: {path}"));
                values.pointer(&path.replace('.', "/")).unwrap_or_else(|| panic!("no value: {path}")).clone()
            }
        };
        match value {
            Value::String(text) if !is_json => text,
            value => value.to_string(),
        }
    });
    filled.into_owned()
}

/// Leaves out what is empty, and means the same as nothing.
fn pruned(value: &Value) -> Value {
    let is_empty = |value: &Value| *value == json!({}) || *value == json!([]);
    match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), pruned(value)))
            .filter(|(_, value)| !is_empty(value))
            .collect(),
        Value::Array(values) => values.iter().map(pruned).collect(),
        other => other.clone(),
    }
}

#[tokio::test]
async fn a_chart_with_its_defaults_is_what_is_printed_plainly() {
    let manifests = manifests().version("1.2.0");
    let files = manifests.helm().unwrap();
    let values = documents(&files["values.yaml"]).remove(0);
    let chart = documents(&files["Chart.yaml"]).remove(0);
    assert_eq!((&chart["name"], &chart["version"]), (&json!("library"), &json!("1.2.0")));
    let mut made: BTreeMap<String, Value> = BTreeMap::new();
    let name = |object: &Value| {
        let metadata = &object["metadata"];
        format!("{} {} {}", object["kind"], metadata["namespace"], metadata["name"])
    };
    for (path, text) in &files {
        let text = match path.split_once('/') {
            Some(("templates", _)) => rendered(text, &values),
            Some(("crds", _)) => text.clone(),
            _ => continue,
        };
        made.extend(documents(&text).iter().map(|object| (name(object), pruned(object))));
    }
    let mut wanted: BTreeMap<String, Value> = BTreeMap::new();
    for mut object in documents(&manifests.yaml().unwrap()) {
        if object["kind"].as_str().unwrap().ends_with("WebhookConfiguration") {
            // The program writes these, and Helm must not undo that.
            assert!(!object["webhooks"].take().as_array().unwrap().is_empty());
            object.as_object_mut().unwrap().remove("webhooks");
        }
        if object["kind"] != "Namespace" {
            wanted.insert(name(&object), pruned(&object));
        }
    }
    assert_eq!(made, wanted);
}

#[tokio::test]
async fn a_deployment_fits_its_program() {
    let spec = |manager: Manager| {
        let objects = documents(&manager.manifests().unwrap().yaml().unwrap());
        of_kind(&objects, "Deployment")["spec"].clone()
    };
    let versioned = |webhooks: Webhooks| idle(Manager::offline("ops")).webhooks(webhooks);
    // Nobody elects a leader: two at once would do the same work twice.
    let maps = || Controller::new(Pages);
    let alone = spec(Manager::offline("ops").controller(maps()));
    assert_eq!((&alone["replicas"], &alone["strategy"]), (&json!(1), &json!({"type": "Recreate"})));
    let container = &alone["template"]["spec"]["containers"][0];
    assert_eq!(
        container["readinessProbe"]["httpGet"],
        json!({"path": "/readyz", "port": "http", "scheme": "HTTP"})
    );
    assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/healthz");
    // A replica that shares the work looks on for a lease duration first. The old ones stay until it takes part.
    let shared = spec(Manager::offline("ops").sharded("maps").controller(maps()));
    let rolling = &shared["strategy"]["rollingUpdate"]["maxUnavailable"];
    assert_eq!(
        (&shared["replicas"], rolling, &shared["minReadySeconds"]),
        (&json!(2), &json!(0), &json!(20))
    );
    assert_eq!(alone.get("minReadySeconds"), None);
    // But somebody must answer webhooks.
    assert_eq!(spec(versioned(webhooks(":9443")))["strategy"]["rollingUpdate"]["maxUnavailable"], 0);
    let silent = spec(Manager::offline("ops").controller(maps()).http(Http::off()));
    let container = &silent["template"]["spec"]["containers"][0];
    assert_eq!((container.get("ports"), container.get("livenessProbe")), (None, None));
    let slow = Manager::offline("ops").controller(maps()).grace_period(Duration::from_secs(90));
    assert_eq!(spec(slow)["template"]["spec"]["terminationGracePeriodSeconds"], 100);

    let http = Http::on(":8443").tls("/http/tls.crt", "/http/tls.key");
    let files = webhooks(":9443").files("/hooks").injected_from("ops", "books");
    let manager = versioned(files).http(http);
    let objects = documents(&manager.manifests().unwrap().name("library").yaml().unwrap());
    let pod = &of_kind(&objects, "Deployment")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(container["readinessProbe"]["httpGet"]["scheme"], "HTTPS");
    let volumes = json!([{"name": "tls-0", "secret": {"secretName": "books"}},
        {"name": "tls-1", "secret": {"secretName": "library-http-tls"}}]);
    let mounts = json!([{"name": "tls-0", "mountPath": "/hooks", "readOnly": true},
        {"name": "tls-1", "mountPath": "/http", "readOnly": true}]);
    assert_eq!((&pod["volumes"], &container["volumeMounts"]), (&volumes, &mounts));
    for kind in ["CustomResourceDefinition", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]
    {
        let annotations = &of_kind(&objects, kind)["metadata"]["annotations"];
        assert_eq!(annotations["cert-manager.io/inject-ca-from"], "ops/books", "{kind}");
    }
}

/// Reconciles a built-in kind.
struct Pages;

impl Reconciler<Deployment> for Pages {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, _: Arc<Deployment>, _: &Context<Deployment>) -> Result<Action, Self::Error> {
        Ok(Action::await_change())
    }
}

#[tokio::test]
async fn what_can_t_be_printed_is_named_with_the_remedy() {
    let plain = |namespace: &str| Manager::offline(namespace).controller(Controller::new(Pages));
    let with = |webhooks: Webhooks| idle(Manager::offline("ops")).webhooks(webhooks);
    let named = Controller::new(Librarian).named("Books of the house");
    let named = Manager::offline("ops").kind::<Book>().controller(named).webhooks(webhooks(":9443"));
    let printed = |manager: Manager| manager.manifests().and_then(|manifests| manifests.yaml());
    let chosen = |choose: fn(Manifests) -> Manifests| {
        choose(plain("ops").manifests().unwrap()).helm().map(|_| String::new())
    };
    for (answer, wanted) in [
        (printed(plain("Ops")), "\"Ops\" can't be a namespace: use a-z, 0-9 and '-', 63 at most"),
        (
            chosen(|one| one.name("a.b")),
            "\"a.b\" can't be the program's name: use a-z, 0-9 and '-', 63 at most",
        ),
        (
            chosen(|one| one.image("a b")),
            "\"a b\" is not an image: write it as registry.example.dev/deployments:1.0.0",
        ),
        (
            chosen(|one| one.image("a:")),
            "\"a:\" is not an image: write it as registry.example.dev/deployments:1.0.0",
        ),
        (chosen(|one| one.version("1")), "\"1\" is not a version: write it as 1.2.3"),
        (
            chosen(|one| one.replicas(3)),
            "3 replicas would all do the same work: add `.leader_election(..)` or `.sharded(..)`",
        ),
        (
            printed(with(webhooks(":9443").service("other", "hooks"))),
            "the Service other/hooks of the webhooks is not in the program's namespace ops, so that it leads nowhere: \
             print the manifests for other, or leave `Webhooks::service` out",
        ),
        (
            printed(with(webhooks("127.0.0.1:0"))),
            "the address \"127.0.0.1:0\" has no fixed port: write it as :8080 or 0.0.0.0:8080",
        ),
        (
            chosen_name(named),
            "\"Books of the house-webhooks\" can't be the name of a Service: choose another by `Webhooks::service`",
        ),
    ] {
        let error = format!("{:?}", answer.unwrap_err());
        assert_eq!(error, format!("the manifests can't be made: {wanted}"));
    }
    let error = idle(Manager::offline("ops")).manifests().unwrap_err();
    assert!(format!("{error:?}").ends_with("nothing converts them: add `.webhooks(..)`"), "{error:?}");
    let secrets = Api::<Secret>::default_namespaced(plain("ops").client().clone());
    let error = secrets.get("a").await.unwrap_err();
    assert!(error.to_string().contains("it was made by `Manager::offline`"), "{error}");
}

#[tokio::test]
async fn what_belongs_to_webhooks_is_named_as_they_are_whatever_the_first_controller_is_called() {
    let named = |controller: &str| {
        let webhooks = webhooks(":9443").named("library.example.dev");
        let first = Controller::new(Pages).named(controller);
        let manager = Manager::offline("ops").controller(first).webhooks(webhooks);
        (manager.manifests().unwrap().name("books").yaml().unwrap(), manager.rules().to_string())
    };
    for controller in ["books", "Other books"] {
        let (manifests, rules) = named(controller);
        for name in ["name: library.example.dev-webhooks", "name: library-webhooks"] {
            assert!(manifests.contains(name), "{name}: {manifests}");
        }
        assert!(rules.contains("library.example.dev-webhooks"), "{rules}");
    }
}

#[tokio::test(start_paused = true)]
async fn webhooks_whose_name_no_object_can_have_end_the_start_with_the_remedy() {
    let server = ApiServer::in_memory().namespace("ops").start().await;
    let webhooks = webhooks("127.0.0.1:0").named("Books of the house");
    let running = idle(Manager::new(server.client())).webhooks(webhooks).spawn();
    let error = running.stop().await.unwrap_err().to_string();
    assert!(error.contains("Books of the house") && error.contains("`Webhooks::named`"), "{error}");
}

fn chosen_name(manager: Manager) -> Result<String, watchkeeper::Error> {
    manager.manifests()?.name("books").yaml()
}
