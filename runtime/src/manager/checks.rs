//! Checks of the program, in addition to those of the manager.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use super::health::HealthCheck;
use crate::{chain::one_line, users_code::contained};

/// What a check belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probe {
    Health,
    Readiness,
}

type Run = dyn Fn() -> Result<(), String> + Send + Sync;

/// The checks that a program added.
#[derive(Default)]
pub(super) struct Checks {
    added: Mutex<Vec<Added>>,
}

#[derive(Clone)]
struct Added {
    probe: Probe,
    name: Arc<str>,
    run: Arc<Run>,
}

impl Checks {
    pub(super) fn add<E>(
        &self,
        probe: Probe,
        name: String,
        check: impl Fn() -> Result<(), E> + Send + Sync + 'static,
    ) where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let run = move || check().map_err(|error| one_line(&*error.into()));
        let added = Added { probe, name: name.into(), run: Arc::new(run) };
        self.added.lock().unwrap_or_else(PoisonError::into_inner).push(added);
    }

    /// Runs those of a probe; one that panics fails.
    pub(super) fn run(&self, probe: Probe) -> Vec<HealthCheck> {
        let added = self.added.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let of_probe = added.into_iter().filter(|added| added.probe == probe);
        of_probe
            .map(|added| match contained(&*added.run) {
                Some(Ok(())) => HealthCheck::passed(&*added.name),
                Some(Err(error)) => HealthCheck::failed(&*added.name, None, error),
                None => HealthCheck::failed(&*added.name, None, "the check panicked"),
            })
            .collect()
    }
}

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Checks")
    }
}
