//! Filters: which changes are worth a run.
//!
//! A [`Predicate`] sees a change of the cache with its old and new state, and says whether keys are enqueued. Those
//! made here pass every addition and deletion and judge updates; they compose with [`and`](Predicate::and),
//! [`or`](Predicate::or) and `!`. A change that is filtered away is lost: nobody runs for it later.
//!
//! ```
//! use k8s_openapi::api::apps::v1::Deployment;
//! use watchkeeper::controller::predicate::{Predicate, generation, labels};
//!
//! let worth_it: Predicate<Deployment> = generation().or(labels());
//! ```

use std::{fmt, ops::Not, sync::Arc};

use kube::core::ObjectMeta;

use crate::{
    informer::{AddOrigin, Change, Deleted},
    object::Object,
};

/// A change as a predicate sees it.
#[derive(Debug)]
pub enum Seen<'a, K> {
    /// An object is there that was not.
    Added {
        /// The object.
        object: &'a K,
        /// Part of the first list, or new.
        origin: AddOrigin,
    },
    /// An object changed; on a resync both states are the same.
    Updated {
        /// The state before.
        old: &'a K,
        /// The state now.
        new: &'a K,
    },
    /// An object is gone.
    Deleted(&'a Deleted<K>),
}

/// The input of a predicate: no more is decoded than it asks for.
trait Input<K> {
    /// Shows the objects; `None` where one can't be read.
    fn objects(&self, judge: &dyn Fn(&Seen<'_, K>) -> bool) -> Option<bool>;
    /// Shows the metadata of an update, old and new; `None` for anything else.
    fn metadata(&self, judge: fn(&ObjectMeta, &ObjectMeta) -> bool) -> Option<bool>;
}

impl<K: Object> Input<K> for Seen<'_, K> {
    fn objects(&self, judge: &dyn Fn(&Seen<'_, K>) -> bool) -> Option<bool> {
        Some(judge(self))
    }

    fn metadata(&self, judge: fn(&ObjectMeta, &ObjectMeta) -> bool) -> Option<bool> {
        match self {
            Seen::Updated { old, new } => Some(judge(old.meta(), new.meta())),
            Seen::Added { .. } | Seen::Deleted(_) => None,
        }
    }
}

impl<K: Object> Input<K> for Change<K> {
    fn objects(&self, judge: &dyn Fn(&Seen<'_, K>) -> bool) -> Option<bool> {
        Some(match self {
            Change::Added { object, origin, .. } => {
                judge(&Seen::Added { object: &*object.object().ok()?, origin: *origin })
            }
            Change::Updated { old, new, .. } => {
                judge(&Seen::Updated { old: &*old.object().ok()?, new: &*new.object().ok()? })
            }
            Change::Unchanged { object } => {
                let object = &*object.object().ok()?;
                judge(&Seen::Updated { old: object, new: object })
            }
            Change::Deleted { gone, .. } => judge(&Seen::Deleted(&gone.deleted())),
            Change::Unreadable { .. } => return None,
        })
    }

    fn metadata(&self, judge: fn(&ObjectMeta, &ObjectMeta) -> bool) -> Option<bool> {
        let (old, new) = match self {
            Change::Updated { old, new, .. } => (old, new),
            Change::Unchanged { object } => (object, object),
            Change::Added { .. } | Change::Deleted { .. } | Change::Unreadable { .. } => return None,
        };
        Some(judge(&*old.metadata().ok()?, &*new.metadata().ok()?))
    }
}

type Judge<K> = dyn Fn(&dyn Input<K>) -> bool + Send + Sync;

/// The changes that enqueue keys.
///
/// Runs as each change is applied, so it must return at once; one that panics lets that change pass nowhere, and
/// is counted by the informer. Of a compact cache, those made here decode the metadata alone, the others the object;
/// what does not decode passes, and so does not pass the opposite (`!`).
pub struct Predicate<K>(Arc<Judge<K>>);

impl<K: Object> Predicate<K> {
    /// Judges every change.
    pub fn new(judge: impl Fn(&Seen<'_, K>) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(move |input| input.objects(&judge).unwrap_or(true)))
    }

    /// Judges updates by their old and new state; additions and deletions pass.
    pub fn on_update(judge: impl Fn(&K, &K) -> bool + Send + Sync + 'static) -> Self {
        Self::new(move |seen| match seen {
            Seen::Updated { old, new } => judge(old, new),
            Seen::Added { .. } | Seen::Deleted(_) => true,
        })
    }

    /// Passes what both pass.
    pub fn and(self, other: Self) -> Self {
        Self(Arc::new(move |input| (self.0)(input) && (other.0)(input)))
    }

    /// Passes what either passes.
    pub fn or(self, other: Self) -> Self {
        Self(Arc::new(move |input| (self.0)(input) || (other.0)(input)))
    }

    /// Returns whether a change passes.
    pub fn passes(&self, seen: &Seen<'_, K>) -> bool {
        (self.0)(seen)
    }

    /// Returns whether a change of a cache passes; one to a state that can't be read always does.
    pub(crate) fn lets_pass(&self, change: &Change<K>) -> bool {
        matches!(change, Change::Unreadable { .. }) || (self.0)(change)
    }
}

/// Passes exactly what the predicate does not pass, additions and deletions included.
impl<K: Object> Not for Predicate<K> {
    type Output = Self;

    fn not(self) -> Self {
        Self(Arc::new(move |input| !(self.0)(input)))
    }
}

impl<K> Clone for Predicate<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K> fmt::Debug for Predicate<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Predicate")
    }
}

/// Passes updates of the specification: not those of status, labels or annotations alone.
///
/// Objects of kinds that have no generation pass, and so does every change of `deletionTimestamp`.
pub fn generation<K: Object>() -> Predicate<K> {
    by_meta(|old, new| {
        new.generation.is_none()
            || old.generation != new.generation
            || old.deletion_timestamp != new.deletion_timestamp
    })
}

/// Passes updates that change a label.
pub fn labels<K: Object>() -> Predicate<K> {
    by_meta(|old, new| old.labels.iter().flatten().ne(new.labels.iter().flatten()))
}

/// Passes updates that change an annotation.
pub fn annotations<K: Object>() -> Predicate<K> {
    by_meta(|old, new| old.annotations.iter().flatten().ne(new.annotations.iter().flatten()))
}

/// Passes updates that bring another version: no resyncs.
pub fn resource_version<K: Object>() -> Predicate<K> {
    by_meta(|old, new| old.resource_version != new.resource_version)
}

fn by_meta<K: Object>(judge: fn(&ObjectMeta, &ObjectMeta) -> bool) -> Predicate<K> {
    Predicate(Arc::new(move |input| input.metadata(judge).unwrap_or(true)))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{api::apps::v1::Deployment, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

    use super::*;

    fn at_generation(generation: Option<i64>) -> Deployment {
        let mut made = Deployment::default();
        made.metadata.generation = generation;
        made
    }

    fn passes(predicate: &Predicate<Deployment>, old: &Deployment, new: &Deployment) -> bool {
        predicate.passes(&Seen::Updated { old, new })
    }

    // C17
    #[test]
    fn generation_swallows_what_changes_status_alone_and_lets_deletions_pass() {
        let (first, second) = (at_generation(Some(1)), at_generation(Some(2)));
        let mut deleting = first.clone();
        deleting.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        let predicate = generation();
        assert!(passes(&predicate, &first, &second));
        assert!(!passes(&predicate, &first, &first), "a status changes no generation");
        assert!(passes(&predicate, &first, &deleting));
        assert!(!passes(&predicate, &deleting, &deleting));
        assert!(passes(&predicate, &at_generation(None), &at_generation(None)), "the kind has none");
        let added = Seen::Added { object: &first, origin: AddOrigin::Watch };
        assert!(predicate.passes(&added));
        assert!(predicate.passes(&Seen::Deleted(&Deleted::Final(Arc::new(first.clone())))));
    }

    // C17
    #[test]
    fn each_predicate_looks_at_its_own_part() {
        let plain = at_generation(Some(1));
        let with = |change: fn(&mut ObjectMeta)| {
            let mut changed = plain.clone();
            change(&mut changed.metadata);
            changed
        };
        let value = || [("k".to_owned(), "v".to_owned())].into();
        let labelled = with(|meta| meta.labels = Some([("k".to_owned(), "v".to_owned())].into()));
        let emptied = with(|meta| meta.labels = Some([].into()));
        let annotated = with(|meta| meta.annotations = Some([("k".to_owned(), "v".to_owned())].into()));
        let newer = with(|meta| meta.resource_version = Some("2".into()));
        assert_eq!(labelled.metadata.labels, Some(value()));
        let all = [&labelled, &annotated, &newer, &plain, &emptied];
        let verdicts = |predicate: Predicate<Deployment>| all.map(|new| passes(&predicate, &plain, new));
        assert_eq!(verdicts(labels()), [true, false, false, false, false]);
        assert_eq!(verdicts(annotations()), [false, true, false, false, false]);
        assert_eq!(verdicts(resource_version()), [false, false, true, false, false]);
    }

    // C17
    #[test]
    fn predicates_compose_as_logic_does() {
        let (old, new) = (at_generation(Some(1)), at_generation(Some(2)));
        let says = |verdict: bool| Predicate::<Deployment>::new(move |_| verdict);
        for (one, other) in [(false, false), (false, true), (true, false), (true, true)] {
            assert_eq!(passes(&says(one).and(says(other)), &old, &new), one && other);
            assert_eq!(passes(&says(one).or(says(other)), &old, &new), one || other);
            assert_eq!(passes(&!says(one), &old, &new), !one);
        }
        let replicas = Predicate::on_update(|old: &Deployment, new: &Deployment| {
            old.metadata.generation.max(Some(1)) != new.metadata.generation
        });
        assert!(passes(&replicas.clone().and(generation()), &old, &new));
        assert!(!passes(&replicas.and(!generation()), &old, &new));
    }
}
