//! Upgrades and recordings, as their pages try them.

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
use watchkeeper::{FlightRecorder, prelude::*};
use watchkeeper_trials::Trials;
use websites::{Website, WebsiteSpec, Websites};

mod websites {
    use k8s_openapi::api::core::v1::ConfigMap;
    use watchkeeper::prelude::*;

    #[derive(
        CustomResource, Informer, Clone, Debug, Serialize, Deserialize, JsonSchema,
    )]
    #[kube(group = "web.example.dev", version = "v1", kind = "Website", namespaced)]
    pub(super) struct WebsiteSpec {
        pub(super) replicas: i32,
    }

    pub(super) struct Websites;

    impl Reconciler<Website> for Websites {
        type Error = watchkeeper::Error;

        async fn reconcile(
            &self,
            site: Arc<Website>,
            cx: &Context<Website>,
        ) -> Result<Action, Self::Error> {
            let mut map = ConfigMap::default();
            map.metadata.name = Some(site.name_any());
            map.data =
                Some([("replicas".to_owned(), site.spec.replicas.to_string())].into());
            cx.apply(map).await?;
            Ok(Action::await_change())
        }
    }

    pub(super) async fn operator(client: kube::Client) -> Result<(), watchkeeper::Error> {
        Manager::new(client)
            .controller(Controller::new(Websites).owns::<ConfigMap>())
            .run()
            .await
    }
}

mod websites_old {
    pub(super) use super::websites::operator;
}

#[expect(dead_code, reason = "its page prints it")]
async fn recorded(
    manager: Manager,
    controller: Controller<Website, Websites>,
) -> Result<(), watchkeeper::Error> {
    // 64 MiB are the default.
    let recorder = FlightRecorder::new("/recording/websites.wkr")
        .at_most(64 << 20)
        .hide::<Website>("/spec/credentials/token");
    manager.flight_recorder(recorder).controller(controller).run().await
}

fn website(name: &str) -> Website {
    Website::new(name, WebsiteSpec { replicas: 2 })
}

#[ignore = "it shows what a test looks like: tests/tests/trials/replays.rs plays a recording"]
#[test]
fn the_incident_of_march() {
    Trials::replay("incidents/march.wkr", websites::operator)
        .crd::<Website>()
        .expect_no_differences();
}

#[expect(dead_code, clippy::print_stdout, reason = "its page prints it")]
fn printed() -> std::io::Result<()> {
    for line in watchkeeper_trials::read_recording("incidents/march.wkr")? {
        println!("{}", line?);
    }
    Ok(())
}

#[test]
fn an_upgrade_and_a_rollback_lose_nothing() {
    Trials::upgrade(websites_old::operator, websites::operator)
        .crd::<Website>()
        .visitor(async |visit| {
            visit.create(&website("a")).await;
            visit.edit::<Website>("a", |site| site.spec.replicas = 3).await;
            visit.delete::<Website>("a").await;
        })
        .check();
}

#[expect(dead_code, reason = "its page prints it")]
fn allowed() -> Trials {
    let (old, new) = (websites_old::operator, websites::operator);
    // Another image, and Services are new.
    let trials = Trials::upgrade(old, new)
        .may_change::<Deployment>("/spec/template/spec/containers")
        .may_change::<Service>("");
    trials.crd::<Website>()
}
