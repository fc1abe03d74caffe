//! Rounds: how often policies and webhooks are asked, and the version in which they see an object.

use serde_json::Value;

use super::request::Asked;
use crate::conversion::turned;
use crate::kinds::Served;
use crate::object;
use crate::state::State;
use crate::status::Status;

/// Whether all are called, or only those that want to be called again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Round {
    First,
    Second,
}

/// Takes a changed object back from the version in which it was shown.
///
/// # Errors
/// It is not an object of its kind any more, has another name, or still has to be converted.
pub(super) fn taken(
    state: &mut State,
    asked: &Asked,
    version: &Served,
    before: &Value,
    after: Value,
    who: &str,
) -> Result<Value, Status> {
    let mut after = match asked.is_converted(version) {
        true => turned(state, &asked.served, &after)?.ok_or_else(Status::waiting)?,
        false => asked.taken_back(after, version),
    };
    if asked.kind.is_none() && asked.resource.built_in().is_some() {
        asked.served.schema.decode(&mut after).map_err(|why| Status::internal_error(&why))?;
    }
    if asked.kind.is_none() && (!is_object(&after) || !asked.may_become(before, &after)) {
        let why = format!("{who} attempted to change the name or namespace of the object");
        return Err(Status::internal_error(&why));
    }
    Ok(after)
}

/// Shows an object in the version that a webhook accepts; `None` while its conversion is pending.
pub(super) fn shown(
    state: &mut State,
    asked: &Asked,
    object: &Value,
    version: &Served,
) -> Result<Option<Value>, Status> {
    match asked.is_converted(version) {
        true => turned(state, version, object),
        false => Ok(Some(asked.shown(object, version))),
    }
}

/// Returns whether an object's metadata is that of an object at all; patches may make anything.
fn is_object(value: &Value) -> bool {
    value.is_object() && !object::name(value).is_empty()
}
