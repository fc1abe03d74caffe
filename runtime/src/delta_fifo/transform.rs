//! Changes objects on their way to the cache: once each, before anybody sees them.

use std::{fmt, sync::Arc};

use kube::core::ObjectMeta;

use crate::{
    list_watch::{AnyItem, FetchedItem, Identity, Unreadable},
    object::{AnyObject, Object, ObjectKey},
    users_code::contained,
};

type ChangeItem<K> = dyn Fn(FetchedItem<K>) -> FetchedItem<K> + Send + Sync;

/// Changes an object in place before it is cached.
///
/// Typically drops what nobody reads, to save memory. Must leave the name, namespace, UID and resource version
/// alone. A failure or a panic makes the object unreadable; an earlier state that is cached then stays, marked.
/// It is tried again when the object comes again, by event or list; one that may fail is also tried again, on
/// the object as it came, at every resync (up to 10,000 objects at a time), and costs a copy of each object. What a
/// list repeats is transformed on a copy, and compared with what is cached.
pub struct Transform<K: ?Sized> {
    change: Arc<ChangeItem<K>>,
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
        let change = move |item| {
            let changed = changed(item, &|object| change(object).into_outcome());
            changed.unwrap_or_else(FetchedItem::Unreadable)
        };
        Self { change: Arc::new(change), may_fail: T::MAY_FAIL }
    }

    /// Forgets the type of the objects.
    pub(crate) fn erased(self) -> Transform<dyn AnyObject> {
        let may_fail = self.may_fail;
        Transform { change: Arc::new(move |item: AnyItem| self.apply(item.typed()).erased()), may_fail }
    }
}

impl<K: ?Sized> Transform<K> {
    /// Changes what an item holds, and leaves it in the form in which it came; an unreadable one passes through.
    pub fn apply(&self, item: FetchedItem<K>) -> FetchedItem<K> {
        (self.change)(item)
    }

    /// Changes what an item holds; if the transform fails, the item comes back as it was, to be tried again.
    pub(super) fn attempt(&self, item: FetchedItem<K>) -> (FetchedItem<K>, Option<FetchedItem<K>>) {
        let original = if self.may_fail { item.copy() } else { None };
        let item = self.apply(item);
        let original = original.filter(|_| matches!(item, FetchedItem::Unreadable(_)));
        (item, original)
    }
}

type ChangeObject<'a, K> = &'a dyn Fn(&mut K) -> Result<(), String>;

fn changed<K: Object>(
    item: FetchedItem<K>,
    change: ChangeObject<'_, K>,
) -> Result<FetchedItem<K>, Box<Unreadable>> {
    match item {
        FetchedItem::Raw(raw) => {
            let object = changed_object(Arc::new(raw.decode()?), change)?;
            Ok(FetchedItem::Raw(Box::new(raw.of_same_kind(&*object)?)))
        }
        item => Ok(FetchedItem::Object(changed_object(named(item)?, change)?)),
    }
}

fn changed_object<K: Object>(
    mut object: Arc<K>,
    change: ChangeObject<'_, K>,
) -> Result<Arc<K>, Box<Unreadable>> {
    let identity = identity_of(object.meta());
    // Unshared until it is queued, so that this copies nothing.
    let target = Arc::make_mut(&mut object);
    let outcome = contained(|| change(target)).unwrap_or_else(|| Err("it panicked".to_owned()));
    let meta = object.meta();
    let kept = identity.key == ObjectKey::of_meta(meta)
        && identity.uid == meta.uid
        && identity.resource_version == meta.resource_version;
    let error = match outcome {
        Ok(()) if kept => return Ok(object),
        Ok(()) => "the transform changed the object's name, namespace, UID or resource version".to_owned(),
        Err(error) => format!("the transform failed: {error}"),
    };
    Err(Box::new(Unreadable { identity, error }))
}

/// Reads an item that is not bytes as an object with a name.
pub(crate) fn named<K: AnyObject + ?Sized>(item: FetchedItem<K>) -> Result<Arc<K>, Box<Unreadable>> {
    let is_named = item.is_named();
    match item {
        FetchedItem::Object(object) if is_named => Ok(object),
        FetchedItem::Object(object) => {
            let identity = identity_of(object.metadata());
            Err(Box::new(Unreadable { identity, error: "the object has no name".to_owned() }))
        }
        FetchedItem::Raw(raw) => {
            Err(Box::new(Unreadable { identity: raw.identity(), error: "it is not decoded".to_owned() }))
        }
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

impl_clone!([K: ?Sized] Transform<K>, change, may_fail);

impl_debug!([K: ?Sized] Transform<K>);
