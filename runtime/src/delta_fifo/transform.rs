//! Changes objects on their way to the cache: once each, before anybody sees them.

use std::{fmt, sync::Arc};

use kube::core::ObjectMeta;

use crate::{
    list_watch::{FetchedItem, Identity, Unreadable},
    object::{Object, ObjectKey},
    users_code::contained,
};

type TransformFn<K> = dyn Fn(&mut K) -> Result<(), String> + Send + Sync;

/// Changes an object in place before it is cached.
///
/// Typically drops what nobody reads, to save memory. Must leave the name, namespace, UID and resource version
/// alone. A failure or a panic makes the object unreadable; an earlier state that is cached then stays, marked.
/// It is tried again when the object comes again, by event or list; one that may fail is also tried again, on
/// the object as it came, at every resync (up to 10,000 objects at a time), and costs a copy of each object. What a
/// list repeats is transformed on a copy, and compared with what is cached.
pub struct Transform<K> {
    change: Arc<TransformFn<K>>,
    may_fail: bool,
}

/// What a transform may return: nothing, or a result.
pub trait Transformed {
    /// Whether it can be a failure: if so, objects are kept to be tried again.
    const MAY_FAIL: bool;

    /// Turns into a result whose error is text.
    fn into_outcome(self) -> Result<(), String>;
}

impl Transformed for () {
    const MAY_FAIL: bool = false;

    fn into_outcome(self) -> Result<(), String> {
        Ok(())
    }
}

impl<E: fmt::Display> Transformed for Result<(), E> {
    const MAY_FAIL: bool = true;

    fn into_outcome(self) -> Result<(), String> {
        self.map_err(|error| error.to_string())
    }
}

impl<K: Object> Transform<K> {
    /// Takes a function that changes an object in place, and may fail.
    pub fn new<T: Transformed>(change: impl Fn(&mut K) -> T + Send + Sync + 'static) -> Self {
        Self { change: Arc::new(move |object| change(object).into_outcome()), may_fail: T::MAY_FAIL }
    }

    /// Changes what an item holds; an unreadable one passes through.
    pub fn apply(&self, item: FetchedItem<K>) -> FetchedItem<K> {
        self.try_apply(item).unwrap_or_else(FetchedItem::Unreadable)
    }

    /// Changes what an item holds, and leaves it in the form in which it came.
    fn try_apply(&self, item: FetchedItem<K>) -> Result<FetchedItem<K>, Box<Unreadable>> {
        match item {
            FetchedItem::Raw(raw) => {
                let object = self.change(Arc::new(raw.decode()?))?;
                Ok(FetchedItem::Raw(Box::new(raw.of_same_kind(&*object)?)))
            }
            item => Ok(FetchedItem::Object(self.change(decoded(item)?)?)),
        }
    }

    /// Shows what an item would become, and leaves it as it is.
    pub(crate) fn applied_to(&self, item: &FetchedItem<K>) -> Option<FetchedItem<K>> {
        Some(self.apply(item.copy()?))
    }

    /// Changes what an item holds; if the transform fails, the item comes back as it was, to be tried again.
    pub(super) fn attempt(&self, item: FetchedItem<K>) -> (FetchedItem<K>, Option<FetchedItem<K>>) {
        let original = if self.may_fail { item.copy() } else { None };
        let item = self.apply(item);
        let original = original.filter(|_| matches!(item, FetchedItem::Unreadable(_)));
        (item, original)
    }

    fn change(&self, mut object: Arc<K>) -> Result<Arc<K>, Box<Unreadable>> {
        let identity = identity_of(object.meta());
        // Unshared until it is queued, so that this copies nothing.
        let target = Arc::make_mut(&mut object);
        let outcome = contained(|| (self.change)(target)).unwrap_or_else(|| Err("it panicked".to_owned()));
        let meta = object.meta();
        let kept = identity.key == ObjectKey::of_meta(meta)
            && identity.uid == meta.uid
            && identity.resource_version == meta.resource_version;
        let error = match outcome {
            Ok(()) if kept => return Ok(object),
            Ok(()) => {
                "the transform changed the object's name, namespace, UID or resource version".to_owned()
            }
            Err(error) => format!("the transform failed: {error}"),
        };
        Err(Box::new(Unreadable { identity, error }))
    }
}

/// Reads an item as an object, whatever form it travels in.
pub(crate) fn decoded<K: Object>(item: FetchedItem<K>) -> Result<Arc<K>, Box<Unreadable>> {
    let refused = |identity, error| Err(Box::new(Unreadable { identity, error }));
    match item {
        FetchedItem::Object(object) if ObjectKey::of_meta(object.meta()).is_some() => Ok(object),
        FetchedItem::Object(object) => {
            refused(identity_of(object.meta()), "the object has no name".to_owned())
        }
        FetchedItem::Raw(raw) => raw.decode().map(Arc::new),
        FetchedItem::Unreadable(unreadable) => Err(unreadable),
    }
}

fn identity_of(meta: &ObjectMeta) -> Identity {
    Identity {
        key: ObjectKey::of_meta(meta),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        deletion_timestamp: meta.deletion_timestamp.as_ref().map(|time| time.0.to_string()),
        finalizers: meta.finalizers.clone().unwrap_or_default(),
        owners: meta.owner_references.clone().unwrap_or_default(),
    }
}

impl<K> Clone for Transform<K> {
    fn clone(&self) -> Self {
        Self { change: self.change.clone(), may_fail: self.may_fail }
    }
}

impl<K> fmt::Debug for Transform<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Transform")
    }
}
