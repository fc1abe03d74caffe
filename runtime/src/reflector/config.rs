//! How a reflector lists and watches.

use std::{borrow::Cow, ops::RangeInclusive, sync::Arc, time::Duration};

use super::{failure_log::FailureLog, server::Server, watch_error::WatchError};
use crate::{backoff::BackoffSchedule, clock::WallClock, metrics::Metrics};

/// Configures a reflector; the defaults suit any server.
#[derive(Clone)]
pub struct ReflectorConfig {
    /// What is fetched, as messages name it: `websites.web.example.dev`; an informer's is its kind unless set.
    pub name: Cow<'static, str>,
    /// How the first list is read, and later ones where that is possible: streamed unless set.
    ///
    /// An informer's is its own, whatever this says.
    pub first_list: FirstList,
    /// Most items a page; an explicit size always wins. `None`: 500, where lists are paged at all.
    pub page_size: Option<u32>,
    /// How long a watch is asked to stay open: drawn again for each watch; 5 to 10 min. At least a second, at most 68 years.
    pub watch_timeout: RangeInclusive<Duration>,
    /// Lists so often, and opens no watch: for kinds that can be listed and not watched. A second at least.
    ///
    /// `None` and zero: watches. A kind that refuses to be watched is then listed after 1, 2, 4, 8 and 16 refusals in a
    /// row, and after every 16 more, which is about every twelve minutes. Between two lists nothing is seen, so that keys
    /// whose own writes are not shown yet wait for the next.
    pub poll: Option<Duration>,
    /// How long to wait after failures: 800 ms, doubled up to 30 s, and up to twice that by chance, unless set.
    ///
    /// Not less than the server's `Retry-After` asks for, up to five minutes, unless others get through after an outage.
    /// While requests to the same server succeed, delays after failures that may be chance (no answer, an answer that broke
    /// off, 401, 429, 5xx) stay below 1.6 s, until this kind has failed for a minute. This caps every exponential schedule;
    /// only [`BackoffSchedule::Custom`] is not changed. The delay before a list that is needed again counts from the list
    /// before.
    pub backoff: BackoffSchedule,
    /// Decides jitter and timeouts; equal seeds give equal delays. `None`: drawn at random.
    pub seed: Option<u64>,
    /// How often every known object is shown again; `None` and zero: never. Every millisecond at most.
    pub resync: Option<Duration>,
    /// How often the cache is compared with a list at the same version; `None` and zero: never.
    ///
    /// A check on the runtime itself, for tests and canaries: a difference is a defect. It is logged as an error, and the
    /// cache is listed again. At most every second. Each check costs a whole list, during which the watch is not read.
    pub consistency_check: Option<Duration>,
    /// Handles failures; they are logged unless set.
    ///
    /// Call [`WatchError::log`] in it to keep the log as it was. A watch that was only silent for too long, and is opened
    /// again at once, is not reported. The task that fetches or applies calls it and waits for it, so it should be quick. A
    /// panic is contained.
    pub on_error: Arc<dyn Fn(&WatchError) + Send + Sync>,
    /// Decides which failures are logged: an outage that all holders of a clone share is logged once.
    pub log: FailureLog,
    /// Where fetching is counted, under `name`; `None`: nowhere.
    pub metrics: Option<Metrics>,
    /// Detects that the machine was suspended: watches are then opened again. The system's clock.
    pub clock: WallClock,
    /// What is read from: the reflectors that are given clones of one server help each other through its outages.
    pub server: Server,
}

impl_debug!(ReflectorConfig, this => name: this.name, first_list: this.first_list, page_size: this.page_size, poll: this.poll);

/// What is fetched where nobody says what.
const UNNAMED: &str = "objects";

impl ReflectorConfig {
    /// Takes a name where none was given.
    pub(crate) fn named(self, name: impl FnOnce() -> String) -> Self {
        let name = if self.name == UNNAMED { Cow::Owned(name()) } else { self.name };
        Self { name, ..self }
    }
}

impl Default for ReflectorConfig {
    fn default() -> Self {
        Self {
            name: Cow::Borrowed(UNNAMED),
            first_list: FirstList::default(),
            page_size: None,
            watch_timeout: Duration::from_secs(300)..=Duration::from_secs(600),
            poll: None,
            backoff: BackoffSchedule::default(),
            seed: None,
            resync: None,
            consistency_check: None,
            on_error: Arc::new(WatchError::log),
            log: FailureLog::default(),
            metrics: None,
            clock: WallClock::system(),
            server: Server::default(),
        }
    }
}

/// How the present state is read at the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FirstList {
    /// As a streaming list, consistent; in pages where the server can't stream.
    #[default]
    Streaming,
    /// As a consistent list, in pages.
    Paged,
    /// As whatever version the server has at hand (`"0"`): cheap, and possibly stale.
    AnyVersion,
}
