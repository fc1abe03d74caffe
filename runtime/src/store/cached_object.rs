//! One object as a cache holds it: typed, or as bytes. No other file knows in which form.

use std::{
    any::Any,
    borrow::Cow,
    marker::PhantomData,
    sync::{Arc, OnceLock},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;

use super::{decoded::DecodedObjects, selector::Selector};
use crate::{
    delta_fifo::Transform,
    list_watch::{AnyItem, FetchedItem, Identity, ItemForm, LabelFilter, ObjectText, ObjectType, Unreadable},
    object::{AnyObject, Object, ObjectKey, Version, downcast},
    users_code::contained,
};

/// Holds an object of a cache in whichever form it is stored; a clone costs one reference.
///
/// Key, UID, version, labels and owners are at hand in either form. The object itself is at hand in a typed cache; a
/// compact one decodes it on demand, or hands out again what somebody still holds. Caches forget the type of their objects:
/// it is known to those who read them.
pub struct CachedObject<K: ?Sized = dyn AnyObject>(Arc<CachedSlot<dyn StoredForm>>, PhantomData<fn(&K)>);

struct CachedSlot<F: ?Sized> {
    hash: u64,
    key: ObjectKey,
    form: F,
}

/// The form of a stored object: an `Arc<K>`, or its text.
trait StoredForm: Any + Send + Sync {
    fn look(&self) -> Form<'_>;
    /// Returns the object, which is not decoded for that unless it must be.
    fn object(&self, key: &ObjectKey) -> Result<Arc<dyn AnyObject>, Arc<Unreadable>>;
}

enum Form<'s> {
    Typed(&'s dyn AnyObject),
    Compact(&'s CompactObject),
}

impl<K: Object> StoredForm for Arc<K> {
    fn look(&self) -> Form<'_> {
        Form::Typed(&**self)
    }

    fn object(&self, _key: &ObjectKey) -> Result<Arc<dyn AnyObject>, Arc<Unreadable>> {
        Ok(self.clone())
    }
}

struct CompactObject {
    text: ObjectText,
    decoded: Arc<DecodedObjects>,
    /// Why it does not decode, once that was tried.
    refused: OnceLock<Arc<Unreadable>>,
}

/// What a store must know of the type of its objects.
#[derive(Clone, Copy)]
pub(crate) struct StoredType {
    pub(crate) object: ObjectType,
    /// Holds an object of the type.
    pub(super) hold: fn((ObjectKey, u64), Arc<dyn AnyObject>) -> CachedObject,
}

impl StoredType {
    pub(crate) fn of<K: Object>() -> Self {
        Self {
            object: ObjectType::of::<K>(),
            hold: |key, object| CachedObject::new(key, downcast::<K>(object)),
        }
    }
}

impl CachedObject {
    fn new((key, hash): (ObjectKey, u64), form: impl StoredForm) -> Self {
        Self(Arc::new(CachedSlot { hash, key, form }), PhantomData)
    }

    pub(super) fn compact(key: (ObjectKey, u64), text: ObjectText, decoded: &Arc<DecodedObjects>) -> Self {
        Self::new(key, CompactObject { text, decoded: decoded.clone(), refused: OnceLock::new() })
    }
}

impl<K: Object> CachedObject<K> {
    /// Returns the object, decoding it where it is stored as bytes.
    ///
    /// # Errors
    /// It does not decode: it is unreadable from now on, and a change is awaited.
    pub fn object(&self) -> Result<Arc<K>, Arc<Unreadable>> {
        self.object_as()
    }
}

impl<K: ?Sized> CachedObject<K> {
    /// Names the type of the object, or forgets it. Nothing is checked before the object is read.
    pub(super) fn cast<J: ?Sized>(self) -> CachedObject<J> {
        CachedObject(self.0, PhantomData)
    }

    /// Returns the object as what it is; see [`object`](CachedObject::object).
    pub fn object_as<J: Object>(&self) -> Result<Arc<J>, Arc<Unreadable>> {
        self.at_hand::<J>().map_or_else(|| self.any().map(downcast), |object| Ok(object.clone()))
    }

    /// Counts the tables that hold it.
    #[cfg(test)]
    pub(super) fn held_by(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// Returns the object without its type.
    pub(crate) fn any(&self) -> Result<Arc<dyn AnyObject>, Arc<Unreadable>> {
        self.0.form.object(self.key())
    }

    /// Returns the object if it is stored so that nothing must be decoded.
    pub(super) fn at_hand<J: Object>(&self) -> Option<&Arc<J>> {
        let form: &dyn Any = &self.0.form;
        form.downcast_ref()
    }

    /// Shows the object to a function; one that is decoded for that alone is not kept.
    pub(super) fn with_object<R>(
        &self,
        look: impl FnOnce(&dyn AnyObject) -> R,
    ) -> Result<R, Arc<Unreadable>> {
        match self.0.form.look() {
            Form::Typed(object) => Ok(look(object)),
            Form::Compact(compact) => compact.with_object(self.key(), look),
        }
    }

    /// Returns the hash of the key in the store that it is held by.
    pub(super) fn hash(&self) -> u64 {
        self.0.hash
    }

    fn as_compact(&self) -> Option<&CompactObject> {
        match self.0.form.look() {
            Form::Typed(_) => None,
            Form::Compact(compact) => Some(compact),
        }
    }

    /// Returns the key.
    pub fn key(&self) -> &ObjectKey {
        &self.0.key
    }

    /// Returns in which form it is stored.
    pub fn form(&self) -> ItemForm {
        if self.as_compact().is_some() { ItemForm::Bytes } else { ItemForm::Typed }
    }

    /// Returns why it can't be read, if decoding it was tried and failed.
    pub fn unreadable(&self) -> Option<&Arc<Unreadable>> {
        self.as_compact()?.refused.get()
    }

    /// Returns the text of an object that is stored as such.
    pub(super) fn text(&self) -> Option<&ObjectText> {
        self.as_compact().map(|compact| &compact.text)
    }

    /// Returns whether two are one, not merely equal.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

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

    /// Returns whether an item, once it is transformed, says word for word what is cached here.
    ///
    /// The version alone does not decide: after a conversion, or from a restored backup, one version may show other content.
    /// Typed objects are compared as JSON.
    pub(super) fn repeats(&self, item: &AnyItem, transform: Option<&Transform<dyn AnyObject>>) -> bool {
        if self.uid() != item.uid() || self.resource_version() != item.resource_version() {
            return false;
        }
        match transform {
            None => self.says(item),
            Some(transform) => item.copy().is_some_and(|item| self.says(&transform.apply(item))),
        }
    }

    fn says(&self, item: &AnyItem) -> bool {
        match item {
            FetchedItem::Raw(raw) => self.text().is_some_and(|text| text.is_same(&raw.text)),
            FetchedItem::Object(object) => self.any().is_ok_and(|cached| reads_the_same(&*cached, &**object)),
            FetchedItem::Unreadable(_) => false,
        }
    }

    /// Returns the UID, if it has one.
    pub fn uid(&self) -> Option<&str> {
        match self.0.form.look() {
            Form::Typed(object) => object.metadata().uid.as_deref(),
            Form::Compact(compact) => compact.text.uid(),
        }
    }

    /// Returns the resource version, if it has one.
    pub fn resource_version(&self) -> Option<&str> {
        match self.0.form.look() {
            Form::Typed(object) => object.metadata().resource_version.as_deref(),
            Form::Compact(compact) => compact.text.resource_version(),
        }
    }

    /// Returns the resource version, where it can be compared.
    pub fn version(&self) -> Option<Version> {
        self.resource_version()?.parse().ok()
    }

    /// Returns the value of a label.
    pub fn label(&self, key: &str) -> Option<Cow<'_, str>> {
        match self.0.form.look() {
            Form::Typed(object) => object.metadata().labels.as_ref()?.get(key).map(Cow::from),
            Form::Compact(compact) => compact.text.label(key).map(Cow::Owned),
        }
    }

    /// Returns a digest of its labels.
    pub(super) fn labels(&self) -> LabelFilter {
        match self.0.form.look() {
            Form::Typed(object) => object.metadata().labels.iter().flatten().collect(),
            Form::Compact(compact) => compact.text.label_filter(),
        }
    }

    /// Returns whether its labels meet a selector.
    pub fn matches(&self, selector: &Selector) -> bool {
        selector.matches_by(|key| self.label(key))
    }

    /// Returns the owners.
    pub fn owners(&self) -> Cow<'_, [OwnerReference]> {
        match self.0.form.look() {
            Form::Typed(object) => object.metadata().owner_references.as_deref().unwrap_or_default().into(),
            Form::Compact(compact) => compact.text.owners().into(),
        }
    }

    /// Returns the finalizers.
    pub fn finalizers(&self) -> Cow<'_, [String]> {
        match self.0.form.look() {
            Form::Typed(object) => object.metadata().finalizers.as_deref().unwrap_or_default().into(),
            Form::Compact(compact) => compact.text.finalizers().into(),
        }
    }

    /// Returns the metadata, decoding no more than that.
    ///
    /// # Errors
    /// It does not decode. That says nothing about the rest, and is not remembered.
    pub fn metadata(&self) -> Result<Cow<'_, ObjectMeta>, Arc<Unreadable>> {
        match self.0.form.look() {
            Form::Typed(object) => Ok(Cow::Borrowed(object.metadata())),
            Form::Compact(compact) => compact.text.metadata().map(Cow::Owned).map_err(|error| {
                let identity = Identity { key: Some(self.key().clone()), ..Identity::default() };
                Arc::new(Unreadable { identity, error })
            }),
        }
    }
}

