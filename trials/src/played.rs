//! Lets others do again what a recording says they did.

use serde_json::{Map, Value};
use tokio::time::{Instant, sleep_until};
use watchkeeper_apiserver::inside::{self, RequestInfo, object};

use crate::diff;
use crate::harness::Harness;
use crate::recording::{ForeignEvent, Recording, effect};
use crate::timeline::Actor;
use crate::visit::Visit;

/// Puts the objects in place that were there at first.
pub(crate) fn set_up(harness: &Harness, recording: &Recording) {
    harness.state().not_recorded = recording.hidden.clone();
    let uids = recording.initial.iter().map(|(_, value)| object::uid(value).to_owned());
    harness.state().recorded = uids.collect();
    for (path, value) in &recording.initial {
        let _unknown_kinds_are_left_out = inside::put(&harness.server, path, Some(value.clone()));
    }
}

/// Lets others do what they did, at the same times.
pub(crate) async fn play(visit: &Visit, recording: &Recording) {
    let (harness, began) = (&visit.harness, Instant::now());
    harness.state().played_since = Some(began);
    for event in &recording.others {
        sleep_until(began + event.at).await;
        harness.up();
        if change(harness, event) {
            inside::collect_garbage(&harness.server);
            harness.disturb(|| format!("others change {}", event.path));
            harness.tell(Actor::Stranger, || told(event));
        }
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

/// Makes a change of others on what is there now; false where there is nothing to change.
fn change(harness: &Harness, event: &ForeignEvent) -> bool {
    let ForeignEvent { path, before, after, .. } = event;
    let Ok(uri) = path.parse() else { return false };
    let there = inside::peek(&harness.server, &RequestInfo::of(&http::Method::GET, &uri));
    match (there, after) {
        // This build may still hold it by a finalizer.
        (Some(there), None) => {
            let held = object::is_deleting(&there) && !object::finalizers(&there).is_empty();
            !held && inside::put(&harness.server, path, None)
        }
        (None, Some(after)) if before.is_none() => inside::put(&harness.server, path, Some(after.clone())),
        // This build has not made what others changed or deleted then.
        (None, _) => false,
        (Some(there), Some(after)) => {
            let patch = difference(before.as_ref().unwrap_or(&there), after);
            let mut changed = there.clone();
            json_patch::merge(&mut changed, &patch);
            changed != there && inside::put(&harness.server, path, Some(changed))
        }
    }
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
}
