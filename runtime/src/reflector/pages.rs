//! Gathers the pages of a list, without what the store holds already.

use tokio::task::yield_now;

use super::sink::{Epoch, List, ReflectorStore};
use crate::{
    list_watch::FetchedItem,
    object::{ObjectKey, Version},
};

/// After how many items others may run.
const AT_ONCE: usize = 256;

/// What the pages of a list have brought so far.
#[derive(Debug)]
pub(super) struct Pages<K> {
    items: Vec<FetchedItem<K>>,
    unchanged: Vec<ObjectKey>,
    /// The version from which a watch brings all that the pages may have missed; `None` before the first page.
    version: Option<String>,
}

impl<K> Pages<K> {
    pub(super) fn new() -> Self {
        Self { items: Vec::new(), unchanged: Vec::new(), version: None }
    }

    /// Takes a page: its items, and the version that it shows.
    ///
    /// Not every source reads all pages at one version. The list counts as of the lowest, which is the first unless the
    /// source went back: what changed between two pages comes again by the watch.
    pub(super) async fn add(
        &mut self,
        items: Vec<FetchedItem<K>>,
        version: String,
        store: &impl ReflectorStore<K>,
    ) {
        if self.version.as_deref().is_none_or(|lowest| is_lower(&version, lowest)) {
            self.version = Some(version);
        }
        let mut left = AT_ONCE;
        for item in items {
            match store.unchanged(&item) {
                Some(key) => self.unchanged.push(key),
                None => self.items.push(item),
            }
            left -= 1;
            if left == 0 {
                yield_now().await;
                left = AT_ONCE;
            }
        }
    }

    /// Returns whether no page was read.
    pub(super) fn is_empty(&self) -> bool {
        self.version.is_none()
    }

    /// Returns the version of the list that the pages make.
    pub(super) fn version(&self) -> &str {
        self.version.as_deref().unwrap_or_default()
    }

    /// Takes all that was gathered as one list.
    pub(super) fn take(&mut self, epoch: Epoch) -> List<K> {
        let Self { items, unchanged, version } = std::mem::replace(self, Self::new());
        List { items, unchanged, resource_version: version.unwrap_or_default(), epoch }
    }
}

fn is_lower(version: &str, than: &str) -> bool {
    match (version.parse::<Version>(), than.parse::<Version>()) {
        (Ok(version), Ok(than)) => version < than,
        _ => false,
    }
}
