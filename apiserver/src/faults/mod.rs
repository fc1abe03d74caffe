//! Faults: rules that say which answers go wrong, and how.
//!
//! A rule is a matcher, a count and an action, armed by its last call:
//!
//! ```no_run
//! # async fn example() {
//! use watchkeeper_apiserver::{ApiServer, Fault, Verb};
//!
//! let server = ApiServer::in_memory().start().await;
//! let faults = server.faults();
//! faults.on(Verb::Watch, "deployments").once().then(Fault::Cut);
//! faults.on(Verb::List, "widgets").times(1).then(Fault::Status(429).retry_after(2).text());
//! faults.on(Verb::Watch, "configmaps").namespace("a").nth(2).then(Fault::Cut.after_events(3).at_byte(17));
//! faults.on_any_write().probability(0.2).seed(7).then(Fault::CommitThenDrop);
//! faults.clear();
//! # }
//! ```
//!
//! A request is offered to the rules in the order they were armed; the first that fires decides. A rule about
//! streams is also offered, as it is armed, every stream that is open, oldest first. Requests of the test kit
//! itself pass by all rules.

mod action;
mod desk;
mod requests;
mod rule;
mod script;
mod stream;

pub use action::{Action, Fault, Interruption, StatusReply};
pub use desk::{Armed, Faults, Firing};
pub use requests::{RequestRecord, Requests};
pub use rule::Rule;
pub use script::RuleScript;

pub(crate) use desk::Verdict;
pub(crate) use requests::{Recorded, text};
pub(crate) use stream::{FaultyBody, Interrupted, Tap};

#[cfg(test)]
mod tests;
