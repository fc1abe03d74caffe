//! An operator whose webhooks decide about its own writes, and whose webhooks are slow, down, or refuse.

use k8s_openapi::api::{
    admissionregistration::v1::ValidatingWebhookConfiguration, apps::v1::Deployment, core::v1::Secret,
};
use watchkeeper::{
    prelude::*,
    reflector::ReflectorConfig,
    webhook::{Calls, Change, Review, Validator, Webhooks},
};
use watchkeeper_tests::{Keeper, Website, deployment_for, website};
use watchkeeper_trials::{Moment, Report, Trials, Trouble, Visit, WebhookTrouble};

/// No site is larger than this, and no Deployment.
struct Rules;

impl Validator<Website> for Rules {
    async fn validate(&self, change: Change<'_, Website>, review: &mut Review) {
        if change.object().spec.replicas > 9 {
            review.field("spec.replicas").invalid(change.object().spec.replicas, "must be at most 9");
        }
    }
}

impl Validator<Deployment> for Rules {
    async fn validate(&self, change: Change<'_, Deployment>, review: &mut Review) {
        let replicas = change.object().spec.as_ref().and_then(|spec| spec.replicas);
        if replicas.is_some_and(|replicas| replicas > 9) {
            review.field("spec.replicas").invalid(replicas, "must be at most 9");
        }
    }
}

/// Takes a refusal by a webhook for the last word: its planted mistake.
struct GivesUp;

impl Reconciler<Website> for GivesUp {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, site: Arc<Website>, cx: &Context<Website>) -> Result<Action, Self::Error> {
        match cx.apply(deployment_for(&site)).await {
            Err(error) if error.to_string().contains("a trial has the webhook refuse this") => {
                Ok(Action::await_change())
            }
            applied => applied.map(|_| Action::await_change()).map_err(Into::into),
        }
    }
}

async fn a_site_comes_and_changes(visit: Visit) {
    visit.create(&website("a")).await;
    visit.edit::<Website>("a", |site| site.spec.replicas = 3).await;
}

fn tried<R: Reconciler<Website>>(reconciler: impl Fn() -> R + Send + Sync + 'static) -> Trials {
    Trials::of_served(move |client, webhooks| {
        let config = ReflectorConfig { seed: Some(1), ..ReflectorConfig::default() };
        let calls = || Calls::new().without_caches();
        let rules = Webhooks::new("127.0.0.1:0")
            .service("ops", "sites")
            .validates_with::<Website>(calls(), Rules)
            .validates_with::<Deployment>(calls(), Rules);
        let manager = Manager::with_config(client, config).webhooks(rules);
        let controller = Controller::new(reconciler()).owns::<Deployment>();
        async move {
            let mut running = manager.controller(controller).spawn();
            webhooks.serve(&running);
            running.ended().await
        }
    })
    .crd::<Website>()
    .namespace("shop")
    .namespace("ops")
    .visitor(a_site_comes_and_changes)
    // Keys and certificates are made by chance.
    .random::<Secret>("/data/*")
    .random::<ValidatingWebhookConfiguration>("/webhooks/*/clientConfig/caBundle")
}

fn of_webhooks(trouble: Trouble) -> bool {
    matches!(trouble, Trouble::Webhooks(_))
}

// T23
#[test]
fn a_site_ends_right_whatever_becomes_of_its_webhooks() {
    let chosen =
        |trouble| of_webhooks(trouble) || matches!(trouble, Trouble::Down(Moment::After) | Trouble::Lost);
    let report: Report = tried(Keeper::default).only(chosen).pairs(20).run();
    assert!(report.failures.is_empty(), "{}", report.failures[0]);
    assert!(report.singles > 20, "{report}");
}

// T23
#[test]
fn an_operator_that_gives_up_after_a_refusal_is_found() {
    let wrong = tried(|| GivesUp).only(of_webhooks).pairs(0).run();
    let failure = wrong.failures.first().expect("it gives up").to_string();
    for part in ["webhooks-refuse", "webhooks refuse everything for 20s"] {
        assert!(failure.contains(part), "{failure}");
    }
    // No other trouble of webhooks shows it.
    let others = |trouble| of_webhooks(trouble) && trouble != Trouble::Webhooks(WebhookTrouble::Refuse);
    let report = tried(|| GivesUp).only(others).pairs(0).run();
    assert!(report.failures.is_empty() && report.singles > 0, "{report}");
}
