//! A program that owns its API: it installs, validates, completes, converts and migrates its own kind, in one process.

use k8s_openapi::{
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        apps::v1::Deployment,
        core::v1::Secret,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use watchkeeper::{
    Running,
    metrics::Metrics,
    prelude::*,
    webhook::{Calls, Change, Defaulter, Request, Review, Validator, Webhooks},
};
use watchkeeper_apiserver::{ApiServer, Fault, Verb};
use watchkeeper_tests::exposition::sum;

/// A stall on a market, as the program reads it.
#[derive(CustomResource, Informer, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(group = "market.example.dev", version = "v1", kind = "Stall", namespaced)]
#[informer(versions(v1alpha1::Stall))]
struct StallSpec {
    #[informer(index)]
    #[serde(default)]
    goods: String,
    places: Places,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Places {
    least: i32,
    most: i32,
}

mod v1alpha1 {
    use super::*;

    /// A stall as it was first.
    #[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "market.example.dev", version = "v1alpha1", kind = "Stall", namespaced)]
    pub(crate) struct StallSpec {
        #[serde(default)]
        pub(crate) goods: String,
        pub(crate) places: i32,
    }

    impl From<Stall> for super::Stall {
        fn from(Stall { metadata, spec }: Stall) -> Self {
            let places = Places { least: spec.places, most: spec.places };
            Self { metadata, spec: super::StallSpec { goods: spec.goods, places, note: None } }
        }
    }

    impl From<super::Stall> for Stall {
        fn from(super::Stall { metadata, spec }: super::Stall) -> Self {
            Self { metadata, spec: StallSpec { goods: spec.goods, places: spec.places.least } }
        }
    }
}

mod later {
    use super::*;

    /// A stall in a later release, which has dropped the old version.
    #[derive(CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "market.example.dev", version = "v1", kind = "Stall", namespaced)]
    pub(crate) struct StallSpec {
        pub(crate) goods: String,
        places: Places,
    }
}

/// Each stall has goods of its own, for good.
struct Rules(StallLister);

impl Validator<Stall> for Rules {
    async fn validate(&self, change: Change<'_, Stall>, review: &mut Review) {
        let stall = change.object();
        if let Change::Delete { .. } = change {
            return if stall.spec.note.is_some() {
                review.refuse("it has a note")
            };
        }
        if change.old().is_some_and(|old| old.spec.goods != stall.spec.goods) {
            review.field("spec.goods").forbidden("is immutable");
        }
        if self.0.by_goods(&stall.spec.goods).iter().any(|other| other.name() != stall.name()) {
            review.field("spec.goods").duplicate(&stall.spec.goods);
        }
        if stall.spec.places.most > 100 {
            review.warn("that is a large stall");
        }
    }
}

struct Usual;

impl Defaulter<Stall> for Usual {
    fn default(&self, stall: &mut Stall, _: &Request) {
        if stall.spec.goods.is_empty() {
            stall.spec.goods = "bread".to_owned();
        }
    }
}

/// The name of the configurations and of the Secret.
const OWN: &str = "stalls.market.example.dev-webhooks";

struct Idle;

impl Reconciler<Stall> for Idle {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, _: Arc<Stall>, _: &Context<Stall>) -> Result<Action, Self::Error> {
        Ok(Action::await_change())
    }
}

fn program(client: kube::Client, webhooks: Webhooks) -> Running {
    program_of(Manager::new(client), webhooks)
}

fn program_of(manager: Manager, webhooks: Webhooks) -> Running {
    let rules = Rules(manager.lister::<Stall>());
    let webhooks = webhooks.defaults::<Stall>(Usual).validates_with::<Stall>(Calls::new().deletions(), rules);
    manager
        .kind::<Stall>()
        .webhooks(webhooks)
        .migrate_storage::<Stall>()
        .controller(Controller::new(Idle))
        .spawn()
}

/// Starts the program in the server's own process.
fn inside(server: &ApiServer) -> Running {
    counted(server).0
}

/// The same, with the program's metrics.
fn counted(server: &ApiServer) -> (Running, Metrics) {
    let manager = Manager::new(server.client());
    let metrics = manager.metrics();
    let running = program_of(manager, Webhooks::new("127.0.0.1:0").service("ops", "market"));
    server.webhooks(&running);
    (running, metrics)
}

fn old_stall(name: &str, goods: &str) -> v1alpha1::Stall {
    v1alpha1::Stall::new(name, v1alpha1::StallSpec { goods: goods.to_owned(), places: 3 })
}

fn stall(name: &str, goods: &str) -> Stall {
    let places = Places { least: 1, most: 9 };
    Stall::new(name, StallSpec { goods: goods.to_owned(), places, note: Some("by the door".to_owned()) })
}

/// Unwraps a refusal: its code and its message.
fn refused<T: std::fmt::Debug>(answer: Result<T, kube::Error>) -> (u16, String) {
    match answer {
        Err(kube::Error::Api(status)) => (status.code, status.message.clone()),
        other => panic!("{other:?}"),
    }
}

// The cache needs the conversion, and the validator needs the cache.
#[tokio::test(start_paused = true)]
async fn a_program_owns_its_kind_from_a_cold_start() {
    let server = ApiServer::in_memory().crd::<v1alpha1::Stall>().namespace("ops").start().await;
    let old = Api::<v1alpha1::Stall>::namespaced(server.client(), "default");
    old.create(&PostParams::default(), &old_stall("first", "fish")).await.unwrap();
    let running = inside(&server);
    let cache = running.informer::<Stall>().build();
    cache.wait_for_sync(Duration::from_secs(60)).await.unwrap();
    let places = Places { least: 3, most: 3 };
    let first = running.lister::<Stall>().get(&ObjectKey::new("default", "first")).unwrap();
    assert_eq!(first.spec, StallSpec { goods: "fish".to_owned(), places, note: None });

    // Defaults and rules.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let new = Api::<Stall>::namespaced(server.client(), "default");
    let made = new.create(&PostParams::default(), &stall("second", "")).await.unwrap();
    assert_eq!(made.spec.goods, "bread");
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (code, why) = refused(old.create(&PostParams::default(), &old_stall("third", "fish")).await);
    assert_eq!(code, 422);
    assert_eq!(
        why,
        "admission webhook \"validates.stalls.market.example.dev\" denied the request: Stall.market.example.dev \
         \"third\" is invalid: spec.goods: Duplicate value: \"fish\""
    );
    let moved = json!({"spec": {"goods": "cheese"}});
    let (code, why) = refused(new.patch("second", &PatchParams::default(), &Patch::Merge(moved)).await);
    assert!(code == 422 && why.ends_with("spec.goods: Forbidden: is immutable"), "{why}");
    let (code, why) = refused(new.delete("second", &DeleteParams::default()).await.map(|_| ()));
    assert!(code == 403 && why.contains("it has a note"), "{why}");

    // An old client changes what it knows, and the rest stays.
    let mut read = old.get("second").await.unwrap();
    assert_eq!(read.spec.places, 1);
    read.spec.places = 4;
    old.replace("second", &PostParams::default(), &read).await.unwrap();
    let kept = new.get("second").await.unwrap();
    let places = Places { least: 4, most: 4 };
    assert_eq!((kept.spec.places, kept.spec.note.as_deref()), (places, Some("by the door")));

    // Certificates are published, and everything is stored in the new version.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let bundle = Api::<Secret>::namespaced(server.client(), "ops").get(OWN).await.unwrap();
    let bundle = bundle.data.unwrap().remove("ca.crt").unwrap();
    let definitions = Api::<CustomResourceDefinition>::all(server.client());
    let definition = definitions.get(Stall::crd_name()).await.unwrap();
    let client = definition.spec.conversion.unwrap().webhook.unwrap().client_config.unwrap();
    assert_eq!(client.ca_bundle.as_ref(), Some(&bundle));
    let validating = Api::<ValidatingWebhookConfiguration>::all(server.client());
    let found = validating.get(OWN).await.unwrap().webhooks.unwrap();
    assert_eq!(found[0].client_config.ca_bundle.as_ref(), Some(&bundle));
    assert_eq!(definition.status.unwrap().stored_versions, Some(vec!["v1".to_owned()]));

    // Somebody takes the bundle away.
    let gone = json!({"webhooks": [{"name": found[0].name, "clientConfig": {"caBundle": null}}]});
    validating.patch(OWN, &PatchParams::default(), &Patch::Strategic(gone)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let found = validating.get(OWN).await.unwrap().webhooks.unwrap();
    assert_eq!(found[0].client_config.ca_bundle.as_ref(), Some(&bundle));
    let mutating = Api::<MutatingWebhookConfiguration>::all(server.client());
    assert!(mutating.get(OWN).await.is_ok());
    running.stop().await.unwrap();
}

// P24
// The server lists the kind only with a conversion, and may ask a replica only that is ready.
#[tokio::test(start_paused = true)]
async fn a_replica_is_ready_before_a_cache_that_needs_its_own_conversion() {
    let server = ApiServer::in_memory().crd::<v1alpha1::Stall>().namespace("ops").start().await;
    let old = Api::<v1alpha1::Stall>::namespaced(server.client(), "default");
    old.create(&PostParams::default(), &old_stall("first", "fish")).await.unwrap();
    let running = program(server.client(), Webhooks::new("127.0.0.1:0").service("ops", "market"));
    assert!(!running.inspector().readiness().is_ok(), "the port has no certificate yet");
    tokio::time::sleep(Duration::from_secs(30)).await;
    let readiness = running.inspector().readiness();
    assert!(readiness.is_ok(), "{readiness}");
    let shown = readiness.to_string();
    assert!(shown.contains("[+]cache/stalls.market.example.dev ok: "), "{shown}");
    let cache = running.informer::<Stall>().build();
    assert!(!cache.has_synced(), "nobody converts");
    server.webhooks(&running);
    cache.wait_for_sync(Duration::from_secs(60)).await.unwrap();
    running.stop().await.unwrap();
}

// P24
// Another program's Service goes on to answer until this replica can, and must be trusted until then.
#[tokio::test(start_paused = true)]
async fn a_kind_that_another_program_converts_stays_as_it_is_until_this_one_gets_calls() {
    let server = ApiServer::in_memory().crd::<v1alpha1::Stall>().namespace("ops").start().await;
    let definitions = Api::<CustomResourceDefinition>::all(server.client());
    let others = json!({
        "service": {"namespace": "go", "name": "webhook-service", "path": "/convert"}, "caBundle": "b3RoZXJz",
    });
    let conversion = json!({
        "strategy": "Webhook", "webhook": {"clientConfig": others, "conversionReviewVersions": ["v1"]},
    });
    let by_another = Patch::Merge(json!({"spec": {"conversion": conversion}}));
    definitions.patch(Stall::crd_name(), &PatchParams::default(), &by_another).await.unwrap();
    let converter = async || {
        let found = definitions.get(Stall::crd_name()).await.unwrap().spec.conversion.unwrap();
        let client = found.webhook.unwrap().client_config.unwrap();
        (client.service.unwrap().name, client.ca_bundle.unwrap().0)
    };
    let running = program(server.client(), Webhooks::new("127.0.0.1:0").service("ops", "market"));
    let secrets = Api::<Secret>::namespaced(server.client(), "ops");
    let mut waited = 0;
    while !running.inspector().readiness().is_ok() || waited < 10 {
        assert_eq!(converter().await, ("webhook-service".to_owned(), b"others".to_vec()), "{waited} s");
        tokio::time::sleep(Duration::from_secs(1)).await;
        waited += 1;
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    let bundle = secrets.get(OWN).await.unwrap().data.unwrap().remove("ca.crt").unwrap();
    assert_eq!(converter().await, ("market".to_owned(), bundle.0));
    running.stop().await.unwrap();
}

#[test]
fn the_conversions_lose_nothing() {
    watchkeeper::versions::conversions_round_trip::<Stall>();
}

// An old replica during a rollout.
#[tokio::test(start_paused = true)]
async fn an_older_definition_never_replaces_a_later_one() {
    let server = ApiServer::in_memory().namespace("ops").start().await;
    let definitions = Api::<CustomResourceDefinition>::all(server.client());
    let versions = async || {
        let found = definitions.get(Stall::crd_name()).await.unwrap();
        found.spec.versions.into_iter().map(|version| version.name).collect::<Vec<_>>()
    };
    Manager::new(server.client()).install_crd::<v1alpha1::Stall>().await.unwrap();
    assert_eq!(versions().await, ["v1alpha1"]);
    let running = inside(&server);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(versions().await, ["v1", "v1alpha1"]);
    Manager::new(server.client()).install_crd::<v1alpha1::Stall>().await.unwrap();
    assert_eq!(versions().await, ["v1", "v1alpha1"], "the older one was not applied");
    running.stop().await.unwrap();
}

// The bundle is somebody else's field for the server, and no conversion may have one without a webhook.
#[tokio::test(start_paused = true)]
async fn a_release_without_the_old_version_drops_it_once_nothing_is_stored_in_it() {
    let server = ApiServer::in_memory().crd::<v1alpha1::Stall>().namespace("ops").start().await;
    let old = Api::<v1alpha1::Stall>::namespaced(server.client(), "default");
    old.create(&PostParams::default(), &old_stall("first", "fish")).await.unwrap();
    let release = inside(&server);
    tokio::time::sleep(Duration::from_secs(120)).await;
    let definitions = Api::<CustomResourceDefinition>::all(server.client());
    let found = async || definitions.get(Stall::crd_name()).await.unwrap();
    let config = async || found().await.spec.conversion.unwrap().webhook.unwrap().client_config.unwrap();
    let bundle = config().await.ca_bundle;
    let other = json!({"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": "b3RoZXJz"}}}}});
    definitions.patch(Stall::crd_name(), &PatchParams::default(), &Patch::Merge(other)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(config().await.ca_bundle, bundle, "it was repaired");
    assert_eq!(found().await.status.unwrap().stored_versions, Some(vec!["v1".to_owned()]));

    // A replica that is never ready takes nothing from those of the old release.
    let waits = || Err::<(), _>("it waits");
    let stuck = Manager::new(server.client()).kind::<later::Stall>().readiness_check("never", waits).spawn();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(found().await.spec.versions.len(), 2);
    stuck.stop().await.unwrap();

    let next = Manager::new(server.client()).kind::<later::Stall>().spawn();
    let cache = next.informer::<later::Stall>().build();
    cache.wait_for_sync(Duration::from_secs(60)).await.unwrap();
    let first = next.lister::<later::Stall>().get(&ObjectKey::new("default", "first")).unwrap();
    assert_eq!(first.spec.goods, "fish");
    let shown = async || {
        let spec = found().await.spec;
        let versions: Vec<_> = spec.versions.into_iter().map(|version| version.name).collect();
        let conversion = spec.conversion.unwrap();
        (versions, conversion.strategy, conversion.webhook)
    };
    let dropped = (vec!["v1".to_owned()], "None".to_owned(), None);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(shown().await, dropped);
    // A replica of the old release goes on, and so does one that comes back.
    release.stop().await.unwrap();
    let release = inside(&server);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(shown().await, dropped);
    release.stop().await.unwrap();
    next.stop().await.unwrap();
}

