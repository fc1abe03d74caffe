//! What a flight recorder asks of its manager.

use serde_json::json;
use tokio::task::JoinHandle;

use super::{debug_report::ProgramReport, end::ManagerEnd, inspector::Inspector, process::Clusters};
use crate::{
    flight_recorder::{KindVersions, Recording, RecordingSource, SnapshotObject},
    leader_election::{LeaderState, Leadership},
};

/// What a flight recorder asks.
pub(super) struct RecordedManager {
    pub(super) clusters: Clusters,
    pub(super) leadership: Option<Leadership>,
    pub(super) inspector: Inspector,
}

impl RecordedManager {
    /// Records until a stop has begun and nothing runs any more.
    pub(super) fn record(self, recorder: Recording, end: &ManagerEnd) -> JoinHandle<()> {
        let (finish, live) = (end.stop.finish.clone(), end.live.clone());
        tokio::spawn(recorder.write(self, async move {
            finish.cancelled().await;
            live.wait().await;
        }))
    }
}

impl RecordingSource for RecordedManager {
    fn objects(&self, earlier: Option<&KindVersions>, take: &mut dyn FnMut(SnapshotObject<'_>)) {
        self.clusters.own().factory().cached(earlier, take);
    }

    fn versions(&self) -> Option<KindVersions> {
        self.clusters.own().factory().versions()
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
