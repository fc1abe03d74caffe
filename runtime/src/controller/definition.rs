//! The definition of a controller, on its way to a plan.

use super::{
    cluster::Cluster,
    env::Read,
    predicate::Predicate,
    settings::Settings,
    sources::{ForeignSource, KindSource, Selection},
    stream_source::StreamSource,
};
use crate::{informer::Marker, writes::Rights};

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
    pub(crate) sources: Vec<StreamSource>,
    pub(crate) reads: Vec<Read>,
    pub(crate) rights: Rights,
}

impl<K: Marker, R> Definition<K, R> {
    pub(crate) fn new(reconciler: R) -> Self {
        Self {
            reconciler,
            settings: Settings::default(),
            selection: Selection::default(),
            predicate: None,
            kind_sources: Vec::new(),
            foreign_sources: Vec::new(),
            clusters: Vec::new(),
            sources: Vec::new(),
            reads: Vec::new(),
            rights: Rights::default(),
        }
    }
}
