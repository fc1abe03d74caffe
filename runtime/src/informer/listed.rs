//! What a list added in one go, for those who look on.

use std::{cell::OnceCell, fmt, sync::Arc};

use super::change::{AddOrigin, Change, Via};
use crate::{key_list::KeyList, object::ObjectKey};

/// Batches of at least this many additions are delivered together.
const MANY: usize = 64;

/// Many objects that a first list added, in order.
pub struct Listed<'a, K> {
    changes: &'a [Change<K>],
    list: OnceCell<Arc<KeyList<ObjectKey>>>,
}

/// How far an observer has taken in a [`Listed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// To its end.
    All,
    /// So many of its changes; the others are shown one by one.
    First(usize),
}

impl<'a, K> Listed<'a, K> {
    fn new(changes: &'a [Change<K>]) -> Self {
        Self { changes, list: OnceCell::new() }
    }

    /// Counts the additions.
    pub(crate) fn len(&self) -> usize {
        self.changes.len()
    }

    /// Shows the additions in order.
    pub fn changes(&self) -> impl Iterator<Item = &'a Change<K>> + use<'a, K> {
        self.changes.iter()
    }

    /// Returns the keys in order, in memory that all observers share.
    pub(crate) fn list(&self) -> &Arc<KeyList<ObjectKey>> {
        self.list.get_or_init(|| Arc::new(KeyList::new(self.changes.iter().filter_map(Change::key).cloned())))
    }
}

impl<K> fmt::Debug for Listed<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listed").field("changes", &self.len()).finish()
    }
}

/// Changes that observers are shown in one way.
pub(super) enum Portion<'a, K> {
    InOneGo(Listed<'a, K>),
    OneByOne(&'a [Change<K>]),
}

/// Parts changes into portions, in order.
pub(super) fn portions<K>(changes: &[Change<K>]) -> Vec<Portion<'_, K>> {
    changes.chunk_by(|one, other| is_listed(one) == is_listed(other)).map(portion).collect()
}

fn portion<K>(alike: &[Change<K>]) -> Portion<'_, K> {
    match alike.first().is_some_and(is_listed) {
        true if alike.len() >= MANY => Portion::InOneGo(Listed::new(alike)),
        _ => Portion::OneByOne(alike),
    }
}

fn is_listed<K>(change: &Change<K>) -> bool {
    matches!(change, Change::Added { origin: AddOrigin::InitialList, via: Via::Replace, .. })
}
