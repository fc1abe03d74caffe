//! Filters: which changes are worth a run.

use std::{ops::Not, sync::Arc};

use kube::core::ObjectMeta;

use crate::{informer::CacheChange, object::Object};

/// Judges a change by the states before and after it.
type JudgeStates<K> = dyn Fn(Option<&K>, Option<&K>) -> bool;

/// The input of a predicate: only what the predicate needs is decoded.
trait Input<K> {
    /// Shows the objects; `None` if one can't be read.
    fn objects(&self, judge: &JudgeStates<K>) -> Option<bool>;
    /// Shows the metadata of an update, old and new; `None` for anything else.
    fn metadata(&self, judge: fn(&ObjectMeta, &ObjectMeta) -> bool) -> Option<bool>;
}

impl<K: Object> Input<K> for (Option<&K>, Option<&K>) {
    fn objects(&self, judge: &JudgeStates<K>) -> Option<bool> {
        Some(judge(self.0, self.1))
    }

    fn metadata(&self, judge: fn(&ObjectMeta, &ObjectMeta) -> bool) -> Option<bool> {
        Some(judge(self.0?.meta(), self.1?.meta()))
    }
}

impl<K: Object> Input<K> for CacheChange {
    fn objects(&self, judge: &JudgeStates<K>) -> Option<bool> {
        Some(match self {
            CacheChange::Added { object, .. } => judge(None, Some(&*object.object_as().ok()?)),
            CacheChange::Updated { old, new, .. } => {
                judge(Some(&*old.object_as().ok()?), Some(&*new.object_as().ok()?))
            }
            CacheChange::Unchanged { object } => {
                let object: &K = &*object.object_as().ok()?;
                judge(Some(object), Some(object))
            }
            CacheChange::Deleted { gone, .. } => judge(gone.deleted().last_state().map(|last| &**last), None),
            CacheChange::Unreadable { .. } => return None,
        })
    }

    fn metadata(&self, judge: fn(&ObjectMeta, &ObjectMeta) -> bool) -> Option<bool> {
        let (old, new) = match self {
            CacheChange::Updated { old, new, .. } => (old, new),
            CacheChange::Unchanged { object } => (object, object),
            CacheChange::Added { .. } | CacheChange::Deleted { .. } | CacheChange::Unreadable { .. } => {
                return None;
            }
        };
        Some(judge(&*old.metadata().ok()?, &*new.metadata().ok()?))
    }
}

type Judge<K> = dyn Fn(&dyn Input<K>) -> bool + Send + Sync;

/// Returns whether a change of a cache passes; one to a state that can't be read always does.
pub(crate) type ChangeFilter = Arc<dyn Fn(&CacheChange) -> bool + Send + Sync>;

/// Decides which changes enqueue keys.
///
/// It sees each change of the cache, with the states before and after it. The ready-made predicates pass every addition
/// and every deletion, and judge updates. Predicates combine with [`and`](Self::and), [`or`](Self::or) and `!`.
///
/// A change that is filtered out is lost: no run happens for it later. A predicate runs as each change is applied, so it
/// must return at once. If it panics, the change does not pass, and the informer counts the panic. For a compact cache, the
/// ready-made predicates decode only the metadata. An object that does not decode passes, and so it does not pass the
/// opposite (`!`).
///
/// ```
/// use k8s_openapi::api::apps::v1::Deployment;
/// use watchkeeper::controller::Predicate;
///
/// let predicate: Predicate<Deployment> = Predicate::generation().or(Predicate::labels());
/// ```
pub struct Predicate<K>(Arc<Judge<K>>);

