//! What makes two informers the same one: everything that an answer depends on.

use std::{any::TypeId, collections::BTreeSet, sync::Arc, time::Duration};

use crate::{
    delta_fifo::Extent,
    list_watch::{ItemForm, ManagedFields, Representation},
    object::Kind,
    reflector::FirstList,
    store::{FieldSelector, Selector},
};

/// A question to the server, in its normal form; one informer answers those that are equal.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Query {
    /// The marker type: it decides object, lister and indexes. What it says beyond its type decides the kind alone.
    pub(super) marker: TypeId,
    pub(super) kind: Kind,
    pub(super) representation: Representation,
    /// Empty: all namespaces; while it is asked, an empty name among them means the same.
    pub(super) namespaces: BTreeSet<Arc<str>>,
    pub(super) labels: Selector,
    pub(super) fields: FieldSelector,
    pub(super) first_list: FirstList,
    pub(super) page_size: Option<u32>,
    /// How often it is listed, where it is not watched.
    pub(super) poll: Option<Duration>,
    pub(super) item_form: ItemForm,
    pub(super) managed_fields: ManagedFields,
    /// Most bytes of an object, where that is said.
    pub(super) largest_object: Option<usize>,
    /// Whether it keeps this replica's part alone.
    pub(super) is_part: bool,
    pub(super) transform: Function,
    pub(super) hook: Function,
}

/// A function as it can be compared: by its name, or not at all.
#[derive(Clone, Debug, Default)]
pub(super) enum Function {
    #[default]
    None,
    Named(Arc<str>),
    /// Never the same as another, nor as itself.
    Unnamed,
}

impl Query {
    /// Brings what was asked into the one form in which equal questions are equal.
    pub(super) fn normalise(&mut self) {
        if self.namespaces.contains("") {
            self.namespaces.clear();
        }
    }

    /// Lists the parts of the cache that have a reflector each.
    pub(super) fn extents(&self) -> Vec<Extent> {
        match self.namespaces.is_empty() {
            true => vec![Extent::All],
            false => self.namespaces.iter().cloned().map(Extent::Namespace).collect(),
        }
    }

    /// Says which objects are asked for, in one line; empty: all.
    pub(super) fn selector(&self) -> String {
        let labels = (!self.labels.is_everything()).then(|| format!("labels {}", self.labels));
        let fields = (!self.fields.is_everything()).then(|| format!("fields {}", self.fields));
        labels.into_iter().chain(fields).collect::<Vec<_>>().join(", ")
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::None, Self::None) => true,
            (Self::Named(one), Self::Named(other)) => one == other,
            _ => false,
        }
    }
}

/// Why a name can't stand for a function.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameRefused {
    /// It stands for another one.
    #[error("{0:?} names another function in this factory already: one name, one function")]
    Taken(String),
    /// The function captures values, or is a pointer: two that differ would look alike.
    #[error(
        "the function named {0:?} captures values, which a name can't tell apart: pass a `fn` by its name or a \
         closure that captures nothing, or leave the name out"
    )]
    Captures(String),
}
