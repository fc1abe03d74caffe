//! Events: the core form and the one of `events.k8s.io`, one into the other.

use serde_json::{Map, Value};

use crate::object;

/// The fields that differ by name only: core first.
const RENAMED: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// Shows a stored core event as `events.k8s.io/v1`.
pub(super) fn to_new(stored: &Value) -> Value {
    let mut event = rename(stored.clone(), "events.k8s.io/v1", |(old, new)| (old, new));
    let is_empty = |value: &Value| value.as_str().is_some_and(str::is_empty);
    object::map_mut(&mut event).retain(|key, value| {
        !(matches!(key.as_str(), "action" | "reportingController" | "reportingInstance") && is_empty(value))
    });
    event
}

/// Turns an event of `events.k8s.io/v1` into the stored core form.
pub(super) fn to_old(shown: Value) -> Value {
    rename(shown, "v1", |(old, new)| (new, old))
}

fn rename(
    mut event: Value,
    api_version: &str,
    direction: impl Fn((&'static str, &'static str)) -> (&'static str, &'static str),
) -> Value {
    let map: &mut Map<String, Value> = object::map_mut(&mut event);
    for pair in RENAMED {
        let (from, to) = direction(pair);
        if let Some(value) = map.remove(from) {
            map.insert(to.to_owned(), value);
        }
    }
    map.insert("apiVersion".into(), api_version.into());
    event
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // wire 332
    #[test]
    fn an_event_goes_there_and_back() {
        let old = json!({"apiVersion": "v1", "kind": "Event", "involvedObject": {"name": "p"}, "message": "m", "count": 2});
        let new = to_new(&old);
        assert_eq!(new["regarding"]["name"], "p");
        assert_eq!((&new["note"], &new["deprecatedCount"]), (&json!("m"), &json!(2)));
        assert_eq!(to_old(new), old);
    }
}
