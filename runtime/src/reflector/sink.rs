//! The trait a reflector writes to; the reflector knows nothing else of what lies below it.

use super::watch_error::WatchError;
use crate::list_watch::Item;

/// Takes what a reflector reads.
///
/// Calls come from one task, in order; none may block. A change is safe once the call has returned: only then
/// does the reflector advance its version.
pub trait ReflectorStore<K>: Send + Sync + 'static {
    /// Takes a whole list: what it does not hold is gone.
    ///
    /// `Epoch::New` says that the server lost its history: versions start anew and may be lower than before.
    fn replace(&self, items: Vec<Item<K>>, resource_version: &str, epoch: Epoch);

    /// Takes changes in the order in which the source sent them.
    fn apply(&self, changes: Vec<StoreChange<K>>);

    /// Asks for every known object to be shown again.
    fn resync(&self);

    /// Hears how fetching goes, failures of lists, openings and streams alike.
    fn report(&self, report: FetchReport);
}

/// One change, as a watch told it.
#[derive(Debug)]
pub enum StoreChange<K> {
    /// Added or modified.
    Upsert(Item<K>),
    /// Deleted; the last state, at the version of the deletion.
    Delete(Item<K>),
    /// Nothing changed up to this version.
    Bookmark(String),
}

/// Says whether a list continues the history that the store has followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Epoch {
    /// Versions go on growing.
    Same,
    /// The server was restored to an older state, or emptied.
    New,
}

/// Tells how fetching goes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum FetchReport {
    /// A list was taken, or an opened watch delivered or stayed open for 10 s: all is well.
    Healthy,
    /// A watch brought something that is no event of this kind; it was skipped and the watch goes on.
    Skipped(WatchError),
    /// A list, an opening or a stream failed; it will be tried again.
    Failed(WatchError),
}
