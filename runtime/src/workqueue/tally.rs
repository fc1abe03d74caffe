//! What the queue counts, as plain numbers under the lock that it holds anyway.

use crate::metrics::Durations;

/// What happened since the queue was made.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Keys lined up for a worker.
    pub(super) adds: u64,
    /// Runs asked for by a failure, or instead of one.
    pub(super) retries: u64,
    /// How long keys were ready before they were handed out.
    pub(super) waits: Durations,
    /// How long they were in flight.
    pub(super) runs: Durations,
}
