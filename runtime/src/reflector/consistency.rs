//! Compares what the store shows with a list at the same version: a check on this crate itself, off by default.

use std::{fmt, time::Duration};

use tokio::time::{Instant, sleep, timeout};
use tracing::debug;

use super::{FetchPart, ReflectorStore, run::ReflectorLoop};
use crate::{
    list_watch::{Item, ListOptions, ListWatchError, ListerWatcher, VersionMatch},
    object::{Object, ObjectKey},
};

/// How long a check may take in all; the watch is not read meanwhile.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long the store may take to show what it was given, and how often it is asked.
const SETTLES: (u32, Duration) = (50, Duration::from_millis(100));

/// How often it is checked at most: the watch must be read between two checks.
const MOST_OFTEN: Duration = Duration::from_secs(1);

/// Most objects a page, where nobody says.
const PAGE_SIZE: u32 = 500;

/// Most differences that a log line names.
const NAMED: usize = 5;

/// One object of which a store shows something else than its source held at the same version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The object.
    pub key: ObjectKey,
    /// What the source held: the object's version; `None` if there was no such object.
    pub listed: Option<String>,
    /// What the store shows: the object's version; `None` if it shows none.
    pub shown: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (listed, shown) = (self.listed.as_deref(), self.shown.as_deref());
        let (listed, shown) = (listed.unwrap_or("nothing"), shown.unwrap_or("nothing"));
        write!(f, "{} (shown: {shown}, listed: {listed})", self.key)
    }
}

/// When the next check is due.
#[derive(Debug)]
pub(super) struct Checks {
    every: Option<Duration>,
    due: Option<Instant>,
    page_size: u32,
}

impl Checks {
    pub(super) fn new(every: Option<Duration>, page_size: Option<u32>) -> Self {
        let every = every.filter(|every| !every.is_zero()).map(|every| every.max(MOST_OFTEN));
        Self { every, due: None, page_size: page_size.unwrap_or(PAGE_SIZE) }
    }

    /// Ends when a check is due; never where none is wanted.
    pub(super) fn due(&mut self) -> impl Future<Output = ()> + use<> {
        let due = self
            .every
            .map(|every| *self.due.get_or_insert_with(|| crate::clock::after(Instant::now(), every)));
        async move {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        }
    }

    fn done(&mut self) {
        self.due = None;
    }
}

/// What came of a check.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Checked {
    /// The store shows what the source held, or that could not be found out.
    Fine,
    /// It shows something else.
    Differs,
}

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
