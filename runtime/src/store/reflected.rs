//! A store that a reflector fills by itself: no queue, no handlers, no tombstones.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicBool, Ordering},
};

use parking_lot::Mutex;

use super::{indexer::Indexer, snapshot::WriteBatch};
use crate::{
    delta_fifo::Extent,
    list_watch::{AnyItem, FetchedItem, Unreadable},
    object::{Object, ObjectKey},
    reflector::{Difference, FetchReport, List, ReflectorStore, StoreChange, WatchError},
};

/// Lets a reflector write an [`Indexer`], where nobody needs to be notified of changes.
///
/// Readers see a list or a batch of events as one moment. An object that can't be read is marked, an earlier
/// state of it stays; a list that holds an item without a name infers no deletions.
///
/// ```
/// # use std::sync::Arc;
/// # use watchkeeper::{list_watch::ListerWatcher, object::Object, reflector::{Reflector, ReflectorConfig}};
/// # use watchkeeper::store::{Indexer, Reflected};
/// # async fn follow<K: Object>(source: impl ListerWatcher<K>, cancel: tokio_util::sync::CancellationToken) {
/// let store = Indexer::<K>::new();
/// let lister = store.lister();
/// let reflected = Arc::new(Reflected::new(store));
/// let reflector = Reflector::new(source, reflected, ReflectorConfig::default());
/// tokio::spawn(reflector.run(cancel));
/// # }
/// ```
pub struct Reflected<K> {
    indexer: Indexer<K>,
    extent: Extent,
    listed: AtomicBool,
    failures: Mutex<Vec<WatchError>>,
}

impl<K: Object> Reflected<K> {
    /// Fills all of a store.
    pub fn new(indexer: Indexer<K>) -> Self {
        Self::within(indexer, Extent::All)
    }

    /// Fills a part of a store, and leaves the rest to others.
    pub fn within(indexer: Indexer<K>, extent: Extent) -> Self {
        indexer.write(|batch| batch.set_version(&extent, None));
        Self { indexer, extent, listed: AtomicBool::new(false), failures: Mutex::default() }
    }

    /// Returns whether a first list is in the store.
    pub fn has_synced(&self) -> bool {
        self.listed.load(Ordering::Acquire)
    }

    /// Returns what keeps it from being read at present, if anything does; what has failed longest comes first.
    pub fn failure(&self) -> Option<WatchError> {
        self.failures.lock().first().cloned()
    }
}

impl<K: Object> ReflectorStore<K> for Reflected<K> {
    fn unchanged(&self, item: &FetchedItem<K>) -> Option<ObjectKey> {
        self.indexer.lister().repeated(&item.clone().erased(), None)
    }

    fn differences(&self, listed: &[FetchedItem<K>]) -> Option<Vec<Difference>> {
        let listed: Vec<_> = listed.iter().map(|item| item.clone().erased()).collect();
        Some(self.indexer.lister().differences(&self.extent, &listed, false))
    }

    fn replace(&self, List { items, unchanged, resource_version, .. }: List<K>) {
        self.indexer.write(|batch| {
            let mut listed: HashSet<ObjectKey> = HashSet::with_capacity(items.len() + unchanged.len());
            let mut nameless = 0;
            for item in items {
                match put(batch, item.erased()) {
                    Some(key) => drop(listed.insert(key)),
                    None => nameless += 1,
                }
            }
            // What has no name may be any of those that seem to be missing.
            if nameless == 0 {
                listed.extend(unchanged);
                let gone = batch.keys(&self.extent).into_iter().filter(|key| !listed.contains(key));
                gone.for_each(|key| take(batch, &key));
            }
            batch.set_version(&self.extent, resource_version.parse().ok());
        });
        self.listed.store(true, Ordering::Release);
    }

    fn apply(&self, changes: Vec<StoreChange<K>>) {
        self.indexer.write(|batch| {
            for change in changes {
                let reached = match change {
                    StoreChange::Upsert(item) => {
                        let version = item.version();
                        put(batch, item.erased());
                        version
                    }
                    StoreChange::Delete(item) => {
                        item.key().iter().for_each(|key| take(batch, key));
                        item.version()
                    }
                    StoreChange::Bookmark(version) => version.parse().ok(),
                };
                batch.reach(&self.extent, reached);
            }
        });
    }

