//! What changed in a trial, and whose doing it was.

use watchkeeper_apiserver::inside::{self, StoredChange, object};

use crate::harness::Harness;

/// Whose doing a change was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum By {
    /// The operator's, whose client got the answer.
    Operator,
    /// Anybody else's: users, strangers, the server itself; also the operator's, where the answer never came.
    Others,
}

/// One change of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The plural, with the group behind a dot.
    pub resource: String,
    /// The namespace and the name, `shop/a`; the name alone of what is in no namespace.
    pub key: String,
    /// The object's UID.
    pub uid: String,
    /// The UID of what controls it, since this change; empty: nothing does.
    pub controller: String,
    /// The version that the change has.
    pub version: u64,
    /// The object is gone by it.
    pub gone: bool,
    /// Whose doing it was.
    pub by: By,
}

/// The changes of one trial since its operator started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Changes {
    /// In the order of their versions.
    pub all: Vec<Change>,
    /// Whether these are all: a server that was restored, or forgot its history, no longer has them.
    pub complete: bool,
}

/// Reads what has changed.
pub(crate) fn of(harness: &Harness) -> Changes {
    let state = harness.state();
    let mut changes = Changes { all: Vec::new(), complete: !state.restored };
    for found in inside::changes_after(&harness.server, harness.first_version) {
        let Some(found) = found else {
            changes.complete = false;
            continue;
        };
        changes.all.extend(found.into_iter().map(|change| {
            let mut change = shown(change);
            let own = if change.gone {
                state.deleted.contains(&change.uid)
            } else {
                state.own.contains(&change.version)
            };
            change.by = if own { By::Operator } else { By::Others };
            change
        }));
    }
    changes.all.sort_by_key(|change| change.version);
    changes
}

fn shown(change: StoredChange) -> Change {
    let StoredChange { resource, value, version, gone } = change;
    let owners = object::meta(&value, "ownerReferences").and_then(|owners| owners.as_array());
    let controller = owners.into_iter().flatten().find(|owner| owner["controller"] == true);
    Change {
        resource,
        key: object::key(object::namespace(&value), object::name(&value)),
        uid: object::uid(&value).to_owned(),
        controller: controller.and_then(|owner| owner["uid"].as_str()).unwrap_or_default().to_owned(),
        version,
        gone,
        by: By::Others,
    }
}
