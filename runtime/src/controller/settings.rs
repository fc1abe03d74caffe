//! The settings of a controller besides what it watches, their defaults, and which are refused.

use std::{sync::Arc, time::Duration};

use super::{Panics, error::ControllerError};
use crate::{
    object::{ObjectKey, is_dns_label, is_domain, is_name},
    workqueue::{ItemExponentialFailure, RateLimit, RateLimiter, WorkQueue, WorkQueueConfig},
};

/// What retries of failures share in a controller without a rate limit, as in client-go.
const RETRY_RATE: RateLimit = RateLimit::per_second(10).burst(100);
/// How often one key may run and write, whatever enqueues it.
const STORM_LIMIT: RateLimit = RateLimit::per_second(1).burst(10);
/// Most reconciles that one controller runs at once.
const MOST_WORKERS: usize = 65_536;

/// The settings of a controller.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) name: Arc<str>,
    /// The name in writes and events. `None`: the name.
    pub(crate) author: Option<Arc<str>>,
    /// `None`: the name.
    pub(crate) field_manager: Option<String>,
    /// Empty: all.
    pub(crate) namespaces: Vec<Arc<str>>,
    pub(crate) workers: usize,
    pub(crate) finalizer: Option<String>,
    pub(crate) rate_limit: Option<RateLimit>,
    pub(crate) backoff: Arc<dyn RateLimiter>,
    /// What retries of failures share. `None`: the rate limit for all runs, or [`RETRY_RATE`] if there is none.
    pub(crate) retry_rate: Option<Option<RateLimit>>,
    pub(crate) storm_limit: RateLimit,
    pub(crate) floor: Duration,
    pub(crate) panics: Panics,
    pub(crate) deadline: Option<Duration>,
    pub(crate) sync_timeout: Option<Duration>,
    pub(crate) waits_for_own: bool,
    pub(crate) terminating: Terminating,
    /// Names the tenant of a key; `None`: all keys are of one.
    pub(crate) tenant: Option<TenantOfKey>,
}

/// Names the tenant of a key.
pub(crate) type TenantOfKey = Arc<dyn Fn(&ObjectKey) -> Arc<str> + Send + Sync>;

/// What is done for an object that is being deleted and does not hold the controller's finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Terminating {
    /// Nothing.
    Leave,
    /// It is reconciled like any other.
    Reconcile,
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

impl Settings {
    /// Returns the defaults for a controller of this name.
    pub(crate) fn new(name: Arc<str>) -> Self {
        Self {
            name,
            author: None,
            field_manager: None,
            namespaces: Vec::new(),
            workers: 1,
            finalizer: None,
            rate_limit: None,
            backoff: Arc::new(DefaultBackoff(ItemExponentialFailure::default())),
            retry_rate: None,
            storm_limit: STORM_LIMIT,
            floor: Duration::from_secs(1),
            panics: Panics::Contain,
            deadline: None,
            sync_timeout: None,
            waits_for_own: true,
            terminating: Terminating::Leave,
            tenant: None,
        }
    }

    /// Returns the name under which it writes.
    pub(crate) fn author(&self) -> &Arc<str> {
        self.author.as_ref().unwrap_or(&self.name)
    }

    /// Makes the queue that the settings ask for, if nothing in them is refused.
    pub(crate) fn checked_queue(&self) -> Result<WorkQueue<ObjectKey>, ControllerError> {
        let name = || self.name.to_string();
        if let Some(problem) = self.problem() {
            return Err(ControllerError::Refused { name: name(), problem });
        }
        // A run that fails before the user's code starts spends nothing of the rate limit: only this bounds it.
        let retry_rate = self.retry_rate.unwrap_or(Some(self.rate_limit.unwrap_or(RETRY_RATE)));
        let rates = [
            ("storm limit", Some(self.storm_limit)),
            ("rate limit", self.rate_limit),
            ("retry rate", retry_rate),
        ];
        for (rate, limit) in rates {
            let valid = limit.map_or(Ok(()), |limit| limit.validate());
            valid.map_err(|source| ControllerError::Rate { name: name(), rate, source })?;
        }
        let (backoff, floor) = (self.backoff.clone(), self.floor);
        let config = WorkQueueConfig { backoff, rate: self.rate_limit, retry_rate, floor };
        let queue = match self.tenant.clone() {
            Some(tenant) => WorkQueue::with_tenants(config, move |key| tenant(key)),
            None => WorkQueue::with_config(config),
        };
        Ok(queue.expect("its rates are valid"))
    }

    /// Says what is refused, if anything is.
    fn problem(&self) -> Option<String> {
        let is_zero = |time: Option<Duration>| time.is_some_and(|time| time.is_zero());
        let field_managers = [Some(&**self.author()), self.field_manager.as_deref()];
        if self.workers == 0 {
            Some("zero workers run nothing; `workers` must be at least 1".to_owned())
        } else if self.workers > MOST_WORKERS {
            Some(format!(
                "{} workers are too many; {MOST_WORKERS} may run at once, and a few do for most",
                self.workers
            ))
        } else if let Some(name) = field_managers.into_iter().flatten().find(|name| !is_field_manager(name)) {
            Some(format!(
                "{name:?} can't be a field manager: use 1 to 128 of a-z, A-Z, 0-9, '.', '-', '_', '/'"
            ))
        } else if let Some(finalizer) = self.finalizer.as_ref().filter(|finalizer| !is_qualified(finalizer)) {
            Some(format!(
                "{finalizer:?} can't be a finalizer, it is not a qualified name: write it like `example.dev/volume`"
            ))
        } else if let Some(namespace) = self.namespaces.iter().find(|namespace| !is_dns_label(namespace)) {
            Some(format!(
                "{namespace:?} can't be a namespace: use 1 to 63 of a-z, 0-9, '-', not '-' at either end"
            ))
        } else if is_zero(self.deadline) {
            Some("a deadline of zero ends every run; leave it out, or allow some time".to_owned())
        } else if is_zero(self.sync_timeout) {
            Some("a sync timeout of zero gives up at once; leave it out, or allow some time".to_owned())
        } else {
            None
        }
    }
}

fn is_field_manager(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_/".contains(&byte);
    (1..=128).contains(&name.len()) && name.bytes().all(plain)
}

/// As Kubernetes has it: a DNS subdomain, a slash, and a name of at most 63 characters.
fn is_qualified(finalizer: &str) -> bool {
    finalizer.split_once('/').is_some_and(|(domain, name)| is_domain(domain) && is_name(name))
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
