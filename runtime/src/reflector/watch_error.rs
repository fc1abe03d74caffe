//! Failures to list and watch, and their handlers.

use std::{borrow::Cow, fmt, sync::Arc, time::Duration};

use super::{explain::explain, failure_log::LogLevel};
use crate::{clock::readable, list_watch::ListWatchError, users_code::contained};

/// Which half of fetching something is about: each fails, and is well again, by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FetchPart {
    /// Reading what there is: in pages, or as the start of a watch.
    List,
    /// Following what changes, the opening and what is asked before it included.
    Watch,
}

impl fmt::Display for FetchPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::List => "list",
            Self::Watch => "watch",
        })
    }
}

/// Describes a list, an opening or a stream that failed, or something in a stream that was skipped.
///
/// Shown as one line that says which kind, what is wrong, what to do, and when it is tried again; never with an
/// object's content.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WatchError {
    /// What is fetched, as messages name it: `websites.web.example.dev`.
    pub name: Cow<'static, str>,
    /// Which half of fetching failed.
    pub part: FetchPart,
    /// What went wrong.
    pub error: Arc<ListWatchError>,
    /// How often in a row this part has failed by now; of what was skipped, how much in this stream.
    pub attempts: u32,
    /// How long until it is tried again.
    pub retry_in: Duration,
    /// Whether it should be logged.
    pub news: LogLevel,
}

impl WatchError {
    pub(crate) fn new(
        name: impl Into<Cow<'static, str>>,
        part: FetchPart,
        error: ListWatchError,
        attempts: u32,
        retry_in: Duration,
    ) -> Self {
        Self { name: name.into(), part, error: Arc::new(error), attempts, retry_in, news: LogLevel::Begins }
    }

    /// Logs the failure at the level that [`LogLevel`] implies.
    ///
    /// A failure is logged when it begins, after 30 s, and then less and less often. Only the first
    /// skipped event of a stream is logged, and of objects that can't be read the first ten of a cache: there may be thousands.
    pub fn log(&self) {
        let Self { name, attempts, .. } = self;
        match &self.news {
            LogLevel::Begins => tracing::warn!(kind = %name, attempts, "{self}"),
            LogLevel::Lasts { lasting, kinds } if kinds.len() < 2 => {
                tracing::warn!(kind = %name, attempts, "still after {}: {self}", readable(*lasting));
            }
            LogLevel::Lasts { lasting, kinds } => tracing::warn!(
                kind = %name, attempts,
                "still after {}: {} kinds can't be read ({}); the last error: {self}",
                readable(*lasting), kinds.len(), named(kinds)
            ),
            LogLevel::Routine => tracing::info!(kind = %name, "{self}"),
            LogLevel::Repeats => tracing::debug!(kind = %name, attempts, "{self}"),
        }
    }
}

/// Names a few, and counts the others.
fn named(kinds: &[Cow<'static, str>]) -> String {
    const FEW: usize = 5;
    let mut text = kinds[..kinds.len().min(FEW)].join(", ");
    if kinds.len() > FEW {
        text.push_str(&format!(" and {} more", kinds.len() - FEW));
    }
    text
}

impl fmt::Display for WatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&explain(&self.name, &self.error))?;
        match (&*self.error, self.retry_in) {
            (ListWatchError::Unexpected(_), _) => f.write_str("; the watch goes on"),
            (_, Duration::ZERO) => f.write_str("; trying again at once"),
            (_, wait) => write!(f, "; trying again in {:?}", rounded(wait)),
        }
    }
}

/// Handles every [`WatchError`]; by default it is logged.
pub(crate) type WatchErrorHandler = Arc<dyn Fn(&WatchError) + Send + Sync>;

/// Hands an error to a handler.
pub(crate) fn tell(handler: &WatchErrorHandler, error: &WatchError) {
    if contained(|| handler(error)).is_none() {
        tracing::error!(kind = %error.name, "the watch error handler panicked; fetching goes on");
    }
}

/// Rounds a wait to what a person wants to read.
pub(crate) fn rounded(wait: Duration) -> Duration {
    Duration::from_millis(
        u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).div_ceil(100).saturating_mul(100),
    )
}