// P24
// What only the later release answers must not be asked for while calls may reach the older one.
#[tokio::test(start_paused = true)]
async fn nothing_changes_while_a_replica_of_another_release_serves() {
    let server = ApiServer::in_memory().crd::<v1alpha1::Stall>().namespace("ops").start().await;
    let secrets = Api::<Secret>::namespaced(server.client(), "ops");
    let entry = |count: u32| {
        [(
            "replicas.watchkeeper.dev/older".to_owned(),
            format!("{count} /validates/market.example.dev/stalls"),
        )]
    };
    let metadata = ObjectMeta {
        name: Some(OWN.to_owned()),
        annotations: Some(entry(0).into()),
        ..ObjectMeta::default()
    };
    secrets.create(&PostParams::default(), &Secret { metadata, ..Secret::default() }).await.unwrap();
    let running = inside(&server);
    let definitions = Api::<CustomResourceDefinition>::all(server.client());
    let validating = Api::<ValidatingWebhookConfiguration>::all(server.client());
    let changed = async || {
        let versions = definitions.get(Stall::crd_name()).await.unwrap().spec.versions.len();
        (versions > 1, validating.get(OWN).await.is_ok())
    };
    for count in 1..10 {
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(changed().await, (false, false), "the older one serves");
        assert!(running.inspector().readiness().is_ok(), "so that the rollout goes on");
        let renewal = json!({"metadata": {"annotations": std::collections::BTreeMap::from(entry(count))}});
        secrets.patch(OWN, &PatchParams::default(), &Patch::Merge(renewal)).await.unwrap();
    }
    let gone = json!({"metadata": {"annotations": {"replicas.watchkeeper.dev/older": null}}});
    secrets.patch(OWN, &PatchParams::default(), &Patch::Merge(gone)).await.unwrap();
    // Its Service needs a while to send it calls, and without the conversion nobody could use the kind.
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(changed().await, (false, false));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(changed().await, (true, true));
    running.stop().await.unwrap();
    let left = secrets.get(OWN).await.unwrap().metadata.annotations.unwrap_or_default();
    assert!(left.is_empty(), "it says that it is gone: {left:?}");
}

