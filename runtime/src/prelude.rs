//! The names that an operator's source file needs: `use watchkeeper::prelude::*;`.
//!
//! `Error` is not part of it, so that users can name their own.

pub use std::{sync::Arc, time::Duration};

pub use kube::{CustomResource, CustomResourceExt, Resource, ResourceExt};
pub use schemars::JsonSchema;
pub use serde::{Deserialize, Serialize};

pub use crate::{
    Informer,
    conditions::{Condition, Conditions},
    controller::{Action, Cleanup, Context, Controller, Panics, Reason, Reconciler, Terminal},
    informer::{AddOrigin, Deleted, EventHandler, SharedInformer, SharedInformerFactory, Watched},
    manager::Manager,
    object::{Object, ObjectKey},
    store::{Lister, Lookup, Selector},
    workqueue::{
        ItemExponentialFailure, ItemFastSlow, MaxOf, Priority, RateLimit, RateLimiter, WithMaxWait, WorkQueue,
    },
    writes::{Event, Propagation},
};
