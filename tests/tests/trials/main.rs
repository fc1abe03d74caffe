//! Operators under one trouble after another: ours hold, and each classical bug is found.

mod bugs;
mod ours;
