//! Admission: policies and webhooks, asked before a write according to the stored configurations.
//!
//! Policies come first, as on a real server. They are evaluated within the step.
//! The core is one synchronous step, and a webhook is not: a write that needs an answer it has not ends, the call is made
//! without the lock, and the write begins again with the answer. What must not change from one attempt to the next, a
//! generated name for one, is kept in the `Session` of the request.

mod authorizer;
mod dispatch;
mod hook;
mod matching;
mod policy;
mod request;
mod review;
mod round;

pub(crate) use dispatch::{are_to_mutate, are_to_validate, mutate, validate};
pub(crate) use policy::PolicyCache;
pub(crate) use request::{Asked, Operation, Trial};
