//! Compares what the store shows with a list at the same version: a check of this crate itself, off by default.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tracing::debug;

use super::sink::{AnyStore, Difference};
use crate::{
    clock::{after, until},
    list_watch::{AnyItem, AnySource, ListOptions, ListWatchError, VersionMatch},
};

/// How long a check may take; the watch is not read meanwhile.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often the store is asked until it shows what it was given, and the pause between.
const SETTLES: (u32, Duration) = (50, Duration::from_millis(100));

/// Most differences that a log line names.
const NAMED: usize = 5;

/// The shortest period: the watch must be read between two checks.
const MOST_OFTEN: Duration = Duration::from_secs(1);

/// Objects in a page, unless set.
const PAGE_SIZE: u32 = 500;

/// Compares a store with its source from time to time.
#[derive(Debug)]
pub(super) struct ConsistencyCheck {
    every: Option<Duration>,
    due: Option<Instant>,
    page_size: u32,
}

impl ConsistencyCheck {
    pub(super) fn new(every: Option<Duration>, page_size: Option<u32>) -> Self {
        let every = every.filter(|every| !every.is_zero()).map(|every| every.max(MOST_OFTEN));
        Self { every, due: None, page_size: page_size.unwrap_or(PAGE_SIZE) }
    }

    /// Waits until a check is due; forever if checks are off.
    pub(super) fn due(&mut self) -> impl Future<Output = ()> + use<> {
        let due = self.every.map(|every| *self.due.get_or_insert_with(|| after(Instant::now(), every)));
        until(due)
    }

    /// Compares the store with the source at a version; returns an error if they differ.
    pub(super) async fn run(
        &mut self,
        name: &str,
        source: &dyn AnySource,
        store: &AnyStore,
        version: Option<&str>,
    ) -> Option<ListWatchError> {
        self.due = None;
        let checked = timeout(PATIENCE, self.differences(source, store, version)).await;
        let differences = match checked.unwrap_or_else(|_| Err("it took too long".to_owned())) {
            Ok(differences) => differences,
            Err(why) => {
                debug!(kind = %name, why, "not checked against a list");
                return None;
            }
        };
        debug!(kind = %name, differences = differences.len(), "checked against a list");
        if differences.is_empty() {
            return None;
        }
        let named: Vec<_> = differences.iter().take(NAMED).map(Difference::to_string).collect();
        Some(ListWatchError::Inconsistent { count: differences.len(), named: named.join(", ") })
    }

    async fn differences(
        &self,
        source: &dyn AnySource,
        store: &AnyStore,
        version: Option<&str>,
    ) -> Result<Vec<Difference>, String> {
        let listed = self.list_at(source, version.ok_or("the version of the watch is not known")?).await?;
        for _ in 0..SETTLES.0 {
            match store.differences(&listed) {
                Some(differences) => return Ok(differences),
                None => sleep(SETTLES.1).await,
            }
        }
        Err("the store has not handled all changes yet".to_owned())
    }

    /// Lists what the source held at a version.
    async fn list_at(&self, source: &dyn AnySource, version: &str) -> Result<Vec<AnyItem>, String> {
        let paged = ListOptions { limit: Some(self.page_size), ..ListOptions::default() };
        let (resource_version, version_match) = (Some(version.to_owned()), Some(VersionMatch::Exact));
        let mut options = ListOptions { resource_version, version_match, ..paged.clone() };
        let mut items = Vec::new();
        loop {
            let page = source.list(&options).await.map_err(|error| error.to_string())?;
            if page.resource_version != version {
                return Err(format!("the list is of version {}", page.resource_version));
            }
            items.extend(page.items);
            if page.continue_token.is_none() {
                return Ok(items);
            }
            options = ListOptions { continue_token: page.continue_token, ..paged.clone() };
        }
    }
}
