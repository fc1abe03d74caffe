//! Tests that cross the stages, against the embedded API server under paused time.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod attack;
mod children;
mod compact;
mod controller;
mod coverage;
mod deletion;
mod first_list;
mod interleavings;
mod no_op;
mod outages;
mod own_writes;
mod parking;
mod rate;
mod refusals;
mod restored;
mod runs;
mod selection;
mod stale_caches;
mod storms;
mod strict;
mod trace;
mod unhealthy;
mod watches;
mod why;
mod window;
