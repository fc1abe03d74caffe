//! The definition of a controller, on its way to a plan.

use super::{
    env::Read,
    predicate::Predicate,
    settings::Settings,
    sources::{ForeignSource, KindSource},
    stream_source::StreamSource,
    watch::{Cluster, Narrowing, Selection, Watch},
};
use crate::{
    informer::{Marker, Watched},
    writes::Rights,
};

/// The parts of a controller that its plan is made of.
pub(crate) struct Definition<K: Marker, R> {
    pub(crate) reconciler: R,
    pub(crate) settings: Settings,
    pub(crate) selection: Selection,
    pub(crate) predicate: Option<Predicate<K::Seen>>,
    pub(crate) kind_sources: Vec<KindSource>,
    pub(crate) foreign_sources: Vec<ForeignSource>,
    /// The other clusters that feed it, or that it reads.
    pub(crate) clusters: Vec<Cluster>,
    /// The kinds of other clusters whose owners it is to enqueue: refused.
    pub(crate) owned_elsewhere: Vec<String>,
    pub(crate) sources: Vec<StreamSource>,
    pub(crate) reads: Vec<Read>,
    pub(crate) rights: Rights,
    /// What is watched narrowly, and what that takes.
    pub(crate) narrowed: Vec<(Narrowing, Rights)>,
}

impl<K: Marker, R> Definition<K, R> {
    /// Adds the permissions that a watch needs.
    pub(crate) fn allow_watch<W: Watched>(&mut self, watch: &Watch<W>) {
        let kind = W::kind_of(watch.dynamic_type());
        if watch.narrowing().is_none() {
            return self.rights.watch(&kind);
        }
        let mut rights = Rights::default();
        rights.watch(&kind);
        self.narrowed.push((watch.narrowing().clone(), rights));
    }

    pub(crate) fn new(reconciler: R) -> Self {
        Self {
            reconciler,
            settings: Settings::default(),
            selection: Selection::default(),
            predicate: None,
            kind_sources: Vec::new(),
            foreign_sources: Vec::new(),
            clusters: Vec::new(),
            owned_elsewhere: Vec::new(),
            sources: Vec::new(),
            reads: Vec::new(),
            rights: Rights::default(),
            narrowed: Vec::new(),
        }
    }
}
