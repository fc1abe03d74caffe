//! Restoring: the state that a data file holds, and the history that is still there.

use std::path::Path;

use serde_json::Value;

use super::commit::image;
use super::config::{Controllers, CoreConfig};
use crate::clock::Clock;
use crate::data::{DataError, DataFile, Entry, Loaded, Opened};
use crate::state::State;
use crate::store::{ResourceId, Store};
use crate::{authz, bootstrap, crd, flow_control, namespaces};

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

/// A state with the file it is kept in.
pub(super) struct Opening {
    pub(super) state: State,
    pub(super) file: DataFile,
    pub(super) started: u64,
    pub(super) restored: Option<Restored>,
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

fn empty(config: &CoreConfig, seed: u64, clock: Clock) -> State {
    let mut state = State::new(Store::new(config.first_version, config.history), clock, seed);
    state.establish_delay = config.establish_delay;
    state.cleans_up = config.controllers == Controllers::On;
    state.bookmark_period = config.bookmark_period;
    state.authorization = config.authorization;
    state
}

/// Opens a data file, or begins one.
///
/// # Errors
/// The error in the file, if it could not be loaded.
pub(super) fn open(config: &CoreConfig, path: &Path) -> Result<Opening, DataError> {
    match DataFile::open(path)? {
        Opened::New(mut file) => {
            let mut state = fresh(config);
            file.replace(&image(&state, 0))?;
            state.store.keep();
            Ok(Opening { state, file, started: 0, restored: None })
        }
        Opened::Old(mut file, loaded) => {
            let started = loaded.started + 1;
            // Uids that were given out, and lost with a write that was not finished, don't come again.
            let seed = config.seed ^ started.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut state = empty(config, seed, config.clock.clone());
            let (end, unfinished_bytes) = (loaded.end, loaded.unfinished);
            fill(&mut state, loaded, path)?;
            file.append([Entry::Started(started)])?;
            state.store.keep();
            crd::register_all(&mut state);
            authz::install(&mut state);
            flow_control::install(&mut state);
            bootstrap::install(&mut state);
            let objects = state.store.everything().len();
            let resource_version = state.store.version();
            let restored = Some(Restored { objects, resource_version, unfinished_bytes, end });
            Ok(Opening { state, file, started, restored })
        }
    }
}

fn fill(state: &mut State, loaded: Loaded, path: &Path) -> Result<(), DataError> {
    let mut objects = Vec::new();
    for line in loaded.snapshot {
        let (entry, damaged) = line.open(path);
        match entry {
            Entry::Put { group, plural, key, object } => {
                objects.push((ResourceId::new(&group, &plural), key.into_owned(), object.into_owned()));
            }
            Entry::Fact(fact) => take_fact(state, &fact).map_err(damaged)?,
            _ => return Err(damaged("a change inside of the snapshot".to_owned())),
        }
    }
    state.store.take_over(loaded.version, objects);
    for line in loaded.log {
        let (entry, damaged) = line.open(path);
        match entry {
            Entry::Put { group, plural, key, object } => {
                state.store.put(&ResourceId::new(&group, &plural), &key, object.into_owned());
            }
            Entry::Delete { group, plural, key, version } => {
                let gone = state.store.delete(&ResourceId::new(&group, &plural), &key);
                let why =
                    || damaged(format!("version {version} deletes {key} of {plural}, which is not there"));
                gone.ok_or_else(why)?;
            }
            Entry::Compacted(version) => state.store.compact(version),
            Entry::Fact(fact) => take_fact(state, &fact).map_err(damaged)?,
            Entry::Started(_) | Entry::End { .. } => {}
        }
    }
    Ok(())
}

fn take_fact(state: &mut State, fact: &Value) -> Result<(), String> {
    state.take_fact(fact).map_err(|error| format!("a fact that this server doesn't know: {error}"))
}
