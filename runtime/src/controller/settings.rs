//! What a controller is told beside what to watch, with its defaults, and what of it is refused.

use std::{sync::Arc, time::Duration};

use super::{Panics, plan::ControllerError};
use crate::{
    object::ObjectKey,
    workqueue::{RateLimit, WorkQueue, WorkQueueConfig},
    writes::WaitForOwn,
};

/// What retries of failures share in a controller without a rate limit, as in client-go.
const RETRY_RATE: RateLimit = RateLimit::per_second(10).burst(100);
/// How often one key may run and write, whatever wakes it.
const STORM_LIMIT: RateLimit = RateLimit::per_second(1).burst(10);

/// The settings of a controller.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) name: Option<String>,
    pub(crate) field_manager: Option<String>,
    /// Empty: all.
    pub(crate) namespaces: Vec<Arc<str>>,
    pub(crate) workers: usize,
    pub(crate) finalizer: Option<String>,
    pub(crate) rate_limit: Option<RateLimit>,
    pub(crate) storm_limit: RateLimit,
    pub(crate) floor: Duration,
    pub(crate) panics: Panics,
    pub(crate) deadline: Option<Duration>,
    pub(crate) sync_timeout: Option<Duration>,
    pub(crate) wait_for_own: WaitForOwn,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            name: None,
            field_manager: None,
            namespaces: Vec::new(),
            workers: 1,
            finalizer: None,
            rate_limit: None,
            storm_limit: STORM_LIMIT,
            floor: Duration::from_secs(1),
            panics: Panics::Contain,
            deadline: None,
            sync_timeout: None,
            wait_for_own: WaitForOwn::Parked,
        }
    }
}

impl Settings {
    /// Makes the queue that the settings ask for, if nothing in them is refused.
    pub(crate) fn checked_queue(&self, name: &str) -> Result<WorkQueue<ObjectKey>, ControllerError> {
        let named = || name.to_owned();
        if self.workers == 0 {
            return Err(ControllerError::NoWorkers { name: named() });
        }
        if !is_field_manager(name) {
            return Err(ControllerError::Name { name: named() });
        }
        if let Some(field_manager) = self.field_manager.clone().filter(|manager| !is_field_manager(manager)) {
            return Err(ControllerError::FieldManager { name: named(), field_manager });
        }
        if let Some(finalizer) = self.finalizer.as_ref().filter(|finalizer| !is_qualified(finalizer)) {
            return Err(ControllerError::Finalizer { name: named(), finalizer: finalizer.clone() });
        }
        if self.deadline.is_some_and(|deadline| deadline.is_zero()) {
            return Err(ControllerError::NoTime { name: named() });
        }
        if let Err(source) = self.storm_limit.validate() {
            return Err(ControllerError::StormLimit { name: named(), source });
        }
        let config = WorkQueueConfig {
            rate: self.rate_limit,
            retry_rate: self.rate_limit.is_none().then_some(RETRY_RATE),
            floor: self.floor,
            ..WorkQueueConfig::default()
        };
        WorkQueue::with_config(config).map_err(|source| ControllerError::RateLimit { name: named(), source })
    }
}

fn is_field_manager(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_/".contains(&byte);
    (1..=128).contains(&name.len()) && name.bytes().all(plain)
}

fn is_qualified(finalizer: &str) -> bool {
    let plain = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
    };
    finalizer.split_once('/').is_some_and(|(domain, name)| plain(domain) && plain(name))
}
