//! What a debug page shows of a queue: so many keys, and where they stand.

use super::key_state::{Depth, KeyState};

/// A moment of a queue, as far as was asked for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Snapshot<K> {
    /// How many keys stand where.
    pub depth: Depth,
    /// Where keys stand: first those in flight; then those that are ready, highest priority first,
    /// each line in its order; retries that await a token; those that wait or are held, roughly the soonest first; those
    /// that ended terminally.
    pub keys: Vec<(K, KeyState)>,
}

impl<K> Snapshot<K> {
    /// Counts the keys that were left out, as more are known than were asked for.
    pub const fn left_out(&self) -> usize {
        self.depth.known.saturating_sub(self.keys.len())
    }
}
