//! What is blamed on an operator, and what is not: chance, refused steps, what its users allow, the harness's own doing.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::{AsyncBufReadExt as _, StreamExt as _};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, CustomResource, ResourceExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use watchkeeper_apiserver::Clock;

use crate::oracle::{RunOutcome, run_schedule};
use crate::schedule::Schedule;
use crate::tests::{Bug, change, copier, copy_of, failed, source, trials};
use crate::timeline::{self, Length};
use crate::{Difference, Event, ForeignChange, Moment, Trials, Trouble, Violation, Visit, Whose};

/// Plays a trial after a run without trouble that is right.
fn outcome(trials: Trials, schedule: &str) -> RunOutcome {
    let plan = trials.settings.plan;
    let baseline = run_schedule(&plan, &Schedule::default(), None, true);
    assert_eq!(baseline.faults, [], "{}", told(&baseline));
    let schedule: Schedule = schedule.parse().unwrap();
    run_schedule(&plan, &schedule, Some(&baseline.baseline.clone().into()), true)
}

fn told(outcome: &RunOutcome) -> String {
    timeline::steps(&outcome.lines, Length::Whole).0
}

fn number() -> u64 {
    RandomState::new().hash_one(0)
}

async fn one_source(visit: Visit) {
    visit.create(&source("a")).await;
}

fn lost_or_killed(trouble: Trouble) -> bool {
    matches!(trouble, Trouble::Lost | Trouble::ReplyLost | Trouble::Killed(_))
}

/// Makes one secret for each source from a function, and runs again when maps change.
async fn vault(client: kube::Client, written: impl Fn() -> String) {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "default");
    let secrets = Api::<Secret>::namespaced(client.clone(), "default");
    loop {
        let Ok(list) = maps.list(&ListParams::default()).await else {
            sleep(Duration::from_secs(1)).await;
            continue;
        };
        let sources = list.items.iter().filter(|map| map.labels().contains_key("source"));
        let mut failed = false;
        for source in sources {
            let mut secret = copy_of(source);
            secret["kind"] = "Secret".into();
            secret["data"] = Value::Null;
            secret["stringData"] = json!({ "user": "admin", "password": written() });
            let secret: Secret = serde_json::from_value(secret).unwrap();
            failed |= match secrets.create(&PostParams::default(), &secret).await {
                Ok(_) => false,
                Err(kube::Error::Api(status)) => status.code != 409,
                Err(_) => true,
            };
        }
        match failed {
            true => sleep(Duration::from_secs(1)).await,
            false => change(&client, list.metadata.resource_version.as_deref().unwrap_or_default()).await,
        }
    }
}

// T11
#[test]
fn what_is_random_by_nature_is_no_fault_once_it_is_said() {
    let trials = || {
        Trials::of(|client| vault(client, || number().to_string()))
            .visitor(one_source)
            .only(lost_or_killed)
            .pairs(0)
    };
    let report = trials().run();
    let Violation::Chance(what) = failed(&report) else { panic!("{report}") };
    assert!(what.contains("secrets default/a-copy") && what.contains("data.password"), "{what}");
    assert!(what.contains(".random::<Kind>(\"/path/to/it\")"), "{what}");
    assert_eq!(report.failures[0].trial, "", "no trouble is blamed");
    trials().random::<Secret>("/data/password").check();
}

// T12
#[test]
fn a_time_that_the_operator_writes_is_not_blamed_on_a_trouble() {
    let trials = |written: fn() -> String| {
        let trials = Trials::of(move |client| vault(client, written)).visitor(one_source);
        trials.only(lost_or_killed).pairs(0)
    };
    let seconds = || Clock::default().now().as_second().to_string();
    let report = trials(seconds).run();
    let Violation::Chance(what) = failed(&report) else { panic!("{report}") };
    assert!(what.contains("data.password") && what.contains("machine's time"), "{what}");
    assert_eq!(report.singles, 0, "it is said before anything is tried");
}

// T12
#[test]
fn what_changes_while_trials_go_on_is_found_when_one_seems_to_fail() {
    let lives = Arc::new(AtomicUsize::new(0));
    let report = Trials::of(move |client| {
        let life = lives.fetch_add(1, Ordering::Relaxed);
        vault(client, move || (life / 3).to_string())
    })
    .visitor(one_source)
    .only(|trouble| trouble == Trouble::Lost)
    .pairs(0)
    .run();
    let Violation::Chance(what) = failed(&report) else { panic!("{report}") };
    assert!(what.contains("data.password") && what.contains("when a trial seemed to fail"), "{what}");
}