    /// Shows nothing again: nobody looks.
    fn resync(&self) {}

    fn report(&self, report: FetchReport) {
        let mut failures = self.failures.lock();
        match report {
            FetchReport::Healthy(part) => failures.retain(|failure| failure.part != part),
            FetchReport::Failed(error) => match failures.iter_mut().find(|held| held.part == error.part) {
                Some(held) => *held = error,
                None => failures.push(error),
            },
            FetchReport::Skipped(_)
            | FetchReport::WatchLost
            | FetchReport::WatchBack
            | FetchReport::Current { .. } => {}
        }
    }
}

/// Puts an item in, or marks it; returns its key where that can be read.
fn put(batch: &mut WriteBatch, item: AnyItem) -> Option<ObjectKey> {
    match batch.hold(item) {
        Ok(object) => {
            let key = object.key().clone();
            batch.clear_unreadable(&key);
            batch.put(object);
            Some(key)
        }
        Err(unreadable) => mark(batch, *unreadable),
    }
}

fn mark(batch: &mut WriteBatch, unreadable: Unreadable) -> Option<ObjectKey> {
    let key = unreadable.identity.key.clone()?;
    let unchanged = batch.get(&key).map(|unchanged| unchanged.uid().map(str::to_owned));
    // Another object with this name may be cached, which is not an earlier state of this one.
    if unchanged.is_some_and(|unchanged| {
        unchanged.is_some() && unreadable.identity.uid.is_some() && unchanged != unreadable.identity.uid
    }) {
        batch.delete(&key);
    }
    batch.mark_unreadable(&key, unreadable.into());
    Some(key)
}

fn take(batch: &mut WriteBatch, key: &ObjectKey) {
    batch.delete(key);
    batch.clear_unreadable(key);
}

