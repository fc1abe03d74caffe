//! What the tests share: a custom resource, an operator for it, and a record of its runs.

mod operator;
mod record;

pub use operator::{Keeper, Website, WebsiteSpec, WebsiteStatus, deployment_for, website};
pub use record::{Record, Start, assert_rate_holds};
