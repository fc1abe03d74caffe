//! What a flight recorder asks of its manager.

use serde_json::json;
use tokio::{task::JoinHandle, time::timeout};

use super::{
    debug_report::ProgramReport, end::ManagerEnd, inspector::Inspector, process::Clusters, running::ABORT,
};
use crate::{
    flight_recorder::{Recording, RecordingSource, Shown, SnapshotObject},
    leader_election::{LeaderState, Leadership},
};

/// What a flight recorder asks.
pub(super) struct RecordedManager {
    pub(super) clusters: Clusters,
    pub(super) leadership: Option<Leadership>,
    pub(super) inspector: Inspector,
}

impl RecordedManager {
    /// Records until a stop has begun and nothing runs any more, or what runs on is given up.
    pub(super) fn record(self, recorder: Recording, end: &ManagerEnd) -> JoinHandle<()> {
        let (finish, live) = (end.stop.finish.clone(), end.live.clone());
        let at_most = end.grace_period.saturating_add(ABORT);
        tokio::spawn(recorder.write(self, async move {
            finish.cancelled().await;
            let _is_given_up = timeout(at_most, live.wait()).await;
        }))
    }
}

impl RecordingSource for RecordedManager {
    fn objects(&self, shown: &Shown, take: &mut dyn FnMut(SnapshotObject<'_>)) {
        self.clusters.own().factory().cached(shown, take);
    }

    fn settings(&self) -> serde_json::Value {
        let controllers = self.inspector.overviews(0).into_iter();
        let controllers = controllers.map(|controller| {
            json!({"name": controller.name, "kind": controller.kind, "workers": controller.workers.total})
        });
        json!({"program": ProgramReport::new(None), "controllers": controllers.collect::<Vec<_>>()})
    }

    fn state(&self) -> Option<&'static str> {
        self.leadership.as_ref().map(|leadership| match leadership.state() {
            LeaderState::Leads => "leads",
            LeaderState::StandsBy { .. } => "stands by",
            LeaderState::Ends => "ends",
            LeaderState::Idle => "idle",
        })
    }
}
