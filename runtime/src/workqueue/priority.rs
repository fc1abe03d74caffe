//! Who goes first.

/// Who goes first among the keys that are ready.
///
/// A key has the highest priority that was asked for it; while it waits it is never lowered. Raised, it joins the back
/// of its new line. One grant in eight goes to whoever has waited longest, whatever its priority: nothing starves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// After all else: what changed nothing, and what a start finds.
    Low,
    /// What really changed.
    #[default]
    Normal,
    /// Before all else.
    High,
}

impl Priority {
    /// All of them, the first to go first.
    pub const ALL: [Self; 3] = [Self::High, Self::Normal, Self::Low];

    /// Tells its name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
        }
    }

    /// Its place among all.
    pub(super) const fn rank(self) -> usize {
        match self {
            Self::High => 0,
            Self::Normal => 1,
            Self::Low => 2,
        }
    }
}
