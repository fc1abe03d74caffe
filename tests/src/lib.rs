//! What the tests share: a custom resource, operators for it, a record of their runs, and servers to run on.

pub mod backend;
mod counter;
mod operator;
mod record;

pub use counter::{Counter, Gate};
pub use operator::{Keeper, Looker, Website, WebsiteSpec, WebsiteStatus, deployment_for, owned_by, website};
pub use record::{Record, Start, assert_rate_holds};