/// Greets each tenant, and deletes the databases, which users make, of a tenant that is gone.
async fn tenants(client: kube::Client) {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "default");
    let secrets = Api::<Secret>::namespaced(client.clone(), "default");
    loop {
        if tenants_once(&maps, &secrets).await.is_err() {
            sleep(Duration::from_secs(1)).await;
            continue;
        }
        let Ok(list) = maps.list(&ListParams::default()).await else { continue };
        change(&client, list.metadata.resource_version.as_deref().unwrap_or_default()).await;
    }
}

async fn tenants_once(maps: &Api<ConfigMap>, secrets: &Api<Secret>) -> Result<(), kube::Error> {
    let tenants = maps.list(&ListParams::default()).await?.items;
    for tenant in tenants.iter().filter(|map| map.labels().contains_key("source")) {
        if !tenant.annotations().contains_key("greeted") {
            let patch = Patch::Merge(json!({ "metadata": { "annotations": { "greeted": "yes" } } }));
            maps.patch(&tenant.name_any(), &PatchParams::default(), &patch).await?;
        }
    }
    for database in secrets.list(&ListParams::default()).await?.items {
        let is_there = |owner: &String| tenants.iter().any(|tenant| tenant.name_any() == *owner);
        if database.labels().get("tenant").is_some_and(|owner| !is_there(owner)) {
            secrets.delete(&database.name_any(), &DeleteParams::default()).await?;
        }
    }
    Ok(())
}

// T13
#[test]
fn a_cascade_is_no_fault_once_it_is_allowed() {
    let trials = || {
        Trials::of(tenants).pairs(0).visitor(async |visit: Visit| {
            let database = json!({ "metadata": { "name": "db", "labels": { "tenant": "a" } } });
            visit.create(&source("a")).await;
            visit.create(&serde_json::from_value::<Secret>(database).unwrap()).await;
            visit.edit::<ConfigMap>("a", |map| map.metadata.annotations = None).await;
        })
    };
    let deletes = |trouble| trouble == Trouble::Stranger(ForeignChange::Deletes, Whose::Its, Moment::After);
    let report = trials().only(deletes).run();
    let Violation::ChangedForeign(what) = failed(&report) else { panic!("{report}") };
    assert!(what.iter().any(|what| what.contains("delete secrets default/db")), "{what:?}");
    trials().only(deletes).may_delete::<Secret>().check();
    let other = trials().only(deletes).may_delete::<ConfigMap>().run();
    assert!(matches!(failed(&other), Violation::ChangedForeign(_)), "another kind may not be deleted");
}

/// Makes all copies again when it starts.
async fn begins_from_nothing(client: kube::Client) {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "default");
    for map in maps.list(&ListParams::default()).await.unwrap().items {
        if map.name_any().ends_with("-copy") {
            maps.delete(&map.name_any(), &DeleteParams::default()).await.unwrap();
        }
    }
    copier(client, Bug::None).await;
}

// T20
#[test]
fn what_a_restarted_operator_makes_again_is_work_that_it_finds() {
    let trials = Trials::of(begins_from_nothing).visitor(one_source).pairs(0);
    let edits = |trouble| matches!(trouble, Trouble::Stranger(ForeignChange::EditsSpec, Whose::Owners, _));
    let report = trials.only(edits).run();
    let Violation::LeftWork(differences) = failed(&report) else { panic!("{report}") };
    assert!(matches!(&differences[..], [Difference::MadeAgain { .. }]), "{differences:?}");
}

/// Gives each tenant a namespace, and tries once to delete it.
async fn houses(client: kube::Client) {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "default");
    let namespaces = Api::<Namespace>::all(client.clone());
    let mut known = BTreeSet::new();
    loop {
        let Ok(list) = maps.list(&ListParams::default()).await else {
            sleep(Duration::from_secs(1)).await;
            continue;
        };
        let tenants = list.items.iter().filter(|map| map.labels().contains_key("source"));
        let tenants: BTreeSet<String> = tenants.map(|map| format!("t-{}", map.name_any())).collect();
        for new in tenants.difference(&known) {
            let namespace = json!({ "metadata": { "name": new } });
            let namespace: Namespace = serde_json::from_value(namespace).unwrap();
            namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        }
        for gone in known.difference(&tenants) {
            let _ignored = namespaces.delete(gone, &DeleteParams::default()).await;
        }
        known = tenants;
        change(&client, list.metadata.resource_version.as_deref().unwrap_or_default()).await;
    }
}

