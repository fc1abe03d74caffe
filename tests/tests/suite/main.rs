//! Tests that cross the stages, against the embedded API server under paused time.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod attack;
mod children;
mod controller;
mod coverage;
mod deletion;
mod outages;
mod own_writes;
mod rate;
mod runs;
mod selection;
mod storms;
mod trace;
mod unhealthy;
mod watches;
mod why;
