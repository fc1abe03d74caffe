//! Compares what the store shows with a list at the same version: a check on this crate itself, off by default.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tracing::debug;

use super::{
    FetchPart, ReflectorStore,
    difference::{Checked, Difference},
    run::ReflectorLoop,
};
use crate::{
    list_watch::{Item, ListOptions, ListWatchError, ListerWatcher, VersionMatch},
    object::Object,
};

/// How long a check may take in all; the watch is not read meanwhile.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long the store may take to show what it was given, and how often it is asked.
const SETTLES: (u32, Duration) = (50, Duration::from_millis(100));

/// Most differences that a log line names.
const NAMED: usize = 5;

impl<K, L, S> ReflectorLoop<K, L, S>
where
    K: Object,
    L: ListerWatcher<K>,
    S: ReflectorStore<K>,
{
    /// Compares the store with the source at the version that the watch has reached.
    pub(super) async fn check(&mut self) -> Checked {
        let found = timeout(PATIENCE, self.differences()).await;
        self.checks.done();
        let name = &self.reporter.name;
        let differences = match found {
            Ok(Ok(differences)) => differences,
            Ok(Err(why)) => {
                debug!(kind = %name, %why, "not checked against a list");
                return Checked::Fine;
            }
            Err(_) => {
                debug!(kind = %name, "not checked against a list: it took too long");
                return Checked::Fine;
            }
        };
        if differences.is_empty() {
            debug!(kind = %name, "checked against a list: no difference");
            return Checked::Fine;
        }
        let named: Vec<_> = differences.iter().take(NAMED).map(Difference::to_string).collect();
        let error = ListWatchError::Inconsistent { count: differences.len(), named: named.join(", ") };
        self.reporter.failed(FetchPart::Watch, error, Duration::ZERO);
        Checked::Differs
    }

    async fn differences(&self) -> Result<Vec<Difference>, NotChecked> {
        let version = self.state.version().ok_or(NotChecked::NoVersion)?.to_owned();
        let listed = self.list_at(&version).await?;
        for _ in 0..SETTLES.0 {
            match self.store.differences(&listed) {
                Some(differences) => return Ok(differences),
                None => sleep(SETTLES.1).await,
            }
        }
        Err(NotChecked::Unsettled)
    }

    /// Lists what the source held at a version.
    async fn list_at(&self, version: &str) -> Result<Vec<Item<K>>, NotChecked> {
        let limit = Some(self.checks.page_size);
        let mut options = ListOptions {
            resource_version: Some(version.to_owned()),
            version_match: Some(VersionMatch::Exact),
            limit,
            ..ListOptions::default()
        };
        let mut items = Vec::new();
        loop {
            let page = self.source.list(&options).await.map_err(NotChecked::List)?;
            if page.resource_version != version {
                return Err(NotChecked::OtherVersion(page.resource_version));
            }
            items.extend(page.items);
            match page.continue_token {
                Some(token) => {
                    options = ListOptions { limit, continue_token: Some(token), ..ListOptions::default() };
                }
                None => return Ok(items),
            }
        }
    }
}

/// Why the store could not be compared; the next check may find out.
#[derive(Debug, thiserror::Error)]
enum NotChecked {
    #[error("the version that was reached is not known")]
    NoVersion,
    #[error("{0}")]
    List(ListWatchError),
    #[error("the list is of version {0}")]
    OtherVersion(String),
    #[error("what was read is not handled yet")]
    Unsettled,
}
