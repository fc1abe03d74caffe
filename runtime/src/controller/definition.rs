//! The definition of a controller, on its way to a plan.

use super::{
    env::Read,
    predicate::Predicate,
    settings::Settings,
    sources::{KindSource, Selection},
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
            sources: Vec::new(),
            reads: Vec::new(),
            rights: Rights::default(),
        }
    }
}
