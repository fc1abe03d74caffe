//! Mistakes of programs with several replicas, with several clusters, or with a recording.

use std::env;

use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::core::ObjectMeta;
use watchkeeper::{
    FlightRecorder,
    manager::{Fleet, FleetCluster},
    prelude::*,
};
use watchkeeper_apiserver::{ApiServer, Fault, Verb};
use watchkeeper_tests::Website;

use crate::{
    Mistake, paused,
    runtime::{keeper, said, warned, with_a_site},
    start::shown,
};

pub(crate) fn mistakes() -> Vec<Mistake> {
    let mut found = leases();
    found.extend(fleets());
    found.extend([
        ("A set of controllers for namespaces, of a kind that is in none", of_no_namespace()),
        ("The folder of the recording is not there", recording()),
    ]);
    found
}

fn leases() -> Vec<Mistake> {
    let refused = |verb: Verb, name: &'static str| {
        async move |server: &ApiServer| {
            with_a_site(server).await;
            let right = format!(
                r#"leases.coordination.k8s.io is forbidden: User "operator" cannot {name} resource "leases" in API group "coordination.k8s.io" in the namespace "shop""#
            );
            server.faults().on(verb, "leases").always().then(Fault::Status(403).message(right));
        }
    };
    let no_renewals = async |server: &ApiServer| {
        with_a_site(server).await;
        // A new leader has renewed its Lease for a lease duration before its term begins.
        let renewals = server.faults().on(Verb::Update, "leases").nth(10).times(1_000);
        renewals.then(Fault::Status(500).message("etcdserver: request timed out"));
    };
    let lost = warned(Duration::from_secs(60), no_renewals, |manager| {
        manager.leader_election("websites").controller(keeper())
    });
    let lost = lost.into_iter().find(|line| line.contains("leads no more")).unwrap_or_default();
    vec![
        ("The leader can't renew its Lease in time", lost),
        (
            "The Lease may not be created (403)",
            said(refused(Verb::Create, "create"), |manager| {
                manager.leader_election("websites").controller(keeper())
            }),
        ),
        (
            "The replicas' Leases may not be listed (403)",
            said(refused(Verb::List, "list"), |manager| manager.sharded("websites").controller(keeper())),
        ),
    ]
}

fn secret(name: &str, key: &str, kubeconfig: &str) -> Secret {
    let labels = Some([("watchkeeper.dev/kubeconfig".to_owned(), String::new())].into());
    let metadata =
        ObjectMeta { name: Some(name.into()), namespace: Some("shop".into()), labels, ..Default::default() };
    Secret { metadata, string_data: Some([(key.into(), kubeconfig.into())].into()), ..Secret::default() }
}

fn fleets() -> Vec<Mistake> {
    let of_secret = |key: &'static str, kubeconfig: &'static str, workers: usize| {
        said(
            async move |server: &ApiServer| {
                with_a_site(server).await;
                server.create(&secret("berlin", key, kubeconfig)).await;
            },
            move |manager| {
                let fleet = manager.fleet(Fleet::kubeconfig_secrets("shop"));
                fleet.controller(move |_: &FleetCluster| keeper().named("agents").workers(workers));
                manager
            },
        )
    };
    let stream = |name: &'static str| {
        said(with_a_site, move |manager| {
            let client = manager.client().clone();
            let fleet =
                manager.fleet(Fleet::stream(futures::stream::iter([(name.to_owned(), Some(client))])));
            fleet.controller(|_: &FleetCluster| keeper().named("agents"));
            manager
        })
    };
    let usable = "{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, \
                  user: a}}], clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: a, \
                  user: {token: a}}]}";
    let of_a_file = "{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: \
                     a, user: a}}], clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: \
                     a, user: {tokenFile: /token}}]}";
    vec![
        ("A fleet's Secret has no kubeconfig under its key", of_secret("value", usable, 1)),
        ("A fleet's kubeconfig is broken YAML", of_secret("kubeconfig", "clusters: [", 1)),
        ("A fleet's kubeconfig names a file", of_secret("kubeconfig", of_a_file, 1)),
        ("A fleet's controller can't be started", of_secret("kubeconfig", usable, 0)),
        ("A fleet's cluster has a name that can't be one", stream("The hub")),
    ]
}

fn of_no_namespace() -> String {
    paused(async {
        let server = ApiServer::in_memory().crd::<Website>().start().await;
        let nodes = || {
            Controller::from_fn(async |_: Arc<Namespace>, _: Context<Namespace>| {
                Ok::<_, watchkeeper::Error>(Action::await_change())
            })
        };
        let manager = Manager::new(server.client());
        let manager = manager.controller_in_namespaces("team", nodes).unwrap();
        let mut running = manager.spawn();
        shown(running.ended().await.unwrap_err())
    })
}

fn recording() -> String {
    paused(async {
        let server = ApiServer::in_memory().crd::<Website>().start().await;
        let folder = env::temp_dir().join(format!("mistakes-recording-{}", std::process::id()));
        let recorder = FlightRecorder::new(folder.join("websites.wkr"));
        let manager = Manager::new(server.client()).flight_recorder(recorder);
        let mut running = manager.controller(keeper()).spawn();
        shown(running.ended().await.unwrap_err()).replace(&folder.display().to_string(), "<folder>")
    })
}
