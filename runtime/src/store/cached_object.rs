//! One object as a cache holds it: typed, or as bytes. No other file knows in which form.

use std::{
    borrow::Cow,
    fmt, io,
    sync::{Arc, OnceLock},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;

use super::{decoded::DecodedObjects, selector::Selector};
use crate::{
    delta_fifo::Transform,
    list_watch::{FetchedItem, Identity, ItemForm, LabelFilter, ObjectText, Unreadable},
    object::{Object, ObjectKey, Version},
    users_code::contained,
};

/// Holds an object of a cache in whichever form it is stored; a clone costs one reference.
///
/// Key, UID, version, labels and owners are at hand in either form. The object itself is at hand in a typed cache; a
/// compact one decodes it on demand, or hands out again what somebody still holds.
#[derive(Clone)]
pub struct CachedObject<K>(Arc<CachedSlot<K>>);

struct CachedSlot<K> {
    hash: u64,
    key: ObjectKey,
    form: StoredForm<K>,
}

enum StoredForm<K> {
    Typed(Arc<K>),
    Compact(Box<CompactObject<K>>),
}

struct CompactObject<K> {
    text: ObjectText,
    decoded: Arc<DecodedObjects<K>>,
    /// Why it does not decode, once that was tried.
    refused: OnceLock<Arc<Unreadable>>,
}

impl<K> CachedObject<K> {
    pub(super) fn typed((key, hash): (ObjectKey, u64), object: Arc<K>) -> Self {
        Self::new(key, hash, StoredForm::Typed(object))
    }

    pub(super) fn compact(
        (key, hash): (ObjectKey, u64),
        text: ObjectText,
        decoded: &Arc<DecodedObjects<K>>,
    ) -> Self {
        let compact = CompactObject { text, decoded: decoded.clone(), refused: OnceLock::new() };
        Self::new(key, hash, StoredForm::Compact(Box::new(compact)))
    }

    fn new(key: ObjectKey, hash: u64, form: StoredForm<K>) -> Self {
        Self(Arc::new(CachedSlot { hash, key, form }))
    }

    /// Returns the hash of the key in the store that it is held by.
    pub(super) fn hash(&self) -> u64 {
        self.0.hash
    }

    /// Looks at the object if it is typed, otherwise at what is kept of it.
    fn either<'s, R>(
        &'s self,
        typed: impl FnOnce(&'s Arc<K>) -> R,
        compact: impl FnOnce(&'s CompactObject<K>) -> R,
    ) -> R {
        match &self.0.form {
            StoredForm::Typed(object) => typed(object),
            StoredForm::Compact(object) => compact(object),
        }
    }

    /// Returns the object if it is stored so that nothing must be decoded.
    pub(super) fn at_hand(&self) -> Option<&Arc<K>> {
        self.either(Some, |_| None)
    }

    /// Returns the key.
    pub fn key(&self) -> &ObjectKey {
        &self.0.key
    }

    /// Returns in which form it is stored.
    pub fn form(&self) -> ItemForm {
        self.either(|_| ItemForm::Typed, |_| ItemForm::Bytes)
    }

    /// Returns why it can't be read, if decoding it was tried and failed.
    pub fn unreadable(&self) -> Option<&Arc<Unreadable>> {
        self.either(|_| None, |compact| compact.refused.get())
    }

    /// Returns the text of an object that is stored as such.
    pub(super) fn text(&self) -> Option<&ObjectText> {
        self.either(|_| None, |compact| Some(&compact.text))
    }

    /// Counts the bytes of an object that is stored as such.
    pub(super) fn bytes(&self) -> Option<usize> {
        self.text().map(ObjectText::len)
    }

    /// Returns whether two are one, not merely equal.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<K: Object> CachedObject<K> {
    /// Returns the object that is cached instead, if that is stored as the same bytes.
    ///
    /// A caller that holds that one decoded, or knows that it does not decode, need not decode it again.
    pub(crate) fn or_cached(self, cached: Option<&Self>) -> Self {
        match cached {
            Some(cached) if self.text().zip(cached.text()).is_some_and(|(one, other)| one.is_same(other)) => {
                cached.clone()
            }
            _ => self,
        }
    }

    /// Returns the object, decoding it where it is stored as bytes.
    ///
    /// # Errors
    /// It does not decode: it is unreadable from now on, and a change is awaited.
    pub fn object(&self) -> Result<Arc<K>, Arc<Unreadable>> {
        self.either(|object| Ok(object.clone()), |compact| compact.object(self.key()))
    }

    /// Shows the object to a function; one that is decoded for that alone is not kept.
    pub(super) fn with_object<R>(&self, look: impl FnOnce(&K) -> R) -> Result<R, Arc<Unreadable>> {
        match &self.0.form {
            StoredForm::Typed(object) => Ok(look(object)),
            StoredForm::Compact(compact) => compact.with_object(self.key(), look),
        }
    }

    /// Returns whether an item, once it is transformed, says word for word what is cached here.
    ///
    /// The version alone does not decide: after a conversion, or from a restored backup, one version may show other content.
    /// Typed objects are compared as JSON.
    pub(super) fn repeats(&self, item: &FetchedItem<K>, transform: Option<&Transform<K>>) -> bool {
        if self.uid() != item.uid() || self.resource_version() != item.resource_version() {
            return false;
        }
        match transform {
            None => self.says(item),
            Some(transform) => transform.applied_to(item).is_some_and(|item| self.says(&item)),
        }
    }

    fn says(&self, item: &FetchedItem<K>) -> bool {
        match item {
            FetchedItem::Raw(raw) => self.text().is_some_and(|text| text.is_same(&raw.text)),
            FetchedItem::Object(object) => self.object().is_ok_and(|cached| reads_the_same(&*cached, object)),
            FetchedItem::Unreadable(_) => false,
        }
    }

    /// Returns the UID, if it has one.
    pub fn uid(&self) -> Option<&str> {
        self.either(|object| object.meta().uid.as_deref(), |compact| compact.text.uid())
    }

    /// Returns the resource version, if it has one.
    pub fn resource_version(&self) -> Option<&str> {
        self.either(
            |object| object.meta().resource_version.as_deref(),
            |compact| compact.text.resource_version(),
        )
    }

    /// Returns the resource version, where it can be compared.
    pub fn version(&self) -> Option<Version> {
        self.resource_version()?.parse().ok()
    }

    /// Returns the value of a label.
    pub fn label(&self, key: &str) -> Option<Cow<'_, str>> {
        match &self.0.form {
            StoredForm::Typed(object) => {
                object.meta().labels.as_ref()?.get(key).map(|value| Cow::Borrowed(value.as_str()))
            }
            StoredForm::Compact(compact) => compact.text.label(key).map(Cow::Owned),
        }
    }

    /// Returns a digest of its labels.
    pub(super) fn labels(&self) -> LabelFilter {
        self.either(
            |object| object.meta().labels.iter().flatten().collect(),
            |compact| compact.text.label_filter(),
        )
    }

    /// Returns whether its labels meet a selector.
    pub fn matches(&self, selector: &Selector) -> bool {
        selector.matches_by(|key| self.label(key))
    }

    /// Returns the owners.
    pub fn owners(&self) -> Cow<'_, [OwnerReference]> {
        self.either(
            |object| Cow::Borrowed(object.meta().owner_references.as_deref().unwrap_or_default()),
            |compact| Cow::Owned(compact.text.owners()),
        )
    }

    /// Returns the finalizers.
    pub fn finalizers(&self) -> Cow<'_, [String]> {
        self.either(
            |object| Cow::Borrowed(object.meta().finalizers.as_deref().unwrap_or_default()),
            |compact| Cow::Owned(compact.text.finalizers()),
        )
    }

    /// Returns the metadata, decoding no more than that.
    ///
    /// # Errors
    /// It does not decode. That says nothing about the rest, and is not remembered.
    pub fn metadata(&self) -> Result<Cow<'_, ObjectMeta>, Arc<Unreadable>> {
        match &self.0.form {
            StoredForm::Typed(object) => Ok(Cow::Borrowed(object.meta())),
            StoredForm::Compact(compact) => compact.text.metadata().map(Cow::Owned).map_err(|error| {
                let identity = Identity { key: Some(self.key().clone()), ..Identity::default() };
                Arc::new(Unreadable { identity, error })
            }),
        }
    }
}

