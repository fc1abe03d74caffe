//! The state that a server starts with.

use super::config::{Controllers, CoreConfig};
use crate::clock::Clock;
use crate::state::State;
use crate::store::Store;
use crate::{authz, bootstrap, flow_control, namespaces};

/// The content of a server's data file at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// The number of objects.
    pub objects: usize,
    /// The newest resource version.
    pub resource_version: u64,
    /// The bytes of an unfinished write that were cut off at the end; no client had seen their content.
    pub unfinished_bytes: u64,
    /// The offset at which they were cut off, in bytes from the start of the file.
    pub end: u64,
}

/// Makes a state without a file.
pub(super) fn fresh(config: &CoreConfig) -> State {
    let mut state = empty(config, config.seed, config.clock.clone());
    namespaces::preload(&mut state);
    authz::install(&mut state);
    flow_control::install(&mut state);
    bootstrap::install(&mut state);
    state
}

pub(super) fn empty(config: &CoreConfig, seed: u64, clock: Clock) -> State {
    let mut state = State::new(Store::new(config.first_version, config.history), clock, seed);
    state.establish_delay = config.establish_delay;
    state.cleans_up = config.controllers == Controllers::On;
    state.bookmark_period = config.bookmark_period;
    state.authorization = config.authorization;
    state
}
