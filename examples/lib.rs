//! The common part of the examples: a place to run, which is the embedded API server or a real cluster.

mod place;
mod cuts;

pub use cuts::{CutLayer, Cuts};
pub use place::Place;
