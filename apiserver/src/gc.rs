//! Garbage collection: objects whose owners no longer exist, and owners that wait for their dependents.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use crate::kinds::{Reach, Resource};
use crate::object;
use crate::state::State;
use crate::store::{OwnerPlace, Stored};
use crate::write::{DeleteOptions, FOREGROUND, ORPHAN, Propagation, remove_or_mark};

/// Checks every suspect until none is left; returns the number of objects written or removed.
pub(crate) fn collect(state: &mut State) -> usize {
    let mut touched = 0;
    while let Some(place) = state.store.owners.next_suspect() {
        touched += look_at(state, &place);
    }
    touched
}

fn find(state: &State, place: &OwnerPlace) -> Option<(Arc<Resource>, Arc<Stored>)> {
    let resource = state.registry.find(&place.0.group, &place.0.plural)?.clone();
    let stored = state.store.get(&place.0, &place.1)?.clone();
    Some((resource, stored))
}

fn look_at(state: &mut State, place: &OwnerPlace) -> usize {
    let Some((resource, stored)) = find(state, place) else { return 0 };
    let value = stored.value();
    let finalizers = object::finalizers(&value);
    if object::is_deleting(&value) && finalizers.contains(&ORPHAN) {
        return orphan(state, place, &stored);
    }
    if object::is_deleting(&value) && finalizers.contains(&FOREGROUND) {
        return foreground(state, place, &stored);
    }
    judge(state, place, &resource, &stored)
}

/// Strips the owner from its dependents, then lets it go.
fn orphan(state: &mut State, place: &OwnerPlace, owner: &Stored) -> usize {
    let uid = object::uid(&owner.value()).to_owned();
    let mut touched = 0;
    for dependent in state.store.owners.dependents(&uid) {
        touched += strip(state, &dependent, |reference| reference == uid);
    }
    touched + release(state, place, ORPHAN)
}

/// Deletes the dependents, and releases the owner once none of them blocks it.
fn foreground(state: &mut State, place: &OwnerPlace, owner: &Stored) -> usize {
    let uid = object::uid(&owner.value()).to_owned();
    let mut touched = 0;
    let mut left = Vec::new();
    for dependent in state.store.owners.dependents(&uid) {
        let Some((resource, stored)) = find(state, &dependent) else { continue };
        if !same_realm(state, place, &dependent) {
            continue;
        }
        if !object::is_deleting(&stored.value()) {
            touched += judge(state, &dependent, &resource, &stored);
        }
        left.push(dependent);
    }
    let circle = circle(state, &uid);
    let blocks = |dependent: &OwnerPlace| {
        let Some(stored) = state.store.get(&dependent.0, &dependent.1) else { return false };
        let value = stored.value();
        object::owners(&value).iter().any(|o| o.uid == uid && o.blocks)
            && !circle.contains(object::uid(&value))
    };
    let blocked = left.iter().any(blocks);
    if blocked { touched } else { touched + release(state, place, FOREGROUND) }
}

/// Decides on an object by its owners.
fn judge(state: &mut State, place: &OwnerPlace, resource: &Arc<Resource>, stored: &Arc<Stored>) -> usize {
    let value = stored.value();
    let owners = object::owners(&value);
    if owners.is_empty() {
        return 0;
    }
    let (mut living, mut waiting, mut dead) = (0, 0, Vec::new());
    for owner in &owners {
        if state.store.owners.is_assumed(owner.uid) {
            living += 1;
            continue;
        }
        let there =
            state.store.owners.place(owner.uid).cloned().filter(|there| same_realm(state, there, place));
        let there = there.and_then(|there| find(state, &there));
        match there {
            None => dead.push(owner.uid.to_owned()),
            Some((resource, there)) if is_another(state, owner, &resource, &there.value()) => {
                dead.push(owner.uid.to_owned());
            }
            Some((_, owner)) if waits_for_dependents(&owner.value()) => waiting += 1,
            Some(_) => living += 1,
        }
    }
    if living > 0 {
        let doomed = |uid: &str| dead.iter().any(|gone| gone == uid);
        let waiting: Vec<String> = if waiting > 0 { waiting_owners(state, &owners) } else { Vec::new() };
        if dead.is_empty() && waiting.is_empty() {
            return 0;
        }
        return strip(state, place, |uid| doomed(uid) || waiting.iter().any(|w| w == uid));
    }
    if object::is_deleting(&value) {
        return 0;
    }
    let has_blocking_dependents = !state.store.owners.dependents(object::uid(&value)).is_empty();
    let policy = match waiting > 0 {
        true if has_blocking_dependents => Some(Propagation::Foreground),
        _ => None,
    };
    remove_or_mark(state, resource, stored, &DeleteOptions { policy, ..DeleteOptions::default() });
    1
}

