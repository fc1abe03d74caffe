//! One object as a cache holds it: typed, or as bytes.

use std::{
    borrow::Cow,
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;

use super::{decoded::DecodedObjects, selector::Selector};
use crate::{
    list_watch::{Identity, ItemForm, LabelFilter, ObjectText, Unreadable},
    object::{Object, ObjectKey, Version},
    users_code::contained,
};

/// Holds an object of a cache in whichever form it is stored; a clone costs one reference.
///
/// Key, UID, version, labels and owners are at hand in either form. The object itself is at hand in a typed cache; a
/// compact one decodes it on demand, or hands out again what somebody still holds.
pub struct CachedObject<K>(Arc<Slot<K>>);

struct Slot<K> {
    hash: u64,
    key: ObjectKey,
    form: Form<K>,
}

enum Form<K> {
    Typed(Arc<K>),
    Compact(Box<Compact<K>>),
}

struct Compact<K> {
    text: ObjectText,
    serial: u64,
    decoded: Arc<DecodedObjects<K>>,
    /// Why it does not decode, once that was tried.
    refused: OnceLock<Arc<Unreadable>>,
    /// How many values of indexes it stands under, and one more; 0 while that is not known.
    values: AtomicU32,
}

impl<K> CachedObject<K> {
    pub(super) fn typed((key, hash): (ObjectKey, u64), object: Arc<K>) -> Self {
        Self::new(key, hash, Form::Typed(object))
    }

    pub(super) fn compact(
        (key, hash): (ObjectKey, u64),
        text: ObjectText,
        decoded: &Arc<DecodedObjects<K>>,
    ) -> Self {
        let compact = Compact {
            text,
            serial: decoded.serial(),
            decoded: decoded.clone(),
            refused: OnceLock::new(),
            values: AtomicU32::new(0),
        };
        Self::new(key, hash, Form::Compact(Box::new(compact)))
    }

    fn new(key: ObjectKey, hash: u64, form: Form<K>) -> Self {
        Self(Arc::new(Slot { hash, key, form }))
    }

    /// Returns the hash of the key in the store that it is held by.
    pub(super) fn hash(&self) -> u64 {
        self.0.hash
    }

    /// Returns the object of a typed cache, as it is stored.
    pub(super) fn typed_object(&self) -> Option<&Arc<K>> {
        match &self.0.form {
            Form::Typed(object) => Some(object),
            Form::Compact(_) => None,
        }
    }

    /// Returns the key.
    pub fn key(&self) -> &ObjectKey {
        &self.0.key
    }

    /// Returns in which form it is stored.
    pub fn form(&self) -> ItemForm {
        match self.0.form {
            Form::Typed(_) => ItemForm::Typed,
            Form::Compact(_) => ItemForm::Bytes,
        }
    }

    /// Returns why it can't be read, if decoding it was tried and failed.
    pub fn unreadable(&self) -> Option<&Arc<Unreadable>> {
        match &self.0.form {
            Form::Typed(_) => None,
            Form::Compact(compact) => compact.refused.get(),
        }
    }

    /// Returns whether another says the same, byte for byte; typed objects are not compared.
    pub(crate) fn same_bytes(&self, other: &Self) -> bool {
        self.text().zip(other.text()).is_some_and(|(text, other)| text.is_same(other))
    }

    /// Returns whether it is stored as the same bytes; a typed object is stored as none.
    pub(super) fn is_text(&self, other: &ObjectText) -> bool {
        self.text().is_some_and(|text| text.is_same(other))
    }

    /// Returns whether it is the compact object of a serial number.
    pub(super) fn is(&self, serial: u64) -> bool {
        matches!(&self.0.form, Form::Compact(compact) if compact.serial == serial)
    }

    /// Returns the JSON of a compact object.
    pub(super) fn text(&self) -> Option<&ObjectText> {
        match &self.0.form {
            Form::Typed(_) => None,
            Form::Compact(compact) => Some(&compact.text),
        }
    }

    /// Counts the values of all indexes together that a compact object stands under, where that was noted.
    pub(super) fn index_values(&self) -> Option<usize> {
        match &self.0.form {
            Form::Typed(_) => None,
            Form::Compact(compact) => (compact.values.load(Ordering::Relaxed) as usize).checked_sub(1),
        }
    }

    /// Notes it; `None` while an index is about to be added. Only the store's writer asks and notes.
    pub(super) fn note_index_values(&self, count: Option<usize>) {
        if let Form::Compact(compact) = &self.0.form {
            let known = count.and_then(|count| u32::try_from(count + 1).ok());
            compact.values.store(known.unwrap_or_default(), Ordering::Relaxed);
        }
    }

    /// Returns whether two are one, not merely equal.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<K: Object> CachedObject<K> {
    /// Returns the object, decoding it where it is stored as bytes.
    ///
    /// # Errors
    /// It does not decode: it is unreadable from now on, and a change is awaited.
    pub fn object(&self) -> Result<Arc<K>, Arc<Unreadable>> {
        match &self.0.form {
            Form::Typed(object) => Ok(object.clone()),
            Form::Compact(compact) => compact.object(self.key()),
        }
    }

    /// Shows the object to a function; one that is decoded for that alone is not kept.
    pub(super) fn with_object<R>(&self, look: impl FnOnce(&K) -> R) -> Result<R, Arc<Unreadable>> {
        match &self.0.form {
            Form::Typed(object) => Ok(look(object)),
            Form::Compact(compact) => compact.with_object(self.key(), look),
        }
    }

    /// Returns the UID, where there is one.
    pub fn uid(&self) -> Option<&str> {
        match &self.0.form {
            Form::Typed(object) => object.meta().uid.as_deref(),
            Form::Compact(compact) => compact.text.uid(),
        }
    }

    /// Returns the resource version, where there is one.
    pub fn resource_version(&self) -> Option<&str> {
        match &self.0.form {
            Form::Typed(object) => object.meta().resource_version.as_deref(),
            Form::Compact(compact) => compact.text.resource_version(),
        }
    }

    /// Returns the resource version, where it can be compared.
    pub fn version(&self) -> Option<Version> {
        self.resource_version()?.parse().ok()
    }

    /// Returns the value of a label.
    pub fn label(&self, key: &str) -> Option<Cow<'_, str>> {
        match &self.0.form {
            Form::Typed(object) => {
                object.meta().labels.as_ref()?.get(key).map(|value| Cow::Borrowed(value.as_str()))
            }
            Form::Compact(compact) => compact.text.label(key).map(Cow::Owned),
        }
    }

    /// Returns a digest of its labels.
    pub(super) fn labels(&self) -> LabelFilter {
        match &self.0.form {
            Form::Typed(object) => object.meta().labels.iter().flatten().collect(),
            Form::Compact(compact) => compact.text.label_filter(),
        }
    }

    /// Returns whether its labels meet a selector.
    pub fn matches(&self, selector: &Selector) -> bool {
        selector.matches_by(|key| self.label(key))
    }

    /// Returns the owners.
    pub fn owners(&self) -> Cow<'_, [OwnerReference]> {
        match &self.0.form {
            Form::Typed(object) => {
                Cow::Borrowed(object.meta().owner_references.as_deref().unwrap_or_default())
            }
            Form::Compact(compact) => Cow::Owned(compact.text.owners()),
        }
    }

    /// Returns the finalizers.
    pub fn finalizers(&self) -> Cow<'_, [String]> {
        match &self.0.form {
            Form::Typed(object) => Cow::Borrowed(object.meta().finalizers.as_deref().unwrap_or_default()),
            Form::Compact(compact) => Cow::Owned(compact.text.finalizers()),
        }
    }

    /// Returns the metadata, decoding no more than that.
    ///
    /// # Errors
    /// It does not decode. That says nothing about the rest, and is not remembered.
    pub fn metadata(&self) -> Result<Cow<'_, ObjectMeta>, Arc<Unreadable>> {
        match &self.0.form {
            Form::Typed(object) => Ok(Cow::Borrowed(object.meta())),
            Form::Compact(compact) => compact.text.metadata().map(Cow::Owned).map_err(|error| {
                let identity = Identity { key: Some(self.key().clone()), ..Identity::default() };
                Arc::new(Unreadable { identity, error })
            }),
        }
    }
}

