//! What an informer tells those who look on as each change is applied.

use std::{borrow::Cow, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use crate::{
    list_watch::Unreadable,
    object::{Object, ObjectKey, Version},
    store::CachedObject,
};

/// An object that is gone, and how that is known.
#[derive(Clone, Debug)]
pub enum Deleted<K> {
    /// A watch brought the deletion; this is the last state.
    Final(Arc<K>),
    /// Missing after a relist; this is the last known state, possibly not the last one there was.
    Inferred(Arc<K>),
    /// The object never decoded, or too many deletions are in the backlog: no more than this is known.
    Undecoded {
        /// Whose deletion it is.
        key: ObjectKey,
        /// The UID, where it could be read.
        uid: Option<String>,
        /// The owners, where they could be read.
        owners: Vec<OwnerReference>,
    },
}

impl<K: Object> Deleted<K> {
    /// Returns whose deletion it is.
    pub fn key(&self) -> ObjectKey {
        match self {
            Self::Final(object) | Self::Inferred(object) => ObjectKey::of(&**object),
            Self::Undecoded { key, .. } => key.clone(),
        }
    }

    /// Returns the UID of what is gone, where it is known.
    pub fn uid(&self) -> Option<&str> {
        match self {
            Self::Final(object) | Self::Inferred(object) => object.meta().uid.as_deref(),
            Self::Undecoded { uid, .. } => uid.as_deref(),
        }
    }

    /// Returns the last known state, if it was ever decoded.
    pub fn last_state(&self) -> Option<&Arc<K>> {
        match self {
            Self::Final(object) | Self::Inferred(object) => Some(object),
            Self::Undecoded { .. } => None,
        }
    }

    /// Returns the owners of what is gone.
    pub fn owners(&self) -> &[OwnerReference] {
        match self {
            Self::Final(object) | Self::Inferred(object) => {
                object.meta().owner_references.as_deref().unwrap_or_default()
            }
            Self::Undecoded { owners, .. } => owners,
        }
    }
}

/// An object that is gone, as the cache held it: nothing is decoded for it before somebody asks.
#[derive(Clone, Debug)]
pub enum Gone {
    /// A watch brought the deletion; this is the last state.
    Final(CachedObject),
    /// Missing after a relist; this is the last known state, possibly not the last one there was.
    Inferred(CachedObject),
    /// The object never decoded, or too many deletions are in the backlog: no more than this is known.
    Undecoded {
        /// Whose deletion it is.
        key: ObjectKey,
        /// The UID, where it could be read.
        uid: Option<String>,
        /// The owners, where they could be read.
        owners: Vec<OwnerReference>,
    },
}

impl Gone {
    /// Returns whose deletion it is.
    pub fn key(&self) -> &ObjectKey {
        match self {
            Self::Final(held) | Self::Inferred(held) => held.key(),
            Self::Undecoded { key, .. } => key,
        }
    }

    /// Returns the last known state, if there is one.
    pub fn cached(&self) -> Option<&CachedObject> {
        match self {
            Self::Final(held) | Self::Inferred(held) => Some(held),
            Self::Undecoded { .. } => None,
        }
    }

    /// Returns the UID of what is gone, where it is known.
    pub fn uid(&self) -> Option<&str> {
        match self {
            Self::Final(held) | Self::Inferred(held) => held.uid(),
            Self::Undecoded { uid, .. } => uid.as_deref(),
        }
    }

    /// Returns the owners of what is gone.
    pub fn owners(&self) -> Cow<'_, [OwnerReference]> {
        match self {
            Self::Final(held) | Self::Inferred(held) => held.owners(),
            Self::Undecoded { owners, .. } => Cow::Borrowed(owners),
        }
    }

    /// Decodes the last state; one that does not decode is [`Deleted::Undecoded`].
    pub fn deleted<K: Object>(&self) -> Deleted<K> {
        let decoded = match self {
            Self::Final(held) => held.object_as().map(Deleted::Final),
            Self::Inferred(held) => held.object_as().map(Deleted::Inferred),
            Self::Undecoded { .. } => return self.undecoded(),
        };
        decoded.unwrap_or_else(|_| self.undecoded())
    }

    fn undecoded<K>(&self) -> Deleted<K> {
        Deleted::Undecoded {
            key: self.key().clone(),
            uid: self.uid().map(str::to_owned),
            owners: self.owners().into_owned(),
        }
    }

    /// Lets go of the last state, and keeps the names.
    pub(super) fn slim(self) -> Self {
        let (uid, owners) = (self.uid().map(str::to_owned), self.owners().into_owned());
        Self::Undecoded { key: self.key().clone(), uid, owners }
    }
}

/// Where an added object came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddOrigin {
    /// It was there when the cache, or the handler, started.
    InitialList,
    /// It came later.
    Watch,
}

impl std::fmt::Display for AddOrigin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::InitialList => "initial list",
            Self::Watch => "watch",
        })
    }
}

/// How a change became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// A watch event: the change and its version are exactly known.
    Watch,
    /// A list that replaced the cache: what happened in between is not known.
    Replace,
    /// The cache, shown to somebody who came late.
    Replay,
}

/// One change of the cache, after it was made.
///
/// Objects come as the cache holds them: in a compact one, nothing is decoded but what is asked for.
#[derive(Debug)]
pub enum CacheChange {
    /// An object is there that was not.
    Added {
        /// The object.
        object: CachedObject,
        /// Part of the first list, or new.
        origin: AddOrigin,
        /// How it became known.
        via: Via,
    },
    /// An object has another version.
    Updated {
        /// Before.
        old: CachedObject,
        /// After.
        new: CachedObject,
        /// How it became known.
        via: Via,
    },
    /// Shown again without a change: a resync, or an event that brought the version that is cached.
    ///
    /// What a list only confirms is not shown.
    Unchanged {
        /// The object.
        object: CachedObject,
    },
    /// An object is gone.
    Deleted {
        /// What is known of it; boxed, since deletions are few and a change is as large as its largest form.
        gone: Box<Gone>,
        /// The version of the deletion, where a watch brought it.
        version: Option<Version>,
        /// How it became known.
        via: Via,
    },
    /// An object is there in a state that could not be read.
    Unreadable {
        /// What could be read, and why not the rest.
        unreadable: Arc<Unreadable>,
        /// The earlier version that stays in the cache, now outdated.
        kept: Option<CachedObject>,
        /// How it became known.
        via: Via,
    },
}

impl CacheChange {
    /// Returns whose change it is; `None` where the name could not be read.
    pub fn key(&self) -> Option<&ObjectKey> {
        match self {
            Self::Added { object, .. } | Self::Unchanged { object } => Some(object.key()),
            Self::Updated { new, .. } => Some(new.key()),
            Self::Deleted { gone, .. } => Some(gone.key()),
            Self::Unreadable { unreadable, .. } => unreadable.identity.key.as_ref(),
        }
    }
}

/// How far the cache has been brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The version that the cache shows at least; `None` while unknown or opaque.
    pub version: Option<Version>,
    /// How it got there.
    pub via: ProgressVia,
}

/// What brought the cache to a version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProgressVia {
    /// Watch events or a bookmark: every change up to there was shown.
    #[default]
    Watch,
    /// A list: changes in between may never have been seen.
    Replace,
    /// A list of a server that lost its history: earlier versions mean nothing any more.
    NewEpoch,
}
