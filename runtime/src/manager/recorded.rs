//! The flight recorder of a manager: it is opened, and asks how all stands.

use serde_json::json;
use tokio::{task::JoinHandle, time::timeout};

use super::{
    debug_report::ProgramReport, end::ManagerEnd, inspector::Inspector, process::Clusters, running::ABORT,
};
use crate::{
    clock::WallClock,
    error::Error,
    flight_recorder::{FlightRecorder, Recording, RecordingSource, Shown, SnapshotObject},
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

/// Opens the file of a recorder.
///
/// # Errors
/// It can't be written, or another manager writes into it.
pub(super) fn open(settings: &FlightRecorder, clock: &WallClock) -> Result<Recording, Error> {
    settings.open(clock).map_err(|error| {
        let file = settings.path().display();
        Error::other(format!("the flight recorder's file {file} can't be written: {error}"))
    })
}