// A configuration is the program's: what it does not serve must not be asked for, and what somebody deletes comes back.
#[tokio::test(start_paused = true)]
async fn configurations_follow_the_program_and_are_repaired() {
    let server = ApiServer::in_memory().namespace("ops").start().await;
    let mutating = Api::<MutatingWebhookConfiguration>::all(server.client());
    let validating = Api::<ValidatingWebhookConfiguration>::all(server.client());
    let counts = async || {
        let count = |webhooks: Option<usize>| webhooks.unwrap_or_default();
        let mutating = mutating.get_opt(OWN).await.unwrap();
        let validating = validating.get_opt(OWN).await.unwrap();
        [
            mutating.map(|found| count(found.webhooks.map(|webhooks| webhooks.len()))),
            validating.map(|found| count(found.webhooks.map(|webhooks| webhooks.len()))),
        ]
    };
    let running = inside(&server);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(counts().await, [Some(1), Some(1)]);
    validating.delete(OWN, &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert_eq!(counts().await, [Some(1), Some(1)]);
    // As who has applied the manifests owns them.
    let own = mutating.get(OWN).await.unwrap();
    let applied = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": OWN}, "webhooks": own.webhooks});
    let by = PatchParams::apply("kubectl").force();
    mutating.patch(OWN, &by, &Patch::Apply(applied)).await.unwrap();
    running.stop().await.unwrap();
    // The next release has no defaults.
    let manager = Manager::new(server.client());
    let rules = Rules(manager.lister::<Stall>());
    let webhooks = Webhooks::new("127.0.0.1:0").service("ops", "market").validates::<Stall>(rules);
    let running = manager.kind::<Stall>().webhooks(webhooks).controller(Controller::new(Idle)).spawn();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(counts().await, [Some(0), Some(1)]);
    running.stop().await.unwrap();
}

// A large kind takes longer than a server keeps the state that a list began with.
#[tokio::test(start_paused = true)]
async fn a_migration_ends_although_its_continue_tokens_expire() {
    let server = ApiServer::in_memory().crd::<v1alpha1::Stall>().namespace("ops").start().await;
    let old = Api::<v1alpha1::Stall>::namespaced(server.client(), "default");
    for number in 0..450 {
        let name = format!("stall-{number}");
        old.create(&PostParams::default(), &old_stall(&name, &name)).await.unwrap();
    }
    let running = inside(&server);
    let secrets = Api::<Secret>::namespaced(server.client(), "default");
    for second in 0..120 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        // Somebody writes something else, and the server forgets what was before.
        let metadata = ObjectMeta { name: Some(format!("other-{second}")), ..ObjectMeta::default() };
        secrets.create(&PostParams::default(), &Secret { metadata, ..Secret::default() }).await.unwrap();
        server.compact();
    }
    let definitions = Api::<CustomResourceDefinition>::all(server.client());
    let definition = definitions.get(Stall::crd_name()).await.unwrap();
    assert_eq!(definition.status.unwrap().stored_versions, Some(vec!["v1".to_owned()]));
    running.stop().await.unwrap();
}