impl<K> CompactObject<K> {
    /// Names it for as long as it is stored.
    fn address(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }
}

impl<K: Object> CompactObject<K> {
    /// Returns the object; one that is decoded for this is kept for the next reader.
    fn object(&self, key: &ObjectKey) -> Result<Arc<K>, Arc<Unreadable>> {
        match self.held()? {
            Some(object) => Ok(object),
            None => Ok(self.decoded.keep(self.address(), Arc::new(self.decode(key)?))),
        }
    }

    fn with_object<R>(&self, key: &ObjectKey, look: impl FnOnce(&K) -> R) -> Result<R, Arc<Unreadable>> {
        match self.held()? {
            Some(object) => Ok(look(&object)),
            None => self.decode(key).map(|object| look(&object)),
        }
    }

    /// Finds the object if somebody holds it decoded, or why it does not decode.
    fn held(&self) -> Result<Option<Arc<K>>, Arc<Unreadable>> {
        match self.refused.get() {
            Some(refused) => Err(refused.clone()),
            None => Ok(self.decoded.find(self.address())),
        }
    }

    /// Decodes the object; a panic of the user's `Deserialize` is this object's fault, not its reader's.
    ///
    /// Why it can't be decoded is reported once, at the first read.
    fn decode(&self, key: &ObjectKey) -> Result<K, Arc<Unreadable>> {
        let decoded = contained(|| self.text.decode::<K>()).unwrap_or_else(|| {
            let identity = Identity { key: Some(key.clone()), ..self.text.identity() };
            Err(Box::new(Unreadable { identity, error: "decoding it panicked".to_owned() }))
        });
        decoded.map_err(|unreadable| {
            let unreadable: Arc<Unreadable> = Arc::from(unreadable);
            if self.refused.set(unreadable.clone()).is_ok() {
                self.decoded.refuse(&unreadable);
            }
            unreadable
        })
    }
}

