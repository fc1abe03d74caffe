//! Tests that cross the stages, against the embedded API server under paused time.

mod children;
mod controller;
mod coverage;
mod deletion;
mod outages;
mod own_writes;
mod rate;