// T3
#[test]
fn a_namespace_that_is_left_is_found() {
    let trials = Trials::of(houses).visitor(async |visit: Visit| {
        visit.create(&source("a")).await;
        visit.delete::<ConfigMap>("a").await;
    });
    let left = outcome(trials, "delete namespaces t-a/t-a #1: lost");
    assert!(!left.inert, "{}", told(&left));
    let [Violation::AnotherEnd(differences)] = &left.faults[..] else { panic!("{:?}", left.faults) };
    assert_eq!(differences[0].object(), "namespaces t-a");
}

/// Takes a minute and a half before it makes a copy.
async fn slow_copier(client: kube::Client) {
    sleep(Duration::from_secs(90)).await;
    copier(client, Bug::None).await;
}

async fn a_user_who_waits_for_a_copy(visit: Visit) {
    visit.create(&source("a")).await;
    visit.eventually::<ConfigMap>("a-copy", |copy| copy.is_some()).await;
    visit.patch::<ConfigMap>("a-copy", json!({ "metadata": { "labels": { "seen": "yes" } } })).await;
}

// T14
#[test]
fn a_user_waits_for_a_state() {
    let trials = || Trials::of(slow_copier).visitor(a_user_who_waits_for_a_copy);
    let killed = outcome(trials(), "patch configmaps default/a-copy #1: killed-before");
    assert_eq!((killed.faults.as_slice(), killed.baseline.refused.len()), (&[][..], 0), "{}", told(&killed));
    let waits = killed.lines.iter().position(|line| line.text == "waits for a state of ConfigMap a-copy");
    let patches = killed.lines.iter().position(|line| line.text.starts_with("patches ConfigMap a-copy"));
    let between = killed.lines[patches.unwrap()].at - killed.lines[waits.unwrap()].at;
    assert!(between > Duration::from_secs(90), "{between:?}");
}

// T14
#[test]
fn a_state_that_never_comes_is_the_operators_fault_unless_somebody_else_prevents_it() {
    let idle = Trials::of(|_| std::future::pending::<()>()).visitor(a_user_who_waits_for_a_copy);
    let report = idle.patience(Duration::from_secs(100)).run();
    let Violation::InVain(what) = failed(&report) else { panic!("{report}") };
    assert_eq!(what, &["waits for a state of ConfigMap a-copy"]);
    let of_others = Trials::of(|client| copier(client, Bug::None)).visitor(async |visit: Visit| {
        visit.create(&source("a")).await;
        visit.patch::<ConfigMap>("a", json!({ "data": { "text": "two" } })).await;
        let is_two = |copy: &ConfigMap| copy.data.as_ref().is_some_and(|data| data["text"] == "two");
        visit.eventually::<ConfigMap>("a-copy", |copy| copy.is_some_and(is_two)).await;
    });
    let prevented =
        outcome(of_others, "patch configmaps default/a-copy #1: stranger-deletes-its-owner-after");
    assert_eq!(prevented.faults, [], "{}", told(&prevented));
    assert!(told(&prevented).contains("waits in vain"), "{}", told(&prevented));
}

// T16
#[test]
fn a_step_that_is_refused_is_shown_and_not_blamed_on_the_operator() {
    let trials = Trials::of(|client| copier(client, Bug::None)).visitor(async |visit: Visit| {
        visit.create(&source("a")).await;
        visit.patch::<ConfigMap>("a-copy", json!({ "metadata": { "labels": { "seen": "yes" } } })).await;
    });
    let down = outcome(trials, "patch configmaps default/a-copy #1: down-before");
    let told = told(&down);
    assert!(told.contains("user      is refused: 404"), "{told}");
    assert!(told.contains("a step of the user was refused that is not refused"), "{told}");
    assert_eq!((down.faults, down.inert), (Vec::new(), false), "{told}");
}

