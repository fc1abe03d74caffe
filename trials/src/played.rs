//! Lets others do again what a recording says they did.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::time::{Instant, sleep_until, timeout_at};
use watchkeeper_apiserver::inside::{self, RequestInfo, object};

use crate::diff;
use crate::harness::{Harness, Rest};
use crate::recording::{ForeignEvent, Recording, effect};
use crate::timeline::Actor;
use crate::visit::Visit;

/// Puts the objects in place that were there at first.
pub(crate) fn set_up(harness: &Harness, recording: &Recording) {
    harness.state().not_recorded = recording.hidden.clone();
    let uids = recording.initial.iter().map(|(_, value)| object::uid(value).to_owned());
    harness.state().recorded = uids.collect();
    for (path, value) in &recording.initial {
        assume_owners(harness, value);
        let _unknown_kinds_are_left_out = inside::put(&harness.server, path, Some(value.clone()));
    }
}

/// How long nothing must happen until this build makes no more of what others changed.
const QUIET: Duration = Duration::from_secs(30);

/// Lets others do what they did, at the same times.
pub(crate) async fn play(visit: &Visit, recording: &Recording) {
    let (harness, began) = (&visit.harness, Instant::now());
    harness.state().played_since = Some(began);
    let mut player = Player { harness, recording, held: Vec::new() };
    for (number, event) in recording.others.iter().enumerate() {
        let at = began + event.at;
        let _either = timeout_at(at, player.play_held()).await;
        sleep_until(at).await;
        harness.up();
        player.held.push(number);
        player.try_held();
    }
    let deadline = harness.deadline(Instant::now());
    tokio::select! {
        () = player.play_held() => {}
        _ = harness.rest(Rest::OfAll, QUIET, deadline) => {}
    }
}

/// Plays events in their order, each when this build is as far as it must be.
struct Player<'a> {
    harness: &'a Harness,
    recording: &'a Recording,
    /// The events that wait for this build, by number.
    held: Vec<usize>,
}

impl Player<'_> {
    /// Plays what waits as soon as that can be, until nothing waits.
    async fn play_held(&mut self) {
        let mut looked = None;
        while !self.held.is_empty() {
            let moved = self.harness.moved.notified();
            let now = Some(self.harness.server.resource_version());
            // Most requests change nothing.
            if looked != now {
                self.try_held();
                looked = now;
                continue;
            }
            moved.await;
        }
    }

    fn try_held(&mut self) {
        let Self { harness, recording, held } = self;
        let mut waiting = HashSet::new();
        held.retain(|number| {
            let event = &recording.others[*number];
            if waiting.contains(&event.path) {
                return true;
            }
            match change(harness, recording, event) {
                Played::NotYet => {
                    waiting.insert(&event.path);
                    return true;
                }
                Played::Nothing => {}
                Played::Changed => {
                    inside::collect_garbage(&harness.server);
                    harness.disturb(|| format!("others change {}", event.path));
                    harness.tell(Actor::Stranger, || told(event));
                }
            }
            false
        });
    }
}

fn told(event: &ForeignEvent) -> String {
    let ForeignEvent { path, before, after, .. } = event;
    let info = path.parse().map(|uri| RequestInfo::of(&http::Method::GET, &uri)).ok();
    let of = after.as_ref().or(before.as_ref());
    let key = of.map(|of| object::key(object::namespace(of), object::name(of))).unwrap_or_default();
    let resource = info.map(|info| info.resource).unwrap_or_default();
    let verb = match (before, after) {
        (None, _) => "creates",
        (_, None) => "deletes",
        _ => "changes",
    };
    let differences = effect(before.as_ref(), after.as_ref().unwrap_or(&Value::Null));
    let differences = if after.is_some() { diff::cut(differences) } else { Vec::new() };
    let lines: String = differences.iter().map(|line| format!("\n{line}")).collect();
    format!("{verb} {resource} {key}{lines}")
}

/// What came of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Played {
    Changed,
    /// There was nothing to change.
    Nothing,
    /// This build has not made yet what it is about, or has not let go of it.
    NotYet,
}

/// Makes a change of others on what is there now.
fn change(harness: &Harness, recording: &Recording, event: &ForeignEvent) -> Played {
    let ForeignEvent { path, before, after, .. } = event;
    let Some(info) = info_of(path) else { return Played::Nothing };
    let put = |value| match inside::put(&harness.server, path, value) {
        true => Played::Changed,
        false => Played::Nothing,
    };
    // Of an object that is made again, later events are of another one.
    let is_to_come = || {
        let of = before.as_ref().map(object::uid);
        of.is_some_and(|uid| recording.first_made.get(path).is_some_and(|first| first == uid))
            && !was_made(harness, &info, before.as_ref())
    };
    match (inside::peek(&harness.server, &info), after) {
        (Some(there), None) if is_held(&there, before.as_ref()) => Played::NotYet,
        (Some(_), None) => put(None),
        (None, Some(after)) if before.is_none() => match with_owners_of_now(harness, recording, after) {
            Some(after) => put(Some(after)),
            None => Played::NotYet,
        },
        (None, _) if is_to_come() => Played::NotYet,
        (None, _) => Played::Nothing,
        (Some(there), Some(after)) => {
            let patch = difference(before.as_ref().unwrap_or(&there), after);
            let Some(patch) = with_owners_of_now(harness, recording, &patch) else { return Played::NotYet };
            let mut changed = there.clone();
            json_patch::merge(&mut changed, &patch);
            if changed == there { Played::Nothing } else { put(Some(changed)) }
        }
    }
}

