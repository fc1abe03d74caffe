//! The manager as a process: its start, server, and election.

use std::time::Duration;

use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use super::clusters::Clusters;
use crate::{clock::Moment, leader_election::Leadership};

/// How long the server may take to say its version.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long that is believed.
const BELIEVED: Duration = Duration::from_secs(60);

/// Where a manager's client was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ClientOrigin {
    /// The server's address, where the manager built the client.
    pub(super) url: Option<String>,
    /// Its configuration is a pod's service account.
    pub(super) in_a_pod: bool,
}

/// A manager that was started.
pub(super) struct ManagerProcess {
    pub(super) started: Moment,
    pub(super) clusters: Clusters,
    pub(super) leadership: Option<Leadership>,
    pub(super) cluster: ClientOrigin,
    /// A client that does not depend on leadership.
    pub(super) client: kube::Client,
    pub(super) stop: CancellationToken,
    /// The server's version, and when it was asked for.
    pub(super) version: Mutex<Option<(Instant, Option<String>)>>,
}

impl ManagerProcess {
    /// Asks the server for its version, unless that is known.
    pub(super) async fn server_version(&self) -> Option<String> {
        // One asks, the others wait for the answer.
        let mut known = self.version.lock().await;
        if let Some((at, version)) = &*known
            && at.elapsed() < BELIEVED
        {
            return version.clone();
        }
        let answer = timeout(PATIENCE, self.client.apiserver_version()).await;
        let version = answer.ok().and_then(Result::ok).map(|version| version.git_version);
        *known = Some((Instant::now(), version.clone()));
        version
    }
}
