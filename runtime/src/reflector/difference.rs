//! What a check of consistency finds, and when it is due.

use std::{fmt, time::Duration};

use tokio::time::Instant;

use crate::object::ObjectKey;

/// One object that differs between a store and its source at the same version.
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
    pub(super) page_size: u32,
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

    pub(super) fn done(&mut self) {
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

/// How often it is checked at most: the watch must be read between two checks.
const MOST_OFTEN: Duration = Duration::from_secs(1);

/// Most objects a page, where nobody says.
const PAGE_SIZE: u32 = 500;
