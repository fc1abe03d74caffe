//! What a key waits for after a write, and whether a cache shows it.

use crate::object::Version;

/// What a cache is to show before the key runs again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
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
    /// A later version than this, which a stranger made; or that the object is gone.
    Past(Version),
    /// Whatever the server will say: the reply to the write was lost.
    Asked,
}

impl Goal {
    /// The version that meets it, whatever the cache shows.
    pub(super) fn version(&self) -> Option<Version> {
        match self {
            Self::Reached(version) | Self::Marked { version, .. } => Some(*version),
            _ => None,
        }
    }

    /// Tells whether a cache that was brought to a version, and shows this, shows what is waited for.
    pub(super) fn is_met(&self, delivered: Option<Version>, sight: impl FnOnce() -> Sight) -> bool {
        let brought_to = |version: &Version| delivered.is_some_and(|delivered| delivered >= *version);
        match self {
            Self::Asked => false,
            Self::Reached(version) | Self::Marked { version, .. } if brought_to(version) => true,
            Self::Reached(version) => sight().is_at_least(*version),
            Self::Marked { uid, version } => {
                let sight = sight();
                sight.is_at_least(*version) || sight.is_without(uid)
            }
            Self::Gone { uid } => sight().is_without(uid),
            Self::Released { uid, finalizer } => match sight() {
                Sight::Shown { uid: shown, finalizers, .. } => {
                    shown != *uid || !finalizers.contains(finalizer)
                }
                sight => sight == Sight::Absent,
            },
            Self::Absent => sight() == Sight::Absent,
            Self::Past(version) => match sight() {
                Sight::Shown { version: shown, .. } => shown.is_none_or(|shown| shown > *version),
                sight => sight == Sight::Absent,
            },
        }
    }
}

/// What a cache shows of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    Absent,
    /// It can't say: the object is unreadable.
    Unknown,
    Shown {
        uid: String,
        version: Option<Version>,
        finalizers: Vec<String>,
    },
}

impl Sight {
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
