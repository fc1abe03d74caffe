//! Trials of operators that are small enough to read: right ones hold, each bug is found.

use std::time::Duration;

use futures::{AsyncBufReadExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::cases::singles;
use crate::oracle::run_schedule;
use crate::schedule::Schedule;
use crate::{By, Change, Changes, Difference, Event, Moment, Report, Trials, Trouble, Violation, Visit};

pub(crate) fn source(name: &str) -> ConfigMap {
    let object =
        json!({ "metadata": { "name": name, "labels": { "source": "yes" } }, "data": { "text": "one" } });
    serde_json::from_value(object).unwrap()
}

pub(crate) fn copy_of(source: &ConfigMap) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": format!("{}-copy", source.metadata.name.as_deref().unwrap()),
            "ownerReferences": [{ "apiVersion": "v1", "kind": "ConfigMap", "controller": true,
                "name": source.metadata.name, "uid": source.metadata.uid }],
        },
        "data": source.data,
    })
}

/// Waits until something happens to a map, for a minute at most.
pub(crate) async fn change(client: &kube::Client, version: &str) {
    let uri = format!("/api/v1/namespaces/default/configmaps?watch=1&resourceVersion={version}");
    let request = http::Request::get(uri).body(Vec::new()).unwrap();
    let Ok(stream) = client.request_stream(request).await else { return sleep(Duration::from_secs(1)).await };
    let mut lines = Box::pin(stream.lines());
    let _late = timeout(Duration::from_secs(60), lines.next()).await;
}

/// What an operator does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    None,
    /// It makes what is missing under a generated name, by its own memory of what it has made.
    GeneratesNames,
    /// It takes over whatever has the name.
    Adopts,
    /// It gives up after the first error.
    GivesUp,
    /// It writes a time whenever it looks.
    NeverRests,
    /// It looks after deletions only while it sees them.
    ForgetsDeletions,
}

/// Keeps a copy of each source.
pub(crate) async fn copier(client: kube::Client, bug: Bug) {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), "default");
    let mut seen: Vec<String> = Vec::new();
    loop {
        let Ok(list) = maps.list(&ListParams::default()).await else {
            if bug == Bug::GivesUp {
                return std::future::pending().await;
            }
            sleep(Duration::from_secs(1)).await;
            continue;
        };
        let sources: Vec<ConfigMap> = list
            .items
            .iter()
            .filter(|map| map.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key("source")))
            .filter(|map| map.metadata.deletion_timestamp.is_none())
            .cloned()
            .collect();
        let mut failed = false;
        for source in &sources {
            failed |= keep(&maps, &list.items, source, bug).await.is_err();
        }
        if bug == Bug::ForgetsDeletions {
            failed |= remove_copies(&maps, &mut seen, &sources).await.is_err();
        }
        if failed && bug == Bug::GivesUp {
            return std::future::pending().await;
        }
        if failed {
            sleep(Duration::from_secs(1)).await;
        } else {
            change(&client, list.metadata.resource_version.as_deref().unwrap_or_default()).await;
        }
    }
}

async fn keep(
    maps: &Api<ConfigMap>,
    all: &[ConfigMap],
    source: &ConfigMap,
    bug: Bug,
) -> Result<(), kube::Error> {
    let mut wanted = copy_of(source);
    if bug == Bug::NeverRests {
        wanted["data"]["at"] = format!("{:?}", tokio::time::Instant::now()).into();
    }
    if bug == Bug::ForgetsDeletions {
        wanted["metadata"]["ownerReferences"] = json!([]);
    }
    let name = wanted["metadata"]["name"].as_str().unwrap().to_owned();
    let with = PatchParams::apply("copier").force();
    if bug == Bug::GeneratesNames {
        let owned = |map: &&ConfigMap| {
            let owners = map.metadata.owner_references.iter().flatten();
            owners.map(|owner| &owner.uid).any(|uid| Some(uid) == source.metadata.uid.as_ref())
        };
        if all.iter().find(owned).is_none() {
            wanted["metadata"] = json!({ "generateName": format!("{name}-"),
                "ownerReferences": wanted["metadata"]["ownerReferences"] });
            let object: ConfigMap = serde_json::from_value(wanted).unwrap();
            // A reply that was lost is taken for a write that was.
            for _ in 0..2 {
                if maps.create(&PostParams::default(), &object).await.is_ok() {
                    break;
                }
            }
        }
        return Ok(());
    }
    let there = all.iter().find(|map| map.metadata.name.as_deref() == Some(&name));
    if bug == Bug::None {
        let ours = |map: &ConfigMap| {
            let owners = map.metadata.owner_references.iter().flatten();
            owners.map(|owner| &owner.uid).any(|uid| Some(uid) == source.metadata.uid.as_ref())
        };
        match there {
            Some(there) if !ours(there) && there.metadata.owner_references.is_none() => {
                // It was somebody else's, or somebody took our mark off: only what we made has our field manager.
                let fields = there.metadata.managed_fields.iter().flatten();
                if !fields.map(|entry| entry.manager.as_deref()).any(|manager| manager == Some("copier")) {
                    return Ok(());
                }
            }
            Some(there) if ours(there) && there.data == source.data => return Ok(()),
            Some(there) => wanted["metadata"]["resourceVersion"] = json!(there.metadata.resource_version),
            None => wanted["metadata"]["resourceVersion"] = "1".into(),
        }
    }
    maps.patch(&name, &with, &Patch::Apply(wanted)).await.map(|_| ())
}