fn info_of(path: &str) -> Option<RequestInfo> {
    Some(RequestInfo::of(&http::Method::GET, &path.parse().ok()?))
}

/// Returns whether this build has to delete an object, or to let go of it, before others can end it.
fn is_held(there: &Value, before: Option<&Value>) -> bool {
    let Some(before) = before else { return false };
    let known = object::finalizers(before);
    match object::is_deleting(there) {
        true => object::finalizers(there).iter().any(|finalizer| !known.contains(finalizer)),
        false => object::is_deleting(before),
    }
}

/// Returns whether this build has made an object, which is gone by now.
fn was_made(harness: &Harness, info: &RequestInfo, of: Option<&Value>) -> bool {
    let key = of.map(|of| object::key(object::namespace(of), object::name(of))).unwrap_or_default();
    harness.state().bodies.contains_key(&format!("{} {key}", info.resource))
}

/// Gives the owners that the operator made the UIDs that they have now; `None` if one is not there.
///
/// Any other owner that is not there is of a kind that was not recorded, or its event is still to come.
fn with_owners_of_now(harness: &Harness, recording: &Recording, value: &Value) -> Option<Value> {
    let mut value = value.clone();
    let owners = value.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut);
    for owner in owners.into_iter().flatten() {
        let uid = owner["uid"].as_str().unwrap_or_default();
        if let Some(path) = recording.made.get(uid).filter(|_| !harness.state().recorded.contains(uid)) {
            let there = inside::peek(&harness.server, &info_of(path)?)?;
            owner["uid"] = object::uid(&there).into();
        }
    }
    assume_owners(harness, &value);
    Some(value)
}

fn assume_owners(harness: &Harness, value: &Value) {
    object::owners(value).iter().for_each(|owner| inside::assume(&harness.server, owner.uid));
}

/// Fields of the metadata that a change of others does not bring along.
const LEFT_ALONE: [&str; 2] = ["resourceVersion", "uid"];

/// Makes a JSON merge patch that leads from one state to another.
fn difference(before: &Value, after: &Value) -> Value {
    let mut patch = merge(before, after);
    if let Some(metadata) = patch.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|name, _| !LEFT_ALONE.contains(&name.as_str()));
    }
    patch
}

