//! The names that an operator's source file needs: `use watchkeeper::prelude::*;`.
//!
//! `Error` is not part of it, so that users can name their own.

#[doc(no_inline)]
pub use std::{sync::Arc, time::Duration};

#[doc(no_inline)]
pub use kube::{CustomResource, CustomResourceExt, Resource, ResourceExt};
#[doc(no_inline)]
pub use schemars::JsonSchema;
#[doc(no_inline)]
pub use serde::{Deserialize, Serialize};

#[doc(no_inline)]
pub use crate::{
    Informer,
    conditions::{Condition, Conditions},
    controller::{
        Action, Cleanup, Context, Controller, Panics, Predicate, Reason, Reconciler, Terminal, Watch,
    },
    informer::{AddOrigin, Deleted, EventHandler, SharedInformer, SharedInformerFactory, Watched},
    manager::Manager,
    object::{Object, ObjectKey},
    store::Lister,
    workqueue::{ItemExponentialFailure, RateLimit},
    writes::{Event, Propagation},
};
