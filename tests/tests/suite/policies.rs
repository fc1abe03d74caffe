//! A program whose rules the API server evaluates itself, and the test that a policy and a validator agree.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
    core::DynamicObject,
    discovery::ApiResource,
};
use serde_json::json;
use watchkeeper::{
    Running,
    prelude::*,
    webhook::{Agreement, Change, Params, Policy, Review, Validator},
};
use watchkeeper_apiserver::{ApiServer, Fault, Verb};

/// A boat that is moored somewhere.
#[derive(CustomResource, Informer, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(group = "harbor.example.dev", version = "v1", kind = "Boat", namespaced)]
struct BoatSpec {
    berth: String,
    crew: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    flag: Option<String>,
}

struct Idle;

impl Reconciler<Boat> for Idle {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, _: Arc<Boat>, _: &Context<Boat>) -> Result<Action, Self::Error> {
        Ok(Action::await_change())
    }
}

/// The name of the policies about berths.
const OWN: &str = "berth.boats.harbor.example.dev";

fn berth_stays() -> Policy<Boat> {
    Policy::new("berth")
        .rule("object.spec.berth == oldObject.spec.berth", "spec.berth is immutable")
        .only_updates()
}

fn crew_is_small() -> Policy<Boat> {
    Policy::new("crew").rule("object.spec.crew <= 12", "has too large a crew")
}

fn program(server: &ApiServer, policy: Policy<Boat>) -> Running {
    Manager::new(server.client()).policy(policy).controller(Controller::new(Idle)).spawn()
}

fn boat(name: &str, berth: &str) -> Boat {
    Boat::new(name, BoatSpec { berth: berth.to_owned(), crew: 3, flag: None })
}

/// The policies of a family, or their bindings.
fn policies(server: &ApiServer, kind: &str, plural: &str) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: "admissionregistration.k8s.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "admissionregistration.k8s.io/v1".to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    };
    Api::all_with(server.client(), &resource)
}

