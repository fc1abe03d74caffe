//! What a key waits for after a write, and whether a cache shows it.

use super::sources::SourceId;
use crate::object::{ObjectKey, Version};

/// The caches, as far as the table needs them.
pub(crate) trait Caches {
    /// Returns what a source shows of an object.
    fn cached(&self, source: SourceId, object: &ObjectKey) -> CachedState;
    /// Returns whether a source's watch is open.
    fn is_open(&self, source: SourceId) -> bool;
}

/// What a cache is to show before the key runs again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expectation {
    /// This version of the object, or a later one.
    Reached(Version),
    /// That the object of this UID is gone.
    Gone { uid: String },
    /// That it is gone, or marked as deleted: at this version.
    Marked { uid: String, version: Version },
    /// That it is gone, or without the finalizer (the answer to such a patch has no new version).
    Released { uid: String, finalizer: String },
    /// That there is no such object.
    Absent,
    /// A later version than this, which someone else made; or that the object is gone.
    NewerThan(Version),
    /// Whatever the server will say: the reply to the write was lost.
    ReplyLost,
}

impl Expectation {
    /// The version that meets it, whatever the cache shows.
    pub(super) fn version(&self) -> Option<Version> {
        match self {
            Self::Reached(version) | Self::Marked { version, .. } => Some(*version),
            _ => None,
        }
    }

    /// Returns whether a cache that was brought to a version, and shows this, shows what is waited for.
    pub(super) fn is_met(&self, delivered: Option<Version>, cached: impl FnOnce() -> CachedState) -> bool {
        let brought_to = |version: &Version| delivered.is_some_and(|delivered| delivered >= *version);
        match self {
            Self::ReplyLost => false,
            Self::Reached(version) | Self::Marked { version, .. } if brought_to(version) => true,
            Self::Reached(version) => cached().is_at_least(*version),
            Self::Marked { uid, version } => {
                let cached = cached();
                cached.is_at_least(*version) || cached.is_without(uid)
            }
            Self::Gone { uid } => cached().is_without(uid),
            Self::Released { uid, finalizer } => match cached() {
                CachedState::Shown { uid: shown, finalizers, .. } => {
                    shown != *uid || !finalizers.contains(finalizer)
                }
                cached => cached == CachedState::Absent,
            },
            Self::Absent => cached() == CachedState::Absent,
            Self::NewerThan(version) => match cached() {
                CachedState::Shown { version: shown, .. } => shown.is_none_or(|shown| shown > *version),
                cached => cached == CachedState::Absent,
            },
        }
    }
}

/// What a cache shows of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CachedState {
    Absent,
    /// It can't say: the object is unreadable.
    Unknown,
    Shown {
        uid: String,
        version: Option<Version>,
        finalizers: Vec<String>,
    },
}

impl CachedState {
    fn is_at_least(&self, version: Version) -> bool {
        matches!(self, Self::Shown { version: Some(shown), .. } if *shown >= version)
    }

    fn is_without(&self, uid: &str) -> bool {
        match self {
            Self::Absent => true,
            Self::Unknown => false,
            Self::Shown { uid: shown, .. } => shown != uid,
        }
    }
}