/// Makes a job for each source.
async fn worker(client: kube::Client) {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "default");
    let jobs = Api::<Job>::namespaced(client.clone(), "default");
    loop {
        let Ok(list) = maps.list(&ListParams::default()).await else {
            sleep(Duration::from_secs(1)).await;
            continue;
        };
        for source in list.items.iter().filter(|map| map.labels().contains_key("source")) {
            let container = json!({ "name": "work", "image": "work:1" });
            let pod = json!({ "spec": { "restartPolicy": "Never", "containers": [container] } });
            let job = json!({ "metadata": { "name": source.name_any() }, "spec": { "template": pod } });
            let job: Job = serde_json::from_value(job).unwrap();
            let _it_may_be_there = jobs.create(&PostParams::default(), &job).await;
        }
        change(&client, list.metadata.resource_version.as_deref().unwrap_or_default()).await;
    }
}

// T16
#[test]
fn what_the_script_takes_away_is_not_blamed_on_the_operator() {
    let trials = Trials::of(worker).visitor(async |visit: Visit| {
        visit.create(&source("a")).await;
        let conditions = json!({ "conditions": [{ "type": "Suspended", "status": "False" }] });
        visit.patch_status::<Job>("a", conditions).await;
    });
    let added = outcome(trials, "create jobs default/a #1: stranger-adds-condition-to-it-after");
    assert_eq!((added.faults.as_slice(), added.inert), (&[][..], false), "{}", told(&added));
}

/// Something whose end takes time.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "trials.example.dev", version = "v1", kind = "Engine", namespaced)]
struct EngineSpec {
    size: i32,
}

/// Holds each engine by a finalizer, and takes its time to let it go.
async fn engines(client: kube::Client, cleanup: Duration) {
    let engines = Api::<Engine>::namespaced(client.clone(), "default");
    loop {
        let Ok(list) = engines.list(&ListParams::default()).await else {
            sleep(Duration::from_secs(5)).await;
            continue;
        };
        for engine in &list.items {
            let held = !engine.finalizers().is_empty();
            let finalizers = match engine.metadata.deletion_timestamp.is_some() {
                true if held => {
                    sleep(cleanup).await;
                    Value::Null
                }
                false if !held => json!(["trials.example.dev/engine"]),
                _ => continue,
            };
            let patch = Patch::Merge(json!({ "metadata": { "finalizers": finalizers } }));
            drop(engines.patch(&engine.name_any(), &PatchParams::default(), &patch).await);
        }
        let version = list.metadata.resource_version.unwrap_or_default();
        let uri = format!(
            "/apis/trials.example.dev/v1/namespaces/default/engines?watch=1&resourceVersion={version}"
        );
        let Ok(stream) = client.request_stream(http::Request::get(uri).body(Vec::new()).unwrap()).await
        else {
            sleep(Duration::from_secs(1)).await;
            continue;
        };
        let _late = timeout(Duration::from_secs(60), Box::pin(stream.lines()).next()).await;
    }
}

// T17
#[test]
fn the_stated_patience_bounds_how_long_a_kind_waits_for_its_objects_and_nothing_else_does() {
    let trials = |minutes: u64| {
        let cleanup = Duration::from_secs(60 * minutes);
        Trials::of(move |client| engines(client, cleanup))
            .crd::<Engine>()
            .visitor(async |visit: Visit| visit.create(&Engine::new("a", EngineSpec { size: 1 })).await)
    };
    let gone = "patch engines default/a #1: definition-gone";
    let slow = outcome(trials(5), gone);
    assert_eq!((slow.faults.as_slice(), slow.inert), (&[][..], false), "{}", told(&slow));
    assert!(told(&slow).contains("creates customresourcedefinitions"), "{}", told(&slow));
    let slower = outcome(trials(20), gone);
    assert!(matches!(slower.faults[..], [Violation::NeverAtRest { .. }]), "{:?}", slower.faults);
    let patient = outcome(trials(20).patience(Duration::from_secs(1_800)), gone);
    assert_eq!(patient.faults, [], "{}", told(&patient));
}

// T17
#[test]
fn what_goes_wrong_for_longer_than_the_patience_is_not_blamed_on_the_operator() {
    let trials = || trials(Bug::None).patience(Duration::from_secs(5));
    for trouble in
        ["partitioned", "rights-taken", "lists-expire", "stranger-adds-finalizer-to-its-owner-after"]
    {
        let short = outcome(trials(), &format!("patch configmaps default/b-copy #1: {trouble}"));
        assert_eq!((short.faults.as_slice(), short.inert), (&[][..], false), "{trouble}\n{}", told(&short));
    }
}