impl<K: Object> Predicate<K> {
    /// Judges every change by the states before and after it.
    ///
    /// An addition has no state before it, and a deletion has none after it. Neither state is known for the deletion of an
    /// object that never decoded. On a resync both states are the same.
    pub fn new(judge: impl Fn(Option<&K>, Option<&K>) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(move |input| input.objects(&judge).unwrap_or(true)))
    }

    /// Judges updates by their old and new state; additions and deletions pass.
    pub fn on_update(judge: impl Fn(&K, &K) -> bool + Send + Sync + 'static) -> Self {
        Self::new(move |old, new| match (old, new) {
            (Some(old), Some(new)) => judge(old, new),
            _ => true,
        })
    }

    /// Passes updates of the specification: not those of status, labels or annotations alone.
    ///
    /// Objects of kinds that have no generation pass, and so does every change of `deletionTimestamp`.
    pub fn generation() -> Self {
        Self::by_meta(|old, new| {
            new.generation.is_none()
                || old.generation != new.generation
                || old.deletion_timestamp != new.deletion_timestamp
        })
    }

    /// Passes updates that change a label.
    pub fn labels() -> Self {
        Self::by_meta(|old, new| old.labels.iter().flatten().ne(new.labels.iter().flatten()))
    }

    /// Passes updates that change an annotation.
    pub fn annotations() -> Self {
        Self::by_meta(|old, new| old.annotations.iter().flatten().ne(new.annotations.iter().flatten()))
    }

    /// Passes updates that bring another version: no resyncs.
    pub fn resource_version() -> Self {
        Self::by_meta(|old, new| old.resource_version != new.resource_version)
    }

    fn by_meta(judge: fn(&ObjectMeta, &ObjectMeta) -> bool) -> Self {
        Self(Arc::new(move |input| input.metadata(judge).unwrap_or(true)))
    }

    /// Passes what both pass.
    pub fn and(self, other: Self) -> Self {
        Self(Arc::new(move |input| (self.0)(input) && (other.0)(input)))
    }

    /// Passes what either passes.
    pub fn or(self, other: Self) -> Self {
        Self(Arc::new(move |input| (self.0)(input) || (other.0)(input)))
    }

    /// Returns whether a change passes, given the states before and after it.
    pub fn passes(&self, old: Option<&K>, new: Option<&K>) -> bool {
        (self.0)(&(old, new))
    }

    /// Forgets the type of the objects.
    pub(crate) fn erased(self) -> ChangeFilter {
        Arc::new(move |change| matches!(change, CacheChange::Unreadable { .. }) || (self.0)(change))
    }
}

/// Passes exactly what the predicate does not pass, additions and deletions included.
impl<K: Object> Not for Predicate<K> {
    type Output = Self;

    fn not(self) -> Self {
        Self(Arc::new(move |input| !(self.0)(input)))
    }
}

impl_clone!([K] Predicate<K>, 0);

impl_debug!([K] Predicate<K>);

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
        predicate.passes(Some(old), Some(new))
    }

    // C17
    #[test]
    fn generation_swallows_what_changes_status_alone_and_lets_deletions_pass() {
        let (first, second) = (at_generation(Some(1)), at_generation(Some(2)));
        let mut deleting = first.clone();
        deleting.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        let predicate = Predicate::generation();
        assert!(passes(&predicate, &first, &second));
        assert!(!passes(&predicate, &first, &first), "a status changes no generation");
        assert!(passes(&predicate, &first, &deleting));
        assert!(!passes(&predicate, &deleting, &deleting));
        assert!(passes(&predicate, &at_generation(None), &at_generation(None)), "the kind has none");
        assert!(predicate.passes(None, Some(&first)), "an addition");
        assert!(predicate.passes(Some(&first), None), "a deletion");
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
        assert_eq!(verdicts(Predicate::labels()), [true, false, false, false, false]);
        assert_eq!(verdicts(Predicate::annotations()), [false, true, false, false, false]);
        assert_eq!(verdicts(Predicate::resource_version()), [false, false, true, false, false]);
    }

    // C17
    #[test]
    fn predicates_compose_as_logic_does() {
        let (old, new) = (at_generation(Some(1)), at_generation(Some(2)));
        let says = |verdict: bool| Predicate::<Deployment>::new(move |_, _| verdict);
        for (one, other) in [(false, false), (false, true), (true, false), (true, true)] {
            assert_eq!(passes(&says(one).and(says(other)), &old, &new), one && other);
            assert_eq!(passes(&says(one).or(says(other)), &old, &new), one || other);
            assert_eq!(passes(&!says(one), &old, &new), !one);
        }
        let replicas = Predicate::on_update(|old: &Deployment, new: &Deployment| {
            old.metadata.generation.max(Some(1)) != new.metadata.generation
        });
        assert!(passes(&replicas.clone().and(Predicate::generation()), &old, &new));
        assert!(!passes(&replicas.and(!Predicate::generation()), &old, &new));
    }
}
