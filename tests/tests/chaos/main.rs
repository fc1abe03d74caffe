//! Chaos: thousands of short runs, each decided by one seed, on one thread and without real time.
//!
//! ```text
//! cargo test --workspace --test chaos -- --nocapture         # all of it, with counts and times
//! CHAOS_SEED=17 cargo test --workspace --test chaos -- informers --nocapture    # one run, with its trace
//! CHAOS_SEEDS=100000 cargo test --workspace --test chaos -- informers --nocapture
//! ```
//!
//! A run that fails says its seed and its script; the same seed fails in the same way again.

#![expect(clippy::unwrap_used, reason = "a test may panic")]
#![expect(clippy::print_stdout, reason = "counts, times and scripts are the point")]

mod cuts;
mod informers;
mod operators;
mod seeds;