/// Counts for ever.
async fn counts(client: kube::Client) {
    let maps = Api::<ConfigMap>::namespaced(client, "default");
    for count in 0_u64.. {
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "count": count.to_string() } });
        drop(maps.patch("count", &PatchParams::apply("counts"), &Patch::Apply(map)).await);
        sleep(Duration::from_secs(1)).await;
    }
}

// T30
#[test]
fn what_never_comes_to_rest_is_named() {
    let report = Trials::of(counts).patience(Duration::from_secs(60)).run();
    let Violation::NeverAtRest { moving, .. } = failed(&report) else { panic!("{report}") };
    let [(name, times)] = moving.as_slice() else { panic!("{moving:?}") };
    assert!(name == "patch configmaps default/count" && *times > 50, "{moving:?}");
    let told = report.failures[0].to_string();
    assert!(told.contains("what was still moving") && told.contains("default/count ("), "{told}");
}

/// A copier that ends where it can't reach the server when it starts.
async fn checks_first(client: kube::Client) -> Result<(), kube::Error> {
    Api::<ConfigMap>::namespaced(client.clone(), "default").list(&ListParams::default()).await?;
    copier(client, Bug::None).await;
    Ok(())
}

// T18
#[test]
fn an_operator_that_ends_by_itself_is_started_again_as_the_kubelet_does() {
    let trials = || trials_of(checks_first);
    let refused = |trouble| {
        matches!(trouble, Trouble::Lost | Trouble::Refused(500) | Trouble::Server(Event::Partitioned))
    };
    let report = trials().only(refused).run();
    let Violation::Ended(how) = failed(&report) else { panic!("{report}") };
    assert!(how[0].starts_with("it ended: Err("), "{how:?}");
    let story = &report.failures[0].story;
    assert!(story.contains("the kubelet starts it again after 10s"), "{story}");
    assert!(report.failures[0].to_string().contains("`.may_end()`"), "{report}");
    trials().only(refused).may_end().check();
    let never = Trials::of(|_| async { "there is no configuration" }).may_end().run();
    let Violation::Ended(how) = failed(&never) else { panic!("{never}") };
    assert!(how.len() < 12, "the kubelet waits for longer each time: {}", how.len());
}

fn trials_of<O, F>(operator: O) -> Trials
where
    O: Fn(kube::Client) -> F + Send + Sync + 'static,
    F: Future<Output = Result<(), kube::Error>> + 'static,
{
    Trials::of(operator).pairs(0).visitor(one_source)
}

/// Set in a process that is to end within a trial.
const ENDS: &str = "WATCHKEEPER_TEST_ENDS_THE_PROCESS";

// T19
#[test]
fn a_process_that_ends_within_a_trial_says_which_and_fails() {
    if std::env::var_os(ENDS).is_some() {
        let exits = async |client: kube::Client| match checks_first(client).await {
            Ok(()) => (),
            Err(_) => std::process::exit(0),
        };
        Trials::of(exits)
            .visitor(one_source)
            .only(|trouble| trouble == Trouble::Refused(500))
            .pairs(0)
            .check();
        return;
    }
    if !cfg!(all(target_os = "linux", target_env = "gnu")) {
        return;
    }
    let name = "blame_tests::a_process_that_ends_within_a_trial_says_which_and_fails";
    let mut again = Command::new(std::env::current_exe().unwrap());
    let output = again.args(["--exact", name]).env(ENDS, "1").output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "a code of 0 would pass for success: {told}");
    assert!(
        told.contains("the operator ends the process in a trial: list configmaps in default #1: refused-500"),
        "{told}"
    );
    let line = format!(
        "WATCHKEEPER_TRIAL='list configmaps in default #1: refused-500' cargo test {name} -- --nocapture"
    );
    assert!(told.contains(&line), "{told}");
}

