//! Admission: the webhooks of a write, between defaulting and validation.

use serde_json::Value;

use super::{Author, Keep, Target, WriteOptions};
use crate::admission::{Asked, Operation, Trial, are_to_mutate, are_to_validate, mutate, validate};
use crate::kinds::{Resource, prepare};
use crate::object;
use crate::state::State;
use crate::status::Status;
use crate::store::Stored;

/// Describes a write to webhooks; the server's own writes are exempt.
fn asked(
    target: &Target,
    author: Option<&Author>,
    keep: Keep,
    operation: Operation,
    old: Option<&Value>,
) -> Option<Asked> {
    let author = author?;
    Some(Asked {
        resource: target.resource.clone(),
        served: target.served.clone(),
        subresource: target.subresource.clone(),
        kind: match (target.subresource.as_str(), target.resource.kind.as_str()) {
            ("scale", _) => Some(["autoscaling", "v1", "Scale"]),
            ("binding", "Pod") => Some(["", "v1", "Binding"]),
            ("eviction", "Pod") => Some(["policy", "v1", "Eviction"]),
            ("token", "ServiceAccount") => Some(["authentication.k8s.io", "v1", "TokenRequest"]),
            _ => None,
        },
        namespace: target.namespace.clone(),
        name: target.name.clone(),
        operation,
        user: author.user.clone(),
        trial: if keep == Keep::DryRun { Trial::DryRun } else { Trial::Real },
        manager: author.manager.clone(),
        old: old.cloned(),
    })
}

/// Lets webhooks change a new or updated object; returns the original if it has changed.
///
/// # Errors
/// A webhook's no, or its failure.
pub(super) fn change(
    state: &mut State,
    target: &Target,
    options: &WriteOptions,
    operation: Operation,
    old: Option<&Value>,
    object: &mut Value,
) -> Result<Option<Value>, Status> {
    if !are_to_mutate(state) {
        return Ok(None);
    }
    let Some(asked) = asked(target, options.author.as_ref(), options.keep, operation, old) else {
        return Ok(None);
    };
    let mut held = Some(std::mem::take(object));
    let before = held.clone();
    let changed = mutate(state, &asked, &mut held);
    *object = held.unwrap_or_default();
    Ok(before.filter(|_| matches!(changed, Ok(true)))).and_then(|before| changed.map(|_| before))
}

/// Lets webhooks accept or refuse a new or updated object.
///
/// # Errors
/// A webhook's no, or its failure.
pub(super) fn check(
    state: &mut State,
    target: &Target,
    options: &WriteOptions,
    operation: Operation,
    old: Option<&Value>,
    object: &Value,
) -> Result<(), Status> {
    if !are_to_validate(state) {
        return Ok(());
    }
    match asked(target, options.author.as_ref(), options.keep, operation, old) {
        Some(asked) => validate(state, &asked, Some(object)),
        None => Ok(()),
    }
}

/// Calls webhooks for an object that is sent to a subresource and never stored.
///
/// # Errors
/// A webhook's no, or its failure.
pub(crate) fn admit_sent(
    state: &mut State,
    target: &Target,
    options: &WriteOptions,
    object: &mut Value,
) -> Result<(), Status> {
    change(state, target, options, Operation::Create, None, object)?;
    check(state, target, options, Operation::Create, None, object)
}

/// Lets webhooks accept or refuse a deletion.
///
/// # Errors
/// A webhook's no, or its failure.
pub(super) fn check_deletion(
    state: &mut State,
    target: &Target,
    author: Option<&Author>,
    keep: Keep,
    live: &Stored,
) -> Result<(), Status> {
    if !are_to_mutate(state) && !are_to_validate(state) {
        return Ok(());
    }
    let old = target.served.show_stored(live);
    let Some(asked) = asked(target, author, keep, Operation::Delete, Some(&old)) else { return Ok(()) };
    mutate(state, &asked, &mut None)?;
    validate(state, &asked, None)
}

/// Tracks field owners as they were before webhooks changed the object: changes by webhooks have no owner.
pub(super) fn track_given(
    resource: &Resource,
    given: Option<Value>,
    new: &mut Value,
    track: impl FnOnce(&mut Value),
) {
    let Some(mut given) = given else { return track(new) };
    prepare::fill_empty(resource, &mut given);
    track(&mut given);
    object::carry(&given, new, "managedFields");
}
