//! Authorization: who may do what, by permissions that a test grants or by roles.

mod aggregate;
mod attributes;
mod decide;
mod defaults;
mod escalation;
mod impersonate;
mod resolve;
mod rule;

#[cfg(test)]
mod tests;

pub(crate) use aggregate::step;
pub(crate) use attributes::Attributes;
pub(crate) use decide::{Decision, check, decide, held_rules};
pub(crate) use defaults::install;
pub(crate) use escalation::check_escalation;
pub(crate) use impersonate::{Wanted, impersonate};
