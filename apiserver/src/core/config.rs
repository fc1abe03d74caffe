//! Settings of a core, given at its start and at a restart.

use std::path::PathBuf;
use std::time::Duration;

use crate::call::Caller;
use crate::clock::Clock;
use crate::state::Authorization;

/// What a restart loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// Nothing: streams are cut, data and history stay.
    Keep,
    /// The history: older versions are gone, watches from them get 410.
    ForgetHistory,
    /// Everything: a fresh store whose versions start low again.
    Empty,
    /// What came after this version: objects, definitions and the counter are as they were then.
    ///
    /// So a backup is restored: versions are given out a second time, with other contents. The clock goes on.
    /// A watch from a version that is not reached any more is held open in silence; clients have to find out
    /// themselves that time went back.
    At(u64),
}

/// Whether the server plays the controllers that clean up: garbage and terminating namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Controllers {
    /// It does.
    On,
    /// A test does, or no one.
    Off,
}

/// The settings of a core; the defaults suit tests.
#[derive(Clone, Debug)]
pub(crate) struct CoreConfig {
    /// The file that keeps the state; nowhere when absent.
    pub(crate) data: Option<PathBuf>,
    /// The clock of timestamps such as `creationTimestamp`.
    pub(crate) clock: Clock,
    /// The source of permissions.
    pub(crate) authorization: Authorization,
    /// Makes the calls of webhooks.
    pub(crate) caller: Caller,
    /// The seed of uids and generated names.
    pub(crate) seed: u64,
    /// The resource version before the first write.
    pub(crate) first_version: u64,
    /// The number of changes kept for each resource.
    pub(crate) history: usize,
    /// The time between two bookmarks of a watch that requested them.
    pub(crate) bookmark_period: Duration,
    /// The time from a CRD's creation to its being served.
    pub(crate) establish_delay: Duration,
    /// The time from a write to the controllers' looking at it.
    pub(crate) controller_delay: Duration,
    /// Whether garbage and terminating namespaces are cleaned up.
    pub(crate) controllers: Controllers,
}

impl Default for CoreConfig {
    fn default() -> Self {
        Self {
            data: None,
            caller: Caller::default(),
            authorization: Authorization::default(),
            clock: Clock::default(),
            seed: 1,
            first_version: 1,
            history: 100_000,
            bookmark_period: Duration::from_secs(60),
            establish_delay: Duration::from_millis(30),
            controller_delay: Duration::from_millis(20),
            controllers: Controllers::On,
        }
    }
}
