//! Without the feature `rbac`: roles are stored, and decide nothing.

use serde_json::Value;

use super::attributes::Attributes;
use super::decision::Decision;
use crate::identity::User;
use crate::state::State;
use crate::status::Status;

/// Returns 0: no role is aggregated.
pub(crate) fn step(_: &mut State) -> usize {
    0
}

/// Installs nothing.
pub(crate) fn install(_: &mut State) {}

/// Lets every role and binding be written.
///
/// # Errors
/// Never.
pub(crate) fn check_escalation(
    _: &State,
    _: &User,
    _: &Attributes,
    _: Option<&Value>,
    _: &Value,
) -> Result<(), Status> {
    Ok(())
}

/// Returns that no role allows anything.
pub(super) fn by_roles(_: &State, _: &User, _: &Attributes) -> Decision {
    Decision::NoOpinion(String::new())
}

/// Returns no rules.
pub(super) fn rules_by_roles(_: &State, _: &User, _: &str) -> (Vec<Value>, Vec<Value>, String) {
    (Vec::new(), Vec::new(), String::new())
}
