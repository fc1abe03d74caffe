//! One replica of one release: a ConfigMap for each website, a defaulter, a validator, and conversions.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Config, core::NamespaceResourceScope};
use serde_json::json;
use watchkeeper::{
    leader_election::LeaderElection,
    manager::{Http, client},
    prelude::*,
    webhook::{Calls, Change, Defaulter, Request, Review, Validator, Webhooks},
};

use crate::kinds::{Site, last, v1, v1alpha1};

/// The most replicas of a site.
pub(crate) const MOST: i32 = 10;

/// What a replica is started with.
pub(crate) struct Arguments {
    /// The release: 1, 2 or 3.
    pub(crate) release: u8,
    pub(crate) name: String,
    /// Where it serves webhooks, and where probes.
    pub(crate) port: u16,
    pub(crate) probes: u16,
    /// The address of all replicas.
    pub(crate) url: String,
}

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    watchkeeper_tests::log_to_stderr();
    let Arguments { release, name, port, probes, url } = arguments;
    let election = LeaderElection::new("rollouts").namespace("default").identity(&*name);
    let manager = Manager::new(client(Config::infer().await?)?)
        .leader_election(election)
        .grace_period(Duration::from_secs(110))
        .http(Http::on(format!("127.0.0.1:{probes}")));
    // As long as behind a Service.
    let webhooks = Webhooks::new(format!("127.0.0.1:{port}")).url(url).linger_for(Duration::from_secs(10));
    let manager = match release {
        1 => manager
            .kind::<v1alpha1::Website>()
            .webhooks(with_rules::<v1alpha1::Website>(webhooks))
            .controller(Controller::<v1alpha1::Website, _>::new(Sites).owns::<ConfigMap>()),
        2 => manager
            .kind::<v1::Website>()
            .webhooks(with_rules::<v1::Website>(webhooks))
            .migrate_storage::<v1::Website>()
            .controller(Controller::<v1::Website, _>::new(Sites).owns::<ConfigMap>()),
        _ => manager
            .kind::<last::Website>()
            .webhooks(with_rules::<last::Website>(webhooks))
            .migrate_storage::<last::Website>()
            .controller(Controller::<last::Website, _>::new(Sites).owns::<ConfigMap>()),
    };
    manager.run().await?;
    Ok(())
}

/// Adds the rules, which read no caches: a release that adds versions can't fill its cache while the older one serves.
fn with_rules<K: Site + Object + Resource<Scope = NamespaceResourceScope>>(webhooks: Webhooks) -> Webhooks {
    let calls = || Calls::new().without_caches();
    webhooks.defaults_with::<K>(calls(), Rules).validates_with::<K>(calls(), Rules)
}

struct Rules;

impl<K: Site + Send + Sync + 'static> Validator<K> for Rules {
    async fn validate(&self, change: Change<'_, K>, review: &mut Review) {
        if change.object().replicas() > MOST {
            review.field("spec.replicas").invalid(change.object().replicas(), "too many");
        }
    }
}

impl<K: Site + Send + Sync + 'static> Defaulter<K> for Rules {
    fn default(&self, site: &mut K, _: &Request) {
        let replicas = site.replicas_mut();
        *replicas = (*replicas).max(1);
    }
}

struct Sites;

impl<K: Site + Watched<Object = K> + Object> Reconciler<K> for Sites {
    type Error = watchkeeper::Error;

    async fn reconcile(&self, site: Arc<K>, cx: &Context<K>) -> Result<Action, Self::Error> {
        let map: ConfigMap = serde_json::from_value(json!({
            "metadata": {"name": cx.key().name()}, "data": {"replicas": site.replicas().to_string()},
        }))
        .map_err(watchkeeper::Error::other)?;
        cx.apply(map).await?;
        Ok(Action::await_change())
    }
}
