//! What is tried, and how much of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::plan::Plan;
use crate::share::Share;
use crate::trouble::Trouble;

/// Returns whether a trouble is to be tried.
pub(crate) type Wanted = Arc<dyn Fn(Trouble) -> bool + Send + Sync>;

/// What is tried, and how much of it.
pub(crate) struct Settings {
    pub(crate) plan: Plan,
    pub(crate) wanted: Wanted,
    pub(crate) pairs: usize,
    pub(crate) seed: u64,
    pub(crate) at_most: Option<Duration>,
    pub(crate) diagram: Option<PathBuf>,
    pub(crate) replay: Option<String>,
    pub(crate) share: Share,
}
