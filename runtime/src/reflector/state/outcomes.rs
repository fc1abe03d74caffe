//! What the shell tells the state, and what the state answers.

use tokio::time::Instant;

use crate::{list_watch::ListOptions, reflector::sink::Epoch};

/// What to do next.
#[derive(Debug, PartialEq)]
pub(in crate::reflector) enum Step {
    /// Wait.
    Sleep(std::time::Duration),
    /// Ask for the collection's latest version, to notice a server that lost its history.
    Probe,
    /// Read a page of a list.
    List(ListOptions),
    /// Read the list as the start of a watch.
    Stream(ListOptions),
    /// Watch from the last version.
    Watch(ListOptions),
}

/// The result of a page, or of the end of a streaming list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::reflector) enum Listed {
    /// There are more pages.
    More,
    /// The list is whole.
    Whole(Epoch),
    /// The list is older than what was seen: it must not be used.
    TooOld,
    /// The continue tokens lead in a circle, or did not end after this number of pages.
    Endless(u32),
}

/// When a streaming list failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::reflector) enum StreamPhase {
    /// While it was opened.
    Opening,
    /// Before its end.
    Reading,
}

/// How a watch went until it ended.
#[derive(Clone, Copy, Debug)]
pub(in crate::reflector) struct Ending {
    /// When it was opened.
    pub(in crate::reflector) opened: Instant,
    /// What it brought.
    pub(in crate::reflector) brought: Brought,
}

/// What a watch brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::reflector) enum Brought {
    /// Nothing at all.
    Nothing,
    /// Events or bookmarks, all at the version that was known.
    Signs,
    /// A new version.
    Progress,
}

/// What follows when the server has lost its history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::reflector) enum OnLoss {
    /// The next step asks what is left; nothing is waited for.
    Asks,
    /// The same, but the server asked to wait first.
    AsksLater,
    /// The server does not answer for this kind: nothing more can be found out.
    CantAsk,
}
