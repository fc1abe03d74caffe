//! Authorization: who may do what, by permissions that a test grants or by roles.

#[cfg(feature = "rbac")]
mod aggregate;
mod attributes;
mod decide;
mod decision;
#[cfg(feature = "rbac")]
mod defaults;
#[cfg(feature = "rbac")]
mod escalation;
mod impersonate;
#[cfg(feature = "rbac")]
mod params;
#[cfg(feature = "rbac")]
mod resolve;
#[cfg_attr(not(feature = "rbac"), path = "../without/roles.rs")]
mod roles;
#[cfg(feature = "rbac")]
mod rule;

#[cfg(test)]
mod tests;

pub(crate) use attributes::Attributes;
pub(crate) use decide::{check, decide, held_rules};
pub(crate) use decision::Decision;
#[cfg(feature = "rbac")]
pub(crate) use escalation::check_escalation;
pub(crate) use impersonate::{WantedUser, impersonate};
#[cfg(not(feature = "rbac"))]
pub(crate) use roles::check_escalation;
pub(crate) use roles::{install, step};
