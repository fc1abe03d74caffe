//! Ownership of fields: server-side apply and the tracking of updates.

mod compare;
mod configuration;
mod conflict;
mod input;
mod kubectl;
mod managers;
mod merge;
mod remove;
mod set;
mod typed;
mod update;

use serde_json::Value;

pub(crate) use self::configuration::configure;
pub(crate) use self::input::{ApplyError, ApplyInput, Force, UpdateInput};
pub(crate) use self::update::track_update;

/// Merges what is applied into the live object, and records who owns it.
///
/// The result is the whole object with its `metadata.managedFields`; an apply that changes nothing returns the live
/// object as it is, times included. Nothing is defaulted, pruned or validated. A map whose last owned field went while
/// another manager holds the empty map becomes null, as on the real server.
///
/// # Errors
///
/// See [`ApplyError`]; nothing has changed then.
pub(crate) fn apply(input: ApplyInput<'_>) -> Result<Value, ApplyError> {
    update::apply(input)
}

#[cfg(test)]
mod tests;