// P22
#[tokio::test(start_paused = true)]
async fn a_policy_is_installed_decides_and_is_repaired() {
    let server = ApiServer::in_memory().crd::<Boat>().start().await;
    let running = program(&server, berth_stays().sets("Object{spec: Object.spec{flag: 'white'}}"));
    let all = policies(&server, "ValidatingAdmissionPolicy", "validatingadmissionpolicies");
    let bindings = policies(&server, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings");
    tokio::time::sleep(Duration::from_secs(5)).await;
    let boats: Api<Boat> = Api::namespaced(server.client(), "default");
    boats.create(&PostParams::default(), &boat("a", "north")).await.expect("it is refused only in updates");
    let moved = json!({"spec": {"berth": "south"}});
    let refused = |answer: Result<Boat, kube::Error>| match answer {
        Err(kube::Error::Api(status)) => status.message.clone(),
        other => panic!("not refused: {other:?}"),
    };
    let merge = || PatchParams::default();
    let message = refused(boats.patch("a", &merge(), &Patch::Merge(&moved)).await);
    let expected = format!(
        "ValidatingAdmissionPolicy '{OWN}' with binding '{OWN}' denied request: spec.berth is immutable"
    );
    assert!(message.ends_with(&expected), "{message}");
    let grown = boats
        .patch("a", &merge(), &Patch::Merge(&json!({"spec": {"crew": 4}})))
        .await
        .expect("crew may change");
    assert_eq!(grown.spec.flag.as_deref(), Some("white"), "the mutating policy has set it");
    // Somebody edits the policy, and deletes its binding: both come back.
    let lax = json!({"spec": {"validations": [{"expression": "true"}]}});
    all.patch(OWN, &merge(), &Patch::Merge(&lax)).await.expect("an edit");
    bindings.delete(OWN, &Default::default()).await.expect("a deletion");
    boats.patch("a", &merge(), &Patch::Merge(&moved)).await.expect("nothing refuses it");
    tokio::time::sleep(Duration::from_secs(40)).await;
    let back = json!({"spec": {"berth": "north"}});
    let message = refused(boats.patch("a", &merge(), &Patch::Merge(&back)).await);
    assert!(message.ends_with(&expected), "{message}");
    running.stop().await.expect("a clean stop");
}

// P22
#[tokio::test(start_paused = true)]
async fn a_policy_that_can_not_be_installed_ends_the_program() {
    let too_old = |kind: &str, since: &str, webhook: &str| {
        format!(
            "{kind} {OWN} can't be installed: the server has no {kind} of admissionregistration.k8s.io/v1, which Kubernetes \
             serves from {since} on: update it, or write a `{webhook}` in place of the policy"
        )
    };
    let changes = || Policy::new("berth").sets("Object{spec: Object.spec{flag: 'white'}}");
    for (policy, missing, expected) in [
        (
            berth_stays(),
            "validatingadmissionpolicies",
            too_old("ValidatingAdmissionPolicy", "1.30", "Validator"),
        ),
        (changes(), "mutatingadmissionpolicies", too_old("MutatingAdmissionPolicy", "1.36", "Defaulter")),
        (
            Policy::new("berth").rule("objekt.spec.crew < 9", "is large"),
            "none",
            format!("ValidatingAdmissionPolicy {OWN} can't be installed: the server refuses it: "),
        ),
    ] {
        let server = ApiServer::in_memory().crd::<Boat>().start().await;
        server.faults().on(Verb::Patch, missing).then(Fault::Status(404));
        let ended = program(&server, policy).ended().await.expect_err("it can't go on");
        assert!(format!("{ended:?}").contains(&expected), "{ended:?}");
    }
}

/// Says what both policies say.
struct Rules;

impl Validator<Boat> for Rules {
    async fn validate(&self, change: Change<'_, Boat>, review: &mut Review) {
        if change.old().is_some_and(|old| old.spec.berth != change.object().spec.berth) {
            review.field("spec.berth").forbidden("is immutable");
        }
    }
}

/// Limits the people on board. The planted mistake is a wrong limit.
struct Most(u16);

impl Validator<Boat> for Most {
    async fn validate(&self, change: Change<'_, Boat>, review: &mut Review) {
        if change.object().spec.crew > self.0 {
            review.field("spec.crew").invalid(change.object().spec.crew, "has too large a crew");
        }
    }
}

// P23
#[tokio::test(start_paused = true)]
async fn a_policy_and_a_validator_agree() {
    let server = ApiServer::in_memory().crd::<Boat>().start().await;
    Agreement::new(&berth_stays(), Rules).requests(100).check(server.client()).await;
    let refused = Agreement::new(&crew_is_small(), Most(12)).requests(100).check(server.client()).await;
    assert!((25..100).contains(&refused), "{refused}");
}

// P23
#[tokio::test(start_paused = true)]
async fn a_policy_and_a_validator_that_disagree_are_found() {
    let server = ApiServer::in_memory().crd::<Boat>().start().await;
    let flag = Policy::<Boat>::new("flag").rule("object.spec.flag != 'black'", "sails under a black flag");
    struct NotBlack;
    impl Validator<Boat> for NotBlack {
        async fn validate(&self, change: Change<'_, Boat>, review: &mut Review) {
            if change.object().spec.flag.as_deref() == Some("black") {
                review.field("spec.flag").forbidden("sails under a black flag");
            }
        }
    }
    let found = |policy: Policy<Boat>, most: Option<u16>| {
        let client = server.client();
        let compared = tokio::spawn(async move {
            match most {
                Some(most) => policy.agrees_with(Most(most), client).await,
                None => policy.agrees_with(NotBlack, client).await,
            }
        });
        async move {
            let panicked = compared.await.expect_err("they disagree").into_panic();
            panicked.downcast_ref::<String>().cloned().expect("a message")
        }
    };
    // One of them means the bound itself.
    let message = found(crew_is_small(), Some(11)).await;
    for part in
        ["the policy crew and the validator disagree", "the policy allows it", "\"crew\":12", "the seed: 0"]
    {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(message.contains("the validator refuses it: Boat") && message.contains("spec.crew"), "{message}");
    // A field that is not set can't be read: the policy refuses what the validator allows.
    let message = found(flag.clone(), None).await;
    assert!(message.contains("resulted in error: no such key: flag"), "{message}");
    let guarded =
        Policy::<Boat>::new("flag").rule("!has(object.spec.flag) || object.spec.flag != 'black'", "is black");
    guarded.agrees_with(NotBlack, server.client()).await;
    // Nothing is compared if nothing is refused.
    let message =
        found(Policy::new("free").rule("object.spec.crew >= 0", "is less than none"), Some(u16::MAX)).await;
    assert!(message.contains("refuse none of 300 generated requests, so nothing was compared"), "{message}");
}

/// Bounds the crew by what a ConfigMap says.
fn crew_is_limited() -> Policy<Boat> {
    Policy::new("limited")
        .params(Params::<ConfigMap>::named("limits"))
        .rule("object.spec.crew <= int(params.data.crew)", "has too large a crew")
}

/// Says what the policy says with the limit.
struct Limited(u16);

impl Validator<Boat> for Limited {
    async fn validate(&self, change: Change<'_, Boat>, review: &mut Review) {
        if change.object().spec.crew > self.0 {
            review.field("spec.crew").invalid(change.object().spec.crew, "is too large");
        }
    }
}

// A61
#[tokio::test(start_paused = true)]
async fn a_policy_with_parameters_agrees_with_a_validator_that_knows_their_values() {
    let server = ApiServer::in_memory().crd::<Boat>().start().await;
    let policy = crew_is_limited();
    let missing = std::panic::AssertUnwindSafe(policy.agrees_with(Limited(12), server.client()));
    let missing = futures::FutureExt::catch_unwind(missing).await.expect_err("there are no limits");
    let missing = missing.downcast_ref::<String>().expect("a message");
    assert!(missing.contains("the parameters of the policy limited can't be read at /api/v1/namespaces/default/configmaps/limits"), "{missing}");
    let limits: Api<ConfigMap> = Api::namespaced(server.client(), "default");
    let twelve =
        serde_json::from_value(json!({"metadata": {"name": "limits"}, "data": {"crew": "12"}})).unwrap();
    limits.create(&PostParams::default(), &twelve).await.expect("limits");
    policy.agrees_with(Limited(12), server.client()).await;
    // Only a value that is read from the parameters shows this.
    let off = std::panic::AssertUnwindSafe(policy.agrees_with(Limited(13), server.client()));
    let off = futures::FutureExt::catch_unwind(off).await.expect_err("they differ at 13");
    let off = off.downcast_ref::<String>().expect("a message");
    assert!(off.contains("disagree") && off.contains("has too large a crew"), "{off}");
}

// P22
#[tokio::test(start_paused = true)]
async fn parameters_that_no_server_can_find_end_the_program() {
    let policy = || Policy::new("limited").rule("true", "never");
    let server = ApiServer::in_memory().crd::<Boat>().start().await;
    let global = Params::<Namespace>::named("a").in_namespace("b");
    let ended = program(&server, policy().params(global)).ended().await.expect_err("it can't go on");
    let expected =
        "limited.boats.harbor.example.dev can't be installed: its parameters can't be in the namespace \"b\"";
    assert!(format!("{ended:?}").contains(expected), "{ended:?}");
}
