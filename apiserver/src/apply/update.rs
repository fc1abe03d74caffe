//! Moves ownership as objects are written.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::schema::NodeRef;

use super::compare::Difference;
use super::conflict;
use super::input::{ApplyError, ApplyInput, Force, UpdateInput};
use super::kubectl;
use super::managers::{Identity, ManagerOperation, Managers, Owned};
use super::merge::merge;
use super::remove::remove;
use super::set::FieldSet;
use super::typed;

/// The name of the owner of all that existed before the first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Records who owns the fields of a created or updated object in its `metadata.managedFields`.
///
/// The writer owns what it added or changed, alone; fields that are gone have no owner. Clients may replace the list
/// through the main endpoint, and clear it by `[]` or `[{}]`; an object without a list is not tracked until an apply.
pub(crate) fn track_update(input: UpdateInput<'_>) {
    let UpdateInput { live, new, schema, .. } = input;
    let sent = take_managed(new);
    let mut before = live.cloned().unwrap_or_else(|| schema.zero());
    let stored = take_managed(&mut before);
    let mut managers = match input.subresource {
        Some(_) => parse_or_empty(stored),
        None => sent_or_stored(sent, stored),
    };
    if live.is_some() && managers.entries.is_empty() {
        return;
    }
    let difference = Difference::between(schema.root(), &before, new).without_fields(input.ignored);
    let written = difference.written();
    managers.take(&written.union(&difference.removed), None);
    let gained = written.without_identity();
    if !gained.is_empty() {
        let identity =
            Identity::new(input.manager, ManagerOperation::Update, input.api_version, input.subresource);
        let fields = match managers.entries.get(&identity) {
            Some(own) => own.fields.union(&gained),
            None => gained,
        };
        managers.entries.insert(
            identity,
            Owned { fields, api_version: input.api_version.to_owned(), time: Some(input.now.to_owned()) },
        );
        managers.cap();
    }
    put_managed(new, &managers);
}

/// Applies a body; see the module.
pub(super) fn apply(input: ApplyInput<'_>) -> Result<Value, ApplyError> {
    if input.applied.pointer("/metadata/managedFields").is_some_and(|list| !list.is_null()) {
        return Err(ApplyError::ManagedFieldsGiven);
    }
    typed::check(input.schema.root(), input.applied)
        .map_err(|detail| ApplyError::NotTyped { object: describe(input.applied), detail })?;
    let applied = changeable(input.applied, input.ignored);
    let attempt = match merge_owned(&input, &applied, input.force) {
        Err(conflicts) if input.manager == kubectl::MANAGER => forgive(&input, &applied, conflicts),
        other => other,
    };
    let mut result = attempt.map_err(|conflicts| ApplyError::Conflicts(conflict::list(&conflicts)))?;
    if input.manager == kubectl::MANAGER {
        kubectl::remember(&mut result, input.applied);
    }
    Ok(result)
}

type Conflicts = BTreeMap<Identity, FieldSet>;

/// Tries again without the conflicts over what kubectl itself applied from the client.
fn forgive(input: &ApplyInput<'_>, applied: &Value, conflicts: Conflicts) -> Result<Value, Conflicts> {
    let allowed = match input.live {
        Some(live) => kubectl::unchanged_since_applied(input.schema, live),
        None => FieldSet::default(),
    };
    let left: Conflicts = conflicts
        .into_iter()
        .map(|(identity, fields)| (identity, fields.difference(&allowed)))
        .filter(|(_, fields)| !fields.is_empty())
        .collect();
    if left.is_empty() {
        return merge_owned(input, applied, Force::Take);
    }
    Err(left)
}

fn merge_owned(input: &ApplyInput<'_>, applied: &Value, force: Force) -> Result<Value, Conflicts> {
    let root = input.schema.root();
    let mut live = input.live.cloned().unwrap_or_else(|| Value::Object(Map::new()));
    let mut managers = parse_or_empty(take_managed(&mut live));
    if input.live.is_some() && managers.entries.is_empty() {
        own_before_first_apply(input, &live, &mut managers);
    }
    let identity = Identity::new(input.manager, ManagerOperation::Apply, "", input.subresource);
    let fields = typed::fields(root, applied).without_fields(input.ignored);
    let last = managers.entries.remove(&identity);
    let time = last.as_ref().and_then(|last| last.time.clone());
    let own = Owned { fields, api_version: input.api_version.to_owned(), time };
    managers.entries.insert(identity.clone(), own);
    let merged = merge(root, Some(&live), Some(applied)).unwrap_or_default();
    let mut merged = match &last {
        Some(last) if !last.fields.is_empty() => prune(root, &merged, &last.fields, &managers),
        _ => merged,
    };
    if let Some(own) = managers.entries.get_mut(&identity) {
        own.fields = std::mem::take(&mut own.fields).without_identity();
    }
    if input.schema.is_builtin() {
        drop_nulls(&mut merged);
    }
    keep_identity(&live, &mut merged);
    let difference = Difference::between(root, &live, &merged).without_fields(input.ignored);
    let written = difference.written();
    let conflicts = conflicts(&managers, &identity, &written);
    if force == Force::Refuse && !conflicts.is_empty() {
        return Err(conflicts);
    }
    managers.take(&written.union(&difference.removed), Some(&identity));
    if !difference.is_empty() || input.live.is_none() {
        if let Some(own) = managers.entries.get_mut(&identity) {
            own.time = Some(input.now.to_owned());
        }
        live = merged;
    }
    put_managed(&mut live, &managers);
    Ok(live)
}