async fn remove_copies(
    maps: &Api<ConfigMap>,
    seen: &mut Vec<String>,
    sources: &[ConfigMap],
) -> Result<(), kube::Error> {
    let now: Vec<String> = sources.iter().filter_map(|map| map.metadata.name.clone()).collect();
    for gone in seen.iter().filter(|name| !now.contains(name)) {
        maps.delete(&format!("{gone}-copy"), &DeleteParams::default()).await?;
    }
    *seen = now;
    Ok(())
}

pub(crate) fn trials(bug: Bug) -> Trials {
    Trials::of(move |client| copier(client, bug)).pairs(20).visitor(async |visit: Visit| {
        visit.create(&source("a")).await;
        visit
            .edit::<ConfigMap>("a", |map| {
                map.data.get_or_insert_default().insert("text".into(), "two".into());
            })
            .await;
        visit.create(&source("b")).await;
        visit.delete::<ConfigMap>("a").await;
    })
}

pub(crate) fn failed(report: &Report) -> &Violation {
    let failure = report.failures.first().unwrap_or_else(|| panic!("nothing was found: {report}"));
    eprintln!("{report}\n{failure}");
    &failure.faults[0]
}

// T3
#[test]
fn an_operator_that_is_right_holds_whatever_happens() {
    trials(Bug::None).check();
}

#[test]
fn a_child_made_twice_is_found() {
    let report = trials(Bug::GeneratesNames).run();
    assert!(matches!(failed(&report), Violation::AnotherEnd(_)));
    assert!(report.failures[0].trial.contains("create configmaps"), "{}", report.failures[0].trial);
}

// T8
#[test]
fn an_adopted_stranger_is_found() {
    let only = |trouble| matches!(trouble, Trouble::Stranger(..));
    assert!(matches!(failed(&trials(Bug::Adopts).only(only).run()), Violation::ChangedForeign(_)));
}

#[test]
fn an_error_that_is_not_retried_is_found() {
    assert!(matches!(
        failed(&trials(Bug::GivesUp).run()),
        Violation::AnotherEnd(_) | Violation::NeverAtRest { .. }
    ));
}

#[test]
fn an_operator_that_never_rests_fails_without_any_trouble() {
    let report = trials(Bug::NeverRests).run();
    assert!(matches!(failed(&report), Violation::NeverAtRest { .. } | Violation::ChangesAtRest { .. }));
    assert_eq!(report.failures[0].trial, "");
}

#[test]
fn a_deletion_missed_while_down_is_found() {
    let only = |trouble| matches!(trouble, Trouble::Down(Moment::After));
    assert!(matches!(failed(&trials(Bug::ForgetsDeletions).only(only).run()), Violation::AnotherEnd(_)));
}

// T1
#[test]
fn a_user_goes_on_while_the_operator_is_down() {
    let plan = trials(Bug::None).settings.plan;
    let baseline = run_schedule(&plan, &Schedule::default(), None, false).baseline.into();
    let schedule: Schedule = "patch configmaps default/b-copy #1: down-after".parse().unwrap();
    let outcome = run_schedule(&plan, &schedule, Some(&baseline), true);
    let at = |text: &str| outcome.lines.iter().position(|line| line.text.starts_with(text));
    let last = |text: &str| outcome.lines.iter().rposition(|line| line.text.starts_with(text));
    let (dies, deletes, starts) = (at("dies"), at("deletes ConfigMap a"), last("restarts"));
    assert!(
        dies < deletes && deletes < starts,
        "{}",
        super::timeline::steps(&outcome.lines, super::timeline::Length::Short).0
    );
    assert_eq!(outcome.faults, Vec::new());
}