/// The kind by which a program asks its cluster for a migration; the embedded server does not have it.
fn migrations() -> CustomResourceDefinition {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "metadata": {
            "name": "storageversionmigrations.storagemigration.k8s.io",
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/issues/4192"},
        },
        "spec": {
            "group": "storagemigration.k8s.io",
            "scope": "Cluster",
            "names": {
                "kind": "StorageVersionMigration",
                "plural": "storageversionmigrations",
                "singular": "storageversionmigration",
            },
            "versions": [{
                "name": "v1beta1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": open, "status": open}}},
            }],
        },
    });
    serde_json::from_value(definition).unwrap()
}

/// What a test sees of a migration that a program asks for.
struct Asked {
    running: Running,
    stored: Vec<String>,
    /// Migrations that are left.
    left: usize,
    /// Objects that the program itself wrote.
    rewritten: f64,
}

/// Lets a program ask for a migration, and a controller of the cluster answer so.
async fn asked(server: &ApiServer, answer: Option<&str>) -> Asked {
    let old = Api::<v1alpha1::Stall>::namespaced(server.client(), "default");
    for name in ["first", "second", "third"] {
        old.create(&PostParams::default(), &old_stall(name, name)).await.unwrap();
    }
    let definitions = Api::<CustomResourceDefinition>::all(server.client());
    definitions.create(&PostParams::default(), &migrations()).await.unwrap();
    let (running, metrics) = counted(server);
    let resource = ApiResource {
        group: "storagemigration.k8s.io".into(),
        version: "v1beta1".into(),
        api_version: "storagemigration.k8s.io/v1beta1".into(),
        kind: "StorageVersionMigration".into(),
        plural: "storageversionmigrations".into(),
    };
    let asked = Api::<DynamicObject>::all_with(server.client(), &resource);
    let mut seen = Vec::new();
    for _ in 0..150 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        for migration in asked.list(&ListParams::default()).await.unwrap() {
            let name = migration.name_any();
            if let Some(kind) = answer.filter(|_| !seen.contains(&name)) {
                let conditions = json!([{"type": kind, "status": "True", "message": "it is full"}]);
                let status = json!({"status": {"resourceVersion": "1", "conditions": conditions}});
                asked.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
            }
            assert_eq!(
                migration.data["spec"],
                json!({"resource": {"group": "market.example.dev", "resource": "stalls"}})
            );
            seen.push(name);
        }
    }
    assert!(!seen.is_empty(), "the program asks");
    let left = asked.list(&ListParams::default()).await.unwrap().items.len();
    let stored = definitions.get(Stall::crd_name()).await.unwrap().status.unwrap().stored_versions.unwrap();
    let page = metrics.encode();
    let of = [("crd", "stalls.market.example.dev")];
    assert_eq!(sum(&page, "watchkeeper_storage_migration_pending", &of), 0.0);
    let rewritten = sum(&page, "watchkeeper_storage_migration_objects_total", &of);
    Asked { running, stored, left, rewritten }
}