impl StoredForm for CompactObject {
    fn look(&self) -> Form<'_> {
        Form::Compact(self)
    }

    /// One that is decoded for this is kept for the next reader.
    fn object(&self, key: &ObjectKey) -> Result<Arc<dyn AnyObject>, Arc<Unreadable>> {
        match self.held()? {
            Some(object) => Ok(object),
            None => Ok(self.decoded.keep(self.address(), self.decode(key)?)),
        }
    }
}

impl CompactObject {
    /// Names it for as long as it is stored.
    fn address(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    fn with_object<R>(
        &self,
        key: &ObjectKey,
        look: impl FnOnce(&dyn AnyObject) -> R,
    ) -> Result<R, Arc<Unreadable>> {
        let held = self.held()?;
        held.map_or_else(|| self.decode(key), Ok).map(|object| look(&*object))
    }

    /// Finds the object if somebody holds it decoded, or why it does not decode.
    fn held(&self) -> Result<Option<Arc<dyn AnyObject>>, Arc<Unreadable>> {
        match self.refused.get() {
            Some(refused) => Err(refused.clone()),
            None => Ok(self.decoded.find(self.address())),
        }
    }

    /// Decodes the object; a panic of the user's `Deserialize` is this object's fault, not its reader's.
    ///
    /// Why it can't be decoded is reported once, at the first read.
    fn decode(&self, key: &ObjectKey) -> Result<Arc<dyn AnyObject>, Arc<Unreadable>> {
        let decoded = contained(|| self.text.decode_as(self.decoded.object)).unwrap_or_else(|| {
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

impl Drop for CompactObject {
    fn drop(&mut self) {
        self.decoded.forget(self.address());
        if self.refused.get().is_some() {
            self.decoded.accept();
        }
    }
}

/// Compares what the user's `Serialize` writes; if that fails or panics, the two count as different.
fn reads_the_same(one: &dyn AnyObject, other: &dyn AnyObject) -> bool {
    let same = || one.to_json().is_ok_and(|one| other.to_json().is_ok_and(|other| one == other));
    contained(same).unwrap_or(false)
}

impl_clone!([K: ?Sized] CachedObject<K>, 0, 1);

// Shows no content.
impl_debug!([K: ?Sized] CachedObject<K>, this => key: this.key(), form: this.form());

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
            let held = Indexer::<Panicky>::new().write(|batch| batch.hold(FetchedItem::Object(object(name))));
            let held = held.unwrap();
            held.repeats(&FetchedItem::Object(object(name)), None)
        };
        assert!(repeats("calm") && !repeats("shy"));
    }

    #[test]
    fn a_compact_object_takes_little_more_than_its_text() {
        let more = size_of::<CachedSlot<CompactObject>>();
        assert!(more <= 136, "{more} bytes, and an Arc for the name");
        assert!(size_of::<CachedObject<Pod>>() == 2 * size_of::<usize>());
    }
}