// T6
#[test]
fn a_trial_is_replayed_by_its_line() {
    let found = trials(Bug::GeneratesNames).run().failures.remove(0);
    let again = trials(Bug::GeneratesNames).trial(found.trial.clone()).run();
    assert_eq!(again.failures[0].faults, found.faults);
    assert_eq!(again.failures[0].story, found.story, "two runs of one trial are equal");
}

// T2
#[test]
fn two_runs_of_one_trial_are_equal_request_for_request() {
    let plan = trials(Bug::None).settings.plan;
    let baseline = run_schedule(&plan, &Schedule::default(), None, false);
    let all = singles(&baseline, &|_| true);
    assert!(all.len() > 100);
    for one in all.into_iter().step_by(5) {
        let schedule = Schedule::of(vec![one]);
        let runs =
            [(); 2].map(|()| run_schedule(&plan, &schedule, Some(&baseline.baseline.clone().into()), true));
        let [first, second] = &runs;
        let places = |sent: &[super::harness::Sent]| -> Vec<String> {
            sent.iter().map(|sent| sent.place.to_string()).collect()
        };
        assert_eq!(places(&first.sent), places(&second.sent), "{schedule}");
        assert_eq!(first.lines, second.lines, "{schedule}");
    }
}

// T1
#[test]
fn a_trouble_strikes_at_its_request_and_at_no_other() {
    let plan = trials(Bug::None).settings.plan;
    let baseline = run_schedule(&plan, &Schedule::default(), None, false).baseline.into();
    let schedule: Schedule = "patch configmaps default/a-copy #2: refused-500".parse().unwrap();
    let outcome = run_schedule(&plan, &schedule, Some(&baseline), true);
    let patches: Vec<&str> = outcome
        .lines
        .iter()
        .filter_map(|line| line.text.lines().next()?.strip_prefix("patch configmaps default/a-copy → "))
        .collect();
    assert!(patches[0].starts_with("201"), "{patches:?}");
    assert!(patches[1].starts_with("500"), "{patches:?}");
    assert!(patches[2..].iter().all(|patch| !patch.starts_with("500")), "{patches:?}");
    assert!(!outcome.inert);
}

// T6
#[test]
fn a_story_tells_whose_view_was_stale_and_what_changed() {
    let plan = trials(Bug::None).settings.plan;
    let baseline = run_schedule(&plan, &Schedule::default(), None, false).baseline.into();
    let schedule: Schedule = "patch configmaps default/a-copy #2: stranger-edits-it-before".parse().unwrap();
    let outcome = run_schedule(&plan, &schedule, Some(&baseline), true);
    let (told, _) = super::timeline::steps(&outcome.lines, super::timeline::Length::Short);
    assert!(told.contains("[stale view: it knows version "), "{told}");
    assert!(told.contains("-   text: one") && told.contains("+   text: two"), "{told}");
    assert!(told.contains("just before it, somebody else edits the object"), "{told}");
}

// T7
#[test]
fn what_is_left_out_for_lack_of_time_is_named() {
    let report = trials(Bug::None).for_at_most(Duration::ZERO).run();
    assert_eq!((report.singles, report.pairs), (0, 0));
    assert!(report.left_out > 100, "{report}");
    let first = report.left_out_from.clone().unwrap();
    assert!(first.ends_with("#1: lost"), "{first}");
    assert!(
        report.to_string().contains(&format!("left out for lack of time, from `{first}` on")),
        "{report}"
    );
}

// T9
#[test]
fn somebody_puts_an_earlier_copy_back() {
    let plan = trials(Bug::None).settings.plan;
    let baseline = run_schedule(&plan, &Schedule::default(), None, false);
    let all: Vec<String> = singles(&baseline, &|_| true).iter().map(ToString::to_string).collect();
    let back = "patch configmaps default/a-copy #2: stranger-replaces-its-owner-before";
    assert!(all.iter().any(|one| one == back), "there is an earlier copy of what was edited");
    let none = "patch configmaps default/a-copy #1: stranger-replaces-its-owner-before";
    assert!(!all.iter().any(|one| one == none), "there is none yet");
    let outcome = run_schedule(&plan, &back.parse().unwrap(), Some(&baseline.baseline.clone().into()), true);
    let (told, _) = super::timeline::steps(&outcome.lines, super::timeline::Length::Short);
    assert!(told.contains("somebody else replaces its owner by an earlier"), "{told}");
    let line = outcome.lines.iter().find(|line| line.who == super::timeline::Actor::Stranger).unwrap();
    assert!(line.text.contains("-   text: two") && line.text.contains("+   text: one"), "{told}");
    assert_eq!((outcome.faults, outcome.inert), (Vec::new(), false));
}

