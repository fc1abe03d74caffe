//! Starts the tasks of an informer: one that applies, and one for each part of the cache that fetches.

use std::sync::Arc;

use super::{core::InformerCore, processor::Processor, reflector_task::InformerSink};
use crate::object::Object;

/// Starts the tasks, unless they were started before.
pub(super) fn start<K: Object>(core: &Arc<InformerCore<K>>) {
    let Some(feeds) = core.begin() else { return };
    core.spawn_vital("the task that applies changes", Box::pin(Processor::new(core.clone()).run()));
    for (feed, sink) in feeds {
        let sink = Arc::new(InformerSink {
            sink,
            cache: core.indexer.lister(),
            health: core.health.clone(),
            reliability: core.reliability.clone(),
            meter: core.meter.clone(),
        });
        core.spawn_vital("the task that fetches", (feed.run)(sink, core.stop.clone()));
    }
    core.wake.notify_one();
}
