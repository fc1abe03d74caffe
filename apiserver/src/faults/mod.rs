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
//! | What goes wrong | By |
//! |---|---|
//! | connections | [`Cut`](Fault::Cut), [`Reset`](Fault::Reset), [`Silence`](Fault::Silence), [`Drip`](Fault::Drip), [`ApiServer::partition`](crate::ApiServer::partition) |
//! | answers | [`Status`](Fault::Status), [`TooLarge`](Fault::TooLarge), also [as an event](StatusReply::as_event) or a [bare line](StatusReply::as_line) of a watch |
//! | events | [`Skip`](Fault::Skip), [`Duplicate`](Fault::Duplicate), [`Replay`](Fault::Replay), [`Reorder`](Fault::Reorder), [`Coalesce`](Fault::Coalesce), [`Garble`](Fault::Garble), [`EndMark`](Fault::EndMark), [`Watches`] |
//! | lists | [`ExpiredToken`](Fault::ExpiredToken), [`EndlessList`](Fault::EndlessList), [`Garble`](Fault::Garble), cuts and silence at a byte |
//! | replicas | [`Stale`](Fault::Stale), [`Replicas`](Fault::Replicas), [`ApiServer::freeze_reads`](crate::ApiServer::freeze_reads) |
//! | writes | [`CommitThenDrop`](Fault::CommitThenDrop), [`CommitThenHold`](Fault::CommitThenHold), [`Bump`](Fault::Bump), [`Kit::recreate`](crate::Kit::recreate) |
//! | the server itself | [`Restart`](crate::Restart), [`ApiServer::compact`](crate::ApiServer::compact), [`Clock::skew`](crate::Clock::skew), [`ApiServer::allow_in`](crate::ApiServer::allow_in) |
//!
//! The same rules can be sent to the control port as JSON: [`RuleScript`].
//!
//! Every firing is in [`Faults::log`], with the line of code that fires at the same request again; what acts in the
//! middle of an answer is noted when it does so for the first time. All chances come from the seeds of the rules:
//! equal rules and equal requests give equal faults.

mod action;
mod registry;
mod distort;
mod edit;
mod firing;
mod flow;
mod interrupt;
mod lists;
mod matcher;
mod reply;
mod requests;
mod script;
mod stale;
mod stream;
mod text;

pub use crate::store::Lag;
pub use action::{Action, Fault, HeldReply};
pub use distort::{Distortion, Events, Garble, Mark};
pub use firing::Firing;
pub use interrupt::Interruption;
pub use registry::{Armed, Faults, Rule, Watches};
pub use reply::{Saying, StatusReply, TooLarge};
pub use requests::{RequestRecord, Requests};
pub use script::RuleScript;
pub use stale::Staleness;

pub(crate) use flow::{Graft, Tap};
#[doc(hidden)]
pub use interrupt::Interrupted;
pub(crate) use lists::distort_list;
pub(crate) use registry::Verdict;
pub(crate) use requests::{Recorded, text};
pub(crate) use stream::FaultyBody;

#[cfg(test)]
mod tests;