/// Copies each source once, and remembers that by a function.
async fn copies_once(client: kube::Client, known_by: fn(&ConfigMap) -> Option<String>) {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "default");
    let mut done: HashSet<Option<String>> = HashSet::new();
    loop {
        let Ok(list) = maps.list(&ListParams::default()).await else {
            sleep(Duration::from_secs(1)).await;
            continue;
        };
        for source in list.items.iter().filter(|map| map.labels().contains_key("source")) {
            if done.contains(&known_by(source)) {
                continue;
            }
            let source = maps.get(&source.name_any()).await.unwrap();
            let mut copy = copy_of(&source);
            copy["metadata"]["ownerReferences"] = Value::Null;
            let name = copy["metadata"]["name"].as_str().unwrap().to_owned();
            maps.patch(&name, &PatchParams::apply("copier").force(), &Patch::Apply(copy)).await.unwrap();
            done.insert(known_by(&source));
        }
        change(&client, list.metadata.resource_version.as_deref().unwrap_or_default()).await;
    }
}

// T20
#[test]
fn who_takes_an_object_that_was_replaced_for_the_old_one_is_found() {
    let remade = "get configmaps default/a #1: stranger-remakes-it-after";
    let by_name = Trials::of(|client| copies_once(client, |source| source.metadata.name.clone()));
    let by_name = outcome(by_name.visitor(one_source), remade);
    assert!(
        matches!(by_name.faults[..], [Violation::LeftWork(_)]),
        "{:?}\n{}",
        by_name.faults,
        told(&by_name)
    );
    let by_uid = Trials::of(|client| copies_once(client, |source| source.metadata.uid.clone()));
    let by_uid = outcome(by_uid.visitor(one_source), remade);
    assert_eq!((by_uid.faults.as_slice(), by_uid.inert), (&[][..], false), "{}", told(&by_uid));
    assert!(told(&by_uid).contains("+   text: onex"), "{}", told(&by_uid));
}

// T21
#[test]
fn a_replay_tells_every_step() {
    let ends = Arc::new(AtomicUsize::new(0));
    let report = Trials::of(async |client: kube::Client| {
        drop(Api::<ConfigMap>::namespaced(client, "default").get("none").await);
        std::future::pending::<()>().await;
    })
    .visitor(async |visit: Visit| {
        visit.create(&source("a")).await;
        for number in 0..90 {
            visit.patch::<ConfigMap>("a", json!({ "data": { "text": "x".repeat(number) } })).await;
        }
    })
    .claim(async move |_| {
        let earlier = ends.fetch_add(1, Ordering::Relaxed);
        assert!(earlier < 2, "the runs without trouble were two");
    })
    .trial("get configmaps default/none #1: lost")
    .run();
    failed(&report);
    let failure = &report.failures[0];
    assert!(failure.steps > 90, "{}", failure.steps);
    assert!(!failure.story.contains("steps before") && !failure.story.contains("steps between"));
    assert!((1..=failure.steps).all(|step| failure.story.contains(&format!("{step:>4}. "))));
}

/// Copies sources in the order in which kube's runtime does: a run begins when a page brings an object, and looks into a
/// store that has the pages only after the last.
async fn copies_by_pages(client: kube::Client) {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "default");
    let mut store: HashMap<String, ConfigMap> = HashMap::new();
    loop {
        let Ok(version) = list_by_pages(&maps, &mut store).await else {
            sleep(Duration::from_secs(2)).await;
            continue;
        };
        let uri = format!("/api/v1/namespaces/default/configmaps?&watch=1&resourceVersion={version}");
        if let Ok(stream) = client.request_stream(http::Request::get(uri).body(Vec::new()).unwrap()).await {
            let mut lines = Box::pin(stream.lines());
            while let Some(Ok(line)) = lines.next().await {
                let event: Value = serde_json::from_str(&line).unwrap();
                let Ok(map) = serde_json::from_value::<ConfigMap>(event["object"].clone()) else { break };
                let name = map.name_any();
                store.insert(name.clone(), map);
                copy_from(&maps, &store, &name).await;
            }
        }
        sleep(Duration::from_secs(2)).await;
    }
}

async fn list_by_pages(
    maps: &Api<ConfigMap>,
    store: &mut HashMap<String, ConfigMap>,
) -> Result<String, kube::Error> {
    let (mut all, mut asked) = (HashMap::new(), ListParams::default().limit(500));
    loop {
        let page = maps.list(&asked).await?;
        for map in page.items {
            let name = map.name_any();
            all.insert(name.clone(), map);
            copy_from(maps, store, &name).await;
        }
        let Some(go_on) = page.metadata.continue_.filter(|token| !token.is_empty()) else {
            *store = all;
            return Ok(page.metadata.resource_version.unwrap_or_default());
        };
        asked = asked.continue_token(&go_on);
    }
}