impl<K> Drop for CompactObject<K> {
    fn drop(&mut self) {
        self.decoded.forget(self.address());
        if self.refused.get().is_some() {
            self.decoded.accept();
        }
    }
}

/// Compares what the user's `Serialize` writes; if that fails or panics, the two count as different.
fn reads_the_same<K: Object>(one: &K, other: &K) -> bool {
    let same = || {
        let Ok(text) = serde_json::to_vec(one) else { return false };
        let mut rest = Unwritten(&text);
        serde_json::to_writer(&mut rest, other).is_ok() && rest.0.is_empty()
    };
    contained(same).unwrap_or(false)
}

/// Text that is still to be written; any other is refused.
struct Unwritten<'a>(&'a [u8]);

impl io::Write for Unwritten<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.strip_prefix(bytes).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
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
        list_watch::{RawObject, tests::panicky::Panicky},
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

    // R47
    #[test]
    fn an_object_whose_type_panics_as_it_is_written_repeats_nothing() {
        let object = |name: &str| Arc::new(Panicky::named(name));
        let repeats = |name: &str| {
            let held = Indexer::new().write(|batch| batch.hold(FetchedItem::Object(object(name)))).unwrap();
            held.repeats(&FetchedItem::Object(object(name)), None)
        };
        assert!(repeats("calm") && !repeats("shy"));
    }

    #[test]
    fn a_compact_object_takes_little_more_than_its_text() {
        let more = size_of::<CachedSlot<Pod>>() + size_of::<CompactObject<Pod>>();
        assert!(more <= 160, "{more} bytes, and an Arc for the name");
        assert!(size_of::<CachedObject<Pod>>() == size_of::<usize>());
    }
}
