//! The trace that a run belongs to, named by the program's tracing library.

use std::sync::Arc;

use tracing::Span;

use crate::{object::cut_to, users_code::contained};

/// Most bytes of a trace id that are kept: W3C's have 32.
const LONGEST: usize = 128;

/// Asks for the id of the trace at hand.
pub(crate) type FindTraceId = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// Finds the id of the trace that a span belongs to, and records it there as `trace_id`.
pub(super) fn trace_id(find: &FindTraceId, span: &Span) -> Option<Arc<str>> {
    let found = contained(|| span.in_scope(|| find()));
    let found = found.unwrap_or_else(|| {
        tracing::error!("the function that names traces panicked: a run has no trace id");
        None
    });
    let id = cut_to(found.filter(|id| !id.is_empty())?, LONGEST);
    span.record("trace_id", &*id);
    Some(id.into())
}
