//! Authorization: who may do what, by permissions that a test grants or by roles.

#[cfg(feature = "rbac")]
mod aggregate;
mod attributes;
mod decide;
#[cfg(feature = "rbac")]
mod defaults;
#[cfg(feature = "rbac")]
mod escalation;
mod impersonate;
#[cfg(feature = "rbac")]
mod resolve;
#[cfg_attr(not(feature = "rbac"), path = "../without/roles.rs")]
mod roles;
#[cfg(feature = "rbac")]
mod rule;

#[cfg(test)]
mod tests;

pub(crate) use attributes::Attributes;
pub(crate) use decide::{Decision, check, decide, held_rules};
pub(crate) use impersonate::{Wanted, impersonate};
pub(crate) use roles::{check_escalation, install, step};
