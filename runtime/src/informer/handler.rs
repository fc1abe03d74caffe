//! What handlers and observers are: the functions that an informer calls.

use std::{cell::RefCell, sync::Arc};

use super::change::{AddOrigin, CacheChange, Deleted, Progress};

/// Handles the changes of the objects of an informer.
///
/// Calls come one at a time, in order, from a task of the handler's own: being slow delays nobody else, and what
/// piles up meanwhile is folded per object (add and update to an add, updates to one with the oldest old state,
/// anything and a delete to the delete). If a name is taken again and again meanwhile, only the last few objects that the
/// handler was never shown are reported, each by its deletion. A panic is contained and counted, and the next call comes. The cache
/// shows at least the state that a call brings.
///
/// Changes take precedence over a resync: while both are pending, one call in nine belongs to the resync. An object that
/// changes first is delivered once, as the change.
///
/// A compact cache decodes each object just before the call. A state that does not decode is left out; the next one
/// that does comes as an add, since no earlier state was kept.
///
/// The functions are synchronous, and may block: that holds up this handler alone, and takes a thread of the runtime's
/// pool for blocking calls meanwhile. On a runtime of one thread (`current_thread`) everything waits; there, let the
/// handler hand its work over to a thread of your own.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use watchkeeper::{prelude::*, workqueue::WorkQueue};
///
/// /// Puts the key of each pod that changes into a queue.
/// struct Keys(WorkQueue<ObjectKey>);
///
/// impl EventHandler<Pod> for Keys {
///     fn on_add(&self, pod: Arc<Pod>, _: AddOrigin) {
///         self.0.add(ObjectKey::of(&*pod));
///     }
///
///     fn on_delete(&self, gone: Deleted<Pod>) {
///         self.0.add(gone.key());
///     }
/// }
/// ```
///
/// The book has more: [code that blocks, hangs or panics](https://github.com/watchkeeper/watchkeeper/blob/main/book/src/explain/users-code.md).
pub trait EventHandler<K>: Send + 'static {
    /// An object is there that was not, or was there when the handler came.
    fn on_add(&self, _object: Arc<K>, _origin: AddOrigin) {}

    /// An object changed; on a resync old and new are the same.
    fn on_update(&self, _old: Arc<K>, _new: Arc<K>) {}

    /// An object is gone, or gone from the selection.
    fn on_delete(&self, _deleted: Deleted<K>) {}
}

/// Sees each change as the informer applies it: no buffer, no task, nothing is left out.
///
/// Called from the informer's own task, in order, after the cache and its indexes have changed. Must return at
/// once: everything else waits. A panic is contained and counted. This is what controllers use; handlers, which
/// may be slow, are [`EventHandler`](super::EventHandler)s.
pub trait Observer: Send + Sync + 'static {
    /// Sees one change.
    fn changed(&self, change: &CacheChange);

    /// Returns whether code of the user's runs in its calls, which may block although it must not.
    ///
    /// The informer then holds up no other task while it calls, which costs a task hop for each batch.
    fn may_block(&self) -> bool {
        true
    }

    /// Called with the version that the cache has reached, after all changes up to there were shown.
    fn progressed(&self, _progress: Progress) {}
}

type OnAdd<K> = Box<dyn FnMut(Arc<K>, AddOrigin) + Send>;
type OnUpdate<K> = Box<dyn FnMut(Arc<K>, Arc<K>) + Send>;
type OnDelete<K> = Box<dyn FnMut(Deleted<K>) + Send>;

/// A handler made of closures; what is not given does nothing.
pub(super) struct Closures<K> {
    pub(super) add: Option<RefCell<OnAdd<K>>>,
    pub(super) update: Option<RefCell<OnUpdate<K>>>,
    pub(super) delete: Option<RefCell<OnDelete<K>>>,
}

impl<K> Closures<K> {
    pub(super) fn none() -> Self {
        Self { add: None, update: None, delete: None }
    }
}

impl<K: Send + Sync + 'static> EventHandler<K> for Closures<K> {
    fn on_add(&self, object: Arc<K>, origin: AddOrigin) {
        if let Some(add) = &self.add {
            add.borrow_mut()(object, origin);
        }
    }

    fn on_update(&self, old: Arc<K>, new: Arc<K>) {
        if let Some(update) = &self.update {
            update.borrow_mut()(old, new);
        }
    }

    fn on_delete(&self, deleted: Deleted<K>) {
        if let Some(delete) = &self.delete {
            delete.borrow_mut()(deleted);
        }
    }
}
