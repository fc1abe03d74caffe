//! Why a key was queued.

use std::{borrow::Cow, fmt, sync::Arc};

use crate::workqueue::Priority;

/// Why a run was asked for: for spans, logs and debug pages, never for decisions.
///
/// Where several things asked for one run, the one that counts most is named: of changes the first, of a change and
/// a first list or a resync the change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The object was shown again without a change.
    Resync,
    /// A first list held the object, or one that maps to it.
    InitialList,
    /// The object itself appeared or changed.
    Changed,
    /// The object itself is gone.
    Deleted,
    /// An object that it owns, or that is mapped to it, appeared, changed or went.
    Related(Arc<str>),
    /// Something changed that an earlier run of the key, or the one that was under way, had read.
    Read {
        /// What changed: its kind and its key.
        object: Arc<str>,
        /// The [id](crate::Context::id) of the run that read it.
        run: u64,
    },
    /// An external source named the key.
    Source,
    /// A list passed a write of the key that no event had shown: what it wrote may be gone again.
    MissedOwnWrite,
    /// Its time has come, as the last run asked, or its run was put back.
    Due,
    /// The last run failed, or asked to back off.
    Retry,
    /// The last run was computed from an old version.
    Conflict,
    /// The last run could not write: the server was overloaded.
    Overload,
}

impl Reason {
    /// Returns the weight of a reason in comparison with another one.
    fn weight(&self) -> u8 {
        match self {
            Self::Resync => 0,
            Self::InitialList => 1,
            Self::Due | Self::Retry | Self::Conflict | Self::Overload => 2,
            _ => 3,
        }
    }

    /// Keeps the one that counts more; of equals the first.
    pub(crate) fn merge(&mut self, other: Self) {
        if other.weight() > self.weight() {
            *self = other;
        }
    }

    /// How urgent the run is: nothing hides what really changed.
    pub(crate) fn priority(&self) -> Priority {
        match self {
            Self::Resync | Self::InitialList => Priority::Low,
            _ => Priority::Normal,
        }
    }

    /// What is shown of it; most take no memory.
    pub(crate) fn text(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Resync => "resync",
            Self::InitialList => "initial_list",
            Self::Changed => "changed",
            Self::Deleted => "deleted",
            Self::Related(kind) => return Cow::Owned(format!("related:{kind}")),
            Self::Read { object, run } => return Cow::Owned(format!("read:{object}@{run}")),
            Self::Source => "external_source",
            Self::MissedOwnWrite => "missed_own_write",
            Self::Due => "due",
            Self::Retry => "retry",
            Self::Conflict => "conflict",
            Self::Overload => "overload",
        })
    }

    /// Whether the run is another attempt at what a run before it could not do, after a delay of its own.
    pub(crate) fn is_retry(&self) -> bool {
        matches!(self, Self::Retry | Self::Overload)
    }
}

/// Shown as one word, so that it is one value in whatever format a log is written.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}
