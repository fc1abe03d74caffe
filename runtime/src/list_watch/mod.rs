//! Where objects come from: lists and watches, and the items that travel.
//!
//! [`ListerWatcher`] is the interface: [`ClientListWatch`] asks a Kubernetes API server, and users may implement it for
//! any other source. What travels is a [`FetchedItem`], never a bare object, so that nobody takes what could not be read for
//! absent.
//!
//! # The path of a byte
//!
//! 1. `client/response` waits for chunks of the body, each under a deadline.
//! 2. A list: `list_body` cuts the chunks into items. A watch: `frames` cuts them into lines, one an event.
//! 3. Lists and initial events are decoded by `decode_pool`, in order, on all threads of the runtime; changes are decoded
//!    where they are read.
//! 4. `decode` makes a [`FetchedItem`]. A typed object as API servers send it is read once: `read` decodes it, as an
//!    `ObjectType` says, and `members` sees on the way who it is, and leaves out `managedFields`.
//! 5. Any other object is read by its parts (`read`): `serde_json` checks all of its text, and finds who it is.
//! 6. Compact caches keep a [`RawObject`]: the text, compressed (`dictionary`), with UID and version (`text`).
//! 7. What does not decode becomes [`FetchedItem::Unreadable`]; `scrub` removes content from the error.
//! 8. An `ERROR` event or a refused request becomes a [`Status`](kube::core::Status), read by `status`.
//!
//! Nothing is taken from bytes that `serde_json` rejects.

mod options;
mod error;
mod json;
mod members;
mod scrub;
mod retry_after;
mod status;
mod read;
mod dictionary;
mod text;
mod raw;
mod item;
mod keeps;
mod source;
mod decode;
mod list_body;
mod decode_pool;
mod frames;
mod client;
#[cfg(test)]
pub(crate) mod tests;

pub use client::ClientListWatch;
#[doc(hidden)]
pub use decode::Representation;
pub use error::{Identity, ListWatchError, Unreadable};
pub use item::FetchedItem;
#[doc(hidden)]
pub use members::ManagedFields;
#[doc(hidden)]
pub use options::Deadlines;
pub use options::{ListOptions, VersionMatch};
#[doc(hidden)]
pub use raw::{ItemForm, RawObject};
#[doc(hidden)]
pub use text::ObjectText;

pub(crate) use client::{ClientSource, OptionsHook};
pub(crate) use item::AnyItem;
pub(crate) use keeps::Keeps;
pub(crate) use read::ObjectType;
pub(crate) use retry_after::retry_after;
pub(crate) use source::{AnySource, TypedSource};
pub(crate) use status::status_of_answer;
pub(crate) use text::LabelFilter;

use std::{future::Future, sync::Arc};

use futures::stream::BoxStream;

/// Lists and watches the objects of one kind.
///
/// Implementations speak the Kubernetes list-and-watch protocol, or something that keeps its promises: a list
/// has a resource version, and a watch from that version delivers every later change in order.
pub trait ListerWatcher<K>: Send + Sync + 'static {
    /// Reads one page of the list.
    ///
    /// # Errors
    /// The page could not be read as a whole. An object that can't be decoded is not an error: it is an
    /// [`FetchedItem::Unreadable`] on the page.
    fn list(&self, options: &ListOptions)
    -> impl Future<Output = Result<ListPage<K>, ListWatchError>> + Send;

    /// Opens a watch; its stream ends when the server ends it.
    ///
    /// Dropping the stream closes the watch. An error inside the stream is its last element.
    ///
    /// # Errors
    /// Whatever kept the watch from being opened.
    fn watch(
        &self,
        options: &ListOptions,
    ) -> impl Future<Output = Result<WatchStream<K>, ListWatchError>> + Send;

    /// Asks for the collection's present version by a consistent read that ignores selectors.
    ///
    /// It distinguishes a server that lost its history from one that lags. The default is `None`: can't be asked.
    ///
    /// # Errors
    /// Whatever kept the question from being answered.
    fn latest_version(&self) -> impl Future<Output = Result<Option<String>, ListWatchError>> + Send {
        async { Ok(None) }
    }
}

/// A source that is shared.
impl<K: 'static, L: ListerWatcher<K>> ListerWatcher<K> for Arc<L> {
    async fn list(&self, options: &ListOptions) -> Result<ListPage<K>, ListWatchError> {
        L::list(self, options).await
    }

    async fn watch(&self, options: &ListOptions) -> Result<WatchStream<K>, ListWatchError> {
        L::watch(self, options).await
    }

    async fn latest_version(&self) -> Result<Option<String>, ListWatchError> {
        L::latest_version(self).await
    }
}

/// The events of one watch, in the order in which the server sent them.
#[doc(hidden)]
pub type WatchStream<K> = BoxStream<'static, Result<WatchEvent<K>, ListWatchError>>;

/// One page of a list.
#[derive(Debug)]
pub struct ListPage<K: ?Sized> {
    /// What the page holds, in the server's order.
    pub items: Vec<FetchedItem<K>>,
    /// The version that the whole list shows.
    pub resource_version: String,
    /// Where the next page starts; `None` on the last page.
    pub continue_token: Option<String>,
}

impl<K: ?Sized> ListPage<K> {
    pub(super) fn map<J: ?Sized>(self, item: impl Fn(FetchedItem<K>) -> FetchedItem<J>) -> ListPage<J> {
        let Self { items, resource_version, continue_token } = self;
        ListPage { items: items.into_iter().map(item).collect(), resource_version, continue_token }
    }
}

/// One event of a watch.
#[derive(Debug)]
pub enum WatchEvent<K: ?Sized> {
    /// An object appeared (or is part of the initial events).
    Added(FetchedItem<K>),
    /// An object changed.
    Modified(FetchedItem<K>),
    /// An object went; the item is its last state, at the version of the deletion.
    Deleted(FetchedItem<K>),
    /// Nothing changed up to this version.
    Bookmark {
        /// The version reached.
        resource_version: String,
        /// Whether it closes the initial events of a streaming list.
        initial_events: InitialEventsMark,
    },
    /// An object that the cache does not keep changed; nothing else did up to this version.
    Dropped(String),
    /// Something that is not an event of this kind: an unknown type, or an object of another kind.
    ///
    /// The text says what; it is reported and skipped.
    Unexpected(String),
    /// The server ends the stream with a Status.
    Error(Box<kube::core::Status>),
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
            Self::Dropped(version) => WatchEvent::Dropped(version),
            Self::Unexpected(what) => WatchEvent::Unexpected(what),
            Self::Error(status) => WatchEvent::Error(status),
        }
    }

    /// Returns the object that the event is of.
    pub fn item(&self) -> Option<&FetchedItem<K>> {
        match self {
            Self::Added(item) | Self::Modified(item) | Self::Deleted(item) => Some(item),
            Self::Bookmark { .. } | Self::Dropped(_) | Self::Unexpected(_) | Self::Error(_) => None,
        }
    }
}

/// Whether a bookmark closes the initial events of a streaming list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub enum InitialEventsMark {
    /// An ordinary bookmark.
    Absent,
    /// Annotated `k8s.io/initial-events-end: "true"`.
    End,
}