// KEP-4192: the cluster's own controller writes the objects, and the program none.
#[tokio::test(start_paused = true)]
async fn a_migration_is_the_servers_where_a_controller_takes_it_up() {
    let server = ApiServer::in_memory().crd::<v1alpha1::Stall>().namespace("ops").start().await;
    let Asked { running, stored, left, rewritten } = asked(&server, Some("Succeeded")).await;
    assert_eq!((stored, left, rewritten), (vec!["v1".to_owned()], 0, 0.0));
    running.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_migration_is_the_programs_where_the_servers_fails_or_nobody_takes_it_up() {
    for answer in [Some("Failed"), None] {
        let server = ApiServer::in_memory().crd::<v1alpha1::Stall>().namespace("ops").start().await;
        let Asked { running, stored, left, rewritten } = asked(&server, answer).await;
        assert_eq!((stored, left, rewritten), (vec!["v1".to_owned()], 0, 3.0), "{answer:?}");
        running.stop().await.unwrap();
    }
}

// One object that can't be written as it is holds up neither the others nor what comes later, and is not forgotten.
#[tokio::test(start_paused = true)]
async fn an_object_that_the_server_refuses_keeps_its_version_in_the_definition() {
    let server = ApiServer::in_memory().crd::<v1alpha1::Stall>().namespace("ops").start().await;
    let old = Api::<v1alpha1::Stall>::namespaced(server.client(), "default");
    for name in ["first", "second", "third"] {
        old.create(&PostParams::default(), &old_stall(name, name)).await.unwrap();
    }
    server.faults().on(Verb::Update, "stalls").name("second").once().then(Fault::Status(422));
    // An API server that has not seen the definition yet, and somebody who writes at the same time: the object stays as it is.
    server.faults().on(Verb::Update, "stalls").name("first").once().then(Fault::Status(404));
    server.faults().on(Verb::Update, "stalls").name("third").once().then(Fault::Status(409));
    let (running, metrics) = counted(&server);
    tokio::time::sleep(Duration::from_secs(300)).await;
    let definitions = Api::<CustomResourceDefinition>::all(server.client());
    let stored =
        async || definitions.get(Stall::crd_name()).await.unwrap().status.unwrap().stored_versions.unwrap();
    assert_eq!(stored().await, ["v1alpha1", "v1"]);
    let of = [("crd", "stalls.market.example.dev")];
    let count = |name: &str| sum(&metrics.encode(), &format!("watchkeeper_storage_migration_{name}"), &of);
    assert_eq!((count("objects_total"), count("failures_total"), count("pending")), (2.0, 1.0, 1.0));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(stored().await, ["v1"]);
    assert_eq!(count("pending"), 0.0);
    running.stop().await.unwrap();
}

// What is migrated is not written again because of what is not.
#[tokio::test(start_paused = true)]
async fn only_what_the_server_refuses_is_tried_again() {
    let server = ApiServer::in_memory().crd::<v1alpha1::Stall>().namespace("ops").start().await;
    let old = Api::<v1alpha1::Stall>::namespaced(server.client(), "default");
    let names = ["first", "second", "third", "fourth", "fifth"];
    for name in names {
        old.create(&PostParams::default(), &old_stall(name, name)).await.unwrap();
    }
    let refused = server.faults().on(Verb::Update, "stalls").name("third").always().then(Fault::Status(422));
    let running = inside(&server);
    tokio::time::sleep(Duration::from_secs(1_500)).await;
    let writes = || {
        let sent = server.requests().of(Verb::Update, "stalls");
        names.map(|name| sent.iter().filter(|sent| sent.name.as_deref() == Some(name)).count())
    };
    assert_eq!(writes(), [1, 1, 3, 1, 1]);
    refused.disarm();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(writes(), [1, 1, 4, 1, 1]);
    let definitions = Api::<CustomResourceDefinition>::all(server.client());
    let definition = definitions.get(Stall::crd_name()).await.unwrap();
    assert_eq!(definition.status.unwrap().stored_versions, Some(vec!["v1".to_owned()]));
    running.stop().await.unwrap();
}

// It may come from an API server that does not serve the version yet.
#[tokio::test(start_paused = true)]
async fn a_404_to_one_read_of_a_refused_object_is_no_deletion() {
    let server = ApiServer::in_memory().crd::<v1alpha1::Stall>().namespace("ops").start().await;
    let old = Api::<v1alpha1::Stall>::namespaced(server.client(), "default");
    for name in ["first", "second"] {
        old.create(&PostParams::default(), &old_stall(name, name)).await.unwrap();
    }
    server.faults().on(Verb::Update, "stalls").name("second").always().then(Fault::Status(422));
    let running = inside(&server);
    tokio::time::sleep(Duration::from_secs(400)).await;
    let unknown = server.faults().on(Verb::Get, "stalls").name("second").once().then(Fault::Status(404));
    tokio::time::sleep(Duration::from_secs(1_200)).await;
    assert_eq!(unknown.fired(), 1);
    let definitions = Api::<CustomResourceDefinition>::all(server.client());
    let stored = definitions.get(Stall::crd_name()).await.unwrap().status.unwrap().stored_versions;
    assert_eq!(stored, Some(vec!["v1alpha1".to_owned(), "v1".to_owned()]));
    running.stop().await.unwrap();
}

// A request that nobody answers, as over a connection that is cut, holds nothing up for good.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_not_answered_is_sent_again() {
    let server = ApiServer::in_memory().crd::<v1alpha1::Stall>().namespace("ops").start().await;
    let resource = "validatingwebhookconfigurations";
    let lost = server.faults().on(Verb::Patch, resource).once().then(Fault::Silence);
    let running = inside(&server);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(lost.fired(), 1);
    let validating = Api::<ValidatingWebhookConfiguration>::all(server.client());
    assert!(validating.get(OWN).await.is_ok());
    running.stop().await.unwrap();
}