impl<K: Object> Compact<K> {
    fn object(&self, key: &ObjectKey) -> Result<Arc<K>, Arc<Unreadable>> {
        if let Some(refused) = self.refused.get() {
            return Err(refused.clone());
        }
        if let Some(object) = self.decoded.find(self.serial) {
            return Ok(object);
        }
        match self.decode(key) {
            Ok(object) => Ok(self.decoded.keep(self.serial, Arc::new(object))),
            Err(unreadable) => Err(self.refuse(unreadable)),
        }
    }

    fn with_object<R>(&self, key: &ObjectKey, look: impl FnOnce(&K) -> R) -> Result<R, Arc<Unreadable>> {
        if let Some(refused) = self.refused.get() {
            return Err(refused.clone());
        }
        match self.decoded.find(self.serial) {
            Some(object) => Ok(look(&object)),
            None => self.decode(key).map(|object| look(&object)).map_err(|refused| self.refuse(refused)),
        }
    }

    /// Decodes the object; a panic of the user's `Deserialize` is this object's fault, not its reader's.
    fn decode(&self, key: &ObjectKey) -> Result<K, Box<Unreadable>> {
        contained(|| self.text.decode::<K>()).unwrap_or_else(|| {
            let text = &self.text;
            let identity = Identity {
                key: Some(key.clone()),
                uid: text.uid().map(str::to_owned),
                resource_version: text.resource_version().map(str::to_owned),
                deletion_timestamp: text.deletion_timestamp(),
                finalizers: text.finalizers(),
                owners: text.owners(),
            };
            Err(Box::new(Unreadable { identity, error: "decoding it panicked".to_owned() }))
        })
    }

