//! The commands that handles send to the processor.

use std::sync::Arc;

use super::{handler::EventHandler, listener::Hears, observer::Observer, registration::ObserverLatches};

/// What somebody wants of the processor.
pub(super) enum Command<K> {
    /// A handler comes.
    Join(Arc<dyn Hears<K>>, Box<dyn EventHandler<K>>),
    /// An observer comes.
    Look(ObserverEntry<K>),
    /// Somebody was removed.
    Sweep,
}

/// An observer, and what its registration watches.
pub(super) struct ObserverEntry<K> {
    pub(super) observer: Arc<dyn Observer<K>>,
    pub(super) watcher: Arc<ObserverLatches>,
}