async fn copy_from(maps: &Api<ConfigMap>, store: &HashMap<String, ConfigMap>, name: &str) {
    let Some(source) = store.get(name).filter(|map| map.labels().contains_key("source")) else { return };
    let copy = copy_of(source);
    let name = copy["metadata"]["name"].as_str().unwrap();
    drop(maps.patch(name, &PatchParams::apply("copier").force(), &Patch::Apply(&copy)).await);
}

// T22
#[test]
fn a_story_says_where_kubes_runtime_drops_a_run() {
    let trials = || {
        Trials::of(copies_by_pages).visitor(async |visit: Visit| {
            visit.create(&source("a")).await;
            visit.create(&source("b")).await;
            visit.patch::<ConfigMap>("a", json!({ "data": { "text": "two" } })).await;
        })
    };
    let dropped = outcome(trials(), "patch configmaps default/b-copy #1: lists-expire");
    let story = told(&dropped);
    assert!(matches!(dropped.faults[..], [Violation::AnotherEnd(_)]), "{:?}\n{story}", dropped.faults);
    assert!(story.contains("note") && story.contains("this is not the operator's fault"), "{story}");
    let at = story.find("this is not the operator's fault").unwrap();
    assert!(story[at..].contains("configmaps default/a, version"), "{story}");
    let held = outcome(trials(), "patch configmaps default/b-copy #1: lost");
    assert!(!told(&held).contains("kube's runtime"), "{}", told(&held));
}

/// Writes an event of a source, and counts on.
async fn events(client: kube::Client) {
    use k8s_openapi::api::events::v1::Event as Noted;
    let events = Api::<Noted>::namespaced(client, "default");
    let noted = json!({ "metadata": { "name": "a.1" }, "action": "Copy", "reason": "Copied", "type": "Normal",
        "note": "one", "reportingController": "copier", "reportingInstance": "copier-1",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "regarding": { "kind": "ConfigMap", "name": "a", "namespace": "default" } });
    let noted: Noted = serde_json::from_value(noted).unwrap();
    events.create(&PostParams::default(), &noted).await.unwrap();
    let series = json!({ "series": { "count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z" } });
    events.patch("a.1", &PatchParams::default(), &Patch::Merge(series)).await.unwrap();
    std::future::pending().await
}

// T21
#[test]
fn a_story_compares_an_object_with_itself_in_the_same_version() {
    let plan = Trials::of(events).settings.plan;
    let told = told(&run_schedule(&plan, &Schedule::default(), None, true));
    assert!(told.contains("patch events default/a.1 → 200") && told.contains("count: 2"), "{told}");
    assert!(!told.contains("involvedObject") && told.matches("regarding").count() == 1, "{told}");
}

// T15
#[test]
fn trials_are_shared_by_several_jobs_and_gone_on_with() {
    let trials = || trials(Bug::None).only(|trouble| trouble == Trouble::Lost).pairs(4);
    let all = trials().run();
    let parts: Vec<_> = (1..=3).map(|part| trials().part(part, 3).run()).collect();
    let sum = |count: fn(&crate::Report) -> usize| parts.iter().map(count).sum::<usize>();
    assert_eq!((sum(|part| part.singles), sum(|part| part.pairs)), (all.singles, all.pairs));
    assert!(parts[1].to_string().starts_with("trials (part 2/3): "), "{}", parts[1]);

    let left = trials().part(2, 3).for_at_most(Duration::ZERO).run();
    let from = left.left_out_from.clone().unwrap();
    let go_on = left.go_on.clone().unwrap();
    let test = "blame_tests::trials_are_shared_by_several_jobs_and_gone_on_with";
    assert_eq!(go_on, format!("WATCHKEEPER_TRIALS='part 2/3 from {from}' cargo test {test} -- --nocapture"));
    assert!(left.to_string().contains(&format!("to go on there: {go_on}")), "{left}");
    let rest = trials().part(2, 3).going_on_from(from).run();
    assert_eq!((rest.singles, rest.pairs, rest.left_out), (parts[1].singles, parts[1].pairs, 0));
}

#[test]
#[should_panic(expected = "there is no trial")]
fn trials_that_are_not_there_are_not_gone_on_with() {
    let _report = trials(Bug::None).only(|_| false).going_on_from("get maps shop/a #1: lost").run();
}
