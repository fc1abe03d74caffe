//! Shared informers.

mod change;
mod watched;

pub use change::{AddOrigin, Change, Deleted, Observer, Progress, ProgressVia, Via};
pub use watched::{Dynamic, External, Form, Metadata, TypedScope, Watched, typed_kind};