impl_debug!([K] Reflected<K>, this => extent: this.extent, store: this.indexer);

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, sync::Arc};

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::Status;

    use super::*;
    use crate::{
        list_watch::{Identity, ListWatchError},
        object::Version,
        reflector::{Epoch, FetchPart},
        store::{Lister, Lookup},
    };

    fn item(namespace: &str, name: &str, version: u64) -> FetchedItem<ConfigMap> {
        let mut object = ConfigMap::default();
        object.metadata.namespace = Some(namespace.to_owned());
        object.metadata.name = Some(name.to_owned());
        object.metadata.uid = Some("u".to_owned());
        object.metadata.resource_version = Some(version.to_string());
        FetchedItem::Object(Arc::new(object))
    }

    fn unreadable(key: Option<ObjectKey>, uid: &str) -> FetchedItem<ConfigMap> {
        let identity = Identity { key, uid: Some(uid.to_owned()), ..Identity::default() };
        FetchedItem::Unreadable(Unreadable { identity, error: "data: no".to_owned() }.into())
    }

    fn shown(lister: &Lister<ConfigMap>) -> BTreeSet<String> {
        lister.list().iter().map(|object| ObjectKey::of(&**object).to_string()).collect()
    }

    #[test]
    fn a_store_follows_lists_and_changes_within_its_extent() {
        let indexer = Indexer::new();
        let lister = indexer.lister();
        let [shop, farm] = ["shop", "farm"]
            .map(|namespace| Reflected::within(indexer.clone(), Extent::Namespace(namespace.into())));
        shop.replace(List::new(vec![item("shop", "a", 1), item("shop", "b", 2)], "5", Epoch::Same));
        assert!(shop.has_synced() && !farm.has_synced() && lister.resource_version().is_none());
        farm.replace(List::new(vec![item("farm", "a", 3)], "7", Epoch::Same));
        shop.replace(List::new(vec![item("shop", "b", 2), item("shop", "c", 6)], "6", Epoch::Same));
        assert_eq!(shown(&lister), ["farm/a", "shop/b", "shop/c"].map(str::to_owned).into());
        shop.apply(vec![
            StoreChange::Delete(item("shop", "b", 8)),
            StoreChange::Upsert(item("shop", "d", 9)),
            StoreChange::Bookmark("12".to_owned()),
        ]);
        assert_eq!(shown(&lister), ["farm/a", "shop/c", "shop/d"].map(str::to_owned).into());
        assert_eq!(lister.resource_version(), Some(Version(7)), "the lower of the two");
        farm.apply(vec![StoreChange::Bookmark("20".to_owned())]);
        assert_eq!(lister.resource_version(), Some(Version(12)));
    }

    // R21, S9
    #[test]
    fn what_a_list_repeats_stays_as_it_is() {
        let indexer = Indexer::new();
        let (lister, reflected) = (indexer.lister(), Reflected::new(indexer));
        reflected.replace(List::new(vec![item("shop", "a", 1), item("shop", "b", 2)], "2", Epoch::Same));
        let (key, before) =
            (ObjectKey::new("shop", "a"), lister.cached(&ObjectKey::new("shop", "a")).unwrap());
        assert_eq!(reflected.unchanged(&item("shop", "a", 1)), Some(key.clone()));
        assert_eq!(reflected.unchanged(&item("shop", "a", 2)), None);
        let unchanged = vec![key.clone()];
        reflected.replace(List { unchanged, ..List::new(vec![item("shop", "c", 3)], "3", Epoch::Same) });
        assert_eq!(shown(&lister), ["shop/a", "shop/c"].map(str::to_owned).into());
        assert!(lister.cached(&key).unwrap().is_same(&before));
    }

    #[test]
    fn a_list_that_names_an_object_twice_still_shows_what_is_gone() {
        let indexer = Indexer::new();
        let (lister, reflected) = (indexer.lister(), Reflected::new(indexer));
        reflected.replace(List::new(vec![item("shop", "a", 1), item("shop", "b", 2)], "2", Epoch::Same));
        reflected.replace(List::new(vec![item("shop", "a", 1), item("shop", "a", 3)], "3", Epoch::Same));
        assert_eq!(shown(&lister), ["shop/a".to_owned()].into());
    }

    // R20 R33
    #[test]
    fn what_cannot_be_read_is_marked_and_hides_no_earlier_state_of_its_own() {
        let indexer = Indexer::new();
        let (lister, reflected) = (indexer.lister(), Reflected::new(indexer));
        let key = |name| Some(ObjectKey::new("shop", name));
        reflected.replace(List::new(vec![item("shop", "a", 1), item("shop", "b", 2)], "2", Epoch::Same));
        reflected.apply(vec![
            StoreChange::Upsert(unreadable(key("a"), "u")),
            StoreChange::Upsert(unreadable(key("b"), "another")),
        ]);
        assert!(matches!(lister.lookup(&key("a").unwrap()), Lookup::Outdated { .. }));
        assert!(matches!(lister.lookup(&key("b").unwrap()), Lookup::Unreadable(_)));
        // One item without a name: none of the others counts as gone.
        reflected.replace(List::new(vec![unreadable(None, "u")], "3", Epoch::Same));
        assert_eq!(shown(&lister), ["shop/a".to_owned()].into());
        reflected.replace(List::new(vec![item("shop", "a", 4)], "4", Epoch::Same));
        assert!(matches!(lister.lookup(&key("a").unwrap()), Lookup::Found(_)));
        assert!(matches!(lister.lookup(&key("b").unwrap()), Lookup::Absent));
        assert!(reflected.failure().is_none());
    }

    #[test]
    fn the_last_failure_shows_until_all_is_well() {
        let reflected = Reflected::<ConfigMap>::new(Indexer::new());
        let error = ListWatchError::from_status(Status::failure("no", "Forbidden").with_code(403));
        let error = WatchError::new("configmaps", FetchPart::Watch, error, 1, std::time::Duration::ZERO);
        reflected.report(FetchReport::Failed(error));
        reflected.report(FetchReport::Healthy(FetchPart::List));
        assert!(
            reflected.failure().is_some_and(|failure| failure.error.is_forbidden()),
            "a list is not a watch"
        );
        reflected.report(FetchReport::Healthy(FetchPart::Watch));
        assert!(reflected.failure().is_none());
    }
}