    /// The reason why it can't be decoded; reported once, at the first read.
    fn refuse(&self, unreadable: Box<Unreadable>) -> Arc<Unreadable> {
        let unreadable: Arc<Unreadable> = Arc::from(unreadable);
        if self.refused.set(unreadable.clone()).is_ok() {
            self.decoded.refuse(self.serial, &unreadable);
        }
        unreadable
    }
}

impl<K> Drop for Compact<K> {
    fn drop(&mut self) {
        self.decoded.forget(self.serial);
        if self.refused.get().is_some() {
            self.decoded.accept(self.serial);
        }
    }
}

impl<K> Clone for CachedObject<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// Shows no content.
impl<K> fmt::Debug for CachedObject<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedObject").field("key", self.key()).field("form", &self.form()).finish()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::*;
    use crate::{
        list_watch::{RawObject, panicky::Panicky},
        store::{Indexer, Lookup},
    };

    // R47
    #[test]
    fn an_object_whose_type_panics_as_it_is_read_is_unreadable_and_the_others_are_served() {
        let indexer = Indexer::<Panicky>::new();
        for name in ["calm", "panicky"] {
            let json = format!(r#"{{"metadata":{{"name":"{name}","uid":"u-{name}"}}}}"#);
            drop(indexer.upsert_raw(RawObject::new(json).unwrap()));
        }
        let lister = indexer.lister();
        let panicky = ObjectKey::cluster("panicky");
        for _ in 0..2 {
            assert!(lister.get(&panicky).is_none());
            assert_eq!(lister.list().len(), 1);
            let Lookup::Unreadable(unreadable) = lister.lookup(&panicky) else { panic!("it was read") };
            assert_eq!(unreadable.identity.uid.as_deref(), Some("u-panicky"));
        }
        assert_eq!(lister.unreadable().len(), 1);
    }

    #[test]
    fn a_compact_object_takes_little_beside_its_text() {
        let beside = size_of::<Slot<Pod>>() + size_of::<Compact<Pod>>();
        assert!(beside <= 160, "{beside} bytes, and an Arc for the name");
        assert!(size_of::<CachedObject<Pod>>() == size_of::<usize>());
    }
}
