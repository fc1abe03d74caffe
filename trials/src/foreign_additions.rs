//! What somebody else added: it must stay as long as its object.

use serde_json::Value;

use crate::harness::{ForeignAddition, Harness};
use crate::world::{CONDITION, MARK, everything};

/// Records what was undone since.
///
/// It is looked for after every step of the script: later the object may be gone.
pub(crate) fn check(harness: &Harness) {
    let mut state = harness.state();
    // What a restored server has lost nobody undid.
    if state.additions.is_empty() || state.restored {
        return;
    }
    let additions = state.additions.clone();
    for found in everything(&harness.server) {
        for (_, what) in additions.iter().filter(|(uid, _)| uid == found.uid()) {
            let undone = missing(what, &found.value);
            state.undone.extend(undone.iter().map(|place| format!("{place} of {}", found.name())));
        }
    }
}

fn missing(what: &ForeignAddition, object: &Value) -> Vec<&'static str> {
    match what {
        ForeignAddition::Labels => {
            let is_gone = |place: &str| object["metadata"][place][MARK].is_null();
            let places = [("labels", "a label"), ("annotations", "an annotation")];
            places.into_iter().filter(|(place, _)| is_gone(place)).map(|(_, word)| word).collect()
        }
        ForeignAddition::Condition => {
            let mut all = object["status"]["conditions"].as_array().into_iter().flatten();
            let is_there = all.any(|condition| condition["type"] == CONDITION);
            if is_there { Vec::new() } else { vec!["a condition in the status"] }
        }
    }
}
