//! What changed in a trial, and whose doing it was.

use super::harness::Harness;
use crate::object;
use crate::store::{Change as Stored, ChangeKind, ResourceId};

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
pub(super) fn of(harness: &Harness) -> Changes {
    let (book, core) = (harness.book(), harness.server.core());
    let mut changes = Changes { all: Vec::new(), complete: !book.restored };
    core.with_state(|state| {
        let ids: Vec<ResourceId> = state.registry.stored().map(|resource| resource.id.clone()).collect();
        for id in ids {
            let Ok(found) = state.store.changes_after(&id, harness.first_version) else {
                changes.complete = false;
                continue;
            };
            changes.all.extend(found.iter().map(|change| {
                let mut change = shown(&id, change);
                let own = if change.gone {
                    book.deleted.contains(&change.uid)
                } else {
                    book.own.contains(&change.version)
                };
                change.by = if own { By::Operator } else { By::Others };
                change
            }));
        }
    });
    changes.all.sort_by_key(|change| change.version);
    changes
}

fn shown(id: &ResourceId, change: &Stored) -> Change {
    let value = change.object.value();
    let resource = match &*id.group {
        "" => id.plural.to_string(),
        group => format!("{}.{group}", id.plural),
    };
    let owners = object::meta(&value, "ownerReferences").and_then(|owners| owners.as_array());
    let controller = owners.into_iter().flatten().find(|owner| owner["controller"] == true);
    Change {
        resource,
        key: object::key(object::namespace(&value), object::name(&value)),
        uid: object::uid(&value).to_owned(),
        controller: controller.and_then(|owner| owner["uid"].as_str()).unwrap_or_default().to_owned(),
        version: change.version,
        gone: change.kind == ChangeKind::Delete,
        by: By::Others,
    }
}
