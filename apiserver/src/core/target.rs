//! Finds what a path names: the resource, the version, and the object.

use serde_json::{Value, json};

use crate::kinds::Reach;
use crate::negotiate::Of;
use crate::object;
use crate::route::{PathShape, RequestInfo};
use crate::state::State;
use crate::status::Status;
use crate::write::Target;

/// The subresources of pods that only a cluster can offer.
const NOT_OFFERED: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];

/// 404 in the form for the group: text for unknown groups and for custom ones.
pub(super) fn unknown(state: &State, group: &str) -> Status {
    if group.is_empty() || state.registry.is_built_in_group(group) {
        Status::no_such_resource()
    } else {
        Status::page_not_found()
    }
}

/// Finds what a request is about.
pub(super) fn find(state: &State, info: &RequestInfo) -> Result<Target, Status> {
    let missing = || unknown(state, &info.group);
    let resource = state.registry.find(&info.group, &info.resource).ok_or_else(missing)?.clone();
    let served = resource.served(&info.version).ok_or_else(missing)?.clone();
    let is_namespaces = info.group.is_empty() && info.resource == "namespaces";
    let namespace = if is_namespaces { None } else { info.namespace.clone() };
    match (resource.reach, &namespace) {
        (Reach::Cluster, Some(_)) => return Err(missing()),
        (Reach::Namespaced, None) if info.shape == PathShape::Object => return Err(missing()),
        _ => {}
    }
    let name =
        if info.shape == PathShape::Object { info.name.clone().unwrap_or_default() } else { String::new() };
    let target = Target {
        resource,
        served,
        namespace: namespace.unwrap_or_default(),
        name,
        subresource: info.subresource.clone(),
    };
    let made = makes(&target);
    let sub = info.subresource.split('/').next().unwrap_or_default();
    if target.resource.built_in().is_some_and(|row| row.kind == "Pod") && NOT_OFFERED.contains(&sub) {
        let why = format!("{sub} needs a cluster: this server stores pods, and runs none");
        return Err(Status::new(501, Some("NotImplemented"), why).with_details(json!({})));
    }
    if !info.subresource.is_empty() && !target.served.offers(&info.subresource) && !made {
        return Err(if target.resource.is_custom() {
            target.not_found()
        } else {
            Status::no_such_resource()
        });
    }
    Ok(target)
}

/// Returns whether a subresource only takes objects that are made below another.
pub(super) fn makes(target: &Target) -> bool {
    let kind = target.resource.built_in().map(|row| row.kind);
    matches!(
        (kind, target.subresource.as_str()),
        (Some("Pod"), "binding" | "eviction") | (Some("ServiceAccount"), "token")
    )
}

/// Returns the sort of a resource, for the negotiation of forms.
pub(super) fn of(target: &Target) -> Of {
    if target.resource.is_custom() { Of::Custom } else { Of::BuiltIn }
}

/// Reads the stored object that a request names, as the request's version shows it.
pub(super) fn peek(state: &State, info: &RequestInfo) -> Option<Value> {
    let target = find(state, info).ok().filter(|_| info.name.is_some())?;
    Some(target.served.show_stored(state.store.get(&target.resource.storage, &target.key())?))
}

/// Stores the named object as it is, or removes it.
pub(super) fn put(state: &mut State, info: &RequestInfo, value: Option<Value>) -> bool {
    let Ok(target) = find(state, info) else { return false };
    match value {
        Some(value) => {
            state.store.put(&target.resource.storage, &target.key(), value);
            true
        }
        None => state.store.delete(&target.resource.storage, &target.key()).is_some(),
    }
}

/// Updates the named object as another client would: an annotation changes, and so does its version.
pub(super) fn bump(state: &mut State, info: &RequestInfo) {
    let Ok(target) = find(state, info) else { return };
    let Some(stored) = state.store.get(&target.resource.storage, &target.key()).cloned() else { return };
    let mut value = Value::clone(&stored.value());
    let metadata = object::child_mut(object::map_mut(&mut value), "metadata");
    let annotations = object::child_mut(metadata, "annotations");
    annotations.insert("watchkeeper.dev/bumped-at".into(), stored.version.to_string().into());
    state.store.put(&target.resource.storage, &target.key(), value);
}