fn merge(before: &Value, after: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (before, after) else { return after.clone() };
    let mut patch = Map::new();
    for (name, value) in new {
        match old.get(name) {
            Some(known) if known == value => {}
            Some(known) => drop(patch.insert(name.clone(), merge(known, value))),
            None => drop(patch.insert(name.clone(), value.clone())),
        }
    }
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    patch.into()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Pod};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_leads_from_one_state_to_the_other() {
        for (before, after) in [
            (json!({"a": 1, "b": {"c": [1], "d": 2}}), json!({"b": {"c": [1, 2], "e": null}, "f": "x"})),
            (json!({}), json!({"a": {"b": 1}})),
            (json!({"a": {"b": 1}}), json!({"a": 5})),
        ] {
            let mut patched = before.clone();
            json_patch::merge(&mut patched, &difference(&before, &after));
            // A merge patch can't say null.
            let mut wanted = after.clone();
            if let Some(inner) = wanted.get_mut("b").and_then(Value::as_object_mut) {
                inner.retain(|_, value| !value.is_null());
            }
            assert_eq!(patched, wanted);
        }
    }
    const PODS: &str = "/api/v1/namespaces/shop/pods/web";
    const JOBS: &str = "/api/v1/namespaces/shop/configmaps/job";

    fn pod(owner: &str, label: &str) -> Value {
        let owner = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "job", "uid": owner, "controller": true });
        json!({ "apiVersion": "v1", "kind": "Pod", "spec": { "containers": [] },
            "metadata": { "name": "web", "namespace": "shop", "uid": "of-the-pod", "labels": { "at": label },
                "ownerReferences": [owner] } })
    }

    fn event(at: u64, path: &str, before: Option<Value>, after: Option<Value>) -> ForeignEvent {
        ForeignEvent { at: Duration::from_secs(at), path: path.to_owned(), before, after }
    }

    fn recorded(others: Vec<ForeignEvent>) -> Recording {
        Recording { others, took: Duration::from_secs(60), ..Recording::default() }
    }

    /// Makes a map after a time.
    async fn makes_a_job(client: kube::Client, after: Duration) {
        tokio::time::sleep(after).await;
        let job = serde_json::from_value(json!({ "metadata": { "name": "job" } })).unwrap();
        let maps = kube::Api::<ConfigMap>::namespaced(client, "shop");
        maps.create(&kube::api::PostParams::default(), &job).await.unwrap();
        std::future::pending::<()>().await;
    }

    fn story(recording: Recording, makes: Option<u64>) -> String {
        let trials = crate::Trials::of(move |client| async move {
            match makes {
                Some(after) => makes_a_job(client, Duration::from_secs(after)).await,
                None => std::future::pending().await,
            }
        });
        let trials = trials.claim(async move |kit| {
            let (job, pod) = (kit.get::<ConfigMap>("shop/job").await, kit.get::<Pod>("shop/web").await);
            if let Some((job, pod)) = job.zip(pod).filter(|_| makes.is_some()) {
                let owners = pod.metadata.owner_references.unwrap();
                assert_eq!(Some(&owners[0].uid), job.metadata.uid.as_ref());
            }
        });
        let replayed = crate::Replay::of(recording, trials).run();
        assert_eq!(replayed.faults, [], "{replayed}");
        replayed.story
    }

    // T31
    #[test]
    fn what_an_owner_has_that_was_not_recorded_stays() {
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a", "namespace": "shop" } });
        let changed = event(9, PODS, Some(pod("of-nobody", "one")), Some(pod("of-nobody", "two")));
        let made = event(5, "/api/v1/namespaces/shop/configmaps/a", None, Some(map));
        let initial = vec![(PODS.to_owned(), pod("of-nobody", "one"))];
        let story = story(Recording { initial, ..recorded(vec![made, changed]) }, None);
        assert!(story.contains("creates configmaps") && story.contains("changes pods shop/web"), "{story}");
    }

    // T31
    #[test]
    fn what_others_make_belongs_to_what_this_build_has_made() {
        let made = event(5, PODS, None, Some(pod("of-the-job", "one")));
        let changed = event(9, PODS, Some(pod("of-the-job", "one")), Some(pod("of-the-job", "two")));
        let recording = || Recording {
            made: [("of-the-job".to_owned(), JOBS.to_owned())].into(),
            ..recorded(vec![made.clone(), changed.clone()])
        };
        for after in [0, 20] {
            let story = story(recording(), Some(after));
            assert!(
                story.contains("creates pods shop/web") && story.contains("changes pods shop/web"),
                "{story}"
            );
        }
        // A build that does not make the owner never sees it.
        assert!(!story(recording(), None).contains("pods"));
    }

    // T31
    #[test]
    fn a_change_of_others_waits_for_what_this_build_makes() {
        let map = |label: &str| {
            json!({ "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": { "name": "job", "namespace": "shop", "uid": "of-the-job", "labels": { "at": label } } })
        };
        let changed = event(1, JOBS, Some(map("one")), Some(map("two")));
        let gone = event(2, JOBS, Some(map("two")), None);
        let first_made = [(JOBS.to_owned(), "of-the-job".to_owned())];
        let recording = Recording { first_made: first_made.into(), ..recorded(vec![changed, gone]) };
        let story = story(recording, Some(9));
        let at = |text: &str| story.find(text).unwrap_or_else(|| panic!("{text}: {story}"));
        assert!(at("create configmaps shop/job") < at("changes configmaps shop/job"), "{story}");
        assert!(at("changes configmaps shop/job") < at("deletes configmaps shop/job"), "{story}");
    }

    // T31
    #[test]
    fn what_others_did_to_an_object_that_is_gone_is_not_done_to_the_next_one() {
        let map = |label: &str| {
            json!({ "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": { "name": "job", "namespace": "shop", "uid": "later", "labels": { "at": label } } })
        };
        let changed = event(1, JOBS, Some(map("one")), Some(map("two")));
        let gone = event(2, JOBS, Some(map("two")), None);
        let first_made = [(JOBS.to_owned(), "first".to_owned())];
        let recording = Recording { first_made: first_made.into(), ..recorded(vec![changed, gone]) };
        let story = story(recording, Some(9));
        assert!(
            story.contains("create configmaps shop/job") && !story.contains("deletes configmaps"),
            "{story}"
        );
    }

    // T31
    #[test]
    fn what_others_let_go_of_goes() {
        let map = |finalizer: &str| {
            let deleted = "2026-01-01T00:00:00Z";
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "job", "namespace": "shop",
                "uid": "u", "deletionTimestamp": deleted, "finalizers": [finalizer] } })
        };
        let recording = || Recording {
            initial: vec![(JOBS.to_owned(), map("x/y"))],
            ..recorded(vec![event(5, JOBS, Some(map("x/y")), None)])
        };
        assert!(story(recording(), None).contains("deletes configmaps shop/job"));
    }
}
