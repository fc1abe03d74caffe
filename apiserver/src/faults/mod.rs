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
//! A request is offered to the rules in the order they were armed. What only colours an answer (distortions, a
//! slow pace, a stale replica, somebody else's write) adds up; the first other rule that fires decides. A rule about
//! streams is also offered, as it is armed, every stream that is open, oldest first. Requests of the test kit
//! itself pass by all rules.
//!
//! Every firing is in [`Faults::log`], with the line of code that fires at the same request again; what acts in the
//! middle of an answer is noted when it does so for the first time. All chances come from the seeds of the rules:
//! equal rules and equal requests give equal faults.

mod action;
mod desk;
mod distort;
mod edit;
mod flow;
mod interrupt;
mod lists;
mod reply;
mod requests;
mod rule;
mod script;
mod stale;
mod stream;
mod watches;

pub use crate::store::Lag;
pub use action::{Action, Fault, HeldReply};
pub use desk::{Armed, Faults, Firing};
pub use distort::{Distortion, Events, Garble, Mark};
pub use interrupt::Interruption;
pub use reply::{Saying, StatusReply, TooLarge};
pub use requests::{RequestRecord, Requests};
pub use rule::Rule;
pub use script::RuleScript;
pub use stale::Staleness;
pub use watches::Watches;

pub(crate) use desk::Verdict;
pub(crate) use flow::{Graft, Tap};
pub(crate) use lists::distort_list;
pub(crate) use requests::{Recorded, text};
pub(crate) use stream::{FaultyBody, Interrupted};

#[cfg(test)]
mod tests;
