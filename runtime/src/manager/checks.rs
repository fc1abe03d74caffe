//! The checks that a program adds to those of its manager.

use std::{fmt, sync::Arc};

use parking_lot::Mutex;

use super::health::HealthCheck;
use crate::{chain::one_line, users_code::contained};

/// The probe that runs a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probe {
    Health,
    Readiness,
}

type RunCheck = dyn Fn() -> Result<(), String> + Send + Sync;

/// The checks that a program added.
#[derive(Default)]
pub(super) struct ProgramChecks {
    added: Mutex<Vec<ProgramCheck>>,
}

#[derive(Clone)]
struct ProgramCheck {
    probe: Probe,
    name: Arc<str>,
    run: Arc<RunCheck>,
}

impl ProgramChecks {
    pub(super) fn add<E>(
        &self,
        probe: Probe,
        name: String,
        check: impl Fn() -> Result<(), E> + Send + Sync + 'static,
    ) where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let run = move || check().map_err(|error| one_line(&*error.into()));
        let added = ProgramCheck { probe, name: name.into(), run: Arc::new(run) };
        self.added.lock().push(added);
    }

    /// Runs the checks of a probe; one that panics fails.
    pub(super) fn run(&self, probe: Probe) -> Vec<HealthCheck> {
        let added = self.added.lock().clone();
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

impl fmt::Debug for ProgramChecks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProgramChecks")
    }
}
