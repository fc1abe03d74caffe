//! Why an object does not reconcile: what a debug page shows, and what tests ask.

use std::{
    any::TypeId,
    fmt,
    ops::{Deref, DerefMut},
    slice,
    sync::Arc,
    vec,
};

use super::overview::{ControllerPhase, ControllerReport, Lagging};
use crate::{
    keys::{LastError, Reason, Why},
    object::ObjectKey,
};

/// How the controllers of a kind stand to one key: one report each, in the order of their start.
///
/// It is a list that shows itself to people: a sentence for each controller. Where it is empty, none reconciles the kind.
#[derive(Clone, Debug)]
pub struct KeyReports(Vec<KeyReport>);

/// How one controller stands to one key, at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KeyReport {
    /// The object that was asked about.
    pub key: ObjectKey,
    /// The controller's name.
    pub controller: Arc<str>,
    /// What the key waits for.
    pub why: Why,
    /// What asked for the run that is to come, where a change did.
    pub reason: Option<Reason>,
    /// How the last run failed, if it did.
    pub last_error: Option<LastError>,
}

impl KeyReports {
    pub(crate) fn new(reports: Vec<KeyReport>) -> Self {
        Self(reports)
    }
}

impl Deref for KeyReports {
    type Target = Vec<KeyReport>;

    fn deref(&self) -> &Vec<KeyReport> {
        &self.0
    }
}

impl DerefMut for KeyReports {
    fn deref_mut(&mut self) -> &mut Vec<KeyReport> {
        &mut self.0
    }
}

impl IntoIterator for KeyReports {
    type Item = KeyReport;
    type IntoIter = vec::IntoIter<KeyReport>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a KeyReports {
    type Item = &'a KeyReport;
    type IntoIter = slice::Iter<'a, KeyReport>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl fmt::Display for KeyReports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("no controller of this manager reconciles the kind");
        }
        for (at, report) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            fmt::Display::fmt(report, f)?;
        }
        Ok(())
    }
}

impl fmt::Display for KeyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, controller, why, reason, last_error } = self;
        match why {
            Why::InFlight { .. } => write!(f, "{controller} is reconciling {key}: {why}")?,
            _ => write!(f, "{controller} is not reconciling {key}: {why}")?,
        }
        if let Some(reason) = reason {
            write!(f, " (asked for: {reason})")?;
        }
        match last_error {
            Some(error) => write!(f, "; {error}"),
            None => Ok(()),
        }
    }
}

/// A controller as it is looked into, whatever its types.
pub(crate) trait Inspected: Send + Sync {
    /// The marker type that it reconciles.
    fn reconciles(&self) -> TypeId;
    /// Returns how it stands to a key.
    fn report(&self, key: &ObjectKey) -> KeyReport;
    /// Names what runs, in one line; `None` if nothing does.
    fn in_flight(&self) -> Option<String>;
    /// Finds objects by name alone, in whatever namespace; a bounded number.
    fn find(&self, name: &str) -> Vec<ObjectKey>;
    /// Says which caches it waits for, and why.
    fn lagging(&self) -> Vec<Lagging>;
    /// Says how far it has come.
    fn phase(&self) -> ControllerPhase;
    /// Shows its state, with at most this many keys of each sort.
    fn overview(&self, each: usize) -> ControllerReport;
}

impl fmt::Debug for dyn Inspected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inspected")
    }
}
