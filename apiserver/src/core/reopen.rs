//! Restoring: the state that a data file holds, and the history that is still there.

use std::path::Path;

use serde_json::Value;

use super::commit::image;
use super::config::CoreConfig;
use super::restore::{Restored, empty, fresh};
use crate::data::{DataError, DataFile, Entry, Loaded, Opened};
use crate::state::State;
use crate::store::ResourceId;
use crate::{authz, bootstrap, crd, flow_control};

/// A state with the file it is kept in.
pub(super) struct Opening {
    pub(super) state: State,
    pub(super) file: DataFile,
    pub(super) started: u64,
    pub(super) restored: Option<Restored>,
}

/// Opens a data file, or begins one.
///
/// # Errors
/// What is wrong with the file; nothing was loaded then.
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