/// Returns whether a reference names another object than the one with its UID: the collector asks for the owner by kind and name.
///
/// If no such kind is served, that fails again and again, and nothing is collected.
fn is_another(state: &State, owner: &object::Owner<'_>, resource: &Resource, there: &Value) -> bool {
    let (group, _) = object::group_version(owner.api_version);
    let names = |resource: &Resource| resource.group() == group && resource.kind == owner.kind;
    match names(resource) {
        true => object::name(there) != owner.name,
        false => state.registry.all().any(|resource| names(resource)),
    }
}

/// Lists the objects that wait for their dependents, these for theirs, and so on, down to an object; and the object.
///
/// If the object waits for one of them, one has to go first. A real server makes one reference of the circle a
/// non-blocking one.
fn circle(state: &State, uid: &str) -> BTreeSet<String> {
    let (mut next, mut seen) = (vec![uid.to_owned()], BTreeSet::from([uid.to_owned()]));
    while let Some(uid) = next.pop() {
        let stored = state.store.owners.place(&uid).and_then(|place| state.store.get(&place.0, &place.1));
        let Some(stored) = stored else { continue };
        for owner in object::owners(&stored.value()) {
            let there = state.store.owners.place(owner.uid);
            let there = there.and_then(|place| state.store.get(&place.0, &place.1));
            if there.is_some_and(|there| waits_for_dependents(&there.value()))
                && seen.insert(owner.uid.to_owned())
            {
                next.push(owner.uid.to_owned());
            }
        }
    }
    seen
}

fn waits_for_dependents(owner: &Value) -> bool {
    object::is_deleting(owner) && object::finalizers(owner).contains(&FOREGROUND)
}

fn waiting_owners(state: &State, owners: &[object::Owner<'_>]) -> Vec<String> {
    let waits = |uid: &str| {
        let place = state.store.owners.place(uid)?;
        Some(waits_for_dependents(&state.store.get(&place.0, &place.1)?.value()))
    };
    owners.iter().filter(|o| waits(o.uid) == Some(true)).map(|o| o.uid.to_owned()).collect()
}

/// Returns whether an owner may own a dependent: cluster-scoped, or of the same namespace.
fn same_realm(state: &State, owner: &OwnerPlace, dependent: &OwnerPlace) -> bool {
    let Some(resource) = state.registry.find(&owner.0.group, &owner.0.plural) else { return false };
    if resource.reach == Reach::Cluster {
        return true;
    }
    let namespace = |place: &OwnerPlace| place.1.split_once('/').map(|(namespace, _)| namespace.to_owned());
    namespace(owner) == namespace(dependent)
}

/// Removes owner references by uid.
fn strip(state: &mut State, place: &OwnerPlace, which: impl Fn(&str) -> bool) -> usize {
    let Some(stored) = state.store.get(&place.0, &place.1).cloned() else { return 0 };
    let mut value = serde_json::Value::clone(&stored.value());
    let list = object::meta_mut(&mut value).get_mut("ownerReferences").and_then(Value::as_array_mut);
    let Some(list) = list else { return 0 };
    let before = list.len();
    list.retain(|entry| !which(entry["uid"].as_str().unwrap_or_default()));
    if list.len() == before {
        return 0;
    }
    object::tidy(&mut value);
    state.store.put(&place.0, &place.1, value);
    1
}

/// Removes a finalizer if the object has it; removing the last one deletes the object.
pub(crate) fn release(state: &mut State, place: &OwnerPlace, finalizer: &str) -> usize {
    let Some(stored) = state.store.get(&place.0, &place.1).cloned() else { return 0 };
    if !object::finalizers(&stored.value()).contains(&finalizer) {
        return 0;
    }
    let rest: Vec<String> = object::finalizers(&stored.value())
        .into_iter()
        .filter(|f| *f != finalizer)
        .map(str::to_owned)
        .collect();
    if rest.is_empty() && object::is_deleting(&stored.value()) {
        state.store.delete(&place.0, &place.1);
    } else {
        let mut value = serde_json::Value::clone(&stored.value());
        object::set_finalizers(&mut value, &rest);
        state.store.put(&place.0, &place.1, value);
    }
    state.unsettled = true;
    1
}