// An API server that has not seen a definition yet answers 404: that says nothing of the objects.
#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_listed_yet_is_not_migrated() {
    let server = ApiServer::in_memory().crd::<v1alpha1::Stall>().namespace("ops").start().await;
    let old = Api::<v1alpha1::Stall>::namespaced(server.client(), "default");
    for name in ["first", "second", "third"] {
        old.create(&PostParams::default(), &old_stall(name, name)).await.unwrap();
    }
    let late = server.faults().on(Verb::List, "stalls").always().then(Fault::Status(404));
    let (running, metrics) = counted(&server);
    let definitions = Api::<CustomResourceDefinition>::all(server.client());
    let stored =
        async || definitions.get(Stall::crd_name()).await.unwrap().status.unwrap().stored_versions.unwrap();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(stored().await, ["v1alpha1", "v1"]);
    drop(late);
    server.faults().clear();
    tokio::time::sleep(Duration::from_secs(900)).await;
    let of = [("crd", "stalls.market.example.dev")];
    let rewritten = sum(&metrics.encode(), "watchkeeper_storage_migration_objects_total", &of);
    assert_eq!((stored().await, rewritten), (vec!["v1".to_owned()], 3.0));
    running.stop().await.unwrap();
}

/// Bounds the replicas in a status, and completes it.
struct Statuses;

