//! Tests of the pure core: tables, and simulated elections.

mod decisions;
mod simulation;
