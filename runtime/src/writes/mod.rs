//! What a reconciler writes, and how the controller knows its own writes again.
//!
//! Every write carries the version it was computed from, so that someone else's change in between is refused
//! rather than overwritten, and so that the version it makes is known to be the key's own (see `keys`). Requests end at a
//! deadline of 30 s.
//!
//! A key that wrote runs again only once the caches show what it wrote, or after a deadline (see `keys`). An apply that
//! would change nothing is not sent (see `applied`).
//!
//! After two refusals in a row that name a time (429 or 503 with Retry-After), no controller of a manager writes before that
//! time (see `overload`).

mod refusal;
mod error;
mod contradictions;
pub(crate) mod request;
mod rights;
mod overload;
mod caches;
mod child;
mod applied;
mod writer;
mod apply;
mod create;
mod delete;
mod identity;
pub(crate) mod merge;
mod patch;
mod finalizer;
mod event;
mod series;
mod recorder;

pub use apply::Apply;
pub(crate) use caches::{CacheView, CachedMeta, CachedTarget, Selects, Shown};
pub(crate) use child::UniqueObject;
pub use create::Create;
pub use delete::{Delete, Propagation};
pub use error::WriteError;
pub use event::Event;
pub(crate) use finalizer::{Removed, add_finalizer, remove_finalizer};
pub(crate) use overload::Sender;
pub(crate) use patch::{Patched, patch, patch_status};
pub(crate) use recorder::Recorder;
#[doc(hidden)]
pub use recorder::TRACE_ID_ANNOTATION;
pub use refusal::ForbiddenBy;
pub(crate) use refusal::find;
#[cfg(feature = "webhooks")]
pub(crate) use refusal::is_of_webhook;
#[doc(hidden)]
pub use refusal::{RetryAfter, Stale};
pub(crate) use rights::Rights;
pub use rights::Use;
pub(crate) use writer::{Author, Counters, Writer};

use crate::object::{Object, TypedScope};

/// Bounds what can be written: an object whose type knows its kind and scope.
///
/// Implemented for built-in kinds and for types with `#[derive(CustomResource)]`.
#[doc(hidden)]
pub trait TypedObject: Object + kube::Resource<DynamicType = (), Scope: TypedScope> {}

impl<T> TypedObject for T where T: Object + kube::Resource<DynamicType = (), Scope: TypedScope> {}
