//! What a report of fetching is about.

use std::fmt;

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