// T10
#[test]
fn a_claim_of_changes_is_told_whose_each_is() {
    let is_copy = |change: &Change| change.key.ends_with("-copy");
    let whose = move |changes: &Changes| {
        assert!(changes.complete);
        for change in changes.all.iter().filter(|change| change.resource == "configmaps" && !change.gone) {
            let by = if is_copy(change) { By::Operator } else { By::Others };
            assert_eq!(change.by, by, "{change:?}");
            assert_eq!(change.controller.is_empty(), !is_copy(change), "{change:?}");
        }
        assert!(changes.all.iter().any(|change| change.gone && is_copy(change) && change.by == By::Others));
    };
    trials(Bug::None).only(|_| false).claim_of_changes(whose).check();
    // It does not know of a change whose answer it never got.
    let report =
        trials(Bug::None).only(|trouble| trouble == Trouble::ReplyLost).claim_of_changes(whose).run();
    let Violation::Claim(what) = failed(&report) else { panic!("{report}") };
    assert!(what.contains("-copy"), "{what}");
}

// T10
#[test]
fn changes_that_a_server_forgot_are_missed() {
    let forgets = |trouble| trouble == Trouble::Server(Event::ForgetsHistory);
    let complete = |changes: &Changes| assert!(changes.complete, "some are forgotten");
    let report = trials(Bug::None).only(forgets).claim_of_changes(complete).run();
    assert_eq!(failed(&report), &Violation::Claim("some are forgotten".into()));
}

/// Counts its lives by what they leave; a task that nobody stops leaves something later.
async fn haunted(client: kube::Client) {
    let maps = Api::<ConfigMap>::namespaced(client, "default");
    let lives = maps.list(&ListParams::default()).await.unwrap().items.len() + 1;
    let named = |name: &str| -> ConfigMap {
        serde_json::from_value(json!({ "metadata": { "name": format!("{name}-{lives}") } })).unwrap()
    };
    let (start, late, again) = (named("start"), named("late"), maps.clone());
    tokio::spawn(async move {
        sleep(Duration::from_secs(5)).await;
        drop(again.create(&PostParams::default(), &late).await);
    });
    drop(maps.create(&PostParams::default(), &start).await);
    std::future::pending().await
}

// T5
#[test]
fn a_life_that_is_over_sends_nothing_more() {
    let killed = |trouble| trouble == Trouble::Killed(Moment::After);
    let report = Trials::of(haunted).only(killed).run();
    let Violation::AnotherEnd(differences) = failed(&report) else { panic!("{report}") };
    let gone = Difference::Count { name: "configmaps default/late-1".into(), expected: 1, found: 0 };
    assert!(differences.contains(&gone), "{differences:?}");
}

// T2
#[test]
fn a_function_that_panics_is_an_operator_that_ends() {
    let report = Trials::of(|_| -> std::future::Pending<()> { panic!("no configuration") }).run();
    let Violation::Ended(how) = failed(&report) else { panic!("{report}") };
    assert_eq!(how[0], "it panicked: no configuration");
}

// T2
#[test]
fn a_patience_without_an_end_is_long() {
    trials(Bug::None).patience(Duration::MAX).only(|_| false).check();
}

// T31
#[test]
fn an_operator_that_sends_nothing_can_be_upgraded() {
    let idle = |_| std::future::pending::<()>();
    Trials::upgrade(idle, idle).check();
}

/// Deletes all that have a label, again and again.
async fn sweeper(client: kube::Client, label: &'static str) {
    let maps = Api::<ConfigMap>::namespaced(client, "default");
    loop {
        let these = ListParams::default().labels(label);
        let _ignored = maps.delete_collection(&DeleteParams::default(), &these).await;
        sleep(Duration::from_secs(20)).await;
    }
}

// T2
#[test]
fn a_sweep_that_finds_nothing_changes_nothing() {
    Trials::of(|client| sweeper(client, "nobody=has-it")).only(|_| false).check();
}

// T2
#[test]
fn an_operator_that_is_not_deterministic_is_told_so() {
    let lives = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let trials = Trials::of(move |client| {
        let life = lives.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        async move {
            let maps = Api::<ConfigMap>::namespaced(client, "default");
            let _ignored = maps.get(&format!("map-{life}")).await;
            std::future::pending::<()>().await;
        }
    });
    let report = trials.run();
    let Violation::Chance(what) = failed(&report) else { panic!("{report}") };
    assert!(what.contains("random numbers") && what.contains("map-0") && what.contains("map-1"), "{what}");
}