fn conflicts(managers: &Managers, applier: &Identity, written: &FieldSet) -> Conflicts {
    managers
        .entries
        .iter()
        .filter(|(identity, _)| *identity != applier)
        .map(|(identity, owned)| (identity.clone(), owned.fields.intersection(written)))
        .filter(|(_, fields)| !fields.is_empty())
        .collect()
}

/// Removes from a merged object the fields that only the applier owned and has now left out.
fn prune(root: NodeRef<'_>, merged: &Value, last: &FieldSet, managers: &Managers) -> Value {
    let all = typed::fields(root, merged).with_named(root);
    let last = last.with_named(root);
    let pruned = remove(root, merged, &last);
    let owned = managers
        .entries
        .values()
        .fold(FieldSet::default(), |all, owned| all.union(&owned.fields))
        .with_named(root);
    // Owned fields are restored first, then fields that never had an owner.
    let kept = typed::fields(root, &pruned).with_named(root).union(&owned);
    let pruned = remove(root, merged, &all.difference(&kept));
    let left = typed::fields(root, &pruned).with_named(root);
    remove(root, merged, &all.difference(&left).intersection(&last))
}

fn own_before_first_apply(input: &ApplyInput<'_>, live: &Value, managers: &mut Managers) {
    let difference = Difference::between(input.schema.root(), &input.schema.zero(), live);
    let fields = difference.written().without_identity().without_fields(input.ignored);
    let identity =
        Identity::new(BEFORE_FIRST_APPLY, ManagerOperation::Update, input.api_version, input.subresource);
    let owned = Owned { fields, api_version: input.api_version.to_owned(), time: Some(input.now.to_owned()) };
    managers.entries.insert(identity, owned);
    managers.drop_empty();
}

/// Leaves out of a body what the request cannot change.
fn changeable(applied: &Value, ignored: &[&str]) -> Value {
    let mut applied = applied.clone();
    if let Value::Object(fields) = &mut applied {
        for name in ignored {
            match *name {
                // Names the object: it stays, though nothing in it is taken over.
                "metadata" => {
                    let name = fields.get("metadata").and_then(|metadata| metadata.get("name")).cloned();
                    let metadata = name.map(|name| Map::from_iter([("name".to_owned(), name)]));
                    fields.insert("metadata".to_owned(), Value::Object(metadata.unwrap_or_default()));
                }
                name => {
                    fields.remove(name);
                }
            }
        }
    }
    applied
}

/// Keeps what only the server sets, and what names the object.
fn keep_identity(live: &Value, merged: &mut Value) {
    const OF_SERVER: [&str; 4] = ["resourceVersion", "creationTimestamp", "generation", "selfLink"];
    const OF_OBJECT: [&str; 6] =
        ["name", "namespace", "generateName", "uid", "deletionTimestamp", "deletionGracePeriodSeconds"];
    let Value::Object(fields) = merged else { return };
    let metadata = fields.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if metadata.is_null() {
        *metadata = Value::Object(Map::new());
    }
    let Value::Object(metadata) = metadata else { return };
    for name in OF_SERVER {
        metadata.remove(name);
    }
    let Some(Value::Object(live)) = live.get("metadata") else { return };
    for name in OF_SERVER.iter().chain(&OF_OBJECT) {
        if let Some(value) = live.get(*name) {
            metadata.insert((*name).to_owned(), value.clone());
        }
    }
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Shows namespace, name, version and kind of a body.
fn describe(applied: &Value) -> String {
    let text = |pointer: &str| applied.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let version = text("/apiVersion");
    let version = if version.contains('/') { version.to_owned() } else { format!("/{version}") };
    format!("{}/{}; {version}, Kind={}", text("/metadata/namespace"), text("/metadata/name"), text("/kind"))
}

fn take_managed(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

fn put_managed(object: &mut Value, managers: &Managers) {
    let mut managers = managers.clone();
    managers.drop_empty();
    let list = managers.print();
    if list.is_empty() {
        return;
    }
    if let Value::Object(fields) = object {
        let metadata = fields.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(metadata) = metadata {
            metadata.insert("managedFields".to_owned(), Value::Array(list));
        }
    }
}

fn parse_or_empty(list: Option<Value>) -> Managers {
    list.as_ref().and_then(Managers::parse).unwrap_or_default()
}

/// Chooses between the list that a client sent and the stored one.
fn sent_or_stored(sent: Option<Value>, stored: Option<Value>) -> Managers {
    if sent.as_ref().is_some_and(clears) {
        return Managers::default();
    }
    match sent.as_ref().and_then(Managers::parse) {
        Some(managers) if !managers.entries.is_empty() => managers,
        _ => parse_or_empty(stored),
    }
}

/// Returns whether a list removes all owners.
fn clears(list: &Value) -> bool {
    match list.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([Value::Object(only)]) => only.is_empty(),
        _ => false,
    }
}