impl Validator<Deployment> for Statuses {
    async fn validate(&self, change: Change<'_, Deployment>, review: &mut Review) {
        let replicas = change.object().status.as_ref().and_then(|status| status.replicas).unwrap_or(0);
        if review.request().subresource() == Some("status") && replicas > 100 {
            review.field("status.replicas").invalid(replicas, "must be at most 100");
        }
    }
}

impl Defaulter<Deployment> for Statuses {
    fn default(&self, deployment: &mut Deployment, request: &Request) {
        if request.subresource() == Some("status") {
            deployment.status.get_or_insert_default().collision_count = Some(7);
            deployment.spec.get_or_insert_default().replicas = Some(50);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_webhook_decides_about_the_status_if_it_asks_for_that() {
    let server = ApiServer::in_memory().crd::<v1alpha1::Stall>().namespace("ops").start().await;
    let webhooks = Webhooks::new("127.0.0.1:0")
        .service("ops", "market")
        .validates_with::<Deployment>(Calls::new().status(), Statuses)
        .defaults_with::<Deployment>(Calls::new().status(), Statuses);
    let running = program(server.client(), webhooks);
    server.webhooks(&running);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let deployments = Api::<Deployment>::namespaced(server.client(), "default");
    let labels = json!({"app": "a"});
    let deployment = json!({"metadata": {"name": "a"}, "spec": {"selector": {"matchLabels": labels}, "template": {
        "metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "a"}]}}}});
    let deployment = serde_json::from_value(deployment).unwrap();
    let made = deployments.create(&PostParams::default(), &deployment).await.unwrap();
    assert_eq!(made.status.and_then(|status| status.collision_count), None);
    let counted = |replicas: i32| Patch::Merge(json!({"status": {"replicas": replicas}}));
    let (code, why) = refused(deployments.patch_status("a", &PatchParams::default(), &counted(101)).await);
    assert!(
        code == 422 && why.ends_with("status.replicas: Invalid value: 101: must be at most 100"),
        "{why}"
    );
    let written = deployments.patch_status("a", &PatchParams::default(), &counted(3)).await.unwrap();
    let status = written.status.unwrap();
    assert_eq!((status.replicas, status.collision_count), (Some(3), Some(7)));
    assert_eq!(written.spec.unwrap().replicas, Some(1), "a write of the status changes nothing else");
    // The scale is another subresource, which is not sent.
    let scaled = Patch::Merge(json!({"spec": {"replicas": 101}}));
    deployments.patch_scale("a", &PatchParams::default(), &scaled).await.unwrap();
    running.stop().await.unwrap();
}

// Over TLS, with a certificate that the program made, and without losing a call at its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_port_speaks_tls_with_a_certificate_of_its_own() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = ApiServer::http().start().await.unwrap();
    let webhooks = Webhooks::new(format!("127.0.0.1:{port}")).url(format!("https://127.0.0.1:{port}"));
    let running = program(server.client(), webhooks.linger_for(Duration::from_secs(1)));
    let old = Api::<v1alpha1::Stall>::namespaced(server.client(), "default");
    let begun = tokio::time::Instant::now();
    while let Err(error) = old.create(&PostParams::default(), &old_stall("first", "")).await {
        assert!(begun.elapsed() < Duration::from_secs(30), "{error:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(old.get("first").await.unwrap().spec.goods, "bread");
    let stopping = tokio::spawn(running.stop());
    tokio::time::sleep(Duration::from_millis(300)).await;
    let second = old.create(&PostParams::default(), &old_stall("second", "fish")).await;
    assert_eq!(second.unwrap().spec.goods, "fish", "the port goes on to answer");
    stopping.await.unwrap().unwrap();
}
