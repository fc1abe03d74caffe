//! What somebody else added: it must stay as long as its object.

use serde_json::Value;
use watchkeeper_apiserver::inside::object;

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
            if !is_there(what, &found.value) {
                state.undone.insert(format!("{} of {}", name(what), found.name()));
            }
        }
    }
}

/// Forgets what a write of the script itself took away, as a patch does that brings a whole list.
pub(crate) fn let_go(harness: &Harness, before: &Value, after: &Value) {
    harness
        .state()
        .additions
        .retain(|(uid, what)| uid != object::uid(after) || !is_there(what, before) || is_there(what, after));
}

fn name(what: &ForeignAddition) -> &'static str {
    match what {
        ForeignAddition::Label => "a label",
        ForeignAddition::Annotation => "an annotation",
        ForeignAddition::Condition => "a condition in the status",
    }
}

fn is_there(what: &ForeignAddition, object: &Value) -> bool {
    match what {
        ForeignAddition::Label => !object["metadata"]["labels"][MARK].is_null(),
        ForeignAddition::Annotation => !object["metadata"]["annotations"][MARK].is_null(),
        ForeignAddition::Condition => {
            let mut all = object["status"]["conditions"].as_array().into_iter().flatten();
            all.any(|condition| condition["type"] == CONDITION)
        }
    }
}
