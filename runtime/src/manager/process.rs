//! The manager as a process: its start, server, and election.

use std::{fmt, time::Duration};

use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use super::factories::Factories;
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
    pub(super) surroundings: Surroundings,
}

/// Whether the program runs in the cluster that it works for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Surroundings {
    /// Its configuration is a pod's service account.
    Pod,
    /// Anything else, or not known.
    #[default]
    Elsewhere,
}

/// A manager that was started.
pub(super) struct ManagerProcess {
    pub(super) started: Moment,
    pub(super) factories: Factories,
    pub(super) leadership: Option<Leadership>,
    pub(super) cluster: ClientOrigin,
    /// A client that does not depend on leadership.
    pub(super) client: kube::Client,
    pub(super) stop: CancellationToken,
    pub(super) version: ServerVersion,
}

impl ManagerProcess {
    /// Asks the server for its version, unless that is known.
    pub(super) async fn server_version(&self) -> Option<String> {
        self.version.of(&self.client).await
    }

    pub(super) fn stops(&self) -> bool {
        self.stop.is_cancelled()
    }
}

impl fmt::Debug for ManagerProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManagerProcess").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

/// The server's version, asked for when somebody wants to see it.
#[derive(Debug, Default)]
pub(super) struct ServerVersion {
    known: Mutex<Option<(Instant, Option<String>)>>,
}

impl ServerVersion {
    async fn of(&self, client: &kube::Client) -> Option<String> {
        // One asks, the others wait for the answer.
        let mut known = self.known.lock().await;
        if let Some((at, version)) = &*known
            && at.elapsed() < BELIEVED
        {
            return version.clone();
        }
        let answer = timeout(PATIENCE, client.apiserver_version()).await;
        let version = answer.ok().and_then(Result::ok).map(|version| version.git_version);
        *known = Some((Instant::now(), version.clone()));
        version
    }
}
