//! What the tests share: a custom resource, operators for it, a record of their runs, servers, planted bugs.
//!
//! A list of behaviours, too, and which tests prove them.

pub mod ask;
pub mod backend;
pub mod behaviours;
mod bodies;
pub mod cable;
mod counter;
mod does;
pub mod exposition;
pub mod gates;
mod hear;
mod made;
mod operator;
pub mod planted;
pub mod raw;
mod record;
mod snapshot;

pub use bodies::{Bodies, Sent};
pub use counter::{Counter, Gate};
pub use does::{Does, Done, does};
pub use hear::{Hearing, hear, log_to_stderr};
pub use made::Made;
pub use operator::{Keeper, Looker, Website, WebsiteSpec, WebsiteStatus, deployment_for, owned_by, website};
pub use record::{Record, Start, assert_rate_holds};
pub use snapshot::assert_snapshot;
