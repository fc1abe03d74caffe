//! Sources whose type of object is forgotten: what a reflector reads from, compiled once.

use std::marker::PhantomData;

use futures::{FutureExt, StreamExt, future::BoxFuture};

use super::{
    ListOptions, ListPage, ListWatchError, ListerWatcher, WatchEvent, WatchStream, item::FetchedItem,
};
use crate::object::{AnyObject, Object};

type Answer<'a, T> = BoxFuture<'a, Result<T, ListWatchError>>;

/// A [`ListerWatcher`] as a trait object.
pub(crate) trait Source: Send + Sync {
    fn list<'a>(&'a self, options: &'a ListOptions) -> Answer<'a, ListPage<dyn AnyObject>>;
    fn watch<'a>(&'a self, options: &'a ListOptions) -> Answer<'a, WatchStream<dyn AnyObject>>;
    fn latest_version(&self) -> Answer<'_, Option<String>>;
}

impl<L: ListerWatcher<dyn AnyObject>> Source for L {
    fn list<'a>(&'a self, options: &'a ListOptions) -> Answer<'a, ListPage<dyn AnyObject>> {
        ListerWatcher::list(self, options).boxed()
    }

    fn watch<'a>(&'a self, options: &'a ListOptions) -> Answer<'a, WatchStream<dyn AnyObject>> {
        ListerWatcher::watch(self, options).boxed()
    }

    fn latest_version(&self) -> Answer<'_, Option<String>> {
        ListerWatcher::latest_version(self).boxed()
    }
}

/// A source of the user's, of objects whose type is then forgotten.
pub(crate) struct TypedSource<K, L>(L, PhantomData<fn() -> K>);

impl<K: Object, L: ListerWatcher<K>> TypedSource<K, L> {
    pub(crate) fn new(source: L) -> Self {
        Self(source, PhantomData)
    }
}

impl<K: Object, L: ListerWatcher<K>> ListerWatcher<dyn AnyObject> for TypedSource<K, L> {
    async fn list(&self, options: &ListOptions) -> Result<ListPage<dyn AnyObject>, ListWatchError> {
        Ok(self.0.list(options).await?.map(FetchedItem::erased))
    }

    async fn watch(&self, options: &ListOptions) -> Result<WatchStream<dyn AnyObject>, ListWatchError> {
        let events = self.0.watch(options).await?;
        Ok(events.map(|event| Ok(event?.map(FetchedItem::erased))).boxed())
    }

    async fn latest_version(&self) -> Result<Option<String>, ListWatchError> {
        self.0.latest_version().await
    }
}

impl<K: ?Sized> ListPage<K> {
    pub(super) fn map<J: ?Sized>(self, item: impl Fn(FetchedItem<K>) -> FetchedItem<J>) -> ListPage<J> {
        let Self { items, resource_version, continue_token } = self;
        ListPage { items: items.into_iter().map(item).collect(), resource_version, continue_token }
    }
}

impl<K: ?Sized> WatchEvent<K> {
    pub(super) fn map<J: ?Sized>(self, map: impl Fn(FetchedItem<K>) -> FetchedItem<J>) -> WatchEvent<J> {
        match self {
            Self::Added(item) => WatchEvent::Added(map(item)),
            Self::Modified(item) => WatchEvent::Modified(map(item)),
            Self::Deleted(item) => WatchEvent::Deleted(map(item)),
            Self::Bookmark { resource_version, initial_events } => {
                WatchEvent::Bookmark { resource_version, initial_events }
            }
            Self::Unexpected(what) => WatchEvent::Unexpected(what),
            Self::Error(status) => WatchEvent::Error(status),
        }
    }
}
