//! Sources whose type of object is forgotten: what a reflector reads from, compiled once.

use std::marker::PhantomData;

use futures::{FutureExt, StreamExt, TryFutureExt, TryStreamExt, future::BoxFuture};

use super::{
    ListOptions, ListPage, ListWatchError, ListerWatcher, WatchEvent, WatchStream, item::FetchedItem,
};
use crate::object::{AnyObject, Object};

/// What a source answers.
pub(crate) type Answer<'a, T> = BoxFuture<'a, Result<T, ListWatchError>>;

/// A [`ListerWatcher`] as a trait object.
pub(crate) trait AnySource: Send + Sync {
    fn list<'a>(&'a self, options: &'a ListOptions) -> Answer<'a, ListPage<dyn AnyObject>>;
    fn watch<'a>(&'a self, options: &'a ListOptions) -> Answer<'a, WatchStream<dyn AnyObject>>;
    fn latest_version(&self) -> Answer<'_, Option<String>>;
}

/// A source of the user's, of objects whose type is then forgotten.
pub(crate) struct TypedSource<K, L>(L, PhantomData<fn() -> K>);

impl<K: Object, L: ListerWatcher<K>> TypedSource<K, L> {
    pub(crate) fn new(source: L) -> Self {
        Self(source, PhantomData)
    }
}

impl<K: Object, L: ListerWatcher<K>> AnySource for TypedSource<K, L> {
    fn list<'a>(&'a self, options: &'a ListOptions) -> Answer<'a, ListPage<dyn AnyObject>> {
        self.0.list(options).map_ok(|page| page.map(FetchedItem::erased)).boxed()
    }

    fn watch<'a>(&'a self, options: &'a ListOptions) -> Answer<'a, WatchStream<dyn AnyObject>> {
        let erased = |event: WatchEvent<K>| event.map(FetchedItem::erased);
        self.0.watch(options).map_ok(move |events| events.map_ok(erased).boxed()).boxed()
    }

    fn latest_version(&self) -> Answer<'_, Option<String>> {
        self.0.latest_version().boxed()
    }
}
