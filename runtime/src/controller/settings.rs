//! The settings of a controller besides what it watches, their defaults, and which are refused.

use std::{fmt, sync::Arc, time::Duration};

use super::{Panics, error::ControllerError};
use crate::{
    object::ObjectKey,
    workqueue::{ConfigError, ItemExponentialFailure, RateLimit, RateLimiter, WorkQueue, WorkQueueConfig},
};

/// What retries of failures share in a controller without a rate limit, as in client-go.
const RETRY_RATE: RateLimit = RateLimit::per_second(10).burst(100);
/// How often one key may run and write, whatever enqueues it.
const STORM_LIMIT: RateLimit = RateLimit::per_second(1).burst(10);
/// Most reconciles that one controller runs at once.
const MOST_WORKERS: usize = 65_536;

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
    pub(crate) backoff: ControllerBackoff,
    pub(crate) retry_rate: RetryRate,
    pub(crate) storm_limit: RateLimit,
    pub(crate) floor: Duration,
    pub(crate) panics: Panics,
    pub(crate) deadline: Option<Duration>,
    pub(crate) sync_timeout: Option<Duration>,
    pub(crate) waits_for_own: bool,
}

/// How long failed keys wait.
#[derive(Clone)]
pub(crate) struct ControllerBackoff(pub(crate) Arc<dyn RateLimiter>);

impl fmt::Debug for ControllerBackoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ControllerBackoff")
    }
}

/// How long failed keys wait where nothing is set: doubling, with a pause in the growth.
///
/// Each key that fails by chance, as before a server that fails half of all requests, must get some twenty attempts in a
/// minute. Doubling alone gives it fourteen.
struct DefaultBackoff(ItemExponentialFailure);

impl DefaultBackoff {
    /// After this many failures in a row the wait (5 s) stays for a while.
    const PAUSES: u32 = 11;
    /// For how many failures it stays.
    const FOR: u32 = 10;
}

impl RateLimiter for DefaultBackoff {
    fn delay(&self, failures: u32) -> Duration {
        self.0.delay(failures.saturating_sub(Self::FOR).max(failures.min(Self::PAUSES)))
    }
}

/// What retries of failures share.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RetryRate {
    /// The rate limit for all runs, or [`RETRY_RATE`] where there is none.
    Unset,
    Set(Option<RateLimit>),
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
            backoff: ControllerBackoff(Arc::new(DefaultBackoff(ItemExponentialFailure::default()))),
            retry_rate: RetryRate::Unset,
            storm_limit: STORM_LIMIT,
            floor: Duration::from_secs(1),
            panics: Panics::Contain,
            deadline: None,
            sync_timeout: None,
            waits_for_own: true,
        }
    }
}

impl Settings {
    /// Makes the queue that the settings ask for, if nothing in them is refused.
    pub(crate) fn checked_queue(&self, name: &str) -> Result<WorkQueue<ObjectKey>, ControllerError> {
        let named = || name.to_owned();
        match self.workers {
            0 => return Err(ControllerError::NoWorkers { name: named() }),
            workers if workers > MOST_WORKERS => {
                return Err(ControllerError::TooManyWorkers { name: named(), workers });
            }
            _ => {}
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
        if let Some(namespace) = self.namespaces.iter().find(|namespace| !is_label(namespace)) {
            return Err(ControllerError::Namespace { name: named(), namespace: namespace.to_string() });
        }
        if self.deadline.is_some_and(|deadline| deadline.is_zero()) {
            return Err(ControllerError::NoTime { name: named() });
        }
        if self.sync_timeout.is_some_and(|within| within.is_zero()) {
            return Err(ControllerError::NoTimeToSync { name: named() });
        }
        if let Err(source) = self.storm_limit.validate() {
            return Err(ControllerError::StormLimit { name: named(), source });
        }
        let retry_rate = match self.retry_rate {
            // A run that fails before the user's code starts spends nothing of the rate limit: only this bounds it.
            RetryRate::Unset => Some(self.rate_limit.unwrap_or(RETRY_RATE)),
            RetryRate::Set(rate) => rate,
        };
        let config = WorkQueueConfig {
            backoff: self.backoff.0.clone(),
            rate: self.rate_limit,
            retry_rate,
            floor: self.floor,
        };
        WorkQueue::with_config(config).map_err(|refused| match refused {
            ConfigError::RetryRate(source) => ControllerError::RetryRate { name: named(), source },
            source => ControllerError::RateLimit { name: named(), source },
        })
    }
}

fn is_field_manager(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_/".contains(&byte);
    (1..=128).contains(&name.len()) && name.bytes().all(plain)
}

/// As Kubernetes has it: a DNS subdomain, a slash, and a name of at most 63 characters.
fn is_qualified(finalizer: &str) -> bool {
    let ends_well = |name: &str| {
        name.starts_with(|first: char| first.is_ascii_alphanumeric())
            && name.ends_with(|last: char| last.is_ascii_alphanumeric())
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    finalizer.split_once('/').is_some_and(|(domain, name)| {
        let is_domain = domain.len() <= 253 && domain.split('.').all(is_lower_case);
        is_domain && name.len() <= 63 && ends_well(name) && name.bytes().all(plain)
    })
}

/// A DNS label, as the names of namespaces are.
fn is_label(name: &str) -> bool {
    name.len() <= 63 && is_lower_case(name)
}

fn is_lower_case(part: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    !part.starts_with('-')
        && !part.ends_with('-')
        && !part.is_empty()
        && part.bytes().all(|byte| plain(byte) || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    // C50
    #[test]
    fn the_default_backoff_leaves_a_key_twenty_attempts_in_a_minute_and_grows_to_its_cap() {
        let backoff = DefaultBackoff(ItemExponentialFailure::default());
        let delays: Vec<_> = (1..=40).map(|failures| backoff.delay(failures)).collect();
        assert!(delays.is_sorted(), "{delays:?}");
        assert_eq!((delays[0], delays[10], delays[20]), (millis(5), millis(5_120), millis(5_120)));
        assert!(delays[..20].iter().sum::<Duration>() < Duration::from_secs(60));
        assert_eq!((delays[21], delays[39]), (millis(10_240), Duration::from_secs(1_000)));
    }
}
