//! Gathers the pages of a list, without what the store holds already.

use tokio::task::yield_now;

use super::sink::{Epoch, List, ReflectorStore};
use crate::{list_watch::Item, object::ObjectKey};

/// After how many items others may run.
const AT_ONCE: usize = 256;

/// What the pages of a list have brought so far.
#[derive(Debug)]
pub(super) struct Pages<K> {
    items: Vec<Item<K>>,
    unchanged: Vec<ObjectKey>,
}

impl<K> Pages<K> {
    pub(super) fn new() -> Self {
        Self { items: Vec::new(), unchanged: Vec::new() }
    }

    /// Takes the items of a page.
    pub(super) async fn add(&mut self, items: Vec<Item<K>>, store: &impl ReflectorStore<K>) {
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

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty() && self.unchanged.is_empty()
    }

    /// Takes all that was gathered as one list.
    pub(super) fn take(&mut self, version: &str, epoch: Epoch) -> List<K> {
        let Self { items, unchanged } = std::mem::replace(self, Self::new());
        List { items, unchanged, resource_version: version.to_owned(), epoch }
    }
}
